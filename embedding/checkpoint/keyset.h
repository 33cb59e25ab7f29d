/* SPDX-License-Identifier: Apache-2.0 */
/* A set of keys, each with a mark: what a replay has seen. */
#ifndef RPS_EMBEDDING_CHECKPOINT_KEYSET_H
#define RPS_EMBEDDING_CHECKPOINT_KEYSET_H

#include <stddef.h>
#include <stdint.h>

/** Zeroed it is empty. count <= (mask + 1) * 3 / 4; linear probing. */
struct rps_keyset {
    uint64_t *keys;
    uint8_t *marks; /* 0: the place is free */
    size_t mask;    /* places - 1; 0: none */
    size_t count;
};

/** Bytes that so many keys take at most. */
size_t rps_keyset_bytes(uint64_t count);

/** The key's mark: 0 where it is new, to be set to another before the next
 * call. NULL: no memory. */
uint8_t *rps_keyset_add(struct rps_keyset *set, uint64_t key);

/** The key's mark, 0 where it is not there. */
uint8_t rps_keyset_mark(const struct rps_keyset *set, uint64_t key);

/** All keys go; the memory stays. */
void rps_keyset_clear(struct rps_keyset *set);
void rps_keyset_finish(struct rps_keyset *set);

#endif /* RPS_EMBEDDING_CHECKPOINT_KEYSET_H */
