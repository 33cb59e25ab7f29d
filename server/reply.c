/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how an answer is made and how a parked request gets it: exactly once,
 * with no lock held, never after its session was closed.
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/state.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rps_header
rps_reply_header(struct rps_service *service, struct rps_session *session,
        const struct rps_header *request, rps_status status)
{
    struct rps_header header = {0};

    header.version = RPS_WIRE_VERSION;
    header.opcode = request->opcode;
    header.flags = RPS_FLAG_REPLY;
    header.request_id = request->request_id;
    header.number = request->number;
    if (session == NULL || session->greeted) { /* no news for strangers */
        header.step = atomic_load(&service->step);
        header.epoch = atomic_load(&service->epoch);
    }
    header.route_version = service->route.version;
    header.status = (int32_t)status;
    /* in kind; but the proofs of HELLO are written into built frames */
    if (request->opcode != RPS_OP_HELLO && request->opcode != RPS_OP_AUTH) {
        header.flags |= request->flags & RPS_FLAG_BODY_XXH3;
    }
    if (session != NULL && session->rank == 0 &&
            atomic_load(&service->wishes) != 0) {
        header.flags |= RPS_FLAG_WISH;
    }
    return header;
}

uint8_t *
rps_reply_build(struct rps_service *service, struct rps_session *session,
        const struct rps_header *request, rps_status status, const char *text,
        size_t *length_out)
{
    struct rps_header header =
            rps_reply_header(service, session, request, status);
    struct rps_builder builder;
    uint8_t *frame = NULL;

    rps_builder_begin(&builder, &header, 1);
    if (text != NULL) {
        rps_builder_add_text(&builder, text, strlen(text));
    }
    if (rps_builder_end(&builder, &frame, length_out) != RPS_OK) {
        rps_builder_finish(&builder);
        *length_out = 0;
        return NULL;
    }
    return frame;
}

rps_status
rps_request_json(struct rps_request *request, json_t **out)
{
    char *text = rps_message_text(request->message);
    json_error_t why;

    *out = NULL;
    if (text == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s needs a text section (JSON)",
                rps_opcode_str(request->message->header.opcode));
    }
    *out = json_loads(text, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (*out == NULL) {
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s: text at column %d: %s",
                rps_opcode_str(request->message->header.opcode), why.column,
                why.text);
    }
    if (!json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        return rps_fail(&request->error, RPS_E_INVAL,
                "%s: the text must be a JSON object",
                rps_opcode_str(request->message->header.opcode));
    }
    return RPS_OK;
}

bool
rps_request_is_late(const struct rps_request *request)
{
    return request->until_ns != 0 && rps_clock_ns() >= request->until_ns;
}

rps_status
rps_request_fail_late(struct rps_request *request)
{
    return rps_fail(&request->error, RPS_E_DEADLINE,
            "%s: its deadline of %" PRIu32 " us has passed; nothing was done",
            rps_opcode_str(request->message->header.opcode),
            request->message->header.deadline_us);
}

struct rps_parked *
rps_park_locked(struct rps_request *request)
{
    struct rps_service *service = request->service;
    struct rps_parked *parked = calloc(1, sizeof(*parked));

    if (parked == NULL) {
        return NULL;
    }
    parked->session = request->session;
    parked->request = request->message->header;
    parked->until_ns = request->until_ns;
    parked->reply = request->reply;
    parked->context = request->context;
    parked->next = service->parked;
    if (parked->next != NULL) {
        parked->next->previous = parked;
    }
    service->parked = parked;
    request->parked = true;
    return parked;
}

void
rps_answer_frame_locked(struct rps_answers *answers, struct rps_parked *parked,
        uint8_t *frame, size_t frame_bytes)
{
    parked->frame = frame;
    parked->frame_bytes = frame_bytes;
    parked->next_answer = NULL;
    if (answers->last != NULL) {
        answers->last->next_answer = parked;
    } else {
        answers->first = parked;
    }
    answers->last = parked;
}

void
rps_answer_locked(struct rps_service *service, struct rps_answers *answers,
        struct rps_parked *parked, rps_status status, const char *text)
{
    size_t length = 0;
    uint8_t *frame = rps_reply_build(
            service, parked->session, &parked->request, status, text, &length);

    rps_answer_frame_locked(answers, parked, frame, length);
}

static void
unlink_locked(struct rps_service *service, struct rps_parked *parked)
{
    if (parked->previous != NULL) {
        parked->previous->next = parked->next;
    } else {
        assert(service->parked == parked);
        service->parked = parked->next;
    }
    if (parked->next != NULL) {
        parked->next->previous = parked->previous;
    }
}

void
rps_parked_drop_locked(struct rps_service *service, struct rps_parked *parked)
{
    unlink_locked(service, parked);
    free(parked);
}

static void
send_one(struct rps_service *service, struct rps_parked *parked)
{
    struct rps_session *session;

    pthread_mutex_lock(&service->lock);
    unlink_locked(service, parked);
    session = parked->session;
    if (session != NULL) {
        session->replying++; /* holds rps_session_close() back */
    }
    pthread_mutex_unlock(&service->lock);
    if (session == NULL) {
        free(parked->frame);
        free(parked);
        return;
    }
    parked->reply(parked->context, parked->frame, parked->frame_bytes);
    free(parked);
    pthread_mutex_lock(&service->lock);
    session->replying--;
    pthread_cond_broadcast(&service->replied);
    pthread_mutex_unlock(&service->lock);
}

void
rps_answers_send(struct rps_service *service, struct rps_answers *answers)
{
    while (answers->first != NULL) {
        struct rps_parked *parked = answers->first;

        answers->first = parked->next_answer;
        send_one(service, parked);
    }
    answers->last = NULL;
}

void
rps_service_event(struct rps_service *service, int level, const char *event,
        const char *format, ...)
{
    char text[RPS_ERROR_BYTES];
    va_list args;

    if (service->options.event == NULL) {
        return;
    }
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    service->options.event(service->options.context, level, event, text);
}
