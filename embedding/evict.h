/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rows have to go, and taking them out. Rows are never fewer than
 * keep_min_rows for it, and those of a dense table stay.
 *
 * Threads: _locked: under the shard's lock and, before it, table->making.
 */
#ifndef RPS_EMBEDDING_EVICT_H
#define RPS_EMBEDDING_EVICT_H

#include "embedding/tick.h"

/** Keys that must not go now: those of a push. A Bloom filter of one hash. */
struct rps_guard {
    uint64_t *bits; /* NULL: no key */
    uint64_t mask;  /* number of bits - 1 */
};

/** Guard the keys of these hashes. False: no memory. */
bool rps_guard_init(
        struct rps_guard *guard, size_t count, const uint64_t *hashes);
void rps_guard_finish(struct rps_guard *guard);

/**
 * How much a row is to go: the largest first. evict-lru: the age, of equal
 * ones the fewer uses; evict-lfu: the fewer uses, of equal ones the age.
 */
uint64_t rps_evict_score(
        enum rps_on_full policy, uint32_t meta, uint64_t newest);

/** Whether one more row may go. */
bool rps_may_evict(const struct rps_table *table);

#define RPS_EVICT_ROWS 16u /* looked at for one that goes, or a few more */

enum rps_gone {
    RPS_GONE_NOT,
    RPS_GONE_LOWERED, /* to the disk */
    RPS_GONE_EVICTED
};

/**
 * Make place in a segment near the home of a hash: the row with the largest
 * score of RPS_EVICT_ROWS, from its home line on, goes to the disk where there
 * is a tier with room, or else leaves. NOT: no row of the segment may go.
 */
enum rps_gone rps_evict_one_locked(struct rps_table *table,
        struct rps_shard *shard, struct rps_segment *segment, uint64_t hash,
        const struct rps_guard *guard);

/**
 * A row of the shard, drawn from those with large scores, goes to the disk.
 * It keeps its place in the index; `making` need not be held.
 */
bool rps_evict_lower_locked(
        struct rps_table *table, struct rps_shard *shard, uint64_t draw);

/**
 * Make place for a new row of this hash, where there is neither memory nor
 * budget: in its own segment, else, if it is but the row that is missing, in
 * another one of the shard. False: none may go.
 */
bool rps_evict_for_locked(struct rps_table *table, struct rps_shard *shard,
        uint64_t hash, const struct rps_guard *guard);

/** Erase the cold rows of a pair of lines; stamp very old ones anew. */
void rps_evict_cold_locked(struct rps_table *table, struct rps_shard *shard,
        struct rps_index_line *pair, uint64_t tick,
        struct rps_evict_report *report);

#endif /* RPS_EMBEDDING_EVICT_H */
