/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a DLRM, for its files: dlrm.c (what it computes),
 * dlrm_operands.c (what dumps have of it). */
#ifndef RPS_WORKER_DLRM_IMPL_H
#define RPS_WORKER_DLRM_IMPL_H

#include "client/npu/kernels/dots.h"
#include "client/worker/mlp.h"

/** How a table's rows come to be vectors. */
struct rps_dlrm_projection {
    /* of a table whose dim is not the vectors' width: [width][dim]; NULL: none,
     * and so is what follows */
    const struct rps_variable *weight;
    float *output;   /* [tile][bags][width] */
    float *gradient; /* the same; padding: zeros */
    float *back;     /* [tile][bags][dim] */
    struct rps_operator forward_operator;
    struct rps_operator backward_operator;
    struct rps_operator dweight_operator; /* the backward's parts */
    struct rps_operator dx_operator;
    struct rps_operator join_operator;  /* its output to the vectors */
    struct rps_operator split_operator; /* the gradient from theirs, of every
                                         * table */
};

struct rps_dlrm {
    struct rps_mlp bottom;
    struct rps_mlp top;
    struct rps_dlrm_projection projections[RPS_MODEL_TABLES_MAX];
    struct rps_dots dots;        /* the best set */
    struct rps_dots_shape shape; /* n vectors a sample: b and its bags */
    uint32_t top_in;             /* width + n (n - 1) / 2 */
    float *top_input;            /* [tile][top_in] */
    float *top_gradient;         /* [tile][top_in] */
    float *vectors;              /* [n][stride]: T of one row */
    float *columns;              /* [stride][room]: the same, transposed */
    float *vectors_gradient;     /* [n][stride] */
    const float *bottom_output;  /* of the tile in hand */
    struct rps_operator dots_operator;
    struct rps_operator dots_backward_operator;
};

/** Once it is made. */
void rps_dlrm_describe(struct rps_model *model);

#endif /* RPS_WORKER_DLRM_IMPL_H */
