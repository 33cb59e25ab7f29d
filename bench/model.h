/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rows must hold after pushes. A second, small table of the same spec
 * takes the same pushes row by row; so this proves that each push met its
 * row, once, whatever ran beside it. That the optimizer's arithmetic is right
 * is for tests/kernel and tests/unit/embedding.
 *
 * It works because what a row holds does not depend on the order of pushes
 * here: the gradient of a row is always the same, step and t are always 1.
 *
 * A row that took many pushes stays in the second table between calls, so
 * that each push is replayed once, however often the row is checked. Rows
 * with fewer than BENCH_KEPT_MIN are made anew at every call: of a large table
 * these are nearly all, and keeping them would double its memory.
 */
#ifndef RPS_BENCH_MODEL_H
#define RPS_BENCH_MODEL_H

#include "base/error.h"
#include "embedding/table.h"

#define BENCH_GRADIENT_CLASSES 8u /* the gradient of row r: that of r mod 8 */
#define BENCH_KEPT_MIN         8u /* pushes of a row that stays */

/** out[dim]: halves and ones of either sign. */
void bench_gradient(uint64_t row, uint32_t dim, float *out);

/** The update that every push of the benchmark makes. */
extern const struct rps_update bench_update;

struct bench_model {
    struct rps_table *table;
    uint32_t dim;
    size_t room;      /* rows at a time */
    float hot_factor; /* times row 0's gradient: its places in a batch, or 0:
                         row 0 is like any other */
    uint32_t hot_applied; /* pushes that the hot row's double took */
    uint64_t rows;        /* row numbers of calls that keep are below it */
    uint32_t *replayed;   /* [rows] pushes of it that the table took */
    uint64_t pushed;      /* rows pushed so far, all calls */
    uint64_t *keys;       /* [room] */
    size_t *left;         /* [room] places of the call with pushes left */
    uint32_t *todo;       /* [room] pushes left, by place */
    uint64_t *chosen;     /* [room] */
    float *gradients;     /* [room][dim] */
};

/** rows: 0 if no call keeps. Errors: NOMEM, what rps_table_create says. */
rps_status bench_model_init(struct bench_model *model,
        const rps_table_spec *spec, size_t room, uint64_t rows,
        size_t hot_places, struct rps_error *error);
void bench_model_finish(struct bench_model *model);

/** Rows, and where they began. */
struct bench_past {
    size_t n;
    bool keeps; /* a row starts like, and has no fewer pushes than, at any
                   earlier call that keeps */
    const uint32_t *rows;   /* [n] */
    const uint32_t *counts; /* [n] pushes of each; of row 0 never fewer than
                               at an earlier call, if it is hot */
    const float *starts;    /* [n][dim] before any push */
};

/** wanted[n][dim]; n <= room. */
rps_status bench_model_expect(struct bench_model *model,
        const struct bench_past *past, float *wanted, struct rps_error *error);

#endif /* RPS_BENCH_MODEL_H */
