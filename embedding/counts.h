/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was pushed of keys without a row, key by key, for one shard: the
 * exact kind of admission.
 *
 *   place:  keys[i] u64   counts[i] u16, 0 = free     10 bytes a place
 *   probe:  from the hash's low bits on, to the first free place
 *
 *   used <= 3/4 places, places <= RPS_COUNTS_PLACES_MAX
 *
 * So every one of the 2^64 keys can be counted. Counts stop at 65535.
 *
 * Ageing, which bounds the memory: when the shard holds all that it may, or
 * neither budget nor system have more, all its counts are halved, rounded
 * down, and at 0 forgotten (2 to 3 ms for the largest). A key for which there
 * is no place even then is not counted, this time.
 *
 * Frozen, for a cut (cut.h): the counts as they are then are copied before
 * their next change, and the copy is kept until they are thawed.
 *
 * Threads: the owner's lock (shard->lock).
 */
#ifndef RPS_EMBEDDING_COUNTS_H
#define RPS_EMBEDDING_COUNTS_H

#include "embedding/budget.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_COUNT_MAX         65535u
#define RPS_COUNTS_PLACES_MAX ((size_t)1 << 18) /* of a shard: 2.5 MiB */

enum rps_frozen {
    RPS_FROZEN_NOT,
    RPS_FROZEN_SHARED, /* what is there is what was */
    RPS_FROZEN_COPIED,
    RPS_FROZEN_LOST, /* there was no memory for the copy */
};

struct rps_counts {
    uint64_t *keys;   /* [places] */
    uint16_t *counts; /* [places] */
    size_t places;    /* 0, or a power of two */
    size_t used;
    size_t hand; /* the next place to age, < places */
    uint64_t job_seed;
    struct rps_budget *budget; /* of the arrays; NULL: no limit */
    uint64_t bytes_max;        /* of the arrays; more are not asked for */
    enum rps_frozen frozen;
    void *copy; /* owned: keys[copy_places], then counts */
    size_t copy_places;
};

void rps_counts_init(struct rps_counts *counts, uint64_t job_seed,
        struct rps_budget *budget);
void rps_counts_finish(struct rps_counts *counts);

/** 0: never seen, or forgotten. */
uint32_t rps_counts_get(
        const struct rps_counts *counts, uint64_t hash, uint64_t key);

/** Count n >= 1 more and return the new count. Cannot fail: see Ageing. */
uint32_t rps_counts_add(
        struct rps_counts *counts, uint64_t hash, uint64_t key, uint64_t n);

/** Forget a key and return what it had. */
uint32_t rps_counts_take(
        struct rps_counts *counts, uint64_t hash, uint64_t key);

/** Make it `count`, cut to RPS_COUNT_MAX. False: no room, and aged. */
bool rps_counts_set(
        struct rps_counts *counts, uint64_t hash, uint64_t key, uint32_t count);

/**
 * Halve the counts of the next `places` places, or a few more, but not past
 * the end, where the hand starts again and true is returned: a round is over.
 */
bool rps_counts_age(struct rps_counts *counts, size_t places);

/** Give memory back where less than an eighth of the places is used. */
void rps_counts_trim(struct rps_counts *counts);

/** From now on what is counted is kept as it is now; thaw forgets that. */
void rps_counts_freeze(struct rps_counts *counts);
void rps_counts_thaw(struct rps_counts *counts);

/**
 * What was counted at the freeze: keys[*places_out] and, behind them, as many
 * u16, 0 where there is none; free() it. NULL with places 0: nothing; false:
 * no memory now, or when it was to be copied.
 */
bool rps_counts_frozen(
        const struct rps_counts *counts, void **copy_out, size_t *places_out);

uint64_t rps_counts_bytes(const struct rps_counts *counts);

#endif /* RPS_EMBEDDING_COUNTS_H */
