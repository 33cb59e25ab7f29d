/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the one timer thread: replicas that were lost without `leave`, those
 * that do not end a step that others wait for, and those that never came. It
 * sleeps until one of them is due.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "server/job_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NEVER_MS    UINT64_MAX
#define REPORT_MS   10000u
#define RANKS_SHOWN 16u

/** What one look at the job came to; done without the lock. */
struct turn {
    struct rps_answers answers;
    char *line; /* for the log; owned */
    const char *event;
};

static const char *
words_of(const struct turn *turn)
{
    return turn->line != NULL ? turn->line : "a replica is missing";
}

static void
finish_turn(struct rps_service *service, struct turn *turn)
{
    rps_answers_send(service, &turn->answers);
    if (turn->line != NULL) {
        rps_service_event(service, RPS_LOG_WARN, turn->event, "%s", turn->line);
    }
    free(turn->line);
}

static bool
somebody_waits(const struct rps_job *job)
{
    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        if ((job->started && member->waiting != NULL) ||
                (!job->started && member->joining != NULL)) {
            return true;
        }
    }
    return false;
}

static uint32_t
timeout_of(const struct rps_job *job)
{
    return job->begun ? job->terms.step_timeout_ms
                      : job->service->options.step_timeout_ms;
}

/* May the others go on without this rank? Not without the chief, which ends
 * the job. */
static bool
may_leave(const struct rps_job *job, uint32_t rank)
{
    return job->started && rank != 0 && job->terms.on_lost == RPS_ON_LOST_LEAVE;
}

/* Its connections have been gone for too long. */
static void
end_for_lost_locked(
        struct rps_job *job, uint32_t rank, uint64_t now, struct turn *turn)
{
    const struct rps_replica *member = &job->members[rank];
    const bool leave = may_leave(job, rank);

    turn->event = leave ? "replica_given_up" : "replica_lost";
    turn->line = rps_format("rank %" PRIu32 " (%s) has been gone for %.1f s"
                            " without leave, after step %" PRIu64
                            "; --step-timeout is %.1f s%s%s",
            rank, member->peer, (double)(now - member->lost_ms) / 1000.0,
            member->ended, (double)timeout_of(job) / 1000.0,
            leave ? "; the others go on without it" : "",
            member->restarting
                    ? "; a new process of this rank waits for the job to begin"
                      " again"
                    : "");
    if (leave) {
        rps_job_give_up_locked(job, rank, RPS_GIVEN_UP_GONE, &turn->answers);
    } else if (job->started) {
        rps_job_stop_locked(job, &turn->answers, RPS_E_TIMEOUT, words_of(turn));
    } else {
        rps_job_fail_joining_locked(
                job, &turn->answers, RPS_E_TIMEOUT, words_of(turn));
    }
}

/* A line every 10 s for one that is awaited back: the others wait as long as
 * that takes, for without it no step counts. */
static uint64_t
report_gone_locked(
        struct rps_job *job, uint32_t rank, uint64_t now, struct turn *turn)
{
    const struct rps_replica *member = &job->members[rank];
    const uint64_t first = member->lost_ms + REPORT_MS;

    if (!job->started) { /* check_report_locked() names it */
        return NEVER_MS;
    }
    if (first > now || job->report_ms > now) {
        return first > job->report_ms ? first : job->report_ms;
    }
    job->report_ms = now + REPORT_MS;
    turn->line = rps_format("rank %" PRIu32 " (%s) has been gone for %.1f s"
                            " after step %" PRIu64
                            "; the job goes back to its newest checkpoint when"
                            " it is here again",
            rank, member->peer, (double)(now - member->lost_ms) / 1000.0,
            member->ended);
    return job->report_ms;
}

/* Is the rank waited for until it comes back? */
static bool
is_awaited_back(const struct rps_job *job, uint32_t rank)
{
    return job->begun && job->terms.recover && !may_leave(job, rank);
}

/* Clock at which the next lost member is due. Before the start only who waits
 * wants to know; later every step will. */
static uint64_t
check_lost_locked(struct rps_job *job, uint64_t now, struct turn *turn)
{
    uint64_t due = NEVER_MS;

    if (job->stopped || (!job->started && !somebody_waits(job))) {
        return due;
    }
    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        const struct rps_replica *member = &job->members[rank];
        uint64_t at = member->lost_ms + timeout_of(job);

        if (member->lost_ms == 0 || member->left) {
            continue;
        }
        if (is_awaited_back(job, rank)) {
            at = report_gone_locked(job, rank, now, turn);
            if (turn->line != NULL) {
                return now;
            }
        } else if (at <= now) {
            end_for_lost_locked(job, rank, now, turn);
            return now;
        }
        due = at < due ? at : due;
    }
    return due;
}

/* Clock since when this wait is for that member: after its last step was
 * answered, and the last save. 0: it is not. */
static uint64_t
held_since(const struct rps_job *job, const struct rps_replica *member,
        const struct rps_replica *waiter)
{
    uint64_t since = waiter->waiting_ms;

    if (!rps_job_holds_up(job, member, waiter)) {
        return 0;
    }
    since = member->answered_ms > since ? member->answered_ms : since;
    return job->saved_ms > since ? job->saved_ms : since;
}

/* Is this one waited for? waiter is NULL before the start. */
static bool
is_missing(const struct rps_job *job, const struct rps_replica *member,
        const struct rps_replica *waiter)
{
    return waiter != NULL ? rps_job_holds_up(job, member, waiter)
                          : member->joining == NULL;
}

/* "1, 3, 4 and 12 more"; free(). */
static char *
missing_ranks(const struct rps_job *job, const struct rps_replica *waiter)
{
    struct rps_text text = {0};
    uint32_t missing = 0;

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        if (!is_missing(job, &job->members[rank], waiter)) {
            continue;
        }
        if (missing < RANKS_SHOWN) {
            rps_text_add(&text, missing == 0 ? "%" PRIu32 : ", %" PRIu32, rank);
        }
        missing++;
    }
    if (missing > RANKS_SHOWN) {
        rps_text_add(&text, " and %" PRIu32 " more", missing - RANKS_SHOWN);
    }
    if (text.failed || missing == 0) {
        rps_text_finish(&text);
        return NULL;
    }
    return text.bytes;
}

/* A line every 10 s while STEP_END(0) waits. */
static uint64_t
check_report_locked(struct rps_job *job, uint64_t now, struct turn *turn)
{
    char *ranks;

    if (job->report_ms == 0 || job->started || !somebody_waits(job)) {
        return NEVER_MS;
    }
    if (job->report_ms > now) {
        return job->report_ms;
    }
    job->report_ms = now + REPORT_MS;
    ranks = missing_ranks(job, NULL);
    if (!job->begun) {
        turn->line = rps_format("replicas wait for the chief to begin the job"
                                " (no RESTORE yet)");
    } else if (ranks != NULL) {
        turn->line = rps_format("STEP_END of step 0 waits for rank %s of"
                                " %" PRIu32 " replicas",
                ranks, job->terms.replica_count);
    }
    free(ranks);
    return job->report_ms;
}

/* The others wait for the servers' disks, as long as they take: a chief may
 * wait for its save. */
static bool
chief_saves(const struct rps_job *job)
{
    const struct rps_service *service = job->service;
    const bool asked = (job->last.wishes & RPS_WISH_SAVE) != 0;

    return job->save_ready || service->save.writing ||
           (asked && !(service->saved &&
                             service->saved_step >= job->last.save_step));
}

/* check_lost_locked() ends the wait for these, and says more. */
static bool
somebody_is_lost(const struct rps_job *job)
{
    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        if (job->members[rank].lost_ms != 0 && !job->members[rank].left) {
            return true;
        }
    }
    return false;
}

/* Who has waited longest at a step's end, or for the end; NULL: nobody. */
static const struct rps_replica *
longest_waiter(const struct rps_job *job)
{
    const struct rps_replica *longest = NULL;

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (member->waiting != NULL &&
                (longest == NULL || member->waiting_ms < longest->waiting_ms)) {
            longest = member;
        }
    }
    return longest;
}

/* "step 6 waits since 2.0 s for rank 1, which did not end it …" */
static char *
silent_words(const struct rps_job *job, const struct rps_replica *waiter,
        uint64_t since, uint64_t now, const char *then)
{
    char *ranks = missing_ranks(job, waiter);
    char *line = rps_format("step %" PRIu64 "%s since %.1f s for rank %s,"
                            " which did not end it (stopped, or slow?);"
                            " --step-timeout is %.1f s%s",
            waiter->left ? waiter->ended + 1 : waiter->ended,
            waiter->left ? ": the chief, which is done, waits" : " waits",
            (double)(now - since) / 1000.0, ranks != NULL ? ranks : "?",
            (double)timeout_of(job) / 1000.0, then);

    free(ranks);
    return line;
}

/* Those that have kept this one waiting for too long. */
static void
end_for_silent_locked(struct rps_job *job, const struct rps_replica *waiter,
        uint64_t since, uint64_t now, struct turn *turn)
{
    const bool leave = job->terms.on_lost == RPS_ON_LOST_LEAVE &&
                       !rps_job_holds_up(job, &job->members[0], waiter);

    turn->line = silent_words(job, waiter, since, now,
            leave ? "; the others go on without it" : "");
    turn->event = leave ? "replica_given_up" : "replica_lost";
    if (!leave) {
        rps_job_stop_locked(job, &turn->answers, RPS_E_TIMEOUT, words_of(turn));
        return;
    }
    for (uint32_t rank = 1; rank < job->terms.replica_count; rank++) {
        const uint64_t held = held_since(job, &job->members[rank], waiter);

        if (held != 0 && held + timeout_of(job) <= now) {
            rps_job_give_up_locked(
                    job, rank, RPS_GIVEN_UP_SILENT, &turn->answers);
        }
    }
}

/* A step that some have ended and others have not: a line every 10 s, and
 * the end of it after step_timeout, though all are connected. */
static uint64_t
check_silent_locked(struct rps_job *job, uint64_t now, struct turn *turn)
{
    const struct rps_replica *waiter =
            job->started ? longest_waiter(job) : NULL;
    uint64_t since = NEVER_MS;
    uint64_t due;
    uint64_t report;

    if (waiter == NULL || chief_saves(job) || somebody_is_lost(job)) {
        return NEVER_MS;
    }
    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        const uint64_t held = held_since(job, &job->members[rank], waiter);

        since = held != 0 && held < since ? held : since;
    }
    if (since == NEVER_MS) {
        return NEVER_MS;
    }
    due = since + timeout_of(job);
    report = since + REPORT_MS > job->report_ms ? since + REPORT_MS
                                                : job->report_ms;
    if (now >= due) {
        end_for_silent_locked(job, waiter, since, now, turn);
    } else if (now >= report) {
        job->report_ms = now + REPORT_MS;
        turn->line = silent_words(job, waiter, since, now, "");
    }
    return report < due ? report : due;
}

static void
sleep_until_locked(struct rps_job *job, uint64_t due)
{
    struct timespec at;

    job->timer_due = due;
    if (due == NEVER_MS) {
        pthread_cond_wait(&job->timer_cond, &job->service->lock);
        return;
    }
    at.tv_sec = (time_t)(due / 1000);
    at.tv_nsec = (long)(due % 1000) * 1000000;
    pthread_cond_timedwait(&job->timer_cond, &job->service->lock, &at);
}

void *
rps_job_timer_main(void *context)
{
    struct rps_job *job = context;
    struct rps_service *service = job->service;

    pthread_mutex_lock(&service->lock);
    while (!job->stop) {
        struct turn turn = {.event = "waiting_for_replicas"};
        uint64_t now = rps_clock_ms();
        uint64_t due = check_lost_locked(job, now, &turn);

        if (turn.line == NULL && turn.answers.first == NULL) {
            uint64_t silent = check_silent_locked(job, now, &turn);

            due = silent < due ? silent : due;
        }
        if (turn.line == NULL && turn.answers.first == NULL) {
            uint64_t report = check_report_locked(job, now, &turn);

            due = report < due ? report : due;
        }
        if (turn.line == NULL && turn.answers.first == NULL) {
            sleep_until_locked(job, due);
            continue;
        }
        pthread_mutex_unlock(&service->lock);
        finish_turn(service, &turn);
        pthread_mutex_lock(
                &service->lock); /* things may have moved meanwhile */
    }
    pthread_mutex_unlock(&service->lock);
    return NULL;
}
