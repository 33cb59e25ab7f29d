/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asking for memory that is read soon. Always inlined: a function that only
 * prefetches has no effect that GCC knows of, and its calls would go.
 */
#ifndef RPS_EMBEDDING_PREFETCH_H
#define RPS_EMBEDDING_PREFETCH_H

#include <stddef.h>

#define RPS_CACHE_LINE ((size_t)64)

static inline __attribute__((always_inline)) void
rps_prefetch(const char *start, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += RPS_CACHE_LINE) {
        __builtin_prefetch(start + at);
    }
}

#endif /* RPS_EMBEDDING_PREFETCH_H */
