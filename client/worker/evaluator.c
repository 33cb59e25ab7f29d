/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The role evaluator: each complete checkpoint, in their order, is restored
 * into an embedded service of this process and evaluated there. The connection
 * to PS 0, kept as role evaluator, only says when the job has ended; no step
 * waits for it.
 */
#include "base/clock.h"
#include "client/worker/run.h"

#include <recps/recover.h>

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define POLL_MS 500
/* A server that stays away for so long, where clients that train wait for
 * longer, has ended. With --recover it may come back as long as it is waited
 * for by others. */
#define AWAY_MS 3000u

/* Steps, ascending. */
struct steps {
    uint64_t *at; /* owned [count] */
    size_t count;
};

struct evaluator {
    struct rps_run *run; /* its client is the embedded one */
    rps_client *job;     /* the connection to PS 0 */
    const char *folder;
    struct steps listed;   /* the complete ones of the last look */
    struct steps waiting;  /* of these, those to be evaluated */
    uint64_t last_waiting; /* the first of `waiting` failed once */
    bool looked;           /* at the folder, before the job was */
    bool evaluated;        /* some step was */
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
    evaluator->evaluated = true;
    return RPS_OK;
}

static bool
has_step(const struct steps *steps, uint64_t step)
{
    size_t i = 0;

    while (i < steps->count && steps->at[i] != step) {
        i++;
    }
    return i < steps->count;
}

static void
remove_first(struct steps *steps)
{
    steps->count--;
    memmove(steps->at, steps->at + 1, steps->count * sizeof(*steps->at));
}

static int
by_step(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* The complete checkpoints in the folder. */
static rps_status
list_steps(struct evaluator *evaluator, struct steps *steps)
{
    struct rps_run *run = evaluator->run;
    char *text = NULL;
    json_t *stat = NULL;
    const json_t *list;
    rps_status status = rps_stat(run->client, 0, &text);

    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "looking for checkpoints");
    }
    stat = json_loads(text, 0, NULL);
    free(text);
    list = json_object_get(stat, "checkpoints");
    steps->at = calloc(json_array_size(list) + 1, sizeof(*steps->at));
    for (size_t i = 0; steps->at != NULL && i < json_array_size(list); i++) {
        steps->at[steps->count++] =
                (uint64_t)json_integer_value(json_array_get(list, i));
    }
    json_decref(stat);
    if (steps->at == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory for a list");
    }
    qsort(steps->at, steps->count, sizeof(*steps->at), by_step);
    return RPS_OK;
}

/* Those that wait and are there no more. */
static void
pass_over_gone(struct evaluator *evaluator, const struct steps *now)
{
    struct steps *waiting = &evaluator->waiting;
    size_t kept = 0;

    for (size_t i = 0; i < waiting->count; i++) {
        const uint64_t step = waiting->at[i];

        if (has_step(now, step)) {
            waiting->at[kept++] = step;
        } else {
            rps_run_say(evaluator->run,
                    "evaluator: step %" PRIu64 " is passed over: its "
                    "checkpoint went before it was evaluated (--keep)",
                    step);
        }
    }
    waiting->count = kept;
}

/*
 * What has come since the last look waits behind what waits already. At the
 * first look that is the newest one alone: the older ones were there before
 * anybody was to evaluate them.
 */
static rps_status
take_new(struct evaluator *evaluator)
{
    struct steps *waiting = &evaluator->waiting;
    struct steps now = {0};
    rps_status status = list_steps(evaluator, &now);
    uint64_t *grown;

    if (status != RPS_OK) {
        return status;
    }
    pass_over_gone(evaluator, &now);
    grown = realloc(
            waiting->at, (waiting->count + now.count + 1) * sizeof(*grown));
    if (grown == NULL) {
        free(now.at);
        return rps_fail(
                &evaluator->run->error, RPS_E_NOMEM, "no memory for a list");
    }
    waiting->at = grown;
    for (size_t i = 0; i < now.count; i++) {
        if (!has_step(&evaluator->listed, now.at[i]) &&
                (evaluator->looked || i + 1 == now.count)) {
            waiting->at[waiting->count++] = now.at[i];
        }
    }
    free(evaluator->listed.at);
    evaluator->listed = now;
    return RPS_OK;
}

/* The first that waits. One that fails is tried again at the next look, where
 * it may be found gone; the second failure is the evaluator's. */
static rps_status
evaluate_first(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    const uint64_t step = evaluator->waiting.at[0];
    rps_status status = evaluate_step(evaluator, step);

    if (status == RPS_OK) {
        remove_first(&evaluator->waiting);
        evaluator->last_waiting = 0;
    } else if (!run->data_failed && evaluator->last_waiting != step) {
        evaluator->last_waiting = step;
        rps_run_say(run, "evaluator: step %" PRIu64 ": %s; looking again", step,
                run->error.text);
        status = RPS_OK;
    }
    return status;
}

/* Look at the folder and evaluate one checkpoint, if one waits. */
static rps_status
look(struct evaluator *evaluator)
{
    rps_status status = open_embedded(evaluator);

    if (status == RPS_OK) {
        status = take_new(evaluator);
    }
    if (status == RPS_OK && evaluator->waiting.count > 0) {
        status = evaluate_first(evaluator);
    }
    close_embedded(evaluator);
    return status;
}

/* Before the job is looked for: what is there may be all that there will be. */
static rps_status
look_first(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    rps_status status = RPS_OK;

    if (access(evaluator->folder, R_OK | X_OK) == 0) {
        status = look(evaluator);
    }
    evaluator->looked = true;
    if (status == RPS_OK) {
        rps_run_say(run, "evaluator: waiting for the job's checkpoints in %s",
                evaluator->folder);
    }
    return status;
}

static rps_status
open_job(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    rps_client_options client;
    rps_status status;

    rps_run_client_options(run, &client);
    if (run->settings->terms.recover) {
        client.reconnect_timeout_ms = client.connect_timeout_ms;
    } else if (client.reconnect_timeout_ms > AWAY_MS) {
        client.reconnect_timeout_ms = AWAY_MS;
    }
    rps_stop_waits(rps_run_waiting_words(run));
    status = rps_client_open(&evaluator->job, &client);
    rps_stop_waits(NULL);
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

/* Waits for it a little, where nothing is to be evaluated. */
static bool
job_is_gone(struct evaluator *evaluator)
{
    const rps_status status = rps_job_await_end(
            evaluator->job, evaluator->waiting.count == 0 ? POLL_MS : 0);

    return status != RPS_E_TIMEOUT;
}

/* After the job's end once more, and all that waits then. */
static bool
is_done(const struct evaluator *evaluator, bool gone)
{
    return gone && evaluator->waiting.count == 0;
}

static rps_status
watch(struct evaluator *evaluator)
{
    struct rps_run *run = evaluator->run;
    bool gone = false;
    rps_status status = RPS_OK;

    do {
        gone = gone || job_is_gone(evaluator);
        if (access(evaluator->folder, R_OK | X_OK) == 0) {
            status = look(evaluator);
        } else if (gone) {
            status = rps_fail(&run->error, RPS_E_NOT_FOUND,
                    "the evaluator cannot read checkpoint_dir %s: %s",
                    evaluator->folder, strerror(errno));
        }
    } while (status == RPS_OK && !is_done(evaluator, gone) &&
             rps_stop_signal() == 0);
    if (status == RPS_OK && !evaluator->evaluated) {
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
        status = look_first(&evaluator);
    }
    if (status == RPS_OK) {
        status = open_job(&evaluator);
    }
    if (status == RPS_OK) {
        status = watch(&evaluator);
    }
    free(evaluator.listed.at);
    free(evaluator.waiting.at);
    rps_client_close(evaluator.job);
    return status;
}
