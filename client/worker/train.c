/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training of one replica: join, then step after step (step.c), until the
 * data or the steps are over; the chief also begins the job, saves, evaluates
 * and ends it.
 */
#include "client/worker/device.h"
#include "client/worker/dumping.h"
#include "client/worker/loop.h"
#include "client/worker/profiling.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rps_status
check_rows(struct rps_run *run)
{
    const struct rps_settings *settings = run->settings;
    const uint64_t skipped = rps_dataset_skipped(run->data);
    char words[64] = "";

    if (run->train_rows >= rps_global_batch(settings)) {
        return RPS_OK;
    }
    if (skipped > 0) {
        (void)snprintf(words, sizeof(words),
                " (malformed ones left out: %" PRIu64 ")", skipped);
    }
    run->data_failed = true;
    return rps_fail(&run->error, RPS_E_INVAL,
            "%" PRIu64 " training rows%s are fewer than one global batch, "
            "which is %" PRIu64 " (--batch-size %" PRIu64 " times %u "
            "replicas)",
            run->train_rows, words, rps_global_batch(settings),
            settings->options->batch_size, settings->replicas);
}

/* The stages before the model. */
static uint64_t
moved_bytes(const void *client)
{
    rps_traffic traffic;

    rps_client_traffic(client, &traffic);
    return traffic.sent_bytes + traffic.received_bytes;
}

static rps_status
open_stages(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;
    const struct rps_options *given = settings->options;
    struct rps_reader_options options = {
            .model = run->model,
            .work = run->tables.work,
            .batches =
                    {
                            .end_row = run->train_rows,
                            .batch_rows = (size_t)given->batch_size,
                            .rank = settings->rank,
                            .replicas = settings->replicas,
                            .shuffle = given->shuffle,
                            .seed = given->seed,
                    },
            .depth = (uint32_t)given->pipeline_depth,
            .slack = run->terms.mode == RPS_MODE_BOUNDED ? run->terms.staleness
                                                         : 0,
            .epoch = loop->position.epoch,
            .batch = loop->position.batch,
            .epoch_batches = loop->batches,
            .done = loop->step,
            .last_step = loop->last_step,
            .slots = run->device != NULL || run->dumping != NULL,
    };
    rps_status status = RPS_OK;

    if (run->device != NULL && loop->step < loop->last_step) {
        status = rps_device_ahead(run->device, loop->last_step - loop->step,
                &options.ahead, &run->error);
        options.ahead += 2; /* one in hand, one that is packed */
    }
    if (status == RPS_OK) {
        status = rps_reader_create(
                &loop->reader, run->data, &options, &run->error);
        run->data_failed = status != RPS_OK;
    }
    loop->spent.depth = options.depth;
    loop->spent.moved = moved_bytes;
    loop->spent.moved_context = run->client;
    loop->spent.is_profiled = false; /* another client counts anew */
    rps_client_traffic(run->client, &loop->traffic);
    loop->fetch = (struct rps_fetch){
            .tables = &run->tables,
            .reader = loop->reader,
            .spent = &loop->spent,
            .rows = run->device != NULL ? rps_device_rows_of(run->device)
                                        : NULL,
            .looks_ahead =
                    rps_server_transport(run->client, 0) != RPS_TRANSPORT_LOCAL,
    };
    return status;
}

static void
close_stages(struct rps_loop *loop)
{
    if (loop->run->device != NULL) {
        rps_device_pause(loop->run->device);
    }
    if (loop->reader != NULL) {
        rps_fetch_cancel(&loop->fetch);
        loop->spent.reader = rps_reader_times(loop->reader);
    }
    rps_reader_destroy(loop->reader);
    loop->reader = NULL;
}

static rps_status
one_step(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    const struct rps_dumping_rows rows[RPS_MODEL_TABLES_MAX] = {{NULL}};
    struct rps_loop_step step;
    rps_status status = rps_loop_before(loop, &step);

    if (status == RPS_OK) {
        status = rps_dumping_fetched(loop, &step, rows);
    }
    if (status == RPS_OK) {
        status = rps_tables_input(&run->tables, &step.turn->batch,
                step.turn->bags, true, &step.input, &run->error);
    }
    if (status != RPS_OK) {
        return status;
    }
    step.input.loss_scale = step.loss_scale;
    rps_spent_on(&loop->spent, RPS_SPENT_COMPUTE);
    status = rps_dumping_model_run(loop, &step);
    return status == RPS_OK ? rps_loop_after(loop, &step) : status;
}

/* Leave with the end of a step that had no push of this replica. */
static rps_status
leave_at(struct rps_loop *loop, uint64_t step)
{
    struct rps_run *run = loop->run;
    rps_decision decision;
    rps_status status =
            rps_step_end(run->client, step, NAN, RPS_WISH_LEAVE, &decision);

    loop->left = true;
    return status == RPS_OK
                   ? RPS_OK
                   : rps_run_client_failed(run, status, "leaving the job");
}

/* A replica with no step left, after a restore: leave at once. */
static rps_status
leave_idle(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;

    if (run->settings->is_chief) {
        rps_run_say(run,
                "nothing is left to train after step %" PRIu64 ": %" PRIu64
                " of %" PRIu64 " epochs are done; raise --epochs or --steps",
                loop->step, loop->position.epoch,
                run->settings->options->epochs);
    }
    if (run->settings->replicas == 1) {
        return RPS_OK;
    }
    return leave_at(loop, loop->step + 1); /* nobody counts this step */
}

static void
say_uncounted(struct rps_loop *loop)
{
    if (loop->uncounted > 0) {
        rps_run_say(loop->run,
                "%" PRIu64 " of this replica's steps were not counted, as it"
                " was slow (--backup-workers)",
                loop->uncounted);
    }
}

static rps_status
train(struct rps_loop *loop)
{
    rps_status status = RPS_OK;

    if (loop->step >= loop->last_step) {
        return leave_idle(loop);
    }
    rps_report_start(loop->run->report);
    loop->run->running = true;
    while (status == RPS_OK && !loop->left) {
        /* the steps of the others may pass this replica's last one while it
         * computes: it ends that one again then */
        if (loop->step >= loop->last_step) {
            status = leave_at(loop, loop->step);
        } else {
            status = loop->run->device != NULL
                             ? rps_device_steps(loop->run->device, loop)
                             : one_step(loop);
        }
    }
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    rps_profiling_step(loop->run, 0);
    say_uncounted(loop);
    return status == RPS_OK && loop->run->group != NULL
                   ? rps_group_compare(loop->run->group, &loop->run->error)
                   : status;
}

/* All is saved and said; that it was of no use is the exit code. */
static rps_status
check_loss(struct rps_loop *loop)
{
    return isfinite(loop->loss)
                   ? RPS_OK
                   : rps_fail(&loop->run->error, RPS_E_NONFINITE,
                             "training has failed: the loss of the last step, "
                             "%" PRIu64 ", is not finite",
                             loop->step);
}

/* The servers are told to end. Nothing is lost if one cannot be told any more:
 * where lost processes come back, that is no failure of the job. */
static rps_status
end_job(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    rps_status status;

    loop->finished = true;
    loop->ended = true;
    status = rps_shutdown(run->client);
    if (status == RPS_OK) {
        return RPS_OK;
    }
    (void)rps_run_client_failed(run, status, "ending the job");
    if (!loop->recovers) {
        return status;
    }
    rps_run_say(run, "%s: all is saved; stop the servers that still run",
            run->error.text);
    return RPS_OK;
}

/* A server that a signal ends gives no time for it. */
static rps_status
may_evaluate(struct rps_loop *loop, bool *may_out)
{
    struct rps_run *run = loop->run;
    /* where it comes back, the evaluation is of the job after that */
    const uint32_t count = loop->recovers ? 0 : rps_server_count(run->client);
    rps_status status = RPS_OK;

    *may_out = run->settings->has_test && rps_stop_signal() == 0;
    for (uint32_t ps = 0; *may_out && status == RPS_OK && ps < count; ps++) {
        json_t *stat = NULL;

        status = rps_run_read_stat(run, ps, &stat);
        if (json_is_true(json_object_get(stat, "ending"))) {
            *may_out = false;
            rps_run_say(
                    run, "PS %" PRIu32 " is being stopped: no evaluation", ps);
        }
        json_decref(stat);
    }
    return status;
}

/* Chief, alone by now: apply, save, evaluate, say how it went, end. */
static rps_status
finish(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    const uint64_t steps = loop->step - loop->first_step;
    struct rps_report_end end = {
            .has_final_loss = steps > 0,
            .final_loss = loop->loss,
            .steps = loop->step,
            .samples_per_second =
                    steps > 0 ? rps_report_samples_per_second(run->report)
                              : 0.0,
    };
    struct rps_spent_told told;
    bool evaluates = false;
    rps_status status = rps_apply(run->client);

    rps_spent_tell(&loop->spent, &told, &end.spent);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "the last step");
    }
    if (!run->can_save) {
        rps_run_say(run, "nothing is saved: there is no checkpoint_dir");
        status = run->group != NULL ? rps_group_publish(run->group,
                                              &run->tables, &run->error)
                                    : RPS_OK;
    } else {
        status = rps_loop_save_last(loop);
    }
    if (status == RPS_OK) {
        status = may_evaluate(loop, &evaluates);
    }
    if (run->device != NULL) { /* both at once may not fit */
        rps_device_end_steps(run->device);
    }
    if (status == RPS_OK && evaluates) {
        status = rps_run_evaluate(run, NULL, &end);
    }
    if (status == RPS_OK) {
        rps_run_say_skipped(run);
        if (run->device != NULL) {
            end.npu = rps_device_tell(run->device);
        }
        status = rps_report_done(run->report, &end, &run->error);
    }
    if (status == RPS_OK) {
        status = end_job(loop);
    }
    return status == RPS_OK && steps > 0 ? check_loss(loop) : status;
}

/* From the join to this replica's end. One that left is trained with again if
 * the job goes back before its own. */
static rps_status
live(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    const bool chief = run->settings->is_chief;
    rps_status status = chief ? rps_loop_begin(loop) : RPS_OK;

    if (status == RPS_OK) {
        status = rps_loop_join(loop);
    }
    if (status == RPS_OK && !loop->ended) {
        rps_profiling_joined(run, loop->step, loop->last_step);
        rps_dumping_joined(loop);
    }
    while (status == RPS_OK && !loop->ended) {
        status = open_stages(loop);
        if (status == RPS_OK) {
            status = train(loop);
        }
        close_stages(loop);
        if (status == RPS_OK) {
            status = chief ? finish(loop) : rps_loop_await_end(loop);
        }
    }
    return status;
}

static rps_status
run_loop(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    rps_status status = RPS_OK;

    if (run->settings->in_group) { /* before a job begins without it */
        status = rps_group_open(&run->group, run->settings, &run->error);
    }
    if (status == RPS_OK) {
        status = rps_run_open_client(run);
    }
    while (status == RPS_OK && !loop->ended) {
        status = live(loop);
        if (rps_loop_may_go_back(loop, status)) {
            status = rps_loop_go_back(loop);
        }
    }
    return status;
}

/* An estimate for the time left; --restore may begin later. */
static uint64_t
steps_planned(const struct rps_run *run)
{
    const struct rps_options *options = run->settings->options;
    const uint64_t steps = options->epochs *
                           (run->train_rows / rps_global_batch(run->settings));

    return options->steps > 0 && options->steps < steps ? options->steps
                                                        : steps;
}

/* A failure of the run itself is the one to tell. */
static rps_status
end_files(struct rps_run *run, rps_status status,
        rps_status (*end)(struct rps_run *run, struct rps_error *error))
{
    struct rps_error error;
    const rps_status ended = end(run, &error);

    if (status == RPS_OK && ended != RPS_OK) {
        run->error = error;
        status = ended;
    } else if (ended != RPS_OK) {
        rps_run_say(run, "%s", error.text);
    }
    return status;
}

rps_status
rps_run_train(struct rps_run *run)
{
    const struct rps_settings *settings = run->settings;
    struct rps_loop loop = {
            .run = run,
            .loss = NAN,
            .scale = settings->loss_scale,
            .recovers = settings->terms.recover != 0 && !settings->in_group,
    };
    rps_status status = check_rows(run);

    if (status == RPS_OK) {
        loop.batches = run->train_rows / rps_global_batch(settings);
        loop.position = (struct rps_position){
                .data = settings->options->data,
                .train_rows = run->train_rows,
                .global_batch = rps_global_batch(settings),
                .shuffle = settings->options->shuffle,
                .seed = settings->options->seed,
        };
        status = rps_run_open_report(run, steps_planned(run));
    }
    if (status == RPS_OK) {
        status = rps_profiling_begin(run, steps_planned(run));
    }
    if (status == RPS_OK) {
        status = rps_dumping_begin(run);
    }
    if (status == RPS_OK) {
        status = run_loop(&loop);
    }
    status = end_files(run, status, rps_dumping_end);
    return end_files(run, status, rps_profiling_end);
}
