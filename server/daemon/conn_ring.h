/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection whose frames go through shared memory (proto/ring.h). The Unix
 * socket that it came by stays: its end is the client's. Our bell is an eventfd
 * that only the client writes to, the client's a pipe whose end is ours.
 *
 * Everything here runs in the connection's loop thread.
 */
#ifndef RPS_SERVER_DAEMON_CONN_RING_H
#define RPS_SERVER_DAEMON_CONN_RING_H

#include "base/spin.h"
#include "proto/ring.h"
#include "server/daemon/conn_impl.h"

struct rps_conn_ring {
    struct rps_ring ring;
    struct rps_frame_memory memory; /* where the service builds rows */
    struct rps_conn *conn;
    struct event bell;
    int bell_fd;   /* eventfd: looked at by the loop's epoll alone */
    int client_fd; /* pipe: a byte wakes the client; -1: we are at the end */
    bool gone;     /* the socket ended; what lies in the ring is last */
    uint64_t held; /* bytes taken from the service's memory limit */
    struct rps_spin spin;
};

/** Serve SHM_ATTACH: its answer and the descriptors are sent, or a refusal is
 * queued. */
void rps_conn_attach(struct rps_conn *conn);

/** recv(2) of a ring: -1 with EAGAIN where nothing is there, 0 at the end. */
ssize_t rps_conn_ring_receive(struct rps_conn *conn, void *bytes, size_t n);

/** Bytes that lie in it and are not read yet. */
size_t rps_conn_ring_backlog(const struct rps_conn *conn);

/** Copy unsent replies into the ring, as far as there is room. */
void rps_conn_ring_flush(struct rps_conn *conn);

/** Is this frame one that was built in the ring? */
bool rps_conn_ring_lent(const struct rps_conn *conn, const uint8_t *frame);

/** Then let the client have it. */
void rps_conn_ring_publish(struct rps_conn *conn, size_t frame_bytes);

/** The socket is readable: the end, or something that has no business there. */
void rps_conn_ring_on_socket(struct rps_conn *conn);

/** Sleep until the client rings, or come back in the next turn. */
void rps_conn_ring_settle(struct rps_conn *conn);

/** Nothing more comes from us. */
void rps_conn_ring_say_end(struct rps_conn *conn);

/** NULL is allowed in conn->ring. */
void rps_conn_ring_finish(struct rps_conn *conn);

#endif /* RPS_SERVER_DAEMON_CONN_RING_H */
