/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The 64-byte header of every frame, little-endian:
 *
 *   0 u32 magic "RPS1"   4 u16 wire version   6 u16 opcode    8 u32 flags
 *  12 u32 body bytes    16 u64 request id    24 u64 number in the lane
 *  32 u64 step          40 u64 body XXH3 or 0
 *  48 u32 epoch         52 u32 route version
 *  56 u32 request: microseconds left, 0 = none; reply: status
 *  60 u32 XXH32 of bytes 0..59
 */
#ifndef RPS_PROTO_FRAME_H
#define RPS_PROTO_FRAME_H

#include "base/error.h"

#include <stdint.h>

#define RPS_WIRE_VERSION   1u
#define RPS_HEADER_BYTES   64u
#define RPS_BODY_BYTES_MAX (16u << 20)
#define RPS_MAGIC          0x31535052u /* "RPS1" as it lies on the wire */
#define RPS_REQUEST_ID_AT  16u         /* its place in a header */

enum rps_opcode {
    RPS_OP_HELLO = 1,
    RPS_OP_GET_EMBEDDING_TABLE = 2,
    RPS_OP_ALTER_TABLE = 3,
    RPS_OP_EMBEDDING_LOOKUP = 4,
    RPS_OP_REFRESH = 5,
    RPS_OP_PUSH_GRADIENTS = 6,
    RPS_OP_STEP_END = 7,
    RPS_OP_APPLY = 8,
    RPS_OP_ASSIGN = 9,
    RPS_OP_ERASE = 10,
    RPS_OP_SAVE = 11,
    RPS_OP_RESTORE = 12,
    RPS_OP_EVICT = 13,
    RPS_OP_DROP = 14,
    RPS_OP_STAT = 15,
    RPS_OP_HOT_KEYS = 16,
    RPS_OP_SCAN = 17,
    RPS_OP_ROUTE = 18,
    RPS_OP_SHM_ATTACH = 19,
    RPS_OP_SHUTDOWN = 20,
    RPS_OP_PING = 21,
    RPS_OP_AUTH = 22,
    RPS_OP_LOG_LEVEL = 23,
    RPS_OP_CANCEL = 24,
    RPS_OP_LAST = RPS_OP_CANCEL
};

#define RPS_FLAG_REPLY     0x01u
#define RPS_FLAG_MORE      0x02u /* more frames of this push or reply follow */
#define RPS_FLAG_BODY_XXH3 0x04u /* bytes 40..47 hold the body's XXH3_64 */
#define RPS_FLAG_READ_ONLY 0x08u /* lookup: absent keys get the default */
#define RPS_FLAG_WISH      0x10u /* reply: a wish waits (PING names it) */
#define RPS_FLAGS_KNOWN    0x1fu

/** A header in host order. */
struct rps_header {
    uint16_t version;
    uint16_t opcode;
    uint32_t flags;
    uint32_t body_bytes;
    uint64_t request_id;
    uint64_t number; /* in the lane; 0: changes nothing */
    uint64_t step;
    uint64_t body_xxh3;
    uint32_t epoch;
    uint32_t route_version;
    uint32_t deadline_us; /* requests */
    int32_t status;       /* replies: shares its bytes with deadline_us */
};

/** Write *header as bytes, its own checksum included. */
void rps_header_encode(
        const struct rps_header *header, uint8_t bytes[RPS_HEADER_BYTES]);

/**
 * Read and check what makes a frame a frame: magic, checksum, body length.
 * CORRUPT: the stream is lost, close it. Unknown version, opcode or flags
 * are UNSUPPORTED with *header filled, so that they can be answered.
 */
rps_status rps_header_decode(const uint8_t bytes[RPS_HEADER_BYTES],
        struct rps_header *header, struct rps_error *error);

/** "EMBEDDING_LOOKUP"; "UNKNOWN" for others. */
const char *rps_opcode_str(uint16_t opcode);

#endif /* RPS_PROTO_FRAME_H */
