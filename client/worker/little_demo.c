/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guide's two-table example: the summed rows of 8 users (dim 32) and 16
 * items (dim 8), joined, through an MLP whose ReLU stands before each
 * matrix, the first one included, to two heads. Loss: the heads' sum.
 */
#include "client/worker/mlp.h"

#include <stdlib.h>
#include <string.h>

#define USER_DIM 32u
#define ITEM_DIM 8u
#define INPUT    (USER_DIM + ITEM_DIM)
#define USER_IDS 8u
#define ITEM_IDS 16u
#define HEADS    2u
#define LAYERS   4u

static const uint32_t trunk_widths[LAYERS] = {1024, 512, 256, 128};
static const uint32_t head_widths[1] = {1};

struct little_demo {
    struct rps_mlp trunk;
    struct rps_mlp heads[HEADS];
    float *input;          /* [tile][INPUT], after the ReLU */
    float *input_gradient; /* [tile][INPUT] */
    float *head_gradient;  /* [tile][128] */
};

static void
join_relu(const struct rps_model_input *tile, float *input)
{
    for (size_t r = 0; r < RPS_MODEL_TILE; r++) {
        memcpy(input + r * INPUT, tile->pooled[0] + r * USER_DIM,
                USER_DIM * sizeof(float));
        memcpy(input + r * INPUT + USER_DIM, tile->pooled[1] + r * ITEM_DIM,
                ITEM_DIM * sizeof(float));
    }
    for (size_t i = 0; i < (size_t)RPS_MODEL_TILE * INPUT; i++) {
        input[i] = input[i] <= 0.0f ? 0.0f : input[i];
    }
}

static void
little_demo_forward(struct rps_model *model, const struct rps_model_input *tile,
        float *logits)
{
    struct little_demo *demo = model->state;
    const float *hidden;

    join_relu(tile, demo->input);
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
    const size_t cells = (size_t)RPS_MODEL_TILE * trunk_widths[LAYERS - 1];
    const float *hidden = demo->trunk.layers[LAYERS - 1].output;
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

    heads_backward(demo, logit_gradients);
    rps_mlp_backward(&demo->trunk, demo->input, dx);
    for (size_t i = 0; i < (size_t)RPS_MODEL_TILE * INPUT; i++) {
        dx[i] = demo->input[i] <= 0.0f ? 0.0f : dx[i];
    }
    for (size_t r = 0; r < tile->rows; r++) {
        memcpy(tile->pooled_gradients[0] + r * USER_DIM, dx + r * INPUT,
                USER_DIM * sizeof(float));
        memcpy(tile->pooled_gradients[1] + r * ITEM_DIM,
                dx + r * INPUT + USER_DIM, ITEM_DIM * sizeof(float));
    }
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
        .forward = little_demo_forward,
        .backward = little_demo_backward,
        .destroy = little_demo_destroy,
};

static rps_status
little_demo_init(struct rps_model *model, struct rps_error *error)
{
    static const char *const heads[HEADS] = {"head_0", "head_1"};
    const uint32_t last = trunk_widths[LAYERS - 1];
    struct little_demo *demo = model->state;
    rps_status status;

    demo->input = calloc((size_t)RPS_MODEL_TILE * INPUT, sizeof(float));
    demo->input_gradient =
            calloc((size_t)RPS_MODEL_TILE * INPUT, sizeof(float));
    demo->head_gradient = calloc((size_t)RPS_MODEL_TILE * last, sizeof(float));
    if (demo->input == NULL || demo->input_gradient == NULL ||
            demo->head_gradient == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    status = rps_mlp_init(&demo->trunk, model, "mlp", INPUT, trunk_widths,
            LAYERS, true, error);
    for (uint32_t h = 0; h < HEADS && status == RPS_OK; h++) {
        status = rps_mlp_init(&demo->heads[h], model, heads[h], last,
                head_widths, 1, false, error);
    }
    return status;
}

rps_status
rps_little_demo_create(struct rps_model **model_out, struct rps_error *error)
{
    struct rps_model *model = calloc(1, sizeof(*model));

    *model_out = NULL;
    if (model == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    model->labels = HEADS;
    model->shape.fields = USER_IDS + ITEM_IDS;
    model->table_count = 2;
    model->tables[0] = (struct rps_model_table){.name = "user_table",
            .dim = USER_DIM,
            .field = 0,
            .bags = 1,
            .bag_fields = USER_IDS};
    model->tables[1] = (struct rps_model_table){.name = "item_table",
            .dim = ITEM_DIM,
            .field = USER_IDS,
            .bags = 1,
            .bag_fields = ITEM_IDS};
    model->ops = &little_demo_ops;
    return rps_model_build(model, sizeof(struct little_demo), little_demo_init,
            model_out, error);
}
