/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the service's life and the way of a request: what it must show, which
 * lock it runs under, its verdict, its answer. Leaves what each opcode does
 * to the rps_serve_ functions.
 */
#include "server/service.h"

#include "base/clock.h"
#include "base/log.h"
#include "embedding/region.h"
#include "server/job.h"
#include "server/keeper.h"
#include "server/save.h"
#include "server/serving.h"
#include "server/state.h"
#include "server/writer.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** How a request holds state_lock. */
enum hold {
    HOLD_NONE, /* the handler takes it itself, if at all */
    HOLD_SHARED,
    HOLD_EXCLUSIVE
};

struct operation {
    rps_status (*serve)(struct rps_request *request);
    enum hold hold;
    uint32_t flags;   /* that mean something here, beside the body checksum */
    bool any_epoch;   /* the handler looks at the epoch itself, if at all */
    bool is_changing; /* may be numbered in a lane */
    bool is_greeting; /* legal before HELLO */
    bool is_opening;  /* a repeat is served again: it changes nothing */
    bool is_reading;  /* of what needs a hold: served by --serve, too */
};

/* clang-format off */
static const struct operation operations[RPS_OP_LAST + 1] = {
    [RPS_OP_HELLO] = {rps_serve_hello, HOLD_NONE,
        .any_epoch = true, .is_greeting = true},
    [RPS_OP_GET_EMBEDDING_TABLE] = {rps_serve_get_table, HOLD_EXCLUSIVE,
        .is_changing = true, .is_opening = true, .is_reading = true},
    [RPS_OP_ALTER_TABLE] = {rps_serve_alter, HOLD_EXCLUSIVE,
        .is_changing = true},
    [RPS_OP_EMBEDDING_LOOKUP] = {rps_serve_lookup, HOLD_SHARED,
        .flags = RPS_FLAG_READ_ONLY, .is_reading = true},
    [RPS_OP_REFRESH] = {rps_serve_refresh, HOLD_SHARED,
        .flags = RPS_FLAG_READ_ONLY, .is_reading = true},
    [RPS_OP_PUSH_GRADIENTS] = {rps_serve_push, HOLD_SHARED,
        .flags = RPS_FLAG_MORE, .is_changing = true},
    [RPS_OP_STEP_END] = {rps_serve_step_end, HOLD_SHARED, .any_epoch = true},
    [RPS_OP_APPLY] = {rps_serve_apply, HOLD_SHARED},
    [RPS_OP_ASSIGN] = {rps_serve_assign, HOLD_SHARED, .is_changing = true},
    [RPS_OP_ERASE] = {rps_serve_erase, HOLD_SHARED, .is_changing = true},
    [RPS_OP_EVICT] = {rps_serve_evict, HOLD_SHARED},
    [RPS_OP_DROP] = {rps_serve_drop, HOLD_EXCLUSIVE, .is_changing = true},
    [RPS_OP_HOT_KEYS] = {rps_serve_hot_keys, HOLD_SHARED,
        .is_reading = true},
    [RPS_OP_SCAN] = {rps_serve_scan, HOLD_SHARED,
        .is_reading = true},
    [RPS_OP_SAVE] = {rps_serve_save, HOLD_SHARED, .any_epoch = true},
    [RPS_OP_RESTORE] = {rps_serve_restore, HOLD_SHARED, .any_epoch = true},
    [RPS_OP_STAT] = {rps_serve_stat, HOLD_NONE, .any_epoch = true},
    [RPS_OP_SHUTDOWN] = {rps_serve_shutdown, HOLD_NONE, .any_epoch = true},
    [RPS_OP_PING] = {rps_serve_ping, HOLD_NONE, .any_epoch = true},
    [RPS_OP_AUTH] = {rps_serve_auth, HOLD_NONE,
        .any_epoch = true, .is_greeting = true},
    [RPS_OP_LOG_LEVEL] = {rps_serve_log_level, HOLD_NONE, .any_epoch = true},
    [RPS_OP_CANCEL] = {rps_serve_cancel, HOLD_NONE,
        .any_epoch = true, .is_changing = true},
};
/* clang-format on */

static rps_status
copy_options(struct rps_service *service,
        const struct rps_service_options *options, struct rps_error *error)
{
    struct rps_service_options *own = &service->options;

    if (options->ps_count == 0 || options->ps_count > RPS_PS_COUNT_MAX ||
            options->ps_index >= options->ps_count) {
        return rps_fail(error, RPS_E_INVAL,
                "PS %" PRIu32 " of %" PRIu32 ": at most %u can be",
                options->ps_index, options->ps_count, RPS_PS_COUNT_MAX);
    }
    *own = *options;
    own->checkpoint_dir = NULL;
    own->warm_start_dirs = NULL;
    own->token = NULL; /* the caller's: service->token */
    own->job_id = strdup(options->job_id != NULL ? options->job_id : "recps");
    if (options->checkpoint_dir != NULL && options->checkpoint_dir[0] != 0) {
        own->checkpoint_dir = strdup(options->checkpoint_dir);
        if (own->checkpoint_dir == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory");
        }
    }
    if (options->warm_start_dirs != NULL) {
        own->warm_start_dirs = strdup(options->warm_start_dirs);
        if (own->warm_start_dirs == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory");
        }
    }
    return own->job_id != NULL ? RPS_OK
                               : rps_fail(error, RPS_E_NOMEM, "no memory");
}

static void
init_locks(struct rps_service *service)
{
    pthread_rwlockattr_t attributes;

    pthread_rwlockattr_init(&attributes);
    pthread_rwlockattr_setkind_np(
            &attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&service->state_lock, &attributes);
    pthread_rwlock_init(&service->change_lock, &attributes);
    pthread_rwlockattr_destroy(&attributes);
    pthread_rwlock_init(&service->token_lock, NULL);
    pthread_mutex_init(&service->lock, NULL);
    pthread_cond_init(&service->replied, NULL);
}

static void
init_terms(struct rps_service *service)
{
    service->terms.mode = RPS_MODE_ASYNC;
    service->terms.combine = RPS_COMBINE_SUM;
    service->terms.step_timeout_ms = service->options.step_timeout_ms;
    service->terms.step_bytes_max = service->options.step_bytes_max;
}

static rps_status
check_folder(struct rps_service *service, struct rps_error *error)
{
    const char *dir = service->options.checkpoint_dir;
    rps_status status = rps_checkpoint_dir_check(dir, error);

    if (status == RPS_E_IO && service->options.checkpoint_read_only_ok &&
            access(dir, R_OK | X_OK) == 0) {
        rps_service_event(service, RPS_LOG_INFO, "checkpoint_dir_read_only",
                "%s can be read, not written: nothing is saved to it", dir);
        return RPS_OK;
    }
    return status;
}

/* Where it cannot be done the tables work all the same. */
static void
place_memory(struct rps_service *service)
{
    const char *numa = service->options.numa;
    enum rps_numa where = RPS_NUMA_OFF;

    if (numa != NULL && strcmp(numa, "interleave") == 0) {
        where = RPS_NUMA_INTERLEAVE;
    } else if (numa != NULL && strcmp(numa, "bind") == 0) {
        where = RPS_NUMA_BIND;
    }
    if (where != RPS_NUMA_OFF && !rps_region_numa(where)) {
        rps_service_event(service, RPS_LOG_WARN, "numa",
                "--numa %s: this machine or build has no NUMA policy; memory "
                "lies where it falls",
                numa);
    }
    service->options.numa = NULL; /* the caller's text */
}

static rps_status
open_disk_tier(struct rps_service *service,
        const struct rps_service_options *options, struct rps_error *error)
{
    const char *dir = options->disk_tier;

    service->options.disk_tier = NULL; /* the caller's string */
    rps_budget_init(&service->disk, NULL, options->disk_limit);
    if (dir == NULL || dir[0] == '\0') {
        return RPS_OK;
    }
    if (rps_region_file_open(&service->disk_file, dir) != RPS_OK) {
        return rps_fail(error, RPS_E_INVAL,
                "--disk-tier %s: no file can be made there: %s", dir,
                strerror(errno));
    }
    service->tiered = true;
    return RPS_OK;
}

rps_status
rps_service_new_store(struct rps_service *service, struct rps_store **store_out,
        struct rps_error *error)
{
    rps_status status = rps_store_create(store_out, service->options.job_seed);

    if (status != RPS_OK) {
        return rps_fail(error, status, "no memory for tables");
    }
    rps_store_set_budget(*store_out, &service->budget);
    if (service->tiered) {
        rps_store_set_tier(*store_out, &service->disk_file, &service->disk);
    }
    return RPS_OK;
}

static rps_status
build(struct rps_service *service, const struct rps_service_options *options,
        struct rps_error *error)
{
    rps_status status = copy_options(service, options, error);

    if (status == RPS_OK) {
        status = rps_service_set_token(service, options->token, error);
    }
    if (status == RPS_OK && service->options.checkpoint_dir != NULL) {
        status = check_folder(service, error);
    }
    rps_budget_init(&service->budget, NULL, options->memory_limit);
    if (status == RPS_OK) {
        status = open_disk_tier(service, options, error);
    }
    if (status == RPS_OK) {
        status = rps_service_new_store(service, &service->store, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    place_memory(service);
    rps_route_init(&service->route, options->ps_count);
    service->incarnation =
            options->incarnation != 0 ? options->incarnation : rps_random_id();
    service->started_ms = rps_clock_ms();
    init_terms(service);
    service->lanes = rps_lanes_create(options->client_ttl_ms);
    if (service->lanes == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for lanes");
    }
    service->writer = rps_writer_create(service);
    service->keeper = rps_keeper_create(service, options->background);
    if (options->ps_index == 0 && service->writer != NULL) {
        service->job = rps_job_create(service);
    }
    if (service->writer == NULL || service->keeper == NULL ||
            (options->ps_index == 0 && service->job == NULL)) {
        return rps_fail(error, RPS_E_NOMEM, "cannot start a thread");
    }
    return RPS_OK;
}

rps_status
rps_service_create(struct rps_service **service_out,
        const struct rps_service_options *options, struct rps_error *error)
{
    struct rps_service *service = calloc(1, sizeof(*service));
    rps_status status;

    *service_out = NULL;
    if (service == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a service");
    }
    init_locks(service);
    status = build(service, options, error);
    if (status != RPS_OK) {
        rps_service_destroy(service);
        return status;
    }
    *service_out = service;
    return RPS_OK;
}

void
rps_service_destroy(struct rps_service *service)
{
    if (service == NULL) {
        return;
    }
    assert(service->sessions == NULL);
    rps_serving_destroy(service->serving);
    rps_keeper_destroy(service->keeper);
    rps_writer_destroy(service->writer);
    rps_job_destroy(service->job);
    assert(service->parked == NULL);
    if (service->store != NULL) {
        rps_save_finish(service, false);
    }
    rps_contributed_destroy(service->contributed, service->terms.replica_count);
    rps_store_destroy(service->store);
    if (service->tiered) {
        rps_region_file_close(&service->disk_file);
    }
    rps_lanes_destroy(service->lanes);
    json_decref(service->data_position);
    free(service->changes);
    free(service->failed_why);
    pthread_cond_destroy(&service->replied);
    pthread_mutex_destroy(&service->lock);
    pthread_rwlock_destroy(&service->token_lock);
    rps_secret_finish(&service->token);
    pthread_rwlock_destroy(&service->change_lock);
    pthread_rwlock_destroy(&service->state_lock);
    free((void *)(uintptr_t)service->options.checkpoint_dir);
    free((void *)(uintptr_t)service->options.warm_start_dirs);
    json_decref(service->warm_answer);
    free((void *)(uintptr_t)service->options.job_id);
    free(service);
}

bool
rps_service_take_memory(struct rps_service *service, uint64_t bytes)
{
    if (!rps_budget_take(&service->budget, bytes)) {
        return false;
    }
    atomic_fetch_add(&service->held, bytes);
    return true;
}

void
rps_service_give_memory(struct rps_service *service, uint64_t bytes)
{
    atomic_fetch_sub(&service->held, bytes);
    rps_budget_give(&service->budget, bytes);
}

uint64_t
rps_service_tables_bytes(const struct rps_service *service)
{
    const uint64_t held = atomic_load(&service->held);
    const uint64_t used = atomic_load(&service->budget.used);

    return used > held ? used - held : 0;
}

void
rps_service_count_buffers(struct rps_service *service, int64_t bytes)
{
    if (bytes > 0) {
        rps_budget_add(&service->budget, (uint64_t)bytes);
    } else {
        rps_budget_give(&service->budget, (uint64_t)-bytes);
    }
}

rps_status
rps_epoch_check(struct rps_service *service, const struct rps_header *header,
        struct rps_error *error)
{
    uint32_t epoch = atomic_load(&service->epoch);

    if (header->epoch == epoch) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_ROLLED_BACK,
            "%s of epoch %" PRIu32 ", but this PS is in epoch %" PRIu32
            ": what was held is void, join the job again (STEP_END of step"
            " 0)",
            rps_opcode_str(header->opcode), header->epoch, epoch);
}

static const struct operation *
find_operation(const struct rps_header *header)
{
    const struct operation *operation =
            header->opcode <= RPS_OP_LAST ? &operations[header->opcode] : NULL;

    return operation != NULL && operation->serve != NULL ? operation : NULL;
}

static rps_status
check_form(struct rps_request *request, const struct operation *operation)
{
    const struct rps_header *header = &request->message->header;
    uint32_t flags = header->flags & ~RPS_FLAG_BODY_XXH3;

    if ((flags & ~RPS_FLAGS_KNOWN) != 0 || (flags & ~operation->flags) != 0) {
        return rps_fail(&request->error, RPS_E_UNSUPPORTED,
                "%s: flags 0x%" PRIx32 " mean nothing on this request",
                rps_opcode_str(header->opcode), flags & ~operation->flags);
    }
    if (header->step > INT64_MAX) { /* no job gets there, and + 1 would wrap */
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s: step %" PRIu64 " is out of range",
                rps_opcode_str(header->opcode), header->step);
    }
    if (!request->session->greeted && !operation->is_greeting) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s: HELLO comes first on a connection",
                rps_opcode_str(header->opcode));
    }
    return RPS_OK;
}

static void
take_state(struct rps_service *service, enum hold hold)
{
    if (hold == HOLD_EXCLUSIVE) {
        pthread_rwlock_wrlock(&service->state_lock);
    } else if (hold == HOLD_SHARED) {
        pthread_rwlock_rdlock(&service->state_lock);
    }
}

/* Changes rows at once: not while a checkpoint's cut is being taken. */
static bool
changes_rows(const struct rps_request *request)
{
    uint16_t opcode = request->message->header.opcode;

    return opcode == RPS_OP_ASSIGN || opcode == RPS_OP_ERASE ||
           (opcode == RPS_OP_PUSH_GRADIENTS &&
                   request->service->terms.mode != RPS_MODE_SYNC);
}

/* What is asked of every request before its handler sees it. */
static rps_status
admit(struct rps_request *request, const struct operation *operation)
{
    rps_status status = RPS_OK;

    if (rps_request_is_late(request)) {
        return rps_request_fail_late(request);
    }
    if (operation->hold == HOLD_NONE) {
        return RPS_OK;
    }
    if (request->service->serving != NULL && !operation->is_reading) {
        return rps_serving_refuse(request);
    }
    if (!operation->any_epoch) {
        status = rps_epoch_check(
                request->service, &request->message->header, &request->error);
    }
    if (status == RPS_OK) {
        status = rps_decision_carry(request, operation->hold == HOLD_EXCLUSIVE);
    }
    return status;
}

static rps_status
serve_in_hold(struct rps_request *request, const struct operation *operation)
{
    rps_status status = admit(request, operation);

    if (status == RPS_OK && changes_rows(request)) {
        pthread_rwlock_rdlock(&request->service->change_lock);
        request->changing = true;
        if (rps_request_is_late(request)) { /* a cut was being taken */
            status = rps_request_fail_late(request);
        }
    }
    if (status != RPS_OK) {
        if (request->message->header.opcode == RPS_OP_PUSH_GRADIENTS) {
            rps_push_refuse(request, status);
        }
        return status;
    }
    return operation->serve(request);
}

/* Serve under the hold; the verdict is kept before the hold ends, so that a
 * checkpoint's cut has both the change and its verdict, or neither. */
static rps_status
serve(struct rps_request *request, const struct operation *operation,
        bool numbered)
{
    struct rps_service *service = request->service;
    const struct rps_header *header = &request->message->header;
    rps_status status;

    take_state(service, operation->hold);
    status = serve_in_hold(request, operation);
    if (numbered) {
        rps_lane_end(service->lanes, request->session->lane, header->number,
                (header->flags & RPS_FLAG_MORE) == 0, status);
    }
    if (request->changing) {
        pthread_rwlock_unlock(&service->change_lock);
    }
    if (operation->hold != HOLD_NONE) {
        pthread_rwlock_unlock(&service->state_lock);
    }
    return status;
}

static rps_status
serve_numbered(struct rps_request *request, const struct operation *operation)
{
    struct rps_session *session = request->session;
    uint64_t number = request->message->header.number;
    rps_status verdict = RPS_OK;

    if (session->lane == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s has number %" PRIu64 ", but HELLO named no client and lane",
                rps_opcode_str(request->message->header.opcode), number);
    }
    switch (rps_lane_begin(request->service->lanes, session->lane,
            session->turn, number, &verdict, &request->error)) {
    case RPS_LANE_RUN:
        return serve(request, operation, true);
    case RPS_LANE_REPEAT:
        if (operation->is_opening && verdict == RPS_OK) {
            return serve(request, operation, false);
        }
        break;
    case RPS_LANE_REFUSE:
        break;
    }
    return verdict;
}

static rps_status
dispatch(struct rps_request *request)
{
    const struct rps_header *header = &request->message->header;
    const struct operation *operation = find_operation(header);
    rps_status status;

    if (operation == NULL) {
        return rps_fail(&request->error, RPS_E_UNSUPPORTED,
                "opcode %u (%s) is not served by this version", header->opcode,
                rps_opcode_str(header->opcode));
    }
    status = check_form(request, operation);
    if (status != RPS_OK) {
        return status;
    }
    return operation->is_changing && header->number != 0
                   ? serve_numbered(request, operation)
                   : serve(request, operation, false);
}

static void
count_request(struct rps_service *service, uint16_t opcode, rps_status status)
{
    struct rps_counter *counter =
            &service->requests[opcode <= RPS_OP_LAST ? opcode : 0];

    /* relaxed: counters order nothing */
    atomic_fetch_add_explicit(&counter->count, 1, memory_order_relaxed);
    if (status != RPS_OK) {
        atomic_fetch_add_explicit(&counter->errors, 1, memory_order_relaxed);
    }
}

static uint64_t
deadline_of(const struct rps_header *header, uint64_t came_ns)
{
    if (header->deadline_us == 0) {
        return 0;
    }
    return (came_ns != 0 ? came_ns : rps_clock_ns()) +
           (uint64_t)header->deadline_us * 1000;
}

void
rps_service_handle_since(struct rps_session *session,
        const struct rps_message *message, uint64_t came_ns,
        rps_reply_fn *reply, void *context)
{
    struct rps_service *service = session->service;
    struct rps_request request = {.service = service,
            .session = session,
            .message = message,
            .until_ns = deadline_of(&message->header, came_ns),
            .reply = reply,
            .context = context};
    struct rps_log_about about = {
            .peer = session->peer, .step = message->header.step};
    uint16_t opcode = message->header.opcode;
    rps_status status;

    if (session->rank == 0) { /* relaxed: an age, with which nothing goes */
        atomic_store_explicit(
                &session->heard_ms, rps_clock_ms(), memory_order_relaxed);
    }
    rps_log_enter(&about);
    status = dispatch(&request);
    rps_log_leave(&about);

    /* once parked, the request may be answered and gone by now */
    count_request(service, opcode, status);
    if (!request.parked && !request.streamed && request.frame == NULL) {
        request.frame = rps_reply_build(service, session, &message->header,
                status, status == RPS_OK ? request.text : request.error.text,
                &request.frame_bytes);
    }
    rps_answers_send(service, &request.answers);
    rps_table_destroy(request.dropped); /* before its memory is reported */
    if (!request.parked && !request.streamed) {
        reply(context, request.frame, request.frame_bytes);
    }
    free(request.text);
    if (opcode == RPS_OP_PUSH_GRADIENTS || opcode == RPS_OP_ASSIGN ||
            opcode == RPS_OP_ERASE) {
        rps_keeper_help(service->keeper);
    }
}

void
rps_service_handle(struct rps_session *session,
        const struct rps_message *message, rps_reply_fn *reply, void *context)
{
    rps_service_handle_since(session, message, 0, reply, context);
}

void
rps_service_refuse(const struct rps_header *header, rps_status status,
        const char *why, rps_reply_fn *reply, void *context)
{
    uint8_t *frame = NULL;
    size_t length = 0;

    if (rps_reply_text(header, status, why, 0, 0, &frame, &length) != RPS_OK) {
        frame = NULL;
        length = 0;
    }
    reply(context, frame, length);
}

rps_status
rps_service_serve(struct rps_service *service, const char *dir,
        uint64_t poll_ms, struct rps_error *error)
{
    assert(service->serving == NULL && service->options.checkpoint_dir == NULL);
    service->serving = rps_serving_create(service, dir, poll_ms);
    return service->serving != NULL ? rps_serving_start(service->serving, error)
                                    : rps_fail(error, RPS_E_NOMEM, "no memory");
}

rps_status
rps_service_probe_dir(const char *dir, struct rps_error *error)
{
    return rps_checkpoint_dir_probe(dir, error);
}
