/* SPDX-License-Identifier: Apache-2.0 */
#include "base/checksum.h"

#ifdef RPS_HAVE_XXH_DISPATCH
#include <immintrin.h>
#include <xxh_x86dispatch.h>

/* Debian's library leaves the upper halves of the vector registers in use.
 * Intel's CPUs then merge them into each SSE instruction that comes after: a
 * digest of 525 bytes took 260 ns and takes 33, and 72 without the choice. */
__attribute__((target("avx"))) static void
clear_uppers(void)
{
    _mm256_zeroupper();
}

static void
finish(void)
{
    if (__builtin_cpu_supports("avx")) {
        clear_uppers();
    }
}
#else
static void
finish(void)
{
}
#endif

uint64_t
rps_checksum(const void *bytes, size_t length)
{
    const uint64_t sum = XXH3_64bits(bytes, length);

    finish();
    return sum;
}

void
rps_checksum_add(XXH3_state_t *sum, const void *bytes, size_t length)
{
    (void)XXH3_64bits_update(sum, bytes, length);
    finish();
}

XXH128_hash_t
rps_checksum_128(const void *bytes, size_t length)
{
    const XXH128_hash_t sum = XXH3_128bits(bytes, length);

    finish();
    return sum;
}
