/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step of one row: which kernel, with which constants.
 * docs/TABLE.md has the formulas.
 */
#ifndef RPS_EMBEDDING_OPTIMIZER_H
#define RPS_EMBEDDING_OPTIMIZER_H

#include "embedding/kernels/kernels.h"

#include <recps/types.h>

/** The constants of one update, worked out once for all its rows. */
struct rps_step {
    const struct rps_kernels *kernels;
    enum rps_optimizer optimizer;
    size_t dim; /* floats from slot to slot */
    float learning_rate;
    struct rps_adam adam;
};

/** t >= 1: the number of this update, for Adam's bias correction. */
void rps_step_init(struct rps_step *step, const struct rps_kernels *kernels,
        const rps_table_spec *spec, float learning_rate, uint64_t t);

/** Step the first n elements of row (value, then slots) by gradient[n]. */
void rps_step_row(const struct rps_step *step, float *row,
        const float *gradient, size_t n);

/** What each element of a new row's slots holds. */
float rps_slot_fresh(const rps_table_spec *spec);

/** Slots of a new row, all `dim` elements of each. */
void rps_slots_fresh(const rps_table_spec *spec, float *slots);

#endif /* RPS_EMBEDDING_OPTIMIZER_H */
