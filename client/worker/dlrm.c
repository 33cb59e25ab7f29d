/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLRM: b = bottom MLP of the dense features; T = b and one vector a bag, in
 * the order of the tables and their bags; Z = the dots of every pair i > j of
 * T, row by row; the answer is the top MLP of [b, Z]. Without dense features
 * b is a learned constant: the bottom MLP's first layer is its bias alone.
 *
 * Dots need vectors of one width. Rows of another are multiplied by a matrix
 * of their table, without a bias: the mixed dimensions of Ginart et al.
 * (2019), as in the published DLRM code.
 */
#include "client/worker/dlrm_impl.h"

#include <cblas.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How the profile calls them. */
static void
name_projection(struct rps_dlrm_projection *projection,
        const struct rps_model_table *table, uint32_t width)
{
    const uint64_t rows = (uint64_t)RPS_MODEL_TILE * table->bags;
    struct rps_operator *forward = &projection->forward_operator;
    struct rps_operator *backward = &projection->backward_operator;

    rps_operator_init(forward, "linear", table->name);
    rps_operator_init(backward, "linear_backward", table->name);
    backward->holds = "dweight + dx";
    (void)snprintf(forward->shapes, sizeof(forward->shapes),
            "[%llu,%u] [%u,%u]", (unsigned long long)rows, table->dim, width,
            table->dim);
    memcpy(backward->shapes, forward->shapes, sizeof(backward->shapes));
    forward->flops = 2 * rows * table->dim * width;
    backward->flops = 2 * forward->flops;
}

static void
name_dots(struct rps_dlrm *dlrm)
{
    const struct rps_dots_shape *shape = &dlrm->shape;
    const uint64_t pairs = (uint64_t)shape->n * (shape->n - 1) / 2;
    struct rps_operator *forward = &dlrm->dots_operator;
    struct rps_operator *backward = &dlrm->dots_backward_operator;

    rps_operator_init(forward, "dots", "interaction");
    rps_operator_init(backward, "dots_backward", "interaction");
    forward->holds = "dots + concat";
    (void)snprintf(forward->shapes, sizeof(forward->shapes), "[%u,%u,%u]",
            RPS_MODEL_TILE, shape->n, shape->width);
    memcpy(backward->shapes, forward->shapes, sizeof(backward->shapes));
    forward->flops = 2 * RPS_MODEL_TILE * pairs * shape->width;
    backward->flops = 2 * forward->flops;
}

/* Y = X W^T for all bags of a tile. */
static void
project(const struct rps_dlrm_projection *projection,
        const struct rps_model_table *table, uint32_t width,
        const float *pooled)
{
    const blasint rows = (blasint)(RPS_MODEL_TILE * table->bags);
    const blasint dim = (blasint)table->dim;
    const uint64_t begun = rps_operator_begin(&projection->forward_operator);

    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, (blasint)width,
            dim, 1.0f, pooled, dim, projection->weight->values, dim, 0.0f,
            projection->output, (blasint)width);
    rps_operator_end(&projection->forward_operator, begun);
    rps_operator_part_begin(&projection->join_operator);
    rps_operator_part_end(&projection->join_operator);
}

/* dW += dY^T X, dX = dY W. */
static void
project_backward(const struct rps_dlrm_projection *projection,
        const struct rps_model_table *table, uint32_t width,
        const struct rps_model_input *tile, size_t t)
{
    const blasint rows = (blasint)(RPS_MODEL_TILE * table->bags);
    const blasint dim = (blasint)table->dim, out = (blasint)width;
    const uint64_t begun = rps_operator_begin(&projection->backward_operator);

    rps_operator_part_begin(&projection->dweight_operator);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, dim, rows, 1.0f,
            projection->gradient, out, tile->pooled[t], dim, 1.0f,
            projection->weight->gradients, dim);
    rps_operator_part_end(&projection->dweight_operator);
    rps_operator_part_begin(&projection->dx_operator);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, dim, out, 1.0f,
            projection->gradient, out, projection->weight->values, dim, 0.0f,
            projection->back, dim);
    memcpy(tile->pooled_gradients[t], projection->back,
            tile->rows * rps_model_pooled_floats(table) * sizeof(float));
    rps_operator_part_end(&projection->dx_operator);
    rps_operator_end(&projection->backward_operator, begun);
}

/* Rows of `width` floats from one stride to another. */
static void
copy_rows(float *to, size_t to_stride, const float *from, size_t from_stride,
        uint32_t rows, uint32_t width)
{
    if (to_stride == width && from_stride == width) {
        memcpy(to, from, (size_t)rows * width * sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < rows; i++) {
        memcpy(to + i * to_stride, from + i * from_stride,
                width * sizeof(float));
    }
}

/* T of one row. */
static void
gather_vectors(const struct rps_model *model, struct rps_dlrm *dlrm,
        const struct rps_model_input *tile, size_t row)
{
    const uint32_t width = dlrm->shape.width;
    float *to = dlrm->vectors;

    memcpy(to, dlrm->bottom_output + row * width, width * sizeof(float));
    to += dlrm->shape.stride;
    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_dlrm_projection *projection = &dlrm->projections[t];
        const uint32_t bags = model->tables[t].bags;
        const float *from = projection->weight != NULL ? projection->output
                                                       : tile->pooled[t];

        copy_rows(to, dlrm->shape.stride, from + row * bags * width, width,
                bags, width);
        to += (size_t)bags * dlrm->shape.stride;
    }
}

/* dT of one row, but b's, to where each table's gradients are. */
static void
scatter_vectors(const struct rps_model *model, const struct rps_dlrm *dlrm,
        const struct rps_model_input *tile, size_t row)
{
    const uint32_t width = dlrm->shape.width;
    const float *from = dlrm->vectors_gradient + dlrm->shape.stride;

    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_dlrm_projection *projection = &dlrm->projections[t];
        const uint32_t bags = model->tables[t].bags;
        float *to = projection->weight != NULL ? projection->gradient
                                               : tile->pooled_gradients[t];

        copy_rows(to + row * bags * width, width, from, dlrm->shape.stride,
                bags, width);
        rps_operator_row(&projection->split_operator, row);
        from += (size_t)bags * dlrm->shape.stride;
    }
}

/* [b, Z] of each row. */
static void
interact(const struct rps_model *model, struct rps_dlrm *dlrm,
        const struct rps_model_input *tile)
{
    const uint32_t width = dlrm->shape.width;
    const uint64_t begun = rps_operator_begin(&dlrm->dots_operator);

    for (size_t r = 0; r < RPS_MODEL_TILE; r++) {
        float *input = dlrm->top_input + r * dlrm->top_in;

        gather_vectors(model, dlrm, tile, r);
        memcpy(input, dlrm->vectors, width * sizeof(float));
        dlrm->dots.forward(
                &dlrm->shape, dlrm->vectors, dlrm->columns, input + width);
        rps_operator_row(&dlrm->dots_operator, r);
    }
    rps_operator_end(&dlrm->dots_operator, begun);
}

static void
dlrm_forward(struct rps_model *model, const struct rps_model_input *tile,
        float *logits)
{
    struct rps_dlrm *dlrm = model->state;
    const uint32_t width = dlrm->shape.width;
    const float *answer;

    dlrm->bottom_output = rps_mlp_forward(&dlrm->bottom, tile->dense);
    for (uint32_t t = 0; t < model->table_count; t++) {
        if (dlrm->projections[t].weight != NULL) {
            project(&dlrm->projections[t], &model->tables[t], width,
                    tile->pooled[t]);
        }
    }
    interact(model, dlrm, tile);
    answer = rps_mlp_forward(&dlrm->top, dlrm->top_input);
    memcpy(logits, answer, RPS_MODEL_TILE * sizeof(float));
}

/* The padding of a short tile adds nothing to a projection's gradient. */
static void
clear_padding(const struct rps_model *model, struct rps_dlrm *dlrm, size_t rows)
{
    for (uint32_t t = 0; t < model->table_count; t++) {
        const size_t floats = model->tables[t].bags * (size_t)dlrm->shape.width;

        if (dlrm->projections[t].weight != NULL) {
            memset(dlrm->projections[t].gradient + rows * floats, 0,
                    (RPS_MODEL_TILE - rows) * floats * sizeof(float));
        }
    }
}

/* db of each row, and the tables' gradients. */
static void
interact_backward(const struct rps_model *model, struct rps_dlrm *dlrm,
        const struct rps_model_input *tile, float *bottom_gradient)
{
    const uint32_t width = dlrm->shape.width;
    const uint64_t begun = rps_operator_begin(&dlrm->dots_backward_operator);

    for (size_t r = 0; r < tile->rows; r++) {
        const float *gradient = dlrm->top_gradient + r * dlrm->top_in;
        float *b = dlrm->vectors_gradient;

        gather_vectors(model, dlrm, tile, r);
        dlrm->dots.backward(&dlrm->shape, dlrm->vectors, gradient + width,
                dlrm->vectors_gradient);
        for (uint32_t k = 0; k < width; k++) {
            b[k] = gradient[k] + b[k];
        }
        memcpy(bottom_gradient + r * width, b, width * sizeof(float));
        rps_operator_row(&dlrm->dots_backward_operator, r);
        scatter_vectors(model, dlrm, tile, r);
    }
    rps_operator_end(&dlrm->dots_backward_operator, begun);
    for (uint32_t t = 0; t < model->table_count; t++) {
        rps_operator_part_end(&dlrm->projections[t].split_operator);
    }
}

static void
dlrm_backward(struct rps_model *model, const struct rps_model_input *tile,
        const float *logit_gradients)
{
    struct rps_dlrm *dlrm = model->state;
    const uint32_t width = dlrm->shape.width;
    float *bottom_gradient = rps_mlp_output_gradient(&dlrm->bottom);

    memcpy(rps_mlp_output_gradient(&dlrm->top), logit_gradients,
            RPS_MODEL_TILE * sizeof(float));
    rps_mlp_backward(&dlrm->top, dlrm->top_input, dlrm->top_gradient);
    memset(bottom_gradient, 0, RPS_MODEL_TILE * width * sizeof(float));
    clear_padding(model, dlrm, tile->rows);
    interact_backward(model, dlrm, tile, bottom_gradient);
    for (uint32_t t = 0; t < model->table_count; t++) {
        if (dlrm->projections[t].weight != NULL) {
            project_backward(
                    &dlrm->projections[t], &model->tables[t], width, tile, t);
        }
    }
    rps_mlp_backward(&dlrm->bottom, tile->dense, NULL);
}

static void
dlrm_destroy(struct rps_model *model)
{
    struct rps_dlrm *dlrm = model->state;

    if (dlrm == NULL) {
        return;
    }
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        free(dlrm->projections[t].output);
        free(dlrm->projections[t].gradient);
        free(dlrm->projections[t].back);
    }
    rps_mlp_finish(&dlrm->bottom);
    rps_mlp_finish(&dlrm->top);
    free(dlrm->top_input);
    free(dlrm->top_gradient);
    free(dlrm->vectors);
    free(dlrm->columns);
    free(dlrm->vectors_gradient);
    free(dlrm);
}

static const struct rps_model_ops dlrm_ops = {
        .kind = RPS_MODEL_DLRM,
        .forward = dlrm_forward,
        .backward = dlrm_backward,
        .destroy = dlrm_destroy,
};

static rps_status
projection_init(struct rps_dlrm_projection *projection, struct rps_model *model,
        const struct rps_model_table *table, uint32_t width,
        struct rps_error *error)
{
    const size_t bags = (size_t)RPS_MODEL_TILE * table->bags;
    char name[RPS_VARIABLE_NAME_BYTES];
    int length;

    if (table->dim == width) {
        return RPS_OK;
    }
    length = snprintf(name, sizeof(name), "proj.%s.weight", table->name);
    if (length < 0 || (size_t)length >= sizeof(name)) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: its name is too long for that of its projection, "
                "proj.NAME.weight: at most %u characters",
                table->name, (unsigned)(sizeof(name) - sizeof("proj..weight")));
    }
    /* Glorot's bound, as in the published code */
    projection->weight = rps_model_add_variable(model, name, width, table->dim,
            (float)sqrt(6.0 / ((double)width + table->dim)));
    name_projection(projection, table, width);
    projection->output = calloc(bags * width, sizeof(float));
    projection->gradient = calloc(bags * width, sizeof(float));
    projection->back = calloc(bags * table->dim, sizeof(float));
    if (projection->output == NULL || projection->gradient == NULL ||
            projection->back == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    return RPS_OK;
}

/* --- making it ------------------------------------------------------------ */

static uint32_t
last_of(const struct rps_model_layers *layers)
{
    return layers->widths[layers->count - 1];
}

static uint64_t
vector_count(const struct rps_model_shape *shape)
{
    uint64_t n = 1;

    for (uint32_t t = 0; t < shape->table_count; t++) {
        n += shape->tables[t].bags;
    }
    return n;
}

static rps_status
allocate(struct rps_dlrm *dlrm, struct rps_error *error)
{
    const struct rps_dots_shape *shape = &dlrm->shape;
    const size_t cells = (size_t)RPS_MODEL_TILE * dlrm->top_in;
    const size_t vectors = (size_t)shape->n * shape->stride;

    dlrm->top_input = calloc(cells, sizeof(float));
    dlrm->top_gradient = calloc(cells, sizeof(float));
    dlrm->vectors = calloc(vectors, sizeof(float));
    dlrm->columns = calloc((size_t)shape->stride * shape->room, sizeof(float));
    dlrm->vectors_gradient = calloc(vectors, sizeof(float));
    if (dlrm->top_input == NULL || dlrm->top_gradient == NULL ||
            dlrm->vectors == NULL || dlrm->columns == NULL ||
            dlrm->vectors_gradient == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    return RPS_OK;
}

static rps_status
dlrm_init(struct rps_model *model, struct rps_error *error)
{
    const struct rps_model_shape *shape = &model->shape;
    const uint32_t width = last_of(&shape->bottom);
    struct rps_dlrm *dlrm = model->state;
    uint32_t n = 1;
    rps_status status;

    for (uint32_t t = 0; t < model->table_count; t++) {
        n += model->tables[t].bags;
    }
    dlrm->dots = *rps_dots_best();
    dlrm->shape = rps_dots_shape_of(n, width);
    dlrm->top_in = width + n * (n - 1) / 2;
    name_dots(dlrm);
    status = allocate(dlrm, error);
    if (status == RPS_OK) {
        status = rps_mlp_init(&dlrm->bottom, model, "bot", shape->dense,
                &shape->bottom, true, error);
    }
    for (uint32_t t = 0; t < model->table_count && status == RPS_OK; t++) {
        status = projection_init(
                &dlrm->projections[t], model, &model->tables[t], width, error);
    }
    if (status == RPS_OK) {
        status = rps_mlp_init(&dlrm->top, model, "top", dlrm->top_in,
                &shape->top, false, error);
    }
    if (status == RPS_OK) {
        rps_dlrm_describe(model);
    }
    return status;
}

rps_status
rps_dlrm_create(struct rps_model **model_out,
        const struct rps_model_shape *shape, struct rps_error *error)
{
    const uint64_t n = vector_count(shape), pairs = n * (n - 1) / 2;

    *model_out = NULL;
    if (n > RPS_MODEL_WIDTH_MAX ||
            pairs + last_of(&shape->bottom) > RPS_MODEL_WIDTH_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "--model dlrm: %llu bags make %llu pairs; the top MLP takes "
                "at most %u inputs",
                (unsigned long long)n - 1, (unsigned long long)pairs,
                RPS_MODEL_WIDTH_MAX);
    }
    return rps_model_build(model_out, &dlrm_ops, shape, 1,
            sizeof(struct rps_dlrm), dlrm_init, error);
}
