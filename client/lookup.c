/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups: distinct keys out, rows in, scattered into the caller's array.
 * Without bags a row goes straight to its key's first position and is copied
 * to the others at the end; with bags the distinct rows are kept until all
 * are here and are then pooled in bag order. Bags that the servers pool come
 * as partial sums: a bag's first goes straight to its row, the others are
 * kept until all are here and are then added, in the order of the servers.
 */
#include "client/bags.h"
#include "client/batch.h"
#include "client/pack.h"
#include "client/watch.h"
#include "proto/value.h"

#include <stdlib.h>
#include <string.h>

#define SECTIONS 4u /* KEYS, COUNTS, INDEX, OFFSETS */

struct item {
    struct rps_batch batch;
    struct rps_dedup dedup;
    struct rps_bag_plan plan; /* zeroed where the client pools */
    char *rows;               /* the caller's */
    /** With bags: [count][dim], or of the plan [rest][dim]; else NULL. */
    float *distinct;
};

struct work {
    struct item *items; /* [count] */
    struct rps_pack_item *packs;
    uint32_t count;
    bool read_only; /* which items the frames being built take */
    bool answered;
    uint64_t step; /* the least of the replies' */
};

static void
release(struct rps_ticket_state *ticket)
{
    struct work *work = ticket->work;
    uint32_t i;

    for (i = 0; work != NULL && work->items != NULL && i < work->count; i++) {
        rps_dedup_finish(&work->items[i].dedup);
        rps_bag_plan_finish(&work->items[i].plan);
        free(work->items[i].distinct);
    }
    if (work != NULL) {
        free(work->items);
        free(work->packs);
    }
    free(work);
}

/* --- the request --------------------------------------------------------- */

static bool
takes(const void *context, uint32_t item)
{
    const struct work *work = context;
    bool read_only = (work->items[item].batch.flags & RPS_READ_ONLY) != 0;

    return read_only == work->read_only;
}

static void
write_part(void *context, struct rps_builder *builder,
        const struct rps_part *part, uint32_t ps)
{
    const struct work *work = context;
    const struct item *item = &work->items[part->item];

    if (rps_batch_pools_there(&item->batch)) {
        rps_bag_plan_write(&item->plan, &item->plan.pieces[part->first],
                &item->batch, &item->dedup, false, builder);
        return;
    }
    rps_pack_keys(builder, &work->packs[part->item], part);
    rps_pack_counts(builder, &work->packs[part->item], part);
}

/* --- the reply ----------------------------------------------------------- */

static const struct rps_section *
rows_of(const struct rps_message *reply, const struct item *item,
        const struct rps_part *part)
{
    const rps_embedding_table *table = item->batch.table;
    const struct rps_section *rows =
            rps_message_find(reply, RPS_SECTION_ROWS, table->id);

    return rows != NULL && rows->value == item->batch.wire &&
                           rows->dim == table->spec.dim &&
                           rows->count == part->count && rows->status == 0
                   ? rows
                   : NULL;
}

static rps_status
check_reply(const struct rps_exchange *exchange, const struct work *work,
        const struct rps_message *reply, struct rps_error *error)
{
    uint32_t i;

    for (i = 0; i < exchange->part_count; i++) {
        const struct rps_part *part = &exchange->parts[i];
        const struct item *item = &work->items[part->item];

        const struct rps_section *rows = rows_of(reply, item, part);

        if (rows == NULL) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "the reply to a lookup has not the %u rows of %u values "
                    "(%s) of table %s",
                    part->count, item->batch.table->spec.dim,
                    rps_value_str((uint16_t)item->batch.wire),
                    item->batch.table->spec.name);
        }
        if (rps_value_check(rows->value, rows->dim, rows->count,
                    rps_message_array(reply, rows), error) != RPS_OK) {
            return RPS_E_CORRUPT;
        }
    }
    return RPS_OK;
}

/* Where row i of a part goes: of a key. */
static float *
place_of_key(const struct item *item, const struct rps_part *part, uint32_t i)
{
    const uint32_t index = item->dedup.order[part->first + i];

    return item->distinct != NULL
                   ? item->distinct +
                             (size_t)index * item->batch.table->spec.dim
                   : (float *)(void *)(item->rows + item->dedup.first[index] *
                                                            item->batch.stride);
}

/* The same of a bag's partial sum. */
static float *
place_of_sum(const struct item *item, const struct rps_part *part, uint32_t i)
{
    const uint32_t entry = item->plan.pieces[part->first].entry_first + i;
    const uint32_t order = item->plan.order[entry];

    return order != RPS_ENTRY_FIRST
                   ? item->distinct +
                             (size_t)order * item->batch.table->spec.dim
                   : (float *)(void *)(item->rows + item->plan.bags[entry] *
                                                            item->batch.stride);
}

/* Rows i .. i + this - 1 of a part lie behind each other where they stay, too.
 * Of distinct keys at one PS all do, and few duplicates leave long runs. */
static uint32_t
run_of_keys(const struct item *item, const struct rps_part *part, uint32_t i)
{
    const uint32_t *order = item->dedup.order + part->first;
    const uint32_t *first = item->dedup.first;
    const size_t row = item->batch.table->spec.dim * sizeof(float);
    const bool dense = item->distinct != NULL;
    uint32_t n = 1;

    if (!dense && item->batch.stride != row) {
        return 1;
    }
    while (i + n < part->count &&
            (dense ? order[i + n] == order[i] + n
                   : first[order[i + n]] == first[order[i]] + n)) {
        n++;
    }
    return n;
}

/* One copy, or one conversion, from the frame to where it stays. */
static void
scatter(const struct item *item, const struct rps_part *part, const void *rows)
{
    const uint32_t dim = item->batch.table->spec.dim;
    const uint16_t value = (uint16_t)item->batch.wire;
    const size_t bytes = (size_t)rps_value_row_bytes(value, dim);
    const bool is_sum = rps_batch_pools_there(&item->batch);
    const char *row = rows;
    uint32_t n;

    for (uint32_t i = 0; i < part->count; i += n, row += n * bytes) {
        n = is_sum ? 1 : run_of_keys(item, part, i);
        rps_value_decode(value, dim, n, row,
                is_sum ? place_of_sum(item, part, i)
                       : place_of_key(item, part, i));
    }
}

static rps_status
take(struct rps_exchange *exchange, const struct rps_message *reply,
        struct rps_error *error)
{
    struct work *work = exchange->ticket->work;
    rps_status status = check_reply(exchange, work, reply, error);
    uint32_t i;

    for (i = 0; status == RPS_OK && i < exchange->part_count; i++) {
        const struct rps_part *part = &exchange->parts[i];
        const struct item *item = &work->items[part->item];

        scatter(item, part,
                rps_message_array(reply, rows_of(reply, item, part)));
    }
    if (!work->answered || reply->header.step < work->step) {
        work->step = reply->header.step;
        work->answered = true;
    }
    return status;
}

/* Positions of duplicates and padding. */
static void
fill_rest(const struct item *item)
{
    size_t bytes = item->batch.table->spec.dim * sizeof(float);
    size_t stride = item->batch.stride;
    size_t i;

    if (item->dedup.count == item->dedup.key_count) {
        return; /* all distinct: each row is where it belongs */
    }
    for (i = 0; i < item->dedup.key_count; i++) {
        uint32_t index = item->dedup.index[i];

        if (index == RPS_DEDUP_PADDING) {
            memset(item->rows + i * stride, 0, bytes);
        } else if (item->dedup.first[index] != i) {
            memcpy(item->rows + i * stride,
                    item->rows + item->dedup.first[index] * stride, bytes);
        }
    }
}

static float *
bag_row(const struct item *item, size_t bag)
{
    return (float *)(void *)(item->rows + bag * item->batch.stride);
}

/* The first partial sum of each bag is in its row. */
static void
combine(const struct item *item)
{
    const struct rps_bag_plan *plan = &item->plan;
    const uint32_t dim = item->batch.table->spec.dim;
    uint32_t next = 0;

    for (uint32_t entry = 0; next < plan->rest; entry++) {
        if (plan->order[entry] != RPS_ENTRY_FIRST) {
            rps_batch_add(bag_row(item, plan->bags[entry]),
                    item->distinct + (size_t)next * dim, dim, false);
            next++;
        }
    }
    for (size_t bag = 0; bag < item->batch.bag_count; bag++) {
        if (plan->sizes[bag] == 0) {
            memset(bag_row(item, bag), 0, dim * sizeof(float));
        } else {
            rps_batch_divide(bag_row(item, bag), dim, item->batch.pooling,
                    plan->sizes[bag]);
        }
    }
}

static rps_status
finish(struct rps_ticket_state *ticket, struct rps_error *error)
{
    struct work *work = ticket->work;
    uint32_t i;

    for (i = 0; i < work->count; i++) {
        const struct item *item = &work->items[i];

        if (rps_batch_pools_there(&item->batch)) {
            combine(item);
        } else if (item->batch.offsets != NULL) {
            rps_batch_pool(
                    &item->batch, &item->dedup, item->distinct, item->rows);
        } else {
            fill_rest(item);
        }
    }
    if (work->answered) {
        ticket->client->lookup_step = work->step;
    }
    return RPS_OK;
}

/* --- the call ------------------------------------------------------------ */

/* Room for what waits for the end. */
static rps_status
prepare_bags(rps_client *client, struct item *item)
{
    const uint32_t dim = item->batch.table->spec.dim;
    size_t rows = item->dedup.count;

    if (rps_batch_pools_there(&item->batch)) {
        if (rps_bag_plan_init(&item->plan, &item->batch, &item->dedup,
                    client->ps_count,
                    (size_t)rps_value_row_bytes(
                            (uint16_t)item->batch.wire, dim),
                    false, rps_pack_part_bytes(client, SECTIONS)) != RPS_OK) {
            return rps_client_nomem();
        }
        rows = item->plan.rest;
    }
    item->distinct = malloc((rows > 0 ? rows * dim : 1) * sizeof(float));
    return item->distinct != NULL ? RPS_OK : rps_client_nomem();
}

static rps_status
prepare_item(rps_client *client, const rps_lookup *lookup, uint32_t call_flags,
        size_t index, struct item *item)
{
    rps_status status;

    item->rows = lookup->rows;
    item->batch = (struct rps_batch){
            .table = lookup->table,
            .keys = lookup->keys,
            .key_count = lookup->key_count,
            .offsets = lookup->offsets,
            .bag_count = lookup->bag_count,
            .pooling = lookup->pooling,
            .flags = lookup->flags | call_flags,
            .padding_key = lookup->padding_key,
            .stride = lookup->row_stride,
            .value = lookup->value,
            .wire = lookup->wire,
            .array = lookup->rows,
    };
    status = rps_batch_check(client, &item->batch, "lookups", index);
    if (status == RPS_OK) {
        status = rps_batch_dedup(client, &item->batch, &item->dedup);
    }
    return status == RPS_OK && lookup->offsets != NULL
                   ? prepare_bags(client, item)
                   : status;
}

static rps_status
prepare(rps_client *client, const rps_call *call, const rps_lookup *lookups,
        size_t count, struct work *work)
{
    rps_status status = RPS_OK;
    uint32_t flags = call != NULL ? call->flags : 0;
    size_t i;

    work->items = calloc(count > 0 ? count : 1, sizeof(*work->items));
    work->packs = calloc(count > 0 ? count : 1, sizeof(*work->packs));
    if (work->items == NULL || work->packs == NULL) {
        return rps_client_nomem();
    }
    work->count = (uint32_t)count;
    for (i = 0; status == RPS_OK && i < count; i++) {
        struct item *item = &work->items[i];

        status = prepare_item(client, &lookups[i], flags, i, item);
        if (status == RPS_OK) {
            size_t row = item->batch.table->spec.dim * sizeof(float);
            size_t key = sizeof(uint64_t) + sizeof(uint32_t);

            work->packs[i] = (struct rps_pack_item){
                    .table = item->batch.table,
                    .dedup = &item->dedup,
                    .key_bytes = row > key ? row : key,
                    .plan = rps_batch_pools_there(&item->batch) ? &item->plan
                                                                : NULL,
                    .value = (uint16_t)item->batch.wire,
            };
        }
    }
    return status;
}

static rps_status
build(rps_client *client, const rps_call *call, struct work *work,
        struct rps_outbox *outbox)
{
    struct rps_pack pack = {
            .client = client,
            .outbox = outbox,
            .request = {.opcode = RPS_OP_EMBEDDING_LOOKUP},
            .items = work->packs,
            .item_count = work->count,
            .sections = SECTIONS,
            .take = take,
            .write = write_part,
            .takes = takes,
            .work = work,
    };
    rps_status status;

    if (call != NULL) {
        pack.request.step = call->step;
        pack.request.timeout_ms = call->timeout_ms;
    }
    work->read_only = false;
    status = rps_pack_all(&pack);
    if (status == RPS_OK) {
        work->read_only = true;
        pack.request.flags = RPS_FLAG_READ_ONLY;
        status = rps_pack_all(&pack);
    }
    return status == RPS_OK ? RPS_OK
                            : rps_client_fail(status, "no memory for a lookup");
}

static rps_status
check_call(const rps_client *client, const rps_call *call,
        const rps_lookup *lookups, size_t count)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && call != NULL &&
            (call->flags & ~RPS_READ_ONLY) != 0) {
        status = rps_client_fail(RPS_E_INVAL,
                "call.flags: 0x%x; a lookup knows RPS_READ_ONLY", call->flags);
    }
    if (status == RPS_OK && lookups == NULL && count > 0) {
        status = rps_client_fail(
                RPS_E_INVAL, "lookups is NULL, but count is %zu", count);
    }
    if (status == RPS_OK && count > UINT16_MAX) {
        status = rps_client_fail(
                RPS_E_LIMIT, "%zu tables in a lookup, at most 65535", count);
    }
    return status == RPS_OK ? rps_client_all_whole(client) : status;
}

rps_status
rps_lookup_start(rps_client *client, const rps_call *call,
        const rps_lookup *lookups, size_t count, rps_ticket *ticket_out)
{
    RPS_TURN(client);
    struct rps_ticket_state *ticket = NULL;
    struct rps_outbox outbox;
    struct work *work = NULL;
    rps_status status = check_call(client, call, lookups, count);

    if (ticket_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "ticket_out is NULL");
    }
    *ticket_out = (rps_ticket){0};
    if (status != RPS_OK) {
        return status;
    }
    rps_outbox_init(&outbox);
    ticket = rps_ticket_create(client);
    work = calloc(1, sizeof(*work));
    if (ticket == NULL || work == NULL) {
        free(work);
        status = rps_client_nomem();
        goto fail;
    }
    ticket->work = work;
    ticket->release = release;
    ticket->finish = finish;
    status = prepare(client, call, lookups, count, work);
    if (status == RPS_OK) {
        status = build(client, call, work, &outbox);
    }
    if (status != RPS_OK) {
        goto fail;
    }
    *ticket_out = (rps_ticket){ticket->id};
    rps_outbox_send(client, &outbox, ticket);
    rps_client_rewatch(client);
    return RPS_OK;
fail:
    rps_outbox_abort(client, &outbox);
    rps_ticket_destroy(ticket);
    return status;
}

uint64_t
rps_lookup_step(const rps_client *client)
{
    RPS_TURN(client);

    return client != NULL ? client->lookup_step : 0;
}

rps_status
rps_embedding_lookup(
        rps_embedding_table *table, size_t n, const uint64_t *keys, float *rows)
{
    RPS_TURN(table != NULL ? table->client : NULL);
    rps_lookup lookup = {
            .table = table, .keys = keys, .key_count = n, .rows = rows};
    rps_ticket ticket;
    rps_status status;

    if (table == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table is NULL");
    }
    status = rps_lookup_start(table->client, NULL, &lookup, 1, &ticket);
    if (status != RPS_OK) {
        return status;
    }
    return rps_ticket_settle(rps_ticket_find(table->client, ticket.id),
            table->client->request_timeout_ms);
}
