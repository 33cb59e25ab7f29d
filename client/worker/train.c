/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training of one replica: join, then lookup, compute, push and step
 * end, until the data or the steps are over; the chief also begins the job,
 * saves, evaluates and ends it.
 */
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
    const struct rps_reader_options options = {
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
    };
    rps_status status =
            rps_reader_create(&loop->reader, run->data, &options, &run->error);

    run->data_failed = status != RPS_OK;
    loop->spent.depth = options.depth;
    loop->spent.moved = moved_bytes;
    loop->spent.moved_context = run->client;
    loop->spent.is_profiled = false; /* another client counts anew */
    loop->fetch = (struct rps_fetch){
            .tables = &run->tables,
            .reader = loop->reader,
            .spent = &loop->spent,
            .looks_ahead =
                    rps_server_transport(run->client, 0) != RPS_TRANSPORT_LOCAL,
    };
    return status;
}

static void
close_stages(struct rps_loop *loop)
{
    if (loop->reader != NULL) {
        rps_fetch_cancel(&loop->fetch);
        loop->spent.reader = rps_reader_times(loop->reader);
    }
    rps_reader_destroy(loop->reader);
    loop->reader = NULL;
}

static rps_status
next_turn(struct rps_loop *loop, struct rps_turn **turn_out)
{
    struct rps_run *run = loop->run;
    rps_status status;

    rps_spent_on(&loop->spent, RPS_SPENT_READ);
    status = rps_reader_take(loop->reader, turn_out, &run->error);
    run->data_failed = status != RPS_OK;
    loop->position.epoch = (*turn_out)->epoch;
    loop->position.batch = (*turn_out)->next_batch;
    return status;
}

/*
 * The rows that a replica's gradient is the mean over: of the step's whole
 * batch where contributions are summed; of its own batch where the servers
 * take the mean, and in async, where each push is a step of its own.
 */
static double
loss_scale(const struct rps_run *run)
{
    const bool whole = run->terms.mode == RPS_MODE_SYNC &&
                       run->terms.combine == RPS_COMBINE_SUM;

    return 1.0 / (double)(whole ? rps_global_batch(run->settings)
                                : run->settings->options->batch_size);
}

/* Once, until it is finite again. */
static void
say_if_broken(struct rps_loop *loop, double loss)
{
    if (!isfinite(loss) && !loop->broken) {
        rps_run_say(loop->run,
                "loss of step %" PRIu64 " is not finite: the learning rates "
                "or the start values may be too large; rows whose gradient "
                "is not finite do not change",
                loop->step + 1);
    }
    loop->broken = !isfinite(loss);
}

/* After each halving, and once where the factor stays. */
static void
say_if_skipped(struct rps_loop *loop, double factor, bool before)
{
    const double next = rps_loss_scale_factor(&loop->scale);
    const bool halved = next < factor;

    if (loop->skipped && (halved || !before)) {
        rps_run_say(loop->run,
                "step %" PRIu64 ": a gradient is not finite at loss scale "
                "%.17g; nothing is pushed, %s %.17g",
                loop->step + 1, factor,
                halved ? "the loss scale is now" : "it stays", next);
    }
}

/* Loss and gradients, as without a loss scale. False: an overflow. */
static bool
run_model(struct rps_loop *loop, struct rps_model_input *input, double *loss)
{
    struct rps_run *run = loop->run;
    const double factor = rps_loss_scale_factor(&loop->scale);
    const bool before = loop->skipped;

    input->loss_scale = loss_scale(run) * factor;
    rps_model_run(run->model, input, NULL, loss);
    *loss /= factor;
    say_if_broken(loop, *loss);
    if (!rps_loss_scale_is_on(&loop->scale)) {
        return true;
    }
    loop->skipped = !rps_loss_scale_remove(&loop->scale, run->model, input);
    rps_loss_scale_step(&loop->scale, !loop->skipped);
    say_if_skipped(loop, factor, before);
    return !loop->skipped;
}

/* What the model wrote goes to every server; rates NULL: nothing does. */
static rps_status
push(struct rps_loop *loop, struct rps_turn *turn,
        const struct rps_rates *rates)
{
    struct rps_run *run = loop->run;
    rps_ticket ticket;
    rps_status status;

    rps_spent_on(&loop->spent, RPS_SPENT_PUSH);
    status = rps_tables_push(
            &run->tables, turn->bags, turn->step, rates, &ticket, &run->error);
    if (status == RPS_OK) {
        rps_spent_on(&loop->spent, RPS_SPENT_PUSH_WAIT);
        status = rps_tables_push_wait(
                &run->tables, turn->step, ticket, &run->error);
    }
    return status;
}

/* Gradients, and a flag a row, that a rank has in the group's sum. */
static uint64_t
reduced_bytes(const struct rps_model *model)
{
    uint64_t rows = 0;

    for (uint32_t v = 0; v < model->variable_count; v++) {
        rows += model->variables[v].rows;
    }
    return rows * (RPS_DENSE_ROW_FLOATS + 1) * sizeof(float);
}

/* Read, fetch, compute, push. *loss_out is this replica's part. */
static rps_status
compute(struct rps_loop *loop, const struct rps_rates *rates, double *loss_out)
{
    struct rps_model_input input;
    struct rps_turn *turn;
    bool finite;
    rps_status status = next_turn(loop, &turn);

    if (status == RPS_OK) {
        status = rps_fetch(&loop->fetch, turn, &input, &loop->run->error);
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_spent_on(&loop->spent, RPS_SPENT_COMPUTE);
    finite = run_model(loop, &input, loss_out);
    if (loop->run->group != NULL) {
        rps_spent_on(&loop->spent, RPS_SPENT_ALLREDUCE);
        loop->spent.reduced = reduced_bytes(loop->run->model);
        status = rps_group_step(loop->run->group, turn->step, rates->dense,
                !finite, &loop->run->error);
    }
    return status == RPS_OK ? push(loop, turn, finite ? rates : NULL) : status;
}

/* What this replica asks for at the end of the step in hand. */
static uint32_t
wishes_of(struct rps_loop *loop, uint64_t step)
{
    const struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;
    const uint64_t every = settings->options->save_steps;
    const bool alone = settings->replicas == 1;
    uint32_t wishes = 0;

    if (rps_stop_signal() != 0) {
        /* a group's ranks end at one step, whoever was told */
        if ((!settings->is_chief && run->group == NULL) || alone) {
            loop->last_step = step;
        } else if (step < loop->last_step) {
            wishes |= RPS_WISH_STOP;
        }
    }
    if (step >= loop->last_step) {
        return RPS_WISH_LEAVE;
    }
    if (settings->is_chief &&
            ((every > 0 && step % every == 0) || loop->save_due)) {
        wishes |= RPS_WISH_SAVE;
        loop->save_due = false;
    }
    return wishes;
}

/* What the decision asks of this replica. */
static rps_status
obey(struct rps_loop *loop, const rps_decision *decision)
{
    struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;

    if ((decision->wishes & RPS_WISH_STOP) != 0 &&
            loop->step < loop->last_step) {
        /* one more step: `leave` goes with the end of a step */
        loop->last_step = loop->step + 1;
    }
    if (!settings->is_chief || !run->can_save || loop->left) {
        return RPS_OK; /* the last save is finish()'s */
    }
    if ((decision->wishes & RPS_WISH_SAVE) != 0) {
        loop->save_at = decision->save_step > loop->step ? decision->save_step
                                                         : loop->step;
    }
    if (loop->save_at != 0 && loop->step >= loop->save_at) {
        loop->save_at = 0;
        return rps_loop_save(loop);
    }
    return rps_loop_save_poll(loop);
}

/* Of the client, so far. */
static uint64_t
round_trips(const struct rps_run *run)
{
    rps_traffic traffic;

    rps_client_traffic(run->client, &traffic);
    return traffic.round_trips;
}

/* factor: the loss scale that the step had; 0: none. */
static rps_status
report_step(struct rps_loop *loop, double own_loss, double factor,
        const struct rps_rates *rates, const rps_decision *decision)
{
    struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;
    const bool sync = run->terms.mode == RPS_MODE_SYNC;
    const struct rps_model *model = run->model;
    struct rps_report_rate tables[RPS_MODEL_TABLES_MAX];
    struct rps_report_step step = {
            .step = loop->step,
            .epoch = run->epoch,
            .loss = sync ? decision->loss : own_loss,
            .samples = rps_global_batch(settings),
            .sparse_lr = rates->sparse[0],
            .dense_lr = rates->dense,
            .rates = tables,
            .rate_count = model->table_count > 1 ? model->table_count : 0,
            .loss_scale = factor,
            .skipped = loop->skipped,
            .skipped_steps = loop->scale.skipped,
            .round_trips = loop->trips_of_step,
            .counted = sync && settings->replicas > 1 ? decision->counted : 0,
    };

    for (uint32_t t = 0; t < model->table_count; t++) {
        tables[t].table = model->tables[t].name;
        tables[t].rate = rates->sparse[t];
    }

    loop->loss = step.loss;
    return rps_report_step(run->report, &step, &run->error);
}

/* A step that went without this replica (backup workers): its push is
 * dropped, and so are its rows of the steps up to the newest. */
static rps_status
catch_up(struct rps_loop *loop, uint64_t step, const rps_decision *decision)
{
    const uint64_t newest =
            decision->step < loop->last_step ? decision->step : loop->last_step;
    rps_status status = RPS_OK;
    struct rps_turn *turn;

    if (decision->included || loop->left) {
        return RPS_OK;
    }
    /* the one that it ended too late, and those up to the newest */
    loop->uncounted += 1 + newest - step;
    for (; status == RPS_OK && step < newest; step++) {
        status = next_turn(loop, &turn);
        rps_fetch_drop(&loop->fetch, turn);
    }
    return status;
}

/* Who left, or was given up. */
static void
say_if_gone(struct rps_loop *loop, const rps_decision *decision)
{
    if (decision->gone > 0) {
        rps_run_say(loop->run,
                "step %" PRIu64 " goes on without rank %" PRIu32
                "%s, which left or is lost: it counts %" PRIu32 " of %" PRIu32
                " replicas",
                decision->step, decision->gone_rank,
                decision->gone > 1 ? " and others" : "", decision->counted,
                loop->run->settings->replicas);
    }
}

static rps_status
one_step(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    const uint64_t step = loop->step + 1;
    const uint64_t before = round_trips(run);
    rps_decision decision = {0};
    double loss = NAN;
    uint32_t wishes;
    const struct rps_rates rates =
            rps_settings_rates(run->settings, loop->step);
    const double factor = rps_loss_scale_is_on(&loop->scale)
                                  ? rps_loss_scale_factor(&loop->scale)
                                  : 0.0;
    rps_status status;

    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    rps_profiling_step(step);
    status = compute(loop, &rates, &loss);
    if (status != RPS_OK) {
        return status;
    }
    wishes = wishes_of(loop, step);
    rps_spent_on(&loop->spent, RPS_SPENT_STEP_END);
    status = rps_step_end(run->client, step, loss, wishes, &decision);
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "end of the step");
    }
    /* leaving last, the chief learns the others' last step */
    loop->step = decision.step > step ? decision.step : step;
    loop->ways_back = 0;
    loop->left = (wishes & RPS_WISH_LEAVE) != 0;
    loop->trips_of_step = round_trips(run) - before;
    loop->spent.round_trips += loop->trips_of_step;
    loop->spent.steps++;
    say_if_gone(loop, &decision);
    status = catch_up(loop, step, &decision);
    if (status != RPS_OK) {
        return status;
    }
    status = report_step(loop, loss, factor, &rates, &decision);
    return status == RPS_OK ? obey(loop, &decision) : status;
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
        status = loop->step < loop->last_step ? one_step(loop)
                                              : leave_at(loop, loop->step);
    }
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    rps_profiling_step(0);
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
    if (status == RPS_OK && evaluates) {
        status = rps_run_evaluate(run, NULL, &end);
    }
    if (status == RPS_OK) {
        rps_run_say_skipped(run);
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
end_profile(struct rps_run *run, rps_status status)
{
    struct rps_error error;
    const rps_status ended = rps_profiling_end(run, &error);

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
        status = run_loop(&loop);
    }
    return end_profile(run, status);
}
