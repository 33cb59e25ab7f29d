/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns SAVE and RESTORE as requests and as tasks of the writer thread.
 * Leaves files to embedding/checkpoint.
 */
#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/spec.h"
#include "base/terms.h"
#include "server/job.h"
#include "server/load.h"
#include "server/state.h"
#include "server/warm.h"
#include "server/writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct rps_checkpoint_id
checkpoint_id(const struct rps_service *service, const struct rps_task *task)
{
    struct rps_checkpoint_id id = {.dir = service->options.checkpoint_dir,
            .step = task->step,
            .epoch = task->epoch,
            .part = service->options.ps_index,
            .parts = service->options.ps_count};

    return id;
}

/* What this cut holds is what COMMIT will have saved. */
static void
mark_prepared(struct rps_service *service, const struct rps_task *task)
{
    pthread_mutex_lock(&service->lock);
    service->preparing = true;
    service->preparing_client = task->client;
    for (size_t i = 0; i < service->change_count; i++) {
        service->changes[i].prepared = service->changes[i].updates;
    }
    pthread_mutex_unlock(&service->lock);
}

static rps_status
check_cut(struct rps_service *service, const struct rps_task *task,
        struct rps_error *error)
{
    const struct rps_header header = {
            .opcode = RPS_OP_SAVE, .epoch = task->epoch};
    uint64_t applied = atomic_load(&service->step);
    rps_status status = rps_epoch_check(service, &header, error);

    if (status == RPS_OK && service->terms.mode == RPS_MODE_SYNC &&
            applied != task->step) {
        return rps_fail(error, RPS_E_INVAL,
                "SAVE prepare of step %" PRIu64 ", but this PS has applied"
                " step %" PRIu64 ": save the step of the decision that"
                " carries the wish, before the next one ends",
                task->step, applied);
    }
    return status;
}

/* relaxed, here and below: see rps_saving_record */
static void
put(_Atomic uint64_t *field, uint64_t value)
{
    atomic_store_explicit(field, value, memory_order_relaxed);
}

static void
count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void
set_busy(struct rps_service *service, enum rps_busy busy)
{
    put(&service->saving.busy_since_ms, rps_clock_ms());
    atomic_store_explicit(&service->saving.busy, busy, memory_order_relaxed);
}

/* Of all files that the part file names. */
static uint64_t
bytes_of_part(const json_t *part)
{
    json_t *files = json_object_get(json_object_get(part, "part"), "files");
    uint64_t sum = 0;
    const char *name;
    json_t *file;

    json_object_foreach(files, name, file)
    {
        uint64_t bytes = 0;

        (void)rps_json_count(json_object_get(file, "bytes"), &bytes);
        sum += bytes;
    }
    return sum;
}

static rps_status
prepare(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);
    struct rps_lane_record *lanes = NULL;
    struct rps_cut *cut = NULL;
    size_t lane_count = 0;
    json_t *part = NULL;
    rps_status status;

    pthread_rwlock_rdlock(&service->state_lock);
    pthread_rwlock_wrlock(&service->change_lock);
    status = check_cut(service, task, error);
    if (status == RPS_OK) {
        status = rps_lanes_record(service->lanes, &lanes, &lane_count);
    }
    if (status == RPS_OK) {
        status = rps_cut_take(
                service->store, rps_service_now(service), 0, &cut, error);
    }
    if (status == RPS_OK) {
        status = rps_checkpoint_prepare(
                &id, false, cut, lanes, lane_count, &part, error);
        rps_cut_abort(cut);
    }
    if (status == RPS_OK) {
        mark_prepared(service, task);
    }
    pthread_rwlock_unlock(&service->change_lock);
    pthread_rwlock_unlock(&service->state_lock);
    free(lanes);
    if (status == RPS_OK) {
        service->saving.prepare_bytes = bytes_of_part(part);
        *text_out = rps_json_text(part);
        status = *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    return status;
}

static rps_status
run_prepare(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    rps_status status;

    service->saving.prepare_ns = rps_clock_ns();
    set_busy(service, RPS_BUSY_SAVE);
    status = prepare(service, task, text_out, error);
    set_busy(service, RPS_BUSY_NOT);
    if (status != RPS_OK) {
        count(&service->saving.save_failures);
    }
    return status;
}

static void
record_saved(struct rps_service *service)
{
    struct rps_saving_record *saving = &service->saving;

    put(&saving->save_ns, rps_clock_ns() - saving->prepare_ns);
    put(&saving->save_bytes, saving->prepare_bytes);
    put(&saving->saved_unix_s, rps_clock_unix_s());
    count(&saving->saves);
}

static void
mark_saved(struct rps_service *service, struct rps_task *task)
{
    pthread_mutex_lock(&service->lock);
    for (size_t i = 0; i < service->change_count; i++) {
        service->changes[i].updates -= service->changes[i].prepared;
        service->changes[i].prepared = 0;
    }
    service->saved = true;
    service->saved_step = task->step;
    pthread_mutex_unlock(&service->lock);
}

/* Whatever came of it: replicas held at this step may go on. */
static void
release_held(struct rps_service *service, struct rps_task *task)
{
    pthread_mutex_lock(&service->lock);
    service->preparing = false;
    if (service->job != NULL) {
        rps_job_saved_locked(service->job, task->step, &task->answers);
    }
    pthread_mutex_unlock(&service->lock);
}

/* Another client is between its PREPARE and its COMMIT or ABORT. */
static bool
is_preparing_elsewhere(struct rps_service *service, uint64_t client)
{
    bool found = false;

    pthread_mutex_lock(&service->lock);
    for (struct rps_session *at = service->sessions;
            at != NULL && service->preparing &&
            service->preparing_client != client;
            at = at->next) {
        found = found || at->client == service->preparing_client;
    }
    pthread_mutex_unlock(&service->lock);
    return found;
}

static rps_status
run_commit(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);
    rps_status status = rps_checkpoint_commit(
            &id, task->manifest, strlen(task->manifest), task->keep, error);

    if (status != RPS_OK) {
        count(&service->saving.save_failures);
    } else {
        mark_saved(service, task);
        record_saved(service);
        struct rps_log_about about = {.step = task->step};

        rps_log_enter(&about);
        rps_service_event(service, RPS_LOG_INFO, "checkpoint_saved",
                "ckpt-%012" PRIu64 " in %s: %" PRIu64 " bytes of this PS,"
                " %.1f s from PREPARE",
                task->step, id.dir, service->saving.prepare_bytes,
                (double)(rps_clock_ns() - service->saving.prepare_ns) / 1e9);
        rps_log_leave(&about);
    }
    release_held(service, task);
    return status;
}

static rps_status
run_abort(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);

    rps_checkpoint_abort(&id);
    release_held(service, task);
    return RPS_OK;
}

static rps_status
read_commit(struct rps_request *request, const json_t *object,
        struct rps_task *task)
{
    const char *manifest =
            json_string_value(json_object_get(object, "manifest"));
    uint64_t keep = 0;
    rps_status status =
            rps_json_u64(object, "keep", UINT32_MAX, &keep, &request->error);

    if (status != RPS_OK) {
        return status;
    }
    if (manifest == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE commit needs manifest, the manifest's text");
    }
    task->keep = (uint32_t)keep;
    task->manifest = strdup(manifest);
    return task->manifest != NULL ? RPS_OK : RPS_E_NOMEM;
}

static rps_status
wish_save(struct rps_request *request)
{
    struct rps_service *service = request->service;

    if (service->options.ps_index != 0) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE wish: wishes go to PS 0, this is PS %" PRIu32,
                service->options.ps_index);
    }
    return rps_service_wish_save(service, &request->error);
}

static rps_status
plan_save(struct rps_request *request, const json_t *object, const char *action,
        struct rps_task *task)
{
    const struct rps_header *header = &request->message->header;
    rps_status status =
            rps_epoch_check(request->service, header, &request->error);

    if (status != RPS_OK) {
        return status;
    }
    if (request->session->rank != 0 && request->session->rank != RPS_NO_RANK) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE %s comes from the chief (rank 0), not from rank"
                " %" PRIu32,
                action, request->session->rank);
    }
    if (request->service->options.checkpoint_dir == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE: PS %" PRIu32 " has no checkpoint_dir; set"
                " --checkpoint-dir, the same for the whole job",
                request->service->options.ps_index);
    }
    if (is_preparing_elsewhere(request->service, request->session->client)) {
        return rps_fail(&request->error, RPS_E_RETRY_LATER,
                "SAVE %s: another client has prepared a checkpoint and"
                " neither committed nor aborted it yet",
                action);
    }
    task->step = header->step;
    task->epoch = header->epoch;
    task->client = request->session->client;
    task->is_save = true;
    if (strcmp(action, "commit") == 0) {
        task->run = run_commit;
        return read_commit(request, object, task);
    }
    task->run = strcmp(action, "prepare") == 0 ? run_prepare : run_abort;
    return RPS_OK;
}

rps_status
rps_serve_save(struct rps_request *request)
{
    struct rps_task task = {0};
    const char *action;
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    action = json_string_value(json_object_get(object, "action"));
    if (action != NULL && strcmp(action, "wish") == 0) {
        status = wish_save(request);
    } else if (action == NULL || (strcmp(action, "prepare") != 0 &&
                                         strcmp(action, "commit") != 0 &&
                                         strcmp(action, "abort") != 0)) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "SAVE: action is \"%s\"; prepare, commit, abort or wish is"
                " allowed",
                action != NULL ? action : "");
    } else {
        status = plan_save(request, object, action, &task);
        if (status == RPS_OK) {
            status = rps_writer_submit(request, &task);
        }
    }
    json_decref(object);
    return status;
}

/** Everything a new epoch needs, made before anything is changed. */
struct fresh {
    struct rps_store *store;
    struct rps_contributed *contributed;
    json_t *manifest; /* NULL at step 0 */
    json_t *data_position;
    struct rps_lane_record *lanes;
    size_t lane_count;
};

static rps_status
load(struct rps_service *service, const struct rps_task *task,
        struct fresh *fresh, struct rps_error *error)
{
    json_t *position;
    rps_status status = rps_load(service, task->step, task->warm, fresh->store,
            &fresh->manifest, &fresh->lanes, &fresh->lane_count, error);

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
    rps_status status =
            rps_store_create(&fresh->store, service->options.job_seed);

    if (status == RPS_OK) {
        rps_store_set_budget(fresh->store, &service->budget);
    }
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

/* state_lock exclusive. *fresh and the old state change places. */
static rps_status
swap_in(struct rps_service *service, struct rps_task *task, struct fresh *fresh,
        struct rps_error *error)
{
    struct fresh old = {
            .store = service->store, .contributed = service->contributed};
    rps_status status = check_epoch(service, task, error);

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
            rps_job_reset_locked(
                    service->job, &task->terms, task->step, &task->answers);
        }
    }
    pthread_mutex_unlock(&service->lock);
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
    set_busy(service, RPS_BUSY_RESTORE);
    status = restore(service, task, text_out, error);
    set_busy(service, RPS_BUSY_NOT);
    put(&service->saving.restore_ns, rps_clock_ns() - start);
    count(status == RPS_OK ? &service->saving.restores
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
read_task(const json_t *object, struct rps_task *task, struct rps_error *error)
{
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
    return status;
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
    }
    if (status == RPS_OK) {
        return rps_writer_submit(request, &task); /* its texts, too */
    }
    rps_warm_destroy(task.warm);
    return status;
}
