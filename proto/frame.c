/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/frame.h"

#include <stddef.h>
#include <string.h>
#include <xxhash.h>

/* The header as it lies on the wire. */
struct wire_header {
    uint32_t magic;
    uint16_t version;
    uint16_t opcode;
    uint32_t flags;
    uint32_t body_bytes;
    uint64_t request_id;
    uint64_t number;
    uint64_t step;
    uint64_t body_xxh3;
    uint32_t epoch;
    uint32_t route_version;
    uint32_t deadline_or_status;
    uint32_t checksum;
};

_Static_assert(sizeof(struct wire_header) == RPS_HEADER_BYTES, "64 bytes");
_Static_assert(offsetof(struct wire_header, request_id) == RPS_REQUEST_ID_AT,
        "as frame.h says");
_Static_assert(offsetof(struct wire_header, epoch) == 48, "no padding");
_Static_assert(offsetof(struct wire_header, checksum) == 60, "no padding");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
        "a big-endian host would swap here");

static uint32_t
header_checksum(const void *bytes)
{
    return XXH32(bytes, offsetof(struct wire_header, checksum), 0);
}

void
rps_header_encode(
        const struct rps_header *header, uint8_t bytes[RPS_HEADER_BYTES])
{
    const struct wire_header wire = {
            .magic = RPS_MAGIC,
            .version = header->version,
            .opcode = header->opcode,
            .flags = header->flags,
            .body_bytes = header->body_bytes,
            .request_id = header->request_id,
            .number = header->number,
            .step = header->step,
            .body_xxh3 = header->body_xxh3,
            .epoch = header->epoch,
            .route_version = header->route_version,
            .deadline_or_status = (header->flags & RPS_FLAG_REPLY) != 0
                                          ? (uint32_t)header->status
                                          : header->deadline_us,
    };
    const uint32_t checksum = header_checksum(&wire);

    memcpy(bytes, &wire, sizeof(wire));
    memcpy(bytes + offsetof(struct wire_header, checksum), &checksum,
            sizeof(checksum));
}

static void
header_fill(struct rps_header *header, const struct wire_header *wire)
{
    const int is_reply = (wire->flags & RPS_FLAG_REPLY) != 0;

    *header = (struct rps_header){
            .version = wire->version,
            .opcode = wire->opcode,
            .flags = wire->flags,
            .body_bytes = wire->body_bytes,
            .request_id = wire->request_id,
            .number = wire->number,
            .step = wire->step,
            .body_xxh3 = wire->body_xxh3,
            .epoch = wire->epoch,
            .route_version = wire->route_version,
            .deadline_us = is_reply ? 0 : wire->deadline_or_status,
            .status = is_reply ? (int32_t)wire->deadline_or_status : 0,
    };
}

/* What a later version may send: answered, not cut off. */
static rps_status
check_known(const struct rps_header *header, struct rps_error *error)
{
    if (header->version != RPS_WIRE_VERSION) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "wire version %u: this side speaks %u", header->version,
                RPS_WIRE_VERSION);
    }
    if (header->opcode == 0 || header->opcode > RPS_OP_LAST) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "opcode %u is unknown (1..%d)", header->opcode, RPS_OP_LAST);
    }
    if ((header->flags & ~RPS_FLAGS_KNOWN) != 0) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "flags 0x%x: bits 0x%x are unknown", header->flags,
                header->flags & ~RPS_FLAGS_KNOWN);
    }
    return RPS_OK;
}

rps_status
rps_header_decode(const uint8_t bytes[RPS_HEADER_BYTES],
        struct rps_header *header, struct rps_error *error)
{
    struct wire_header wire;

    memcpy(&wire, bytes, sizeof(wire));
    if (wire.magic != RPS_MAGIC) {
        return rps_fail(error, RPS_E_CORRUPT, "not a recps frame: magic 0x%08x",
                wire.magic);
    }
    if (wire.checksum != header_checksum(bytes)) {
        return rps_fail(
                error, RPS_E_CORRUPT, "frame header fails its checksum");
    }
    if (wire.body_bytes > RPS_BODY_BYTES_MAX) {
        return rps_fail(error, RPS_E_CORRUPT,
                "frame body of %u bytes, at most %u", wire.body_bytes,
                RPS_BODY_BYTES_MAX);
    }
    header_fill(header, &wire);
    return check_known(header, error);
}

const char *
rps_opcode_str(uint16_t opcode)
{
    static const char *const names[] = {"UNKNOWN", "HELLO",
            "GET_EMBEDDING_TABLE", "ALTER_TABLE", "EMBEDDING_LOOKUP", "REFRESH",
            "PUSH_GRADIENTS", "STEP_END", "APPLY", "ASSIGN", "ERASE", "SAVE",
            "RESTORE", "EVICT", "DROP", "STAT", "HOT_KEYS", "SCAN", "ROUTE",
            "SHM_ATTACH", "SHUTDOWN", "PING", "AUTH", "LOG_LEVEL", "CANCEL"};

    _Static_assert(sizeof(names) / sizeof(names[0]) == RPS_OP_LAST + 1,
            "a name an opcode");
    return names[opcode <= RPS_OP_LAST ? opcode : 0];
}
