/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3_64, seed 0, of a block and of a whole file: by the widest instructions
 * that the CPU has, where the library chooses among them at run time.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_SUM_H
#define RPS_EMBEDDING_CHECKPOINT_SUM_H

#ifdef RPS_HAVE_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "base/give_way.h"

#include <stddef.h>
#include <stdint.h>

static inline uint64_t
rps_ckpt_sum(const void *bytes, size_t n)
{
    return XXH3_64bits(bytes, n);
}

/** The next n bytes of a file; `whole` was reset. */
static inline void
rps_ckpt_sum_add(XXH3_state_t *whole, const void *bytes, size_t n)
{
    (void)XXH3_64bits_update(whole, bytes, n);
}

#define RPS_CKPT_SUM_PART ((size_t)256 << 10)

/** The same of many bytes, giving way to others (base/give_way.h). */
static inline uint64_t
rps_ckpt_sum_behind(const void *bytes, size_t n)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t sum;

    if (state == NULL) {
        return rps_ckpt_sum(bytes, n);
    }
    (void)XXH3_64bits_reset(state);
    for (size_t at = 0; at < n; at += RPS_CKPT_SUM_PART) {
        const size_t left = n - at;
        rps_ckpt_sum_add(state, (const char *)bytes + at,
                left < RPS_CKPT_SUM_PART ? left : RPS_CKPT_SUM_PART);
        rps_give_way();
    }
    sum = XXH3_64bits_digest(state);
    (void)XXH3_freeState(state);
    return sum;
}

#endif /* RPS_EMBEDDING_CHECKPOINT_SUM_H */
