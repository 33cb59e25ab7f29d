/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a batch's keys, hashed and sorted by shard, so that each shard
 * is locked once a block. It lives on the caller's stack (about 80 KB): a
 * lookup allocates nothing and so cannot fail.
 */
#ifndef RPS_EMBEDDING_BATCH_H
#define RPS_EMBEDDING_BATCH_H

#include "embedding/table_impl.h"

#define RPS_BATCH_KEYS  4096u /* keys of a block */
#define RPS_BATCH_SPARE 32u   /* positions that may be read behind them */

/** By shard, and as given inside one. */
struct rps_batch {
    size_t count;
    uint64_t keys[RPS_BATCH_KEYS];
    uint64_t hashes[RPS_BATCH_KEYS];
    /* of each among the given; the last ones mean nothing */
    uint16_t positions[RPS_BATCH_KEYS + RPS_BATCH_SPARE];
    uint16_t ends[1u << RPS_SHARD_LOG2_MAX]; /* of each shard's keys */
};

/** The keys of one shard: start .. end - 1. */
struct rps_batch_run {
    size_t shard;
    size_t start;
    size_t end;
};

/** count <= RPS_BATCH_KEYS. */
void rps_batch_sort(struct rps_batch *batch, const struct rps_table *table,
        size_t count, const uint64_t *keys);

/** The shard's keys; none: start == end. */
static inline struct rps_batch_run
rps_batch_run_of(const struct rps_batch *batch, size_t shard)
{
    return (struct rps_batch_run){.shard = shard,
            .start = shard == 0 ? 0 : batch->ends[shard - 1],
            .end = batch->ends[shard]};
}

/** The next run that has keys; its start == end: there is none. */
static inline struct rps_batch_run
rps_batch_run_next(const struct rps_batch *batch, struct rps_batch_run run)
{
    const size_t start = run.end;

    if (start == batch->count) {
        return (struct rps_batch_run){.start = start, .end = start};
    }
    do {
        run.shard++;
    } while (batch->ends[run.shard] == start);
    return rps_batch_run_of(batch, run.shard);
}

static inline struct rps_batch_run
rps_batch_run_first(const struct rps_batch *batch)
{
    const struct rps_batch_run run = rps_batch_run_of(batch, 0);

    return run.start < run.end ? run : rps_batch_run_next(batch, run);
}

#endif /* RPS_EMBEDDING_BATCH_H */
