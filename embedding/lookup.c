/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading: lookups and what changed. Neither creates, counts or stamps a
 * row; neither allocates. A batch goes through in blocks (batch.h), a shard
 * of a block in bursts: many keys' cache misses are in flight at once.
 */
#include "embedding/batch.h"
#include "embedding/meta.h"

#include <assert.h>
#include <string.h>

#define BURST 16u /* keys in flight: lines, then rows, then copies */

struct reader {
    struct rps_table *table;
    struct rps_batch batch;
    uint8_t wanted[RPS_BATCH_KEYS]; /* lookup: absent; changed: to send */
};

static float *
row_out(float *rows, size_t stride, size_t position)
{
    return (float *)(void *)((char *)rows + position * stride);
}

/* Copy the rows of up to BURST positions; mark those that are absent. */
static void
copy_burst_locked(struct reader *reader, const struct rps_shard *shard,
        const uint16_t *positions, size_t n, float *rows, size_t stride)
{
    const struct rps_batch *batch = &reader->batch;
    const float *found[BURST];

    for (size_t i = 0; i < n; i++) {
        rps_index_prefetch(&shard->index, batch->hashes[positions[i]]);
    }
    for (size_t i = 0; i < n; i++) {
        const size_t p = positions[i];
        const struct rps_index_place place =
                rps_index_find(&shard->index, batch->hashes[p], batch->keys[p]);
        found[i] = place.row == 0 ? NULL : rps_shard_row_locked(shard, place);
        __builtin_prefetch(found[i]);
    }
    for (size_t i = 0; i < n; i++) {
        reader->wanted[positions[i]] = found[i] == NULL;
        if (found[i] != NULL) {
            memcpy(row_out(rows, stride, positions[i]), found[i],
                    reader->table->spec.dim * sizeof(float));
        }
    }
}

static void
copy_present(struct reader *reader, float *rows, size_t stride)
{
    const struct rps_batch *batch = &reader->batch;
    struct rps_batch_run run = rps_batch_run_at(batch, reader->table, 0);

    for (; run.start < run.end;
            run = rps_batch_run_at(batch, reader->table, run.end)) {
        struct rps_shard *shard = &reader->table->shards[run.shard];
        pthread_mutex_lock(&shard->lock);
        for (size_t at = run.start; at < run.end; at += BURST) {
            const size_t left = run.end - at;
            copy_burst_locked(reader, shard, batch->order + at,
                    left < BURST ? left : BURST, rows, stride);
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

/* What absent keys answer needs no lock. Returns how many there were. */
static size_t
fill_absent(
        const struct reader *reader, bool read_only, float *rows, size_t stride)
{
    size_t absent = 0;

    for (size_t p = 0; p < reader->batch.count; p++) {
        if (reader->wanted[p] == 0) {
            continue;
        }
        absent++;
        if (read_only) {
            rps_table_default_value(reader->table, reader->batch.keys[p],
                    row_out(rows, stride, p));
        } else {
            rps_table_first_value(reader->table, reader->batch.keys[p],
                    row_out(rows, stride, p));
        }
    }
    return absent;
}

void
rps_table_lookup(struct rps_table *table, const struct rps_read *read,
        float *rows, size_t stride)
{
    const size_t n = read->count;
    struct reader reader;
    uint64_t missing = 0;

    assert(stride % sizeof(float) == 0);

    reader.table = table;
    for (size_t done = 0; done < n; done += reader.batch.count) {
        const size_t left = n - done;
        float *out = row_out(rows, stride, done);
        rps_batch_sort(&reader.batch, table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS,
                read->keys + done);
        copy_present(&reader, out, stride);
        missing += fill_absent(&reader, read->read_only, out, stride);
    }
    rps_count(&table->lookups, n);
    rps_count(&table->missing, missing);
}

/*
 * A stamp holds 24 bits of a step. The row was pushed at the newest step
 * that ends in those bits, or 2^24 steps before that, or ...: taking the
 * newest can only call an old row changed, never a changed row old.
 */
static bool
changed_since(uint64_t newest, uint64_t since, uint32_t meta)
{
    const uint64_t age = (newest - RPS_META_LAST(meta)) & RPS_TICK_MASK;

    return age <= newest && newest - age > since;
}

static void
mark_changed(struct reader *reader, uint64_t since)
{
    const struct rps_batch *batch = &reader->batch;
    struct rps_batch_run run = rps_batch_run_at(batch, reader->table, 0);

    for (; run.start < run.end;
            run = rps_batch_run_at(batch, reader->table, run.end)) {
        struct rps_shard *shard = &reader->table->shards[run.shard];
        uint64_t newest = 0;
        pthread_mutex_lock(&shard->lock);
        /* not older than any stamp in here: see rps_table_note_step() */
        newest = rps_counted(&reader->table->newest);
        for (size_t i = run.start; i < run.end; i++) {
            const uint16_t p = batch->order[i];
            const struct rps_index_place place = rps_index_find(
                    &shard->index, batch->hashes[p], batch->keys[p]);
            reader->wanted[p] =
                    place.row != 0 &&
                    changed_since(newest, since, place.line->meta[place.lane]);
        }
        pthread_mutex_unlock(&shard->lock);
    }
}

/* Rows stay where they are once they exist, so that what was marked under
 * one lock can be read under a later one: only newer. */
static size_t
copy_marked(
        struct reader *reader, size_t base, uint32_t *positions, float *rows)
{
    const size_t dim = reader->table->spec.dim;
    const struct rps_batch *batch = &reader->batch;
    size_t copied = 0;

    for (size_t p = 0; p < batch->count; p++) {
        struct rps_shard *shard = NULL;
        if (reader->wanted[p] == 0) {
            continue;
        }
        shard = &reader->table->shards[rps_table_shard_of(
                reader->table, batch->hashes[p])];
        pthread_mutex_lock(&shard->lock);
        memcpy(rows + copied * dim,
                rps_shard_row_locked(
                        shard, rps_index_find(&shard->index, batch->hashes[p],
                                       batch->keys[p])),
                dim * sizeof(float));
        pthread_mutex_unlock(&shard->lock);
        positions[copied] = (uint32_t)(base + p);
        copied++;
    }
    return copied;
}

size_t
rps_table_changed(struct rps_table *table, size_t n, const uint64_t *keys,
        uint64_t since, uint32_t *positions, float *rows)
{
    struct reader reader;
    size_t sent = 0;

    reader.table = table;
    for (size_t done = 0; done < n; done += reader.batch.count) {
        const size_t left = n - done;
        rps_batch_sort(&reader.batch, table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS, keys + done);
        mark_changed(&reader, since);
        sent += copy_marked(
                &reader, done, positions + sent, rows + sent * table->spec.dim);
    }
    return sent;
}
