/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns sessions and HELLO: who the peer is, and whether it belongs here.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/terms.h"
#include "base/text.h"
#include "server/job.h"
#include "server/state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/** What a HELLO says. Texts point into its JSON. */
struct hello {
    uint64_t version_min, version_max;
    const char *job_id;
    uint64_t job_seed, ps_count, ps_index;
    uint64_t fingerprint;
    bool has_fingerprint;
    enum rps_peer_role role;
    uint64_t rank, replicas, client, lane, known_epoch;
    const char *program;
};

static const char *const role_names[] = {
        [RPS_PEER_NONE] = "none",
        [RPS_PEER_CHIEF] = "chief",
        [RPS_PEER_WORKER] = "worker",
        [RPS_PEER_LOCAL] = "local",
        [RPS_PEER_EVALUATOR] = "evaluator",
};

struct rps_session *
rps_session_open(struct rps_service *service, const char *peer)
{
    struct rps_session *session = calloc(1, sizeof(*session));

    if (session == NULL) {
        return NULL;
    }
    session->peer = strdup(peer != NULL ? peer : "unknown peer");
    if (session->peer == NULL) {
        free(session);
        return NULL;
    }
    session->service = service;
    session->rank = RPS_NO_RANK;
    session->transport = RPS_TRANSPORT_TCP;
    pthread_mutex_lock(&service->lock);
    session->next = service->sessions;
    if (session->next != NULL) {
        session->next->previous = session;
    }
    service->sessions = session;
    service->session_count++;
    pthread_mutex_unlock(&service->lock);
    return session;
}

void
rps_session_set_transport(
        struct rps_session *session, enum rps_transport transport)
{
    pthread_mutex_lock(&session->service->lock);
    session->transport = transport;
    pthread_mutex_unlock(&session->service->lock);
}

void
rps_session_set_memory(
        struct rps_session *session, struct rps_frame_memory *memory)
{
    session->memory = memory;
}

void
rps_session_set_sink(struct rps_session *session, struct rps_frame_sink *sink)
{
    session->sink = sink;
}

static void
unlink_locked(struct rps_service *service, struct rps_session *session)
{
    if (session->previous != NULL) {
        session->previous->next = session->next;
    } else {
        service->sessions = session->next;
    }
    if (session->next != NULL) {
        session->next->previous = session->previous;
    }
    service->session_count--;
}

/* Requests that wait in the job are dropped; those that a thread has in hand
 * lose their session and are dropped by that thread. */
static void
cancel_parked_locked(struct rps_service *service, struct rps_session *session)
{
    struct rps_parked *parked = service->parked;

    while (parked != NULL) {
        struct rps_parked *next = parked->next;

        if (parked->session == session) {
            parked->session = NULL;
            if (service->job != NULL) {
                rps_job_forget_locked(service->job, parked);
            }
        }
        parked = next;
    }
}

bool
rps_chief_connected_locked(const struct rps_service *service)
{
    const struct rps_session *at = service->sessions;

    while (at != NULL && at->rank != 0) {
        at = at->next;
    }
    return at != NULL;
}

void
rps_session_close(struct rps_session *session)
{
    struct rps_answers answers = {0};
    struct rps_service *service;

    if (session == NULL) {
        return;
    }
    service = session->service;
    pthread_mutex_lock(&service->lock);
    unlink_locked(service, session);
    cancel_parked_locked(service, session);
    if (service->job != NULL && session->rank != RPS_NO_RANK) {
        rps_job_leave_locked(service->job, session, &answers);
    }
    if (session->rank == 0 && !rps_chief_connected_locked(service)) {
        atomic_store(&service->wishes, 0); /* nobody is left to grant them */
    }
    while (session->replying > 0) {
        pthread_cond_wait(&service->replied, &service->lock);
    }
    pthread_mutex_unlock(&service->lock);
    rps_answers_send(service, &answers);
    rps_lane_detach(service->lanes, session->lane, session->turn);
    rps_pushed_clear(&session->push);
    free(session->peer);
    free(session);
}

static bool
hex_of(const json_t *object, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL && rps_parse_hex64(text, out);
}

static rps_status
read_role(const json_t *object, struct hello *hello, struct rps_error *error)
{
    const char *name = json_string_value(json_object_get(object, "role"));

    for (size_t i = 0; name != NULL && i < 5; i++) {
        if (strcmp(name, role_names[i]) == 0) {
            hello->role = (enum rps_peer_role)i;
            return RPS_OK;
        }
    }
    return rps_fail(error, RPS_E_INVAL,
            "HELLO: role is \"%s\"; chief, worker, evaluator, local or none"
            " is allowed",
            name != NULL ? name : "");
}

static rps_status
read_versions(
        const json_t *object, struct hello *hello, struct rps_error *error)
{
    const json_t *range = json_object_get(object, "versions");
    const json_t *low = json_array_get(range, 0);
    const json_t *high = json_array_get(range, 1);

    if (!json_is_integer(low) || !json_is_integer(high)) {
        return rps_fail(
                error, RPS_E_INVAL, "HELLO: versions must be [min, max]");
    }
    if (json_integer_value(low) > (json_int_t)RPS_WIRE_VERSION ||
            json_integer_value(high) < (json_int_t)RPS_WIRE_VERSION) {
        return rps_fail(error, RPS_E_MISMATCH,
                "HELLO: the client speaks wire versions %lld to %lld, this"
                " server version %u: update the older program",
                (long long)json_integer_value(low),
                (long long)json_integer_value(high), RPS_WIRE_VERSION);
    }
    return RPS_OK;
}

static rps_status
read_numbers(const json_t *object, struct hello *hello, struct rps_error *error)
{
    const struct {
        const char *key;
        uint64_t max;
        uint64_t *value;
    } fields[] = {
            {"job_seed", UINT64_MAX, &hello->job_seed},
            {"ps_count", RPS_PS_COUNT_MAX, &hello->ps_count},
            {"ps_index", RPS_PS_COUNT_MAX, &hello->ps_index},
            {"rank", RPS_NO_RANK, &hello->rank},
            {"replicas", RPS_REPLICAS_MAX, &hello->replicas},
            {"lane", UINT32_MAX, &hello->lane},
            {"known_epoch", UINT32_MAX, &hello->known_epoch},
    };
    rps_status status = RPS_OK;

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        status = rps_json_u64(
                object, fields[i].key, fields[i].max, fields[i].value, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

static rps_status
read_hello(const json_t *object, struct hello *hello, struct rps_error *error)
{
    rps_status status = read_versions(object, hello, error);

    if (status == RPS_OK) {
        status = read_role(object, hello, error);
    }
    if (status == RPS_OK) {
        status = read_numbers(object, hello, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    hello->job_id = json_string_value(json_object_get(object, "job_id"));
    hello->program = json_string_value(json_object_get(object, "program"));
    hello->has_fingerprint = hex_of(object, "fingerprint", &hello->fingerprint);
    if (json_object_get(object, "client") != NULL &&
            !hex_of(object, "client", &hello->client)) {
        return rps_fail(error, RPS_E_INVAL,
                "HELLO: client must be a number in hexadecimal digits");
    }
    return RPS_OK;
}

static rps_status
check_job(struct rps_service *service, const struct hello *hello,
        struct rps_error *error)
{
    const struct rps_service_options *own = &service->options;

    if (hello->job_id == NULL || strcmp(hello->job_id, own->job_id) != 0) {
        return rps_fail(error, RPS_E_MISMATCH,
                "HELLO: job_id is \"%s\" here and \"%s\" at the client: is"
                " this the right cluster?",
                own->job_id, hello->job_id != NULL ? hello->job_id : "");
    }
    if (hello->job_seed != own->job_seed) {
        return rps_fail(error, RPS_E_MISMATCH,
                "HELLO: job_seed is %" PRIu64 " here and %" PRIu64
                " at the client: give both the same --job-seed",
                own->job_seed, hello->job_seed);
    }
    if (hello->ps_count != own->ps_count) {
        return rps_fail(error, RPS_E_MISMATCH,
                "HELLO: ps_count is %" PRIu32 " here and %" PRIu64
                " at the client: give both the same ps list",
                own->ps_count, hello->ps_count);
    }
    if (hello->ps_index != own->ps_index) {
        return rps_fail(error, RPS_E_MISMATCH,
                "HELLO: ps_index is %" PRIu32 " here and %" PRIu64
                " at the client: the addresses of the ps list are in another"
                " order",
                own->ps_index, hello->ps_index);
    }
    return RPS_OK;
}

static bool
is_member(enum rps_peer_role role)
{
    return role == RPS_PEER_CHIEF || role == RPS_PEER_WORKER ||
           role == RPS_PEER_LOCAL;
}

static rps_status
check_rank(struct hello *hello, struct rps_error *error)
{
    if (!is_member(hello->role)) {
        return RPS_OK;
    }
    if (hello->role == RPS_PEER_LOCAL) {
        hello->rank = hello->rank == RPS_NO_RANK ? 0 : hello->rank;
        hello->replicas = hello->replicas == 0 ? 1 : hello->replicas;
    }
    if (hello->rank == RPS_NO_RANK) {
        return rps_fail(error, RPS_E_INVAL,
                "HELLO: a chief and a worker must name their rank");
    }
    if (hello->rank >= RPS_REPLICAS_MAX ||
            (hello->replicas != 0 && hello->rank >= hello->replicas)) {
        return rps_fail(error, RPS_E_INVAL,
                "HELLO: rank %" PRIu64 " of %" PRIu64 " replicas; ranks count"
                " from 0",
                hello->rank, hello->replicas);
    }
    return RPS_OK;
}

size_t
rps_session_held_bytes(const struct rps_session *session)
{
    return session->push.first != NULL ? session->push.bytes : 0;
}

void
rps_session_on_superseded(struct rps_session *session,
        void (*superseded)(void *context), void *context)
{
    session->superseded = superseded;
    session->superseded_context = context;
}

/* The lane is this session's from here on. */
static void
supersede_locked(
        const struct rps_service *service, const struct rps_session *session)
{
    for (const struct rps_session *at = service->sessions; at != NULL;
            at = at->next) {
        if (at != session && at->lane != NULL && at->lane == session->lane &&
                at->superseded != NULL) {
            at->superseded(at->superseded_context);
        }
    }
}

/* The epoch that a member was in: the job's next one is beyond it. Half of the
 * numbers are kept from a peer that says nonsense. */
static void
learn_epoch_locked(struct rps_service *service, uint64_t epoch)
{
    if (epoch > service->known_epoch && epoch < UINT32_MAX / 2) {
        service->known_epoch = (uint32_t)epoch;
    }
}

static rps_status
enroll(struct rps_request *request, const struct hello *hello)
{
    struct rps_service *service = request->service;
    struct rps_session *session = request->session;
    uint64_t turn = 0;
    struct rps_lane *lane = NULL;
    bool good = true;

    if (hello->client != 0) {
        lane = rps_lane_attach(
                service->lanes, hello->client, (uint32_t)hello->lane, &turn);
        if (lane == NULL) {
            return rps_fail(&request->error, RPS_E_NOMEM,
                    "HELLO: no memory for a lane");
        }
    }
    pthread_mutex_lock(&service->lock);
    session->lane = lane;
    session->turn = turn;
    session->client = hello->client;
    session->role = hello->role;
    session->greeted = true;
    supersede_locked(service, session);
    if (is_member(hello->role)) {
        learn_epoch_locked(service, hello->known_epoch);
        session->rank = (uint32_t)hello->rank;
        if (service->job != NULL) {
            good = rps_job_greet_locked(service->job, session);
        }
        session->rank = good ? session->rank : RPS_NO_RANK;
    }
    pthread_mutex_unlock(&service->lock);
    return good ? RPS_OK
                : rps_fail(&request->error, RPS_E_NOMEM,
                          "HELLO: no memory for a member");
}

static char *
welcome(struct rps_service *service, struct rps_session *session)
{
    char incarnation[24];
    json_t *answer;

    snprintf(incarnation, sizeof(incarnation), "%016" PRIx64,
            service->incarnation);
    pthread_rwlock_rdlock(&service->state_lock);
    answer = json_pack("{s:i, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:s}",
            "version", (int)RPS_WIRE_VERSION, "epoch",
            (json_int_t)atomic_load(&service->epoch), "mode",
            rps_terms_mode(&service->terms).text, "combine",
            rps_terms_combine(&service->terms), "incarnation", incarnation,
            "ps_count", (json_int_t)service->options.ps_count, "ps_index",
            (json_int_t)service->options.ps_index, "route_version",
            (json_int_t)service->route.version, "server",
            "recpsd " RPS_VERSION);
    pthread_rwlock_unlock(&service->state_lock);
    if (answer != NULL &&
            !rps_lane_describe(service->lanes, session->lane, answer)) {
        json_decref(answer);
        return NULL;
    }
    return rps_json_text(answer);
}

rps_status
rps_serve_hello(struct rps_request *request)
{
    struct rps_service *service = request->service;
    struct hello hello = {.rank = RPS_NO_RANK};
    json_t *object;
    rps_status status;

    if (request->session->greeted) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "HELLO: this connection has said it before");
    }
    status = rps_auth_check_hello(request);
    if (status == RPS_OK) {
        status = rps_request_json(request, &object);
    }
    if (status != RPS_OK) {
        return status;
    }
    status = read_hello(object, &hello, &request->error);
    if (status == RPS_OK) {
        status = check_job(service, &hello, &request->error);
    }
    if (status == RPS_OK) {
        status = check_rank(&hello, &request->error);
    }
    if (status == RPS_OK && hello.has_fingerprint &&
            service->options.fingerprint != 0 &&
            hello.fingerprint != service->options.fingerprint) {
        rps_service_event(service, RPS_LOG_WARN, "fingerprint_differs",
                "%s (%s): cluster fingerprint %016" PRIx64 " there, %016" PRIx64
                " here: the address lists differ in words or order",
                request->session->peer,
                hello.program != NULL ? hello.program : "?", hello.fingerprint,
                service->options.fingerprint);
    }
    if (status == RPS_OK) {
        status = enroll(request, &hello);
    }
    json_decref(object);
    if (status == RPS_OK) {
        request->text = welcome(service, request->session);
        status = request->text != NULL ? rps_auth_prove_answer(request)
                                       : RPS_E_NOMEM;
    }
    return status;
}
