/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread with one event_base, and the connections that live in it. Other
 * threads meet it at its mailbox (a list under a mutex) and its eventfd, and
 * nowhere else.
 */
#ifndef RPS_SERVER_DAEMON_LOOP_H
#define RPS_SERVER_DAEMON_LOOP_H

#include "base/error.h"
#include "server/daemon/loop_stats.h"
#include "server/service.h"

#include <event2/event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rps_access;
struct rps_conn;
struct rps_loop;

#define RPS_LOOP_TICK_MS 250u /* a loop shows that it turns */

/** Connections above the limit that are still told so, then closed. */
#define RPS_CONN_SURPLUS_MAX 64u

/** What the loops share. Set before they start. */
struct rps_loops_shared {
    struct rps_service *service;
    struct rps_access *access;
    uint32_t connections_max;
    uint32_t greeters_max;           /* of one loop: no HELLO yet */
    uint64_t buffers_max;            /* of all loops */
    uint64_t loop_buffers_max;       /* of one */
    atomic_uint connections;         /* open, surplus ones included */
    _Atomic uint64_t turned_away;    /* closed before a loop had them */
    const char *_Atomic stop_reason; /* before rps_loop_drain() */
    uint64_t ring_bytes;             /* shm_ring: of a ring in shared memory */
    uint64_t memory_limit;           /* 0: none */
    int drained_fd; /* eventfd: each loop adds 1 when drained */
};

/** Start a thread. Errors: NOMEM, IO (no eventfd, no thread). */
rps_status rps_loop_start(struct rps_loop **loop_out, uint32_t index,
        struct rps_loops_shared *shared, struct rps_error *error);

/**
 * A new connection for this loop, which owns fd from here on. `peer` is
 * copied; near: a Unix socket. Threads: any.
 */
void rps_loop_give(struct rps_loop *loop, int fd, const char *peer, bool near);

/**
 * Finish the requests in hand, refuse new ones, then say so on drained_fd.
 * Requests that wait for other members are not in hand. Threads: any.
 */
void rps_loop_drain(struct rps_loop *loop);

/**
 * Close every connection, end the thread, release. NULL is allowed.
 * Threads: the starter.
 */
void rps_loop_stop(struct rps_loop *loop);

/* For conn.c. */

/** A reply that was made in another thread; takes frame. Threads: any. */
void rps_loop_mail_reply(struct rps_loop *loop, struct rps_conn *conn,
        uint8_t *frame, size_t frame_bytes);

/** Look at every connection: one is broken or superseded. Threads: any. */
void rps_loop_look(struct rps_loop *loop);

/** Drop mail for a connection that goes. Threads: the loop's. */
void rps_loop_forget(struct rps_loop *loop, const struct rps_conn *conn);

/** Is the caller this loop's thread? */
bool rps_loop_is_own(const struct rps_loop *loop);

struct event_base *rps_loop_base(struct rps_loop *loop);
struct rps_loops_shared *rps_loop_shared(struct rps_loop *loop);
bool rps_loop_draining(const struct rps_loop *loop);

/** What it counts. Written by the loop's thread; read by any. */
struct rps_loop_stats *rps_loop_stats(const struct rps_loop *loop);

/** What its connections hold; see conn_memory.c. Threads: the loop's. */
struct rps_loop_memory {
    uint64_t held;          /* bytes */
    uint64_t max;           /* the loop's share; set before it starts */
    uint64_t reported;      /* of `held`, to the service's budget */
    uint64_t waiting;       /* connections in the queue */
    struct rps_conn *first; /* that waits for memory */
    struct rps_conn *last;
    struct rps_conn *elder; /* goes on beyond the bound; NULL: none */
};
struct rps_loop_memory *rps_loop_memory(struct rps_loop *loop);

/** Somebody waits for memory, or will soon. Threads: the loop's. */
bool rps_loop_is_short(struct rps_loop *loop);

/** The list of the loop's connections. Threads: the loop's. */
struct rps_conn **rps_loop_conns(struct rps_loop *loop);

/** Where replies are made that are sent in parts: two of these and 64 bytes,
 * 64-byte aligned. NULL: no memory. Threads: the loop's. */
uint8_t *rps_loop_part(struct rps_loop *loop);

/** Its connections with a ring. Threads: the loop's. */
uint32_t *rps_loop_rings(struct rps_loop *loop);

/** Its connections that have not said HELLO, a queue. Threads: the loop's. */
struct rps_greeters {
    struct rps_conn *oldest;
    struct rps_conn *newest;
    uint32_t count;
};
struct rps_greeters *rps_loop_greeters(struct rps_loop *loop);

#endif /* RPS_SERVER_DAEMON_LOOP_H */
