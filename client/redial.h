/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection that is cut is dialled again while the client is moved, and
 * goes on where it was: what was not answered is sent again in its order. A
 * number that the server has carried out already gets its kept verdict.
 */
#ifndef RPS_CLIENT_REDIAL_H
#define RPS_CLIENT_REDIAL_H

#include "client/exchange.h"

/**
 * The connection is gone: hang up and dial again. false: this loss is for
 * good (no reconnect_timeout_ms, or a cause that no new connection heals).
 */
bool rps_redial_begin(rps_client *client, struct rps_channel *channel,
        rps_status status, const struct rps_error *error);

/** What the channel that is down waits for; *wait_ms ends with it. */
void rps_redial_watch(const rps_client *client, uint32_t ps, uint64_t now_ms,
        struct pollfd *poll, int *wait_ms);

/** Go on dialling. It may come up, or be lost for good. */
void rps_redial_move(
        rps_client *client, uint32_t ps, short revents, uint64_t now_ms);

/** "began anew …" of a loss that was not told yet. */
rps_status rps_rolled_back_words(
        const struct rps_channel *channel, struct rps_error *error);

#endif /* RPS_CLIENT_REDIAL_H */
