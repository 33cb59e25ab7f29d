/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --evaluate and --predict: the chief alone restores a checkpoint and reads
 * it, or reads what servers serve; nothing is trained and nothing is saved.
 */
#include "client/worker/device.h"
#include "client/worker/run.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

rps_status
rps_run_restore_step(struct rps_run *run, uint64_t *step_out)
{
    rps_status status;

    *step_out = run->settings->restore_step;
    if (*step_out != 0) {
        return RPS_OK;
    }
    status = rps_newest_checkpoint(run->client, step_out);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "looking for checkpoints");
    }
    if (*step_out == 0) {
        return rps_fail(&run->error, RPS_E_NOT_FOUND,
                "there is no complete checkpoint to restore");
    }
    return RPS_OK;
}

rps_status
rps_run_restore_alone(struct rps_run *run, uint64_t step)
{
    const struct rps_options *options = run->settings->options;
    const rps_terms terms = {
            .mode = RPS_MODE_ASYNC,
            .combine = RPS_COMBINE_SUM,
            .replica_count = 1,
            .step_timeout_ms = (uint32_t)(options->step_timeout * 1e3),
            .step_bytes_max = options->step_bytes_max,
    };
    rps_start start = {0};
    rps_status status = rps_job_begin(run->client, step, &terms, &start);

    free(start.data_position);
    start.data_position = NULL;
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "restoring");
    }
    status = rps_job_join(run->client, &start);
    free(start.data_position);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "joining");
    }
    return rps_tables_open_restored(&run->tables, &run->error);
}

/* --- of servers that serve checkpoints (recpsd --serve) ------------------- */

/* The steps that they serve: the least and the largest. */
static rps_status
served_steps(struct rps_run *run, uint64_t *least, uint64_t *most)
{
    const uint32_t count = rps_server_count(run->client);
    rps_status status = RPS_OK;

    *least = UINT64_MAX;
    *most = 0;
    for (uint32_t ps = 0; status == RPS_OK && ps < count; ps++) {
        json_t *stat = NULL;
        const json_t *serving;
        uint64_t step;

        status = rps_run_read_stat(run, ps, &stat);
        serving = json_object_get(stat, "serving");
        step = (uint64_t)json_integer_value(json_object_get(serving, "step"));
        if (status == RPS_OK &&
                !json_is_true(json_object_get(serving, "holds"))) {
            status = rps_fail(&run->error, RPS_E_NOT_FOUND,
                    "PS %" PRIu32 " serves no checkpoint yet", ps);
        }
        json_decref(stat);
        *least = step < *least ? step : *least;
        *most = step > *most ? step : *most;
    }
    return status;
}

/* They follow their folder, each for itself. */
static void
say_if_mixed(struct rps_run *run, uint64_t least, uint64_t most)
{
    if (least != most) {
        rps_run_say(run,
                "the servers went on meanwhile: rows are of steps %" PRIu64
                " to %" PRIu64,
                least, most);
    }
}

static rps_status
open_served(struct rps_run *run, uint64_t *least, uint64_t *most)
{
    const uint64_t asked = run->settings->restore_step;
    rps_status status = served_steps(run, least, most);

    if (status == RPS_OK && asked != 0 && (asked != *least || asked != *most)) {
        return rps_fail(&run->error, RPS_E_NOT_FOUND,
                "--restore=%" PRIu64 ": the servers serve step %" PRIu64
                ", and choose it themselves (recpsd --serve)",
                asked, *most);
    }
    return status == RPS_OK
                   ? rps_tables_open_restored(&run->tables, &run->error)
                   : status;
}

static rps_status
infer_served(
        struct rps_run *run, const char *predict, struct rps_report_end *end)
{
    uint64_t least = 0, most = 0, later = 0;
    rps_status status = open_served(run, &least, &most);

    if (status == RPS_OK) {
        rps_run_say(run, "served step %" PRIu64, most);
        status = rps_run_evaluate(run, predict, end);
    }
    if (status == RPS_OK) {
        end->steps = most;
        status = served_steps(run, &later, &most);
        say_if_mixed(run, least < later ? least : later, most);
    }
    return status;
}

/* --- of a checkpoint that is restored ------------------------------------- */

static rps_status
infer_restored(
        struct rps_run *run, const char *predict, struct rps_report_end *end)
{
    uint64_t step = 0;
    rps_status status = rps_run_restore_step(run, &step);

    if (status == RPS_OK) {
        status = rps_run_restore_alone(run, step);
    }
    if (status == RPS_OK) {
        rps_run_say(run, "restored step %" PRIu64, step);
        status = rps_run_evaluate(run, predict, end);
    }
    end->steps = step;
    return status;
}

rps_status
rps_run_infer(struct rps_run *run)
{
    const char *predict = rps_text_or_null(run->settings->options->predict);
    struct rps_report_end end = {0};
    rps_status status = rps_run_open_report(run, 0);

    if (status == RPS_OK) {
        status = rps_run_open_client(run);
    }
    if (status == RPS_OK) {
        status = run->is_served ? infer_served(run, predict, &end)
                                : infer_restored(run, predict, &end);
    }
    if (status == RPS_OK) {
        rps_run_say_skipped(run);
        if (run->device != NULL) {
            end.npu = rps_device_tell(run->device);
        }
        status = rps_report_done(run->report, &end, &run->error);
    }
    if (status == RPS_OK && !run->is_served) {
        status = rps_shutdown(run->client);
        if (status != RPS_OK) {
            return rps_run_client_failed(run, status, "shutdown");
        }
    }
    return status;
}
