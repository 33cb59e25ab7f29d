/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns SAVE: cut, prepare, commit, abort and wish as requests; and what of it
 * is the writer's thread's. Leaves the save in hand to save_hand.c, files to
 * embedding/checkpoint.
 */
#include "server/save.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/orphan.h"
#include "server/job.h"
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
            .parts = service->options.ps_count,
            .unwanted = &service->begins_soon};

    return id;
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

/* Whatever came of it: replicas held at this step may go on. */
static void
release_held(struct rps_service *service, struct rps_task *task)
{
    pthread_mutex_lock(&service->lock);
    if (service->job != NULL) {
        rps_job_saved_locked(service->job, task->step, &task->answers);
    }
    pthread_mutex_unlock(&service->lock);
}

/* The writer's thread takes the save of the task in its hand; false: it is
 * another one by now, or there is none. */
static bool
take_in_hand(struct rps_service *service, const struct rps_task *task,
        struct rps_save *copy_out)
{
    bool found;

    pthread_mutex_lock(&service->lock);
    found = rps_save_claim_locked(service, task->client, task->step) &&
            service->save.epoch == task->epoch &&
            (task->cut == 0 || service->save.number == task->cut);
    if (found) {
        service->save.writing = true;
        *copy_out = service->save;
    }
    pthread_mutex_unlock(&service->lock);
    return found;
}

static void
put_back(struct rps_service *service)
{
    pthread_mutex_lock(&service->lock);
    service->save.writing = false;
    pthread_mutex_unlock(&service->lock);
}

/* --- the cut ------------------------------------------------------------- */

static rps_status
check_now(struct rps_service *service, const struct rps_task *task,
        struct rps_error *error)
{
    const struct rps_header header = {
            .opcode = RPS_OP_SAVE, .epoch = task->epoch};
    const uint64_t applied = atomic_load(&service->step);
    rps_status status = rps_epoch_check(service, &header, error);

    if (status == RPS_OK && service->terms.mode == RPS_MODE_SYNC &&
            applied != task->step) {
        return rps_fail(error, RPS_E_INVAL,
                "SAVE of step %" PRIu64 ", but this PS has applied step"
                " %" PRIu64 ": save the step of the decision that carries the"
                " wish, before the next one ends",
                task->step, applied);
    }
    return status;
}

/* The save of the task; where there is none, or `now`, its cut is taken: so
 * long no row changes. */
static rps_status
find_or_take(struct rps_service *service, const struct rps_task *task,
        bool asks_cut, struct rps_save *copy_out, struct rps_error *error)
{
    rps_status status = RPS_OK;
    uint64_t from_ns;
    bool found;

    pthread_mutex_lock(&service->lock);
    found = rps_save_claim_locked(service, task->client, task->step);
    pthread_mutex_unlock(&service->lock);
    if (found && task->now) { /* rows were assigned since: it was never meant */
        rps_save_finish(service, false);
        found = false;
    }
    if (!found) {
        from_ns = rps_clock_ns();
        pthread_rwlock_rdlock(&service->state_lock);
        pthread_rwlock_wrlock(&service->change_lock);
        status = check_now(service, task, error);
        if (status == RPS_OK) {
            status = rps_save_take(service, task->step, from_ns, error);
        }
        pthread_rwlock_unlock(&service->change_lock);
        pthread_rwlock_unlock(&service->state_lock);
    }
    pthread_mutex_lock(&service->lock);
    if (status == RPS_OK &&
            rps_save_claim_locked(service, task->client, task->step)) {
        service->save.asked_cut = service->save.asked_cut || asks_cut;
        *copy_out = service->save;
    } else if (status == RPS_OK) {
        status = rps_fail(error, RPS_E_RETRY_LATER,
                "SAVE: another save is in progress here");
    }
    pthread_mutex_unlock(&service->lock);
    return status;
}

static bool
is_based(const struct rps_save *save)
{
    return save->parent.name[0] != '\0';
}

/* What SAVE cut answers; NULL: no memory. */
static char *
cut_text(const struct rps_save *save)
{
    json_t *parent =
            is_based(save) ? json_pack("{s:s, s:s}", "name", save->parent.name,
                                     "digest", save->parent.digest)
                           : json_null();

    return rps_json_text(json_pack("{s:I, s:o, s:I, s:I}", "step",
            (json_int_t)save->step, "delta_parent", parent, "chain",
            (json_int_t)save->parent.chain, "pause_us",
            (json_int_t)(save->pause_ns / 1000)));
}

static rps_status
run_cut(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    struct rps_save save;
    rps_status status;

    rps_record_busy(service, RPS_BUSY_SAVE);
    status = find_or_take(service, task, true, &save, error);
    rps_record_busy(service, RPS_BUSY_NOT);
    if (status != RPS_OK) {
        return status;
    }
    *text_out = cut_text(&save);
    return *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
}

/* --- PREPARE ------------------------------------------------------------- */

static rps_status
check_delta(const struct rps_save *save, struct rps_error *error)
{
    if (!is_based(save)) {
        return rps_fail(error, RPS_E_INVAL,
                "SAVE prepare: no complete checkpoint is known here that a"
                " delta could stand on: save a full one");
    }
    if (save->parent.chain >= RPS_CKPT_DELTAS_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "SAVE prepare: %s is the last of %u deltas already: save a"
                " full one",
                save->parent.name, RPS_CKPT_DELTAS_MAX);
    }
    return RPS_OK;
}

static rps_status
write_cut(struct rps_service *service, const struct rps_task *task,
        const struct rps_save *save, char **text_out, uint64_t *bytes_out,
        struct rps_error *error)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);
    json_t *part = NULL;
    rps_status status = rps_checkpoint_prepare(&id, task->delta, save->cut,
            save->lanes, save->lane_count, &part, error);

    if (status == RPS_OK) {
        *bytes_out = bytes_of_part(part);
        *text_out = rps_json_text(part);
        status = *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    return status;
}

/* Its files are there. False: no memory to know them by. */
static bool
keep_prepared(struct rps_service *service, const struct rps_task *task,
        const char *text, uint64_t bytes)
{
    char *part = strdup(text);

    pthread_mutex_lock(&service->lock);
    service->save.phase = RPS_SAVE_PREPARED;
    service->save.delta = task->delta;
    service->save.bytes = bytes;
    free(service->save.part);
    service->save.part = part;
    service->save.writing = false;
    pthread_mutex_unlock(&service->lock);
    return part != NULL;
}

/* The save is in the writer's hand. */
static rps_status
prepare(struct rps_service *service, const struct rps_task *task,
        const struct rps_save *save, char **text_out, struct rps_error *error)
{
    uint64_t bytes = 0;
    rps_status status = task->delta ? check_delta(save, error) : RPS_OK;

    if (status == RPS_OK && save->phase != RPS_SAVE_CUT) {
        status = rps_fail(error, RPS_E_INVAL,
                "SAVE prepare of step %" PRIu64
                ": it is prepared already, as another kind",
                task->step);
    }
    if (status == RPS_OK) {
        status = write_cut(service, task, save, text_out, &bytes, error);
    }
    if (status == RPS_OK && !keep_prepared(service, task, *text_out, bytes)) {
        status = rps_fail(error, RPS_E_NOMEM, "SAVE: no memory");
    }
    return status;
}

static rps_status
prepare_in_hand(struct rps_service *service, struct rps_task *task,
        char **text_out, struct rps_error *error)
{
    struct rps_save save;
    rps_status status = RPS_OK;

    if (!take_in_hand(service, task, &save)) {
        return rps_fail(error, RPS_E_CANCELED,
                "SAVE prepare of step %" PRIu64 ": its cut is gone: the job "
                "began again, or it came too late",
                task->step);
    }
    if (save.phase == RPS_SAVE_PREPARED && save.delta == task->delta) {
        /* asked again, on a newer connection */
        *text_out = strdup(save.part);
        put_back(service);
        return *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    status = prepare(service, task, &save, text_out, error);
    if (status != RPS_OK) {
        rps_save_note_failure(service, task->step, save.number, error->text);
        rps_save_finish(service, false);
    }
    return status;
}

/* Who sent no `cut` before gets one now. */
static rps_status
run_prepare(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    struct rps_save save;
    rps_status status = RPS_OK;

    rps_record_busy(service, RPS_BUSY_SAVE);
    if (task->cut == 0) {
        status = find_or_take(service, task, false, &save, error);
        if (status != RPS_OK) {
            rps_save_note_failure(service, task->step, 0, error->text);
        }
    }
    if (status == RPS_OK) {
        status = prepare_in_hand(service, task, text_out, error);
    }
    rps_record_busy(service, RPS_BUSY_NOT);
    return status;
}

/* --- COMMIT and ABORT ---------------------------------------------------- */

static void
record_saved(struct rps_service *service, const struct rps_save *save)
{
    struct rps_saving_record *saving = &service->saving;

    rps_record_put(&saving->save_ns, rps_clock_ns() - save->taken_ns);
    rps_record_put(&saving->save_bytes, save->bytes);
    rps_record_put(&saving->save_delta, save->delta ? 1 : 0);
    rps_record_put(&saving->saved_unix_s, rps_clock_unix_s());
    rps_record_put(&saving->saved_cut, save->number);
    rps_record_count(&saving->saves);
}

static void
tell_saved(struct rps_service *service, const struct rps_save *save)
{
    struct rps_log_about about = {.step = save->step};

    rps_log_enter(&about);
    rps_service_event(service, RPS_LOG_INFO, "checkpoint_saved",
            "ckpt-%012" PRIu64 " in %s: %s%s, %" PRIu64
            " bytes of this PS, %.1f s from the cut, which took %.3f ms",
            save->step, service->options.checkpoint_dir,
            save->delta ? "a delta on " : "full",
            save->delta ? save->parent.name : "", save->bytes,
            (double)(rps_clock_ns() - save->taken_ns) / 1e9,
            (double)save->pause_ns / 1e6);
    rps_log_leave(&about);
}

/* It is complete here: what a delta may stand on, what is unsaved. */
static void
end_saved(struct rps_service *service, const struct rps_task *task,
        const struct rps_save *save)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);
    json_t *manifest = json_loads(task->manifest, 0, NULL);

    pthread_mutex_lock(&service->lock);
    service->saved = true;
    service->saved_step = task->step;
    pthread_mutex_unlock(&service->lock);
    rps_orphan_tidy(&id);
    record_saved(service, save);
    rps_save_finish(service, true);
    rps_save_stand_on_saved(service, save, manifest);
    json_decref(manifest);
    tell_saved(service, save);
}

static rps_status
run_commit(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);
    const struct rps_header header = {
            .opcode = RPS_OP_SAVE, .epoch = task->epoch};
    struct rps_save save = {.phase = RPS_SAVE_NONE};
    const bool found = take_in_hand(service, task, &save);
    /* a RESTORE may have stood before this in the queue: its chief has chosen
     * among the steps that were complete */
    rps_status status = rps_epoch_check(service, &header, error);

    if (status == RPS_OK) {
        status = rps_checkpoint_commit(
                &id, task->manifest, strlen(task->manifest), task->keep, error);
    }

    if (status == RPS_OK && found) {
        end_saved(service, task, &save);
    } else if (status != RPS_OK) {
        rps_save_note_failure(service, task->step, save.number, error->text);
    }
    if (status != RPS_OK && found) {
        rps_save_finish(service, false);
    }
    release_held(service, task);
    return status;
}

/* The last save that failed here is of this step: it is known. */
static bool
has_failed(struct rps_service *service, uint64_t step)
{
    bool known;

    pthread_mutex_lock(&service->lock);
    known = service->failed_why != NULL && service->failed_step == step;
    pthread_mutex_unlock(&service->lock);
    return known;
}

static rps_status
run_abort(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    const struct rps_checkpoint_id id = checkpoint_id(service, task);
    struct rps_save save;

    if (take_in_hand(service, task, &save)) {
        rps_save_note_failure(service, task->step, save.number,
                task->why != NULL ? task->why : "the chief gave it up");
        rps_save_finish(service, false);
    } else if (task->why != NULL && !has_failed(service, task->step)) {
        rps_save_note_failure(service, task->step, 0, task->why);
    }
    rps_checkpoint_abort(&id);
    release_held(service, task);
    return RPS_OK;
}

/* --- requests ------------------------------------------------------------ */

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
    task->run = run_commit;
    task->keep = (uint32_t)keep;
    task->manifest = strdup(manifest);
    return task->manifest != NULL ? RPS_OK : RPS_E_NOMEM;
}

static rps_status
read_abort(const json_t *object, struct rps_task *task)
{
    const char *why = json_string_value(json_object_get(object, "why"));

    task->run = run_abort;
    task->why = why != NULL ? strdup(why) : NULL;
    return why == NULL || task->why != NULL ? RPS_OK : RPS_E_NOMEM;
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

/* The save of this client at this step, claimed; false: there is none. */
static bool
claim(struct rps_request *request, bool asks_cut, struct rps_save *copy_out)
{
    struct rps_service *service = request->service;
    bool found;

    pthread_mutex_lock(&service->lock);
    found = rps_save_claim_locked(
            service, request->session->client, request->message->header.step);
    service->save.asked_cut = service->save.asked_cut || (found && asks_cut);
    *copy_out = service->save;
    pthread_mutex_unlock(&service->lock);
    return found;
}

/* Where the cut is there already it is answered; else the writer's thread
 * takes it, before what waits there: replicas may be held for it. */
static rps_status
serve_cut(struct rps_request *request, const json_t *object,
        struct rps_task *task)
{
    struct rps_save save;

    task->now = json_is_true(json_object_get(object, "now"));
    if (!task->now && claim(request, true, &save)) {
        request->text = cut_text(&save);
        return request->text != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    task->run = run_cut;
    task->urgent = true;
    return rps_writer_submit(request, task);
}

static rps_status
read_kind(struct rps_request *request, const json_t *object, bool *delta_out)
{
    const json_t *field = json_object_get(object, "kind");
    const char *kind = field != NULL ? json_string_value(field) : "full";

    if (kind == NULL ||
            (strcmp(kind, "full") != 0 && strcmp(kind, "delta") != 0)) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE prepare: kind is \"%s\"; full or delta is allowed",
                kind != NULL ? kind : "");
    }
    *delta_out = kind[0] == 'd';
    return RPS_OK;
}

/* PS 0 lets the replicas go on: every server has its cut, or it would not be
 * asked to write it. Who has not sent `cut` says nothing of the others. */
static void
release_at_prepare(struct rps_request *request, const struct rps_save *save)
{
    struct rps_service *service = request->service;

    pthread_mutex_lock(&service->lock);
    if (service->job != NULL && save->asked_cut) {
        rps_job_saved_locked(service->job, save->step, &request->answers);
    }
    pthread_mutex_unlock(&service->lock);
}

static rps_status
serve_prepare(struct rps_request *request, const json_t *object,
        struct rps_task *task)
{
    struct rps_save save;
    rps_status status = read_kind(request, object, &task->delta);
    bool found;

    if (status != RPS_OK) {
        return status;
    }
    found = claim(request, false, &save);
    task->run = run_prepare;
    task->cut = found ? save.number : 0;
    status = rps_writer_submit(request, task);
    if (status == RPS_OK && found) {
        release_at_prepare(request, &save);
    }
    return status;
}

static rps_status
check_saver(struct rps_request *request, const char *action)
{
    struct rps_service *service = request->service;
    bool others;
    rps_status status = rps_epoch_check(
            service, &request->message->header, &request->error);

    if (status != RPS_OK) {
        return status;
    }
    if (request->session->rank != 0 && request->session->rank != RPS_NO_RANK) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE %s comes from the chief (rank 0), not from rank"
                " %" PRIu32,
                action, request->session->rank);
    }
    if (service->options.checkpoint_dir == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SAVE: PS %" PRIu32 " has no checkpoint_dir; set"
                " --checkpoint-dir, the same for the whole job",
                service->options.ps_index);
    }
    pthread_mutex_lock(&service->lock);
    others = rps_save_is_others_locked(service, request->session->client);
    pthread_mutex_unlock(&service->lock);
    return others ? rps_fail(&request->error, RPS_E_RETRY_LATER,
                            "SAVE %s: another client's save is in progress"
                            " here",
                            action)
                  : RPS_OK;
}

static rps_status
serve_action(
        struct rps_request *request, const json_t *object, const char *action)
{
    const struct rps_header *header = &request->message->header;
    struct rps_task task = {.step = header->step,
            .epoch = header->epoch,
            .client = request->session->client};
    rps_status status = check_saver(request, action);

    if (status != RPS_OK) {
        return status;
    }
    if (strcmp(action, "cut") == 0) {
        return serve_cut(request, object, &task);
    }
    if (strcmp(action, "prepare") == 0) {
        return serve_prepare(request, object, &task);
    }
    status = strcmp(action, "commit") == 0 ? read_commit(request, object, &task)
                                           : read_abort(object, &task);
    return status == RPS_OK ? rps_writer_submit(request, &task) : status;
}

static bool
is_action(const char *action)
{
    static const char *const names[] = {"cut", "prepare", "commit", "abort"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(action, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

rps_status
rps_serve_save(struct rps_request *request)
{
    const char *action;
    json_t *object;
    rps_status status = rps_request_json(request, &object);

    if (status != RPS_OK) {
        return status;
    }
    action = json_string_value(json_object_get(object, "action"));
    if (action != NULL && strcmp(action, "wish") == 0) {
        status = wish_save(request);
    } else if (action == NULL || !is_action(action)) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "SAVE: action is \"%s\"; cut, prepare, commit, abort or wish"
                " is allowed",
                action != NULL ? action : "");
    } else {
        status = serve_action(request, object, action);
    }
    json_decref(object);
    return status;
}
