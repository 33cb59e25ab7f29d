/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers y = relu(x W^T + b) over tiles of RPS_MODEL_TILE rows, W [out][in]
 * as in PyTorch's nn.Linear.
 */
#ifndef RPS_WORKER_MLP_H
#define RPS_WORKER_MLP_H

#include "client/worker/model.h"
#include "client/worker/operand.h"

#include <stdbool.h>

/** Of a layer, where a dump does not fuse them. */
struct rps_mlp_parts {
    struct rps_operator bias;
    struct rps_operator product;
    struct rps_operator relu;
    struct rps_operator relu_backward;
    struct rps_operator dbias;
    struct rps_operator dweight;
    struct rps_operator dx;
};

struct rps_mlp_layer {
    uint32_t in; /* 0: the output is the bias alone */
    uint32_t out;
    bool relu;
    const struct rps_variable *weight; /* NULL where in is 0 */
    const struct rps_variable *bias;
    float *output;   /* [tile][out], after the ReLU */
    float *gradient; /* [tile][out] */
    struct rps_operator forward;
    struct rps_operator backward;
    struct rps_mlp_parts parts;
};

struct rps_mlp {
    uint32_t layer_count;
    struct rps_mlp_layer layers[RPS_MODEL_LAYERS_MAX];
};

/**
 * Variables <prefix>.<2 l>.weight and .bias, as a Sequential of Linear and
 * ReLU names them. relu_last: a ReLU follows the last layer, too.
 */
rps_status rps_mlp_init(struct rps_mlp *mlp, struct rps_model *model,
        const char *prefix, uint32_t in, const struct rps_model_layers *layers,
        bool relu_last, struct rps_error *error);
void rps_mlp_finish(struct rps_mlp *mlp);

/** What is beyond its layers. */
struct rps_mlp_ends {
    struct rps_operand x;      /* [in] of a row; not looked at without */
    const float *dx;           /* [tile][in]; NULL: it is not wanted */
    struct rps_operand_home y; /* zeroed: they are alone */
    struct rps_operand_home dy;
    struct rps_operand_home dx_home;
};

/** What dumps have of it, once it is made. */
void rps_mlp_describe(struct rps_mlp *mlp, struct rps_model *model,
        const char *prefix, const struct rps_mlp_ends *ends);

/** Shapes: x [tile][in]. Returns the last layer's output [tile][out]. */
const float *rps_mlp_forward(struct rps_mlp *mlp, const float *x);

/** Where the caller writes dL/dy before rps_mlp_backward. [tile][out] */
float *rps_mlp_output_gradient(struct rps_mlp *mlp);

/** Adds to the variables' gradients; x_gradient [tile][in] or NULL. */
void rps_mlp_backward(struct rps_mlp *mlp, const float *x, float *x_gradient);

#endif /* RPS_WORKER_MLP_H */
