/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for the rows that a call may create, so that running out of memory
 * finds nothing changed. Two ways, the quick one first:
 *
 *   promised  each shard promises as many rows as it has keys, or a row to
 *             each of them (shard.h), which is obvious while they are few
 *             beside what is free; rows are created later, when they are
 *             written
 *   made      absent keys get their rows now, with first value and fresh
 *             slots, which is what they answer anyway; if one cannot, those
 *             made are erased again. No eraser may run until the end. Where
 *             neither memory nor budget are left, other rows give way if
 *             on_full says so, but none of this room's keys.
 *
 * A key that is not admitted gets no row. What is made in advance is decided
 * then, even if others count the key meanwhile.
 *
 * Threads: one room is one thread's; rooms of a table may be side by side.
 */
#ifndef RPS_EMBEDDING_ROOM_H
#define RPS_EMBEDDING_ROOM_H

#include "embedding/evict.h"

/* What a shard has promised. */
struct rps_promises {
    size_t left;  /* and was not used by now */
    bool by_part; /* else to any keys */
};

struct rps_room {
    struct rps_table *table;
    const uint64_t *keys;   /* by shard; duplicates are allowed */
    const uint64_t *hashes; /* of them */
    const size_t *starts;   /* [shard_count + 1] */
    const uint64_t *uses;   /* [keys] multiplicities; NULL: all are admitted */
    bool drop_new;          /* keys without room get no row, and no error */
    bool bare;              /* who asks for a promised row's place writes it
                               whole under the same lock */

    struct rps_promises *promises; /* [shard_count] */
    uint8_t *made;                 /* [keys] enum rps_made; behind them */
    bool making;                   /* in advance; false: promised */
    struct rps_guard guard;        /* of the shard at hand */
};

enum rps_made {
    RPS_MADE_NONE,    /* there already, or not admitted; or not yet */
    RPS_MADE_NEW,     /* in advance, by this call */
    RPS_MADE_LATER,   /* by this call, as was promised */
    RPS_MADE_DROPPED, /* no room */
};

/**
 * The fields up to bare are set; it borrows the arrays. Errors: NOMEM,
 * LIMIT; no row was created. End it also then.
 */
RPS_NODISCARD rps_status rps_room_begin(struct rps_room *room);

/** What became of a key i that has no row. */
enum rps_room_answer {
    RPS_ROOM_CREATED,    /* it has one now; all places are void */
    RPS_ROOM_UNADMITTED, /* count it */
    RPS_ROOM_DROPPED,
};

enum rps_room_answer rps_room_create_locked(struct rps_room *room, size_t shard,
        size_t i, struct rps_index_place *place_out);

/** Whether key i had no row when the room began, and has one by it. */
static inline bool
rps_room_made(const struct rps_room *room, size_t i)
{
    return room->made[i] == RPS_MADE_NEW;
}

/** The place of key i, where all are admitted and none dropped. */
struct rps_index_place rps_room_place_locked(
        struct rps_room *room, size_t shard, size_t i);

/**
 * Key i of the room is not wanted: erase it if it was made and no other call
 * has stepped it since. True: it was erased.
 */
bool rps_room_refuse_locked(struct rps_room *room, size_t shard, size_t i);

/** No more of the shard's keys gets a row: what it promised is taken back. */
void rps_room_done_locked(struct rps_room *room, size_t shard);

/** Takes back what shards that are not done have promised. */
void rps_room_end(struct rps_room *room);

#endif /* RPS_EMBEDDING_ROOM_H */
