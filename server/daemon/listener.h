/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening sockets. They live in the main thread's loop; accepted
 * connections are handed round to the loops (loop.h).
 */
#ifndef RPS_SERVER_DAEMON_LISTENER_H
#define RPS_SERVER_DAEMON_LISTENER_H

#include "admin/sockets.h"
#include "base/error.h"
#include "server/daemon/loop.h"
#include "server/daemon/unix_listener.h"

#include <event2/event.h>
#include <stdint.h>

/** How often and how long a port in use is tried again. */
#define RPS_BIND_RETRY_MS 250u
#define RPS_BIND_WAIT_MS  3000u

struct rps_listener;

/**
 * Open every address of the plan; all get one port. With `unix_plan` (NULL:
 * none) a Unix socket named after that port beside them: it listens first, so
 * that who reaches the port finds the socket. Where its folder was not asked
 * for and cannot be used, the log says so and there is none. RETRY_LATER: in
 * use. INVAL: not an address of this machine, or not allowed; AUTH, IO: the
 * Unix socket.
 */
rps_status rps_listener_open(struct rps_listener **listener_out,
        const struct rps_listen_plan *plan,
        const struct rps_unix_plan *unix_plan, struct rps_error *error);

/** The port that was bound, and the first address as text. */
uint16_t rps_listener_port(const struct rps_listener *listener);
const char *rps_listener_text(const struct rps_listener *listener);

/** The Unix socket's path; NULL: there is none. */
const char *rps_listener_unix_path(const struct rps_listener *listener);

/** Begin to accept: connections go to `loops` in turn. */
rps_status rps_listener_start(struct rps_listener *listener,
        struct event_base *base, struct rps_loop **loops, uint32_t loop_count,
        struct rps_error *error);

/** Stop accepting and close. NULL is allowed. */
void rps_listener_close(struct rps_listener *listener);

#endif /* RPS_SERVER_DAEMON_LISTENER_H */
