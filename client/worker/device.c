/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, closing, and what is said of a device. */
#include "client/worker/device.h"

#include "base/hash.h"
#include "base/text.h"
#include "client/worker/device_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

rps_status
rps_device_failed(
        struct rps_device *device, rps_status status, struct rps_error *error)
{
    rps_npu_pool_stats stats;
    char own[RPS_ERROR_BYTES] = "";
    char text[4][32];

    if (status != RPS_E_NOMEM) {
        return rps_fail(error, status, "npu %u: %s",
                device->settings->device.id, rps_npu_error());
    }
    device->full = true;
    /* the words of the pool have its numbers, the driver's have not */
    if (strstr(rps_npu_error(), "fragmentation") == NULL) {
        rps_npu_pool_read_stats(device->npu, &stats);
        (void)snprintf(own, sizeof(own),
                "; the pool has %s allocated (peak %s) and %s reserved, "
                "largest free block %s, fragmentation %.1f %%",
                rps_format_bytes(stats.allocated.now, text[0]),
                rps_format_bytes(stats.allocated.peak, text[1]),
                rps_format_bytes(stats.reserved.now, text[2]),
                rps_format_bytes(stats.largest_free, text[3]),
                100.0 * stats.fragmentation);
    }
    return rps_fail(error, status,
            "npu %u: %.700s%s: give more --device-memory, a smaller "
            "--batch-size, a smaller --npu-loop-size (as many batches lie "
            "ready in the device's memory, up to %u), --micro-batch, "
            "--recompute or --offload",
            device->settings->device.id, rps_npu_error(), own,
            RPS_DEVICE_AHEAD_MAX);
}

rps_status
rps_device_capture_end(
        struct rps_device *device, rps_status status, rps_npu_step **step_out)
{
    struct rps_error first;
    rps_status ended;

    (void)rps_fail(&first, status, "%s", rps_npu_error());
    ended = rps_npu_capture_end(device->compute, step_out);
    /* the end of half a step has words, too: the first failure is told */
    return status == RPS_OK ? ended : rps_npu_host_failed(status, first.text);
}

rps_status
rps_device_make(
        struct rps_device *device, uint64_t bytes, rps_npu_tensor *tensor_out)
{
    const uint64_t floats = bytes / sizeof(float);

    return rps_npu_tensor_create(
            device->compute, RPS_NPU_F32, 1, &floats, tensor_out);
}

static struct rps_net_options
net_options(const struct rps_settings *settings)
{
    const struct rps_device_settings *given = &settings->device;
    struct rps_net_options options = {
            .recompute = given->recompute,
            .offload = given->offload,
            .dropout = given->dropout,
            /* replicas drop differently */
            .seed = rps_mix64(settings->options->seed + settings->rank),
    };

    rps_npu_ops_options_init(&options.ops);
    options.ops.deterministic = settings->options->deterministic;
    options.ops.fusion = given->fusion;
    options.ops.precision_mode =
            given->mixed ? RPS_NPU_PRECISION_MIXED : RPS_NPU_PRECISION_ORIGIN;
    options.ops.implmode = given->high_precision
                                   ? RPS_NPU_IMPL_HIGH_PRECISION
                                   : RPS_NPU_IMPL_HIGH_PERFORMANCE;
    return options;
}

static rps_status
open_npu(struct rps_device *device)
{
    const struct rps_device_settings *given = &device->settings->device;
    rps_npu_options options;
    rps_status status;

    rps_npu_options_init(&options);
    options.memory_bytes = given->memory_bytes;
    options.link_bytes_per_second = given->link_bytes_per_second;
    options.copy_latency_ns = given->copy_latency_ns;
    options.launch_latency_ns = given->launch_latency_ns;
    status = rps_npu_open(&device->npu, given->id, &options);
    if (status == RPS_OK) {
        status =
                rps_npu_stream_create(device->npu, "compute", &device->compute);
    }
    if (status == RPS_OK && given->offload) {
        status = rps_npu_stream_create(device->npu, "offload", &device->copies);
    }
    if (status == RPS_OK && given->loop_size > 0) {
        status = rps_npu_set_loop_size(given->loop_size);
    }
    if (status == RPS_OK) {
        status = rps_npu_set_blas_threads(
                (uint32_t)device->settings->options->blas_threads);
    }
    return status;
}

rps_status
rps_device_open(struct rps_device **device_out,
        const struct rps_settings *settings, struct rps_model *model,
        struct rps_error *error)
{
    const struct rps_net_options options = net_options(settings);
    struct rps_device *device = calloc(1, sizeof(*device));
    rps_status status;

    *device_out = NULL;
    if (device == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the NPU");
    }
    device->settings = settings;
    device->model = model;
    status = open_npu(device);
    if (status != RPS_OK) {
        (void)rps_fail(error, status, "--device npu: %s", rps_npu_error());
        /* taken: it may be free later, as a server may be there later */
        status = status == RPS_E_MISMATCH ? RPS_E_UNREACHABLE : status;
        rps_device_close(device);
        return status;
    }
    if (settings->device.cache && settings->task == RPS_TASK_TRAIN) {
        status = rps_device_rows_create(&device->rows, model, settings, error);
        if (status != RPS_OK) {
            rps_device_close(device);
            return status;
        }
    }
    status = rps_net_init(&device->net, model, device->compute, device->copies,
            &options, settings->task == RPS_TASK_TRAIN);
    if (status != RPS_OK) {
        (void)rps_device_failed(device, status, error);
        rps_device_close(device);
        return status;
    }
    *device_out = device;
    return RPS_OK;
}

void
rps_device_close(struct rps_device *device)
{
    if (device == NULL) {
        return;
    }
    rps_device_step_finish(device);
    rps_device_predictor_finish(device);
    rps_device_store_finish(device);
    rps_device_rows_destroy(device->rows);
    rps_net_finish(&device->net);
    rps_npu_stream_destroy(device->copies);
    rps_npu_stream_destroy(device->compute);
    rps_npu_close(device->npu);
    free(device);
}

struct rps_device_rows *
rps_device_rows_of(const struct rps_device *device)
{
    return device->rows;
}

bool
rps_device_usage(void *context, struct rps_usage_device *usage)
{
    const struct rps_device *device = context;
    rps_npu_counters counters;
    uint64_t left, capacity;

    rps_npu_read_counters(device->npu, &counters);
    rps_npu_memory(device->npu, &left, &capacity);
    *usage = (struct rps_usage_device){
            .busy_ns = counters.busy_ns,
            .memory_used = capacity - left,
            .memory_capacity = capacity,
    };
    return true;
}

bool
rps_device_is_full(const struct rps_device *device)
{
    return device->full;
}

static void
add_figure(const struct rps_device *device, const char *what, uint64_t now_ns,
        uint64_t bytes)
{
    char name[32];

    (void)snprintf(name, sizeof(name), "npu%" PRIu32 " %s",
            device->settings->device.id, what);
    rps_profile_figure(name, now_ns, (double)bytes);
}

void
rps_device_profile(const struct rps_device *device, uint64_t now_ns)
{
    rps_npu_pool_stats pool;

    rps_npu_pool_read_stats(device->npu, &pool);
    add_figure(device, "allocated", now_ns, pool.allocated.now);
    add_figure(device, "active", now_ns, pool.active.now);
    add_figure(device, "reserved", now_ns, pool.reserved.now);
}

struct rps_report_npu
rps_device_tell(const struct rps_device *device)
{
    rps_npu_counters counters;
    rps_npu_pool_stats pool;

    rps_npu_read_counters(device->npu, &counters);
    rps_npu_pool_read_stats(device->npu, &pool);
    return (struct rps_report_npu){
            .there = true,
            .id = device->settings->device.id,
            .capacity_bytes = device->settings->device.memory_bytes,
            .allocated_peak_bytes = pool.allocated.peak,
            .reserved_bytes = pool.reserved.now,
            .reserved_peak_bytes = pool.reserved.peak,
            .reserved_first_bytes = device->reserved_first,
            .reserved_train_bytes = device->reserved_last,
            .queue_bytes = device->queue_bytes,
            .launches = device->launches,
            .steps = device->steps,
            .compiles = counters.captures,
            .input_copies = counters.queue_copies,
            .input_ahead = counters.queue_depth_max,
            .loop_size = device->loop_size,
            .bytes_to_device = counters.bytes_to_device,
            .bytes_to_host = counters.bytes_to_host,
            .cache = rps_device_rows_tell(device->rows),
    };
}
