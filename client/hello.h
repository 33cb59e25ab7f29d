/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first exchange on a connection: who we are, and what the server says.
 * With a token, an AUTH goes before HELLO, and both ends prove that they have
 * it (proto/auth.h).
 */
#ifndef RPS_CLIENT_HELLO_H
#define RPS_CLIENT_HELLO_H

#include "client/handle.h"
#include "proto/auth.h"

/** Of one connection; zeroed at first. */
struct rps_hello {
    uint64_t request_id; /* of what is not answered yet */
    uint16_t opcode;     /* likewise */
    struct rps_nonces nonces;
    uint8_t *frame; /* owned: the channel borrows it until its answer */
    bool greeted;   /* the server's answer was fine: the end */
};

/** The channel hung up, or was greeted. A zeroed one is fine. */
void rps_hello_finish(struct rps_hello *hello);

/** Send what comes first, AUTH or HELLO. */
rps_status rps_hello_begin(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, struct rps_error *error);

/**
 * Check an answer. AUTH's is followed by HELLO; HELLO's sets the channel's
 * epoch and numbers, and hello->greeted. A refusal keeps the server's
 * status; AUTH: the server has not proved that it has our token; CORRUPT: it
 * makes no sense.
 */
rps_status rps_hello_take(struct rps_hello *hello, rps_client *client,
        struct rps_channel *channel, const struct rps_header *header,
        const uint8_t *frame, size_t frame_bytes, struct rps_error *error);

#endif /* RPS_CLIENT_HELLO_H */
