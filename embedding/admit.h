/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who gets a row. A key is admitted for a request if what was pushed of it
 * so far and the request's own multiplicity are min_used_times at least; it
 * then has a row and is counted no more. With min_used_times 0 or 1 every
 * key is admitted and nothing is counted.
 *
 * Threads: _locked: under the lock of the key's shard.
 */
#ifndef RPS_EMBEDDING_ADMIT_H
#define RPS_EMBEDDING_ADMIT_H

#include "embedding/table_impl.h"

static inline bool
rps_admits_all(const struct rps_table *table)
{
    return table->spec.min_used_times <= 1;
}

/** Of a key without a row. */
bool rps_admitted_locked(struct rps_table *table, const struct rps_shard *shard,
        uint64_t hash, uint64_t key, uint64_t multiplicity);

/** Count a push of a key that is not admitted. */
void rps_admit_count_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, uint64_t key, uint64_t multiplicity);

/**
 * The key has a row now, or is erased: forget its count and return it. A
 * sketch cannot forget one key: there it only tells.
 */
uint32_t rps_admit_take_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, uint64_t key);

/** Have what the policy asks for, and nothing else. Errors: NOMEM, LIMIT. */
RPS_NODISCARD rps_status rps_admit_prepare(struct rps_table *table);
void rps_admit_finish(struct rps_table *table);

/** Counts of the shards, and what they and the sketch take. */
void rps_admit_stats(struct rps_table *table, struct rps_table_stats *out);

#endif /* RPS_EMBEDDING_ADMIT_H */
