/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a cut that were changed before they were written, as they were.
 * One buffer a store; a list of blocks for each table of the cut.
 *
 *   used + reserved <= limit, but for the block at hand of each table and
 *                      for rows that leave to make room for others
 *
 * Who changes rows reserves room for them first, without a lock, and waits
 * where there is none: the writer of the cut takes blocks out meanwhile. As
 * long as it has not begun nobody waits: the cut fails.
 *
 * Threads: any. Its lock is taken inside a shard's, and none inside it but
 *          the budget's.
 */
#ifndef RPS_EMBEDDING_SAVE_BUFFER_H
#define RPS_EMBEDDING_SAVE_BUFFER_H

#include "embedding/budget.h"
#include "embedding/kept_block.h"

#include <recps/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_save_buffer;

/** Before the row's bytes, which are padded to 8. */
struct rps_kept_row {
    uint64_t key;
    uint32_t meta;
    uint32_t changed; /* since the last checkpoint: a delta has it */
};

struct rps_save_figures {
    uint64_t limit; /* bytes; 0: no cut is at hand */
    uint64_t used;
    uint64_t peak;     /* since the cut */
    uint64_t rows;     /* copied since the cut */
    uint64_t waits;    /* for room, since the cut */
    uint64_t put_away; /* bytes */
    uint64_t ready;    /* bytes for the next rows that are there already */
};

/** NULL: no memory. */
struct rps_save_buffer *rps_save_buffer_create(void);
/** What it takes is taken from this, which outlives it; before its first use.
 * NULL: none. */
void rps_save_buffer_set_budget(
        struct rps_save_buffer *buffer, struct rps_budget *budget);
void rps_save_buffer_destroy(struct rps_save_buffer *buffer);

/**
 * For a cut of `count` tables, whose rows take row_bytes[count]. Errors:
 * NOMEM. Close drops what was not taken and lets go who waits.
 */
RPS_NODISCARD rps_status rps_save_buffer_open(struct rps_save_buffer *buffer,
        uint64_t limit, const size_t *row_bytes, size_t count);
void rps_save_buffer_close(struct rps_save_buffer *buffer);

/**
 * Memory for the rows of the next cut: `bytes` of it, in no limit or budget
 * as long as no row is in it. The first write to a page takes longer than
 * copying the rows that go there, and a push would wait for it. One slice of
 * some hundred microseconds; what is beyond `bytes` is given back. True:
 * there is more to do. With a cut at hand it does nothing.
 */
bool rps_save_buffer_make_ready(struct rps_save_buffer *buffer, uint64_t bytes);

/** Somebody takes blocks out from now on: who finds it full may wait. */
void rps_save_buffer_serve(struct rps_save_buffer *buffer);

/**
 * Room for `rows` rows of a table, until it is released: *bytes_out. Waits;
 * no lock is held. Does nothing without a cut; buffer may be NULL.
 */
void rps_save_buffer_reserve(struct rps_save_buffer *buffer, size_t list,
        size_t rows, uint64_t *bytes_out);
void rps_save_buffer_release(struct rps_save_buffer *buffer, uint64_t bytes);

/** Nearly full: who need not copy rows now should not. */
bool rps_save_buffer_is_tight(struct rps_save_buffer *buffer);

/** Copy a row. Without memory the cut fails. */
void rps_save_buffer_add(struct rps_save_buffer *buffer, size_t list,
        const struct rps_kept_row *kept, const void *row);

/** OK, or why the cut failed: NOMEM, or LIMIT (full before it was served). */
rps_status rps_save_buffer_state(struct rps_save_buffer *buffer);

/**
 * The oldest block of a list, the caller's now; NULL: there is none. The one
 * that rows are still added to is left where it is, as long as nobody waits
 * for room and not `all` are asked for.
 */
struct rps_kept_block *rps_save_buffer_take(
        struct rps_save_buffer *buffer, size_t list, bool all);
/** A block that was taken, and its bytes: not needed any more. */
void rps_save_buffer_drop(
        struct rps_save_buffer *buffer, struct rps_kept_block *block);

/**
 * While it is more than half full: full blocks of other lists than `list` go
 * to put(), which says where they are; their memory is given back. Stops at
 * the first status that is not OK. One thread at a time.
 */
typedef rps_status rps_put_away_fn(
        void *context, const void *bytes, size_t count, uint64_t *offset_out);
rps_status rps_save_buffer_put_away(struct rps_save_buffer *buffer, size_t list,
        rps_put_away_fn *put, void *context);

void rps_save_buffer_figures(
        struct rps_save_buffer *buffer, struct rps_save_figures *out);

/** Bytes from one row of a block to the next. */
static inline size_t
rps_kept_stride(size_t row_bytes)
{
    return sizeof(struct rps_kept_row) + (row_bytes + 7) / 8 * 8;
}

#endif /* RPS_EMBEDDING_SAVE_BUFFER_H */
