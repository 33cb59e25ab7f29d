/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes from the network: a frame is read or refused, nothing else. Every
 * array of an opened message must lie inside the frame. */
#include "proto/message.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static uint64_t
read_arrays(const struct rps_message *message)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < message->section_count; i++) {
        const uint8_t *array =
                rps_message_array(message, &message->sections[i]);
        for (uint64_t j = 0; j < message->sections[i].bytes; j++) {
            sum += array[j];
        }
    }
    return sum;
}

static void
read_decision(const struct rps_message *message)
{
    const struct rps_section *section =
            rps_message_find(message, RPS_SECTION_DECISION, 0);
    struct rps_wire_decision decision;

    if (section != NULL &&
            rps_decision_decode(rps_message_array(message, section),
                    section->bytes, &decision, NULL) == RPS_OK) {
        rps_decision_finish(&decision);
    }
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
    frame = aligned_alloc(64, (length + 63) & ~(size_t)63);
    memcpy(frame, bytes, length);
    if (rps_header_decode(frame, &header, NULL) == RPS_E_CORRUPT) {
        /* no fuzzer finds checksums: read the body under a good header */
        header = (struct rps_header){.version = RPS_WIRE_VERSION,
                .opcode = (uint16_t)(1 + frame[6] % RPS_OP_LAST),
                .body_bytes = (uint32_t)(length - RPS_HEADER_BYTES)};
    }
    if (rps_message_open(&message, &header, frame, length, NULL) == RPS_OK) {
        free(rps_message_text(&message));
        read_decision(&message);
        fuzz_sink = read_arrays(&message);
    }
    free(frame);
    return 0;
}
