/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XXH3, seed 0, of what is long: frames, rows, blocks and files, by the widest
 * instructions that the CPU has, where the library chooses among them at run
 * time. Of a key of eight bytes the choice costs more than the hash:
 * base/hash.h has that.
 */
#ifndef RPS_BASE_CHECKSUM_H
#define RPS_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>
#include <xxhash.h>

/** XXH3_64 of bytes. */
uint64_t rps_checksum(const void *bytes, size_t length);

/** The next bytes of it; XXH3_64bits_reset() began it, and
 * XXH3_64bits_digest() ends it. */
void rps_checksum_add(XXH3_state_t *sum, const void *bytes, size_t length);

/** XXH3_128 of bytes. */
XXH128_hash_t rps_checksum_128(const void *bytes, size_t length);

#endif /* RPS_BASE_CHECKSUM_H */
