/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DLRM: b = bottom MLP of the dense features; T = [b, one embedding a
 * field]; Z = the dots of every pair i > j of T, row by row; the answer is
 * the top MLP of [b, Z]. Without dense features b is a learned constant:
 * the bottom MLP's first layer is its bias alone.
 */
#include "client/worker/mlp.h"

#include <stdlib.h>
#include <string.h>

struct dlrm {
    struct rps_mlp bottom;
    struct rps_mlp top;
    uint32_t vectors; /* fields + 1 */
    uint32_t dim;
    uint32_t top_in;            /* dim + vectors (vectors - 1) / 2 */
    float *top_input;           /* [tile][top_in] */
    float *top_gradient;        /* [tile][top_in] */
    float *columns;             /* [dim][vectors]: T of one row, transposed */
    float *dots;                /* [vectors]: one row of Z */
    float *vectors_gradient;    /* [vectors][dim] */
    const float *bottom_output; /* of the tile in hand */
};

static const float *
vector_at(const struct dlrm *dlrm, const struct rps_model_input *tile,
        size_t row, uint32_t index)
{
    if (index == 0) {
        return dlrm->bottom_output + row * dlrm->dim;
    }
    return tile->pooled[0] +
           (row * (dlrm->vectors - 1) + (index - 1)) * dlrm->dim;
}

/* Dots as sums of scaled columns: every dot adds its products in the order
 * of the columns, and the inner loop runs over dots, which a compiler can
 * put side by side without changing a bit. */
static void
row_dots(struct dlrm *dlrm, const struct rps_model_input *tile, size_t row,
        float *z)
{
    const uint32_t n = dlrm->vectors, dim = dlrm->dim;

    for (uint32_t i = 0; i < n; i++) {
        const float *vector = vector_at(dlrm, tile, row, i);

        for (uint32_t k = 0; k < dim; k++) {
            dlrm->columns[(size_t)k * n + i] = vector[k];
        }
    }
    for (uint32_t i = 1; i < n; i++) {
        const float *vector = vector_at(dlrm, tile, row, i);

        memset(dlrm->dots, 0, i * sizeof(float));
        for (uint32_t k = 0; k < dim; k++) {
            const float *column = dlrm->columns + (size_t)k * n;
            const float factor = vector[k];

            for (uint32_t j = 0; j < i; j++) {
                dlrm->dots[j] += factor * column[j];
            }
        }
        memcpy(z, dlrm->dots, i * sizeof(float));
        z += i;
    }
}

static void
dlrm_forward(struct rps_model *model, const struct rps_model_input *tile,
        float *logits)
{
    struct dlrm *dlrm = model->state;
    const float *answer;

    dlrm->bottom_output = rps_mlp_forward(&dlrm->bottom, tile->dense);
    for (size_t r = 0; r < RPS_MODEL_TILE; r++) {
        float *input = dlrm->top_input + r * dlrm->top_in;

        memcpy(input, dlrm->bottom_output + r * dlrm->dim,
                dlrm->dim * sizeof(float));
        row_dots(dlrm, tile, r, input + dlrm->dim);
    }
    answer = rps_mlp_forward(&dlrm->top, dlrm->top_input);
    memcpy(logits, answer, RPS_MODEL_TILE * sizeof(float));
}

/* dT of one row: each dot (i, j) gives j's vector to i and i's to j. */
static void
row_dots_backward(struct dlrm *dlrm, const struct rps_model_input *tile,
        size_t row, const float *dz)
{
    const uint32_t n = dlrm->vectors, dim = dlrm->dim;

    memset(dlrm->vectors_gradient, 0, (size_t)n * dim * sizeof(float));
    for (uint32_t i = 1; i < n; i++) {
        const float *vector = vector_at(dlrm, tile, row, i);
        float *gradient = dlrm->vectors_gradient + (size_t)i * dim;

        for (uint32_t j = 0; j < i; j++) {
            const float *other = vector_at(dlrm, tile, row, j);
            float *back = dlrm->vectors_gradient + (size_t)j * dim;
            const float factor = *dz++;

            for (uint32_t k = 0; k < dim; k++) {
                gradient[k] += factor * other[k];
                back[k] += factor * vector[k];
            }
        }
    }
}

static void
dlrm_backward(struct rps_model *model, const struct rps_model_input *tile,
        const float *logit_gradients)
{
    struct dlrm *dlrm = model->state;
    const size_t field_floats = (size_t)(dlrm->vectors - 1) * dlrm->dim;
    float *bottom_gradient = rps_mlp_output_gradient(&dlrm->bottom);

    memcpy(rps_mlp_output_gradient(&dlrm->top), logit_gradients,
            RPS_MODEL_TILE * sizeof(float));
    rps_mlp_backward(&dlrm->top, dlrm->top_input, dlrm->top_gradient);
    memset(bottom_gradient, 0, RPS_MODEL_TILE * dlrm->dim * sizeof(float));
    for (size_t r = 0; r < tile->rows; r++) {
        const float *gradient = dlrm->top_gradient + r * dlrm->top_in;
        float *b = bottom_gradient + r * dlrm->dim;

        row_dots_backward(dlrm, tile, r, gradient + dlrm->dim);
        for (uint32_t k = 0; k < dlrm->dim; k++) {
            b[k] = gradient[k] + dlrm->vectors_gradient[k];
        }
        memcpy(tile->pooled_gradients[0] + r * field_floats,
                dlrm->vectors_gradient + dlrm->dim,
                field_floats * sizeof(float));
    }
    rps_mlp_backward(&dlrm->bottom, tile->dense, NULL);
}

static void
dlrm_destroy(struct rps_model *model)
{
    struct dlrm *dlrm = model->state;

    if (dlrm == NULL) {
        return;
    }
    rps_mlp_finish(&dlrm->bottom);
    rps_mlp_finish(&dlrm->top);
    free(dlrm->top_input);
    free(dlrm->top_gradient);
    free(dlrm->columns);
    free(dlrm->dots);
    free(dlrm->vectors_gradient);
    free(dlrm);
}

static const struct rps_model_ops dlrm_ops = {
        .forward = dlrm_forward,
        .backward = dlrm_backward,
        .destroy = dlrm_destroy,
};

static rps_status
dlrm_init(struct rps_model *model, struct rps_error *error)
{
    const struct rps_model_shape *shape = &model->shape;
    struct dlrm *dlrm = model->state;
    const uint32_t n = shape->fields + 1;
    rps_status status;

    dlrm->vectors = n;
    dlrm->dim = shape->emb_dim;
    dlrm->top_in = shape->emb_dim + n * (n - 1) / 2;
    dlrm->top_input =
            calloc((size_t)RPS_MODEL_TILE * dlrm->top_in, sizeof(float));
    dlrm->top_gradient =
            calloc((size_t)RPS_MODEL_TILE * dlrm->top_in, sizeof(float));
    dlrm->columns = calloc((size_t)n * dlrm->dim, sizeof(float));
    dlrm->dots = calloc(n, sizeof(float));
    dlrm->vectors_gradient = calloc((size_t)n * dlrm->dim, sizeof(float));
    if (dlrm->top_input == NULL || dlrm->top_gradient == NULL ||
            dlrm->columns == NULL || dlrm->dots == NULL ||
            dlrm->vectors_gradient == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    status = rps_mlp_init(&dlrm->bottom, model, "bot", shape->dense,
            shape->bottom, shape->bottom_count, true, error);
    if (status != RPS_OK) {
        return status;
    }
    return rps_mlp_init(&dlrm->top, model, "top", dlrm->top_in, shape->top,
            shape->top_count, false, error);
}

static rps_status
shape_check(const struct rps_model_shape *shape, struct rps_error *error)
{
    const uint64_t n = (uint64_t)shape->fields + 1;

    if (shape->fields == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--model dlrm: the data has no sparse field to embed");
    }
    if (n * (n - 1) / 2 + shape->emb_dim > RPS_MODEL_WIDTH_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "--model dlrm: %u fields make %llu pairs; the top MLP takes "
                "at most %u inputs",
                shape->fields, (unsigned long long)(n * (n - 1) / 2),
                RPS_MODEL_WIDTH_MAX);
    }
    return RPS_OK;
}

rps_status
rps_dlrm_create(struct rps_model **model_out,
        const struct rps_model_shape *shape, struct rps_error *error)
{
    struct rps_model *model;
    rps_status status;

    *model_out = NULL;
    status = shape_check(shape, error);
    if (status != RPS_OK) {
        return status;
    }
    model = calloc(1, sizeof(*model));
    if (model == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    model->shape = *shape;
    model->labels = 1;
    model->table_count = 1;
    model->tables[0] = (struct rps_model_table){.name = "emb",
            .dim = shape->emb_dim,
            .field = 0,
            .bags = shape->fields,
            .bag_fields = 1};
    model->ops = &dlrm_ops;
    return rps_model_build(
            model, sizeof(struct dlrm), dlrm_init, model_out, error);
}
