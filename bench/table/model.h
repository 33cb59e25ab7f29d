/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rows must hold after pushes. A second, small table of the same spec
 * takes the same pushes row by row; so this proves that each push met its
 * row, once, whatever ran beside it. That the optimizer's arithmetic is right
 * is for tests/kernel and tests/unit/embedding.
 *
 * It works because what a row holds does not depend on the order of pushes
 * here: the gradient of a row is always the same, step and t are always 1.
 */
#ifndef RPS_BENCH_TABLE_MODEL_H
#define RPS_BENCH_TABLE_MODEL_H

#include "base/error.h"
#include "embedding/table.h"

#define BENCH_GRADIENT_CLASSES 8u /* the gradient of row r: that of r mod 8 */

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
    uint64_t *keys;       /* [room] */
    uint64_t *chosen;     /* [room] */
    float *gradients;     /* [room][dim] */
};

/** Errors: NOMEM, what rps_table_create says. */
rps_status bench_model_init(struct bench_model *model,
        const rps_table_spec *spec, size_t room, size_t hot_places,
        struct rps_error *error);
void bench_model_finish(struct bench_model *model);

/** Rows, and where they began. */
struct bench_past {
    size_t n;
    const uint32_t *rows;
    const uint32_t *counts; /* [n] pushes of each; of row 0 never fewer than
                               at an earlier call, if it is hot */
    const float *starts;    /* [n][dim] before any push */
};

/** wanted[n][dim]; n <= room. */
rps_status bench_model_expect(struct bench_model *model,
        const struct bench_past *past, float *wanted, struct rps_error *error);

#endif /* RPS_BENCH_TABLE_MODEL_H */
