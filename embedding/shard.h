/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock-striped part of a table: a lock, an index, the rows.
 *
 * Room for new rows can be promised: what is promised is always there, in
 * the rows and in whichever segment of the index a key falls.
 *
 *   rows.spare >= reserved
 *   free places of a segment >= anywhere + sum of promised[] over its parts
 *
 * To any key of the shard, which costs next to nothing, or, where its fullest
 * segment has too few places for that, by the part, so that a large push can
 * be promised what it needs: nearly every one of its keys falls into another
 * segment.
 *
 * Threads: everything but _init and _finish under shard->lock.
 */
#ifndef RPS_EMBEDDING_SHARD_H
#define RPS_EMBEDDING_SHARD_H

#include "embedding/counts.h"
#include "embedding/index.h"
#include "embedding/rows.h"

#include <pthread.h>
#include <stdbool.h>

/* Keys erased since a checkpoint. */
struct rps_generation {
    uint64_t *erased; /* [count]; owned; in the table's budget */
    size_t count;
    size_t room;
    bool based; /* a checkpoint and what changed since make the shard */
};

/* For checkpoints: see track.h, which owns the rules. */
struct rps_track {
    struct rps_generation generations[2];
    uint8_t now;           /* the one that changes go to */
    bool cutting;          /* a cut may want rows */
    bool filled;           /* the bits of what it wants are set up */
    bool changed_only;     /* it wants rows that changed before it */
    uint64_t cut_rows;     /* there were, at the cut */
    uint64_t kept_changed; /* of the changed ones, copied before a change */
};

/* In the index, of a row on the disk: its number is that of shard->disk. */
#define RPS_ROW_ON_DISK 0x80000000u

struct rps_shard {
    pthread_mutex_t lock;
    struct rps_index index; /* lock */
    struct rps_rows rows;   /* lock */
    struct rps_rows disk;   /* lock; arena NULL: the table has no disk tier */
    uint64_t reserved;      /* lock; rows promised, not yet created */
    uint64_t anywhere;      /* lock; of them, to keys of any part */
    /* lock; the others, of keys of each part */
    uint32_t promised[RPS_INDEX_PARTS];
    struct rps_counts counts; /* lock; of keys without a row (admit.h) */
    struct rps_track track;   /* lock */
} __attribute__((aligned(64)));

/**
 * lines, cells: where the index and the rows come from; apart, since what
 * the one leaves when it grows fits the other badly.
 * row_bytes: value and slots. skip: leading bits of the hash that all keys
 * of the shard share. Errors: NOMEM, LIMIT; it needs no _finish then.
 */
RPS_NODISCARD rps_status rps_shard_init(struct rps_shard *shard,
        struct rps_arena *lines, struct rps_arena *cells, size_t row_bytes,
        uint64_t job_seed, uint32_t skip);
void rps_shard_finish(struct rps_shard *shard);

/**
 * Take the lock where somebody waits for an answer. Who holds it does so for
 * some microseconds, a sleep and a wake take a hundred: it looks a little
 * longer before it sleeps.
 */
void rps_shard_lock(struct rps_shard *shard);

/**
 * Promise a new row to each of n keys. Quick: false where it is not obvious
 * that there is room, or where there is no memory; then nothing is promised.
 */
RPS_NODISCARD bool rps_shard_promise_locked(
        struct rps_shard *shard, size_t n, const uint64_t *hashes);

/** The same without their hashes: each may fall into any segment. */
RPS_NODISCARD bool rps_shard_promise_anywhere_locked(
        struct rps_shard *shard, size_t n);

/** One of those is this key's from now on. */
static inline void
rps_shard_settle_locked(struct rps_shard *shard, uint64_t hash)
{
    shard->promised[rps_index_part(&shard->index, hash)]++;
    shard->anywhere--;
}

/** Take back n of those. */
static inline void
rps_shard_release_anywhere_locked(struct rps_shard *shard, uint64_t n)
{
    shard->anywhere -= n;
    shard->reserved -= n;
}

/** Take back what was promised to a key and not used. */
static inline void
rps_shard_release_locked(struct rps_shard *shard, uint64_t hash)
{
    shard->promised[rps_index_part(&shard->index, hash)]--;
    shard->reserved--;
}

/** Places of a segment of the shard that are promised. */
uint64_t rps_shard_kept_locked(
        const struct rps_shard *shard, const struct rps_segment *segment);

/**
 * A row for an absent key, its content undefined. `promised`: use one
 * promise; cannot fail. Errors: NOMEM, LIMIT; nothing changed.
 */
RPS_NODISCARD rps_status rps_shard_create_row_locked(struct rps_shard *shard,
        uint64_t hash, uint64_t key, bool promised,
        struct rps_index_place *place_out);

/** The same on the disk: of a shard with a disk tier, without a promise. */
RPS_NODISCARD rps_status rps_shard_create_on_disk_locked(
        struct rps_shard *shard, uint64_t hash, uint64_t key,
        struct rps_index_place *place_out);

/** Forget a key and its row. Other places and pointers are void. */
void rps_shard_erase_row_locked(
        struct rps_shard *shard, struct rps_index_place place);

/** Where a row is, as the index names it, and its number there. */
static inline const struct rps_rows *
rps_shard_rows_of(const struct rps_shard *shard, uint32_t row)
{
    return __builtin_expect((row & RPS_ROW_ON_DISK) != 0, 0) ? &shard->disk
                                                             : &shard->rows;
}

static inline uint32_t
rps_row_number(uint32_t row)
{
    return (row & ~RPS_ROW_ON_DISK) - 1;
}

static inline char *
rps_shard_row_at(const struct rps_shard *shard, uint32_t row)
{
    return rps_rows_at(rps_shard_rows_of(shard, row), rps_row_number(row));
}

static inline char *
rps_shard_row_locked(
        const struct rps_shard *shard, struct rps_index_place place)
{
    return rps_shard_row_at(shard, place.row);
}

static inline bool
rps_shard_bit(const struct rps_shard *shard, enum rps_row_bit bit, uint32_t row)
{
    return rps_rows_bit(
            rps_shard_rows_of(shard, row), bit, rps_row_number(row));
}

static inline void
rps_shard_set_bit(const struct rps_shard *shard, enum rps_row_bit bit,
        uint32_t row, bool value)
{
    const struct rps_rows *rows = rps_shard_rows_of(shard, row);

    if (value) {
        rps_rows_set_bit(rows, bit, rps_row_number(row));
    } else {
        rps_rows_clear_bit(rows, bit, rps_row_number(row));
    }
}

#endif /* RPS_EMBEDDING_SHARD_H */
