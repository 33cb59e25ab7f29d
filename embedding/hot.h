/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keys that are pushed most: the space-saving algorithm (Metwally,
 * Agrawal, El Abbadi, 2005) over a sample. A key that has no counter takes
 * the one with the least count c and starts from there, with error c. With N
 * the weight of all that was added and K = RPS_HOT_KEYS_MAX counters:
 *
 *   count - error <= what was added of the key <= count
 *   error <= N / K          every key of more than N / K has a counter
 *
 * Ageing: each time RPS_HOT_AGE_ADDED was added, all counts, errors and N
 * are halved, rounded down, so that a key that is pushed no more loses half
 * of its count each time. The bounds then hold for the halved sums, but for
 * 1 of rounding a halving.
 *
 * Threads: any; a lock of its own, taken for a sampled key only.
 */
#ifndef RPS_EMBEDDING_HOT_H
#define RPS_EMBEDDING_HOT_H

#include "embedding/table.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_HOT_SAMPLE    64u /* one key of a push in so many is added */
#define RPS_HOT_AGE_ADDED ((uint64_t)1 << 20)

struct rps_hot;

/** NULL: no memory. About 18 KiB. */
struct rps_hot *rps_hot_create(void);
void rps_hot_destroy(struct rps_hot *hot);

void rps_hot_add(struct rps_hot *hot, uint64_t key, uint64_t weight);

/** At most `max`, the largest count first, as they were added. */
size_t rps_hot_top(struct rps_hot *hot, size_t max, struct rps_hot_key *out);

uint64_t rps_hot_bytes(void);

/**
 * The first of `RPS_HOT_SAMPLE` keys to add in push number `push`: then every
 * RPS_HOT_SAMPLE-th. Each key of each push is as likely as any other.
 */
size_t rps_hot_first(uint64_t draws, uint64_t push);

#endif /* RPS_EMBEDDING_HOT_H */
