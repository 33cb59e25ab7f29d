/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content digests. A table's: sum mod 2^128 over rows of XXH3_128(key LE,
 * value bytes, slot bytes, uses u8, last u32 LE), so it depends on no order,
 * part or file. A checkpoint's: XXH3_128 over its tables sorted by name, for
 * each: name NUL, canonical spec JSON NUL, 16 digest bytes (low LE, high LE).
 * Of a delta they are the same over what it holds, with a term for each
 * erased key: they name the delta, not the state that it leads to.
 */
#ifndef RPS_BASE_DIGEST_H
#define RPS_BASE_DIGEST_H

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_DIGEST_HEX_BYTES 33u

struct rps_digest {
    uint64_t low;
    uint64_t high;
};

void rps_digest_add(struct rps_digest *sum, struct rps_digest term);

/** Digest of one row: the bytes joined in the order above. */
struct rps_digest rps_digest_row(uint64_t key, const void *value,
        size_t value_bytes, const void *slots, size_t slot_bytes, uint8_t uses,
        uint32_t last);

/** A delta's term of an erased key: XXH3_128, seed 1, of its 8 bytes LE. */
struct rps_digest rps_digest_erased(uint64_t key);

static inline bool
rps_digest_equal(struct rps_digest a, struct rps_digest b)
{
    return a.low == b.low && a.high == b.high;
}

/** 32 hex digits, high half first. Returns `out`. */
char *rps_digest_hex(struct rps_digest digest, char out[RPS_DIGEST_HEX_BYTES]);
bool rps_digest_parse(const char *hex, struct rps_digest *out);

struct rps_digest_entry {
    const char *name;
    const char *spec_json; /* canonical: rps_spec_to_json() */
    struct rps_digest digest;
};

/** Sorts entries by name. */
struct rps_digest rps_digest_checkpoint(
        struct rps_digest_entry *entries, size_t count);

#endif /* RPS_BASE_DIGEST_H */
