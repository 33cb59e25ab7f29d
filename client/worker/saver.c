/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the chief's saving: begun between two steps, moved after each, waited
 * for at the end. Wishes that come meanwhile are queued by the client, which
 * tells the next step's end of them when the save is over.
 */
#include "base/clock.h"
#include "client/worker/loop.h"

#include <recps/save.h>

#include <inttypes.h>
#include <stdlib.h>

#define TELL_MS 10000u

/* With it nothing more can be done: the next request would say the same. */
static bool
is_fatal(rps_status status)
{
    return status == RPS_E_UNREACHABLE || status == RPS_E_ROLLED_BACK ||
           status == RPS_E_AUTH || status == RPS_E_FORKED ||
           status == RPS_E_INVAL;
}

static void
say_saved(struct rps_loop *loop, const rps_saved *saved)
{
    char kind[64] = "full";

    if (saved->delta != 0) {
        (void)snprintf(kind, sizeof(kind), "a delta on step %" PRIu64,
                saved->parent_step);
    }
    rps_run_say(loop->run,
            "saved step %" PRIu64 ": %s, %" PRIu64 " rows, %.1f MB in %.1f s;"
            " the servers stood still for %.1f ms",
            saved->step, kind, saved->rows, (double)saved->bytes / 1e6,
            (double)saved->ms / 1e3, (double)saved->pause_us / 1e3);
}

/* What came of it, said. `must`: a failure is the run's. */
static rps_status
take_result(struct rps_loop *loop, rps_status status, const rps_saved *saved,
        bool must)
{
    struct rps_run *run = loop->run;
    const uint64_t step = loop->saving;

    loop->saving = 0;
    if (status == RPS_OK) {
        loop->saved = saved->step;
        say_saved(loop, saved);
        return RPS_OK;
    }
    if (must || is_fatal(status)) {
        return rps_run_client_failed(run, status, "saving");
    }
    loop->save_due = status == RPS_E_RETRY_LATER;
    rps_run_say(run, "step %" PRIu64 " is not saved: %s; training goes on%s",
            step, rps_client_error(run->client),
            loop->save_due ? ", the next step asks again" : "");
    return RPS_OK;
}

/* Dense variables of --dense allreduce go to the servers first. */
static rps_status
publish(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;

    return run->group != NULL
                   ? rps_group_publish(run->group, &run->tables, &run->error)
                   : RPS_OK;
}

static rps_status
begin(struct rps_loop *loop, bool must)
{
    struct rps_run *run = loop->run;
    const struct rps_options *options = run->settings->options;
    char *text = rps_position_text(&loop->position);
    const rps_save_plan plan = {.step = loop->step,
            .data_position = text,
            .keep = (uint32_t)options->keep,
            .deltas_max = (uint32_t)options->save_deltas,
            .now = run->group != NULL};
    rps_status status;

    if (text == NULL) {
        return rps_fail(
                &run->error, RPS_E_NOMEM, "no memory for the data position");
    }
    status = rps_save_begin(run->client, &plan);
    free(text);
    loop->saving = loop->step;
    loop->saving_ms = rps_clock_ms();
    loop->saving_told_ms = loop->saving_ms;
    return status == RPS_OK ? RPS_OK : take_result(loop, status, NULL, must);
}

rps_status
rps_loop_save(struct rps_loop *loop)
{
    rps_status status;

    rps_spent_on(&loop->spent, RPS_SPENT_SAVE);
    status = publish(loop);
    if (status == RPS_OK) {
        status = begin(loop, false);
    }
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    return status;
}

static void
say_saving(struct rps_loop *loop)
{
    const uint64_t now = rps_clock_ms();

    if (now - loop->saving_told_ms >= TELL_MS) {
        loop->saving_told_ms = now;
        rps_run_say(loop->run,
                "saving step %" PRIu64 " since %.0f s; training goes on",
                loop->saving, (double)(now - loop->saving_ms) / 1e3);
    }
}

rps_status
rps_loop_save_poll(struct rps_loop *loop)
{
    rps_saved saved;
    rps_status status;
    int done = 0;

    if (loop->saving == 0) {
        return RPS_OK;
    }
    rps_spent_on(&loop->spent, RPS_SPENT_SAVE);
    status = rps_save_poll(loop->run->client, &done, &saved);
    if (done != 0 || status != RPS_OK) {
        status = take_result(loop, status, &saved, false);
    } else {
        say_saving(loop);
    }
    rps_spent_on(&loop->spent, RPS_SPENT_OTHER);
    return status;
}

static rps_status
wait(struct rps_loop *loop, bool must)
{
    rps_saved saved = {0};
    rps_status status = RPS_E_TIMEOUT;

    while (loop->saving != 0) {
        status = rps_save_wait(loop->run->client, TELL_MS, &saved);
        if (status == RPS_E_TIMEOUT && saved.step == 0) {
            rps_run_say(loop->run, "saving step %" PRIu64 " since %.0f s",
                    loop->saving,
                    (double)(rps_clock_ms() - loop->saving_ms) / 1e3);
            continue;
        }
        return take_result(loop, status, &saved, must);
    }
    return RPS_OK;
}

rps_status
rps_loop_save_last(struct rps_loop *loop)
{
    rps_status status = wait(loop, loop->saving == loop->step);

    if (status == RPS_OK && loop->saved != loop->step) {
        status = publish(loop);
        if (status == RPS_OK) {
            status = begin(loop, true);
        }
        if (status == RPS_OK) {
            status = wait(loop, true);
        }
    }
    return status;
}
