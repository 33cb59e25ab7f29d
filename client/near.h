/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers on this host: is one there, and the way to its Unix socket.
 */
#ifndef RPS_CLIENT_NEAR_H
#define RPS_CLIENT_NEAR_H

#include "client/handle.h"

#include <netdb.h>

/** Is one of them the loopback's, or an address of this host? */
bool rps_near_is_own(const struct addrinfo *addresses);

/**
 * Connect to the Unix socket of the PS whose address ends with this port. -1:
 * `why` says what is the matter; *there_out: a socket is there all the same,
 * so that whoever wanted it should be told.
 */
int rps_near_connect(const rps_client *client, uint32_t ps, uint16_t port,
        bool *there_out, struct rps_error *why);

#endif /* RPS_CLIENT_NEAR_H */
