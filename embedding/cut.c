/* SPDX-License-Identifier: Apache-2.0 */
/* Owns a cut's list of tables: taking it, ending it. Reading it: cut_read.c */
#include "embedding/alter.h"
#include "embedding/cut_impl.h"
#include "embedding/store_impl.h"
#include "embedding/tick.h"

#include <stdlib.h>

#define BUFFER_BYTES_MIN ((uint64_t)1 << 20)
#define READY_OF_BUFFER  8u  /* a part of it is made ready, */
#define READY_OF_ROWS    16u /* but not more than of the rows */

static void
freeze(struct rps_table *table)
{
    pthread_mutex_lock(&table->making);
    for (size_t i = 0; i < table->shard_count; i++) {
        struct rps_shard *shard = &table->shards[i];
        pthread_mutex_lock(&shard->lock);
        rps_track_cut_locked(shard);
        rps_counts_freeze(&shard->counts);
        pthread_mutex_unlock(&shard->lock);
    }
    if (table->sketch != NULL) {
        rps_sketch_freeze(table->sketch);
    }
    atomic_store_explicit(&table->cut, true, memory_order_relaxed);
    pthread_mutex_unlock(&table->making);
}

static void
thaw(struct rps_table *table, bool saved)
{
    for (size_t i = 0; i < table->shard_count; i++) {
        struct rps_shard *shard = &table->shards[i];
        pthread_mutex_lock(&shard->lock);
        rps_track_end_locked(table, shard, saved);
        rps_counts_thaw(&shard->counts);
        pthread_mutex_unlock(&shard->lock);
    }
    if (table->sketch != NULL) {
        rps_sketch_thaw(table->sketch);
    }
    atomic_store_explicit(&table->cut, false, memory_order_relaxed);
}

static void
add_table(struct rps_cut *cut, size_t i, struct rps_now now)
{
    struct rps_table *table = rps_store_at(cut->store, i);
    struct rps_cut_table *entry = &cut->tables[i];

    /* or rows would be stamped anew, all of them, while they are written */
    rps_table_restamp_due(table, rps_tick_of(&table->spec, now));
    table->cut_list = i;
    *entry = (struct rps_cut_table){.table = table,
            .spec = table->spec,
            .pushes = rps_counted(&table->pushes)};
    freeze(table);
}

static struct rps_cut *
make(struct rps_store *store)
{
    struct rps_cut *cut = calloc(1, sizeof(*cut));

    if (cut == NULL) {
        return NULL;
    }
    cut->store = store;
    cut->buffer = rps_store_buffer(store);
    cut->count = rps_store_count(store);
    cut->tables = calloc(cut->count + 1, sizeof(*cut->tables));
    if (cut->tables == NULL) {
        free(cut);
        return NULL;
    }
    return cut;
}

static rps_status
open_buffer(struct rps_cut *cut, uint64_t buffer_bytes)
{
    size_t *row_bytes = calloc(cut->count + 1, sizeof(*row_bytes));
    rps_status status = RPS_E_NOMEM;

    if (row_bytes == NULL) {
        return status;
    }
    for (size_t i = 0; i < cut->count; i++) {
        row_bytes[i] = rps_table_row_bytes(rps_store_at(cut->store, i));
    }
    status = rps_save_buffer_open(cut->buffer,
            buffer_bytes > BUFFER_BYTES_MIN ? buffer_bytes : BUFFER_BYTES_MIN,
            row_bytes, cut->count);
    free(row_bytes);
    return status;
}

bool
rps_cut_make_ready(struct rps_store *store, uint64_t buffer_bytes)
{
    uint64_t bytes = 0;

    for (size_t i = 0; i < rps_store_count(store); i++) {
        const struct rps_table *table = rps_store_at(store, i);
        bytes += rps_counted(&table->rows) * rps_table_row_bytes(table);
    }
    bytes /= READY_OF_ROWS;
    return rps_save_buffer_make_ready(
            rps_store_buffer(store), bytes < buffer_bytes / READY_OF_BUFFER
                                             ? bytes
                                             : buffer_bytes / READY_OF_BUFFER);
}

rps_status
rps_cut_take(struct rps_store *store, struct rps_now now, uint64_t buffer_bytes,
        struct rps_cut **cut_out, struct rps_error *error)
{
    struct rps_cut *cut = NULL;

    *cut_out = NULL;
    if (*rps_store_cut(store) != NULL) {
        return rps_fail(error, RPS_E_RETRY_LATER,
                "a checkpoint is being written already");
    }
    cut = make(store);
    if (cut == NULL || open_buffer(cut, buffer_bytes) != RPS_OK) {
        if (cut != NULL) {
            free(cut->tables);
        }
        free(cut);
        return rps_fail(error, RPS_E_NOMEM, "no memory for a checkpoint");
    }
    for (size_t i = 0; i < cut->count; i++) {
        add_table(cut, i, now);
    }
    *rps_store_cut(store) = cut;
    *cut_out = cut;
    return RPS_OK;
}

/* The buffer first: who waits for room in it goes on. */
static void
end(struct rps_cut *cut, bool saved)
{
    rps_save_buffer_close(cut->buffer);
    for (size_t i = 0; i < cut->count; i++) {
        thaw(cut->tables[i].table, saved);
    }
    *rps_store_cut(cut->store) = NULL;
    free(cut->tables);
    free(cut);
}

void
rps_cut_commit(struct rps_cut *cut)
{
    end(cut, true);
}

void
rps_cut_abort(struct rps_cut *cut)
{
    end(cut, false);
}

void
rps_store_mark_clean(struct rps_store *store)
{
    for (size_t i = 0; i < rps_store_count(store); i++) {
        struct rps_table *table = rps_store_at(store, i);
        for (size_t s = 0; s < table->shard_count; s++) {
            struct rps_shard *shard = &table->shards[s];
            pthread_mutex_lock(&shard->lock);
            rps_track_clean_locked(table, shard);
            pthread_mutex_unlock(&shard->lock);
        }
    }
}

bool
rps_table_is_cut(const struct rps_table *table)
{
    return atomic_load_explicit(&table->cut, memory_order_relaxed);
}

void
rps_cut_figures(struct rps_cut *cut, struct rps_save_figures *out)
{
    rps_save_buffer_figures(cut->buffer, out);
}

size_t
rps_cut_count(const struct rps_cut *cut)
{
    return cut->count;
}

const rps_table_spec *
rps_cut_spec(const struct rps_cut *cut, size_t table)
{
    return &cut->tables[table].spec;
}

uint64_t
rps_cut_pushes(const struct rps_cut *cut, size_t table)
{
    return cut->tables[table].pushes;
}

uint64_t
rps_cut_job_seed(const struct rps_cut *cut)
{
    return rps_store_job_seed(cut->store);
}
