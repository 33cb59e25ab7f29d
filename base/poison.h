/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory that is ours but holds nothing: under AddressSanitizer a touch of it
 * is reported, like one of freed memory.
 */
#ifndef RPS_BASE_POISON_H
#define RPS_BASE_POISON_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define RPS_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RPS_POISONS 1
#endif
#endif

#ifdef RPS_POISONS
#include <sanitizer/asan_interface.h>
#endif

static inline void
rps_poison(const void *start, size_t bytes)
{
#ifdef RPS_POISONS
    __asan_poison_memory_region(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

static inline void
rps_unpoison(const void *start, size_t bytes)
{
#ifdef RPS_POISONS
    __asan_unpoison_memory_region(start, bytes);
#else
    (void)start;
    (void)bytes;
#endif
}

#endif /* RPS_BASE_POISON_H */
