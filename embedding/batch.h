/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a batch's keys, hashed and sorted by shard, so that each shard
 * is locked once a block. It lives on the caller's stack (about 80 KB): a
 * lookup allocates nothing and so cannot fail.
 */
#ifndef RPS_EMBEDDING_BATCH_H
#define RPS_EMBEDDING_BATCH_H

#include "embedding/table_impl.h"

#define RPS_BATCH_KEYS 4096u /* keys of a block */

/** By shard, and as given inside one. */
struct rps_batch {
    size_t count;
    uint64_t keys[RPS_BATCH_KEYS];
    uint64_t hashes[RPS_BATCH_KEYS];
    uint16_t positions[RPS_BATCH_KEYS]; /* of each among the given */
};

/** The keys of one shard: start .. end - 1. */
struct rps_batch_run {
    size_t shard;
    size_t start;
    size_t end; /* == start: no further shard */
};

/** count <= RPS_BATCH_KEYS. */
void rps_batch_sort(struct rps_batch *batch, const struct rps_table *table,
        size_t count, const uint64_t *keys);

/** The run that starts at `start` (0, then the last one's end). */
struct rps_batch_run rps_batch_run_at(const struct rps_batch *batch,
        const struct rps_table *table, size_t start);

#endif /* RPS_EMBEDDING_BATCH_H */
