/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rule that makes a (field, token) pair one 64-bit key, and the table
 * that proves no two hashed pairs of an input share one.
 *
 *   bit 63   62 … 48   47 … 0
 *   0        field     token            integers below 2^48
 *   1        XXH3_64(text, seed of the field), 63 bits       all other text
 */
#ifndef RPS_WORKER_TOKENS_H
#define RPS_WORKER_TOKENS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_TOKEN_LIMIT ((uint64_t)1 << 48) /* integers below are packed */
#define RPS_FIELD_LIMIT 32768u              /* fields: 15 bits */

struct rps_token_entry {
    uint64_t key; /* 0: an empty place (hashed keys have bit 63) */
    uint32_t field;
    char *text;
};

/** Open addressing; zeroed is empty. */
struct rps_tokens {
    struct rps_token_entry *entries;
    size_t capacity; /* a power of two, or 0 */
    size_t count;    /* count <= capacity * 3 / 4 */
    uint64_t mask;   /* 0: all bits; tests narrow it to force meetings */
};

/** field < RPS_FIELD_LIMIT, token < RPS_TOKEN_LIMIT. */
uint64_t rps_token_pack(uint32_t field, uint64_t token);

/** A canonical decimal ("0", "17", no sign, no leading zero) below 2^48. */
bool rps_token_integer(const char *text, uint64_t *token_out);

/**
 * Key of a text token: packed if it is such an integer, else hashed and
 * entered in the table.
 *
 * Errors: MISMATCH: another pair has this key; *other is that pair (error
 *         says nothing: the caller knows where). NOMEM.
 */
rps_status rps_tokens_key(struct rps_tokens *tokens, uint32_t field,
        const char *text, uint64_t *key_out,
        const struct rps_token_entry **other);

/** The same without entering it. */
rps_status rps_tokens_peek(const struct rps_tokens *tokens, uint32_t field,
        const char *text, uint64_t *key_out,
        const struct rps_token_entry **other);

void rps_tokens_finish(struct rps_tokens *tokens);

#endif /* RPS_WORKER_TOKENS_H */
