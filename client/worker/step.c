/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step, in two halves: what is before the model (a batch, its rows) and
 * what is after it (allreduce, push, the end of the step, what is reported,
 * saved and wished for). What computes the model stands between them: plain
 * calls (train.c), or a device's compiled step, which calls both
 * (device_step.c).
 */
#include "client/worker/admin_port.h"
#include "client/worker/dumping.h"
#include "client/worker/loop.h"
#include "client/worker/profiling.h"

#include <inttypes.h>
#include <math.h>

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

/* The factor goes out of the loss and the gradients again. */
static void
judge(struct rps_loop *loop, struct rps_loop_step *step)
{
    const double factor = rps_loss_scale_factor(&loop->scale);
    const bool before = loop->skipped;

    step->loss /= factor;
    say_if_broken(loop, step->loss);
    if (!rps_loss_scale_is_on(&loop->scale)) {
        return;
    }
    rps_dumping_unscale(loop, step, false);
    step->finite =
            rps_loss_scale_remove(&loop->scale, loop->run->model, &step->input);
    rps_dumping_unscale(loop, step, true);
    loop->skipped = !step->finite;
    rps_loss_scale_step(&loop->scale, step->finite);
    say_if_skipped(loop, factor, before);
}

/* What the model wrote goes to every server, if it is finite. */
static rps_status
push(struct rps_loop *loop, const struct rps_loop_step *step)
{
    struct rps_run *run = loop->run;
    const struct rps_tables_push what = {
            .step = step->number,
            .bags = step->turn->bags,
            .pooled_gradients = step->input.pooled_gradients,
            .rates = step->finite ? &step->rates : NULL,
    };
    rps_ticket ticket;
    rps_status status;

    rps_spent_on(&loop->spent, RPS_SPENT_PUSH);
    if (!step->finite && loop->fetch.rows != NULL) {
        rps_device_rows_unpushed(loop->fetch.rows, step->turn);
    }
    status = rps_tables_push(&run->tables, &what, &ticket, &run->error);
    if (status == RPS_OK) {
        rps_spent_on(&loop->spent, RPS_SPENT_PUSH_WAIT);
        status = rps_tables_push_wait(
                &run->tables, step->number, ticket, &run->error);
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

static rps_status
sum_and_push(struct rps_loop *loop, struct rps_loop_step *step)
{
    struct rps_run *run = loop->run;
    rps_status status = RPS_OK;

    if (run->group != NULL) {
        rps_spent_on(&loop->spent, RPS_SPENT_ALLREDUCE);
        loop->spent.reduced = reduced_bytes(run->model);
        status = rps_group_step(run->group, step->number, step->rates.dense,
                !step->finite, &run->error);
    }
    return status == RPS_OK ? push(loop, step) : status;
}

/* SIGUSR1 is a wish that the chief carries out. In a group every rank is told
 * of it, the chief, too. */
static void
take_save_wish(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    rps_status status = RPS_OK;

    if (!rps_save_signal()) {
        return;
    }
    if (!run->can_save) {
        rps_run_say(
                run, "SIGUSR1: nothing is saved: there is no checkpoint_dir");
    } else if (run->settings->is_chief) {
        loop->save_due = true;
    } else if (run->group == NULL) {
        status = rps_wish(run->client, RPS_WISH_SAVE);
    }
    if (status != RPS_OK) {
        rps_run_say(run, "SIGUSR1: nothing is saved: %s",
                rps_client_error(run->client));
    }
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

    take_save_wish(loop);
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

static rps_status
report_step(struct rps_loop *loop, const struct rps_loop_step *own,
        const rps_decision *decision)
{
    struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;
    const bool sync = run->terms.mode == RPS_MODE_SYNC;
    const struct rps_model *model = run->model;
    struct rps_report_rate tables[RPS_MODEL_TABLES_MAX];
    struct rps_report_step step = {
            .step = loop->step,
            .epoch = run->epoch,
            .loss = sync ? decision->loss : own->loss,
            .samples = rps_global_batch(settings),
            .sparse_lr = own->rates.sparse[0],
            .dense_lr = own->rates.dense,
            .rates = tables,
            .rate_count = model->table_count > 1 ? model->table_count : 0,
            .loss_scale = own->factor,
            .skipped = loop->skipped,
            .skipped_steps = loop->scale.skipped,
            .round_trips = loop->trips_of_step,
            .counted = sync && settings->replicas > 1 ? decision->counted : 0,
    };

    for (uint32_t t = 0; t < model->table_count; t++) {
        tables[t].table = model->tables[t].name;
        tables[t].rate = own->rates.sparse[t];
    }

    loop->loss = step.loss;
    rps_admin_port_step(run->admin_port,
            &(struct rps_admin_step){.step = step.step,
                    .epoch = step.epoch,
                    .loss = step.loss,
                    .samples = settings->options->batch_size,
                    .spent = &loop->spent,
                    .cache = rps_device_rows_tell(loop->fetch.rows)});
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
        loop->passed++;
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

rps_status
rps_loop_before(struct rps_loop *loop, struct rps_loop_step *step)
{
    struct rps_run *run = loop->run;
    rps_status status;

    *step = (struct rps_loop_step){
            .number = loop->step + 1,
            .rates = rps_settings_rates(run->settings, loop->step),
            .round_trips = round_trips(run),
            .loss = NAN,
            .finite = true,
    };
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    rps_profiling_step(run, step->number);
    if (rps_loss_scale_is_on(&loop->scale)) {
        step->factor = rps_loss_scale_factor(&loop->scale);
    }
    status = next_turn(loop, &step->turn);
    if (status == RPS_OK) {
        status = rps_fetch(&loop->fetch, step->turn, &run->error);
    }
    step->loss_scale = loss_scale(run) * rps_loss_scale_factor(&loop->scale);
    return status;
}

/* Since the step before ended. */
static void
count_bytes(struct rps_loop *loop)
{
    rps_traffic now;

    rps_client_traffic(loop->run->client, &now);
    loop->spent.sent_bytes += now.sent_bytes - loop->traffic.sent_bytes;
    loop->spent.received_bytes +=
            now.received_bytes - loop->traffic.received_bytes;
    loop->traffic = now;
}

/* The answer to a step that this replica ended. */
static rps_status
take_decision(struct rps_loop *loop, const struct rps_loop_step *step,
        const rps_decision *decision)
{
    rps_status status;

    loop->ways_back = 0;
    loop->trips_of_step = round_trips(loop->run) - step->round_trips;
    loop->spent.round_trips += loop->trips_of_step;
    count_bytes(loop);
    loop->spent.steps++;
    say_if_gone(loop, decision);
    status = catch_up(loop, step->number, decision);
    if (status == RPS_OK) {
        status = report_step(loop, step, decision);
    }
    return status == RPS_OK ? obey(loop, decision) : status;
}

rps_status
rps_loop_after(struct rps_loop *loop, struct rps_loop_step *step)
{
    struct rps_run *run = loop->run;
    const uint64_t number = step->number;
    rps_decision decision = {0};
    uint32_t wishes;
    rps_status status;

    judge(loop, step);
    status = sum_and_push(loop, step);
    if (status != RPS_OK) {
        return status;
    }
    rps_dumping_pushed(loop, step);
    wishes = wishes_of(loop, number);
    rps_spent_on(&loop->spent, RPS_SPENT_STEP_END);
    status = rps_step_end(run->client, number, step->loss, wishes, &decision);
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "end of the step");
    }
    /* leaving last, the chief learns the others' last step */
    loop->step = decision.step > number ? decision.step : number;
    loop->left = (wishes & RPS_WISH_LEAVE) != 0;
    return take_decision(loop, step, &decision);
}
