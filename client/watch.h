/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One descriptor over all sockets of a client, for programs with a loop of
 * their own. It costs nothing until rps_client_fd() asks for it.
 */
#ifndef RPS_CLIENT_WATCH_H
#define RPS_CLIENT_WATCH_H

#include "client/handle.h"

/** NULL: no memory. */
struct rps_watch *rps_watch_create(uint32_t channel_count);

/** NULL is allowed. */
void rps_watch_destroy(struct rps_watch *watch);

/** After every move, start, wait and cancel: watch what is waited for now. */
void rps_client_rewatch(const rps_client *client);

#endif /* RPS_CLIENT_WATCH_H */
