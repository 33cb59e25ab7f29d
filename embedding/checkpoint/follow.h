/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables for reading alone, that follow the checkpoints of a folder: a full
 * one is loaded beside, the deltas behind the one that is held are written
 * into the living tables.
 *
 *   load:     an empty store gets the checkpoint.
 *   advance:  begin   reads all that is ahead, every checksum; tables that
 *                     are new, or of which a delta is whole, are loaded
 *                     beside. Nothing that others see has changed.
 *             rows    each row at once, one after the other: lookups go on
 *             swap    what was loaded beside takes its place, tables that
 *                     are no more leave. No lookup meanwhile.
 *
 * They hold the weights only: no optimizer slots, no counts, and no policy by
 * which a row could leave (rps_checkpoint_served_spec).
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_FOLLOW_H
#define RPS_EMBEDDING_CHECKPOINT_FOLLOW_H

#include "embedding/checkpoint/checkpoint.h"

struct rps_advance;
struct rps_budget;

/** A checkpoint as it was when it was read. */
struct rps_held {
    uint64_t step;
    uint32_t epoch;
    bool is_delta;
    struct rps_digest digest; /* its manifest's */
    uint64_t rows;            /* of this PS's tables, in the load or advance */
};

struct rps_follow {
    const char *dir;
    uint32_t part; /* this PS */
    uint32_t parts;
    bool (*owns)(void *context, uint64_t hash);
    void *context;
    struct rps_budget *budget; /* of the tables that are held; not NULL */
};

/** What a table of this spec is when it is served. */
void rps_checkpoint_served_spec(const rps_table_spec *spec, rps_table_spec *to);

/**
 * ckpt-<step> into an empty store, which has `budget`. Errors: LIMIT (it would
 * not fit beside what is held: told before a row is read), and those of
 * rps_checkpoint_restore; the store is empty then.
 */
rps_status rps_checkpoint_serve(const struct rps_follow *follow, uint64_t step,
        struct rps_store *store, struct rps_held *held_out,
        struct rps_error *error);

/**
 * From what the store holds to ckpt-<step>. *advance_out is NULL where that
 * does not stand on what is held: load it. End it in any case.
 * Errors: as above; nothing was changed.
 */
rps_status rps_checkpoint_advance_begin(const struct rps_follow *follow,
        const struct rps_held *held, uint64_t step, struct rps_store *store,
        struct rps_advance **advance_out, struct rps_error *error);

/**
 * Threads: beside lookups; no push, erase, assign or upkeep of the store.
 * Errors: IO, CORRUPT, NOMEM, LIMIT: rows of two checkpoints stand side by
 *         side then, and the store should be replaced.
 */
rps_status rps_checkpoint_advance_rows(
        struct rps_advance *advance, struct rps_error *error);

/** Threads: nobody else uses the store. Errors: NOMEM, as above. */
rps_status rps_checkpoint_advance_swap(struct rps_advance *advance,
        struct rps_held *held_out, struct rps_error *error);

/** NULL is allowed. Frees what gave way: no lock needs to be held. */
void rps_checkpoint_advance_end(struct rps_advance *advance);

#endif /* RPS_EMBEDDING_CHECKPOINT_FOLLOW_H */
