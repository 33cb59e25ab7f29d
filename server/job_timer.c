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

static void
fail_for_lost_locked(struct rps_job *job, uint32_t rank, uint64_t now,
        struct rps_answers *answers)
{
    const struct rps_replica *member = &job->members[rank];
    char why[256];

    snprintf(why, sizeof(why),
            "rank %" PRIu32 " (%s) has been gone for %.1f s without leave,"
            " after step %" PRIu64 "; --step-timeout is %.1f s%s",
            rank, member->peer, (double)(now - member->lost_ms) / 1000.0,
            member->ended, (double)timeout_of(job) / 1000.0,
            member->restarting
                    ? "; a new process of this rank waits for the job to begin"
                      " again"
                    : "");
    if (job->started) {
        rps_job_fail_waiting_locked(job, answers, RPS_E_TIMEOUT, why);
    } else {
        rps_job_fail_joining_locked(job, answers, RPS_E_TIMEOUT, why);
    }
}

/* Clock at which the next lost member is due. */
static uint64_t
check_lost_locked(
        struct rps_job *job, uint64_t now, struct rps_answers *answers)
{
    uint64_t due = NEVER_MS;

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        const struct rps_replica *member = &job->members[rank];
        uint64_t at = member->lost_ms + timeout_of(job);

        if (member->lost_ms == 0 || member->left || !somebody_waits(job)) {
            continue;
        }
        if (at <= now) {
            fail_for_lost_locked(job, rank, now, answers);
        } else if (at < due) {
            due = at;
        }
    }
    return due;
}

/* Is this one waited for? */
static bool
is_missing(const struct rps_job *job, const struct rps_replica *member)
{
    return job->started ? member->waiting == NULL && !member->left
                        : member->joining == NULL;
}

/* "1, 3, 4 and 12 more"; free(). */
static char *
missing_ranks(const struct rps_job *job)
{
    struct rps_text text = {0};
    uint32_t missing = 0;

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        if (!is_missing(job, &job->members[rank])) {
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

/* A line every 10 s while STEP_END(0) waits. *line_out: free(). */
static uint64_t
check_report_locked(struct rps_job *job, uint64_t now, char **line_out)
{
    char *ranks;

    if (job->report_ms == 0 || job->started || !somebody_waits(job)) {
        return NEVER_MS;
    }
    if (job->report_ms > now) {
        return job->report_ms;
    }
    job->report_ms = now + REPORT_MS;
    ranks = missing_ranks(job);
    if (!job->begun) {
        *line_out = rps_format("replicas wait for the chief to begin the job"
                               " (no RESTORE yet)");
    } else if (ranks != NULL) {
        *line_out = rps_format("STEP_END of step 0 waits for rank %s of"
                               " %" PRIu32 " replicas",
                ranks, job->terms.replica_count);
    }
    free(ranks);
    return job->report_ms;
}

/* The others wait for the chief's disk, as long as it takes. */
static bool
chief_saves(const struct rps_job *job)
{
    const struct rps_service *service = job->service;
    const bool asked = (job->last.wishes & RPS_WISH_SAVE) != 0;

    return job->save_ready ||
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

/* The longest wait at a step's end: since when (0: nobody waits that way),
 * and which step. The chief that leaves waits for the end, not for a step. */
static uint64_t
longest_wait(const struct rps_job *job, uint64_t *step_out)
{
    uint64_t since = 0;

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (member->waiting != NULL && !(rank == 0 && member->left) &&
                (since == 0 || member->waiting_ms < since)) {
            since = member->waiting_ms;
            *step_out = member->ended;
        }
    }
    return since != 0 && job->saved_ms > since ? job->saved_ms : since;
}

/* A step that some have ended and others have not: a line every 10 s, and
 * TIMEOUT after step_timeout, though all are connected. */
static uint64_t
check_stalled_locked(struct rps_job *job, uint64_t now,
        struct rps_answers *answers, char **line_out)
{
    uint64_t step = 0;
    const uint64_t since = job->started ? longest_wait(job, &step) : 0;
    uint64_t report = since + REPORT_MS;
    char why[512];
    char *ranks;

    if (since == 0 || chief_saves(job) || somebody_is_lost(job)) {
        return NEVER_MS;
    }
    report = job->report_ms > report ? job->report_ms : report;
    if (now < report && now < since + timeout_of(job)) {
        return report < since + timeout_of(job) ? report
                                                : since + timeout_of(job);
    }
    ranks = missing_ranks(job);
    snprintf(why, sizeof(why),
            "step %" PRIu64 " waits since %.1f s for rank %s, which did not"
            " end it (stopped, or slow?); --step-timeout is %.1f s",
            step, (double)(now - since) / 1000.0, ranks == NULL ? "?" : ranks,
            (double)timeout_of(job) / 1000.0);
    free(ranks);
    if (now >= since + timeout_of(job)) {
        rps_job_fail_waiting_locked(job, answers, RPS_E_TIMEOUT, why);
    }
    *line_out = strdup(why);
    job->report_ms = now + REPORT_MS;
    return job->report_ms;
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
        struct rps_answers answers = {0};
        char *line = NULL;
        uint64_t now = rps_clock_ms();
        uint64_t lost = check_lost_locked(job, now, &answers);
        uint64_t stalled = check_stalled_locked(job, now, &answers, &line);
        uint64_t report = check_report_locked(job, now, &line);

        if (answers.first != NULL || line != NULL) {
            pthread_mutex_unlock(&service->lock);
            rps_answers_send(service, &answers);
            if (line != NULL) {
                rps_service_event(service, RPS_LOG_WARN, "waiting_for_replicas",
                        "%s", line);
            }
            free(line);
            pthread_mutex_lock(&service->lock);
            continue; /* things may have moved meanwhile */
        }
        report = stalled < report ? stalled : report;
        sleep_until_locked(job, lost < report ? lost : report);
    }
    pthread_mutex_unlock(&service->lock);
    return NULL;
}
