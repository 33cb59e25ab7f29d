/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include <string.h>

/* part of this file, not called: a key is hashed in a few nanoseconds */
#define XXH_INLINE_ALL
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
        "keys are hashed and sent as they lie in memory");

uint64_t
rps_key_hash(uint64_t key, uint64_t job_seed)
{
    return XXH3_64bits_withSeed(&key, sizeof(key), job_seed);
}

void
rps_key_hashes(
        size_t n, const uint64_t *keys, uint64_t job_seed, uint64_t *hashes)
{
    for (size_t i = 0; i < n; i++) {
        hashes[i] = XXH3_64bits_withSeed(&keys[i], sizeof(keys[i]), job_seed);
    }
}

uint64_t
rps_table_id(const char *name)
{
    return XXH3_64bits(name, strlen(name));
}
