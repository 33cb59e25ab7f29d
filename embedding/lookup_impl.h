/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lookup on its way: a block of its keys, where they may be, and rows that
 * were asked for. Of lookup.c, and of lookup_few.c, which reads blocks that
 * have few keys of a shard.
 */
#ifndef RPS_EMBEDDING_LOOKUP_IMPL_H
#define RPS_EMBEDDING_LOOKUP_IMPL_H

#include "embedding/batch.h"
#include "embedding/prefetch.h"

#include <string.h>

#define RPS_LOOKUP_BURST 32u /* rows asked for before the first is copied */

#define RPS_LOOKUP_UNADMITTED 0x8000u /* a bit that no position has */

_Static_assert(RPS_BATCH_KEYS <= RPS_LOOKUP_UNADMITTED, "a bit is free");
_Static_assert(
        RPS_LOOKUP_BURST <= RPS_BATCH_SPARE, "positions are copied as a whole");

/* Rows that were asked for, and where they go. */
struct rps_lookup_burst {
    size_t n;
    const void *rows[RPS_LOOKUP_BURST];
    uint16_t positions[RPS_LOOKUP_BURST];
    struct rps_shard *held; /* unlocked when they are copied; or NULL */
};

/* Keys of the batch, by their numbers there. */
struct rps_lookup_keys {
    size_t n;
    uint16_t keys[RPS_BATCH_KEYS];
};

struct rps_lookup {
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
    struct rps_index_line *lines[RPS_BATCH_KEYS]; /* homes of its keys: */
    size_t known; /* those of keys 0 .. known - 1 */
    size_t asked; /* and 0 .. asked - 1 are asked for */
    struct rps_lookup_keys
            beyond; /* of a shard: not in their home line, which is full */
    struct rps_lookup_keys
            absent; /* of the block; RPS_LOOKUP_UNADMITTED in some */
    unsigned turn;  /* of the bursts */
    struct rps_lookup_burst bursts[2];
};

static inline float *
rps_lookup_out(const struct rps_lookup *lookup, size_t position)
{
    return (float *)(void *)((char *)lookup->rows + position * lookup->stride);
}

/* absent.keys[from] and on. */
void rps_lookup_admit_locked(
        struct rps_lookup *lookup, const struct rps_shard *shard, size_t from);

static inline void
rps_lookup_add(struct rps_lookup_keys *list, size_t key)
{
    list->keys[list->n] = (uint16_t)key;
    list->n++;
}

/* Rows of a table with a disk tier: counted, and to come back. */
void rps_lookup_touch_locked(struct rps_lookup *lookup,
        const struct rps_shard *shard, const uint32_t *rows, size_t n);

/* Where rows[burst->n] lie, as the index names them. */
static inline void
rps_lookup_locate_locked(struct rps_lookup *lookup,
        const struct rps_shard *shard, const uint32_t *rows,
        struct rps_lookup_burst *burst)
{
    const struct rps_rows memory = shard->rows; /* read once, not a row */
    const size_t n = burst->n;

    if (lookup->tiered) {
        rps_lookup_touch_locked(lookup, shard, rows, n);
        for (size_t i = 0; i < n; i++) {
            burst->rows[i] = rps_shard_row_at(shard, rows[i]);
        }
        return;
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < n; i++) {
        burst->rows[i] = rps_rows_at(&memory, rows[i] - 1);
    }
}

static inline __attribute__((always_inline)) void
rps_lookup_ask_bytes(const struct rps_lookup_burst *burst, size_t bytes)
{
    const size_t n = burst->n;

#pragma GCC unroll 4
    for (size_t i = 0; i < n; i++) {
        rps_prefetch(burst->rows[i], bytes);
    }
}

/* The usual lengths are constants where they are asked for. */
static inline __attribute__((always_inline)) void
rps_lookup_ask_rows(
        const struct rps_lookup *lookup, const struct rps_lookup_burst *burst)
{
    switch ((lookup->table->value_bytes + RPS_CACHE_LINE - 1) /
            RPS_CACHE_LINE) {
    case 1:
        rps_lookup_ask_bytes(burst, RPS_CACHE_LINE);
        break;
    case 2:
        rps_lookup_ask_bytes(burst, 2 * RPS_CACHE_LINE);
        break;
    case 4:
        rps_lookup_ask_bytes(burst, 4 * RPS_CACHE_LINE);
        break;
    default:
        rps_lookup_ask_bytes(burst, lookup->table->value_bytes);
        break;
    }
}

/* Keys of one shard whose home lines are known. */
struct rps_lookup_run {
    struct rps_batch_run run;
    uint64_t version; /* of the shard's index, when they were found */
};

static inline struct rps_lookup_run
rps_lookup_find_homes(struct rps_lookup *lookup, struct rps_batch_run run)
{
    const struct rps_index *index = &lookup->table->shards[run.shard].index;
    const struct rps_lookup_run found = {
            .run = run, .version = rps_index_version(index)};

    rps_index_home_lines(index, run.end - run.start,
            lookup->batch.hashes + run.start, lookup->lines + run.start);
    return found;
}

/* Once more, where the index has moved them since. */
static inline void
rps_lookup_check_homes_locked(
        struct rps_lookup *lookup, const struct rps_lookup_run *found)
{
    const struct rps_batch_run *run = &found->run;
    const struct rps_index *index = &lookup->table->shards[run->shard].index;

    if (found->version != rps_index_version(index)) {
        rps_index_homes(index, run->end - run->start,
                lookup->batch.hashes + run->start, lookup->lines + run->start);
    }
}

/* The block's keys, where a shard has few of them. */
void rps_lookup_read_few(struct rps_lookup *lookup);

#endif /* RPS_EMBEDDING_LOOKUP_IMPL_H */
