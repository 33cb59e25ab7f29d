/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/stage.h"

#include <stdlib.h>
#include <string.h>

static rps_status
predict(void *context, const struct rps_model_input *tile, float *probabilities,
        struct rps_error *error)
{
    rps_model_run(context, tile, probabilities, NULL);
    return RPS_OK;
}

rps_status
rps_stage_init(struct rps_stage *stage, struct rps_model *model,
        const struct rps_stage_engine *engine, struct rps_error *error)
{
    const struct rps_stage_engine plain = {
            .tile = RPS_MODEL_TILE, .predict = predict, .context = model};

    memset(stage, 0, sizeof(*stage));
    stage->model = model;
    stage->engine = engine != NULL ? *engine : plain;
    stage->dense = calloc(
            stage->engine.tile * (model->shape.dense + 1), sizeof(float));
    if (stage->dense == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for prediction");
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        stage->pooled[t] = calloc(
                stage->engine.tile * rps_model_pooled_floats(&model->tables[t]),
                sizeof(float));
        if (stage->pooled[t] == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for prediction");
        }
    }
    return RPS_OK;
}

void
rps_stage_finish(struct rps_stage *stage)
{
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        free(stage->pooled[t]);
    }
    free(stage->dense);
    free(stage->labels);
    free(stage->probabilities);
    memset(stage, 0, sizeof(*stage));
}

static rps_status
reserve(struct rps_stage *stage, size_t rows, struct rps_error *error)
{
    const size_t bytes = stage->model->labels * sizeof(float);
    size_t capacity = stage->capacity;
    float *grown;

    if (rows <= capacity) {
        return RPS_OK;
    }
    capacity = rows + capacity / 2;
    grown = realloc(stage->labels, capacity * bytes);
    if (grown == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for predictions");
    }
    stage->labels = grown;
    grown = realloc(stage->probabilities, capacity * bytes);
    if (grown == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for predictions");
    }
    stage->probabilities = grown;
    stage->capacity = capacity;
    return RPS_OK;
}

rps_status
rps_stage_flush(struct rps_stage *stage, struct rps_error *error)
{
    const size_t first = stage->count - stage->fill;
    struct rps_model_input tile = {
            .rows = stage->fill,
            .dense = stage->dense,
    };

    if (stage->fill == 0) {
        return RPS_OK;
    }
    for (uint32_t t = 0; t < stage->model->table_count; t++) {
        tile.pooled[t] = stage->pooled[t];
    }
    stage->fill = 0;
    return stage->engine.predict(stage->engine.context, &tile,
            stage->probabilities + first * stage->model->labels, error);
}

static void
add_row(struct rps_stage *stage, const struct rps_model_input *input,
        size_t row)
{
    const struct rps_model *model = stage->model;
    const size_t dense = model->shape.dense, labels = model->labels;

    if (dense > 0) {
        memcpy(stage->dense + stage->fill * dense, input->dense + row * dense,
                dense * sizeof(float));
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        size_t floats = rps_model_pooled_floats(&model->tables[t]);

        memcpy(stage->pooled[t] + stage->fill * floats,
                input->pooled[t] + row * floats, floats * sizeof(float));
    }
    if (input->labels != NULL) {
        memcpy(stage->labels + stage->count * labels,
                input->labels + row * labels, labels * sizeof(float));
    }
    stage->fill++;
    stage->count++;
}

rps_status
rps_stage_add(struct rps_stage *stage, const struct rps_model_input *input,
        struct rps_error *error)
{
    rps_status status = reserve(stage, stage->count + input->rows, error);

    if (status != RPS_OK) {
        return status;
    }
    for (size_t r = 0; status == RPS_OK && r < input->rows; r++) {
        add_row(stage, input, r);
        if (stage->fill == stage->engine.tile) {
            status = rps_stage_flush(stage, error);
        }
    }
    return status;
}
