/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which keys the steps before had. A row that an unfinished step will still
 * change must be fetched after it, and every replica reads the rows of the
 * whole global batch, so it knows the keys of all of them.
 *
 * A place holds the newest step of the keys that hash to it: nothing is
 * probed and nothing is removed. Two keys in one place only make a key look
 * newer than it is, and what looks new is fetched later: never wrong.
 */
#ifndef RPS_WORKER_RECENT_H
#define RPS_WORKER_RECENT_H

#include "base/hash.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_recent {
    uint32_t *steps; /* [mask + 1], low 32 bits; NULL: no step yet */
    size_t mask;
};

/** A zeroed one is fine. */
void rps_recent_finish(struct rps_recent *recent);

/**
 * Room for `keys` of a step, one place in eight at most. Where it grows, all
 * keys look as new as `step` - 1. False: no memory.
 */
bool rps_recent_reserve(struct rps_recent *recent, size_t keys, uint64_t step);

/** Step `step`, not older than any before, has these keys. */
void rps_recent_add(struct rps_recent *recent, const uint64_t *keys,
        size_t count, uint64_t step);

/** May a step of [since, step) have had the key? step - since < 2^31. */
static inline bool
rps_recent_has(const struct rps_recent *recent, uint64_t key, uint64_t since,
        uint64_t step)
{
    const uint32_t newest =
            recent->steps[rps_mix64(key) & (uint64_t)recent->mask];

    return (uint32_t)(step - newest) <= (uint32_t)(step - since);
}

#endif /* RPS_WORKER_RECENT_H */
