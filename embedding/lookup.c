/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking rows up. It creates, counts and stamps no row and allocates
 * nothing. A batch goes through in blocks (batch.h), a block shard by shard,
 * in stages, each of which asks for the memory that the next one reads:
 *
 *   ask for the lines        the next shard, while this one is read
 *   probe, ask for rows      a burst of keys         (the shard's lock)
 *   copy the rows            the burst before        (the shard's lock)
 *   keys beyond their line   after the bursts, the same way
 *   what absent keys answer  after the block         (no lock)
 *
 * A shard that another thread holds is put off until the others are done.
 */
#include "embedding/admit.h"
#include "embedding/batch.h"

#include <assert.h>
#include <string.h>

#define BURST      16u /* rows asked for before the first is copied */
#define LINE_BYTES ((size_t)64)

#define UNADMITTED 0x8000u /* a bit that no position has */

_Static_assert(RPS_BATCH_KEYS <= UNADMITTED, "a bit is free");

/* A run whose lines were asked for. */
struct asked {
    struct rps_batch_run run;
    uint64_t version; /* of the index, when they were */
};

/* Rows that were asked for, and where they go. */
struct burst {
    size_t n;
    const void *rows[BURST]; /* NULL: not here */
    uint16_t positions[BURST];
};

struct lookup {
    struct rps_table *table;
    void (*gather)(float *rows, size_t stride, const uint16_t *positions,
            const void *const *sources, size_t n, size_t dim);
    const uint32_t *counts; /* of the block; NULL: 1 each */
    bool admission;         /* absent keys are asked about */
    float *rows;            /* of the block */
    size_t stride;
    size_t absent_count;
    size_t beyond_count;
    struct rps_batch batch;
    struct rps_index_line *lines[RPS_BATCH_KEYS]; /* of the batch's keys */
    uint16_t beyond[RPS_BATCH_KEYS]; /* in the batch, of the shard at hand */
    uint16_t absent[RPS_BATCH_KEYS]; /* in the batch; UNADMITTED in some */
};

static float *
row_out(const struct lookup *lookup, size_t position)
{
    return (float *)(void *)((char *)lookup->rows + position * lookup->stride);
}

static void
note_absent_locked(
        struct lookup *lookup, const struct rps_shard *shard, uint16_t i)
{
    const struct rps_batch *batch = &lookup->batch;
    const uint32_t *counts = lookup->counts;
    const bool admitted =
            !lookup->admission ||
            rps_admitted_locked(lookup->table, shard, batch->hashes[i],
                    batch->keys[i],
                    counts == NULL ? 1 : counts[batch->positions[i]]);

    lookup->absent[lookup->absent_count] =
            admitted ? i : (uint16_t)(i | UNADMITTED);
    lookup->absent_count++;
}

/* Put row number `row` into the burst, and ask for it. */
static inline void
add_row_locked(const struct lookup *lookup, const struct rps_rows *rows,
        struct burst *burst, size_t at, uint32_t row)
{
    const char *start = rps_rows_at(rows, row - 1);

    burst->rows[at] = start;
    for (size_t byte = 0; byte < lookup->table->value_bytes;
            byte += LINE_BYTES) {
        __builtin_prefetch(start + byte);
    }
}

/* Keys start .. start + n - 1 of the batch, in their first lines. */
static void
find_burst_locked(struct lookup *lookup, const struct rps_shard *shard,
        size_t start, struct burst *burst)
{
    struct rps_index_line *const *lines = lookup->lines + start;
    uint8_t lanes[BURST];

    memcpy(burst->positions, lookup->batch.positions + start,
            burst->n * sizeof(*burst->positions));
    lookup->table->kernels.probe((const struct rps_index_line *const *)lines,
            lookup->batch.keys + start, burst->n, lanes);
    for (size_t i = 0; i < burst->n; i++) {
        burst->rows[i] = NULL;
        if (lanes[i] < RPS_LINE_KEYS) {
            add_row_locked(
                    lookup, &shard->rows, burst, i, lines[i]->rows[lanes[i]]);
        } else if (lanes[i] == RPS_LANE_ABSENT) {
            note_absent_locked(lookup, shard, (uint16_t)(start + i));
        } else {
            lookup->lines[start + i] = rps_index_other(lines[i]);
            __builtin_prefetch(lookup->lines[start + i]);
            lookup->beyond[lookup->beyond_count] = (uint16_t)(start + i);
            lookup->beyond_count++;
        }
    }
}

/* The n keys beyond[start] and on, in the other line of their pairs, or
 * wherever they are. */
static void
find_beyond_locked(struct lookup *lookup, const struct rps_shard *shard,
        size_t start, struct burst *burst)
{
    const struct rps_batch *batch = &lookup->batch;
    const struct rps_index_line *lines[BURST];
    uint64_t keys[BURST];
    uint8_t lanes[BURST];

    for (size_t i = 0; i < burst->n; i++) {
        const uint16_t key = lookup->beyond[start + i];
        lines[i] = lookup->lines[key];
        keys[i] = batch->keys[key];
        burst->positions[i] = batch->positions[key];
    }
    lookup->table->kernels.probe(lines, keys, burst->n, lanes);
    for (size_t i = 0; i < burst->n; i++) {
        const uint16_t key = lookup->beyond[start + i];
        uint32_t row = 0;
        burst->rows[i] = NULL;
        if (lanes[i] < RPS_LINE_KEYS) {
            row = lines[i]->rows[lanes[i]];
        } else if (lanes[i] == RPS_LANE_BEYOND) {
            row = rps_index_find_beyond(
                    &shard->index, batch->hashes[key], keys[i])
                          .row;
        }
        if (row != 0) {
            add_row_locked(lookup, &shard->rows, burst, i, row);
        } else {
            note_absent_locked(lookup, shard, key);
        }
    }
}

typedef void find_fn(struct lookup *lookup, const struct rps_shard *shard,
        size_t start, struct burst *burst);

/* While the rows of a burst are on their way, the one before is copied. */
static inline void
copy_bursts_locked(struct lookup *lookup, const struct rps_shard *shard,
        size_t start, size_t end, find_fn *find)
{
    struct burst bursts[2] = {{.n = 0}, {.n = 0}};
    unsigned turn = 0;

    for (; start < end; start += BURST, turn ^= 1) {
        struct burst *burst = &bursts[turn];
        const struct burst *before = &bursts[turn ^ 1];
        burst->n = end - start < BURST ? end - start : BURST;
        find(lookup, shard, start, burst);
        lookup->gather(lookup->rows, lookup->stride, before->positions,
                before->rows, before->n, lookup->table->spec.dim);
    }
    lookup->gather(lookup->rows, lookup->stride, bursts[turn ^ 1].positions,
            bursts[turn ^ 1].rows, bursts[turn ^ 1].n, lookup->table->spec.dim);
}

static void
copy_run_locked(struct lookup *lookup, const struct asked *asked)
{
    const struct rps_batch_run *run = &asked->run;
    const struct rps_shard *shard = &lookup->table->shards[run->shard];

    if (asked->version != rps_index_version(&shard->index)) {
        rps_index_homes(&shard->index, run->end - run->start,
                lookup->batch.hashes + run->start, lookup->lines + run->start);
    }
    lookup->beyond_count = 0;
    copy_bursts_locked(lookup, shard, run->start, run->end, find_burst_locked);
    copy_bursts_locked(
            lookup, shard, 0, lookup->beyond_count, find_beyond_locked);
}

/* The run that starts at `start`, its lines asked for. */
static struct asked
ask(struct lookup *lookup, size_t start)
{
    struct asked asked = {
            .run = rps_batch_run_at(&lookup->batch, lookup->table, start)};
    const struct rps_index *index =
            &lookup->table->shards[asked.run.shard].index;

    asked.version = rps_index_version(index);
    rps_index_homes(index, asked.run.end - start, lookup->batch.hashes + start,
            lookup->lines + start);
    return asked;
}

static void
copy_present(struct lookup *lookup)
{
    uint16_t busy[1u << RPS_SHARD_LOG2_MAX]; /* where their runs start */
    size_t busy_count = 0;
    struct asked next = ask(lookup, 0);

    while (next.run.start < next.run.end) {
        const struct asked now = next;
        struct rps_shard *shard = &lookup->table->shards[now.run.shard];
        next = ask(lookup, now.run.end);
        if (pthread_mutex_trylock(&shard->lock) != 0) {
            busy[busy_count] = (uint16_t)now.run.start;
            busy_count++;
            continue;
        }
        copy_run_locked(lookup, &now);
        pthread_mutex_unlock(&shard->lock);
    }
    for (size_t i = 0; i < busy_count; i++) {
        const struct asked late = ask(lookup, busy[i]);
        struct rps_shard *shard = &lookup->table->shards[late.run.shard];
        pthread_mutex_lock(&shard->lock);
        copy_run_locked(lookup, &late);
        pthread_mutex_unlock(&shard->lock);
    }
}

static void
fill_absent(const struct lookup *lookup, bool read_only)
{
    for (size_t i = 0; i < lookup->absent_count; i++) {
        const uint16_t key = lookup->absent[i] & (UNADMITTED - 1);
        float *out = row_out(lookup, lookup->batch.positions[key]);
        if (read_only || lookup->absent[i] != key) {
            rps_table_default_value(
                    lookup->table, lookup->batch.keys[key], out);
        } else {
            rps_table_first_value(lookup->table, lookup->batch.keys[key], out);
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
