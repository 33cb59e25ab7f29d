/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one shard's lock, index and rows, and the promises of room. */
#include "embedding/shard.h"

#include <assert.h>

#define ROWS_MAX (UINT32_MAX - 1u) /* numbers are u32, 0 is none */

bool
rps_shard_init(struct rps_shard *shard, size_t row_floats, uint64_t job_seed)
{
    rps_index_init(&shard->index, job_seed);
    rps_rows_init(&shard->rows, row_floats);
    shard->reserved = 0;
    return pthread_mutex_init(&shard->lock, NULL) == 0;
}

void
rps_shard_finish(struct rps_shard *shard)
{
    assert(shard->reserved == 0);
    rps_index_finish(&shard->index);
    rps_rows_finish(&shard->rows);
    pthread_mutex_destroy(&shard->lock);
}

rps_status
rps_shard_reserve_locked(struct rps_shard *shard, uint64_t count)
{
    const uint64_t total = shard->index.count + shard->reserved + count;
    rps_status status = RPS_OK;

    if (count == 0) {
        return RPS_OK;
    }
    if (total > ROWS_MAX) {
        return RPS_E_NOMEM;
    }
    status = rps_index_reserve(&shard->index, total);
    if (status == RPS_OK) {
        status = rps_rows_reserve(&shard->rows, total);
    }
    if (status == RPS_OK) {
        shard->reserved += count;
    }
    return status;
}

void
rps_shard_release_locked(struct rps_shard *shard, uint64_t count)
{
    assert(count <= shard->reserved);
    shard->reserved -= count;
}

struct rps_index_place
rps_shard_create_row_locked(
        struct rps_shard *shard, uint64_t hash, uint64_t key)
{
    const uint32_t row = (uint32_t)(shard->index.count + 1);

    assert(shard->reserved > 0);
    shard->reserved--;
    return rps_index_insert(&shard->index, hash, key, row, 0);
}
