/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/server/fixture.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct events rps_events = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
take_event(void *context, int level, const char *event, const char *text)
{
    struct events *events = context;

    pthread_mutex_lock(&events->lock);
    snprintf(events->last_event, sizeof(events->last_event), "%s", event);
    snprintf(events->last_text, sizeof(events->last_text), "%s", text);
    events->count++;
    pthread_mutex_unlock(&events->lock);
}

static void
take_shutdown(void *context)
{
    struct events *events = context;

    pthread_mutex_lock(&events->lock);
    events->shutdowns++;
    pthread_mutex_unlock(&events->lock);
}

static struct rps_service *
create(const struct rps_service_options *options)
{
    struct rps_service *service = NULL;
    struct rps_error error = {{0}};

    ck_assert_msg(rps_service_create(&service, options, &error) == RPS_OK, "%s",
            error.text);
    return service;
}

struct rps_service *
service_with_upkeep(const char *dir, uint64_t memory_limit)
{
    const struct rps_service_options options = {.ps_count = 1,
            .job_id = "test",
            .checkpoint_dir = dir,
            .step_bytes_max = 1u << 20,
            .step_timeout_ms = 60000,
            .background = true,
            .memory_limit = memory_limit,
            .event = take_event,
            .shutdown = take_shutdown,
            .context = &rps_events};

    return create(&options);
}

struct rps_service *
service_of(uint32_t index, uint32_t count, const char *dir, uint32_t timeout_ms)
{
    const struct rps_service_options options = {.ps_index = index,
            .ps_count = count,
            .job_id = "test",
            .job_seed = 0,
            .fingerprint = 0xabcdu,
            .checkpoint_dir = dir,
            .step_bytes_max = 1u << 20,
            .step_timeout_ms = timeout_ms,
            .event = take_event,
            .shutdown = take_shutdown,
            .context = &rps_events};

    return create(&options);
}

struct peer *
peer_open(struct rps_service *service)
{
    struct peer *peer = calloc(1, sizeof(*peer));

    ck_assert_ptr_nonnull(peer);
    peer->service = service;
    peer->next_request = 1;
    pthread_mutex_init(&peer->lock, NULL);
    pthread_cond_init(&peer->came, NULL);
    peer->session = rps_session_open(service, "a test");
    ck_assert_ptr_nonnull(peer->session);
    return peer;
}

void
peer_close(struct peer *peer)
{
    rps_session_close(peer->session);
    for (size_t i = 0; i < peer->answer_count; i++) {
        free(peer->answers[i].frame);
    }
    pthread_cond_destroy(&peer->came);
    pthread_mutex_destroy(&peer->lock);
    free(peer);
}

struct peer *
peer_greet(struct rps_service *service, const char *role, uint32_t rank,
        uint32_t replicas, const char *client)
{
    struct peer *peer = peer_open(service);
    const struct rps_header header = request_of(peer, RPS_OP_HELLO);
    json_t *stat;
    char *own = rps_service_stat(service, false);
    char text[512];

    stat = json_loads(own, 0, NULL);
    ck_assert_ptr_nonnull(stat);
    snprintf(text, sizeof(text),
            "{\"versions\":[1,1],\"job_id\":\"test\",\"job_seed\":\"0\","
            "\"ps_count\":%d,\"ps_index\":%d,\"fingerprint\":\"abcd\","
            "\"role\":\"%s\",\"rank\":%" PRIu32 ",\"replicas\":%" PRIu32
            ",\"client\":\"%s\",\"lane\":0,\"program\":\"a test\","
            "\"route_version\":1}",
            (int)json_integer_value(json_object_get(stat, "ps_count")),
            (int)json_integer_value(json_object_get(stat, "ps_index")), role,
            rank, replicas, client);
    json_decref(stat);
    free(own);
    ask(peer, &header, text, RPS_OK, NULL);
    return peer;
}

struct rps_header
request_of(struct peer *peer, uint16_t opcode)
{
    return (struct rps_header){.version = RPS_WIRE_VERSION,
            .opcode = opcode,
            .request_id = peer->next_request++,
            .epoch = peer->epoch,
            .route_version = 1};
}

static void
take_reply(void *context, uint8_t *frame, size_t bytes)
{
    struct peer *peer = context;
    struct answer *answer;
    struct rps_error error = {{0}};

    pthread_mutex_lock(&peer->lock);
    ck_assert_ptr_nonnull(frame);
    ck_assert_uint_lt(peer->answer_count, ANSWERS_MAX);
    answer = &peer->answers[peer->answer_count++];
    answer->frame = frame;
    answer->bytes = bytes;
    ck_assert_int_eq(rps_header_decode(frame, &answer->header, &error), RPS_OK);
    ck_assert_msg(rps_message_open(&answer->message, &answer->header, frame,
                          bytes, &error) == RPS_OK,
            "%s", error.text);
    pthread_cond_broadcast(&peer->came);
    pthread_mutex_unlock(&peer->lock);
}

static uint64_t
send_frame(struct peer *peer, uint8_t *frame, size_t bytes)
{
    struct rps_header header;
    struct rps_message message;
    struct rps_error error = {{0}};

    ck_assert_int_eq(rps_header_decode(frame, &header, &error), RPS_OK);
    ck_assert_msg(
            rps_message_open(&message, &header, frame, bytes, &error) == RPS_OK,
            "%s", error.text);
    rps_service_handle_since(
            peer->session, &message, peer->came_ns, take_reply, peer);
    free(frame); /* it was borrowed for the call */
    return header.request_id;
}

uint64_t
send_builder(struct peer *peer, struct rps_builder *builder)
{
    uint8_t *frame = NULL;
    size_t bytes = 0;

    ck_assert_int_eq(rps_builder_end(builder, &frame, &bytes), RPS_OK);
    return send_frame(peer, frame, bytes);
}

uint64_t
send_text(struct peer *peer, const struct rps_header *header, const char *text)
{
    struct rps_builder builder;

    rps_builder_begin(&builder, header, 1);
    if (text != NULL) {
        rps_builder_add_text(&builder, text, strlen(text));
    }
    return send_builder(peer, &builder);
}

/* Take the answer with this id out of the list. */
static bool
take_answer_locked(struct peer *peer, uint64_t id, struct answer *out)
{
    for (size_t i = 0; i < peer->answer_count; i++) {
        if (peer->answers[i].header.request_id == id) {
            *out = peer->answers[i];
            peer->answers[i] = peer->answers[--peer->answer_count];
            return true;
        }
    }
    return false;
}

static struct timespec
in_ms(unsigned int ms)
{
    struct timespec at;

    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += (time_t)(ms / 1000);
    at.tv_nsec += (long)(ms % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

struct answer
wait_answer(struct peer *peer, uint64_t id)
{
    const struct timespec until = in_ms(20000);
    struct answer answer = {0};
    int late = 0;
    bool found;

    pthread_mutex_lock(&peer->lock);
    found = take_answer_locked(peer, id, &answer);
    while (!found && late == 0) {
        late = pthread_cond_timedwait(&peer->came, &peer->lock, &until);
        found = take_answer_locked(peer, id, &answer);
    }
    pthread_mutex_unlock(&peer->lock);
    ck_assert_msg(found, "request %" PRIu64 " was not answered", id);
    ck_assert_uint_eq(answer.header.flags & RPS_FLAG_REPLY, RPS_FLAG_REPLY);
    return answer;
}

bool
is_answered(struct peer *peer, uint64_t id, unsigned int ms)
{
    const struct timespec until = in_ms(ms);
    bool found = false;
    int late = 0;

    pthread_mutex_lock(&peer->lock);
    while (!found && late == 0) {
        for (size_t i = 0; i < peer->answer_count; i++) {
            found = found || peer->answers[i].header.request_id == id;
        }
        if (!found) {
            late = pthread_cond_timedwait(&peer->came, &peer->lock, &until);
        }
    }
    pthread_mutex_unlock(&peer->lock);
    return found;
}

void
answer_finish(struct answer *answer)
{
    free(answer->frame);
    answer->frame = NULL;
}

void
ask(struct peer *peer, const struct rps_header *header, const char *text,
        rps_status expected, char **text_out)
{
    struct answer answer = wait_answer(peer, send_text(peer, header, text));
    char *got = rps_message_text(&answer.message);

    ck_assert_msg(answer.header.status == (int32_t)expected,
            "%s answered %s, not %s: %s", rps_opcode_str(header->opcode),
            rps_status_str((rps_status)answer.header.status),
            rps_status_str(expected), got != NULL ? got : "");
    ck_assert(expected == RPS_OK || got != NULL);
    answer_finish(&answer);
    if (text_out != NULL) {
        *text_out = got;
    } else {
        free(got);
    }
}

void
check_refused(struct answer *answer, rps_status status, const char *part)
{
    char *got = rps_message_text(&answer->message);

    ck_assert_msg(answer->header.status == (int32_t)status,
            "status %s, not %s: %s",
            rps_status_str((rps_status)answer->header.status),
            rps_status_str(status), got != NULL ? got : "");
    ck_assert_msg(got != NULL && strstr(got, part) != NULL,
            "\"%s\" is not in \"%s\"", part, got != NULL ? got : "");
    free(got);
    answer_finish(answer);
}

uint64_t
open_table(struct peer *peer, const char *name, uint32_t dim)
{
    const struct rps_header header =
            request_of(peer, RPS_OP_GET_EMBEDDING_TABLE);
    char text[256];

    snprintf(text, sizeof(text),
            "{\"name\":\"%s\",\"dimension\":%" PRIu32
            ",\"optimizer\":\"sgd\",\"initializer\":\"zeros\","
            "\"learning_rate\":1.0}",
            name, dim);
    ask(peer, &header, text, RPS_OK, NULL);
    return rps_table_id(name);
}

void
begin_job_with(struct peer *peer, uint32_t epoch, uint64_t step,
        const char *mode, const char *combine, uint32_t replicas)
{
    const struct rps_header header = request_of(peer, RPS_OP_RESTORE);
    char text[256];

    snprintf(text, sizeof(text),
            "{\"epoch\":%" PRIu32 ",\"step\":%" PRIu64
            ",\"mode\":\"%s\",\"combine\":\"%s\",\"replicas\":%" PRIu32 "}",
            epoch, step, mode, combine, replicas);
    ask(peer, &header, text, RPS_OK, NULL);
    peer->epoch = epoch;
}

void
begin_job(struct peer *peer, uint32_t epoch, uint64_t step, const char *mode,
        uint32_t replicas)
{
    begin_job_with(peer, epoch, step, mode, "sum", replicas);
}

void
join_all(struct peer **peers, uint32_t count)
{
    uint64_t ids[16];

    for (uint32_t rank = 0; rank < count; rank++) {
        ids[rank] = send_step_end(peers[rank], 0, rank, "null", "");
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        struct answer answer = wait_answer(peers[rank], ids[rank]);

        ck_assert_int_eq(answer.header.status, RPS_OK);
        peers[rank]->epoch = answer.header.epoch;
        answer_finish(&answer);
    }
}

void
build_push(struct rps_builder *builder, const struct rps_header *header,
        uint64_t table_id, size_t n, const uint64_t *keys,
        const float *gradients, uint32_t dim)
{
    const struct rps_section keys_of = {
            .table_id = table_id, .kind = RPS_SECTION_KEYS, .count = n};
    const struct rps_section rows_of = {.table_id = table_id,
            .kind = RPS_SECTION_ROWS,
            .dim = dim,
            .count = n,
            .learning_rate = NAN};

    rps_builder_begin(builder, header, 3);
    rps_builder_add(builder, &keys_of, keys);
    rps_builder_add(builder, &rows_of, gradients);
}

uint64_t
send_push(struct peer *peer, uint64_t step, uint64_t number, uint64_t table_id,
        size_t n, const uint64_t *keys, const float *gradients, uint32_t dim)
{
    struct rps_header header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    struct rps_builder builder;

    header.step = step;
    header.number = number;
    build_push(&builder, &header, table_id, n, keys, gradients, dim);
    return send_builder(peer, &builder);
}

void
push(struct peer *peer, uint64_t step, uint64_t table_id, size_t n,
        const uint64_t *keys, const float *gradients, uint32_t dim)
{
    struct answer answer = wait_answer(
            peer, send_push(peer, step, 0, table_id, n, keys, gradients, dim));

    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
}

uint64_t
lookup(struct peer *peer, uint64_t table_id, size_t n, const uint64_t *keys,
        uint32_t dim, float *rows)
{
    const struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    const struct rps_section keys_of = {
            .table_id = table_id, .kind = RPS_SECTION_KEYS, .count = n};
    const struct rps_section *rows_of;
    struct rps_builder builder;
    struct answer answer;
    uint64_t step;

    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &keys_of, keys);
    answer = wait_answer(peer, send_builder(peer, &builder));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    rows_of = rps_message_find(&answer.message, RPS_SECTION_ROWS, table_id);
    ck_assert_ptr_nonnull(rows_of);
    ck_assert_uint_eq(rows_of->count, n);
    ck_assert_uint_eq(rows_of->dim, dim);
    memcpy(rows, rps_message_array(&answer.message, rows_of),
            n * dim * sizeof(float));
    step = answer.header.step;
    answer_finish(&answer);
    return step;
}

uint64_t
send_step_end(struct peer *peer, uint64_t step, uint32_t rank, const char *loss,
        const char *wishes)
{
    struct rps_header header = request_of(peer, RPS_OP_STEP_END);
    char text[256];

    header.step = step;
    snprintf(text, sizeof(text),
            "{\"rank\":%" PRIu32 ",\"loss\":%s,\"wishes\":[%s]}", rank, loss,
            wishes);
    return send_text(peer, &header, text);
}

struct rps_wire_decision
wait_decision(struct peer *peer, uint64_t id)
{
    struct answer answer = wait_answer(peer, id);
    const struct rps_section *section =
            rps_message_find(&answer.message, RPS_SECTION_DECISION, 0);
    struct rps_wire_decision decision = {0};
    struct rps_error error = {{0}};

    if (answer.header.status != RPS_OK) {
        char *text = rps_message_text(&answer.message);

        ck_abort_msg("STEP_END was answered %s: %s",
                rps_status_str((rps_status)answer.header.status), text);
    }
    ck_assert_ptr_nonnull(section);
    ck_assert_int_eq(
            rps_decision_decode(rps_message_array(&answer.message, section),
                    section->bytes, &decision, &error),
            RPS_OK);
    ck_assert_uint_eq(answer.header.step, decision.step);
    answer_finish(&answer);
    return decision;
}

void
apply(struct peer *peer, const struct rps_wire_decision *decision,
        rps_status expected)
{
    const struct rps_header header = request_of(peer, RPS_OP_APPLY);
    struct rps_section section = {.kind = RPS_SECTION_DECISION};
    struct rps_builder builder;
    struct answer answer;
    size_t bytes = 0;
    uint8_t *body = rps_decision_encode(decision, &bytes);

    ck_assert_ptr_nonnull(body);
    section.count = bytes;
    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &section, body);
    answer = wait_answer(peer, send_builder(peer, &builder));
    ck_assert_int_eq(answer.header.status, (int)expected);
    answer_finish(&answer);
    free(body);
}

json_t *
stat_of(struct peer *peer)
{
    const struct rps_header header = request_of(peer, RPS_OP_STAT);
    char *text = NULL;
    json_t *object;

    ask(peer, &header, "{}", RPS_OK, &text);
    object = json_loads(text, 0, NULL);
    ck_assert_ptr_nonnull(object);
    free(text);
    return object;
}
