/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table inside one PS: rows by 64-bit key, in lock-striped shards. A
 * lookup is a pure read; rows are created, counted and stamped by pushes
 * (rps_table_apply) and assigns only. Every one of the 2^64 keys is legal.
 */
#ifndef RPS_EMBEDDING_TABLE_H
#define RPS_EMBEDDING_TABLE_H

#include "base/digest.h"
#include "base/error.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rps_table;

/** Meta of a row: last:24 (tick of its last push) | uses:8 (Morris). */
#define RPS_META_LAST(meta) ((meta)&0xffffffu)
#define RPS_META_USES(meta) ((meta) >> 24)

struct rps_table_stats {
    uint64_t rows;
    uint64_t bytes;       /* what the table takes, index included */
    uint64_t index_bytes; /* of them the index's lines */
    uint64_t lookups;     /* keys looked up */
    uint64_t missing;     /* of them absent */
    uint64_t pushes;      /* pushes applied to this table (t of async) */
    uint64_t inserted;
    uint64_t nonfinite; /* contributions to a row that were refused */
};

/** Errors: INVAL, UNSUPPORTED (rps_table_spec_check), NOMEM. */
rps_status rps_table_create(struct rps_table **table_out,
        const rps_table_spec *spec, uint64_t job_seed, struct rps_error *error);
void rps_table_destroy(struct rps_table *table);

const rps_table_spec *rps_table_spec_of(const struct rps_table *table);
uint64_t rps_table_id_of(const struct rps_table *table);

/**
 * Replace the policy fields; identity must be equal (asserted). No other
 * call on the table may run meanwhile.
 */
void rps_table_set_policy(struct rps_table *table, const rps_table_spec *spec);

/** The keys of one lookup. Duplicate keys are allowed. */
struct rps_read {
    size_t count;
    const uint64_t *keys;
    const uint32_t *counts; /* multiplicities, or NULL: 1 each */
    bool read_only;
};

/**
 * Shapes:  rows[count] of dim f32, `stride` bytes apart.
 * An absent key answers its first value; default_value if read_only, or if
 * it is not admitted (min_used_times: what was pushed of it so far and this
 * request's multiplicity are less).
 * Threads: any, also beside writers; a row is whole, a batch no snapshot.
 */
void rps_table_lookup(struct rps_table *table, const struct rps_read *read,
        float *rows, size_t stride);

/** One replica's part of a step. Duplicate keys are allowed. */
struct rps_contribution {
    size_t count;
    const uint64_t *keys;
    const uint32_t *counts; /* multiplicities, or NULL: 1 each */
    const float *gradients; /* [count][dim] */
};

struct rps_update {
    uint64_t step;  /* stamps the rows (tick), seeds draws */
    uint64_t now_s; /* Unix seconds: the tick where max_cold_secs is set */
    uint64_t t;     /* of Adam's bias correction; 0: this PS's push count */
    float learning_rate; /* NaN: the spec's */
    float scale;         /* of the summed gradient: 1, or 1/R for mean */
};

struct rps_apply_report {
    uint64_t applied;       /* distinct keys stepped */
    uint64_t nonfinite;     /* contributions to a row refused */
    uint64_t nonfinite_key; /* the first of them */
};

/**
 * The gradient law: contributions in the given order are summed a key
 * (a contribution with a non-finite element leaves its row out of the sum),
 * scaled, clipped, then one optimizer step a distinct key. Creates absent
 * rows from their first value. n may be 0: only the push count rises.
 *
 * A key of which every contribution is refused is not touched; a sum that
 * overflows refuses the contributions it is made of.
 *
 * Threads: any; a row's step is atomic. Errors, no row was changed: NOMEM,
 * LIMIT (2^32 - 1 gradients at once). Keys of a dense table were checked
 * (rps_table_check_keys).
 */
rps_status rps_table_apply(struct rps_table *table,
        const struct rps_update *update,
        const struct rps_contribution *contributions, size_t n,
        struct rps_apply_report *report);

/**
 * Write rows as they are. slots[n][slot floats] or NULL: fresh slots;
 * meta[n] or NULL: 0. Errors: NOMEM, NONFINITE (rows or slots; none of them
 * was written), INVAL (dense key out of range).
 */
rps_status rps_table_assign(struct rps_table *table, size_t n,
        const uint64_t *keys, const float *rows, const float *slots,
        const uint32_t *meta, struct rps_error *error);

/**
 * Positions (ascending) of keys whose rows changed after tick `since`, and
 * those rows packed. positions[n]; rows[n][dim]. Returns their number. Errs
 * to resending.
 */
size_t rps_table_changed(struct rps_table *table, size_t n,
        const uint64_t *keys, uint64_t since, uint32_t *positions, float *rows);

/** INVAL naming the first key that a dense table does not have. */
rps_status rps_table_check_keys(const struct rps_table *table, size_t n,
        const uint64_t *keys, struct rps_error *error);

void rps_table_stats_of(struct rps_table *table, struct rps_table_stats *out);
struct rps_digest rps_table_digest(struct rps_table *table);

/** t of async after a restore. */
void rps_table_set_pushes(struct rps_table *table, uint64_t pushes);

/** One row as it is visited: pointers valid inside the call only. */
struct rps_row_view {
    uint64_t key;
    const void *value;  /* [dim] of the spec's value_dtype */
    const float *slots; /* [slot floats]: slot 0's floats, then slot 1's */
    uint32_t meta;
};

/**
 * Visit every row, a shard at a time under its lock. Stops at the first
 * status that is not OK and returns it.
 */
rps_status rps_table_visit(struct rps_table *table,
        rps_status (*visit)(void *context, const struct rps_row_view *row),
        void *context);

/** A first value: what an absent key answers. row[dim]. */
void rps_table_first_value(
        const struct rps_table *table, uint64_t key, float *row);

#endif /* RPS_EMBEDDING_TABLE_H */
