/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One connection: bytes into whole frames, frames to the service, replies
 * back in the order in which they are completed. Everything here runs in the
 * connection's loop thread but the service's reply callback.
 *
 *   GREETING --HELLO is OK--> SERVING
 *      |  refused, or above connections_max, or 5 s without a HELLO
 *      v
 *   LINGERING: the refusal is sent, our half is shut, then it closes
 */
#ifndef RPS_SERVER_DAEMON_CONN_H
#define RPS_SERVER_DAEMON_CONN_H

#include "server/daemon/loop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_HELLO_WAIT_MS      5000u
#define RPS_LINGER_MS          2000u
#define RPS_GREETING_BYTES_MAX (64u << 10)  /* HELLO and before it, in all */
#define RPS_GREETING_FRAMES    8u           /* likewise */
#define RPS_CONN_OUT_BYTES_MAX (64u << 20)  /* unsent replies: stop reading */
#define RPS_CONN_PENDING_MAX   1024u        /* requests without a reply */
#define RPS_CONN_FLUSH_BYTES   (256u << 10) /* unsent: not left for later */
#define RPS_CONN_TURN_FRAMES   32u          /* then the others get a turn: */
#define RPS_CONN_TURN_NS       200000u      /* or so, in one large request */
#define RPS_CONN_KEEP_BYTES    (1u << 20)   /* input buffer kept when idle */
#define RPS_CONN_KEEP_LARGE    (4u << 20)   /* likewise, memory to spare */

/** Takes fd; near: a Unix socket, which speaks no TLS. false: no memory, fd is
 * closed. */
bool rps_conn_open(struct rps_loop *loop, int fd, const char *peer, bool near);

/** HELLO was answered OK: it is no greeter any more. Twice is fine. */
void rps_conn_greeted(struct rps_conn *conn);

/** Close now, whatever is in hand. */
void rps_conn_destroy(struct rps_conn *conn);

/** A reply from another thread has come to the loop; takes frame. */
void rps_conn_deliver(
        struct rps_conn *conn, uint8_t *frame, size_t frame_bytes);

/** Mark as lost and wake its loop. Threads: any. */
void rps_conn_break(struct rps_conn *conn);

/** The loop drains from here on. May destroy the connection. */
void rps_conn_quiet(struct rps_conn *conn);

/** Close if it was marked by rps_conn_break, or is superseded. */
void rps_conn_check_broken(struct rps_conn *conn);

/** Memory is short: give back what is idle, end who holds it for nothing. May
 * destroy the connection. */
void rps_conn_look_at_memory(struct rps_conn *conn);

/** Requests in hand (those that wait for other members not counted). */
bool rps_conn_busy(const struct rps_conn *conn);
bool rps_conn_unsent(const struct rps_conn *conn);

struct rps_conn *rps_conn_next(const struct rps_conn *conn);

#endif /* RPS_SERVER_DAEMON_CONN_H */
