/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3_64 of a key's 8 bytes with a seed, as base/hash.h has it from the
 * library, written so that the compiler makes it as many lanes as there are.
 * tests/kernel/ holds it to the library.
 */
#ifndef RPS_EMBEDDING_KERNELS_HASH_H
#define RPS_EMBEDDING_KERNELS_HASH_H

#include "embedding/kernels/kernels.h"

#define HASH_SECRET 0xc73ab174c5ecd5a2u /* the default one's words 1 ^ 2 */
#define HASH_PRIME  0x9fb21c651e98df25u

static inline uint64_t
hash_rotate(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}

static void
hash_keys(const uint64_t *restrict keys, size_t n, uint64_t seed,
        uint64_t *restrict hashes)
{
    const uint64_t low = __builtin_bswap32((uint32_t)seed);
    const uint64_t flip = HASH_SECRET - (seed ^ low << 32);

    for (size_t i = 0; i < n; i++) {
        uint64_t x = hash_rotate(keys[i], 32) ^ flip;
        x ^= hash_rotate(x, 49) ^ hash_rotate(x, 24);
        x *= HASH_PRIME;
        x ^= (x >> 35) + sizeof(*keys);
        x *= HASH_PRIME;
        hashes[i] = x ^ x >> 28;
    }
}

#endif /* RPS_EMBEDDING_KERNELS_HASH_H */
