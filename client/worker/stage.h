/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of prediction on their way into tiles. A BLAS may add in another
 * order in another row of the same product (OpenBLAS does, by its kernel's
 * blocks), so row i of the answer is always computed at place i mod
 * RPS_MODEL_TILE of its tile: its bits depend on no batch size. A device's
 * tiles are as large as it says.
 */
#ifndef RPS_WORKER_STAGE_H
#define RPS_WORKER_STAGE_H

#include "client/worker/model.h"

/** What computes tiles, if it is not plain calls. */
struct rps_stage_engine {
    size_t tile; /* rows */
    /* tile->rows of them, at most; dense and pooled are given */
    rps_status (*predict)(void *context, const struct rps_model_input *tile,
            float *probabilities, struct rps_error *error);
    void *context;
};

struct rps_stage {
    struct rps_model *model; /* borrowed */
    struct rps_stage_engine engine;
    size_t fill;                         /* rows that wait, below the tile */
    float *dense;                        /* [tile][dense] */
    float *pooled[RPS_MODEL_TABLES_MAX]; /* [tile][bags][dim] */
    float *labels;                       /* [capacity][labels], as they came */
    float *probabilities; /* [capacity][labels]; count - fill are done */
    size_t count;         /* rows added */
    size_t capacity;
};

/** engine NULL: plain calls. */
rps_status rps_stage_init(struct rps_stage *stage, struct rps_model *model,
        const struct rps_stage_engine *engine, struct rps_error *error);
void rps_stage_finish(struct rps_stage *stage);

/** Copies the rows; computes each tile that is full. Labels may be NULL. */
rps_status rps_stage_add(struct rps_stage *stage,
        const struct rps_model_input *input, struct rps_error *error);

/** Computes what still waits. No row may be added afterwards. */
rps_status rps_stage_flush(struct rps_stage *stage, struct rps_error *error);

#endif /* RPS_WORKER_STAGE_H */
