/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every model shares: variables, start values, tiles, and the loss,
 * which is binary cross-entropy on logits.
 */
#include "client/worker/model.h"

#include "base/draw.h"

#include <recps/types.h>

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rps_variable *
rps_model_add_variable(struct rps_model *model, const char *name, uint32_t out,
        uint32_t in, float start_bound)
{
    struct rps_variable *variable = &model->variables[model->variable_count];

    assert(model->variable_count < RPS_MODEL_VARIABLES_MAX);
    assert(out > 0);
    snprintf(variable->name, sizeof(variable->name), "%s", name);
    variable->ndim = in > 0 ? 2 : 1;
    variable->shape[0] = out;
    variable->shape[1] = in;
    variable->elements = (uint64_t)out * (in > 0 ? in : 1);
    variable->start_bound = start_bound;
    variable->rows = (variable->elements + RPS_DENSE_ROW_FLOATS - 1) /
                     RPS_DENSE_ROW_FLOATS;
    variable->first = model->variable_floats;
    model->variable_floats += (size_t)variable->rows * RPS_DENSE_ROW_FLOATS;
    model->variable_count++;
    return variable;
}

/* One memory for the values of all variables, one for their gradients. */
static rps_status
make_variables(struct rps_model *model, struct rps_error *error)
{
    model->values = calloc(model->variable_floats + 1, sizeof(float));
    model->gradients = calloc(model->variable_floats + 1, sizeof(float));
    if (model->values == NULL || model->gradients == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the variables");
    }
    for (uint32_t v = 0; v < model->variable_count; v++) {
        struct rps_variable *variable = &model->variables[v];

        variable->values = model->values + variable->first;
        variable->gradients = model->gradients + variable->first;
    }
    return RPS_OK;
}

static rps_status
make_tiles(struct rps_model *model, struct rps_error *error)
{
    /* one more: a model without dense features has a buffer, too */
    model->tile_dense = calloc(
            (size_t)RPS_MODEL_TILE * (model->shape.dense + 1), sizeof(float));
    model->tile_labels =
            calloc((size_t)RPS_MODEL_TILE * model->labels, sizeof(float));
    if (model->tile_dense == NULL || model->tile_labels == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        size_t row = rps_model_pooled_floats(&model->tables[t]);

        model->tile_pooled[t] = calloc(RPS_MODEL_TILE * row, sizeof(float));
        if (model->tile_pooled[t] == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
        }
    }
    return RPS_OK;
}

void
rps_model_destroy(struct rps_model *model)
{
    if (model == NULL) {
        return;
    }
    if (model->ops != NULL) {
        model->ops->destroy(model);
    }
    free(model->values);
    free(model->gradients);
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        free(model->tile_pooled[t]);
    }
    free(model->tile_dense);
    free(model->tile_labels);
    rps_operands_finish(&model->operands);
    free(model);
}

/* A dense variable and a sparse table may not meet in a name. */
static rps_status
check_names(const struct rps_model *model, struct rps_error *error)
{
    for (uint32_t t = 0; t < model->table_count; t++) {
        for (uint32_t v = 0; v < model->variable_count; v++) {
            if (strcmp(model->tables[t].name, model->variables[v].name) == 0) {
                return rps_fail(error, RPS_E_INVAL,
                        "tables[%u] (%s) has the name of a dense variable of "
                        "this model: give it another",
                        t, model->tables[t].name);
            }
        }
    }
    return RPS_OK;
}

rps_status
rps_model_build(struct rps_model **model_out, const struct rps_model_ops *ops,
        const struct rps_model_shape *shape, uint32_t labels,
        size_t state_bytes,
        rps_status (*init)(struct rps_model *model, struct rps_error *error),
        struct rps_error *error)
{
    struct rps_model *model = calloc(1, sizeof(*model));
    rps_status status;

    *model_out = NULL;
    if (model == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    assert(shape->table_count > 0);
    assert(shape->table_count <= RPS_MODEL_TABLES_MAX);
    model->ops = ops;
    model->shape = *shape;
    model->shape.tables = NULL;
    model->labels = labels;
    model->table_count = shape->table_count;
    memcpy(model->tables, shape->tables,
            shape->table_count * sizeof(*shape->tables));
    model->state = calloc(1, state_bytes);
    status = model->state == NULL
                     ? rps_fail(error, RPS_E_NOMEM, "no memory for the model")
                     : init(model, error);
    if (status == RPS_OK) {
        rps_model_describe_loss(model);
        status = make_variables(model, error);
    }
    if (status == RPS_OK) {
        status = make_tiles(model, error);
    }
    if (status == RPS_OK && model->operands.failed) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    if (status == RPS_OK) {
        status = check_names(model, error);
    }
    if (status != RPS_OK) {
        rps_model_destroy(model);
        return status;
    }
    *model_out = model;
    return RPS_OK;
}

/*
 * A dense variable is a table, so its draws follow the law of first values:
 * element i is column i mod 1024 of the row with key i / 1024.
 */
static void
variable_start_values(struct rps_variable *variable, uint64_t seed)
{
    const struct rps_uniform uniform =
            rps_uniform_init(-variable->start_bound, variable->start_bound);
    const uint64_t stream = rps_draw_stream(seed, variable->name);

    for (uint64_t i = 0; i < variable->elements; i++) {
        const uint64_t row = rps_draw_row(stream, i / RPS_DENSE_ROW_FLOATS);

        variable->values[i] = rps_uniform_value(
                &uniform, rps_draw_column(row, i % RPS_DENSE_ROW_FLOATS));
    }
}

void
rps_model_start_values(struct rps_model *model, uint64_t seed)
{
    for (uint32_t v = 0; v < model->variable_count; v++) {
        variable_start_values(&model->variables[v], seed);
    }
}

static float
sigmoid(float x)
{
    return (float)(1.0 / (1.0 + exp(-(double)x)));
}

/* max(x, 0) - x y + log(1 + e^-|x|): no overflow for any x */
static double
cross_entropy(float logit, float label)
{
    double x = (double)logit;

    return (x > 0.0 ? x : 0.0) - x * (double)label + log1p(exp(-fabs(x)));
}

static void
pad_copy(float *to, const float *from, size_t rows, size_t row_floats)
{
    size_t n = rows * row_floats;

    memcpy(to, from, n * sizeof(float));
    memset(to + n, 0, (RPS_MODEL_TILE * row_floats - n) * sizeof(float));
}

/* Rows [first, first + tile) of the input; a short tile is copied and
 * padded with zeros. */
static void
tile_cut(struct rps_model *model, const struct rps_model_input *input,
        size_t first, struct rps_model_input *tile)
{
    size_t rows = input->rows - first;

    *tile = *input;
    tile->rows = rows < RPS_MODEL_TILE ? rows : RPS_MODEL_TILE;
    if (input->dense != NULL) {
        tile->dense = input->dense + first * model->shape.dense;
    }
    if (input->labels != NULL) {
        tile->labels = input->labels + first * model->labels;
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        size_t row = rps_model_pooled_floats(&model->tables[t]);

        tile->pooled[t] = input->pooled[t] + first * row;
        if (input->pooled_gradients[t] != NULL) {
            tile->pooled_gradients[t] =
                    input->pooled_gradients[t] + first * row;
        }
        if (tile->rows < RPS_MODEL_TILE) {
            pad_copy(model->tile_pooled[t], tile->pooled[t], tile->rows, row);
            tile->pooled[t] = model->tile_pooled[t];
        }
    }
    if (tile->rows < RPS_MODEL_TILE && model->shape.dense > 0) {
        pad_copy(
                model->tile_dense, tile->dense, tile->rows, model->shape.dense);
        tile->dense = model->tile_dense;
    }
}

/* Loss of the tile's real rows; gradients of the padding are zeros. */
static double
add_up_loss(struct rps_model *model, const struct rps_model_input *tile)
{
    double loss = 0.0;

    memset(model->logit_gradients, 0, sizeof(model->logit_gradients));
    for (size_t r = 0; r < tile->rows; r++) {
        for (uint32_t o = 0; o < model->labels; o++) {
            size_t at = (size_t)o * RPS_MODEL_TILE + r;
            float label = tile->labels[r * model->labels + o];
            double p = 1.0 / (1.0 + exp(-(double)model->logits[at]));

            loss += cross_entropy(model->logits[at], label);
            model->logit_gradients[at] =
                    (float)((p - (double)label) * tile->loss_scale);
        }
    }
    return loss * tile->loss_scale;
}

static void
tile_loss(struct rps_model *model)
{
    const struct rps_model_operators *operators = &model->operators;
    const uint64_t begun = rps_operator_begin(&operators->loss);

    rps_operator_part_begin(&operators->loss_alone);
    rps_operator_part_begin(&operators->loss_gradient);
    model->loss += add_up_loss(model, &model->tile);
    rps_operator_part_end(&operators->loss_alone);
    rps_operator_part_end(&operators->loss_gradient);
    rps_operator_end(&operators->loss, begun);
}

static void
tile_probabilities(
        const struct rps_model *model, size_t rows, float *probabilities)
{
    for (size_t r = 0; r < rows; r++) {
        for (uint32_t o = 0; o < model->labels; o++) {
            probabilities[r * model->labels + o] =
                    sigmoid(model->logits[(size_t)o * RPS_MODEL_TILE + r]);
        }
    }
}

static void
gradients_clear(struct rps_model *model)
{
    memset(model->gradients, 0, model->variable_floats * sizeof(float));
}

/* One tile. probabilities: of its rows; NULL. */
static void
run_tile(struct rps_model *model, float *probabilities, bool train)
{
    const struct rps_model_input *tile = &model->tile;

    model->ops->forward(model, tile, model->logits);
    if (probabilities != NULL) {
        tile_probabilities(model, tile->rows, probabilities);
    }
    if (tile->labels != NULL) {
        tile_loss(model);
    }
    if (train) {
        model->ops->backward(model, tile, model->logit_gradients);
    }
}

void
rps_model_run(struct rps_model *model, const struct rps_model_input *input,
        float *probabilities, double *loss_out)
{
    const bool train =
            input->labels != NULL && input->pooled_gradients[0] != NULL;

    model->scale[0] = model->scale[1] = input->loss_scale;
    model->loss = 0.0;
    if (train) {
        gradients_clear(model);
    }
    for (size_t first = 0; first < input->rows; first += RPS_MODEL_TILE) {
        tile_cut(model, input, first, &model->tile);
        rps_tape_tile(first, model->tile.rows);
        run_tile(model,
                probabilities != NULL ? probabilities + first * model->labels
                                      : NULL,
                train);
    }
    if (loss_out != NULL) {
        *loss_out = model->loss;
    }
}
