/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REFRESH: of the keys in hand, the rows that changed since a step.
 */
#include "client/batch.h"
#include "client/pack.h"

#include <recps/refresh.h>

#include <stdlib.h>
#include <string.h>

struct item {
    struct rps_batch batch;
    struct rps_dedup dedup;
    float *rows;
    uint8_t *changed; /* [distinct count] */
};

struct work {
    struct item *items;          /* [count] */
    struct rps_pack_item *packs; /* [count] */
    uint32_t count;
    uint64_t step;
    bool answered;
};

static void
write_part(void *context, struct rps_builder *builder,
        const struct rps_part *part, uint32_t ps)
{
    const struct work *work = context;

    rps_pack_keys(builder, &work->packs[part->item], part);
}

/* Positions must be ascending and inside the part. */
static rps_status
check_positions(const struct rps_part *part, const uint32_t *positions,
        uint64_t count, struct rps_error *error)
{
    uint64_t i;

    for (i = 0; i < count; i++) {
        if (positions[i] >= part->count ||
                (i > 0 && positions[i] <= positions[i - 1])) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "the reply to a refresh of %u keys has position %u at "
                    "%llu",
                    part->count, positions[i], (unsigned long long)i);
        }
    }
    return RPS_OK;
}

static void
scatter(const struct item *item, const struct rps_part *part,
        const uint32_t *positions, const float *rows, uint64_t count)
{
    uint32_t dim = item->batch.table->spec.dim;
    uint64_t i;

    for (i = 0; i < count; i++) {
        uint32_t index = item->dedup.order[part->first + positions[i]];

        item->changed[index] = 1;
        memcpy(item->rows + (size_t)item->dedup.first[index] * dim,
                rows + (size_t)i * dim, dim * sizeof(float));
    }
}

/* A part's sections in the reply. */
struct found {
    const struct rps_section *at, *rows;
};

static struct found
find(const struct rps_message *reply, const rps_embedding_table *table)
{
    return (struct found){
            .at = rps_message_find(reply, RPS_SECTION_OFFSETS, table->id),
            .rows = rps_message_find(reply, RPS_SECTION_ROWS, table->id)};
}

static rps_status
check_part(const struct rps_message *reply, const struct item *item,
        const struct rps_part *part, struct rps_error *error)
{
    const rps_embedding_table *table = item->batch.table;
    const struct found found = find(reply, table);
    const struct rps_section *at = found.at, *rows = found.rows;

    if (at == NULL || rows == NULL || at->count != rows->count ||
            rows->count > part->count ||
            (rows->count > 0 && (rows->dim != table->spec.dim ||
                                        rows->value != RPS_VALUE_F32))) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the reply to a refresh has not positions and rows of table "
                "%s",
                table->spec.name);
    }
    return check_positions(
            part, rps_message_array(reply, at), at->count, error);
}

static rps_status
take(struct rps_exchange *exchange, const struct rps_message *reply,
        struct rps_error *error)
{
    struct work *work = exchange->ticket->work;
    rps_status status = RPS_OK;
    uint32_t i;

    for (i = 0; status == RPS_OK && i < exchange->part_count; i++) {
        const struct rps_part *part = &exchange->parts[i];

        status = check_part(reply, &work->items[part->item], part, error);
    }
    for (i = 0; status == RPS_OK && i < exchange->part_count; i++) {
        const struct rps_part *part = &exchange->parts[i];
        const struct item *item = &work->items[part->item];
        const struct found found = find(reply, item->batch.table);

        scatter(item, part, rps_message_array(reply, found.at),
                rps_message_array(reply, found.rows), found.rows->count);
    }
    if (!work->answered || reply->header.step < work->step) {
        work->step = reply->header.step;
        work->answered = true;
    }
    return status;
}

static rps_status
prepare(rps_client *client, const rps_refresh_part *part, size_t index,
        struct work *work)
{
    struct item *item = &work->items[index];
    rps_status status;

    if (part->table == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table is NULL");
    }
    item->batch = (struct rps_batch){.table = part->table,
            .keys = part->keys,
            .key_count = part->key_count,
            .array = part->rows};
    item->rows = part->rows;
    status = rps_batch_check(client, &item->batch, "refresh", index);
    if (status == RPS_OK) {
        status = rps_batch_dedup(client, &item->batch, &item->dedup);
    }
    if (status != RPS_OK) {
        return status;
    }
    item->changed = calloc(item->dedup.count > 0 ? item->dedup.count : 1, 1);
    work->packs[index] = (struct rps_pack_item){
            .table = part->table,
            .dedup = &item->dedup,
            .key_bytes = sizeof(uint64_t) + sizeof(uint32_t) +
                         part->table->spec.dim * sizeof(float),
    };
    return item->changed != NULL ? RPS_OK : rps_client_nomem();
}

static rps_status
exchange_all(rps_client *client, uint64_t since, struct work *work)
{
    struct rps_pack pack = {
            .client = client,
            .request = {.opcode = RPS_OP_REFRESH, .step = since},
            .items = work->packs,
            .item_count = work->count,
            .sections = 2,
            .take = take,
            .write = write_part,
            .work = work,
    };
    return rps_pack_exchange(&pack, NULL, "a refresh");
}

/* Duplicates get the row of the first position; returns what changed. */
static size_t
fill_rest(const struct item *item, uint8_t *changed_out)
{
    uint32_t dim = item->batch.table->spec.dim;
    size_t changed = 0;
    size_t i;

    for (i = 0; i < item->dedup.key_count; i++) {
        uint32_t index = item->dedup.index[i];

        if (changed_out != NULL) {
            changed_out[i] = item->changed[index];
        }
        if (item->changed[index] == 0) {
            continue;
        }
        changed++;
        if (item->dedup.first[index] != i) {
            memcpy(item->rows + i * dim,
                    item->rows + (size_t)item->dedup.first[index] * dim,
                    dim * sizeof(float));
        }
    }
    return changed;
}

static rps_status
prepare_all(rps_client *client, const rps_refresh_part *parts, size_t count,
        struct work *work)
{
    rps_status status = RPS_OK;

    if (count > UINT16_MAX) {
        return rps_client_fail(
                RPS_E_LIMIT, "%zu tables in a refresh, at most 65535", count);
    }
    if (parts == NULL && count > 0) {
        return rps_client_fail(
                RPS_E_INVAL, "parts is NULL, but count is %zu", count);
    }
    work->items = calloc(count + 1, sizeof(*work->items));
    work->packs = calloc(count + 1, sizeof(*work->packs));
    if (work->items == NULL || work->packs == NULL) {
        return rps_client_nomem();
    }
    work->count = (uint32_t)count;
    for (size_t i = 0; status == RPS_OK && i < count; i++) {
        status = prepare(client, &parts[i], i, work);
    }
    return status;
}

static void
finish(struct work *work)
{
    for (uint32_t i = 0; i < work->count; i++) {
        rps_dedup_finish(&work->items[i].dedup);
        free(work->items[i].changed);
    }
    free(work->items);
    free(work->packs);
}

rps_status
rps_refresh_tables(rps_client *client, uint64_t since,
        const rps_refresh_part *parts, size_t count, size_t *changed_out)
{
    RPS_TURN(client);
    struct work work = {0};
    rps_status status;

    if (changed_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "changed_out is NULL");
    }
    *changed_out = 0;
    status = rps_client_enter(client);
    if (status == RPS_OK) {
        status = rps_client_all_whole(client);
    }
    if (status == RPS_OK) {
        status = prepare_all(client, parts, count, &work);
    }
    if (status == RPS_OK) {
        status = exchange_all(client, since, &work);
    }
    for (size_t i = 0; status == RPS_OK && i < count; i++) {
        *changed_out += fill_rest(&work.items[i], parts[i].changed);
    }
    if (status == RPS_OK && work.answered) {
        client->lookup_step = work.step;
    }
    finish(&work);
    return status;
}

rps_status
rps_refresh(rps_embedding_table *table, size_t n, const uint64_t *keys,
        uint64_t since, float *rows, size_t *changed_out)
{
    const rps_refresh_part part = {
            .table = table, .keys = keys, .key_count = n, .rows = rows};

    if (table == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table is NULL");
    }
    return rps_refresh_tables(table->client, since, &part, 1, changed_out);
}
