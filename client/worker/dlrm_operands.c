/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What dumps have of a DLRM. Its vectors are one tensor [rows][n][width] there,
 * as on a device; here they are gathered row by row, and what is in that tensor
 * lies elsewhere.
 */
#include "client/worker/dlrm_impl.h"

/* Vector `first` on of [rows][n][width]: as a matrix, or as a cube. */
static struct rps_operand_home
vector_of(const struct rps_dlrm *dlrm, const float *vectors)
{
    const uint64_t row = (uint64_t)dlrm->shape.n * dlrm->shape.width;

    return (struct rps_operand_home){.of = vectors, .strides = {row, 1}};
}

static struct rps_operand_home
vectors_of(const struct rps_dlrm *dlrm, const float *vectors, uint32_t first)
{
    const uint64_t width = dlrm->shape.width;

    return (struct rps_operand_home){.of = vectors,
            .first = first * width,
            .strides = {dlrm->shape.n * width, width, 1}};
}

/* `count` of a row's vectors, from `first` on. */
static struct rps_operand
row_vectors(const char *label, const struct rps_dlrm *dlrm,
        const float *vectors, uint32_t first, uint32_t count)
{
    struct rps_operand operand = rps_operand_cube(label,
            vectors + (size_t)first * dlrm->shape.stride, count,
            dlrm->shape.width);

    operand.reach = RPS_OPERAND_ROW;
    operand.strides[1] = dlrm->shape.stride;
    operand.home = vectors_of(dlrm, vectors, first);
    return operand;
}

static void
describe_dots(struct rps_dlrm *dlrm, struct rps_model *model)
{
    const uint32_t n = dlrm->shape.n;
    const struct rps_operand v = row_vectors("v", dlrm, dlrm->vectors, 0, n);
    const struct rps_operand dv =
            row_vectors("dv", dlrm, dlrm->vectors_gradient, 0, n);
    const struct rps_operand y =
            rps_operand_rows("y", dlrm->top_input, dlrm->top_in);
    const struct rps_operand dy =
            rps_operand_rows("dy", dlrm->top_gradient, dlrm->top_in);
    struct rps_operands *forward =
            rps_operands_of(&model->operands, &dlrm->dots_operator,
                    RPS_OPERANDS_ALWAYS, RPS_OPERANDS_HOW(", \"first\": true"));
    struct rps_operands *backward =
            rps_operands_of(&model->operands, &dlrm->dots_backward_operator,
                    RPS_OPERANDS_ALWAYS, RPS_OPERANDS_HOW(", \"first\": true"));

    rps_operands_input(forward, &v);
    rps_operands_output(forward, &y);
    rps_operands_input(backward, &v);
    rps_operands_input(backward, &dy);
    rps_operands_output(backward, &dv);
}

/* A table's pooled rows, or their gradients, as [bags of a row][dim]. */
static struct rps_operand
pooled_of(const char *label, const struct rps_model_table *table,
        const float *const *via)
{
    const uint64_t shape[] = {table->bags, table->dim};
    struct rps_operand operand =
            rps_operand_whole(label, RPS_DUMP_F32, NULL, 2, shape);

    operand.reach = RPS_OPERAND_BATCH;
    operand.via = via;
    return operand;
}

/* The same of a projection's own memory. */
static struct rps_operand
projected(const char *label, const struct rps_model_table *table,
        uint32_t width, const float *at)
{
    const uint64_t shape[] = {table->bags, width};
    struct rps_operand operand =
            rps_operand_whole(label, RPS_DUMP_F32, at, 2, shape);

    operand.reach = RPS_OPERAND_TILE;
    return operand;
}

static struct rps_operands *
layer_of(struct rps_model *model, struct rps_operator *operator,
        enum rps_operands_when when)
{
    return rps_operands_of(
            &model->operands, operator, when, RPS_OPERANDS_LAYER("none"));
}

/* Whole, or in parts. */
static void
describe_project_backward(struct rps_dlrm_projection *own,
        struct rps_model *model, uint32_t t, uint32_t width,
        const struct rps_operand *x)
{
    const struct rps_model_table *table = &model->tables[t];
    const struct rps_operand dy = projected("dy", table, width, own->gradient);
    const struct rps_operand dx = pooled_of("dx", table,
            (const float *const *)&model->tile.pooled_gradients[t]);
    const struct rps_operand weight = rps_model_values("weight", own->weight);
    const struct rps_operand dweight =
            rps_model_gradients("dweight", own->weight);
    struct rps_operands *whole =
            layer_of(model, &own->backward_operator, RPS_OPERANDS_FUSED);
    struct rps_operands *one;

    rps_operands_input(whole, &dy);
    rps_operands_input(whole, x);
    rps_operands_input(whole, &weight);
    rps_operands_output(whole, &dweight);
    rps_operands_output(whole, &dx);
    rps_operator_init(&own->dweight_operator, "linear_dweight", table->name);
    one = layer_of(model, &own->dweight_operator, RPS_OPERANDS_PART);
    rps_operands_input(one, &dy);
    rps_operands_input(one, x);
    rps_operands_output(one, &dweight);
    rps_operator_init(&own->dx_operator, "linear_dx", table->name);
    one = layer_of(model, &own->dx_operator, RPS_OPERANDS_PART);
    rps_operands_input(one, &dy);
    rps_operands_input(one, &weight);
    rps_operands_output(one, &dx);
}

static void
describe_projection(struct rps_dlrm *dlrm, struct rps_model *model, uint32_t t,
        uint32_t first)
{
    struct rps_dlrm_projection *own = &dlrm->projections[t];
    const struct rps_model_table *table = &model->tables[t];
    const uint32_t width = dlrm->shape.width;
    struct rps_operand x = pooled_of("x", table, &model->tile.pooled[t]);
    const struct rps_operand y = projected("y", table, width, own->output);
    const struct rps_operand weight = rps_model_values("weight", own->weight);
    struct rps_operand cube =
            rps_operand_cube("x", own->output, table->bags, width);
    struct rps_operands *operands =
            layer_of(model, &own->forward_operator, RPS_OPERANDS_ALWAYS);

    x.home = (struct rps_operand_home){.of = table, .strides = {table->dim, 1}};
    rps_operands_input(operands, &x);
    rps_operands_input(operands, &weight);
    rps_operands_output(operands, &y);
    describe_project_backward(own, model, t, width, &x);
    rps_operator_init(&own->join_operator, "cast", table->name);
    operands = rps_operands_of(&model->operands, &own->join_operator,
            RPS_OPERANDS_ALWAYS, RPS_OPERANDS_PLAIN);
    rps_operands_input(operands, &cube);
    cube.label = "y";
    cube.home = vectors_of(dlrm, dlrm->vectors, first);
    rps_operands_output(operands, &cube);
}

/* A table whose first vector is vector `first` of a row. */
static void
describe_table(struct rps_dlrm *dlrm, struct rps_model *model, uint32_t t,
        uint32_t first)
{
    struct rps_dlrm_projection *own = &dlrm->projections[t];
    const struct rps_model_table *table = &model->tables[t];
    const bool projects = own->weight != NULL;
    const struct rps_operand_home home =
            projects ? (struct rps_operand_home){.of = NULL}
                     : vectors_of(dlrm, dlrm->vectors, first);
    const struct rps_operand from =
            row_vectors("x", dlrm, dlrm->vectors_gradient, first, table->bags);
    struct rps_operand to = rps_operand_cube(
            "y", own->gradient, table->bags, dlrm->shape.width);
    struct rps_operands *operands;

    rps_model_describe_pooling(model, t, &home);
    if (projects) {
        describe_projection(dlrm, model, t, first);
        own->split_operator = (struct rps_operator){
                .type = "contiguous", .name = "contiguous"};
    } else {
        rps_operator_init(&own->split_operator, "cast", table->name);
        to.reach = RPS_OPERAND_BATCH;
        to.via = (const float *const *)&model->tile.pooled_gradients[t];
    }
    operands = rps_operands_of(&model->operands, &own->split_operator,
            RPS_OPERANDS_ALWAYS, RPS_OPERANDS_PLAIN);
    rps_operands_input(operands, &from);
    rps_operands_output(operands, &to);
}

void
rps_dlrm_describe(struct rps_model *model)
{
    struct rps_dlrm *dlrm = model->state;
    struct rps_mlp_ends bottom = {
            .x = rps_operand_rows("x", NULL, model->shape.dense),
            .y = vector_of(dlrm, dlrm->vectors),
            .dy = vector_of(dlrm, dlrm->vectors_gradient),
    };
    const struct rps_mlp_ends top = {
            .x = rps_operand_rows("x", dlrm->top_input, dlrm->top_in),
            .dx = dlrm->top_gradient,
            .y = rps_model_logits_home(model, 0),
            .dy = rps_model_logit_gradients_home(model, 0),
    };
    uint32_t first = 1;

    bottom.x.reach = RPS_OPERAND_BATCH;
    bottom.x.via = &model->tile.dense;
    rps_mlp_describe(&dlrm->bottom, model, "bot", &bottom);
    for (uint32_t t = 0; t < model->table_count; t++) {
        describe_table(dlrm, model, t, first);
        first += model->tables[t].bags;
    }
    describe_dots(dlrm, model);
    rps_mlp_describe(&dlrm->top, model, "top", &top);
}
