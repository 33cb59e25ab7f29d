/* SPDX-License-Identifier: Apache-2.0 */
/* Owns one shard's lock, index and rows, and the promises of room. */
#include "embedding/shard.h"

#include <assert.h>

rps_status
rps_shard_init(struct rps_shard *shard, struct rps_arena *lines,
        struct rps_arena *cells, size_t row_bytes, uint64_t job_seed,
        uint32_t skip)
{
    rps_status status = RPS_OK;

    if (pthread_mutex_init(&shard->lock, NULL) != 0) {
        return RPS_E_NOMEM;
    }
    shard->reserved = 0;
    rps_rows_init(&shard->rows, cells, row_bytes);
    rps_counts_init(&shard->counts, job_seed, cells->budget);
    status = rps_index_init(&shard->index, lines, job_seed, skip);
    if (status != RPS_OK) {
        rps_shard_finish(shard);
    }
    return status;
}

void
rps_shard_finish(struct rps_shard *shard)
{
    assert(shard->reserved == 0);
    rps_index_finish(&shard->index);
    rps_rows_finish(&shard->rows);
    rps_counts_finish(&shard->counts);
    pthread_mutex_destroy(&shard->lock);
}

bool
rps_shard_promise_locked(struct rps_shard *shard, uint64_t count)
{
    const uint64_t total = shard->reserved + count;

    if (!rps_index_has_free(&shard->index, total) ||
            rps_rows_reserve(&shard->rows, total) != RPS_OK) {
        return false;
    }
    shard->reserved = total;
    return true;
}

void
rps_shard_release_locked(struct rps_shard *shard, uint64_t count)
{
    assert(count <= shard->reserved);
    shard->reserved -= count;
}

rps_status
rps_shard_create_row_locked(struct rps_shard *shard, uint64_t hash,
        uint64_t key, bool promised, struct rps_index_place *place_out)
{
    rps_status status = RPS_OK;
    uint32_t number = 0;

    if (promised) {
        rps_shard_release_locked(shard, 1);
    }
    status = rps_rows_reserve(&shard->rows, shard->reserved + 1);
    if (status != RPS_OK) {
        return status;
    }
    number = rps_rows_take(&shard->rows);
    status = rps_index_insert(
            &shard->index, hash, key, number + 1, shard->reserved, place_out);
    if (status != RPS_OK) {
        rps_rows_give(&shard->rows, number);
    }
    assert(status == RPS_OK || !promised);
    return status;
}

void
rps_shard_erase_row_locked(
        struct rps_shard *shard, struct rps_index_place place)
{
    rps_index_remove(&shard->index, place);
    rps_rows_give(&shard->rows, place.row - 1);
}
