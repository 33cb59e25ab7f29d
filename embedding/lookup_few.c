/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking up a block that has few keys of each shard. Read shard by shard, as
 * lookup.c does, each key would wait for its line and then for its row. So
 * several shards are held at a time, and their lines and rows are under way
 * together:
 *
 *   home lines of the next window   found and asked for        (no lock)
 *   find, ask for rows, copy them   a window: the shards' keys (their locks)
 *
 * Who holds a lock never waits for another: a shard that is busy is left out
 * of its window and read by itself at the end.
 */
#include "embedding/lookup_impl.h"

#define WINDOW_SHARDS 16u

struct window {
    size_t n;
    struct rps_lookup_run pieces[WINDOW_SHARDS];
};

struct beyond {
    size_t n;
    struct rps_shard *shards[RPS_LOOKUP_BURST];
    uint16_t keys[RPS_LOOKUP_BURST];
};

/* What is left of the run goes into the window, as far as there is room;
 * `keys` are in it. The window's home lines are asked for. */
static void
next_window(struct rps_lookup *lookup, struct rps_batch_run *run,
        struct window *window)
{
    size_t keys = 0;

    window->n = 0;
    while (window->n < WINDOW_SHARDS && keys < RPS_LOOKUP_BURST &&
            run->start < run->end) {
        const size_t left = run->end - run->start;
        const size_t room = RPS_LOOKUP_BURST - keys;
        const size_t count = left < room ? left : room;
        const struct rps_batch_run piece = {.shard = run->shard,
                .start = run->start,
                .end = run->start + count};

        window->pieces[window->n++] = rps_lookup_find_homes(lookup, piece);
        rps_index_ask_lines(lookup->lines + run->start, count);
        keys += count;
        run->start += count;
        if (run->start == run->end) {
            *run = rps_batch_run_next(&lookup->batch, *run);
        }
    }
}

static void
add_absent_locked(
        struct rps_lookup *lookup, const struct rps_shard *shard, size_t key)
{
    rps_lookup_add(&lookup->absent, key);
    if (lookup->admission) {
        rps_lookup_admit_locked(lookup, shard, lookup->absent.n - 1);
    }
}

/* rows[n] of one shard, at the burst's end. */
static void
ask_found_locked(struct rps_lookup *lookup, const struct rps_shard *shard,
        const uint32_t *rows, size_t n, struct rps_lookup_burst *burst)
{
    struct rps_lookup_burst found;

    found.n = n;
    rps_lookup_locate_locked(lookup, shard, rows, &found);
    rps_lookup_ask_rows(lookup, &found);
    memcpy(burst->rows + burst->n, found.rows, n * sizeof(found.rows[0]));
    burst->n += n;
}

/* A piece's keys that are in their home lines go to the burst. */
static void
find_piece_locked(struct rps_lookup *lookup, const struct rps_lookup_run *piece,
        struct rps_lookup_burst *burst, struct beyond *beyond)
{
    struct rps_shard *shard = &lookup->table->shards[piece->run.shard];
    const size_t start = piece->run.start;
    const size_t n = piece->run.end - start;
    struct rps_index_line **lines = lookup->lines + start;
    uint32_t rows[RPS_LOOKUP_BURST];
    uint64_t missing = 0;
    size_t found = 0;

    rps_lookup_check_homes_locked(lookup, piece);
    missing = lookup->table->kernels.find(
            (const struct rps_index_line *const *)lines, 1,
            lookup->batch.keys + start, n, rows);
    for (size_t i = 0; i < n; i++) {
        if ((missing >> i & 1) == 0) {
            rows[found] = rows[i];
            burst->positions[burst->n + found++] =
                    lookup->batch.positions[start + i];
        } else if (rps_index_line_is_full(lines[i])) {
            rps_index_ask_next(lines[i]);
            beyond->shards[beyond->n] = shard;
            beyond->keys[beyond->n++] = (uint16_t)(start + i);
        } else {
            add_absent_locked(lookup, shard, start + i);
        }
    }
    ask_found_locked(lookup, shard, rows, found, burst);
}

static void
find_beyond_locked(struct rps_lookup *lookup, const struct beyond *beyond,
        struct rps_lookup_burst *burst)
{
    for (size_t i = 0; i < beyond->n; i++) {
        struct rps_shard *shard = beyond->shards[i];
        const size_t key = beyond->keys[i];
        const struct rps_index_place place =
                rps_index_find_beyond(&shard->index, lookup->batch.hashes[key],
                        lookup->batch.keys[key], lookup->lines[key]);

        if (place.row == 0) {
            add_absent_locked(lookup, shard, key);
        } else {
            burst->positions[burst->n] = lookup->batch.positions[key];
            ask_found_locked(lookup, shard, &place.row, 1, burst);
        }
    }
}

/* All of its shards are locked here. */
static void
find_window_locked(struct rps_lookup *lookup, const struct window *window,
        struct rps_lookup_burst *burst)
{
    struct beyond beyond;

    beyond.n = 0;
    burst->n = 0;
    for (size_t i = 0; i < window->n; i++) {
        find_piece_locked(lookup, &window->pieces[i], burst, &beyond);
    }
    find_beyond_locked(lookup, &beyond, burst);
}

static void
copy_window_locked(struct rps_lookup *lookup, const struct window *window,
        const struct rps_lookup_burst *burst)
{
    lookup->gather(lookup->rows, lookup->stride, burst->positions, burst->rows,
            burst->n, lookup->table->spec.dim);
    for (size_t i = 0; i < window->n; i++) {
        pthread_mutex_unlock(
                &lookup->table->shards[window->pieces[i].run.shard].lock);
    }
}

/* What is busy goes from the window to busy[*count]. */
static void
lock_window(struct rps_lookup *lookup, struct window *window,
        struct rps_lookup_run *busy, size_t *count)
{
    size_t locked = 0;

    for (size_t i = 0; i < window->n; i++) {
        const struct rps_lookup_run piece = window->pieces[i];
        if (pthread_mutex_trylock(
                    &lookup->table->shards[piece.run.shard].lock) == 0) {
            window->pieces[locked++] = piece;
        } else {
            busy[(*count)++] = piece;
        }
    }
    window->n = locked;
}

static void
read_busy(struct rps_lookup *lookup, const struct rps_lookup_run *busy,
        size_t count)
{
    struct rps_lookup_burst burst;
    struct window window;

    window.n = 1;
    for (size_t i = 0; i < count; i++) {
        window.pieces[0] = busy[i];
        rps_shard_lock(&lookup->table->shards[busy[i].run.shard]);
        find_window_locked(lookup, &window, &burst);
        copy_window_locked(lookup, &window, &burst);
    }
}

void
rps_lookup_read_few(struct rps_lookup *lookup)
{
    struct rps_batch_run run = rps_batch_run_first(&lookup->batch);
    struct window windows[2];
    struct window *now = &windows[0];
    struct window *next = &windows[1];
    struct rps_lookup_burst burst;

    next_window(lookup, &run, now);
    while (now->n > 0) {
        struct rps_lookup_run busy[WINDOW_SHARDS];
        struct window *const read = now;
        size_t busy_count = 0;
        lock_window(lookup, now, busy, &busy_count);
        find_window_locked(lookup, now, &burst);
        next_window(lookup, &run, next);
        copy_window_locked(lookup, now, &burst);
        read_busy(lookup, busy, busy_count);
        now = next;
        next = read;
    }
}
