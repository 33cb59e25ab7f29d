/* SPDX-License-Identifier: Apache-2.0 */
/* A stranger's frame at a service with a token, before or after a challenge:
 * it is answered, and HELLO never with OK. */
#include "proto/auth.h"
#include "server/service.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static uint8_t token_bytes[] = "nobody guesses this token of ours";
static struct rps_service *service;

/* rps_reply_fn: at once */
static void
take_reply(void *context, uint8_t *frame, size_t frame_bytes)
{
    struct rps_header header;
    int *answers = context;

    if (frame == NULL || rps_header_decode(frame, &header, NULL) != RPS_OK ||
            (header.opcode == RPS_OP_HELLO && header.status == RPS_OK) ||
            header.epoch != 0 || header.step != 0) {
        abort();
    }
    (*answers)++;
    free(frame);
}

static void
start(void)
{
    const struct rps_secret token = {
            .bytes = token_bytes, .length = sizeof(token_bytes) - 1};
    const struct rps_service_options options = {.ps_count = 1,
            .job_id = "recps",
            .step_bytes_max = 1 << 20,
            .step_timeout_ms = 60000,
            .token = &token};

    if (rps_service_create(&service, &options, NULL) != RPS_OK) {
        abort();
    }
}

static void
challenge(struct rps_session *session, int *answers)
{
    struct rps_header header = {
            .version = RPS_WIRE_VERSION, .opcode = RPS_OP_AUTH};
    struct rps_message message;
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t bytes = 0;

    rps_builder_begin(&builder, &header, 1);
    (void)rps_auth_add(&builder, NULL);
    if (rps_builder_end(&builder, &frame, &bytes) != RPS_OK ||
            rps_header_decode(frame, &header, NULL) != RPS_OK ||
            rps_message_open(&message, &header, frame, bytes, NULL) != RPS_OK) {
        abort();
    }
    rps_service_handle(session, &message, take_reply, answers);
    free(frame);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct rps_session *session;
    struct rps_header header;
    struct rps_message message;
    uint8_t *frame = NULL;
    int answers = 0;
    int expected = 0;

    if (length < RPS_HEADER_BYTES || rps_auth_built(NULL) != RPS_OK) {
        return 0;
    }
    if (service == NULL) {
        start();
    }
    session = rps_session_open(service, "fuzz");
    if (bytes[7] % 2 == 1) {
        challenge(session, &answers);
        expected++;
    }
    frame = aligned_alloc(64, (length + 63) & ~(size_t)63);
    memcpy(frame, bytes, length);
    header = (struct rps_header){.version = RPS_WIRE_VERSION,
            .opcode = (uint16_t)(1 + bytes[6] % RPS_OP_LAST),
            .body_bytes = (uint32_t)(length - RPS_HEADER_BYTES)};
    if (rps_message_open(&message, &header, frame, length, NULL) == RPS_OK) {
        rps_service_handle(session, &message, take_reply, &answers);
        expected++;
    }
    rps_session_close(session);
    if (answers != expected) {
        abort();
    }
    fuzz_sink = (uint64_t)answers;
    free(frame);
    return 0;
}
