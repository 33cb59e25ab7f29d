/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking rows up. It creates, counts and stamps no row and allocates
 * nothing. A batch goes through in blocks (batch.h), a block shard by shard
 * (or by several, where each has few keys: lookup_few.c), in stages, each of
 * which asks for the memory that the next one reads:
 *
 *   where searches begin      the next shard           (no lock)
 *   find, ask for rows        a burst of keys          (the shard's lock)
 *   ask for home lines        some of the next shard
 *   copy the rows             the burst before         (its shard's lock)
 *   keys beyond their line    after the others of the shard, as a burst: the
 *                             next lines of their search, which were asked
 *                             for when they were not found at home
 *   what absent keys answer   after the block          (no lock)
 *
 * Bursts follow each other without a gap: the last rows of a shard are copied
 * while the first ones of the next are on their way, and its lock is kept
 * until then. Who holds a lock never waits for another: a shard that is busy
 * is put off until the others are done.
 *
 * Addresses are computed first and asked for in one go: what lies between
 * two prefetches limits how many page walks are under way at once. What is
 * computed adds to the time of the walks, so every pass over a burst is short,
 * and none has a branch for a key.
 */
#include "embedding/admit.h"
#include "embedding/lookup_impl.h"

#include <assert.h>

#define FEW_KEYS   4u  /* a shard, on average: lookup_few.c */
#define HOME_BURST 16u /* home lines of the next run that go with a burst */

/* absent.keys[from] and on. */
void
rps_lookup_admit_locked(
        struct rps_lookup *lookup, const struct rps_shard *shard, size_t from)
{
    const struct rps_batch *batch = &lookup->batch;
    const uint32_t *counts = lookup->counts;

    for (size_t i = from; i < lookup->absent.n; i++) {
        const uint16_t key = lookup->absent.keys[i];
        if (!rps_admitted_locked(lookup->table, shard, batch->hashes[key],
                    batch->keys[key],
                    counts == NULL ? 1 : counts[batch->positions[key]])) {
            lookup->absent.keys[i] = (uint16_t)(key | RPS_LOOKUP_UNADMITTED);
        }
    }
}

void
rps_lookup_touch_locked(struct rps_lookup *lookup,
        const struct rps_shard *shard, const uint32_t *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        lookup->from_disk += rows[i] >> 31;
        rps_shard_set_bit(shard, RPS_ROW_TOUCHED, rows[i], true);
    }
}

/* Copy the burst before this one. */
static void
copy_before(struct rps_lookup *lookup)
{
    struct rps_lookup_burst *before = &lookup->bursts[lookup->turn ^ 1];

    lookup->gather(lookup->rows, lookup->stride, before->positions,
            before->rows, before->n, lookup->table->spec.dim);
    if (before->held != NULL) {
        pthread_mutex_unlock(&before->held->lock);
    }
    before->n = 0;
    before->held = NULL;
}

/* Home lines of the next run, n at most. */
static inline __attribute__((always_inline)) void
ask_homes(struct rps_lookup *lookup, size_t n)
{
    const size_t left = lookup->known - lookup->asked;
    const size_t now = n < left ? n : left;

    rps_index_ask_lines(lookup->lines + lookup->asked, now);
    lookup->asked += now;
}

/* The burst's rows[burst->n], on their way when this returns. */
static inline void
read_rows_locked(struct rps_lookup *lookup, const struct rps_shard *shard,
        const uint32_t *rows)
{
    struct rps_lookup_burst *burst = &lookup->bursts[lookup->turn];

    rps_lookup_locate_locked(lookup, shard, rows, burst);
    rps_lookup_ask_rows(lookup, burst);
    ask_homes(lookup, HOME_BURST);
    copy_before(lookup);
    lookup->turn ^= 1;
}

/* The last of the n found takes the place of one that is not. */
static inline void
leave_out(struct rps_lookup_burst *burst, uint32_t *rows, size_t i)
{
    burst->n--;
    rows[i] = rows[burst->n];
    burst->positions[i] = burst->positions[burst->n];
}

/* A key that is not in its home line. */
static inline void
miss_locked(struct rps_lookup *lookup, size_t key)
{
    const struct rps_index_line *home = lookup->lines[key];

    if (rps_index_line_is_full(home)) {
        rps_index_ask_next(home);
        rps_lookup_add(&lookup->beyond, key);
    } else {
        rps_lookup_add(&lookup->absent, key);
    }
}

static inline unsigned
last_bit(uint64_t bits)
{
    return 63 - (unsigned)__builtin_clzll(bits);
}

/* Keys start .. start + n - 1, in their home lines. */
static inline void
read_home_burst_locked(struct rps_lookup *lookup, const struct rps_shard *shard,
        size_t start, size_t n)
{
    struct rps_lookup_burst *burst = &lookup->bursts[lookup->turn];
    const struct rps_index_line *const *lines =
            (const struct rps_index_line *const *)lookup->lines + start;
    uint32_t rows[RPS_LOOKUP_BURST];
    uint64_t missing = lookup->table->kernels.find(
            lines, 1, lookup->batch.keys + start, n, rows);

    burst->n = n;
    memcpy(burst->positions, lookup->batch.positions + start,
            sizeof(burst->positions));
    while (missing != 0) {
        const unsigned i = last_bit(missing);
        missing ^= (uint64_t)1 << i;
        leave_out(burst, rows, i);
        miss_locked(lookup, start + i);
    }
    read_rows_locked(lookup, shard, rows);
}

/* The run's keys, in their home lines. */
static void
read_homes_locked(struct rps_lookup *lookup, const struct rps_shard *shard,
        const struct rps_batch_run *run)
{
    for (size_t start = run->start; start < run->end;
            start += RPS_LOOKUP_BURST) {
        const size_t left = run->end - start;
        read_home_burst_locked(lookup, shard, start,
                left < RPS_LOOKUP_BURST ? left : RPS_LOOKUP_BURST);
    }
}

/* A key that is in none of the lines of its search up to `last`. */
static uint32_t
find_far_locked(struct rps_lookup *lookup, const struct rps_shard *shard,
        uint16_t key, struct rps_index_line *last)
{
    const struct rps_index_place place = rps_index_find_far(&shard->index,
            lookup->batch.hashes[key], lookup->batch.keys[key], last);

    if (place.row == 0) {
        rps_lookup_add(&lookup->absent, key);
    }
    return place.row;
}

/* n keys of the list `beyond`, in the lines after their home line. */
static void
read_beyond_burst_locked(struct rps_lookup *lookup,
        const struct rps_shard *shard, const uint16_t *numbers, size_t n)
{
    struct rps_lookup_burst *burst = &lookup->bursts[lookup->turn];
    struct rps_index_line *lines[RPS_LOOKUP_BURST][RPS_LINES_NEXT];
    uint64_t keys[RPS_LOOKUP_BURST];
    uint32_t rows[RPS_LOOKUP_BURST];
    uint64_t missing = 0;

    for (size_t i = 0; i < n; i++) {
        const uint16_t key = numbers[i];
        rps_index_next_lines(&shard->index, lookup->batch.hashes[key],
                lookup->lines[key], lines[i]);
        keys[i] = lookup->batch.keys[key];
        burst->positions[i] = lookup->batch.positions[key];
    }
    burst->n = n;
    missing = lookup->table->kernels.find(
            (const struct rps_index_line *const *)lines, RPS_LINES_NEXT, keys,
            n, rows);
    for (uint64_t left = missing; left != 0; left &= left - 1) {
        rps_index_ask_far(lines[__builtin_ctzll(left)][RPS_LINES_NEXT - 1]);
    }
    while (missing != 0) {
        const unsigned i = last_bit(missing);
        missing ^= (uint64_t)1 << i;
        rows[i] = find_far_locked(
                lookup, shard, numbers[i], lines[i][RPS_LINES_NEXT - 1]);
        if (rows[i] == 0) {
            leave_out(burst, rows, i);
        }
    }
    read_rows_locked(lookup, shard, rows);
}

static void
read_beyond_locked(struct rps_lookup *lookup, const struct rps_shard *shard)
{
    for (size_t start = 0; start < lookup->beyond.n;
            start += RPS_LOOKUP_BURST) {
        const size_t left = lookup->beyond.n - start;
        read_beyond_burst_locked(lookup, shard, lookup->beyond.keys + start,
                left < RPS_LOOKUP_BURST ? left : RPS_LOOKUP_BURST);
    }
    lookup->beyond.n = 0;
}

/* The shard is locked here, and unlocked when its last row is copied. */
static void
read_run(struct rps_lookup *lookup, const struct rps_lookup_run *asked)
{
    const struct rps_batch_run *run = &asked->run;
    struct rps_shard *shard = &lookup->table->shards[run->shard];
    const size_t absent_before = lookup->absent.n;

    rps_lookup_check_homes_locked(lookup, asked);
    read_homes_locked(lookup, shard, run);
    read_beyond_locked(lookup, shard);
    if (lookup->admission) {
        rps_lookup_admit_locked(lookup, shard, absent_before);
    }
    ask_homes(lookup, RPS_BATCH_KEYS);
    lookup->bursts[lookup->turn ^ 1].held = shard;
}

/* The run's home lines: asked for while the run before it is read. */
static struct rps_lookup_run
find_homes(struct rps_lookup *lookup, struct rps_batch_run run)
{
    lookup->asked = run.start;
    lookup->known = run.end;
    return rps_lookup_find_homes(lookup, run);
}

static void
read_busy(struct rps_lookup *lookup, const uint16_t *shards, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct rps_lookup_run asked =
                find_homes(lookup, rps_batch_run_of(&lookup->batch, shards[i]));
        ask_homes(lookup, RPS_BATCH_KEYS);
        rps_shard_lock(&lookup->table->shards[shards[i]]);
        read_run(lookup, &asked);
        copy_before(lookup);
    }
}

static void
read_present(struct rps_lookup *lookup)
{
    uint16_t busy[1u << RPS_SHARD_LOG2_MAX];
    size_t busy_count = 0;
    struct rps_lookup_run next =
            find_homes(lookup, rps_batch_run_first(&lookup->batch));

    ask_homes(lookup, RPS_BATCH_KEYS);
    while (next.run.start < next.run.end) {
        const struct rps_lookup_run now = next;
        struct rps_shard *shard = &lookup->table->shards[now.run.shard];
        next = find_homes(lookup, rps_batch_run_next(&lookup->batch, now.run));
        if (pthread_mutex_trylock(&shard->lock) == 0) {
            read_run(lookup, &now);
        } else {
            ask_homes(lookup, RPS_BATCH_KEYS);
            busy[busy_count] = (uint16_t)now.run.shard;
            busy_count++;
        }
    }
    copy_before(lookup);
    read_busy(lookup, busy, busy_count);
}

static void
fill_absent(const struct rps_lookup *lookup, bool read_only)
{
    for (size_t i = 0; i < lookup->absent.n; i++) {
        const uint16_t at =
                lookup->absent.keys[i] & (RPS_LOOKUP_UNADMITTED - 1);
        const uint64_t key = lookup->batch.keys[at];
        float *out = rps_lookup_out(lookup, lookup->batch.positions[at]);
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
    struct rps_lookup lookup;
    uint64_t missing = 0;

    assert(stride % sizeof(float) == 0);

    lookup.table = table;
    lookup.admission = !read->read_only && !rps_admits_all(table);
    lookup.gather = table->kernels.gather[table->spec.value_dtype];
    lookup.tiered = table->tiered;
    lookup.from_disk = 0;
    lookup.stride = stride;
    lookup.turn = 0;
    lookup.bursts[0] = lookup.bursts[1] = (struct rps_lookup_burst){.n = 0};
    lookup.beyond.n = 0;
    for (size_t done = 0; done < read->count; done += lookup.batch.count) {
        const size_t left = read->count - done;
        lookup.rows = (float *)(void *)((char *)rows + done * stride);
        lookup.counts = read->counts == NULL ? NULL : read->counts + done;
        lookup.absent.n = 0;
        rps_batch_sort(&lookup.batch, table,
                left < RPS_BATCH_KEYS ? left : RPS_BATCH_KEYS,
                read->keys + done);
        if (lookup.batch.count <= table->shard_count * FEW_KEYS) {
            rps_lookup_read_few(&lookup);
        } else {
            read_present(&lookup);
        }
        fill_absent(&lookup, read->read_only);
        missing += lookup.absent.n;
    }
    rps_count(&table->lookups, read->count);
    rps_count(&table->missing, missing);
    if (lookup.from_disk > 0) {
        rps_count(&table->disk_hits, lookup.from_disk);
    }
}
