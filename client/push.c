/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes: gradients are summed a distinct key here, where it has several, then
 * go to every PS, with an empty section for a table that has no key there. With
 * RPS_POOL_ON_SERVER a bag's gradient goes as it is, divided, once to each PS
 * that owns a key of it, and is summed there in the same order. All is copied
 * into the frames, so the caller's arrays are free after the start.
 */
#include "client/bags.h"
#include "client/batch.h"
#include "client/pack.h"
#include "client/watch.h"
#include "proto/value.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SECTIONS 5u /* KEYS, COUNTS, INDEX, OFFSETS, ROWS */

struct item {
    struct rps_batch batch;
    struct rps_dedup dedup;
    struct rps_bag_plan plan; /* zeroed where the client sums */
    float learning_rate;
    bool sent_whole; /* bags' gradients: the servers sum */
    float *sums;     /* [count][dim], of keys with several; NULL: no key has */
};

struct work {
    struct item *items; /* [count] */
    struct rps_pack_item *packs;
    uint32_t count;
};

static void
work_finish(struct work *work)
{
    uint32_t i;

    for (i = 0; work->items != NULL && i < work->count; i++) {
        rps_dedup_finish(&work->items[i].dedup);
        rps_bag_plan_finish(&work->items[i].plan);
        free(work->items[i].sums);
    }
    free(work->items);
    free(work->packs);
}

/* Row `at` of a part, dim floats: a bag's, as it was given; the only one of a
 * key; the sum of several. */
static const void *
row_of(const struct item *item, const struct rps_part *part, uint32_t at)
{
    const struct rps_batch *batch = &item->batch;
    const struct rps_bag_plan *plan = &item->plan;
    uint32_t index = 0;
    size_t row = 0;

    if (item->sent_whole) {
        row = plan->bags[plan->pieces[part->first].entry_first + at];
    } else {
        index = item->dedup.order[part->first + at];
        if (!rps_batch_is_single(batch, &item->dedup, index)) {
            return item->sums + (size_t)index * batch->table->spec.dim;
        }
        row = item->dedup.first[index];
    }
    return (const char *)batch->array + row * batch->stride;
}

/* As it travels; a bag's is divided. */
static void
write_row(const struct item *item, const struct rps_part *part, uint32_t at,
        uint8_t *to)
{
    const struct rps_batch *batch = &item->batch;
    const struct rps_bag_plan *plan = &item->plan;
    const uint32_t dim = batch->table->spec.dim;
    const void *row = row_of(item, part, at);
    float gradient[RPS_DIM_MAX];

    if (batch->wire == RPS_VALUE_F32 && !item->sent_whole) {
        memcpy(to, row, dim * sizeof(float));
        return;
    }
    /* the caller's array need not keep floats aligned */
    memcpy(gradient, row, dim * sizeof(float));
    if (item->sent_whole) {
        const uint32_t entry = plan->pieces[part->first].entry_first + at;
        rps_batch_divide(
                gradient, dim, batch->pooling, plan->sizes[plan->bags[entry]]);
    }
    rps_value_encode((uint16_t)batch->wire, dim, 1, gradient, to);
}

static void
write_rows(const struct item *item, struct rps_builder *builder,
        const struct rps_part *part)
{
    uint32_t dim = item->batch.table->spec.dim;
    struct rps_section section = {
            .table_id = item->batch.table->id,
            .kind = RPS_SECTION_ROWS,
            .value = (uint16_t)item->batch.wire,
            .dim = dim,
            .count = part->count,
            .learning_rate = item->learning_rate,
    };
    const size_t bytes = (size_t)rps_value_row_bytes(section.value, dim);
    size_t at = rps_builder_reserve(builder, &section);
    uint32_t i;

    for (i = 0; at != 0 && i < part->count; i++) {
        write_row(item, part, i, builder->frame + at + i * bytes);
    }
}

static void
write_part(void *context, struct rps_builder *builder,
        const struct rps_part *part, uint32_t ps)
{
    const struct work *work = context;
    const struct item *item = &work->items[part->item];

    if (item->sent_whole && part->count > 0) {
        rps_bag_plan_write(&item->plan, &item->plan.pieces[part->first],
                &item->batch, &item->dedup, true, builder);
    } else {
        rps_pack_keys(builder, &work->packs[part->item], part);
        rps_pack_counts(builder, &work->packs[part->item], part);
    }
    write_rows(item, builder, part);
}

/* The sums of the distinct keys, or what the servers sum them by. */
static rps_status
prepare_sums(rps_client *client, struct item *item)
{
    const uint32_t dim = item->batch.table->spec.dim;
    const size_t n = (size_t)item->dedup.count * dim;
    uint32_t i = 0;

    item->sent_whole = rps_batch_pools_there(&item->batch);
    if (item->sent_whole) {
        return rps_bag_plan_init(&item->plan, &item->batch, &item->dedup,
                       client->ps_count,
                       (size_t)rps_value_row_bytes(
                               (uint16_t)item->batch.wire, dim),
                       true, rps_pack_part_bytes(client, SECTIONS)) == RPS_OK
                       ? RPS_OK
                       : rps_client_nomem();
    }
    while (i < item->dedup.count &&
            rps_batch_is_single(&item->batch, &item->dedup, i)) {
        i++;
    }
    if (i == item->dedup.count) {
        return RPS_OK;
    }
    item->sums = malloc(n * sizeof(float));
    if (item->sums == NULL) {
        return rps_client_nomem();
    }
    rps_batch_sum(&item->batch, &item->dedup, item->batch.array, item->sums);
    return RPS_OK;
}

static rps_status
prepare_item(rps_client *client, const rps_push *push, size_t index,
        struct item *item)
{
    rps_status status;

    item->learning_rate = push->learning_rate;
    item->batch = (struct rps_batch){
            .table = push->table,
            .keys = push->keys,
            .key_count = push->key_count,
            .offsets = push->offsets,
            .bag_count = push->bag_count,
            .pooling = push->pooling,
            .flags = push->flags,
            .padding_key = push->padding_key,
            .stride = push->gradient_stride,
            .value = push->value,
            .wire = push->wire,
            .array = push->gradients,
    };
    status = rps_batch_check(client, &item->batch, "pushes", index);
    if (status == RPS_OK && (push->flags & RPS_READ_ONLY) != 0) {
        status = rps_client_fail(RPS_E_INVAL,
                "pushes[%zu].flags: RPS_READ_ONLY is for lookups", index);
    }
    if (status == RPS_OK &&
            (isinf(push->learning_rate) || push->learning_rate < 0.0f)) {
        status = rps_client_fail(RPS_E_INVAL,
                "pushes[%zu].learning_rate is %g: it is 0 or more and finite, "
                "or NaN for the table's",
                index, (double)push->learning_rate);
    }
    if (status == RPS_OK) {
        status = rps_batch_dedup(client, &item->batch, &item->dedup);
    }
    return status == RPS_OK ? prepare_sums(client, item) : status;
}

/* One step a table and push: its gradients come in one entry. */
static rps_status
check_distinct(const rps_push *pushes, size_t index)
{
    size_t i;

    for (i = 0; i < index; i++) {
        if (pushes[i].table == pushes[index].table) {
            return rps_client_fail(RPS_E_INVAL,
                    "pushes[%zu].table: %s stands in pushes[%zu], too; join "
                    "their keys",
                    index, pushes[index].table->spec.name, i);
        }
    }
    return RPS_OK;
}

static rps_status
prepare(rps_client *client, const rps_push *pushes, size_t count,
        struct work *work)
{
    rps_status status = RPS_OK;
    size_t i;

    work->items = calloc(count > 0 ? count : 1, sizeof(*work->items));
    work->packs = calloc(count > 0 ? count : 1, sizeof(*work->packs));
    if (work->items == NULL || work->packs == NULL) {
        return rps_client_nomem();
    }
    work->count = (uint32_t)count;
    for (i = 0; status == RPS_OK && i < count; i++) {
        struct item *item = &work->items[i];

        status = prepare_item(client, &pushes[i], i, item);
        if (status == RPS_OK) {
            status = check_distinct(pushes, i);
        }
        if (status == RPS_OK) {
            work->packs[i] = (struct rps_pack_item){
                    .table = item->batch.table,
                    .dedup = &item->dedup,
                    .key_bytes = sizeof(uint64_t) + sizeof(uint32_t) +
                                 item->batch.table->spec.dim * sizeof(float),
                    .plan = item->sent_whole ? &item->plan : NULL,
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
            .request = {.opcode = RPS_OP_PUSH_GRADIENTS, .numbered = true},
            .items = work->packs,
            .item_count = work->count,
            .sections = SECTIONS,
            .push = true,
            .write = write_part,
            .work = work,
    };
    rps_status status;

    if (call != NULL) {
        pack.request.step = call->step;
        pack.request.timeout_ms = call->timeout_ms;
    }
    status = rps_pack_all(&pack);
    return status == RPS_OK ? RPS_OK
                            : rps_client_fail(status, "no memory for a push");
}

static rps_status
check_call(const rps_client *client, const rps_call *call,
        const rps_push *pushes, size_t count)
{
    rps_status status = rps_client_enter(client);

    if (status == RPS_OK && call != NULL && call->flags != 0) {
        status = rps_client_fail(RPS_E_INVAL,
                "call.flags: 0x%x; a push knows none", call->flags);
    }
    if (status == RPS_OK && pushes == NULL && count > 0) {
        status = rps_client_fail(
                RPS_E_INVAL, "pushes is NULL, but count is %zu", count);
    }
    if (status == RPS_OK && count > UINT16_MAX) {
        status = rps_client_fail(
                RPS_E_LIMIT, "%zu tables in a push, at most 65535", count);
    }
    return status == RPS_OK ? rps_client_all_whole(client) : status;
}

rps_status
rps_push_start(rps_client *client, const rps_call *call, const rps_push *pushes,
        size_t count, rps_ticket *ticket_out)
{
    RPS_TURN(client);
    struct rps_ticket_state *ticket = NULL;
    struct rps_outbox outbox;
    struct work work = {0};
    rps_status status = check_call(client, call, pushes, count);

    if (ticket_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "ticket_out is NULL");
    }
    *ticket_out = (rps_ticket){0};
    if (status != RPS_OK) {
        return status;
    }
    rps_outbox_init(&outbox);
    ticket = rps_ticket_create(client);
    status = ticket != NULL ? prepare(client, pushes, count, &work)
                            : rps_client_nomem();
    if (status == RPS_OK) {
        status = build(client, call, &work, &outbox);
    }
    work_finish(&work);
    if (status != RPS_OK) {
        rps_outbox_abort(client, &outbox);
        rps_ticket_destroy(ticket);
        return status;
    }
    *ticket_out = (rps_ticket){ticket->id};
    rps_outbox_send(client, &outbox, ticket);
    rps_client_rewatch(client);
    return RPS_OK;
}

rps_status
rps_push_gradients(rps_embedding_table *table, uint64_t step, size_t n,
        const uint64_t *keys, const float *gradients, float learning_rate)
{
    RPS_TURN(table != NULL ? table->client : NULL);
    rps_push push = {
            .table = table,
            .keys = keys,
            .key_count = n,
            .gradients = gradients,
            .learning_rate = learning_rate,
    };
    rps_call call = {.step = step};
    rps_ticket ticket;
    rps_status status;

    if (table == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table is NULL");
    }
    status = rps_push_start(table->client, &call, &push, 1, &ticket);
    if (status != RPS_OK) {
        return status;
    }
    return rps_ticket_settle(rps_ticket_find(table->client, ticket.id),
            table->client->request_timeout_ms);
}
