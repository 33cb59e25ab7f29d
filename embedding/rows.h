/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of one shard, by number from 0: the embedding and its optimizer
 * slots side by side, in chunks of 2^rows_log2 rows (up to 128 KiB).
 *
 *   row:    value | slots | padding                        `stride` bytes
 *   number: chunk << rows_log2 | place in the chunk
 *
 * A shard's first chunk grows by doubling (its rows move) until it is as
 * large as the others will be: a small table takes little. Rows that were
 * given back are taken again first, from the lowest chunk that has one.
 *
 * A chunk that is drained takes no new rows and leaves with its last one.
 *
 * Beside the rows stand a few bits for each number; what they mean is the
 * table's (track.h). Those of a number without a row are 0, unless they were
 * filled.
 *
 * Threads: the owner's lock (shard->lock).
 */
#ifndef RPS_EMBEDDING_ROWS_H
#define RPS_EMBEDDING_ROWS_H

#include "embedding/arena.h"

#define RPS_ROWS_FIRST 4u /* rows of the first chunk, to begin with */

/** The bits of a row. */
enum rps_row_bit {
    RPS_ROW_CHANGED_0, /* in one of two generations; track.h */
    RPS_ROW_CHANGED_1,
    RPS_ROW_WANTED, /* by a cut, as it is */
    RPS_ROW_BITS
};

struct rps_chunk {
    struct rps_run run;
    uint32_t rows;  /* that fit; 0: no such chunk */
    uint32_t fresh; /* of them never taken: the last ones */
    uint32_t live;  /* taken */
    uint32_t freed; /* place + 1 of one given back, which names the next */
    bool drained;
};

struct rps_rows {
    struct rps_arena *arena;
    char **starts; /* [chunk_count] of the chunks: what a read needs */
    struct rps_chunk *chunks; /* [chunk_count] */
    uint32_t chunk_count;
    uint32_t chunk_room;
    uint32_t gap_count; /* numbers below chunk_count without a chunk */
    uint32_t open;      /* no chunk below has a row to take */
    uint32_t rows_log2; /* rows of a full chunk */
    size_t stride;      /* bytes from row to row */
    uint64_t live;      /* rows taken */
    uint64_t spare;     /* rows that can be taken without a new chunk */
    uint64_t *bits[RPS_ROW_BITS]; /* [bit_words]; one allocation, the first's */
    size_t bit_words;             /* >= all numbers / 64 */
};

/** `bytes`: value and slots of a row, a multiple of 4. */
void rps_rows_init(
        struct rps_rows *rows, struct rps_arena *arena, size_t bytes);
void rps_rows_finish(struct rps_rows *rows);

/** Make `count` rows spare. Errors: NOMEM, LIMIT; all rows stand. */
RPS_NODISCARD rps_status rps_rows_reserve(
        struct rps_rows *rows, uint64_t count);

/** Take a spare row (asserted); its content is undefined. */
uint32_t rps_rows_take(struct rps_rows *rows);

void rps_rows_give(struct rps_rows *rows, uint32_t number);

/** From now on no row of it is taken. */
void rps_rows_drain(struct rps_rows *rows, uint32_t chunk);

/** Undo rps_rows_drain(). */
void rps_rows_keep(struct rps_rows *rows, uint32_t chunk);

/** Move a whole chunk to a lower region. False: there was none. */
bool rps_rows_move(struct rps_rows *rows, uint32_t chunk);

static inline uint32_t
rps_rows_chunk_of(const struct rps_rows *rows, uint32_t number)
{
    return number >> rows->rows_log2;
}

/**
 * A row that is taken. The pointer is valid until a row is reserved, taken
 * or given back, and under the lock.
 */
static inline char *
rps_rows_at(const struct rps_rows *rows, uint32_t number)
{
    const uint32_t mask = ((uint32_t)1 << rows->rows_log2) - 1;

    return rows->starts[number >> rows->rows_log2] +
           (number & mask) * rows->stride;
}

static inline bool
rps_rows_bit(const struct rps_rows *rows, enum rps_row_bit bit, uint32_t number)
{
    return (rows->bits[bit][number / 64] >> (number % 64) & 1) != 0;
}

static inline void
rps_rows_set_bit(struct rps_rows *rows, enum rps_row_bit bit, uint32_t number)
{
    rows->bits[bit][number / 64] |= (uint64_t)1 << (number % 64);
}

static inline void
rps_rows_clear_bit(struct rps_rows *rows, enum rps_row_bit bit, uint32_t number)
{
    rows->bits[bit][number / 64] &= ~((uint64_t)1 << (number % 64));
}

/** One bit of all numbers, with a row or without. */
void rps_rows_fill_bit(struct rps_rows *rows, enum rps_row_bit bit, bool value);

/** The bits of a row that is copied from `old`, which may be `rows`. */
void rps_rows_copy_bits(struct rps_rows *rows, uint32_t number,
        const struct rps_rows *old, uint32_t old_number);

/** Bytes of the lists; the chunks are counted by the arena. */
size_t rps_rows_list_bytes(const struct rps_rows *rows);

#endif /* RPS_EMBEDDING_ROWS_H */
