/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns RESTORE as a request and as a task of the writer thread, and what a
 * server begins with. Leaves files to embedding/checkpoint, SAVE to save.c.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/terms.h"
#include "server/job.h"
#include "server/load.h"
#include "server/save.h"
#include "server/state.h"
#include "server/warm.h"
#include "server/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define CHIEF_SILENT_MS 10000u /* a chief at work is heard each step */

/** Everything a new epoch needs, made before anything is changed. */
struct fresh {
    struct rps_store *store;
    struct rps_contributed *contributed;
    json_t *manifest; /* NULL at step 0 */
    json_t *data_position;
    struct rps_lane_record *lanes;
    size_t lane_count;
    struct rps_save_parent parent; /* of the next delta */
};

static rps_status
load(struct rps_service *service, const struct rps_task *task,
        struct fresh *fresh, struct rps_error *error)
{
    json_t *position;
    rps_status status = rps_load(service, task->step, task->warm, fresh->store,
            &fresh->manifest, &fresh->lanes, &fresh->lane_count, error);

    if (status == RPS_OK && task->warm == NULL) {
        rps_save_read_parent(
                service, task->step, fresh->manifest, &fresh->parent);
    }
    if (status == RPS_OK && !rps_warm_begins(task->warm)) {
        position = json_object_get(fresh->manifest, "data_position");
        if (position != NULL && !json_is_null(position)) {
            fresh->data_position = json_incref(position);
        }
    }
    return status;
}

static rps_status
make_fresh(struct rps_service *service, const struct rps_task *task,
        struct fresh *fresh, struct rps_error *error)
{
    rps_status status = rps_service_new_store(service, &fresh->store, error);

    fresh->contributed = rps_contributed_create(task->terms.replica_count);
    if (status != RPS_OK || fresh->contributed == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "RESTORE: no memory");
    }
    return task->step > 0 || task->warm != NULL
                   ? load(service, task, fresh, error)
                   : RPS_OK;
}

static void
drop_fresh(struct fresh *fresh, uint32_t replica_count)
{
    rps_contributed_destroy(fresh->contributed, replica_count);
    rps_store_destroy(fresh->store);
    json_decref(fresh->manifest);
    json_decref(fresh->data_position);
    free(fresh->lanes);
}

/* state_lock is held. Its client did not get the answer, and asks again. */
static bool
is_again(const struct rps_service *service, const struct rps_task *task)
{
    return task->client != 0 && task->client == service->begun_by &&
           task->epoch == atomic_load(&service->epoch) &&
           task->step == service->begun_step;
}

static rps_status
check_epoch(struct rps_service *service, const struct rps_task *task,
        struct rps_error *error)
{
    const uint32_t epoch = task->epoch;
    uint32_t own = atomic_load(&service->epoch);

    return epoch > own || is_again(service, task)
                   ? RPS_OK
                   : rps_fail(error, RPS_E_INVAL,
                             "RESTORE: epoch %" PRIu32
                             " must exceed this PS's, which is %" PRIu32,
                             epoch, own);
}

/* state_lock exclusive. What is in the tables is this checkpoint, or only a
 * part of one, on which no delta may stand: then it has no name here. */
static void
stand_on(struct rps_service *service, const struct fresh *fresh)
{
    if (fresh->parent.name[0] != '\0') {
        rps_store_mark_clean(service->store);
    }
    rps_save_stand_on(service, &fresh->parent);
}

/* state_lock exclusive. *fresh and the old state change places. */
static rps_status
swap_in(struct rps_service *service, struct rps_task *task, struct fresh *fresh,
        struct rps_error *error)
{
    struct fresh old = {
            .store = service->store, .contributed = service->contributed};
    rps_status status = check_epoch(service, task, error);

    if (status == RPS_OK) { /* its tables go */
        (void)rps_save_drop(service, "the job begins again");
    }
    pthread_mutex_lock(&service->lock);
    if (status == RPS_OK && service->job != NULL &&
            rps_job_prepare_locked(service->job, task->terms.replica_count) !=
                    RPS_OK) {
        status = rps_fail(error, RPS_E_NOMEM, "RESTORE: no memory");
    }
    if (status == RPS_OK) {
        old.data_position = service->data_position;
        service->data_position = fresh->data_position;
        service->store = fresh->store;
        service->contributed = fresh->contributed;
        service->apply_next = 0;
        service->terms = task->terms;
        atomic_store(&service->comes_back, task->terms.recover != 0);
        service->begun_by = task->client;
        service->begun_step = task->step;
        json_decref(service->warm_answer);
        service->warm_answer =
                task->warm != NULL ? rps_warm_answer(task->warm) : NULL;
        atomic_store(&service->epoch, task->epoch);
        rps_tables_set_step(service->store, task->step);
        atomic_store(&service->step, task->step);
        service->change_count = 0;
        service->saved = task->step > 0;
        service->saved_step = task->step;
        fresh->store = old.store;
        fresh->contributed = old.contributed;
        fresh->data_position = old.data_position;
        if (service->job != NULL) {
            rps_job_reset_locked(service->job, &task->terms, task->step,
                    task->reason, &task->answers);
        }
    }
    pthread_mutex_unlock(&service->lock);
    if (status == RPS_OK) {
        stand_on(service, fresh);
    }
    return status;
}

static char *
restore_answer(const struct rps_service *service, const struct rps_task *task)
{
    json_t *names = json_array();
    json_t *position = service->data_position != NULL
                               ? json_incref(service->data_position)
                               : json_null();
    json_t *answer;

    for (size_t i = 0; i < rps_store_count(service->store); i++) {
        const rps_table_spec *spec =
                rps_table_spec_of(rps_store_at(service->store, i));

        json_array_append_new(names, json_string(spec->name));
    }
    answer = json_pack("{s:I, s:o, s:o}", "step", (json_int_t)task->step,
            "data_position", position, "tables", names);
    if (answer != NULL && service->warm_answer != NULL) {
        (void)json_object_set(answer, "warm_start", service->warm_answer);
    }
    return rps_json_text(answer);
}

static rps_status
restore(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    struct fresh fresh = {0};
    uint32_t replica_count = task->terms.replica_count;
    rps_status status;
    bool again;

    pthread_rwlock_rdlock(&service->state_lock);
    again = is_again(service, task);
    *text_out = again ? restore_answer(service, task) : NULL;
    pthread_rwlock_unlock(&service->state_lock);
    if (again) {
        return *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    status = make_fresh(service, task, &fresh, error);
    if (status == RPS_OK) {
        uint32_t old_count;

        pthread_rwlock_wrlock(&service->state_lock);
        old_count = service->terms.replica_count;
        status = swap_in(service, task, &fresh, error);
        if (status == RPS_OK) {
            replica_count = old_count;
            *text_out = restore_answer(service, task);
        }
        pthread_rwlock_unlock(&service->state_lock);
    }
    if (status == RPS_OK) {
        /* lanes that nobody has used here keep their verdicts */
        (void)rps_lanes_merge(service->lanes, fresh.lanes, fresh.lane_count);
        rps_service_event(service, RPS_LOG_INFO, "job_begun",
                "epoch %" PRIu32 ", step %" PRIu64 ", %s, %" PRIu32 " replicas",
                task->epoch, task->step, rps_terms_mode(&task->terms).text,
                task->terms.replica_count);
    }
    drop_fresh(&fresh, replica_count);
    return status == RPS_OK && *text_out == NULL ? RPS_E_NOMEM : status;
}

/* What was loaded becomes what is served. */
static void
begin_from(struct rps_service *service, uint64_t step, struct fresh *fresh)
{
    struct rps_store *empty = service->store;

    pthread_rwlock_wrlock(&service->state_lock);
    service->store = fresh->store;
    rps_tables_set_step(service->store, step);
    atomic_store(&service->step, step);
    pthread_mutex_lock(&service->lock);
    service->data_position = json_incref(fresh->data_position);
    service->saved = true;
    service->saved_step = step;
    pthread_mutex_unlock(&service->lock);
    stand_on(service, fresh);
    pthread_rwlock_unlock(&service->state_lock);
    fresh->store = empty;
    rps_service_event(service, RPS_LOG_INFO, "started_from",
            "ckpt-%012" PRIu64 " in %s: %zu tables", step,
            service->options.checkpoint_dir, rps_store_count(service->store));
}

static rps_status
try_step(struct rps_service *service, uint64_t step, struct rps_error *error)
{
    struct rps_task task = {.step = step};
    struct fresh fresh = {0};
    rps_status status = make_fresh(service, &task, &fresh, error);

    if (status == RPS_OK) {
        status = rps_lanes_merge(service->lanes, fresh.lanes, fresh.lane_count);
    }
    if (status == RPS_OK) {
        begin_from(service, step, &fresh);
    }
    drop_fresh(&fresh, 0);
    return status;
}

/* A folder that cannot be read to its end is not damage: it may be tomorrow,
 * and an older step in its place would be work lost. */
static bool
is_damage(rps_status status)
{
    return status == RPS_E_CORRUPT || status == RPS_E_NOT_FOUND;
}

static void
pass_over(struct rps_service *service, uint64_t step, const char *why)
{
    rps_service_event(service, RPS_LOG_ERROR, "checkpoint_passed_over",
            "ckpt-%012" PRIu64 " is damaged, an older one is tried: %s", step,
            why);
}

/* Steps go down both lists: what is passed over is said in their order. */
static rps_status
load_surveyed(struct rps_service *service,
        const struct rps_checkpoint_survey *survey, struct rps_error *error)
{
    size_t left = survey->count;
    size_t bad = survey->unusable_count;
    uint64_t passed = 0;

    while (left > 0 || bad > 0) {
        struct rps_error why = {.text = ""};
        uint64_t step;

        if (bad > 0 && (left == 0 || survey->unusable[bad - 1].step >
                                             survey->complete[left - 1].step)) {
            bad--;
            pass_over(service, survey->unusable[bad].step,
                    survey->unusable[bad].why);
            passed++;
            continue;
        }
        left--;
        step = survey->complete[left].step;
        if (!survey->complete[left].abandoned) {
            const rps_status status = try_step(service, step, &why);

            if (!is_damage(status)) {
                return status == RPS_OK
                               ? RPS_OK
                               : rps_fail(error, status, "%.900s", why.text);
            }
            pass_over(service, step, why.text);
            passed++;
        }
    }
    return passed == 0 ? RPS_OK
                       : rps_fail(error, RPS_E_CORRUPT,
                                 "%s: %" PRIu64
                                 " checkpoints, and none of them is usable",
                                 service->options.checkpoint_dir, passed);
}

rps_status
rps_service_load_newest(struct rps_service *service, struct rps_error *error)
{
    const struct rps_service_options *options = &service->options;
    struct rps_checkpoint_survey survey = {0};
    rps_status status;

    if (options->checkpoint_dir == NULL) {
        return rps_fail(
                error, RPS_E_INVAL, "there is no checkpoint_dir to begin from");
    }
    status = rps_checkpoint_survey(options->checkpoint_dir, options->ps_index,
            options->ps_count, &survey, error);
    if (status == RPS_OK) {
        status = load_surveyed(service, &survey, error);
    }
    rps_checkpoint_survey_finish(&survey);
    return status;
}

static rps_status
run_restore(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const uint64_t start = rps_clock_ns();
    rps_status status;

    rps_load_progress(service, 0, 0);
    rps_record_busy(service, RPS_BUSY_RESTORE);
    status = restore(service, task, text_out, error);
    rps_record_busy(service, RPS_BUSY_NOT);
    rps_record_put(&service->saving.restore_ns, rps_clock_ns() - start);
    rps_record_count(status == RPS_OK ? &service->saving.restores
                                      : &service->saving.restore_failures);
    return status;
}

static rps_status
read_terms(const json_t *object, rps_terms *terms, struct rps_error *error)
{
    struct rps_error why = {{0}};
    rps_status status;

    terms->replica_count = 1;
    status = rps_terms_read(object, terms, &why);
    if (status == RPS_OK && terms->replica_count > RPS_REPLICAS_MAX) {
        status = rps_fail(&why, RPS_E_INVAL,
                "replicas is %" PRIu32 "; at most %u is allowed",
                terms->replica_count, RPS_REPLICAS_MAX);
    }
    if (status == RPS_OK) {
        status = rps_terms_check(terms, &why);
    }
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(error, status, "RESTORE: %.900s", why.text);
}

static rps_status
copy_reason(const char *reason, struct rps_task *task, struct rps_error *error)
{
    if (strlen(reason) >= sizeof(task->reason)) {
        return rps_fail(error, RPS_E_INVAL,
                "RESTORE: reason has %zu bytes; at most %zu are allowed",
                strlen(reason), sizeof(task->reason) - 1);
    }
    memcpy(task->reason, reason, strlen(reason) + 1);
    return RPS_OK;
}

static rps_status
read_task(const json_t *object, struct rps_task *task, struct rps_error *error)
{
    const char *reason = json_string_value(json_object_get(object, "reason"));
    uint64_t epoch = 0;
    rps_status status = read_terms(object, &task->terms, error);

    if (status == RPS_OK) {
        status = rps_json_u64(object, "epoch", UINT32_MAX, &epoch, error);
    }
    if (status == RPS_OK) {
        status =
                rps_json_u64(object, "step", 999999999999u, &task->step, error);
    }
    if (status == RPS_OK) {
        status = rps_warm_read(object, task->step, &task->warm, error);
    }
    task->epoch = (uint32_t)epoch;
    if (status == RPS_OK && reason != NULL) {
        status = copy_reason(reason, task, error);
    }
    return status;
}

/* How long ago the process that began this epoch was heard, milliseconds;
 * UINT64_MAX: it is not connected, or it is this one. */
static uint64_t
chief_age(struct rps_service *service, const struct rps_session *own)
{
    const uint64_t now = rps_clock_ms();
    uint64_t least = UINT64_MAX;

    pthread_mutex_lock(&service->lock);
    for (const struct rps_session *at = service->sessions; at != NULL;
            at = at->next) {
        /* relaxed: see where it is written */
        const uint64_t heard =
                atomic_load_explicit(&at->heard_ms, memory_order_relaxed);
        const uint64_t age = now > heard ? now - heard : 0;

        if (at->rank == 0 && at->client == service->begun_by &&
                at->client != own->client && age < least) {
            least = age;
        }
    }
    pthread_mutex_unlock(&service->lock);
    return least;
}

/* Two chiefs that live would take the job from each other for ever: the one
 * that has it keeps it, as long as it is heard. At PS 0, without which it gets
 * nowhere. */
static rps_status
check_only_chief(struct rps_request *request)
{
    struct rps_service *service = request->service;
    const uint64_t timeout_ms = service->terms.step_timeout_ms;
    const uint64_t silent_ms =
            timeout_ms < CHIEF_SILENT_MS ? timeout_ms : CHIEF_SILENT_MS;
    uint64_t age;

    if (request->session->rank != 0 || service->job == NULL) {
        return RPS_OK;
    }
    age = chief_age(service, request->session);
    return age >= silent_ms
                   ? RPS_OK
                   : rps_fail(&request->error, RPS_E_RETRY_LATER,
                             "RESTORE: the job has a chief: another process of "
                             "rank 0, which began epoch %" PRIu32
                             ", is connected and was heard %.1f s ago; this "
                             "one may begin when that one is gone, or silent "
                             "for %.1f s",
                             atomic_load(&service->epoch), (double)age / 1e3,
                             (double)silent_ms / 1e3);
}

rps_status
rps_serve_restore(struct rps_request *request)
{
    struct rps_service *service = request->service;
    struct rps_task task = {
            .run = run_restore, .client = request->session->client};
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    task.terms.step_timeout_ms = service->options.step_timeout_ms;
    task.terms.step_bytes_max = service->options.step_bytes_max;
    status = read_task(object, &task, &request->error);
    json_decref(object);
    if (status == RPS_OK && request->session->rank != 0 &&
            request->session->rank != RPS_NO_RANK) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "RESTORE comes from the chief (rank 0), not from rank"
                " %" PRIu32,
                request->session->rank);
    }
    if (status == RPS_OK) {
        status = check_epoch(service, &task, &request->error);
        task.begins = task.epoch > atomic_load(&service->epoch);
    }
    if (status == RPS_OK && task.begins) {
        status = check_only_chief(request);
    }
    if (status == RPS_OK) {
        return rps_writer_submit(request, &task); /* its texts, too */
    }
    rps_warm_destroy(task.warm);
    return status;
}
