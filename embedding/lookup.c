/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking rows up. It creates, counts and stamps no row and allocates
 * nothing. A batch goes through in blocks (batch.h), a block shard by shard,
 * in stages, each of which asks for the memory that the next one reads:
 *
 *   ask for the home lines    the next shard, while this one is read
 *   probe, ask for rows       a burst of keys         (the shard's lock)
 *   copy the rows             the burst before        (its shard's lock)
 *   keys beyond their line    after the others: the lines of their walk, one
 *                             after the other
 *   what absent keys answer   after the block         (no lock)
 *
 * Bursts follow each other without a gap: the last rows of a shard are copied
 * while the first ones of the next are on their way, and its lock is kept
 * until then. Who holds a lock never waits for another: a shard that is busy
 * is put off until the others are done.
 *
 * Addresses are computed first and asked for in one go: what lies between
 * two prefetches limits how many page walks are under way at once.
 */
#include "embedding/admit.h"
#include "embedding/batch.h"
#include "embedding/prefetch.h"

#include <assert.h>
#include <string.h>

#define BURST 16u /* rows asked for before the first is copied */

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
    const void *rows[BURST];
    uint16_t positions[BURST];
    struct rps_shard *held; /* unlocked when they are copied; or NULL */
};

/* Keys of the batch, by their numbers there. */
struct list {
    size_t n;
    uint16_t keys[RPS_BATCH_KEYS];
};

/* Keys numbers[n] and the lines in which they were looked for: which lane. */
struct probed {
    size_t n;
    const uint16_t *numbers;
    struct rps_index_line *const *lines;
    uint8_t lanes[BURST];
};

struct lookup {
    struct rps_table *table;
    void (*gather)(float *rows, size_t stride, const uint16_t *positions,
            const void *const *sources, size_t n, size_t dim);
    const uint32_t *counts; /* of the block; NULL: 1 each */
    bool admission;         /* absent keys are asked about */
    bool tiered;            /* some rows are on the disk */
    uint64_t from_disk;
    float *rows; /* of the block */
    size_t stride;
    struct rps_batch batch;
    struct rps_index_line *lines[RPS_BATCH_KEYS]; /* of the batch's keys */
    struct list beyond; /* of a shard: not in their home line, which is full */
    struct list absent; /* of the block; UNADMITTED in some */
    unsigned turn;      /* of the bursts */
    struct burst bursts[2];
};

static float *
row_out(const struct lookup *lookup, size_t position)
{
    return (float *)(void *)((char *)lookup->rows + position * lookup->stride);
}

/* absent.keys[from] and on. */
static void
ask_admission_locked(
        struct lookup *lookup, const struct rps_shard *shard, size_t from)
{
    const struct rps_batch *batch = &lookup->batch;
    const uint32_t *counts = lookup->counts;

    for (size_t i = from; i < lookup->absent.n; i++) {
        const uint16_t key = lookup->absent.keys[i];
        if (!rps_admitted_locked(lookup->table, shard, batch->hashes[key],
                    batch->keys[key],
                    counts == NULL ? 1 : counts[batch->positions[key]])) {
            lookup->absent.keys[i] = (uint16_t)(key | UNADMITTED);
        }
    }
}

static inline __attribute__((always_inline)) void
ask_rows(const struct lookup *lookup, const struct burst *burst)
{
    const size_t bytes = lookup->table->value_bytes;

    for (size_t i = 0; i < burst->n; i++) {
        rps_prefetch(burst->rows[i], bytes);
    }
}

static inline void
add(struct list *list, uint16_t key)
{
    list->keys[list->n] = key;
    list->n++;
}

static inline void
ask_beyond_locked(
        const struct lookup *lookup, const struct rps_shard *shard, size_t from)
{
    for (size_t i = from; i < lookup->beyond.n; i++) {
        const uint16_t key = lookup->beyond.keys[i];
        rps_index_ask_beyond(
                &shard->index, lookup->batch.hashes[key], lookup->lines[key]);
    }
}

static inline void
sort_out_locked(struct lookup *lookup, const struct rps_shard *shard,
        const struct probed *probed, struct burst *burst)
{
    const size_t beyond_before = lookup->beyond.n;
    const size_t absent_before = lookup->absent.n;
    size_t found = 0;

    for (size_t i = 0; i < probed->n; i++) {
        const uint16_t key = probed->numbers[i];
        const uint8_t lane = probed->lanes[i];
        if (lane < RPS_LINE_KEYS) {
            const uint32_t row = probed->lines[i]->rows[lane];
            burst->rows[found] = rps_shard_row_at(shard, row);
            if (lookup->tiered) {
                lookup->from_disk += row >> 31;
                rps_shard_set_bit(shard, RPS_ROW_TOUCHED, row, true);
            }
            burst->positions[found] = lookup->batch.positions[key];
            found++;
        } else {
            add(lane == RPS_LANE_BEYOND ? &lookup->beyond : &lookup->absent,
                    key);
        }
    }
    burst->n = found;
    ask_rows(lookup, burst);
    ask_beyond_locked(lookup, shard, beyond_before);
    if (lookup->admission) {
        ask_admission_locked(lookup, shard, absent_before);
    }
}

/* Copy the burst before this one. */
static void
copy_before(struct lookup *lookup)
{
    struct burst *before = &lookup->bursts[lookup->turn ^ 1];

    lookup->gather(lookup->rows, lookup->stride, before->positions,
            before->rows, before->n, lookup->table->spec.dim);
    if (before->held != NULL) {
        pthread_mutex_unlock(&before->held->lock);
    }
    before->n = 0;
    before->held = NULL;
}

static inline void
read_burst_locked(struct lookup *lookup, const struct rps_shard *shard,
        const struct probed *probed)
{
    sort_out_locked(lookup, shard, probed, &lookup->bursts[lookup->turn]);
    copy_before(lookup);
    lookup->turn ^= 1;
}

/* The run's keys, in their home lines. */
static void
read_homes_locked(struct lookup *lookup, const struct rps_shard *shard,
        const struct rps_batch_run *run)
{
    uint16_t numbers[BURST];

    for (size_t start = run->start; start < run->end; start += BURST) {
        const size_t left = run->end - start;
        struct probed probed = {.n = left < BURST ? left : BURST,
                .numbers = numbers,
                .lines = lookup->lines + start};
        for (size_t i = 0; i < BURST; i++) {
            numbers[i] = (uint16_t)(start + i);
        }
        lookup->table->kernels.probe(
                (const struct rps_index_line *const *)probed.lines,
                lookup->batch.keys + start, probed.n, probed.lanes);
        read_burst_locked(lookup, shard, &probed);
    }
}

static void
read_beyond_locked(struct lookup *lookup, const struct rps_shard *shard)
{
    struct rps_index_line *lines[BURST];

    for (size_t start = 0; start < lookup->beyond.n; start += BURST) {
        const size_t left = lookup->beyond.n - start;
        struct probed probed = {.n = left < BURST ? left : BURST,
                .numbers = lookup->beyond.keys + start,
                .lines = lines};
        for (size_t i = 0; i < probed.n; i++) {
            const uint16_t key = probed.numbers[i];
            const struct rps_index_place place = rps_index_find_beyond(
                    &shard->index, lookup->batch.hashes[key],
                    lookup->batch.keys[key], lookup->lines[key]);
            lines[i] = place.line;
            probed.lanes[i] =
                    (uint8_t)(place.row != 0 ? place.lane : RPS_LANE_ABSENT);
        }
        read_burst_locked(lookup, shard, &probed);
    }
    lookup->beyond.n = 0;
}

/* The shard is locked here, and unlocked when its last row is copied. */
static void
read_run(struct lookup *lookup, const struct asked *asked)
{
    const struct rps_batch_run *run = &asked->run;
    struct rps_shard *shard = &lookup->table->shards[run->shard];

    if (asked->version != rps_index_version(&shard->index)) {
        rps_index_homes(&shard->index, run->end - run->start,
                lookup->batch.hashes + run->start, lookup->lines + run->start);
    }
    read_homes_locked(lookup, shard, run);
    read_beyond_locked(lookup, shard);
    lookup->bursts[lookup->turn ^ 1].held = shard;
}

/* Ask for the run's home lines. */
static struct asked
ask(struct lookup *lookup, struct rps_batch_run run)
{
    const struct rps_index *index = &lookup->table->shards[run.shard].index;
    const struct asked asked = {
            .run = run, .version = rps_index_version(index)};

    rps_index_homes(index, run.end - run.start,
            lookup->batch.hashes + run.start, lookup->lines + run.start);
    return asked;
}

static void
read_busy(struct lookup *lookup, const uint16_t *shards, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct asked asked =
                ask(lookup, rps_batch_run_of(&lookup->batch, shards[i]));
        rps_shard_lock(&lookup->table->shards[shards[i]]);
        read_run(lookup, &asked);
        copy_before(lookup);
    }
}

static void
read_present(struct lookup *lookup)
{
    uint16_t busy[1u << RPS_SHARD_LOG2_MAX];
    size_t busy_count = 0;
    struct asked next = ask(lookup, rps_batch_run_first(&lookup->batch));

    while (next.run.start < next.run.end) {
        const struct asked now = next;
        struct rps_shard *shard = &lookup->table->shards[now.run.shard];
        next = ask(lookup, rps_batch_run_next(&lookup->batch, now.run));
        if (pthread_mutex_trylock(&shard->lock) == 0) {
            read_run(lookup, &now);
        } else {
            busy[busy_count] = (uint16_t)now.run.shard;
            busy_count++;
        }
    }
    copy_before(lookup);
    read_busy(lookup, busy, busy_count);
}

static void
fill_absent(const struct lookup *lookup, bool read_only)
{
    for (size_t i = 0; i < lookup->absent.n; i++) {
        const uint16_t at = lookup->absent.keys[i] & (UNADMITTED - 1);
        const uint64_t key = lookup->batch.keys[at];
        float *out = row_out(lookup, lookup->batch.positions[at]);
        if (read_only || lookup->absent.keys[i] != at) {
            rps_table_default_value(lookup->table, key, out);
        } else {
            rps_table_first_value(lookup->table, key, out);
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
    lookup.tiered = table->tiered;
    lookup.from_disk = 0;
    lookup.stride = stride;
    lookup.turn = 0;
    lookup.bursts[0] = lookup.bursts[1] = (struct burst){.n = 0};
    lookup.beyond.n = 0;
    for (size_t done = 0; done < read->count; done += lookup.batch.count) {
        const size_t left = read->count - done;
        lookup.rows = (float *)(void *)((char *)rows + done * stride);
        lookup.counts = read->counts == NULL ? NULL : read->counts + done;
        lookup.absent.n = 0;
        rps_batch_sort(&lookup.batch, table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS,
                read->keys + done);
        read_present(&lookup);
        fill_absent(&lookup, read->read_only);
        missing += lookup.absent.n;
    }
    rps_count(&table->lookups, read->count);
    rps_count(&table->missing, missing);
    if (lookup.from_disk > 0) {
        rps_count(&table->disk_hits, lookup.from_disk);
    }
}
