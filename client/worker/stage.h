/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of prediction on their way into tiles. A BLAS may add in another
 * order in another row of the same product (OpenBLAS does, by its kernel's
 * blocks), so row i of the answer is always computed at place i mod
 * RPS_MODEL_TILE of its tile: its bits depend on no batch size.
 */
#ifndef RPS_WORKER_STAGE_H
#define RPS_WORKER_STAGE_H

#include "client/worker/model.h"

struct rps_stage {
    struct rps_model *model; /* borrowed */
    size_t fill;             /* rows that wait, below RPS_MODEL_TILE */
    float *dense;            /* [tile][dense] */
    float *pooled[RPS_MODEL_TABLES_MAX]; /* [tile][bags][dim] */
    float *labels;                       /* [capacity][labels], as they came */
    float *probabilities; /* [capacity][labels]; count - fill are done */
    size_t count;         /* rows added */
    size_t capacity;
};

rps_status rps_stage_init(struct rps_stage *stage, struct rps_model *model,
        struct rps_error *error);
void rps_stage_finish(struct rps_stage *stage);

/** Copies the rows; computes each tile that is full. Labels may be NULL. */
rps_status rps_stage_add(struct rps_stage *stage,
        const struct rps_model_input *input, struct rps_error *error);

/** Computes what still waits. No row may be added afterwards. */
void rps_stage_flush(struct rps_stage *stage);

#endif /* RPS_WORKER_STAGE_H */
