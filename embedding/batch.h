/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A block of a batch's keys, hashed and sorted by shard, so that each shard
 * is locked once a block. It lives on the caller's stack (about 42 KB): a
 * lookup allocates nothing and so cannot fail.
 */
#ifndef RPS_EMBEDDING_BATCH_H
#define RPS_EMBEDDING_BATCH_H

#include "embedding/table_impl.h"

#define RPS_BATCH_KEYS 4096u /* keys of a block */

struct rps_batch {
    const uint64_t *keys;
    size_t count;
    uint64_t hashes[RPS_BATCH_KEYS]; /* by position */
    uint16_t order[RPS_BATCH_KEYS];  /* positions, by shard, else as given */
};

/** The positions of one shard: order[start] .. order[end - 1]. */
struct rps_batch_run {
    size_t shard;
    size_t start;
    size_t end; /* == start: no further shard */
};

/** count <= RPS_BATCH_KEYS; borrows keys. */
void rps_batch_sort(struct rps_batch *batch, const struct rps_table *table,
        size_t count, const uint64_t *keys);

/** The run that starts at `start` (0, then the last one's end). */
struct rps_batch_run rps_batch_run_at(const struct rps_batch *batch,
        const struct rps_table *table, size_t start);

#endif /* RPS_EMBEDDING_BATCH_H */
