/* SPDX-License-Identifier: Apache-2.0 */
/* A frame that was opened goes to a service, as one of the requests about a
 * table's life or its rows: it is answered, once, and nothing else happens. */
#include "proto/message.h"
#include "server/service.h"
#include "tests/fuzz/fuzz.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HELLO                                                           \
    "{\"versions\":[1,1],\"job_id\":\"recps\",\"job_seed\":\"0\","      \
    "\"ps_count\":1,\"ps_index\":0,\"role\":\"none\",\"client\":\"1\"," \
    "\"lane\":0,\"program\":\"fuzz\",\"route_version\":1}"
#define TABLE "{\"name\":\"emb\",\"dimension\":2,\"optimizer\":\"sgd\"}"

static const uint16_t opcodes[] = {RPS_OP_ALTER_TABLE, RPS_OP_ERASE,
        RPS_OP_EVICT, RPS_OP_DROP, RPS_OP_HOT_KEYS, RPS_OP_SCAN,
        RPS_OP_EMBEDDING_LOOKUP, RPS_OP_PUSH_GRADIENTS, RPS_OP_REFRESH,
        RPS_OP_ASSIGN, RPS_OP_CANCEL};

#define OPCODES (sizeof(opcodes) / sizeof(opcodes[0]))

/* The one that it names, if it is of these. */
static uint16_t
opcode_of(uint8_t byte)
{
    for (size_t i = 0; i < OPCODES; i++) {
        if (opcodes[i] == byte) {
            return byte;
        }
    }
    return opcodes[byte % OPCODES];
}

static struct rps_service *service;
static struct rps_session *session;
static _Atomic uint64_t answers;

/* rps_reply_fn: any thread */
static void
take_reply(void *context, uint8_t *frame, size_t frame_bytes)
{
    atomic_fetch_add(&answers, 1);
    free(frame);
}

static void
handle_text(uint16_t opcode, const char *text)
{
    struct rps_header header = {.version = RPS_WIRE_VERSION, .opcode = opcode};
    struct rps_message message;
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t bytes = 0;

    rps_builder_begin(&builder, &header, 1);
    rps_builder_add_text(&builder, text, strlen(text));
    if (rps_builder_end(&builder, &frame, &bytes) != RPS_OK ||
            rps_header_decode(frame, &header, NULL) != RPS_OK ||
            rps_message_open(&message, &header, frame, bytes, NULL) != RPS_OK) {
        abort();
    }
    rps_service_handle(session, &message, take_reply, NULL);
    free(frame);
}

static void
start(void)
{
    const struct rps_service_options options = {.ps_count = 1,
            .job_id = "recps",
            .step_bytes_max = 1 << 20,
            .step_timeout_ms = 60000};

    if (rps_service_create(&service, &options, NULL) != RPS_OK) {
        abort();
    }
    session = rps_session_open(service, "fuzz");
    handle_text(RPS_OP_HELLO, HELLO);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    struct rps_header header;
    struct rps_message message;
    uint8_t *frame = NULL;

    if (length < RPS_HEADER_BYTES) {
        return 0;
    }
    if (service == NULL) {
        start();
    }
    handle_text(RPS_OP_GET_EMBEDDING_TABLE, TABLE); /* it may be dropped */
    frame = aligned_alloc(64, (length + 63) & ~(size_t)63);
    memcpy(frame, bytes, length);
    header = (struct rps_header){.version = RPS_WIRE_VERSION,
            .opcode = opcode_of(frame[6]),
            .body_bytes = (uint32_t)(length - RPS_HEADER_BYTES)};
    if (rps_message_open(&message, &header, frame, length, NULL) == RPS_OK) {
        rps_service_handle(session, &message, take_reply, NULL);
    }
    fuzz_sink = atomic_load(&answers);
    free(frame);
    return 0;
}
