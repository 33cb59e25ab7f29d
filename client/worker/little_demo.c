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
    uint32_t in;              /* floats of a sample's pooled rows */
    uint32_t hidden;          /* width of the trunk's last layer */
    float *input;             /* [tile][in], after the ReLU */
    float *input_gradient;    /* [tile][in] */
    float *head_gradient;     /* [tile][hidden] */
    struct rps_operator relu; /* of the input */
    struct rps_operator relu_backward;
    struct rps_operator add; /* a head's gradient to those before */
    struct rps_operator split[RPS_MODEL_TABLES_MAX]; /* a table's gradient */
};

static void
join_relu(const struct rps_model *model, struct little_demo *demo,
        const struct rps_model_input *tile)
{
    uint64_t begun;
    size_t at = 0;

    for (uint32_t t = 0; t < model->table_count; t++) {
        const size_t floats = rps_model_pooled_floats(&model->tables[t]);

        for (size_t r = 0; r < RPS_MODEL_TILE; r++) {
            memcpy(demo->input + r * demo->in + at,
                    tile->pooled[t] + r * floats, floats * sizeof(float));
        }
        at += floats;
    }
    begun = rps_operator_begin(&demo->relu);
    for (size_t i = 0; i < (size_t)RPS_MODEL_TILE * demo->in; i++) {
        demo->input[i] = demo->input[i] <= 0.0f ? 0.0f : demo->input[i];
    }
    rps_operator_end(&demo->relu, begun);
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
    uint64_t begun;

    memset(sum, 0, cells * sizeof(float));
    for (uint32_t h = 0; h < HEADS; h++) {
        memcpy(rps_mlp_output_gradient(&demo->heads[h]),
                logit_gradients + (size_t)h * RPS_MODEL_TILE,
                RPS_MODEL_TILE * sizeof(float));
        rps_mlp_backward(&demo->heads[h], hidden, demo->head_gradient);
        begun = h > 0 ? rps_operator_begin(&demo->add) : 0;
        for (size_t i = 0; i < cells; i++) {
            sum[i] += demo->head_gradient[i];
        }
        if (h > 0) { /* the first is added to zeros */
            rps_operator_end(&demo->add, begun);
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
    begun = rps_operator_begin(&demo->relu_backward);
    for (size_t i = 0; i < (size_t)RPS_MODEL_TILE * demo->in; i++) {
        dx[i] = demo->input[i] <= 0.0f ? 0.0f : dx[i];
    }
    rps_operator_end(&demo->relu_backward, begun);
    for (uint32_t t = 0; t < model->table_count; t++) {
        const size_t floats = rps_model_pooled_floats(&model->tables[t]);

        rps_operator_part_begin(&demo->split[t]);
        for (size_t r = 0; r < tile->rows; r++) {
            memcpy(tile->pooled_gradients[t] + r * floats,
                    dx + r * demo->in + at, floats * sizeof(float));
        }
        rps_operator_part_end(&demo->split[t]);
        at += floats;
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
        .kind = RPS_MODEL_LITTLE_DEMO,
        .forward = little_demo_forward,
        .backward = little_demo_backward,
        .destroy = little_demo_destroy,
};

/* --- what dumps have of it ------------------------------------------------ */

/* A table's columns of [rows][in]. */
static struct rps_operand_home
columns_of(const struct little_demo *demo, const struct rps_model_table *table,
        const float *input, size_t first)
{
    return (struct rps_operand_home){
            .of = input, .first = first, .strides = {demo->in, table->dim, 1}};
}

static void
describe_table(struct little_demo *demo, struct rps_model *model, uint32_t t,
        size_t first)
{
    const struct rps_model_table *table = &model->tables[t];
    const struct rps_operand_home home =
            columns_of(demo, table, demo->input, first);
    struct rps_operand x = rps_operand_cube(
            "x", demo->input_gradient + first, table->bags, table->dim);
    struct rps_operand y = rps_operand_cube("y", NULL, table->bags, table->dim);
    struct rps_operands *operands;

    rps_model_describe_pooling(model, t, &home);
    rps_operator_init(&demo->split[t], "cast", table->name);
    operands = rps_operands_of(&model->operands, &demo->split[t],
            RPS_OPERANDS_ALWAYS, RPS_OPERANDS_PLAIN);
    x.strides[0] = demo->in;
    x.home = columns_of(demo, table, demo->input_gradient, first);
    y.reach = RPS_OPERAND_BATCH;
    y.via = (const float *const *)&model->tile.pooled_gradients[t];
    rps_operands_input(operands, &x);
    rps_operands_output(operands, &y);
}

static void
describe_input(struct little_demo *demo, struct rps_model *model)
{
    const struct rps_operand x = rps_operand_rows("x", demo->input, demo->in);
    const struct rps_operand y = rps_operand_rows("y", demo->input, demo->in);
    const struct rps_operand kept =
            rps_operand_rows("kept", demo->input, demo->in);
    const struct rps_operand dy =
            rps_operand_rows("dy", demo->input_gradient, demo->in);
    const struct rps_operand dx =
            rps_operand_rows("dx", demo->input_gradient, demo->in);
    struct rps_operands *operands;

    rps_operator_init(&demo->relu, "relu", "input");
    operands = rps_operands_of(&model->operands, &demo->relu,
            RPS_OPERANDS_ALWAYS, RPS_OPERANDS_PLAIN);
    rps_operands_input(operands, &x);
    rps_operands_output(operands, &y);
    rps_operator_init(&demo->relu_backward, "relu_backward", "input");
    operands = rps_operands_of(&model->operands, &demo->relu_backward,
            RPS_OPERANDS_ALWAYS, RPS_OPERANDS_PLAIN);
    rps_operands_input(operands, &kept);
    rps_operands_input(operands, &dy);
    rps_operands_output(operands, &dx);
}

static void
describe_add(struct little_demo *demo, struct rps_model *model)
{
    const float *sum = rps_mlp_output_gradient(&demo->trunk);
    const struct rps_operand a = rps_operand_rows("a", sum, demo->hidden);
    const struct rps_operand b =
            rps_operand_rows("b", demo->head_gradient, demo->hidden);
    const struct rps_operand y = rps_operand_rows("y", sum, demo->hidden);
    struct rps_operands *operands;

    rps_operator_init(&demo->add, "add", "heads");
    operands = rps_operands_of(&model->operands, &demo->add,
            RPS_OPERANDS_ALWAYS, RPS_OPERANDS_PLAIN);
    rps_operands_input(operands, &a);
    rps_operands_input(operands, &b);
    rps_operands_output(operands, &y);
}

/* The first head's gradient is the sum, as zeros go before it. */
static void
describe_heads(struct little_demo *demo, struct rps_model *model,
        const char *const names[HEADS])
{
    const struct rps_mlp_layer *last =
            &demo->trunk.layers[demo->trunk.layer_count - 1];

    for (uint32_t h = 0; h < HEADS; h++) {
        struct rps_mlp_ends ends = {
                .x = rps_operand_rows("x", last->output, demo->hidden),
                .dx = demo->head_gradient,
                .y = rps_model_logits_home(model, h),
                .dy = rps_model_logit_gradients_home(model, h),
        };

        if (h == 0) {
            ends.dx_home = (struct rps_operand_home){
                    .of = last->gradient, .strides = {demo->hidden, 1}};
        }
        rps_mlp_describe(&demo->heads[h], model, names[h], &ends);
    }
}

static void
describe(struct little_demo *demo, struct rps_model *model,
        const char *const names[HEADS])
{
    const struct rps_mlp_ends trunk = {
            .x = rps_operand_rows("x", demo->input, demo->in),
            .dx = demo->input_gradient,
    };
    size_t first = 0;

    for (uint32_t t = 0; t < model->table_count; t++) {
        describe_table(demo, model, t, first);
        first += rps_model_pooled_floats(&model->tables[t]);
    }
    describe_input(demo, model);
    rps_mlp_describe(&demo->trunk, model, "mlp", &trunk);
    describe_heads(demo, model, names);
    describe_add(demo, model);
}

/* --- making it ------------------------------------------------------------ */

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
    if (status == RPS_OK) {
        describe(demo, model, heads);
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
