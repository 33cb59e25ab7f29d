/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of rows that a cut kept, and those that are ready for the next rows.
 *
 * A spare block was written to once: the first write to a page takes longer
 * than copying the rows that go there. And with no spare block one thread
 * would free what another allocates, many times a millisecond.
 *
 * Threads: the owner of a struct rps_spare_blocks has a lock for it.
 */
#ifndef RPS_EMBEDDING_KEPT_BLOCK_H
#define RPS_EMBEDDING_KEPT_BLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_KEPT_BLOCK_BYTES ((size_t)64 << 10)

/** Rows of one table, one behind the other. */
struct rps_kept_block {
    struct rps_kept_block *next;
    uint64_t offset; /* where it was put away; bytes is NULL then */
    char *bytes;     /* [room], [used] of them with rows */
    size_t used;
    size_t room;
};

/** Of RPS_KEPT_BLOCK_BYTES each, in no list. */
struct rps_spare_blocks {
    struct rps_kept_block *first;
    uint32_t count;
    uint32_t wanted; /* so many stay */
};

/** Empty, of `room` bytes; NULL: no memory. */
struct rps_kept_block *rps_kept_block_create(size_t room);
void rps_kept_block_destroy(struct rps_kept_block *block);

/** n blocks, linked, each of which was written to; fewer without memory. */
struct rps_kept_block *rps_kept_blocks_create_written(uint32_t n);

/** Of those blocks; NULL: there is none. */
struct rps_kept_block *rps_spare_blocks_take(struct rps_spare_blocks *spare);
/** The block, emptied, is kept for the next rows, beyond `wanted`, too. */
void rps_spare_blocks_add(
        struct rps_spare_blocks *spare, struct rps_kept_block *block);
/** Down to so many. */
void rps_spare_blocks_trim(struct rps_spare_blocks *spare, uint32_t count);

#endif /* RPS_EMBEDDING_KEPT_BLOCK_H */
