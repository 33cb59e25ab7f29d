/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: hashing and a counting sort. */
#include "embedding/batch.h"

#include "base/hash.h"

#include <assert.h>
#include <string.h>

void
rps_batch_sort(struct rps_batch *batch, const struct rps_table *table,
        size_t count, const uint64_t *keys)
{
    uint64_t hashes[RPS_BATCH_KEYS];
    uint16_t starts[1u << RPS_SHARD_LOG2_MAX];
    uint16_t next = 0;

    assert(count <= RPS_BATCH_KEYS);

    batch->count = count;
    memset(starts, 0, table->shard_count * sizeof(*starts));
    rps_key_hashes(count, keys, table->job_seed, hashes);
    for (size_t i = 0; i < count; i++) {
        starts[rps_table_shard_of(table, hashes[i])]++;
    }
    for (size_t s = 0; s < table->shard_count; s++) {
        const uint16_t size = starts[s];
        starts[s] = next;
        next = (uint16_t)(next + size);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t at = starts[rps_table_shard_of(table, hashes[i])]++;
        batch->keys[at] = keys[i];
        batch->hashes[at] = hashes[i];
        batch->positions[at] = (uint16_t)i;
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
    run.shard = rps_table_shard_of(table, batch->hashes[start]);
    while (run.end < batch->count &&
            rps_table_shard_of(table, batch->hashes[run.end]) == run.shard) {
        run.end++;
    }
    return run;
}
