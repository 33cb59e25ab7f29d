/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --device-cache: rows of sparse tables that stay in the device's memory from
 * step to step. A turn's rows are taken once, in the order of the steps: when
 * they are first looked up, ahead or in their own step. What the directory
 * (row_cache.h) calls fresh is neither looked up nor copied; what it cannot
 * know to be current is asked for with REFRESH; the rest is fetched as without
 * a cache. Gradients go to the servers in any case.
 *
 * Decisions depend on the batches alone, not on how far ahead they are taken:
 * so in sync no bit depends on pipeline depth, loop size or time. Staleness 0
 * has the bits of no cache.
 *
 * Threads: the loop's.
 */
#ifndef RPS_WORKER_DEVICE_ROWS_H
#define RPS_WORKER_DEVICE_ROWS_H

#include "client/worker/report.h"
#include "client/worker/row_cache.h"
#include "client/worker/settings.h"
#include "client/worker/tables.h"

struct rps_turn;

struct rps_device_rows {
    const struct rps_model *model; /* borrowed */
    uint64_t staleness;            /* steps */
    struct rps_row_cache tables[RPS_MODEL_TABLES_MAX];
    /* a key's multiplicity decides what a lookup answers: no REFRESH */
    bool counts[RPS_MODEL_TABLES_MAX];
    uint64_t generation; /* what was taken in one before is void */
    uint64_t unchanged, moved;
    /* of a REFRESH */
    size_t capacity;     /* keys */
    size_t row_capacity; /* floats */
    uint64_t *keys;
    uint32_t *positions; /* tokens of a table's bags */
    uint8_t *changed;
    float *rows;
};

/** Owns: *rows_out is released by _destroy(). Errors: NOMEM, LIMIT. */
rps_status rps_device_rows_create(struct rps_device_rows **rows_out,
        const struct rps_model *model, const struct rps_settings *settings,
        struct rps_error *error);

/** NULL is fine. */
void rps_device_rows_destroy(struct rps_device_rows *rows);

/** The turn's rows, unless they were taken before. Its lookups are of
 * held->keys (held.h), or of late->early_keys and late->keys. */
rps_status rps_device_rows_take(struct rps_device_rows *rows,
        struct rps_turn *turn, struct rps_error *error);

/** Were they, and is it not void? */
bool rps_device_rows_has(
        const struct rps_device_rows *rows, const struct rps_turn *turn);

/** Ask for what may have changed: rows that did are in the turn's bags, and
 * are to be moved as those that were fetched. */
rps_status rps_device_rows_refresh(struct rps_device_rows *rows,
        const struct rps_tables *tables, struct rps_turn *turn,
        struct rps_error *error);

/** All that the turn needed is in its bags, answered from step c. */
void rps_device_rows_answered(
        struct rps_device_rows *rows, const struct rps_turn *turn, uint64_t c);

/** Nothing was pushed of it. */
void rps_device_rows_unpushed(
        struct rps_device_rows *rows, const struct rps_turn *turn);

/** All rows are forgotten, and what was taken is void. */
void rps_device_rows_clear(struct rps_device_rows *rows);

/**
 * Table t's part of a step: where each token's row is, and the rows that are
 * moved, packed, with their places. Returns their number.
 *
 * Shapes: slots[tokens]; places[distinct keys]; packed[distinct keys][dim].
 */
size_t rps_device_rows_pack(struct rps_device_rows *rows,
        const struct rps_turn *turn, uint32_t t, int32_t *slots,
        int32_t *places, float *packed);

/** What it did so far; NULL: nothing, capacity 0. */
struct rps_report_cache rps_device_rows_tell(
        const struct rps_device_rows *rows);

#endif /* RPS_WORKER_DEVICE_ROWS_H */
