/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Predictions of a device: a forward of RPS_DEVICE_TILE rows, compiled once.
 * A shorter tile is padded with zeros. Its rows come pooled, so each bag has
 * the one token of its own place.
 */
#include "client/worker/device_impl.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define TILE ((uint64_t)RPS_DEVICE_TILE)

static void
lay_out(struct rps_device_predictor *predictor, const struct rps_model *model)
{
    uint64_t at = rps_device_align(TILE * model->shape.dense * sizeof(float));

    for (uint32_t t = 0; t < model->table_count; t++) {
        const struct rps_model_table *table = &model->tables[t];

        predictor->rows_at[t] = at;
        at += rps_device_align(
                TILE * rps_model_pooled_floats(table) * sizeof(float));
        predictor->starts_at[t] = at;
        at += rps_device_align((TILE * table->bags + 1) * sizeof(int32_t));
    }
    predictor->in_bytes = at > 0 ? at : RPS_DEVICE_ALIGN;
}

static void
number_starts(
        struct rps_device_predictor *predictor, const struct rps_model *model)
{
    for (uint32_t t = 0; t < model->table_count; t++) {
        int32_t *starts =
                (void *)(predictor->in_host + predictor->starts_at[t]);

        for (uint32_t i = 0; i <= TILE * model->tables[t].bags; i++) {
            starts[i] = (int32_t)i;
        }
    }
}

static struct rps_net_part
part_of(struct rps_device *device)
{
    const struct rps_device_predictor *predictor = &device->predictor;
    const uint64_t dense[] = {TILE, device->model->shape.dense};
    struct rps_net_part part = {.rows = TILE};

    part.dense = rps_net_view(&predictor->in, 0, RPS_NPU_F32, 2, dense);
    for (uint32_t t = 0; t < device->model->table_count; t++) {
        const struct rps_model_table *table = &device->model->tables[t];
        const uint64_t rows[] = {TILE * table->bags, table->dim};
        const uint64_t starts[] = {TILE * table->bags + 1};

        part.tables[t].rows = rps_net_view(
                &predictor->in, predictor->rows_at[t], RPS_NPU_F32, 2, rows);
        part.tables[t].starts = rps_net_view(&predictor->in,
                predictor->starts_at[t], RPS_NPU_I32, 1, starts);
    }
    return part;
}

static rps_status
give(struct rps_device *device)
{
    struct rps_device_predictor *predictor = &device->predictor;
    const uint64_t shape[] = {TILE, device->model->labels};
    struct rps_net_part part = part_of(device);
    rps_npu_tensor out =
            rps_net_view(&predictor->out, 0, RPS_NPU_F32, 2, shape);
    rps_status status = rps_npu_tensor_from_host(
            device->compute, &predictor->in, predictor->in_host);

    if (status == RPS_OK) {
        status = rps_net_predict(&device->net, &part, &out);
    }
    if (status == RPS_OK) {
        status = rps_npu_tensor_to_host(
                device->compute, &predictor->out, predictor->out_host);
    }
    rps_npu_tensor_release(&out);
    rps_npu_tensor_release(&part.dense);
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_npu_tensor_release(&part.tables[t].rows);
        rps_npu_tensor_release(&part.tables[t].starts);
    }
    return status;
}

static rps_status
capture(struct rps_device *device)
{
    rps_status status = rps_npu_capture_begin(device->compute);

    if (status != RPS_OK) {
        return status;
    }
    status = give(device);
    return rps_device_capture_end(device, status, &device->predictor.compiled);
}

static rps_status
compile(struct rps_device *device, struct rps_error *error)
{
    struct rps_device_predictor *predictor = &device->predictor;
    uint64_t out_bytes =
            rps_device_align(TILE * device->model->labels * sizeof(float));
    rps_status status;

    lay_out(predictor, device->model);
    predictor->in_host = aligned_alloc(RPS_DEVICE_ALIGN, predictor->in_bytes);
    predictor->out_host = aligned_alloc(RPS_DEVICE_ALIGN, out_bytes);
    if (predictor->in_host == NULL || predictor->out_host == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for prediction");
    }
    memset(predictor->in_host, 0, predictor->in_bytes);
    number_starts(predictor, device->model);
    status = rps_device_make(device, predictor->in_bytes, &predictor->in);
    if (status == RPS_OK) {
        status = rps_device_make(device, out_bytes, &predictor->out);
    }
    if (status == RPS_OK) {
        status = capture(device);
    }
    return status == RPS_OK ? RPS_OK : rps_device_failed(device, status, error);
}

void
rps_device_predictor_finish(struct rps_device *device)
{
    struct rps_device_predictor *predictor = &device->predictor;

    rps_npu_step_destroy(predictor->compiled);
    rps_npu_tensor_release(&predictor->in);
    rps_npu_tensor_release(&predictor->out);
    free(predictor->in_host);
    free(predictor->out_host);
    memset(predictor, 0, sizeof(*predictor));
}

rps_status
rps_device_take_values(struct rps_device *device, struct rps_error *error)
{
    rps_status status = rps_npu_tensor_from_host(
            device->compute, &device->net.values, device->model->values);

    if (status == RPS_OK) {
        status = rps_npu_stream_synchronize(device->compute);
    }
    return status == RPS_OK ? RPS_OK : rps_device_failed(device, status, error);
}

/* [rows][floats] of a tile, the rest zeros. */
static void
pad_copy(void *to, const float *from, size_t rows, size_t floats)
{
    memcpy(to, from, rows * floats * sizeof(float));
    memset((float *)to + rows * floats, 0,
            (TILE - rows) * floats * sizeof(float));
}

static rps_status
predict(void *context, const struct rps_model_input *tile, float *probabilities,
        struct rps_error *error)
{
    struct rps_device *device = context;
    struct rps_device_predictor *predictor = &device->predictor;
    const struct rps_model *model = device->model;
    rps_status status =
            predictor->compiled == NULL ? compile(device, error) : RPS_OK;

    assert(tile->rows <= TILE);
    if (status != RPS_OK) {
        return status;
    }
    if (model->shape.dense > 0) {
        pad_copy(predictor->in_host, tile->dense, tile->rows,
                model->shape.dense);
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        pad_copy(predictor->in_host + predictor->rows_at[t], tile->pooled[t],
                tile->rows, rps_model_pooled_floats(&model->tables[t]));
    }
    status = rps_npu_launch(device->compute, predictor->compiled, 1);
    if (status == RPS_OK) {
        status = rps_npu_stream_synchronize(device->compute);
    }
    if (status != RPS_OK) {
        return rps_device_failed(device, status, error);
    }
    memcpy(probabilities, predictor->out_host,
            tile->rows * model->labels * sizeof(float));
    return RPS_OK;
}

struct rps_stage_engine
rps_device_stage_engine(struct rps_device *device)
{
    return (struct rps_stage_engine){
            .tile = RPS_DEVICE_TILE, .predict = predict, .context = device};
}
