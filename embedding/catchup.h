/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dense Adam would have done to a row in the steps that it was not
 * pushed in. docs/TABLE.md derives the formulas and has their error.
 */
#ifndef RPS_EMBEDDING_CATCHUP_H
#define RPS_EMBEDDING_CATCHUP_H

#include "embedding/kernels/kernels.h"

#include <recps/types.h>

/** The constants of one update, in double. */
struct rps_catchup {
    double rate; /* the learning rate, without correction */
    double keep; /* 1 - rate * weight_decay, or 1 */
    double beta1;
    double beta2;
    double ratio;  /* beta1 / sqrt(beta2), below 1 */
    uint64_t t;    /* of this update, from 1 */
    uint64_t head; /* up to this t the correction is summed step by step */
};

void rps_catchup_init(struct rps_catchup *catchup, const rps_table_spec *spec,
        double keep, float learning_rate, uint64_t t);

/** Set beta1, beta2, tail and tail_keep of *c for a row that `skipped` >= 1
 * steps went without. */
void rps_catchup_numbers(const struct rps_catchup *catchup, uint32_t skipped,
        struct rps_step_numbers *c);

#endif /* RPS_EMBEDDING_CATCHUP_H */
