/* SPDX-License-Identifier: Apache-2.0 */
/* --device npu, and the options that it alone takes. */
#include "base/text.h"
#include "client/worker/settings.h"

#include <stdlib.h>
#include <string.h>

static rps_status
check_not_given(const struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    static const struct {
        const char *name, *flag;
    } npu[] = {
            {"device_id", "device-id"},
            {"device_memory", "device-memory"},
            {"npu_loop_size", "npu-loop-size"},
            {"link_bandwidth", "link-bandwidth"},
            {"copy_latency", "copy-latency"},
            {"launch_latency", "launch-latency"},
            {"micro_batch", "micro-batch"},
            {"recompute", "recompute"},
            {"offload", "offload"},
            {"dropout", "dropout"},
            {"precision_mode", "precision-mode"},
            {"implmode", "implmode"},
            {"device_cache", "device-cache"},
            {"cache_staleness", "cache-staleness"},
    };

    for (size_t i = 0; i < sizeof(npu) / sizeof(npu[0]); i++) {
        if (rps_option_given(options, npu[i].name)) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s goes with --device npu only; here the model is "
                    "computed on the host (--device cpu)",
                    npu[i].flag);
        }
    }
    return rps_option_given(options, "fusion") && settings->dump.path == NULL
                   ? rps_fail(error, RPS_E_INVAL,
                             "--fusion goes with --device npu only, or with "
                             "--dump, which has operators as they are fused or "
                             "their parts; here the model is computed on the "
                             "host (--device cpu)")
                   : RPS_OK;
}

/* Who starts the processes of a host may count them; else all are on one. */
static uint32_t
place_on_host(const struct rps_settings *settings)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK",
            "MPI_LOCALRANKID", "SLURM_LOCALID", "LOCAL_RANK"};
    uint64_t place;

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);

        if (text != NULL && rps_parse_u64(text, &place) &&
                place <= UINT32_MAX) {
            return (uint32_t)place;
        }
    }
    return settings->rank;
}

static rps_status
read_id(struct rps_settings *settings, struct rps_error *error)
{
    const char *text = settings->options->device_id;
    uint64_t id = place_on_host(settings);

    if (strcmp(text, "auto") != 0 &&
            (!rps_parse_u64(text, &id) || id > UINT32_MAX)) {
        return rps_fail(error, RPS_E_INVAL,
                "--device-id=%s: must be a number from 0 on, or auto", text);
    }
    settings->device.id = (uint32_t)id;
    return RPS_OK;
}

static rps_status
check_memory_for_time(
        const struct rps_options *options, struct rps_error *error)
{
    if (options->micro_batch > options->batch_size) {
        return rps_fail(error, RPS_E_INVAL,
                "--micro-batch=%llu: a batch of %llu rows (--batch-size) has "
                "not so many parts",
                (unsigned long long)options->micro_batch,
                (unsigned long long)options->batch_size);
    }
    if (options->recompute && options->offload) {
        return rps_fail(error, RPS_E_INVAL,
                "--recompute and --offload are two ways to keep the same "
                "activations out of the NPU's memory: give one of them");
    }
    return RPS_OK;
}

uint64_t
rps_settings_cache_rows(const struct rps_settings *settings, uint32_t t)
{
    return settings->device.cache_rows > 0
                   ? settings->device.cache_rows
                   : settings->model.tables[t].spec.device_vocabulary_size;
}

/* Has every table a size of its own for --device-cache=on? */
static rps_status
check_cache_rows(const struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_model_config *model = &settings->model;

    for (uint32_t t = 0;
            settings->device.cache_rows == 0 && t < model->table_count; t++) {
        if (rps_settings_cache_rows(settings, t) <= 1) {
            return rps_fail(error, RPS_E_INVAL,
                    "--device-cache=on: table %s has a device_vocabulary_size "
                    "of 1, the default: give it in --model-config, or give "
                    "--device-cache=ROWS",
                    model->tables[t].spec.name);
        }
    }
    return RPS_OK;
}

/* off, on, or rows of each table. */
static rps_status
read_cache(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    struct rps_device_settings *device = &settings->device;
    const char *text = options->device_cache;

    device->cache = strcmp(text, "off") != 0;
    device->cache_staleness = options->cache_staleness;
    if (device->cache && strcmp(text, "on") != 0 &&
            (!rps_parse_u64(text, &device->cache_rows) ||
                    device->cache_rows < 1 ||
                    device->cache_rows > RPS_VOCABULARY_MAX)) {
        return rps_fail(error, RPS_E_INVAL,
                "--device-cache=%s: must be off, on (each table's "
                "device_vocabulary_size), or rows of each table, 1 to %u",
                text, RPS_VOCABULARY_MAX);
    }
    if (!device->cache && rps_option_given(options, "cache_staleness")) {
        return rps_fail(error, RPS_E_INVAL,
                "--cache-staleness is of rows that stay on the NPU, and none "
                "do: give --device-cache, too");
    }
    if (device->cache && settings->task == RPS_TASK_INFER) {
        return rps_fail(error, RPS_E_INVAL,
                "--device-cache=%s goes with training: an evaluation or "
                "prediction looks its rows up and pools them on the host",
                text);
    }
    return device->cache ? check_cache_rows(settings, error) : RPS_OK;
}

rps_status
rps_settings_read_device(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    rps_status status;

    if (strcmp(options->device, "npu") != 0) {
        return check_not_given(settings, error);
    }
    settings->device = (struct rps_device_settings){
            .npu = true,
            .memory_bytes = options->device_memory,
            .loop_size = options->npu_loop_size,
            .link_bytes_per_second = options->link_bandwidth,
            .copy_latency_ns = (uint64_t)(options->copy_latency * 1e9 + 0.5),
            .launch_latency_ns =
                    (uint64_t)(options->launch_latency * 1e9 + 0.5),
            .parts = (uint32_t)options->micro_batch,
            .recompute = options->recompute,
            .offload = options->offload,
            .dropout = options->dropout,
            .mixed = strcmp(options->precision_mode, "mixed") == 0,
            .high_precision = strcmp(options->implmode, "high_precision") == 0,
            .fusion = strcmp(options->fusion, "on") == 0,
    };
    status = read_id(settings, error);
    if (status == RPS_OK) {
        status = check_memory_for_time(options, error);
    }
    return status == RPS_OK ? read_cache(settings, error) : status;
}
