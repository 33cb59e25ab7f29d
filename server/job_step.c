/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns STEP_END of steps 1, 2, …: decisions of sync, the bound and the save
 * barrier of the other modes, and when the chief's leave is answered.
 * README.md has the rules.
 */
#include "base/clock.h"
#include "server/job_state.h"
#include "server/save.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of STEP_END(0): kept for each rank. */
#define ALIKE_MAX       32u
#define ALIKE_BYTES_MAX 1024u

/** What a STEP_END says. */
struct ending {
    uint64_t step;
    double loss; /* NaN: none */
    uint32_t wishes;
    json_t *alike; /* owned; NULL: nothing is said */
};

static bool
is_sync(const struct rps_job *job)
{
    return job->terms.mode == RPS_MODE_SYNC;
}

/* Give a parked STEP_END this decision. */
static void
answer_decision_locked(struct rps_job *job, struct rps_answers *answers,
        struct rps_parked *parked, const struct rps_wire_decision *decision)
{
    struct rps_header header = rps_reply_header(
            job->service, parked->session, &parked->request, RPS_OK);
    struct rps_section section = {.kind = RPS_SECTION_DECISION};
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t length = 0;
    size_t bytes = 0;
    uint8_t *body = rps_decision_encode(decision, &bytes);

    if (body != NULL) {
        header.step = decision->step;
        section.count = bytes;
        rps_builder_begin(&builder, &header, 1);
        rps_builder_add(&builder, &section, body);
        if (rps_builder_end(&builder, &frame, &length) != RPS_OK) {
            rps_builder_finish(&builder);
            frame = NULL;
            length = 0;
        }
        free(body);
    }
    rps_answer_frame_locked(answers, parked, frame, length);
}

/* Answer a member about its own step alone (async, bounded). */
static void
answer_own_locked(struct rps_job *job, struct rps_answers *answers,
        uint32_t rank, uint32_t wishes, uint64_t save_step)
{
    struct rps_replica *member = &job->members[rank];
    struct rps_wire_decision decision = {.step = member->ended,
            .loss = member->loss,
            .save_step = save_step,
            .epoch = atomic_load(&job->service->epoch),
            .wishes = wishes | (job->stopping ? RPS_WISH_STOP : 0),
            .rank_count = 1,
            .ranks = &rank};

    answer_decision_locked(job, answers, member->waiting, &decision);
    member->waiting = NULL;
    member->answered_ms = rps_clock_ms();
}

static bool
others_left(const struct rps_job *job)
{
    for (uint32_t rank = 1; rank < job->terms.replica_count; rank++) {
        if (!job->members[rank].left) {
            return false;
        }
    }
    return true;
}

uint64_t
rps_job_largest_ended(const struct rps_job *job)
{
    uint64_t largest = job->begin_step;

    for (uint32_t rank = 0; rank < rps_job_replicas(job); rank++) {
        if (job->members[rank].ended > largest) {
            largest = job->members[rank].ended;
        }
    }
    return largest;
}

/* The chief's leave is answered when no other member is left: in sync with
 * the newest decision, which every PS must have before the last save. */
static void
end_chief_locked(struct rps_job *job, struct rps_answers *answers)
{
    struct rps_replica *chief = &job->members[0];
    struct rps_wire_decision decision;

    if (!chief->left || chief->waiting == NULL || !others_left(job)) {
        return;
    }
    if (!is_sync(job)) {
        answer_own_locked(job, answers, 0, chief->wishes,
                (chief->wishes & RPS_WISH_SAVE) != 0
                        ? rps_job_largest_ended(job)
                        : 0);
        return;
    }
    decision = job->last; /* borrows the ranks */
    decision.wishes |= chief->wishes;
    decision.save_step =
            (chief->wishes & RPS_WISH_SAVE) != 0 ? decision.step : 0;
    answer_decision_locked(job, answers, chief->waiting, &decision);
    chief->waiting = NULL;
}

/* sync */

/*
 * Of R replicas R - K are waited for, and of those that are left no more than
 * there are: who left, or was given up, is one of the K. The chief is never
 * one: it saves between two steps, and its wishes go with the decision.
 */
static bool
is_due(const struct rps_job *job, uint64_t step)
{
    const struct rps_replica *chief = &job->members[0];
    uint32_t needed = job->terms.replica_count - job->terms.backup_workers;
    uint32_t members = 0;
    uint32_t ended = 0;

    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        members += !member->left;
        ended += !member->left && member->ended == step;
    }
    needed = needed < members ? needed : members;
    return members > 0 && ended >= needed &&
           (chief->left || chief->ended == step);
}

/* Sum for combine sum (a worker divides by the global batch), else mean. */
static double
combined_loss(const struct rps_job *job, uint64_t step)
{
    double sum = 0;
    uint32_t count = 0;

    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (member->ended == step && !isnan(member->loss)) {
            sum += member->loss;
            count++;
        }
    }
    if (count == 0) {
        return (double)NAN;
    }
    return job->terms.combine == RPS_COMBINE_MEAN ? sum / count : sum;
}

static uint32_t
combined_wishes(const struct rps_job *job, uint64_t step)
{
    uint32_t wishes = 0;

    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (member->ended == step) {
            /* only the chief's save counts: it is who saves */
            wishes |= rank == 0 ? member->wishes
                                : member->wishes & ~RPS_WISH_SAVE;
        }
    }
    return wishes | (job->stopping ? RPS_WISH_STOP : 0);
}

/* Who ended the step is counted, though it may be gone by now. false: no
 * memory for the ranks. */
static bool
make_decision_locked(struct rps_job *job, uint64_t step)
{
    uint32_t *ranks =
            calloc((size_t)job->terms.replica_count + 1, sizeof(*ranks));
    struct rps_wire_decision *last = &job->last;

    if (ranks == NULL) {
        return false;
    }
    rps_decision_finish(last);
    memset(last, 0, sizeof(*last));
    last->step = step;
    last->epoch = atomic_load(&job->service->epoch);
    last->loss = combined_loss(job, step);
    last->wishes = combined_wishes(job, step);
    last->save_step = (last->wishes & RPS_WISH_SAVE) != 0 ? step : 0;
    last->ranks = ranks;
    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        if (job->members[rank].ended == step) {
            ranks[last->rank_count++] = rank;
        }
    }
    job->decided = step;
    return true;
}

static void
advance_sync_locked(struct rps_job *job, struct rps_answers *answers)
{
    uint64_t step = job->decided + 1;

    if (!is_due(job, step)) {
        end_chief_locked(job, answers);
        return;
    }
    if (!make_decision_locked(job, step)) {
        rps_job_fail_waiting_locked(job, answers, RPS_E_NOMEM,
                "STEP_END: no memory for a decision; end the step again");
        return;
    }
    for (uint32_t i = 0; i < job->last.rank_count; i++) {
        uint32_t rank = job->last.ranks[i];
        struct rps_replica *member = &job->members[rank];

        member->left = member->left || (member->wishes & RPS_WISH_LEAVE) != 0;
        member->answered_ms = rps_clock_ms();
        if (member->waiting != NULL && !(member->left && rank == 0)) {
            answer_decision_locked(job, answers, member->waiting, &job->last);
            member->waiting = NULL;
        }
    }
    end_chief_locked(job, answers);
}

/* async, bounded */

/* The least step that a member has ended which is waited for. */
static uint64_t
slowest(const struct rps_job *job)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (!member->left && member->ended < least) {
            least = member->ended;
        }
    }
    return least;
}

/* bounded: step `ended` + 1 may begin when all ended `ended` - staleness. */
static bool
is_too_far(const struct rps_job *job, uint64_t ended, uint64_t least)
{
    return job->terms.mode == RPS_MODE_BOUNDED &&
           ended > job->terms.staleness && least < ended - job->terms.staleness;
}

/* The chief's `save` where no barrier is asked for: it saves at its own step.
 */
static bool
saves_alone(const struct rps_job *job, uint32_t rank)
{
    return rank == 0 && job->terms.cut == RPS_CUT_LOCAL &&
           (job->members[0].wishes & RPS_WISH_SAVE) != 0;
}

/* Answer those whose next step may begin, of ranks from..to - 1. */
static void
release_locked(struct rps_job *job, struct rps_answers *answers, uint32_t from,
        uint32_t to)
{
    const uint64_t least =
            job->terms.mode == RPS_MODE_BOUNDED ? slowest(job) : 0;

    for (uint32_t rank = from; rank < to; rank++) {
        const struct rps_replica *member = &job->members[rank];
        const bool at_barrier =
                job->save_step != 0 && member->ended >= job->save_step;

        if (member->waiting == NULL || (rank == 0 && member->left)) {
            continue;
        }
        if (member->left ||
                (!at_barrier && !is_too_far(job, member->ended, least))) {
            const bool alone = saves_alone(job, rank);

            answer_own_locked(job, answers, rank,
                    alone ? member->wishes : member->wishes & ~RPS_WISH_SAVE,
                    alone ? member->ended : job->save_step);
        } else if (at_barrier && job->held_ns == 0) {
            job->held_ns = rps_clock_ns();
        }
    }
}

static bool
all_at_barrier(const struct rps_job *job)
{
    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (!member->left && member->ended < job->save_step) {
            return false;
        }
    }
    return true;
}

/* The barrier is over: the others, held at it, go on. */
static void
open_barrier_locked(struct rps_job *job, struct rps_answers *answers)
{
    if (job->save_step != 0) {
        job->save_step = 0;
        job->save_ready = false;
        if (job->held_ns != 0) {
            rps_record_put(&job->service->saving.barrier_ns,
                    rps_clock_ns() - job->held_ns);
        }
        job->held_ns = 0;
        release_locked(job, answers, 1, job->terms.replica_count);
    }
}

/* The largest step that a member may have begun. */
static uint64_t
name_barrier(const struct rps_job *job)
{
    uint64_t step = 0;

    for (uint32_t rank = 0; rank < job->terms.replica_count; rank++) {
        const struct rps_replica *member = &job->members[rank];

        if (!member->left && member->ended + 1 > step) {
            step = member->ended + 1;
        }
    }
    return step;
}

/* All are at the barrier: the chief saves while the others are held. */
static void
begin_save_locked(struct rps_job *job, struct rps_answers *answers)
{
    const struct rps_replica *chief = &job->members[0];

    if (job->save_step != 0 && chief->waiting != NULL && !chief->left &&
            all_at_barrier(job)) {
        job->save_ready = true;
        answer_own_locked(
                job, answers, 0, chief->wishes | RPS_WISH_SAVE, job->save_step);
    }
}

static void
advance_async_locked(
        struct rps_job *job, struct rps_answers *answers, uint32_t rank)
{
    struct rps_replica *member = &job->members[rank];
    bool leaves = (member->wishes & RPS_WISH_LEAVE) != 0;

    member->left = member->left || leaves;
    if (rank == 0 && (leaves || member->ended > job->save_step)) {
        /* it saves at the end, or went on without COMMIT and ABORT */
        open_barrier_locked(job, answers);
    }
    if (rank == 0 && !leaves && (member->wishes & RPS_WISH_SAVE) != 0 &&
            job->save_step == 0 && job->terms.cut == RPS_CUT_JOB) {
        job->save_step = name_barrier(job);
    }
    if (job->terms.mode == RPS_MODE_BOUNDED) { /* others may go on, too */
        release_locked(job, answers, 0, job->terms.replica_count);
    } else {
        release_locked(job, answers, rank, rank + 1);
    }
    begin_save_locked(job, answers);
    end_chief_locked(job, answers);
}

/* lost, silent and late replicas */

bool
rps_job_holds_up(const struct rps_job *job, const struct rps_replica *member,
        const struct rps_replica *waiter)
{
    if (member->left || member->waiting != NULL || waiter->waiting == NULL) {
        return false;
    }
    if (waiter->left) { /* the chief waits for the end */
        return true;
    }
    if (is_sync(job)) {
        return member->ended < waiter->ended;
    }
    return (job->save_step != 0 && waiter->ended >= job->save_step &&
                   member->ended < job->save_step) ||
           is_too_far(job, waiter->ended, member->ended);
}

void
rps_job_give_up_locked(struct rps_job *job, uint32_t rank,
        enum rps_given_up why, struct rps_answers *answers)
{
    struct rps_replica *member = &job->members[rank];

    member->left = true;
    member->given_up = why;
    if (is_sync(job)) {
        advance_sync_locked(job, answers);
        return;
    }
    release_locked(job, answers, 0, job->terms.replica_count);
    begin_save_locked(job, answers);
    end_chief_locked(job, answers);
}

/* What a process that comes back is told. */
static rps_status
fail_given_up(struct rps_request *request, const struct rps_job *job)
{
    const uint32_t rank = request->session->rank;
    const struct rps_replica *member = &job->members[rank];
    const double timeout = (double)job->terms.step_timeout_ms / 1000.0;
    const char *what = member->given_up == RPS_GIVEN_UP_GONE
                               ? "was gone for longer than"
                               : "ended no further step within";

    return rps_fail(&request->error, RPS_E_TIMEOUT,
            "this replica, rank %" PRIu32 ", %s --step-timeout (%.1f s) after"
            " step %" PRIu64 ": the others go on without it (--on-lost leave),"
            " and what it pushed since counts in no step of theirs; it can"
            " join when the job begins again",
            rank, what, timeout, member->ended);
}

void
rps_job_saved_locked(
        struct rps_job *job, uint64_t step, struct rps_answers *answers)
{
    job->saved_ms = rps_clock_ms();
    if (job->save_ready && job->save_step == step) {
        open_barrier_locked(job, answers);
    }
    rps_job_wake_locked(job);
}

/* STEP_END */

static rps_status
read_wishes(const json_t *list, uint32_t *wishes, struct rps_error *error)
{
    size_t i;
    json_t *item;

    json_array_foreach(list, i, item)
    {
        const char *name = json_string_value(item);

        if (name != NULL && strcmp(name, "save") == 0) {
            *wishes |= RPS_WISH_SAVE;
        } else if (name != NULL && strcmp(name, "stop") == 0) {
            *wishes |= RPS_WISH_STOP;
        } else if (name != NULL && strcmp(name, "leave") == 0) {
            *wishes |= RPS_WISH_LEAVE;
        } else {
            return rps_fail(error, RPS_E_INVAL,
                    "STEP_END: wish \"%s\"; save, stop or leave is allowed",
                    name != NULL ? name : "?");
        }
    }
    return RPS_OK;
}

/* Strings by field, a few short ones. */
static rps_status
read_alike(json_t *object, json_t **out, struct rps_error *error)
{
    const char *field;
    json_t *value;

    if (object == NULL || json_is_null(object)) {
        return RPS_OK;
    }
    if (!json_is_object(object) || json_object_size(object) > ALIKE_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "STEP_END: alike must be an object of at most %u strings",
                ALIKE_MAX);
    }
    json_object_foreach(object, field, value)
    {
        if (!json_is_string(value) ||
                json_string_length(value) > ALIKE_BYTES_MAX ||
                strlen(field) > ALIKE_BYTES_MAX) {
            return rps_fail(error, RPS_E_INVAL,
                    "STEP_END: alike.%.64s must be a string of at most %u "
                    "bytes",
                    field, ALIKE_BYTES_MAX);
        }
    }
    *out = json_incref(object);
    return RPS_OK;
}

static rps_status
read_ending(struct rps_request *request, struct ending *ending)
{
    uint64_t rank = request->session->rank;
    json_t *object;
    const json_t *loss;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    status = rps_json_u64(
            object, "rank", RPS_REPLICAS_MAX, &rank, &request->error);
    if (status == RPS_OK && rank != request->session->rank) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END of rank %" PRIu64 " on a connection of rank"
                " %" PRIu32,
                rank, request->session->rank);
    }
    loss = json_object_get(object, "loss");
    ending->step = request->message->header.step;
    ending->loss = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
    ending->wishes = 0;
    if (status == RPS_OK) {
        status = read_wishes(json_object_get(object, "wishes"), &ending->wishes,
                &request->error);
    }
    if (status == RPS_OK) {
        status = read_alike(json_object_get(object, "alike"), &ending->alike,
                &request->error);
    }
    json_decref(object);
    return status;
}

static rps_status
check_member_locked(struct rps_request *request, struct rps_job *job)
{
    uint32_t rank = request->session->rank;

    if (!job->begun) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END: no job has begun here; the chief's RESTORE begins"
                " one");
    }
    if (rank >= job->terms.replica_count || !job->members[rank].started ||
            job->members[rank].client != request->session->client) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END: this process of rank %" PRIu32
                " has not joined the job: STEP_END of step 0 comes first",
                rank);
    }
    if (job->members[rank].given_up != RPS_NOT_GIVEN_UP) {
        return fail_given_up(request, job);
    }
    if (job->stopped) {
        return rps_fail(&request->error, job->stopped_with, "%s",
                job->why != NULL ? job->why : "a replica is missing");
    }
    return RPS_OK;
}

/* sync: the next step, or again the one that was ended last; with backup
 * workers any that was decided without this one. */
static rps_status
check_sync_step_locked(
        struct rps_request *request, struct rps_job *job, uint64_t step)
{
    uint32_t rank = request->session->rank;
    const struct rps_replica *member = &job->members[rank];

    if (step > job->decided + 1) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END of step %" PRIu64 ", but step %" PRIu64
                " has no decision yet",
                step, step - 1);
    }
    if (step <= job->decided && step != job->last.step &&
            job->terms.backup_workers == 0 && !(rank == 0 && member->left)) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END of step %" PRIu64
                ": its decision is over; the newest is of step %" PRIu64,
                step, job->decided);
    }
    return RPS_OK;
}

static rps_status
check_step_locked(
        struct rps_request *request, struct rps_job *job, uint64_t step)
{
    uint32_t rank = request->session->rank;
    const struct rps_replica *member = &job->members[rank];

    if (member->left && step > member->ended) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END of step %" PRIu64 ": rank %" PRIu32
                " left after step %" PRIu64,
                step, rank, member->ended);
    }
    if (step < member->ended || step <= job->begin_step) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END of step %" PRIu64 ": rank %" PRIu32
                " has ended step %" PRIu64,
                step, rank, member->ended);
    }
    return is_sync(job) ? check_sync_step_locked(request, job, step) : RPS_OK;
}

/* The chief grants what was wished here. */
static void
grant_wishes_locked(struct rps_job *job, uint32_t wishes)
{
    struct rps_service *service = job->service;

    if ((wishes & RPS_WISH_STOP) != 0) {
        job->stopping = true;
    }
    if ((wishes & RPS_WISH_LEAVE) != 0) { /* it saves and ends */
        wishes |= RPS_WISH_SAVE | RPS_WISH_STOP;
    }
    atomic_fetch_and(&service->wishes, ~wishes);
}

/* Step s was decided before this end of it came: again, or (backup workers)
 * without this replica, which learns the newest decision and goes on there. */
static void
end_late_locked(struct rps_job *job, uint32_t rank, const struct ending *ending,
        struct rps_answers *answers)
{
    struct rps_replica *member = &job->members[rank];

    if (ending->step > member->ended) {
        member->ended = ending->step;
        member->left = (ending->wishes & RPS_WISH_LEAVE) != 0;
        job->stopping = job->stopping || (ending->wishes & RPS_WISH_STOP) != 0;
    }
    answer_decision_locked(job, answers, member->waiting, &job->last);
    member->waiting = NULL;
    member->answered_ms = rps_clock_ms();
    if (member->left) {
        advance_sync_locked(job, answers);
    }
}

static rps_status
end_step_locked(struct rps_request *request, struct rps_job *job,
        const struct ending *ending)
{
    uint32_t rank = request->session->rank;
    struct rps_replica *member = &job->members[rank];
    bool decided = is_sync(job) && ending->step <= job->decided;
    struct rps_parked *parked;

    if (member->waiting != NULL) {
        rps_answer_locked(job->service, &request->answers, member->waiting,
                RPS_E_CANCELED, "STEP_END was sent again");
        member->waiting = NULL;
    }
    parked = rps_park_locked(request);
    if (parked == NULL) {
        return rps_fail(
                &request->error, RPS_E_NOMEM, "STEP_END: no memory to wait");
    }
    member->waiting = parked;
    member->waiting_ms = rps_clock_ms();
    if (rank == 0) {
        grant_wishes_locked(job, ending->wishes);
    }
    if (decided && !(rank == 0 && member->left)) {
        end_late_locked(job, rank, ending, &request->answers);
        return RPS_OK;
    }
    member->ended = ending->step;
    member->loss = ending->loss;
    member->wishes = ending->wishes;
    if (is_sync(job)) {
        advance_sync_locked(job, &request->answers);
    } else {
        advance_async_locked(job, &request->answers, rank);
    }
    if (job->timer_due == UINT64_MAX) { /* else it looks again in time */
        rps_job_wake_locked(job);
    }
    return RPS_OK;
}

static rps_status
serve_locked(struct rps_request *request, struct rps_job *job,
        const struct ending *ending)
{
    rps_status status;

    if (ending->step == 0) {
        return rps_job_join_locked(request, job, ending->alike);
    }
    status = check_member_locked(request, job);
    if (status == RPS_OK) {
        status = check_step_locked(request, job, ending->step);
    }
    return status == RPS_OK ? end_step_locked(request, job, ending) : status;
}

static rps_status
observe(struct rps_request *request)
{
    struct rps_service *service = request->service;
    rps_status status;

    pthread_mutex_lock(&service->lock);
    status = rps_job_observe_locked(request, service->job);
    pthread_mutex_unlock(&service->lock);
    return status;
}

rps_status
rps_serve_step_end(struct rps_request *request)
{
    struct rps_service *service = request->service;
    const struct rps_header *header = &request->message->header;
    struct ending ending = {.alike = NULL};
    rps_status status;

    if (service->job == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END goes to PS 0, this is PS %" PRIu32,
                service->options.ps_index);
    }
    if (request->session->role == RPS_PEER_EVALUATOR && header->step == 0) {
        return observe(request);
    }
    if (request->session->rank == RPS_NO_RANK) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "STEP_END comes from a replica; HELLO named no rank");
    }
    if (header->step != 0) {
        status = rps_epoch_check(service, header, &request->error);
        if (status != RPS_OK) {
            return status;
        }
    }
    status = read_ending(request, &ending);
    if (status != RPS_OK) {
        return status;
    }
    pthread_mutex_lock(&service->lock);
    status = serve_locked(request, service->job, &ending);
    pthread_mutex_unlock(&service->lock);
    json_decref(ending.alike);
    return status;
}
