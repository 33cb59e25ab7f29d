/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --evaluate and --predict: the chief alone restores a checkpoint and reads
 * it; nothing is trained and nothing is saved.
 */
#include "client/worker/device.h"
#include "client/worker/run.h"

#include <inttypes.h>
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

rps_status
rps_run_infer(struct rps_run *run)
{
    const char *predict = rps_text_or_null(run->settings->options->predict);
    struct rps_report_end end = {0};
    uint64_t step = 0;
    rps_status status = rps_run_open_report(run, 0);

    if (status == RPS_OK) {
        status = rps_run_open_client(run);
    }
    if (status == RPS_OK) {
        status = rps_run_restore_step(run, &step);
    }
    if (status == RPS_OK) {
        status = rps_run_restore_alone(run, step);
    }
    if (status == RPS_OK) {
        rps_run_say(run, "restored step %" PRIu64, step);
        status = rps_run_evaluate(run, predict, &end);
    }
    if (status == RPS_OK) {
        rps_run_say_skipped(run);
        end.steps = step;
        if (run->device != NULL) {
            end.npu = rps_device_tell(run->device);
        }
        status = rps_report_done(run->report, &end, &run->error);
    }
    if (status == RPS_OK) {
        status = rps_shutdown(run->client);
        if (status != RPS_OK) {
            return rps_run_client_failed(run, status, "shutdown");
        }
    }
    return status;
}
