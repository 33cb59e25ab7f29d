/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing rows as they are: start values, restored rows. All of them are
 * checked, then room for all is made, then all are written.
 */
#include "embedding/batch.h"
#include "embedding/meta.h"
#include "embedding/optimizer.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct assign {
    struct rps_table *table;
    const uint64_t *keys;
    const char *values;   /* [n][value_bytes] */
    size_t value_bytes;   /* of a row */
    const float *slots;   /* or NULL */
    const uint32_t *meta; /* or NULL */
    size_t n;
    size_t base;        /* position of the block's first key */
    uint64_t *promised; /* [shard_count] */
    struct rps_batch batch;
};

static bool
values_finite(const struct assign *assign, size_t i)
{
    const struct rps_table *table = assign->table;

    return table->kernels.finite(
            (const float *)(assign->values + i * assign->value_bytes),
            table->spec.dim);
}

static rps_status
check_finite(const struct assign *assign, struct rps_error *error)
{
    const struct rps_table *table = assign->table;

    for (size_t i = 0; i < assign->n; i++) {
        const bool slots =
                assign->slots != NULL &&
                !table->kernels.finite(assign->slots + i * table->slot_floats,
                        table->slot_floats);
        if (slots || !values_finite(assign, i)) {
            return rps_fail(error, RPS_E_NONFINITE,
                    "table %s: the %s to assign to key %" PRIu64
                    " hold a NaN or an infinity",
                    table->spec.name, slots ? "slots" : "values",
                    assign->keys[i]);
        }
    }
    return RPS_OK;
}

/* A key that stands twice in a block is promised two rows; what is over is
 * given back at the end. */
static rps_status
reserve_run(struct assign *assign, const struct rps_batch_run *run)
{
    struct rps_shard *shard = &assign->table->shards[run->shard];
    const struct rps_batch *batch = &assign->batch;
    uint64_t absent = 0;
    rps_status status = RPS_OK;

    pthread_mutex_lock(&shard->lock);
    for (size_t i = run->start; i < run->end; i++) {
        const uint16_t p = batch->order[i];
        absent +=
                rps_index_find(&shard->index, batch->hashes[p], batch->keys[p])
                        .row == 0;
    }
    status = rps_shard_reserve_locked(shard, absent);
    pthread_mutex_unlock(&shard->lock);
    if (status == RPS_OK) {
        assign->promised[run->shard] += absent;
    }
    return status;
}

/* What stands behind the end of a dense variable is always the same, so
 * that the digest is one of what can be read. */
static void
reset_tail(const struct rps_table *table, uint64_t key, float *row)
{
    const size_t dim = table->spec.dim;
    const size_t live = rps_table_live_floats(table, key);

    if (live < dim) {
        memset(row + live, 0, (dim - live) * sizeof(*row));
        for (size_t slot = dim; slot < dim + table->slot_floats; slot += dim) {
            for (size_t j = live; j < dim; j++) {
                row[slot + j] = rps_slot_fresh(&table->spec);
            }
        }
    }
}

static void
write_row_locked(struct assign *assign, struct rps_shard *shard, size_t p)
{
    struct rps_table *table = assign->table;
    const size_t dim = table->spec.dim;
    const size_t i = assign->base + p;
    const uint64_t key = assign->keys[i];
    const uint64_t hash = assign->batch.hashes[p];
    struct rps_index_place place = rps_index_find(&shard->index, hash, key);
    float *row = NULL;

    if (place.row == 0) {
        assign->promised[rps_table_shard_of(table, hash)]--;
        place = rps_table_new_row_locked(table, shard, hash, key);
    }
    row = rps_shard_row_locked(shard, place);
    memcpy(row, assign->values + i * assign->value_bytes, assign->value_bytes);
    if (assign->slots == NULL) {
        rps_slots_fresh(&table->spec, row + dim);
    } else {
        memcpy(row + dim, assign->slots + i * table->slot_floats,
                table->slot_floats * sizeof(*row));
    }
    reset_tail(table, key, row);
    place.line->meta[place.lane] = assign->meta == NULL ? 0 : assign->meta[i];
}

static void
write_run(struct assign *assign, const struct rps_batch_run *run)
{
    struct rps_shard *shard = &assign->table->shards[run->shard];

    pthread_mutex_lock(&shard->lock);
    for (size_t i = run->start; i < run->end; i++) {
        write_row_locked(assign, shard, assign->batch.order[i]);
    }
    pthread_mutex_unlock(&shard->lock);
}

/* One pass over all blocks: make room, or write. */
static rps_status
pass(struct assign *assign, bool writes)
{
    rps_status status = RPS_OK;

    for (size_t done = 0; done < assign->n; done += assign->batch.count) {
        const size_t left = assign->n - done;
        struct rps_batch_run run;
        assign->base = done;
        rps_batch_sort(&assign->batch, assign->table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS,
                assign->keys + done);
        for (run = rps_batch_run_at(&assign->batch, assign->table, 0);
                status == RPS_OK && run.start < run.end;
                run = rps_batch_run_at(
                        &assign->batch, assign->table, run.end)) {
            if (writes) {
                write_run(assign, &run);
            } else {
                status = reserve_run(assign, &run);
            }
        }
    }
    return status;
}

static void
note_newest(const struct assign *assign)
{
    uint64_t newest = 0;

    for (size_t i = 0; assign->meta != NULL && i < assign->n; i++) {
        if (RPS_META_LAST(assign->meta[i]) > newest) {
            newest = RPS_META_LAST(assign->meta[i]);
        }
    }
    rps_table_note_step(assign->table, newest);
}

static void
release(struct assign *assign)
{
    for (size_t s = 0; s < assign->table->shard_count; s++) {
        if (assign->promised[s] > 0) {
            struct rps_shard *shard = &assign->table->shards[s];
            pthread_mutex_lock(&shard->lock);
            rps_shard_release_locked(shard, assign->promised[s]);
            pthread_mutex_unlock(&shard->lock);
        }
    }
}

static rps_status
run_passes(struct assign *assign, struct rps_error *error)
{
    rps_status status = pass(assign, false);

    if (status == RPS_OK) {
        note_newest(assign);
        status = pass(assign, true);
    } else {
        status = rps_fail(error, status,
                "table %s: no memory for %zu rows: none was written",
                assign->table->spec.name, assign->n);
    }
    release(assign);
    return status;
}

static rps_status
assign_rows(struct assign *assign, struct rps_error *error)
{
    struct rps_table *table = assign->table;
    rps_status status =
            rps_table_check_keys(table, assign->n, assign->keys, error);

    if (status == RPS_OK) {
        status = check_finite(assign, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    assign->promised = calloc(table->shard_count, sizeof(*assign->promised));
    if (assign->promised == NULL) {
        return rps_fail(error, RPS_E_NOMEM,
                "table %s: no memory for %zu rows: none was written",
                table->spec.name, assign->n);
    }
    status = run_passes(assign, error);
    free(assign->promised);
    return status;
}

rps_status
rps_table_assign(struct rps_table *table, size_t n, const uint64_t *keys,
        const float *rows, const float *slots, const uint32_t *meta,
        struct rps_error *error)
{
    struct assign assign = {.table = table,
            .keys = keys,
            .values = (const char *)rows,
            .value_bytes = table->spec.dim * sizeof(*rows),
            .slots = slots,
            .meta = meta,
            .n = n};

    return assign_rows(&assign, error);
}

rps_status
rps_table_restore_rows(struct rps_table *table, size_t n, const uint64_t *keys,
        const void *values, const float *slots, const uint32_t *meta,
        struct rps_error *error)
{
    struct assign assign = {.table = table,
            .keys = keys,
            .values = values,
            .value_bytes = table->spec.dim * sizeof(float),
            .slots = slots,
            .meta = meta,
            .n = n};

    return assign_rows(&assign, error);
}
