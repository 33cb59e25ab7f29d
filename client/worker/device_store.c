/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device cache's rows in the device's memory: a tensor a table that
 * outlives the compiled steps, whose rows move there in the order of the
 * steps. Places [0, capacity) are those of rows that stay; behind them is room
 * for the rows of the step in hand that do not fit.
 */
#include "base/clock.h"
#include "client/profile/profile.h"
#include "client/worker/device_impl.h"

/* A batch of `distinct` rows has so many that do not fit, at most. */
static uint64_t
places_of(const struct rps_device *device, uint32_t t)
{
    const uint64_t capacity = device->rows->tables[t].capacity;
    const uint64_t distinct = device->step.shape.distinct[t];

    return distinct > capacity ? distinct : capacity;
}

/* Rows that were there stay at their places. */
static rps_status
grow(struct rps_device *device, uint32_t t)
{
    const uint64_t shape[] = {
            places_of(device, t), device->model->tables[t].dim};
    rps_npu_tensor *store = &device->store[t];
    const bool had = store->ndim > 0;
    rps_npu_tensor grown = {0};
    rps_status status;

    if (had && shape[0] <= store->shape[0]) {
        return RPS_OK;
    }
    status = rps_npu_tensor_create(
            device->compute, RPS_NPU_F32, 2, shape, &grown);
    if (status == RPS_OK && had) {
        status = rps_npu_copy(device->compute, rps_npu_tensor_address(&grown),
                rps_npu_tensor_address(store),
                store->shape[0] * shape[1] * sizeof(float), RPS_NPU_ON_DEVICE);
    }
    if (status != RPS_OK) {
        rps_npu_tensor_release(&grown);
        return status;
    }
    rps_npu_tensor_release(store);
    *store = grown;
    return RPS_OK;
}

rps_status
rps_device_store_reserve(struct rps_device *device)
{
    const uint64_t *floats = &device->step.shape.packed_floats;
    rps_status status = rps_npu_tensor_create(
            device->compute, RPS_NPU_F32, 1, floats, &device->step.packed);

    for (uint32_t t = 0; status == RPS_OK && t < device->model->table_count;
            t++) {
        status = grow(device, t);
    }
    return status;
}

void
rps_device_store_finish(struct rps_device *device)
{
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_npu_tensor_release(&device->store[t]);
    }
}

/* The share of the step's rows that were here already. */
static void
note_hits(const struct rps_device *device, uint64_t distinct)
{
    uint64_t moved = 0;

    if (!rps_profile_is_on() || distinct == 0) {
        return;
    }
    for (uint32_t t = 0; t < device->model->table_count; t++) {
        const int32_t *header = (const void *)(device->step.in_host +
                                               device->step.shape.header_at[t]);

        moved += (uint64_t)header[1];
    }
    rps_profile_figure("npu rows not copied", rps_clock_ns(),
            1.0 - (double)moved / (double)distinct);
}

rps_status
rps_device_store_pack(struct rps_device *device, const struct rps_turn *turn,
        struct rps_error *error)
{
    struct rps_device_step *step = &device->step;
    const struct rps_device_shape *shape = &step->shape;
    uint64_t first = 0, distinct = 0;

    if (shape->packed_floats > INT32_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "a batch's rows may be %llu floats, more than a device cache "
                "counts: give a smaller --batch-size, or --device-cache off",
                (unsigned long long)shape->packed_floats);
    }
    for (uint32_t t = 0; t < device->model->table_count; t++) {
        int32_t *header = (void *)(step->in_host + shape->header_at[t]);

        header[0] = (int32_t)first;
        header[1] = (int32_t)rps_device_rows_pack(device->rows, turn, t,
                (void *)(step->in_host + shape->slots_at[t]),
                (void *)(step->in_host + shape->places_at[t]),
                step->packed_host + first);
        first += (uint64_t)header[1] * device->model->tables[t].dim;
        distinct += turn->slots[t].count;
    }
    step->packed_bytes = first * sizeof(float);
    note_hits(device, distinct);
    return RPS_OK;
}

static rps_status
scatter(struct rps_device *device, uint32_t t)
{
    struct rps_device_step *step = &device->step;
    const uint64_t two = 2;
    rps_npu_tensor header = rps_net_view(
            &step->in, step->shape.header_at[t], RPS_NPU_I32, 1, &two);
    rps_npu_tensor places = rps_net_view(&step->in, step->shape.places_at[t],
            RPS_NPU_I32, 1, &step->shape.distinct[t]);
    rps_status status = rps_npu_scatter_rows(
            rps_net_named(&device->net, device->model->tables[t].name),
            &step->packed, &header, &places, &device->store[t]);

    rps_npu_tensor_release(&header);
    rps_npu_tensor_release(&places);
    return status;
}

rps_status
rps_device_store_give(struct rps_device *device)
{
    struct rps_device_step *step = &device->step;
    rps_status status = rps_npu_copy_some_async(device->compute,
            rps_npu_tensor_address(&step->packed), step->packed_host,
            &step->packed_bytes, step->shape.packed_floats * sizeof(float),
            RPS_NPU_TO_DEVICE);

    for (uint32_t t = 0; status == RPS_OK && t < device->model->table_count;
            t++) {
        status = scatter(device, t);
    }
    return status;
}
