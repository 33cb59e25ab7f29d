/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REFRESH: of the keys in hand, the rows that changed since a step.
 */
#include "client/batch.h"
#include "client/pack.h"

#include <stdlib.h>
#include <string.h>

struct work {
    struct rps_batch batch;
    struct rps_dedup dedup;
    struct rps_pack_item pack;
    float *rows;
    uint8_t *changed; /* [distinct count] */
    uint64_t step;
    bool answered;
};

static void
write_part(void *context, struct rps_builder *builder,
        const struct rps_part *part, uint32_t ps)
{
    const struct work *work = context;

    rps_pack_keys(builder, &work->pack, part);
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
scatter(const struct work *work, const struct rps_part *part,
        const uint32_t *positions, const float *rows, uint64_t count)
{
    uint32_t dim = work->batch.table->spec.dim;
    uint64_t i;

    for (i = 0; i < count; i++) {
        uint32_t index = work->dedup.order[part->first + positions[i]];

        work->changed[index] = 1;
        memcpy(work->rows + (size_t)work->dedup.first[index] * dim,
                rows + (size_t)i * dim, dim * sizeof(float));
    }
}

static rps_status
take(struct rps_exchange *exchange, const struct rps_message *reply,
        struct rps_error *error)
{
    struct work *work = exchange->ticket->work;
    const struct rps_part *part = &exchange->parts[0];
    const rps_embedding_table *table = work->batch.table;
    const struct rps_section *at =
            rps_message_find(reply, RPS_SECTION_OFFSETS, table->id);
    const struct rps_section *rows =
            rps_message_find(reply, RPS_SECTION_ROWS, table->id);
    const uint32_t *positions;
    rps_status status;

    if (at == NULL || rows == NULL || at->count != rows->count ||
            rows->count > part->count ||
            (rows->count > 0 && (rows->dim != table->spec.dim ||
                                        rows->value != RPS_VALUE_F32))) {
        return rps_fail(error, RPS_E_CORRUPT,
                "the reply to a refresh has not positions and rows of table "
                "%s",
                table->spec.name);
    }
    positions = rps_message_array(reply, at);
    status = check_positions(part, positions, at->count, error);
    if (status == RPS_OK) {
        scatter(work, part, positions, rps_message_array(reply, rows),
                rows->count);
    }
    if (!work->answered || reply->header.step < work->step) {
        work->step = reply->header.step;
        work->answered = true;
    }
    return status;
}

static rps_status
prepare(rps_embedding_table *table, size_t n, const uint64_t *keys, float *rows,
        struct work *work)
{
    rps_client *client = table->client;
    rps_status status;

    work->batch = (struct rps_batch){
            .table = table, .keys = keys, .key_count = n, .array = rows};
    work->rows = rows;
    status = rps_batch_check(client, &work->batch, "refresh", 0);
    if (status == RPS_OK) {
        status = rps_batch_dedup(client, &work->batch, &work->dedup);
    }
    if (status != RPS_OK) {
        return status;
    }
    work->changed = calloc(work->dedup.count > 0 ? work->dedup.count : 1, 1);
    work->pack = (struct rps_pack_item){
            .table = table,
            .dedup = &work->dedup,
            .key_bytes = sizeof(uint64_t) + sizeof(uint32_t) +
                         table->spec.dim * sizeof(float),
    };
    return work->changed != NULL ? RPS_OK : rps_client_nomem();
}

static rps_status
exchange_all(rps_client *client, uint64_t since, struct work *work)
{
    struct rps_pack pack = {
            .client = client,
            .request = {.opcode = RPS_OP_REFRESH, .step = since},
            .items = &work->pack,
            .item_count = 1,
            .sections = 2,
            .take = take,
            .write = write_part,
            .work = work,
    };
    return rps_pack_exchange(&pack, NULL, "a refresh");
}

/* Duplicates get the row of the first position; returns what changed. */
static size_t
fill_rest(const struct work *work)
{
    uint32_t dim = work->batch.table->spec.dim;
    size_t changed = 0;
    size_t i;

    for (i = 0; i < work->dedup.key_count; i++) {
        uint32_t index = work->dedup.index[i];

        if (work->changed[index] == 0) {
            continue;
        }
        changed++;
        if (work->dedup.first[index] != i) {
            memcpy(work->rows + i * dim,
                    work->rows + (size_t)work->dedup.first[index] * dim,
                    dim * sizeof(float));
        }
    }
    return changed;
}

rps_status
rps_refresh(rps_embedding_table *table, size_t n, const uint64_t *keys,
        uint64_t since, float *rows, size_t *changed_out)
{
    struct work work = {0};
    rps_status status;

    if (changed_out == NULL) {
        return rps_client_fail(RPS_E_INVAL, "changed_out is NULL");
    }
    *changed_out = 0;
    if (table == NULL) {
        return rps_client_fail(RPS_E_INVAL, "table is NULL");
    }
    status = rps_client_enter(table->client);
    if (status == RPS_OK) {
        status = rps_client_all_whole(table->client);
    }
    if (status == RPS_OK) {
        status = prepare(table, n, keys, rows, &work);
    }
    if (status == RPS_OK) {
        status = exchange_all(table->client, since, &work);
    }
    if (status == RPS_OK) {
        *changed_out = fill_rest(&work);
        if (work.answered) {
            table->client->lookup_step = work.step;
        }
    }
    rps_dedup_finish(&work.dedup);
    free(work.changed);
    return status;
}
