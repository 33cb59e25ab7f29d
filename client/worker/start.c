/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a replica begins: the chief's start of the job, the join of all, the
 * place in the data, the steps that are left.
 */
#include "base/terms.h"
#include "client/worker/alike.h"
#include "client/worker/deterministic.h"
#include "client/worker/loop.h"
#include "client/worker/warm.h"

#include <recps/recover.h>

#include <inttypes.h>
#include <stdlib.h>

/* With --recover the newest step is what the job goes back to: one that
 * begins before it would jump there. */
static rps_status
check_restore_step(const struct rps_loop *loop, uint64_t step)
{
    struct rps_run *run = loop->run;
    uint64_t newest = 0;
    rps_status status;

    if (!run->settings->terms.recover || run->settings->restore_step == 0) {
        return RPS_OK;
    }
    status = rps_newest_checkpoint(run->client, &newest);
    if (status != RPS_OK) {
        return rps_run_client_failed(run, status, "looking for checkpoints");
    }
    return newest <= step
                   ? RPS_OK
                   : rps_fail(&run->error, RPS_E_INVAL,
                             "--restore=%" PRIu64 " with --recover: "
                             "checkpoint_dir has later steps, up to %" PRIu64
                             ", to which a lost process would take the job: "
                             "move them away, or leave --recover out",
                             step, newest);
}

/* Of a run that nobody knows yet. */
static rps_status
first_step(const struct rps_loop *loop, uint64_t *step_out)
{
    struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;
    rps_status status = RPS_OK;

    if (settings->restore_if_any) {
        status = rps_newest_checkpoint(run->client, step_out);
        return status == RPS_OK ? RPS_OK
                                : rps_run_client_failed(run, status,
                                          "looking for checkpoints");
    }
    if (settings->restore) {
        status = rps_run_restore_step(run, step_out);
        return status == RPS_OK ? check_restore_step(loop, *step_out) : status;
    }
    return run->can_save ? rps_run_check_no_checkpoint(run) : RPS_OK;
}

rps_status
rps_loop_begin(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    const struct rps_settings *settings = run->settings;
    rps_start start = {0};
    uint64_t step = 0;
    bool again = false;
    bool warm = false;
    rps_status status = rps_loop_look_back(loop, &again, &step);

    if (status == RPS_OK && !again) {
        status = first_step(loop, &step);
    }
    if (status != RPS_OK) {
        return status;
    }
    warm = rps_warm_applies(run, step);
    status = warm ? rps_warm_begin(run, step, &start)
                  : rps_job_begin_again(run->client, step, &settings->terms,
                            again ? loop->reason : NULL, &start);
    free(start.data_position);
    if (status != RPS_OK) {
        return warm ? status
                    : rps_run_client_failed(run, status, "beginning the job");
    }
    if (step > 0 && !warm) {
        status = rps_tables_check_restored(&run->tables, &run->error);
    }
    if (status == RPS_OK) {
        status = rps_tables_open(&run->tables, &run->error);
    }
    if (status == RPS_OK && (step == 0 || warm)) {
        status = rps_run_init_from(run);
    }
    return status;
}

/* The chief's terms hold for all; which rows are whose follows from the
 * number of replicas, so that it must be one. */
static rps_status
take_terms(struct rps_run *run, const rps_terms *terms)
{
    const struct rps_settings *own = run->settings;

    if (terms->replica_count != own->replicas) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "the chief began the job with %u replicas, this process "
                "(rank %u) counts %u: give all of them the same cluster in "
                "TF_CONFIG, or the same --num-workers",
                terms->replica_count, own->rank, own->replicas);
    }
    if (own->options->deterministic) {
        rps_status status = rps_deterministic_check_terms(terms, &run->error);

        if (status != RPS_OK) {
            return status;
        }
    }
    run->terms = *terms;
    if (own->in_group && terms->mode != RPS_MODE_SYNC) {
        return rps_fail(&run->error, RPS_E_INVAL,
                "the chief's --mode %s holds, which does not go with this "
                "replica's --dense allreduce: give all of them the same "
                "options",
                rps_terms_mode(terms).text);
    }
    if (terms->mode != own->terms.mode ||
            terms->staleness != own->terms.staleness ||
            terms->combine != own->terms.combine) {
        rps_run_say(run,
                "the chief's --mode %s --combine %s hold, not this "
                "replica's --mode %s --combine %s",
                rps_terms_mode(terms).text, rps_terms_combine(terms),
                rps_terms_mode(&own->terms).text,
                rps_terms_combine(&own->terms));
    }
    return RPS_OK;
}

/* The checkpoint does not say where the data stood (servers wrote it by
 * themselves): as after that many steps from the start. */
static void
guess_position(struct rps_loop *loop)
{
    if (loop->step == 0 || loop->batches == 0) {
        return;
    }
    loop->position.epoch = loop->step / loop->batches;
    loop->position.batch = loop->step % loop->batches;
    if (loop->run->settings->is_chief) {
        rps_run_say(loop->run,
                "restore: the checkpoint has no data position; going on where "
                "%" PRIu64 " steps from the start would be: epoch %" PRIu64
                ", batch %" PRIu64,
                loop->step, loop->position.epoch + 1, loop->position.batch);
    }
}

/* Where the data goes on. */
static rps_status
take_position(struct rps_loop *loop, const char *text)
{
    struct rps_run *run = loop->run;
    struct rps_position saved;
    const char *what;
    char *data;
    rps_status status;

    if (text == NULL) {
        guess_position(loop);
        return RPS_OK;
    }
    status = rps_position_read(text, &saved, &data, &run->error);
    if (status != RPS_OK) {
        return status;
    }
    if (rps_position_recount(&saved, &loop->position, &what) &&
            run->settings->is_chief) {
        rps_run_say(run,
                "restore: %s differs from the checkpoint's; going on at "
                "epoch %" PRIu64 ", batch %" PRIu64,
                what, loop->position.epoch + 1, loop->position.batch);
    }
    free(data);
    return RPS_OK;
}

/* Steps that the data has left, and --steps. */
static void
plan_steps(struct rps_loop *loop)
{
    const struct rps_options *options = loop->run->settings->options;
    const struct rps_position *at = &loop->position;
    uint64_t left = 0;

    if (at->epoch < options->epochs) {
        left = (options->epochs - at->epoch) * loop->batches - at->batch;
    }
    loop->last_step = loop->step + left;
    if (options->steps > 0 && options->steps < loop->last_step) {
        loop->last_step =
                options->steps > loop->step ? options->steps : loop->step;
    }
}

/* Dense variables from rank 0 to all. */
static rps_status
begin_group(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    char words[128];
    rps_status status = rps_group_begin(run->group, &run->tables,
            loop->step > 0, run->terms.combine, &run->error);

    if (status == RPS_OK && run->settings->is_chief) {
        rps_run_say(run, "%s", rps_group_describe(run->group, words));
    }
    return status;
}

/* As at the first start, whatever was in hand. */
static void
reset(struct rps_loop *loop, const rps_start *start)
{
    loop->run->epoch = start->epoch;
    loop->step = start->step;
    loop->first_step = start->step;
    loop->saved = start->step;
    loop->position.epoch = 0;
    loop->position.batch = 0;
    loop->saving = 0; /* what was begun before is the old epoch's */
    loop->save_at = 0;
    loop->save_due = false;
    loop->scale = loop->run->settings->loss_scale;
    loop->skipped = false;
    loop->broken = false;
    loop->left = false;
    loop->goes_back = false;
}

/* The job ended while this replica, which left or came too late, waited. */
static rps_status
end_waiting(struct rps_loop *loop, rps_status status)
{
    if (status != RPS_E_CANCELED || !loop->recovers) {
        return rps_run_client_failed(loop->run, status, "joining the job");
    }
    loop->ended = true;
    return RPS_OK;
}

rps_status
rps_loop_join(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    rps_start start = {0};
    rps_status status;

    status = rps_run_say_alike(run);
    if (status != RPS_OK) {
        return status;
    }
    rps_stop_waits(rps_run_waiting_words(run));
    status = rps_job_join(run->client, &start);
    rps_stop_waits(NULL);
    if (status != RPS_OK) {
        return end_waiting(loop, status);
    }
    status = rps_loop_say_back(loop, &start);
    reset(loop, &start);
    if (status == RPS_OK) {
        status = take_terms(run, &start.terms);
    }
    if (status == RPS_OK) {
        status = take_position(loop, start.data_position);
    }
    free(start.data_position);
    if (status == RPS_OK && !run->settings->is_chief) {
        status = rps_tables_open(&run->tables, &run->error);
    }
    if (status == RPS_OK && run->group != NULL) {
        status = begin_group(loop);
    }
    plan_steps(loop);
    return status;
}
