/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking rows up. It creates, counts and stamps no row and allocates
 * nothing. A batch goes through in blocks (batch.h), and a block in stages,
 * each of which asks for the memory that the next one reads:
 *
 *   hash a key, ask for its line      all keys of the block   (no lock)
 *   probe the lines, ask for rows     a burst of a shard      (its lock)
 *   copy the rows                     the same burst          (its lock)
 *   what absent keys answer           all keys of the block   (no lock)
 *
 * A shard that another thread holds is put off until the others are done.
 */
#include "embedding/admit.h"
#include "embedding/batch.h"

#include <assert.h>
#include <string.h>

#define BURST      32u /* rows asked for at once */
#define LINE_BYTES ((size_t)64)

#define UNADMITTED 0x8000u /* a bit that no position has */

_Static_assert(RPS_BATCH_KEYS <= UNADMITTED, "a bit is free");

struct lookup {
    struct rps_table *table;
    size_t row_bytes; /* that a lookup reads */
    void (*gather)(float *rows, size_t stride, const uint16_t *positions,
            const void *const *sources, size_t n, size_t dim);
    const uint32_t *counts; /* of the block; NULL: 1 each */
    bool admission;         /* absent keys are asked about */
    float *rows;            /* of the block */
    size_t stride;
    size_t absent_count;
    struct rps_batch batch;
    uint16_t absent[RPS_BATCH_KEYS]; /* positions; UNADMITTED is set in some */
};

static float *
row_out(const struct lookup *lookup, size_t position)
{
    return (float *)(void *)((char *)lookup->rows + position * lookup->stride);
}

/* Where the rows of a burst lie; NULL: absent. */
static void
find_burst_locked(const struct lookup *lookup, const struct rps_shard *shard,
        const uint16_t *positions, size_t n, const void **found)
{
    const struct rps_batch *batch = &lookup->batch;
    const struct rps_index_line *lines[BURST];
    uint64_t keys[BURST];
    uint8_t lanes[BURST];

    for (size_t i = 0; i < n; i++) {
        keys[i] = batch->keys[positions[i]];
        lines[i] = rps_index_home(&shard->index, batch->hashes[positions[i]]);
    }
    lookup->table->kernels.probe(lines, keys, n, lanes);
    for (size_t i = 0; i < n; i++) {
        uint32_t row = 0;
        if (lanes[i] < RPS_LINE_KEYS) {
            row = lines[i]->rows[lanes[i]];
        } else if (lanes[i] == RPS_LANE_BEYOND) {
            row = rps_index_find_beyond(
                    &shard->index, batch->hashes[positions[i]], keys[i])
                          .row;
        }
        found[i] = row == 0 ? NULL : rps_rows_at(&shard->rows, row - 1);
    }
}

static void
prefetch_burst(const struct lookup *lookup, const void *const *found, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t at = 0; at < lookup->row_bytes; at += LINE_BYTES) {
            __builtin_prefetch((const char *)found[i] + at);
        }
    }
}

static uint16_t
absent_locked(const struct lookup *lookup, const struct rps_shard *shard,
        uint16_t position)
{
    const struct rps_batch *batch = &lookup->batch;
    const bool admitted =
            !lookup->admission ||
            rps_admitted_locked(lookup->table, shard, batch->hashes[position],
                    batch->keys[position],
                    lookup->counts == NULL ? 1 : lookup->counts[position]);

    return admitted ? position : (uint16_t)(position | UNADMITTED);
}

static void
copy_burst_locked(struct lookup *lookup, const struct rps_shard *shard,
        const uint16_t *positions, size_t n)
{
    const void *found[BURST];

    find_burst_locked(lookup, shard, positions, n, found);
    prefetch_burst(lookup, found, n);
    for (size_t i = 0; i < n; i++) {
        if (found[i] == NULL) {
            lookup->absent[lookup->absent_count] =
                    absent_locked(lookup, shard, positions[i]);
            lookup->absent_count++;
        }
    }
    lookup->gather(lookup->rows, lookup->stride, positions, found, n,
            lookup->table->spec.dim);
}

static void
copy_run_locked(struct lookup *lookup, const struct rps_batch_run *run)
{
    const struct rps_shard *shard = &lookup->table->shards[run->shard];

    for (size_t at = run->start; at < run->end; at += BURST) {
        const size_t left = run->end - at;
        copy_burst_locked(lookup, shard, lookup->batch.order + at,
                left < BURST ? left : BURST);
    }
}

static void
copy_present(struct lookup *lookup)
{
    struct rps_batch_run busy[1u << RPS_SHARD_LOG2_MAX];
    size_t busy_count = 0;
    struct rps_batch_run run =
            rps_batch_run_at(&lookup->batch, lookup->table, 0);

    for (; run.start < run.end;
            run = rps_batch_run_at(&lookup->batch, lookup->table, run.end)) {
        struct rps_shard *shard = &lookup->table->shards[run.shard];
        if (pthread_mutex_trylock(&shard->lock) != 0) {
            busy[busy_count] = run;
            busy_count++;
            continue;
        }
        copy_run_locked(lookup, &run);
        pthread_mutex_unlock(&shard->lock);
    }
    for (size_t i = 0; i < busy_count; i++) {
        struct rps_shard *shard = &lookup->table->shards[busy[i].shard];
        pthread_mutex_lock(&shard->lock);
        copy_run_locked(lookup, &busy[i]);
        pthread_mutex_unlock(&shard->lock);
    }
}

static void
fill_absent(const struct lookup *lookup, bool read_only)
{
    for (size_t i = 0; i < lookup->absent_count; i++) {
        const uint16_t p = lookup->absent[i] & (UNADMITTED - 1);
        if (read_only || lookup->absent[i] != p) {
            rps_table_default_value(
                    lookup->table, lookup->batch.keys[p], row_out(lookup, p));
        } else {
            rps_table_first_value(
                    lookup->table, lookup->batch.keys[p], row_out(lookup, p));
        }
    }
}

void
rps_table_lookup(struct rps_table *table, const struct rps_read *read,
        float *rows, size_t stride)
{
    struct lookup lookup;
    uint64_t missing = 0;

    assert(stride % sizeof(float) == 0);

    lookup.table = table;
    lookup.admission = !read->read_only && !rps_admits_all(table);
    lookup.row_bytes = table->value_bytes;
    lookup.gather = table->kernels.gather[table->spec.value_dtype];
    lookup.stride = stride;
    for (size_t done = 0; done < read->count; done += lookup.batch.count) {
        const size_t left = read->count - done;
        lookup.rows = (float *)(void *)((char *)rows + done * stride);
        lookup.counts = read->counts == NULL ? NULL : read->counts + done;
        lookup.absent_count = 0;
        rps_batch_sort(&lookup.batch, table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS,
                read->keys + done);
        copy_present(&lookup);
        fill_absent(&lookup, read->read_only);
        missing += lookup.absent_count;
    }
    rps_count(&table->lookups, read->count);
    rps_count(&table->missing, missing);
}
