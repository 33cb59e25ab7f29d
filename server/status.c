/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what the service says of itself: STAT, PING, the words of SIGTERM;
 * and SHUTDOWN.
 */
#include "base/clock.h"
#include "base/digest.h"
#include "base/spec.h"
#include "base/terms.h"
#include "base/text.h"
#include "server/job.h"
#include "server/save.h"
#include "server/serving.h"
#include "server/state.h"
#include "server/writer.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

json_t *
rps_wishes_json(uint32_t wishes)
{
    json_t *list = json_array();

    if ((wishes & RPS_WISH_SAVE) != 0) {
        json_array_append_new(list, json_string("save"));
    }
    if ((wishes & RPS_WISH_STOP) != 0) {
        json_array_append_new(list, json_string("stop"));
    }
    return list;
}

rps_status
rps_serve_ping(struct rps_request *request)
{
    struct rps_service *service = request->service;
    uint32_t wishes = atomic_load(&service->wishes);

    /* At PS 0 the chief's STEP_END ends a wish; elsewhere that it was told. One
     * of an older epoch is no chief any more. */
    if (request->session->rank == 0 && service->options.ps_index != 0 &&
            request->message->header.epoch == atomic_load(&service->epoch)) {
        wishes = atomic_exchange(&service->wishes, 0);
    }
    request->text = rps_json_text(json_pack("{s:I, s:I, s:o}", "epoch",
            (json_int_t)atomic_load(&service->epoch), "step",
            (json_int_t)atomic_load(&service->step), "wishes",
            rps_wishes_json(wishes)));
    return request->text != NULL ? RPS_OK : RPS_E_NOMEM;
}

static json_t *
describe_stats(const struct rps_table_stats *stats)
{
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {
            {"rows", stats->rows},
            {"bytes", stats->bytes},
            {"lookups", stats->lookups},
            {"missing", stats->missing},
            {"pushes", stats->pushes},
            {"applied", stats->applied},
            {"inserted", stats->inserted},
            {"nonfinite", stats->nonfinite},
            {"unadmitted", stats->unadmitted},
            {"dropped", stats->dropped},
            {"erased", stats->erased},
            {"evicted_cold", stats->evicted_cold},
            {"evicted_full", stats->evicted_full},
            {"disk_rows", stats->disk_rows},
            {"disk_bytes", stats->disk_bytes},
            {"disk_hits", stats->disk_hits},
            {"lowered", stats->lowered},
            {"raised", stats->raised},
            {"admission_keys", stats->admission_keys},
            {"admission_bytes", stats->admission_bytes},
    };
    json_t *object = json_object();

    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        json_object_set_new(object, figures[i].name,
                json_integer((json_int_t)figures[i].value));
    }
    return object;
}

static json_t *
describe_table(struct rps_table *table, bool with_digest)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    struct rps_table_stats stats;
    char hex[RPS_DIGEST_HEX_BYTES];
    json_t *object;

    rps_table_stats_of(table, &stats);
    object = describe_stats(&stats);
    json_object_set_new(object, "name", json_string(spec->name));
    json_object_set_new(object, "spec", rps_spec_to_value(spec));
    if (with_digest) {
        json_object_set_new(object, "digest",
                json_string(rps_digest_hex(rps_table_digest(table), hex)));
    }
    return object;
}

static json_t *
describe_tables(struct rps_store *store, bool with_digests)
{
    json_t *list = json_array();

    for (size_t i = 0; i < rps_store_count(store); i++) {
        json_array_append_new(
                list, describe_table(rps_store_at(store, i), with_digests));
    }
    return list;
}

static json_t *
describe_requests(struct rps_service *service)
{
    json_t *object = json_object();

    for (uint16_t op = 1; op <= RPS_OP_LAST; op++) {
        uint64_t count = atomic_load(&service->requests[op].count);

        if (count > 0) {
            json_object_set_new(object, rps_opcode_str(op),
                    json_pack("{s:I, s:I}", "count", (json_int_t)count,
                            "errors",
                            (json_int_t)atomic_load(
                                    &service->requests[op].errors)));
        }
    }
    return object;
}

/* What STAT says of the folder: complete steps, what does not count and why,
 * the largest epoch of a manifest. */
static json_t *
describe_checkpoints(const struct rps_service *service)
{
    struct rps_checkpoint_survey survey = {0};
    json_t *steps = json_array();
    json_t *abandoned = json_array();
    json_t *unusable = json_array();
    json_int_t epoch;

    if (service->options.checkpoint_dir != NULL &&
            rps_checkpoint_survey(service->options.checkpoint_dir,
                    service->options.ps_index, service->options.ps_count,
                    &survey, NULL) != RPS_OK) {
        survey = (struct rps_checkpoint_survey){0};
    }
    for (size_t i = 0; i < survey.count; i++) {
        const struct rps_checkpoint_complete *entry = &survey.complete[i];
        json_array_append_new(entry->abandoned ? abandoned : steps,
                json_integer((json_int_t)entry->step));
    }
    for (size_t i = 0; i < survey.unusable_count; i++) {
        json_array_append_new(
                unusable, json_pack("{s:I, s:s}", "step",
                                  (json_int_t)survey.unusable[i].step, "why",
                                  survey.unusable[i].why));
    }
    epoch = survey.epoch_max;
    rps_checkpoint_survey_finish(&survey);
    return json_pack("{s:o, s:o, s:o, s:I}", "checkpoints", steps,
            "checkpoints_abandoned", abandoned, "checkpoints_unusable",
            unusable, "checkpoint_epoch", epoch);
}

bool
rps_is_unsaved_locked(const struct rps_service *service)
{
    for (size_t i = 0; i < service->change_count; i++) {
        if (service->changes[i].updates > 0) {
            return true;
        }
    }
    return false;
}

static json_t *
describe_service(struct rps_service *service)
{
    char incarnation[24], seed[24];
    const struct rps_service_options *own = &service->options;

    snprintf(incarnation, sizeof(incarnation), "%016" PRIx64,
            service->incarnation);
    snprintf(seed, sizeof(seed), "%" PRIu64, own->job_seed);
    return json_pack("{s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:f, s:s?,"
                     " s:I, s:I, s:I, s:I, s:I}",
            "ps_index", (json_int_t)own->ps_index, "ps_count",
            (json_int_t)own->ps_count, "epoch",
            (json_int_t)atomic_load(&service->epoch), "step",
            (json_int_t)atomic_load(&service->step), "mode",
            rps_terms_mode(&service->terms).text, "incarnation", incarnation,
            "job_id", own->job_id, "job_seed", seed, "uptime_seconds",
            (double)(rps_clock_ms() - service->started_ms) / 1000.0,
            "checkpoint_dir", own->checkpoint_dir, "late",
            (json_int_t)atomic_load(&service->late), "dropped",
            (json_int_t)atomic_load(&service->dropped), "memory_limit",
            (json_int_t)own->memory_limit, "memory_used",
            (json_int_t)rps_service_tables_bytes(service), "memory_rings",
            (json_int_t)atomic_load(&service->held));
}

static json_t *
transports_locked(const struct rps_service *service)
{
    uint32_t counts[RPS_TRANSPORT_COUNT] = {0};
    json_t *object = json_object();

    for (const struct rps_session *at = service->sessions; at != NULL;
            at = at->next) {
        counts[at->transport]++;
    }
    for (int i = RPS_TRANSPORT_TCP; i < RPS_TRANSPORT_COUNT; i++) {
        json_object_set_new(object, rps_transport_str((enum rps_transport)i),
                json_integer((json_int_t)counts[i]));
    }
    return object;
}

char *
rps_service_stat(struct rps_service *service, bool with_digests)
{
    json_t *checkpoints = describe_checkpoints(service); /* no lock held */
    json_t *object;

    pthread_rwlock_rdlock(&service->state_lock);
    object = describe_service(service);
    json_object_update_missing(object, checkpoints);
    json_decref(checkpoints);
    if (service->serving != NULL) {
        json_object_set_new(
                object, "serving", rps_serving_describe(service->serving));
    }
    pthread_mutex_lock(&service->lock);
    json_object_set_new(
            object, "unsaved", json_boolean(rps_is_unsaved_locked(service)));
    json_object_set_new(
            object, "ending", json_boolean(atomic_load(&service->ending)));
    json_object_set_new(object, "save", rps_save_describe_locked(service));
    json_object_set_new(object, "connections",
            json_integer((json_int_t)service->session_count));
    json_object_set_new(object, "transports", transports_locked(service));
    json_object_set_new(object, "epoch_known",
            json_integer((json_int_t)service->known_epoch));
    if (service->job != NULL) {
        json_object_set_new(
                object, "members", rps_job_members_locked(service->job));
        json_object_set_new(object, "job", rps_job_state_locked(service->job));
    }
    pthread_mutex_unlock(&service->lock);
    json_object_set_new(object, "requests", describe_requests(service));
    json_object_set_new(
            object, "tables", describe_tables(service->store, with_digests));
    pthread_rwlock_unlock(&service->state_lock);
    return rps_json_text(object);
}

/* STAT beside the tables' contents: of the process around the service. */
static char *
stat_with_times(struct rps_service *service)
{
    char *text = rps_service_stat(service, false);
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;

    free(text);
    if (object != NULL && service->options.times != NULL) {
        service->options.times(service->options.context, object);
    }
    return rps_json_text(object);
}

static rps_status
run_digests(struct rps_service *service, struct rps_task *task, char **text_out,
        struct rps_error *error)
{
    *text_out = rps_service_stat(service, true);
    return *text_out != NULL ? RPS_OK : RPS_E_NOMEM;
}

rps_status
rps_serve_stat(struct rps_request *request)
{
    const struct rps_task task = {.run = run_digests};
    json_t *object = NULL;
    bool with_digests = false;
    bool with_times = false;
    rps_status status = RPS_OK;

    if (rps_message_find(request->message, RPS_SECTION_TEXT, 0) != NULL) {
        status = rps_request_json(request, &object);
    }
    if (status != RPS_OK) {
        return status;
    }
    with_digests = json_is_true(json_object_get(object, "digests"));
    with_times = json_is_true(json_object_get(object, "times"));
    json_decref(object);
    if (with_digests) { /* reads every row: not on a loop */
        return rps_writer_submit(request, &task);
    }
    request->text = with_times ? stat_with_times(request->service)
                               : rps_service_stat(request->service, false);
    return request->text != NULL ? RPS_OK : RPS_E_NOMEM;
}

/* Each table's part of the words, with state_lock and lock held. */
static void
add_unsaved_locked(const struct rps_service *service,
        const struct rps_changes *changes, struct rps_text *text)
{
    struct rps_table *table = rps_store_find(service->store, changes->table_id);

    if (changes->updates == 0 || table == NULL) {
        return;
    }
    rps_text_add(text, "%stable %s: %" PRIu64 " row updates since ",
            text->length > 0 ? "; " : "", rps_table_spec_of(table)->name,
            changes->updates);
    if (service->saved) {
        rps_text_add(text, "ckpt-%012" PRIu64, service->saved_step);
    } else {
        rps_text_add(text, "the start");
    }
}

char *
rps_service_unsaved(struct rps_service *service)
{
    struct rps_text text = {0};

    pthread_rwlock_rdlock(&service->state_lock);
    pthread_mutex_lock(&service->lock);
    for (size_t i = 0; i < service->change_count; i++) {
        add_unsaved_locked(service, &service->changes[i], &text);
    }
    pthread_mutex_unlock(&service->lock);
    pthread_rwlock_unlock(&service->state_lock);
    if (text.length == 0) {
        rps_text_add(&text, "nothing unsaved");
    }
    if (text.failed) {
        rps_text_finish(&text);
        return NULL;
    }
    return text.bytes;
}

static rps_status
wish_stop(struct rps_request *request, bool chief)
{
    if (request->service->options.ps_index != 0) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SHUTDOWN wish: wishes go to PS 0, this is PS %" PRIu32,
                request->service->options.ps_index);
    }
    if (!chief) {
        return rps_fail(&request->error, RPS_E_NOT_FOUND,
                "no chief is connected that could save and end the job");
    }
    atomic_fetch_or(&request->service->wishes, RPS_WISH_STOP);
    return RPS_OK;
}

static rps_status
check_shutdown(struct rps_request *request, bool chief)
{
    const struct rps_session *session = request->session;
    const uint32_t epoch = request->message->header.epoch;
    const uint32_t own = atomic_load(&request->service->epoch);

    if (session->rank == 0 && epoch < own) {
        return rps_fail(&request->error, RPS_E_ROLLED_BACK,
                "SHUTDOWN of epoch %" PRIu32
                ", but another chief has begun epoch %" PRIu32 " here",
                epoch, own);
    }
    if (session->rank == 0) { /* also of one that has lost its epoch */
        return RPS_OK;
    }
    if (session->rank != RPS_NO_RANK || session->role == RPS_PEER_EVALUATOR) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "SHUTDOWN comes from the chief or from a tool");
    }
    if (chief) {
        return rps_fail(&request->error, RPS_E_RETRY_LATER,
                "SHUTDOWN: a chief is connected: wish it to stop, or end it"
                " first");
    }
    return RPS_OK;
}

/* Answer first: the process may end as soon as it is told. */
static void
answer_and_stop(struct rps_request *request)
{
    struct rps_service *service = request->service;

    if (service->job != NULL) {
        pthread_mutex_lock(&service->lock);
        rps_job_end_locked(service->job, &request->answers);
        pthread_mutex_unlock(&service->lock);
        rps_answers_send(service, &request->answers);
    }
    request->frame = rps_reply_build(service, request->session,
            &request->message->header, RPS_OK, "{}", &request->frame_bytes);
    request->parked = true;
    request->reply(request->context, request->frame, request->frame_bytes);
    request->frame = NULL;
    if (service->options.shutdown != NULL) {
        service->options.shutdown(service->options.context);
    }
}

rps_status
rps_serve_shutdown(struct rps_request *request)
{
    struct rps_service *service = request->service;
    const char *action = NULL;
    json_t *object = NULL;
    bool chief;
    rps_status status = RPS_OK;

    if (rps_message_find(request->message, RPS_SECTION_TEXT, 0) != NULL) {
        status = rps_request_json(request, &object);
    }
    if (status != RPS_OK) {
        return status;
    }
    pthread_mutex_lock(&service->lock);
    chief = rps_chief_connected_locked(service);
    action = json_string_value(json_object_get(object, "action"));
    if (action != NULL && strcmp(action, "wish") == 0) {
        status = wish_stop(request, chief);
        pthread_mutex_unlock(&service->lock);
        json_decref(object);
        return status;
    }
    pthread_mutex_unlock(&service->lock);
    if (action != NULL && strcmp(action, "now") != 0) {
        status = rps_fail(&request->error, RPS_E_INVAL,
                "SHUTDOWN: action is \"%s\"; wish or now is allowed", action);
    } else {
        status = check_shutdown(request, chief);
    }
    json_decref(object);
    if (status == RPS_OK) {
        answer_and_stop(request);
    }
    return status;
}
