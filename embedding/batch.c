/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns nothing: hashing and a counting sort. While it sorts, the lines of the
 * index are on their way.
 */
#include "embedding/batch.h"

#include "base/hash.h"

#include <assert.h>
#include <string.h>

void
rps_batch_sort(struct rps_batch *batch, const struct rps_table *table,
        size_t count, const uint64_t *keys)
{
    uint16_t starts[1u << RPS_SHARD_LOG2_MAX];
    uint16_t next = 0;

    assert(count <= RPS_BATCH_KEYS);

    batch->keys = keys;
    batch->count = count;
    memset(starts, 0, table->shard_count * sizeof(*starts));
    for (size_t i = 0; i < count; i++) {
        const uint64_t hash = rps_key_hash(keys[i], table->job_seed);
        const size_t shard = rps_table_shard_of(table, hash);
        rps_index_prefetch(&table->shards[shard].index, hash);
        batch->hashes[i] = hash;
        starts[shard]++;
    }
    for (size_t s = 0; s < table->shard_count; s++) {
        const uint16_t size = starts[s];
        starts[s] = next;
        next = (uint16_t)(next + size);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t shard = rps_table_shard_of(table, batch->hashes[i]);
        batch->order[starts[shard]++] = (uint16_t)i;
    }
}

struct rps_batch_run
rps_batch_run_at(const struct rps_batch *batch, const struct rps_table *table,
        size_t start)
{
    struct rps_batch_run run = {.start = start, .end = start};

    if (start == batch->count) {
        return run;
    }
    run.shard = rps_table_shard_of(table, batch->hashes[batch->order[start]]);
    while (run.end < batch->count &&
            rps_table_shard_of(table, batch->hashes[batch->order[run.end]]) ==
                    run.shard) {
        run.end++;
    }
    return run;
}
