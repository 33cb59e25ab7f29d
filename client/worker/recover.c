/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --recover: the way back of a replica. Whatever was lost, it drops what it has
 * in hand, opens a new client (so no old request is ever sent again), and
 * begins as at its first start: the chief with a new epoch at the newest
 * complete step that every server has, the others in the join.
 */
#include "base/clock.h"
#include "base/text.h"
#include "client/worker/loop.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAUSE_MS_MAX 1000u /* between two ways back without a step */

/** What the servers know of the job. Zeroed is empty. */
struct standing {
    uint64_t epoch;   /* largest that anybody or any manifest has */
    uint64_t living;  /* largest that a server is in */
    uint64_t step;    /* largest applied, of servers in that one */
    uint64_t *epochs; /* owned [count] */
    uint32_t count;
    struct rps_text ranks; /* "1, 2": replicas that are here again */
};

/* --- what there is -------------------------------------------------------- */

static uint64_t
number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) && json_integer_value(value) > 0
                   ? (uint64_t)json_integer_value(value)
                   : 0;
}

static void
add_members(struct standing *standing, const json_t *members)
{
    const json_t *member;
    size_t i;

    json_array_foreach(members, i, member)
    {
        const uint64_t rank = number_of(member, "rank");

        if (rank > 0 && json_is_true(json_object_get(member, "restarting"))) {
            rps_text_add(&standing->ranks, "%s%" PRIu64,
                    standing->ranks.length > 0 ? ", " : "", rank);
        }
    }
}

static void
add_server(struct standing *standing, const json_t *stat)
{
    static const char *const known[] = {
            "epoch", "epoch_known", "checkpoint_epoch"};
    const uint64_t epoch = number_of(stat, "epoch");
    const uint64_t step = number_of(stat, "step");

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        const uint64_t value = number_of(stat, known[i]);

        standing->epoch = value > standing->epoch ? value : standing->epoch;
    }
    if (epoch > standing->living) {
        standing->living = epoch;
        standing->step = 0;
    }
    if (epoch == standing->living && step > standing->step) {
        standing->step = step;
    }
    standing->epochs[standing->count++] = epoch;
    add_members(standing, json_object_get(stat, "members"));
}

static void
standing_finish(struct standing *standing)
{
    rps_text_finish(&standing->ranks);
    free(standing->epochs);
}

static rps_status
ask_standing(struct rps_run *run, struct standing *standing)
{
    const uint32_t count = rps_server_count(run->client);
    rps_status status = RPS_OK;

    standing->epoch = run->epoch;
    standing->epochs = calloc(count, sizeof(*standing->epochs));
    if (standing->epochs == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory to go back");
    }
    for (uint32_t ps = 0; status == RPS_OK && ps < count; ps++) {
        json_t *stat = NULL;

        status = rps_run_read_stat(run, ps, &stat);
        if (status == RPS_OK) {
            add_server(standing, stat);
        }
        json_decref(stat);
    }
    return status;
}

/* "PS 1 was lost": a server that is behind has begun anew. Else it was a
 * replica, this one if it is a new process; or nobody, and `else_words` say
 * what happened. */
static void
name_reason(char reason[RPS_REASON_BYTES], const struct standing *standing,
        bool new_process, const char *else_words)
{
    struct rps_text text = {0};
    uint32_t lost = 0;

    for (uint32_t ps = 0; ps < standing->count; ps++) {
        if (standing->epochs[ps] < standing->epoch) {
            rps_text_add(&text, "%s%" PRIu32, lost++ == 0 ? "PS " : ", ", ps);
        }
    }
    if (lost > 0) {
        rps_text_add(&text, lost > 1 ? " were lost" : " was lost");
    } else if (standing->ranks.length > 0 && standing->ranks.bytes != NULL) {
        rps_text_add(&text, "rank %s was lost", standing->ranks.bytes);
    } else {
        rps_text_add(
                &text, "%s", new_process ? "the chief was lost" : else_words);
    }
    (void)snprintf(reason, RPS_REASON_BYTES, "%.*s", RPS_REASON_BYTES - 1,
            text.bytes != NULL && !text.failed ? text.bytes : "?");
    rps_text_finish(&text);
}

/* Do the servers, or who started this process, know the job already? */
static bool
is_running(const struct rps_loop *loop, const struct standing *standing)
{
    return loop->goes_back || loop->run->settings->restart_count > 0 ||
           standing->living > 0;
}

rps_status
rps_loop_look_back(struct rps_loop *loop, bool *again_out, uint64_t *step_out)
{
    struct rps_run *run = loop->run;
    struct standing standing = {0};
    rps_status status;

    *again_out = false;
    if (!run->settings->terms.recover) {
        return RPS_OK;
    }
    status = ask_standing(run, &standing);
    if (status == RPS_OK && is_running(loop, &standing)) {
        *again_out = true;
        if (!loop->goes_back) {
            loop->step = standing.step;
        }
        name_reason(loop->reason, &standing, !loop->goes_back, loop->lost.text);
        status = rps_newest_checkpoint(run->client, step_out);
        if (status != RPS_OK) {
            (void)rps_run_client_failed(run, status, "looking for checkpoints");
        }
    }
    standing_finish(&standing);
    return status;
}

/* --- the way back --------------------------------------------------------- */

bool
rps_loop_may_go_back(const struct rps_loop *loop, rps_status status)
{
    const struct rps_run *run = loop->run;

    if (!loop->recovers || loop->finished || run->client == NULL ||
            rps_stop_signal() != 0) {
        return false;
    }
    /* RETRY_LATER: a server that is about to end */
    return status == RPS_E_ROLLED_BACK || status == RPS_E_UNREACHABLE ||
           status == RPS_E_TIMEOUT || status == RPS_E_RETRY_LATER;
}

/* Twice as long each time, where no step ended in between. */
static void
pause_before(struct rps_loop *loop)
{
    uint32_t ms = loop->ways_back < 8 ? 4u << loop->ways_back : PAUSE_MS_MAX;
    struct timespec pause;

    ms = ms < PAUSE_MS_MAX ? ms : PAUSE_MS_MAX;
    pause = (struct timespec){ms / 1000, (long)(ms % 1000) * 1000000L};
    loop->ways_back++;
    (void)nanosleep(&pause, NULL);
}

/* Nothing of the old client is used again; a signal ends the wait. */
static rps_status
open_again(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;

    rps_tables_finish(&run->tables);
    memset(&run->tables, 0, sizeof(run->tables));
    rps_client_close(run->client);
    run->client = NULL;
    pause_before(loop);
    return rps_run_open_client(run);
}

rps_status
rps_loop_go_back(struct rps_loop *loop)
{
    struct rps_run *run = loop->run;
    rps_status status;

    do {
        loop->lost = run->error;
        rps_run_say(run, "lost at step %" PRIu64 ": %s; going back", loop->step,
                run->error.text);
        loop->goes_back = true;
        status = open_again(loop);
    } while (rps_loop_may_go_back(loop, status));
    return status;
}

/* --- there again ---------------------------------------------------------- */

rps_status
rps_loop_say_back(struct rps_loop *loop, const rps_start *start)
{
    struct rps_run *run = loop->run;
    const struct rps_report_back back = {
            .from = loop->step,
            .to = start->step,
            .epoch = start->epoch,
            .reason = start->reason,
    };

    if (start->reason[0] == '\0') {
        return RPS_OK;
    }
    if (run->settings->is_chief) {
        return rps_report_back(run->report, &back, &run->error);
    }
    if (loop->goes_back) {
        rps_run_say(run, RPS_REPORT_BACK_WORDS, back.from, back.to, back.reason,
                back.epoch);
    } else {
        rps_run_say(run,
                "the job goes on after step %" PRIu64 ": %s (epoch %" PRIu32
                ")",
                back.to, back.reason, back.epoch);
    }
    return RPS_OK;
}

rps_status
rps_loop_await_end(struct rps_loop *loop)
{
    if (!loop->recovers || rps_stop_signal() != 0) {
        loop->ended = true;
        return RPS_OK;
    }
    loop->goes_back = true; /* if it is not the end that comes */
    return rps_loop_join(loop);
}
