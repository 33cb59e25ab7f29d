/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one hash of a key. H = XXH3_64(key as 8 LE bytes, job seed): bits
 * 63..52 are the slot (which PS), bits 51..0 the shard and bucket inside a
 * PS. Table ids are XXH3_64 of the name, the same everywhere.
 */
#ifndef RPS_BASE_HASH_H
#define RPS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define RPS_SLOT_COUNT 4096u

uint64_t rps_key_hash(uint64_t key, uint64_t job_seed);

/** hashes[n]: of each of keys[n]; faster than one by one. */
void rps_key_hashes(
        size_t n, const uint64_t *keys, uint64_t job_seed, uint64_t *hashes);

static inline uint32_t
rps_hash_slot(uint64_t hash)
{
    return (uint32_t)(hash >> 52);
}

uint64_t rps_table_id(const char *name);

/** splitmix64 finaliser: a stream of draws from (seed, counter). */
static inline uint64_t
rps_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/** Uniform in [0, 1): the top 53 bits. */
static inline double
rps_unit_double(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1.0p-53;
}

#endif /* RPS_BASE_HASH_H */
