/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock-striped part of a table: a lock, an index, the rows.
 *
 * Room for rows is promised before it is used: an update reserves what it
 * may create in every shard it touches, then nothing in it can fail.
 * index room and rows room >= index.count + reserved, always.
 *
 * Threads: everything but _init and _finish under shard->lock.
 */
#ifndef RPS_EMBEDDING_SHARD_H
#define RPS_EMBEDDING_SHARD_H

#include "embedding/index.h"
#include "embedding/rows.h"

#include <pthread.h>
#include <stdbool.h>

struct rps_shard {
    pthread_mutex_t lock;
    struct rps_index index; /* lock */
    struct rps_rows rows;   /* lock */
    uint64_t reserved;      /* lock; rows promised, not yet created */
} __attribute__((aligned(64)));

/** false: no lock could be made. */
bool rps_shard_init(
        struct rps_shard *shard, size_t row_floats, uint64_t job_seed);
void rps_shard_finish(struct rps_shard *shard);

/** Promise `count` new rows. Errors: NOMEM, no promise was made. */
RPS_NODISCARD rps_status rps_shard_reserve_locked(
        struct rps_shard *shard, uint64_t count);

/** Take back what was promised and not used. */
void rps_shard_release_locked(struct rps_shard *shard, uint64_t count);

/** Use one promise: a row for an absent key, its content undefined. */
struct rps_index_place rps_shard_create_row_locked(
        struct rps_shard *shard, uint64_t hash, uint64_t key);

static inline float *
rps_shard_row_locked(
        const struct rps_shard *shard, struct rps_index_place place)
{
    return rps_rows_at(&shard->rows, place.row - 1);
}

#endif /* RPS_EMBEDDING_SHARD_H */
