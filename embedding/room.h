/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for the rows that a call may create, so that running out of memory
 * finds nothing changed. Two ways, the quick one first:
 *
 *   promised  each shard promises a row a key, which is obvious while the
 *             keys are few beside what is free; rows are created later, when
 *             they are written
 *   made      absent keys get their rows now, with first value and fresh
 *             slots, which is what they answer anyway; if one cannot, those
 *             made are erased again. No eraser may run until the end.
 *
 * Threads: one room is one thread's; rooms of a table may be side by side.
 */
#ifndef RPS_EMBEDDING_ROOM_H
#define RPS_EMBEDDING_ROOM_H

#include "embedding/table_impl.h"

struct rps_room {
    struct rps_table *table;
    const uint64_t *keys;   /* by shard; duplicates are allowed */
    const uint64_t *hashes; /* of them */
    const size_t *starts;   /* [shard_count + 1] */
    uint32_t *promised;     /* [shard_count] rows not created yet */
    uint8_t *made;          /* [keys]: made by this call; NULL: promised */
};

/**
 * Borrows the arrays. Errors: NOMEM, LIMIT; no row was created. End it also
 * then.
 */
RPS_NODISCARD rps_status rps_room_begin(struct rps_room *room,
        struct rps_table *table, const uint64_t *keys, const uint64_t *hashes,
        const size_t *starts);

/** The place of a key of this room; its row is created if it is absent. */
struct rps_index_place rps_room_place_locked(
        struct rps_room *room, size_t shard, uint64_t hash, uint64_t key);

/**
 * Key i of the room is not wanted: erase it if it was made and no other call
 * has stepped it since. True: it was erased.
 */
bool rps_room_refuse_locked(struct rps_room *room, size_t shard, size_t i);

void rps_room_end(struct rps_room *room);

#endif /* RPS_EMBEDDING_ROOM_H */
