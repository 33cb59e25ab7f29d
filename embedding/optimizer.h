/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step of one row: which kernel, with which numbers.
 * docs/TABLE.md has the formulas.
 *
 *   row: value[dim], padded to 4 bytes | slot 0 floats | slot 1 floats
 */
#ifndef RPS_EMBEDDING_OPTIMIZER_H
#define RPS_EMBEDDING_OPTIMIZER_H

#include "embedding/catchup.h"
#include "embedding/kernels/kernels.h"

#include <recps/types.h>

/** The constants of one update, worked out once for all its rows. */
struct rps_step {
    const struct rps_kernels *kernels;
    struct rps_stepper kernel;
    struct rps_step_numbers numbers;
    size_t value_bytes; /* of a row, before its slots */
    bool plain;         /* the kernel works on the row itself: kernel.rows() is
                         * all there is to do */
    bool catches_up;
    bool draws; /* stochastic rounding */
    enum rps_value value;
    uint32_t slot_count;
    uint32_t slot_width; /* floats of each */
    float decay;         /* coupled: g += decay * w */
    struct rps_catchup catchup;
};

/** t >= 1: the number of this update, for Adam's bias correction. */
void rps_step_init(struct rps_step *step, const struct rps_kernels *kernels,
        const rps_table_spec *spec, float learning_rate, uint64_t t);

/** Floats of scratch that rps_step_row() needs. */
size_t rps_step_scratch_floats(const rps_table_spec *spec);

/** rps_step_row() where there is more to do than to call the kernel. */
bool rps_step_row_general(const struct rps_step *step, void *row,
        const float *gradient, size_t n, uint32_t skipped, uint64_t draw,
        float *scratch);

/**
 * Step the first n elements of `row` by gradient[n].
 *
 * skipped: steps since the row's last push in which it had none; what the
 *          _catchup optimizers catch up.
 * draw:    of this row and step; seeds its stochastic rounding.
 * scratch: rps_step_scratch_floats() floats, for this call.
 * Returns: true; false with the row as it was, bit for bit, where a result
 *          is not finite, as float32 or as the row's value type.
 */
static inline bool
rps_step_row(const struct rps_step *step, void *row, const float *gradient,
        size_t n, uint32_t skipped, uint64_t draw, float *scratch)
{
    if (step->plain) {
        float *w = (float *)row;
        return step->kernel.row(
                w, w + step->numbers.dim, gradient, n, &step->numbers, scratch);
    }
    return rps_step_row_general(step, row, gradient, n, skipped, draw, scratch);
}

/** What each float of slot `slot` of a new row holds. */
float rps_slot_fresh(const rps_table_spec *spec, uint32_t slot);

/** Slots of a new row, all rps_spec_slot_floats(). */
void rps_slots_fresh(const rps_table_spec *spec, float *slots);

#endif /* RPS_EMBEDDING_OPTIMIZER_H */
