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

#endif /* RPS_EMBEDDING_CHECKPOINT_SUM_H */
