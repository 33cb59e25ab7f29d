/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guide's two-table example: the pooled rows of users and items, joined
 * in the order of the tables, through an MLP whose ReLU stands before each
 * matrix, the first one included, to two heads. Loss: the heads' sum.
 */
#include "client/worker/mlp.h"

#include <stdlib.h>
#include <string.h>

#define HEADS 2u

static const struct rps_model_layers head_layers = {.count = 1, .widths = {1}};

struct little_demo {
    struct rps_mlp trunk;
    struct rps_mlp heads[HEADS];
    uint32_t in;           /* floats of a sample's pooled rows */
    uint32_t hidden;       /* width of the trunk's last layer */
    float *input;          /* [tile][in], after the ReLU */
    float *input_gradient; /* [tile][in] */
    float *head_gradient;  /* [tile][hidden] */
};

static const struct rps_operator join_operator = {
        .type = "concat_relu", .name = "trunk/concat_relu"};
static const struct rps_operator join_backward_operator = {
        .type = "concat_relu_backward", .name = "trunk/concat_relu_backward"};

static void
join_relu(const struct rps_model *model, struct little_demo *demo,
        const struct rps_model_input *tile)
{
    const uint64_t begun = rps_operator_begin();
    size_t at = 0;

    for (uint32_t t = 0; t < model->table_count; t++) {
        const size_t floats = rps_model_pooled_floats(&model->tables[t]);

        for (size_t r = 0; r < RPS_MODEL_TILE; r++) {
            memcpy(demo->input + r * demo->in + at,
                    tile->pooled[t] + r * floats, floats * sizeof(float));
        }
        at += floats;
    }
    for (size_t i = 0; i < (size_t)RPS_MODEL_TILE * demo->in; i++) {
        demo->input[i] = demo->input[i] <= 0.0f ? 0.0f : demo->input[i];
    }
    rps_operator_end(&join_operator, begun);
}

static void
little_demo_forward(struct rps_model *model, const struct rps_model_input *tile,
        float *logits)
{
    struct little_demo *demo = model->state;
    const float *hidden;

    join_relu(model, demo, tile);
    hidden = rps_mlp_forward(&demo->trunk, demo->input);
    for (uint32_t h = 0; h < HEADS; h++) {
        memcpy(logits + (size_t)h * RPS_MODEL_TILE,
                rps_mlp_forward(&demo->heads[h], hidden),
                RPS_MODEL_TILE * sizeof(float));
    }
}

static void
heads_backward(struct little_demo *demo, const float *logit_gradients)
{
    const size_t cells = (size_t)RPS_MODEL_TILE * demo->hidden;
    const float *hidden =
            demo->trunk.layers[demo->trunk.layer_count - 1].output;
    float *sum = rps_mlp_output_gradient(&demo->trunk);

    memset(sum, 0, cells * sizeof(float));
    for (uint32_t h = 0; h < HEADS; h++) {
        memcpy(rps_mlp_output_gradient(&demo->heads[h]),
                logit_gradients + (size_t)h * RPS_MODEL_TILE,
                RPS_MODEL_TILE * sizeof(float));
        rps_mlp_backward(&demo->heads[h], hidden, demo->head_gradient);
        for (size_t i = 0; i < cells; i++) {
            sum[i] += demo->head_gradient[i];
        }
    }
}

static void
little_demo_backward(struct rps_model *model,
        const struct rps_model_input *tile, const float *logit_gradients)
{
    struct little_demo *demo = model->state;
    float *dx = demo->input_gradient;
    uint64_t begun;
    size_t at = 0;

    heads_backward(demo, logit_gradients);
    rps_mlp_backward(&demo->trunk, demo->input, dx);
    begun = rps_operator_begin();
    for (size_t i = 0; i < (size_t)RPS_MODEL_TILE * demo->in; i++) {
        dx[i] = demo->input[i] <= 0.0f ? 0.0f : dx[i];
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        const size_t floats = rps_model_pooled_floats(&model->tables[t]);

        for (size_t r = 0; r < tile->rows; r++) {
            memcpy(tile->pooled_gradients[t] + r * floats,
                    dx + r * demo->in + at, floats * sizeof(float));
        }
        at += floats;
    }
    rps_operator_end(&join_backward_operator, begun);
}

static void
little_demo_destroy(struct rps_model *model)
{
    struct little_demo *demo = model->state;

    if (demo == NULL) {
        return;
    }
    rps_mlp_finish(&demo->trunk);
    for (uint32_t h = 0; h < HEADS; h++) {
        rps_mlp_finish(&demo->heads[h]);
    }
    free(demo->input);
    free(demo->input_gradient);
    free(demo->head_gradient);
    free(demo);
}

static const struct rps_model_ops little_demo_ops = {
        .kind = RPS_MODEL_LITTLE_DEMO,
        .forward = little_demo_forward,
        .backward = little_demo_backward,
        .destroy = little_demo_destroy,
};

static rps_status
little_demo_init(struct rps_model *model, struct rps_error *error)
{
    static const char *const heads[HEADS] = {"head_0", "head_1"};
    const struct rps_model_layers *trunk = &model->shape.trunk;
    struct little_demo *demo = model->state;
    rps_status status;

    for (uint32_t t = 0; t < model->table_count; t++) {
        demo->in += (uint32_t)rps_model_pooled_floats(&model->tables[t]);
    }
    demo->hidden = trunk->widths[trunk->count - 1];
    demo->input = calloc((size_t)RPS_MODEL_TILE * demo->in, sizeof(float));
    demo->input_gradient =
            calloc((size_t)RPS_MODEL_TILE * demo->in, sizeof(float));
    demo->head_gradient =
            calloc((size_t)RPS_MODEL_TILE * demo->hidden, sizeof(float));
    if (demo->input == NULL || demo->input_gradient == NULL ||
            demo->head_gradient == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    status = rps_mlp_init(
            &demo->trunk, model, "mlp", demo->in, trunk, true, error);
    for (uint32_t h = 0; h < HEADS && status == RPS_OK; h++) {
        status = rps_mlp_init(&demo->heads[h], model, heads[h], demo->hidden,
                &head_layers, false, error);
    }
    return status;
}

rps_status
rps_little_demo_create(struct rps_model **model_out,
        const struct rps_model_shape *shape, struct rps_error *error)
{
    uint64_t in = 0;

    *model_out = NULL;
    for (uint32_t t = 0; t < shape->table_count; t++) {
        in += rps_model_pooled_floats(&shape->tables[t]);
    }
    if (in > RPS_MODEL_WIDTH_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "--model little_demo: the tables' bags are %llu floats; the "
                "MLP takes at most %u inputs",
                (unsigned long long)in, RPS_MODEL_WIDTH_MAX);
    }
    return rps_model_build(model_out, &little_demo_ops, shape, HEADS,
            sizeof(struct little_demo), little_demo_init, error);
}
