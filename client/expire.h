/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deadlines of requests (rps_call.timeout_ms). A server that has a request in
 * its hands says DEADLINE itself; what it does not answer in time ends here.
 */
#ifndef RPS_CLIENT_EXPIRE_H
#define RPS_CLIENT_EXPIRE_H

#include "client/exchange.h"

/** Microseconds until its deadline, for the wire: at least 1. */
uint32_t rps_expire_left_us(const struct rps_exchange *exchange);

/** Make *wait_ms (-1: no limit) end with the next deadline. */
void rps_expire_wait(const rps_client *client, uint64_t now_ms, int *wait_ms);

/** The sooner of the two; *wait_ms -1: no limit. */
void rps_wait_until(int *wait_ms, uint64_t now_ms, uint64_t at_ms);

/** End the tickets whose time is over: TIMEOUT, or DEADLINE where nothing of
 * it was ever sent. */
void rps_expire(rps_client *client, uint64_t now_ms);

/** Take back what of the ticket was never sent; not the rest of a push. */
void rps_ticket_unsend(struct rps_ticket_state *ticket);

#endif /* RPS_CLIENT_EXPIRE_H */
