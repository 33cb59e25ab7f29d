/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns who the members of the job are, and its start: STEP_END(0).
 */
#include "server/job.h"

#include "base/clock.h"
#include "base/terms.h"
#include "base/text.h"
#include "server/job_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rps_job *
rps_job_create(struct rps_service *service)
{
    struct rps_job *job = calloc(1, sizeof(*job));
    pthread_condattr_t attributes;

    if (job == NULL) {
        return NULL;
    }
    job->service = service;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&job->timer_cond, &attributes);
    pthread_condattr_destroy(&attributes);
    if (pthread_create(&job->timer, NULL, rps_job_timer_main, job) != 0) {
        pthread_cond_destroy(&job->timer_cond);
        free(job);
        return NULL;
    }
    return job;
}

void
rps_job_destroy(struct rps_job *job)
{
    if (job == NULL) {
        return;
    }
    pthread_mutex_lock(&job->service->lock);
    job->stop = true;
    rps_job_wake_locked(job);
    pthread_mutex_unlock(&job->service->lock);
    pthread_join(job->timer, NULL);
    pthread_cond_destroy(&job->timer_cond);
    rps_decision_finish(&job->last);
    free(job->why);
    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        json_decref(job->members[rank].alike);
    }
    free(job->members);
    free(job);
}

void
rps_job_wake_locked(struct rps_job *job)
{
    pthread_cond_signal(&job->timer_cond);
}

uint32_t
rps_job_replicas(const struct rps_job *job)
{
    return job->begun ? job->terms.replica_count : job->member_count;
}

bool
rps_job_grow_locked(struct rps_job *job, uint32_t count)
{
    struct rps_replica *grown;

    if (count <= job->member_count) {
        return true;
    }
    grown = realloc(job->members, count * sizeof(*grown));
    if (grown == NULL) {
        return false;
    }
    memset(grown + job->member_count, 0,
            (count - job->member_count) * sizeof(*grown));
    job->members = grown;
    job->member_count = count;
    return true;
}

/* The rank is held by this process from now on. */
static void
take_rank_locked(struct rps_replica *member, const struct rps_session *session)
{
    member->known = true;
    member->client = session->client;
    member->role = session->role;
    member->lost_ms = 0;
    member->restarting = false;
    member->connections = 0;
    snprintf(member->peer, sizeof(member->peer), "%s", session->peer);
    for (const struct rps_session *at = session->service->sessions; at != NULL;
            at = at->next) {
        if (at->rank == session->rank && at->client == session->client) {
            member->connections++;
        }
    }
}

bool
rps_job_greet_locked(struct rps_job *job, struct rps_session *session)
{
    struct rps_replica *member;

    if (!rps_job_grow_locked(job, session->rank + 1)) {
        return false;
    }
    member = &job->members[session->rank];
    /* A rank that has started belongs to its process until that has left:
     * a second one waits in STEP_END(0) for the next epoch. */
    if (!member->known || !member->started || member->left ||
            member->client == session->client) {
        take_rank_locked(member, session);
    }
    rps_job_wake_locked(job);
    return true;
}

void
rps_job_leave_locked(struct rps_job *job, struct rps_session *session,
        struct rps_answers *answers)
{
    struct rps_replica *member = session->rank < job->member_count
                                         ? &job->members[session->rank]
                                         : NULL;

    if (member == NULL || member->client != session->client ||
            member->connections == 0) {
        return;
    }
    member->connections--;
    if (member->connections == 0 && !member->left) {
        member->lost_ms = rps_clock_ms();
        rps_job_look_back_locked(job, session->rank, answers);
        rps_job_wake_locked(job);
    }
}

bool
rps_job_withdraw_locked(struct rps_job *job, const struct rps_parked *parked)
{
    for (uint32_t i = 0; i < RPS_OBSERVERS_MAX; i++) {
        if (job->observers[i] == parked) {
            job->observers[i] = NULL;
            return true;
        }
    }
    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        struct rps_replica *member = &job->members[rank];

        if (member->joining != parked && member->waiting != parked) {
            continue;
        }
        member->joining = member->joining == parked ? NULL : member->joining;
        member->waiting = member->waiting == parked ? NULL : member->waiting;
        return true;
    }
    return false;
}

void
rps_job_forget_locked(struct rps_job *job, struct rps_parked *parked)
{
    if (rps_job_withdraw_locked(job, parked)) {
        rps_parked_drop_locked(job->service, parked);
    }
}

void
rps_job_fail_waiting_locked(struct rps_job *job, struct rps_answers *answers,
        rps_status status, const char *why)
{
    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        struct rps_replica *member = &job->members[rank];

        if (member->waiting != NULL) {
            rps_answer_locked(
                    job->service, answers, member->waiting, status, why);
            member->waiting = NULL;
        }
    }
    job->save_step = 0;
    job->save_ready = false;
    job->held_ns = 0;
}

void
rps_job_stop_locked(struct rps_job *job, struct rps_answers *answers,
        rps_status status, const char *why)
{
    if (!job->stopped) {
        job->stopped = true;
        job->stopped_with = status;
        job->why = strdup(why);
    }
    rps_job_fail_waiting_locked(job, answers, status, why);
}

void
rps_job_fail_joining_locked(struct rps_job *job, struct rps_answers *answers,
        rps_status status, const char *why)
{
    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        struct rps_replica *member = &job->members[rank];

        if (member->joining != NULL) {
            rps_answer_locked(
                    job->service, answers, member->joining, status, why);
            member->joining = NULL;
        }
    }
    job->report_ms = 0;
}

static char *
start_text_locked(struct rps_job *job)
{
    struct rps_service *service = job->service;
    json_t *position = service->data_position != NULL
                               ? json_incref(service->data_position)
                               : json_null();
    json_t *object = json_pack("{s:I, s:I, s:o}", "epoch",
            (json_int_t)atomic_load(&service->epoch), "step",
            (json_int_t)job->begin_step, "data_position", position);
    json_t *terms = rps_terms_json(&job->terms);

    if (object == NULL || terms == NULL ||
            json_object_update(object, terms) != 0 ||
            (job->reason[0] != '\0' &&
                    json_object_set_new(
                            object, "reason", json_string(job->reason)) != 0)) {
        json_decref(object);
        object = NULL;
    }
    json_decref(terms);
    return object != NULL ? rps_json_text(object) : NULL;
}

static void
answer_start_locked(struct rps_job *job, struct rps_answers *answers,
        struct rps_parked *parked)
{
    char *text = start_text_locked(job);

    rps_answer_locked(job->service, answers, parked,
            text != NULL ? RPS_OK : RPS_E_NOMEM, text);
    free(text);
}

static bool
all_joining(const struct rps_job *job)
{
    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        if (rank >= job->member_count || job->members[rank].joining == NULL) {
            return false;
        }
    }
    /* who joins a job that has started waits for the next epoch */
    return job->begun && !job->started;
}

/* The first field that a replica says otherwise than the chief, in words; NULL:
 * none. What one of them does not say is not compared. free(). */
static char *
find_other(const struct rps_job *job)
{
    for (uint32_t rank = 1; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];
        const char *field;
        json_t *value;

        json_object_foreach(job->members[0].alike, field, value)
        {
            const char *chiefs = json_string_value(value);
            const char *own =
                    json_string_value(json_object_get(member->alike, field));

            if (own != NULL && strcmp(own, chiefs) != 0) {
                return rps_format("rank %" PRIu32 " (%s) has another %s than "
                                  "the chief: %.200s, not %.200s; give all "
                                  "replicas of the job the same",
                        rank, member->peer, field, own, chiefs);
            }
        }
    }
    return NULL;
}

static void
start_if_complete_locked(struct rps_job *job, struct rps_answers *answers)
{
    char *other = NULL;

    if (!all_joining(job)) {
        return;
    }
    other = find_other(job);
    if (other != NULL) {
        rps_job_fail_joining_locked(job, answers, RPS_E_MISMATCH, other);
        free(other);
        return;
    }
    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        struct rps_replica *member = &job->members[rank];

        if (member->joining->session != NULL) {
            take_rank_locked(member, member->joining->session);
        }
        member->started = true;
        member->left = false;
        member->ended = job->begin_step;
        member->answered_ms = rps_clock_ms();
        answer_start_locked(job, answers, member->joining);
        member->joining = NULL;
    }
    job->started = true;
    job->report_ms = 0;
}

/* A rank that was lost long before anybody waits is of an older run. */
static void
forget_stale_locked(struct rps_job *job)
{
    uint64_t timeout = job->begun ? job->terms.step_timeout_ms
                                  : job->service->options.step_timeout_ms;
    uint64_t now = rps_clock_ms();

    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        struct rps_replica *member = &job->members[rank];

        if (!member->started && member->lost_ms != 0 &&
                member->lost_ms + timeout <= now) {
            member->known = false;
            member->lost_ms = 0;
        }
    }
}

rps_status
rps_job_join_locked(
        struct rps_request *request, struct rps_job *job, json_t *alike)
{
    struct rps_session *session = request->session;
    struct rps_replica *member = &job->members[session->rank];
    struct rps_parked *parked;

    if (job->begun && session->rank >= job->terms.replica_count) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END: rank %" PRIu32 ", but the job has %" PRIu32
                " replicas, counted from 0",
                session->rank, job->terms.replica_count);
    }
    if (member->joining != NULL) { /* asked again, on a newer connection */
        rps_answer_locked(job->service, &request->answers, member->joining,
                RPS_E_CANCELED, "STEP_END(0) was sent again");
        member->joining = NULL;
    }
    parked = rps_park_locked(request);
    if (parked == NULL) {
        return rps_fail(
                &request->error, RPS_E_NOMEM, "STEP_END: no memory to wait");
    }
    if (member->started && !member->left && member->client == session->client) {
        answer_start_locked(job, &request->answers, parked);
        return RPS_OK;
    }
    member->joining = parked;
    json_decref(member->alike);
    member->alike = json_incref(alike);
    member->restarting = member->started;
    if (job->report_ms == 0) {
        forget_stale_locked(job);
        job->report_ms = rps_clock_ms() + 10000;
    }
    rps_job_look_back_locked(job, session->rank, &request->answers);
    start_if_complete_locked(job, &request->answers);
    rps_job_wake_locked(job);
    return RPS_OK;
}

rps_status
rps_job_prepare_locked(struct rps_job *job, uint32_t replicas)
{
    return rps_job_grow_locked(job, replicas) ? RPS_OK : RPS_E_NOMEM;
}

/* Who holds the rank in the new epoch: the newest process that is here. */
static void
reset_member_locked(struct rps_job *job, uint32_t rank)
{
    struct rps_replica *member = &job->members[rank];
    const struct rps_session *at = job->service->sessions;

    member->loss = (double)NAN;
    member->wishes = 0;
    member->ended = job->begin_step;
    while (at != NULL && at->rank != rank) {
        at = at->next;
    }
    if (at != NULL) {
        take_rank_locked(member, at);
    } else if (member->started) { /* of an older run, and gone */
        member->known = false;
        member->lost_ms = 0;
    }
    member->started = false;
    member->left = false;
    member->given_up = RPS_NOT_GIVEN_UP;
}

void
rps_job_reset_locked(struct rps_job *job, const rps_terms *terms, uint64_t step,
        const char *reason, struct rps_answers *answers)
{
    rps_job_fail_waiting_locked(job, answers, RPS_E_ROLLED_BACK,
            "the job was begun again: join it (STEP_END of step 0)");
    job->begun = true;
    job->started = false;
    job->stopping = false;
    job->stopped = false;
    free(job->why);
    job->why = NULL;
    snprintf(job->reason, sizeof(job->reason), "%s", reason);
    job->terms = *terms;
    job->begin_step = step;
    job->decided = step;
    rps_decision_finish(&job->last);
    memset(&job->last, 0, sizeof(job->last));
    for (uint32_t rank = 0; rank < job->member_count; rank++) {
        struct rps_replica *member = &job->members[rank];

        reset_member_locked(job, rank);
        if (rank >= terms->replica_count && member->joining != NULL) {
            rps_answer_locked(job->service, answers, member->joining,
                    RPS_E_INVAL, "this rank is beyond the replicas of the job");
            member->joining = NULL;
        }
    }
    forget_stale_locked(job);
    start_if_complete_locked(job, answers);
    rps_job_wake_locked(job);
}

void
rps_job_figures_locked(
        const struct rps_job *job, struct rps_job_figures *figures)
{
    uint64_t least = UINT64_MAX;
    uint64_t most = 0;

    memset(figures, 0, sizeof(*figures));
    figures->begun = job->begun;
    snprintf(figures->mode, sizeof(figures->mode), "%s",
            rps_terms_mode(&job->terms).text);
    for (uint32_t rank = 0; job->begun && rank < rps_job_replicas(job);
            rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (member->left) {
            figures->given_up += member->given_up != RPS_NOT_GIVEN_UP;
            figures->left += member->given_up == RPS_NOT_GIVEN_UP;
            continue;
        }
        figures->here++;
        least = member->ended < least ? member->ended : least;
        most = member->ended > most ? member->ended : most;
    }
    figures->behind = figures->here > 0 ? most - least : 0;
}

json_t *
rps_job_members_locked(const struct rps_job *job)
{
    static const char *const roles[] = {
            "none", "chief", "worker", "local", "evaluator"};
    const uint64_t largest = rps_job_largest_ended(job);
    json_t *list = json_array();

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        const struct rps_replica *member = &job->members[rank];

        json_array_append_new(list,
                json_pack("{s:I, s:s, s:b, s:b, s:I, s:I, s:b, s:b, s:b}",
                        "rank", (json_int_t)rank, "role", roles[member->role],
                        "connected", member->connections > 0, "joined",
                        member->started || member->joining != NULL, "step",
                        (json_int_t)member->ended, "behind",
                        (json_int_t)(member->left ? 0
                                                  : largest - member->ended),
                        "left", member->left, "given_up",
                        member->given_up != RPS_NOT_GIVEN_UP, "restarting",
                        member->restarting && member->joining != NULL));
    }
    return list;
}

json_t *
rps_job_state_locked(const struct rps_job *job)
{
    const char *why = NULL;

    if (job->stopped) {
        why = job->why != NULL ? job->why : "a replica is missing";
    }
    return json_pack("{s:b, s:b, s:s?}", "begun", job->begun, "started",
            job->started, "stopped", why);
}
