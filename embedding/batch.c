/* SPDX-License-Identifier: Apache-2.0 */
/* Owns nothing: hashing and a counting sort. */
#include "embedding/batch.h"

#include <assert.h>
#include <string.h>

void
rps_batch_sort(struct rps_batch *batch, const struct rps_table *table,
        size_t count, const uint64_t *keys)
{
    uint64_t hashes[RPS_BATCH_KEYS];
    uint16_t *ends = batch->ends;
    uint16_t next = 0;

    assert(count <= RPS_BATCH_KEYS);

    batch->count = count;
    memset(ends, 0, table->shard_count * sizeof(*ends));
    table->kernels.hash(keys, count, table->job_seed, hashes);
    /* unrolled, where a lookup spends its time */
#pragma GCC unroll 4
    for (size_t i = 0; i < count; i++) {
        ends[rps_table_shard_of(table, hashes[i])]++;
    }
    for (size_t s = 0; s < table->shard_count; s++) {
        const uint16_t size = ends[s];
        ends[s] = next;
        next = (uint16_t)(next + size);
    }
    /* starts, so far: each moves to its end while its keys are placed */
#pragma GCC unroll 4
    for (size_t i = 0; i < count; i++) {
        const size_t at = ends[rps_table_shard_of(table, hashes[i])]++;
        batch->keys[at] = keys[i];
        batch->hashes[at] = hashes[i];
        batch->positions[at] = (uint16_t)i;
    }
}
