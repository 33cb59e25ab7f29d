/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The role evaluator: each complete checkpoint is restored into an embedded
 * service of this process and evaluated there. The connection to PS 0, kept
 * as role evaluator, only says whether the job still runs; no step waits
 * for it.
 */
#include "base/clock.h"
#include "client/worker/run.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_MS 500
/* A job's end and a lost server look alike from here. A server that stays away
 * for so long, where clients that train wait for longer, has ended. */
#define AWAY_MS 3000u

struct evaluator {
    struct rps_run *run; /* its client is the embedded one */
    rps_client *job;     /* the connection to PS 0 */
    const char *folder;
    uint64_t evaluated; /* the newest step that was */
    uint64_t failed;    /* a step that did not restore */
};

static rps_status
open_embedded(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    const rps_cluster local = {.role = RPS_ROLE_LOCAL};
    rps_client_options client;
    rps_status status;

    rps_run_client_options(run, &client);
    client.cluster = &local;
    client.transport = RPS_TRANSPORT_LOCAL;
    client.checkpoint_read_only = 1;
    status = rps_client_open(&run->client, &client);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "the embedded service");
    }
    return rps_tables_init(
            &run->tables, run->client, run->model, run->settings, &run->error);
}

/* A service for each checkpoint: nothing of the last one is left. */
static void
close_embedded(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;

    rps_tables_finish(&run->tables);
    rps_client_close(run->client);
    run->client = NULL;
}

static rps_status
evaluate_step(struct evaluator *evaluator, uint64_t step)
{
    struct rps_run *run = evaluator->run;
    struct rps_report_end result = {0};
    rps_status status = rps_run_restore_alone(run, step);

    if (status == RPS_OK) {
        status = rps_run_evaluate(run, NULL, &result);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (result.has_auc) {
        rps_run_say(run, "evaluator: step %" PRIu64 " auc %.6f log_loss %.6f",
                step, result.auc, result.log_loss);
    } else if (result.has_log_loss) {
        rps_run_say(run, "evaluator: step %" PRIu64 " log_loss %.6f", step,
                result.log_loss);
    }
    evaluator->evaluated = step;
    return RPS_OK;
}

/* Evaluate the newest complete checkpoint, if it is a new one. */
static rps_status
look(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    uint64_t step = 0;
    rps_status status = open_embedded(evaluator);

    if (status == RPS_OK) {
        status = rps_newest_checkpoint(run->client, &step);
        if (status != RPS_OK) {
            rps_run_client_failed(run, status, "looking for checkpoints");
        }
    }
    if (status == RPS_OK && step != 0 && step != evaluator->evaluated) {
        status = evaluate_step(evaluator, step);
        /* it may have been pruned under our hands: look again */
        if (status != RPS_OK && !run->data_failed &&
                evaluator->failed != step) {
            evaluator->failed = step;
            rps_run_say(run, "evaluator: step %" PRIu64 ": %s", step,
                    run->error.text);
            status = RPS_OK;
        }
    }
    close_embedded(evaluator);
    return status;
}

static rps_status
open_job(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    rps_client_options client;
    rps_status status;

    rps_run_client_options(run, &client);
    if (client.reconnect_timeout_ms > AWAY_MS) {
        client.reconnect_timeout_ms = AWAY_MS;
    }
    rps_stop_waits(true);
    status = rps_client_open(&evaluator->job, &client);
    rps_stop_waits(false);
    if (status != RPS_OK) {
        return rps_fail(&run->error, status, "connecting to PS 0: %s",
                rps_client_error(evaluator->job));
    }
    return RPS_OK;
}

static rps_status
check_folder(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;

    if (evaluator->folder == NULL) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "an evaluator reads checkpoints: give --checkpoint-dir, the "
                "folder of the servers");
    }
    if (access(evaluator->folder, R_OK | X_OK) != 0 && errno != ENOENT) {
        return rps_fail(&run->error, RPS_E_IO,
                "the evaluator cannot read checkpoint_dir %s: %s",
                evaluator->folder, strerror(errno));
    }
    return RPS_OK;
}

static bool
job_is_gone(struct evaluator *evaluator)
{
    return rps_ping(evaluator->job, 0, NULL) != RPS_OK;
}

static rps_status
watch(struct evaluator *evaluator)
{
    const struct timespec pause = {0, POLL_MS * 1000000L};
    struct rps_run *run = evaluator->run;
    bool gone = false;
    rps_status status = RPS_OK;

    while (status == RPS_OK && !gone && rps_stop_signal() == 0) {
        gone = job_is_gone(evaluator);
        if (access(evaluator->folder, R_OK | X_OK) == 0) {
            status = look(evaluator);
        } else if (gone) {
            status = rps_fail(&run->error, RPS_E_NOT_FOUND,
                    "the evaluator cannot read checkpoint_dir %s: %s",
                    evaluator->folder, strerror(errno));
        }
        if (!gone) {
            nanosleep(&pause, NULL);
        }
    }
    if (status == RPS_OK && evaluator->evaluated == 0) {
        rps_run_say(run, "evaluator: there was no complete checkpoint in %s",
                evaluator->folder);
    }
    return status;
}

rps_status
rps_run_evaluator(struct rps_run *run)
{
    struct evaluator evaluator = {
            .run = run,
            .folder = rps_text_or_null(run->settings->options->checkpoint_dir),
    };
    rps_status status = check_folder(&evaluator);

    if (status == RPS_OK) {
        status = open_job(&evaluator);
    }
    if (status == RPS_OK) {
        status = watch(&evaluator);
    }
    rps_client_close(evaluator.job);
    return status;
}
