/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a greeted Unix socket to shared memory: SHM_ATTACH asks for it, and the
 * answer brings the descriptors of memory and bells.
 */
#ifndef RPS_CLIENT_CHANNEL_SHM_H
#define RPS_CLIENT_CHANNEL_SHM_H

#include "client/handle.h"

/** Of one connection; zeroed at first. */
struct rps_attach {
    bool begun;
    bool answered; /* the server's answer was fine */
    uint64_t request_id;
    uint64_t ring_bytes;
    uint8_t *frame; /* owned: the channel borrows it */
};

/** Ask. The channel is a stream that keeps what descriptors come. */
rps_status rps_attach_begin(struct rps_attach *attach, rps_client *client,
        struct rps_channel *channel, struct rps_error *error);

/** Check the answer. A refusal keeps the server's status. */
rps_status rps_attach_take(struct rps_attach *attach,
        const struct rps_message *reply, struct rps_error *error);

/**
 * Make a channel over shared memory of the stream's; *channel is the new one,
 * or stays the old one on failure. CORRUPT: what came is no sealed memory of
 * that size and an eventfd; IO, NOMEM.
 */
rps_status rps_attach_finish(struct rps_attach *attach,
        struct rps_channel **channel, struct rps_error *error);

/** Zeroed is fine. */
void rps_attach_clear(struct rps_attach *attach);

#endif /* RPS_CLIENT_CHANNEL_SHM_H */
