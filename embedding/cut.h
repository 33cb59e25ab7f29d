/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cut: the rows, slots, counters and counts of all tables of a store as
 * they are at one instant, to be written to a checkpoint while the tables go
 * on. Taking it takes microseconds a table; afterwards a row that is not
 * written yet is copied before its next change (save_buffer.h).
 *
 *   take -> for each table: begin, visit, ... -> commit | abort
 *
 * While a cut lives its tables must be neither altered nor destroyed:
 * rps_table_is_cut() says of which that holds; rps_table_alter() refuses.
 *
 * Threads: one thread at a time has the cut; rows are looked up and changed
 *          beside it by any. Figures: any thread.
 */
#ifndef RPS_EMBEDDING_CUT_H
#define RPS_EMBEDDING_CUT_H

#include "base/error.h"
#include "embedding/save_buffer.h"
#include "embedding/store.h"

struct rps_cut;

/**
 * The caller sees to it that nothing is changed during the call, in all
 * tables: no push, assign, erase, upkeep. buffer_bytes: of rows that are
 * copied, beside what the tables take; counted in the store's budget. A push
 * that finds it full waits, inside the call, for who writes the cut; before
 * that one has begun, the cut fails instead and says so when it is written.
 *
 * Errors: RETRY_LATER (there is a cut of this store already), NOMEM.
 */
rps_status rps_cut_take(struct rps_store *store, struct rps_now now,
        uint64_t buffer_bytes, struct rps_cut **cut_out,
        struct rps_error *error);

/**
 * Before cuts: one slice of some hundred microseconds in which memory for the
 * save buffer is made ready, an eighth of buffer_bytes but at most a sixteenth
 * of the rows' (save_buffer.h). True: there is more to do.
 *
 * Threads: any; tables are neither opened nor removed during the call.
 */
bool rps_cut_make_ready(struct rps_store *store, uint64_t buffer_bytes);

/**
 * It is in a complete checkpoint: what was changed before it is clean, and a
 * delta may stand on that checkpoint. Frees it.
 *
 * Threads: no lock of the caller's is needed but what keeps the tables alive;
 *          pushes that wait for room go on.
 */
void rps_cut_commit(struct rps_cut *cut);
/** It came to nothing: what was changed before it is changed still. */
void rps_cut_abort(struct rps_cut *cut);

/** All tables are as a checkpoint has them (RESTORE): a delta may stand on
 * it. Nothing is changed during the call. */
void rps_store_mark_clean(struct rps_store *store);

/** Whether a cut holds the table as it is. */
bool rps_table_is_cut(const struct rps_table *table);

void rps_cut_figures(struct rps_cut *cut, struct rps_save_figures *out);

/* What a checkpoint is made of. Tables by index, in the store's order. */

size_t rps_cut_count(const struct rps_cut *cut);
/** As they were at the cut. */
const rps_table_spec *rps_cut_spec(const struct rps_cut *cut, size_t table);
uint64_t rps_cut_pushes(const struct rps_cut *cut, size_t table);
uint64_t rps_cut_job_seed(const struct rps_cut *cut);

/** Whether what changed since the last checkpoint is known of all rows; a
 * dense table is always written whole. */
bool rps_cut_is_based(struct rps_cut *cut, size_t table);

/** Where rows are put that are in the way of others (save_buffer.h). */
struct rps_cut_aside {
    rps_put_away_fn *put;
    rps_status (*get)(
            void *context, uint64_t offset, void *bytes, size_t count);
    void *context;
};

/** Rows are going to be taken out from now on. */
void rps_cut_begin(struct rps_cut *cut);

/** How many rows a table has to be written: all, or those that changed. Once
 * a table, before its rows are visited. */
uint64_t rps_cut_choose(struct rps_cut *cut, size_t table, bool changed_only);

/**
 * Visit each of them once, outside of all locks; the order is not specified.
 * Stops at the first status that is not OK and returns it. Errors: NOMEM,
 * LIMIT (the save buffer was full before rps_cut_begin()).
 */
rps_status rps_cut_visit(struct rps_cut *cut, size_t table,
        const struct rps_cut_aside *aside,
        rps_status (*visit)(void *context, const struct rps_row_view *row),
        void *context, struct rps_error *error);

/** The keys erased since the last checkpoint, ascending in each shard, each
 * once; of a table that is based. */
rps_status rps_cut_visit_erased(struct rps_cut *cut, size_t table,
        rps_status (*visit)(void *context, uint64_t key), void *context);

/**
 * The counts of keys without a row, as they were. May be repeated; `last`:
 * it is not. The visitor is called outside of all locks. Errors: NOMEM.
 */
rps_status rps_cut_visit_admission(struct rps_cut *cut, size_t table, bool last,
        rps_status (*visit)(
                void *context, const struct rps_admission_count *count),
        void *context, struct rps_error *error);

#endif /* RPS_EMBEDDING_CUT_H */
