/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection's state, for its files: conn_in.c takes bytes apart
 * into frames and has them served, conn_out.c queues and sends replies,
 * conn_stats.c times them, conn_ring.c is for those that share memory, conn.c
 * has its events, its life and its end.
 */
#ifndef RPS_SERVER_DAEMON_CONN_IMPL_H
#define RPS_SERVER_DAEMON_CONN_IMPL_H

#include "base/tls.h"
#include "server/daemon/conn.h"

#include <event2/event_struct.h>
#include <stdatomic.h>

#define RPS_CONN_PEER_BYTES 72u
#define RPS_CONN_WHY_BYTES  160u

enum rps_conn_state {
    RPS_CONN_GREETING, /* no HELLO was answered OK */
    RPS_CONN_SERVING,
    RPS_CONN_LINGERING /* our half is shut; what still comes is thrown away */
};

struct rps_out {
    struct rps_out *next;
    uint8_t *frame;
    size_t length;
};

/** A request that is answered later: when it began. */
struct rps_waiting {
    uint64_t request_id;
    uint64_t since_ns;
};

/** conn_stream.c: the reply that is sent while it is made. */
struct rps_conn_stream {
    size_t at;     /* sent bytes of the frame */
    size_t filled; /* bytes after them, in the loop's memory */
    size_t left;   /* bytes that are not made yet */
    struct rps_reply_head head;
    struct rps_out *rest; /* what the socket did not take; NULL: none */
};

struct rps_conn_ring;

struct rps_conn {
    struct rps_conn *previous; /* the loop's list */
    struct rps_conn *next;
    struct rps_conn *older; /* the loop's greeters, while `greeter` */
    struct rps_conn *newer;
    struct rps_loop *loop;
    struct rps_session *session;
    struct event readable;
    struct event writable;
    struct event timer; /* HELLO, then the end of LINGERING */
    int fd;
    struct rps_tls *tls; /* NULL: plain */
    bool near;           /* fd is a Unix socket */
    enum rps_transport transport;
    struct rps_conn_ring *ring; /* NULL: frames go over fd */
    enum rps_conn_state state;
    atomic_bool broken;     /* any thread: a reply was lost, close */
    atomic_bool superseded; /* any thread: its client came again, close */

    bool ended;             /* the peer sends no more */
    bool dead;              /* close at the end of the callback */
    bool close_when_sent;   /* then LINGERING */
    bool surplus;           /* above connections_max: refuse, then close */
    bool greeter;           /* in the loop's queue of greeters */
    bool looked;            /* TLS: the first byte is known */
    bool plain;             /* no TLS, where it is spoken: refuse, then close */
    bool handling;          /* inside rps_service_handle for us */
    bool answered;          /* that request has its reply */
    uint32_t pending;       /* requests without a reply */
    uint32_t waiting_steps; /* of them, STEP_ENDs */

    size_t greeting_bytes;    /* before and with HELLO */
    uint32_t greeting_frames; /* likewise */

    /* the frame that comes in: in[0, in_length) of frame_bytes */
    uint8_t *in; /* 64-byte aligned */
    size_t in_length;
    size_t in_capacity;
    size_t frame_bytes; /* 0 until the header is here */
    uint64_t header_ns; /* when it came, for its deadline */
    size_t backlog;     /* bytes that lay in the socket at backlog_ns */
    uint64_t backlog_ns;
    struct rps_header header;
    rps_status header_status;
    char why[RPS_CONN_WHY_BYTES]; /* of a header that is answered with a refusal
                                   */

    struct rps_waiting *waiting; /* [waiting_count], owned */
    uint32_t waiting_count;
    uint32_t waiting_capacity;

    struct rps_out *out_first;
    struct rps_out *out_last;
    size_t out_offset; /* sent bytes of out_first */
    size_t out_bytes;  /* unsent, all */
    struct rps_frame_sink sink;
    struct rps_conn_stream stream;

    /* conn_memory.c; held = in_capacity + out_bytes + stored + promised */
    size_t held;
    size_t stored;     /* frames of a push that is not whole */
    size_t promised;   /* of the frame that comes in, for its buffer */
    bool waits;        /* in the loop's queue: it is not read from */
    bool passes;       /* it has waited for this frame */
    bool elder_served; /* its one frame was */
    bool clogged;      /* it is not read from until its replies are taken */
    bool still;        /* nothing has moved since still_ns */
    uint64_t still_ns;
    size_t wants; /* bytes that it waits for */
    struct rps_conn *waits_behind;
    struct rps_conn *waits_before;
    uint64_t moved_ns;  /* begin of the watch */
    size_t moved_bytes; /* in and out since then */

    char peer[RPS_CONN_PEER_BYTES];
};

/** A peer's fault: it loses the connection, and the log says why, once. */
void rps_conn_lose(struct rps_conn *conn, const char *event, const char *why);

/** The same, but what it was told is sent before it is closed. */
void rps_conn_refuse(struct rps_conn *conn, const char *event, const char *why);

/** Serve what has come, a while. Then settle. */
void rps_conn_take_turn(struct rps_conn *conn);

/** Whether one that began then and has done so much may go on. Small requests
 * may come by the dozen; whoever streams large ones would hold the loop for as
 * long as more of them come. */
bool rps_conn_turn_goes_on(uint32_t done, uint64_t start_ns);

/** The one place where a connection changes state or ends; the last thing that
 * any callback does with it. */
void rps_conn_settle(struct rps_conn *conn);

/** How its frames go from here on, for those who count. */
void rps_conn_set_transport(
        struct rps_conn *conn, enum rps_transport transport);

/* conn_in.c */

/** May the next request be read? */
bool rps_conn_may_read(const struct rps_conn *conn);

/** It is not read from for now: what waits already is as old as that. */
void rps_conn_note_backlog(struct rps_conn *conn);

/** Read until one frame is whole: true. false: nothing more for now. */
bool rps_conn_fill(struct rps_conn *conn);

/** Serve the whole frame, and be ready for the next. */
void rps_conn_serve(struct rps_conn *conn);

/* conn_out.c */

/** Take a reply; NULL: no memory was left for it. */
void rps_conn_queue(struct rps_conn *conn, uint8_t *frame, size_t frame_bytes);

/** A request is answered, by a reply with this head. */
void rps_conn_account(struct rps_conn *conn, const struct rps_reply_head *head);

/** To the end of the queue; `offset` bytes of an empty one's first are sent. */
void rps_conn_append(struct rps_conn *conn, struct rps_out *out, size_t offset);

/** An rps_reply_fn; any thread. context: the connection. */
void rps_conn_on_reply(void *context, uint8_t *frame, size_t frame_bytes);

/** Send what the socket takes. */
void rps_conn_flush(struct rps_conn *conn);

/** n bytes of the unsent replies are sent. */
void rps_conn_sent(struct rps_conn *conn, size_t n);

void rps_conn_free_out(struct rps_conn *conn);

/* conn_stream.c */

/** From here on its session may send long replies while they are made. */
void rps_conn_stream_init(struct rps_conn *conn);

/* conn_memory.c */

/** `bytes` more for the buffer of a frame. false: it waits for them. */
bool rps_conn_reserve(struct rps_conn *conn, size_t bytes);

/** May a frame be begun? false: it waits. */
bool rps_conn_may_begin(struct rps_conn *conn);

/** It has so many more, whatever the bound; it gives so many back. */
void rps_conn_hold(struct rps_conn *conn, size_t bytes);
void rps_conn_release(struct rps_conn *conn, size_t bytes);

/** Does its receive buffer stay for the next frame? What is large and idle
 * has a quarter of the memory at most. */
bool rps_conn_may_keep(const struct rps_conn *conn);

/** Its receive buffer goes; nothing may lie in it. */
void rps_conn_drop_buffer(struct rps_conn *conn);

/** Bytes came in or went out. */
void rps_conn_moved(struct rps_conn *conn, size_t bytes);

/** A frame was served, or none came. */
void rps_conn_end_frame(struct rps_conn *conn);

/** Something was served or sent: whose turn is it? */
void rps_conn_settle_memory(struct rps_conn *conn);

/** The connection goes. */
void rps_conn_finish_memory(struct rps_conn *conn);

/* conn_stats.c */

/** A request is about to be handled, and was. */
void rps_conn_stats_begin(struct rps_conn *conn);
void rps_conn_stats_keys(
        struct rps_conn *conn, const struct rps_message *message);
void rps_conn_stats_end(struct rps_conn *conn);

/** A reply came, before conn->pending falls. */
void rps_conn_stats_reply(
        struct rps_conn *conn, const struct rps_reply_head *head);

/** The peer loses its connection for this event of the log. */
void rps_conn_stats_lost(struct rps_conn *conn, const char *event);

/** The connection goes: what it had open goes with it. */
void rps_conn_stats_finish(struct rps_conn *conn);

#endif /* RPS_SERVER_DAEMON_CONN_IMPL_H */
