/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HELLO: who this client is, and whether the server belongs to its job.
 */
#ifndef RPS_CLIENT_HELLO_H
#define RPS_CLIENT_HELLO_H

#include "client/handle.h"
#include "proto/message.h"

/** Send it; the request id is *request_id_out. */
rps_status rps_hello_send(rps_client *client, struct rps_channel *channel,
        uint64_t *request_id_out, struct rps_error *error);

/**
 * Check the answer; fills the channel's epoch and last number. The server's
 * own refusal is its status; CORRUPT: no answer of a recpsd.
 */
rps_status rps_hello_take(const rps_client *client, struct rps_channel *channel,
        uint64_t request_id, const struct rps_header *header,
        const uint8_t *frame, size_t frame_bytes, struct rps_error *error);

#endif /* RPS_CLIENT_HELLO_H */
