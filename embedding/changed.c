/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows changed since a step, and what they are now. Like a lookup it
 * changes nothing; it is for a caller that has the rows of that step.
 */
#include "embedding/admit.h"
#include "embedding/batch.h"
#include "embedding/tick.h"

#include <string.h>

struct reader {
    struct rps_table *table;
    struct rps_batch batch;
    bool all;                        /* it is too long ago to know */
    uint64_t first;                  /* tick from which on it is sent */
    uint16_t wanted[RPS_BATCH_KEYS]; /* by position: key + 1 in the batch */
};

/*
 * A stamp holds 24 bits of a step. The row was pushed at the newest step
 * that ends in those bits, or 2^24 steps before that, or ...: taking the
 * newest can only call an old row changed, never a changed row old.
 */
static bool
changed_from(uint64_t newest, uint64_t first, uint32_t meta)
{
    const uint64_t age = (newest - RPS_META_LAST(meta)) & RPS_TICK_MASK;

    return age <= newest && newest - age >= first;
}

/* An absent key may have had a row that left since: it is sent again then. */
static bool
erased_since(const struct reader *reader)
{
    const uint64_t erased = rps_counted(&reader->table->erased_at);

    return erased != 0 && (reader->all || erased >= reader->first);
}

static void
mark_changed(struct reader *reader)
{
    const struct rps_batch *batch = &reader->batch;
    struct rps_batch_run run = rps_batch_run_first(batch);

    for (; run.start < run.end; run = rps_batch_run_next(batch, run)) {
        struct rps_shard *shard = &reader->table->shards[run.shard];
        uint64_t newest = 0;
        bool left = false;
        pthread_mutex_lock(&shard->lock);
        /* not older than any stamp in here: see rps_table_note_step() */
        newest = rps_counted(&reader->table->newest);
        left = erased_since(reader);
        for (size_t i = run.start; i < run.end; i++) {
            const struct rps_index_place place = rps_index_find(
                    &shard->index, batch->hashes[i], batch->keys[i]);
            const bool wanted =
                    place.row == 0
                            ? left
                            : reader->all ||
                                      changed_from(newest, reader->first,
                                              place.line->meta[place.lane]);
            reader->wanted[batch->positions[i]] =
                    wanted ? (uint16_t)(i + 1) : 0;
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

/* What was marked under one lock is read under a later one: it may be newer,
 * or erased, and then answers what a lookup with multiplicity 1 does. */
static size_t
copy_marked(
        struct reader *reader, size_t base, uint32_t *positions, float *rows)
{
    const size_t dim = reader->table->spec.dim;
    const struct rps_batch *batch = &reader->batch;
    size_t copied = 0;

    for (size_t p = 0; p < batch->count; p++) {
        struct rps_shard *shard = NULL;
        struct rps_index_place place;
        uint64_t key = 0;
        uint64_t hash = 0;
        bool admitted = true;
        if (reader->wanted[p] == 0) {
            continue;
        }
        key = batch->keys[reader->wanted[p] - 1];
        hash = batch->hashes[reader->wanted[p] - 1];
        shard = &reader->table->shards[rps_table_shard_of(reader->table, hash)];
        pthread_mutex_lock(&shard->lock);
        place = rps_index_find(&shard->index, hash, key);
        if (place.row != 0) {
            rps_table_read_row(reader->table,
                    rps_shard_row_locked(shard, place), rows + copied * dim);
        } else {
            admitted = rps_admitted_locked(reader->table, shard, hash, key, 1);
        }
        pthread_mutex_unlock(&shard->lock);
        if (place.row == 0 && admitted) {
            rps_table_first_value(reader->table, key, rows + copied * dim);
        } else if (place.row == 0) {
            rps_table_default_value(reader->table, key, rows + copied * dim);
        }
        positions[copied] = (uint32_t)(base + p);
        copied++;
    }
    return copied;
}

size_t
rps_table_changed_from(struct rps_table *table, size_t n, const uint64_t *keys,
        uint64_t first, uint32_t *positions, float *rows)
{
    struct reader reader;
    uint64_t before = 0;
    size_t sent = 0;

    reader.table = table;
    reader.all = first == 0 || !rps_tick_since(table, first - 1, &before);
    reader.first = before + 1;
    for (size_t done = 0; done < n; done += reader.batch.count) {
        const size_t left = n - done;
        rps_batch_sort(&reader.batch, table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS, keys + done);
        mark_changed(&reader);
        sent += copy_marked(
                &reader, done, positions + sent, rows + sent * table->spec.dim);
    }
    return sent;
}

size_t
rps_table_changed(struct rps_table *table, size_t n, const uint64_t *keys,
        uint64_t since, uint32_t *positions, float *rows)
{
    return since == UINT64_MAX ? 0
                               : rps_table_changed_from(table, n, keys,
                                         since + 1, positions, rows);
}
