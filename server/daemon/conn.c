/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/conn.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <event2/event_struct.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define IN_BYTES_START  4096u
#define OUT_IOVECS      16
#define LINGER_READ     4096u
#define PEER_BYTES      72u
#define WHY_BYTES       160u
#define FRAME_BYTES_MAX (RPS_HEADER_BYTES + RPS_BODY_BYTES_MAX)

enum state {
    GREETING, /* no HELLO was answered OK */
    SERVING,
    LINGERING /* our half is shut; what still comes is thrown away */
};

struct out {
    struct out *next;
    uint8_t *frame;
    size_t length;
};

struct rps_conn {
    struct rps_conn *previous; /* the loop's list */
    struct rps_conn *next;
    struct rps_loop *loop;
    struct rps_session *session;
    struct event readable;
    struct event writable;
    struct event timer; /* HELLO, then the end of LINGERING */
    int fd;
    enum state state;
    atomic_bool broken; /* any thread: a reply was lost, close */

    bool ended;             /* the peer sends no more */
    bool dead;              /* close at the end of the callback */
    bool close_when_sent;   /* then LINGERING */
    bool surplus;           /* above connections_max: refuse, then close */
    bool handling;          /* inside rps_service_handle for us */
    uint32_t pending;       /* requests without a reply */
    uint32_t waiting_steps; /* of them, STEP_ENDs */

    /* the frame that comes in: in[0, in_length) of frame_bytes */
    uint8_t *in; /* 64-byte aligned */
    size_t in_length;
    size_t in_capacity;
    size_t frame_bytes; /* 0 until the header is here */
    uint64_t header_ns; /* when it came, for its deadline */
    struct rps_header header;
    rps_status header_status;
    char why[WHY_BYTES]; /* of a header that is answered with a refusal */

    struct out *out_first;
    struct out *out_last;
    size_t out_offset; /* sent bytes of out_first */
    size_t out_bytes;  /* unsent, all */

    char peer[PEER_BYTES];
};

struct rps_conn *
rps_conn_next(const struct rps_conn *conn)
{
    return conn->next;
}

bool
rps_conn_busy(const struct rps_conn *conn)
{
    return conn->pending > conn->waiting_steps;
}

bool
rps_conn_unsent(const struct rps_conn *conn)
{
    return conn->out_first != NULL;
}

void
rps_conn_break(struct rps_conn *conn)
{
    atomic_store(&conn->broken, true);
}

/* A peer's fault: it loses the connection, and the log says why, once. */
static void
lose(struct rps_conn *conn, const char *event, const char *why)
{
    if (!conn->dead) {
        rps_log(RPS_LOG_WARN, event, "%s: %s; connection closed", conn->peer,
                why);
    }
    conn->dead = true;
}

static void
free_out(struct rps_conn *conn)
{
    while (conn->out_first != NULL) {
        struct out *out = conn->out_first;

        conn->out_first = out->next;
        free(out->frame);
        free(out);
    }
}

void
rps_conn_destroy(struct rps_conn *conn)
{
    struct rps_conn **head = rps_loop_conns(conn->loop);

    if (conn->next != NULL) {
        conn->next->previous = conn->previous;
    }
    if (conn->previous != NULL) {
        conn->previous->next = conn->next;
    } else {
        *head = conn->next;
    }
    event_del(&conn->readable);
    event_del(&conn->writable);
    event_del(&conn->timer);
    /* No reply comes after this; what came before lies in the mailbox. */
    rps_session_close(conn->session);
    rps_loop_forget(conn->loop, conn);
    shutdown(conn->fd, SHUT_WR);
    close(conn->fd);
    atomic_fetch_sub(&rps_loop_shared(conn->loop)->connections, 1);
    free_out(conn);
    free(conn->in);
    free(conn);
}

/* ---- out ---- */

/* Looks at a finished reply for what it means to the connection. */
static void
account(struct rps_conn *conn, const uint8_t *frame)
{
    uint16_t opcode;
    int32_t status;

    memcpy(&opcode, frame + 6, sizeof(opcode)); /* proto/frame.h */
    memcpy(&status, frame + 56, sizeof(status));
    assert(conn->pending > 0);
    conn->pending--;
    if (opcode == RPS_OP_STEP_END && conn->waiting_steps > 0) {
        conn->waiting_steps--;
    }
    if (opcode == RPS_OP_HELLO && conn->state == GREETING) {
        if (status == RPS_OK && !conn->surplus) {
            conn->state = SERVING;
            event_del(&conn->timer);
        } else {
            conn->close_when_sent = true;
        }
    }
}

static void
queue_reply(struct rps_conn *conn, uint8_t *frame, size_t frame_bytes)
{
    struct out *out = NULL;

    if (frame != NULL) {
        assert(frame_bytes >= RPS_HEADER_BYTES);
        account(conn, frame);
        out = calloc(1, sizeof(*out));
    }
    if (out == NULL) {
        free(frame);
        lose(conn, "out_of_memory", "no memory for a reply");
        return;
    }
    out->frame = frame;
    out->length = frame_bytes;
    if (conn->out_last != NULL && conn->out_first != NULL) {
        conn->out_last->next = out;
    } else {
        conn->out_first = out;
    }
    conn->out_last = out;
    conn->out_bytes += frame_bytes;
}

/* rps_reply_fn; any thread. Only a reply to the request that this thread is
 * handling may go straight out: another connection is settled in its own
 * turn, when no lock of the service is held. */
static void
on_reply(void *context, uint8_t *frame, size_t frame_bytes)
{
    struct rps_conn *conn = context;

    if (rps_loop_is_own(conn->loop) && conn->handling) {
        queue_reply(conn, frame, frame_bytes);
    } else {
        rps_loop_mail_reply(conn->loop, conn, frame, frame_bytes);
    }
}

static void
sent(struct rps_conn *conn, size_t n)
{
    conn->out_bytes -= n;
    while (n > 0) {
        struct out *out = conn->out_first;
        size_t rest = out->length - conn->out_offset;

        if (n < rest) {
            conn->out_offset += n;
            return;
        }
        n -= rest;
        conn->out_offset = 0;
        conn->out_first = out->next;
        free(out->frame);
        free(out);
    }
}

static void
flush(struct rps_conn *conn)
{
    while (!conn->dead && conn->out_first != NULL) {
        struct iovec vectors[OUT_IOVECS];
        struct msghdr message = {.msg_iov = vectors};
        size_t skip = conn->out_offset;
        ssize_t n;

        for (struct out *out = conn->out_first;
                out != NULL && message.msg_iovlen < OUT_IOVECS;
                out = out->next) {
            vectors[message.msg_iovlen].iov_base = out->frame + skip;
            vectors[message.msg_iovlen++].iov_len = out->length - skip;
            skip = 0;
        }
        n = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            sent(conn, (size_t)n);
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else {
            conn->dead = true; /* the peer is gone: nothing to say */
        }
    }
}

/* ---- in ---- */

static bool
may_read(const struct rps_conn *conn)
{
    return !conn->dead && !conn->close_when_sent && conn->state != LINGERING &&
           !rps_loop_draining(conn->loop) &&
           conn->out_bytes < RPS_CONN_OUT_BYTES_MAX &&
           conn->pending < RPS_CONN_PENDING_MAX;
}

/* Room for `want` more bytes; grows with what has come, not with what a
 * header promises. */
static bool
make_room(struct rps_conn *conn, size_t want)
{
    size_t capacity = conn->in_capacity;
    uint8_t *in;

    if (conn->in_length < capacity) {
        return true;
    }
    capacity = capacity == 0 ? IN_BYTES_START : capacity * 2;
    if (capacity > conn->in_length + want) {
        capacity = conn->in_length + want;
    }
    capacity = (capacity + RPS_MESSAGE_ALIGN - 1) / RPS_MESSAGE_ALIGN *
               RPS_MESSAGE_ALIGN;
    if (capacity < IN_BYTES_START) {
        capacity = IN_BYTES_START;
    }
    in = aligned_alloc(RPS_MESSAGE_ALIGN, capacity);
    if (in == NULL) {
        lose(conn, "out_of_memory", "no memory for a request");
        return false;
    }
    if (conn->in_length > 0) {
        memcpy(in, conn->in, conn->in_length);
    }
    free(conn->in);
    conn->in = in;
    conn->in_capacity = capacity;
    return true;
}

/* The header is here: what may follow it? */
static void
accept_header(struct rps_conn *conn)
{
    struct rps_error error = {.text = ""};
    size_t limit =
            conn->state == SERVING ? FRAME_BYTES_MAX : RPS_HELLO_FRAME_MAX;

    conn->header_status = rps_header_decode(conn->in, &conn->header, &error);
    if (conn->header_status != RPS_OK &&
            conn->header_status != RPS_E_UNSUPPORTED) {
        lose(conn, "bad_frame", error.text);
        return;
    }
    memcpy(conn->why, error.text, sizeof(conn->why) - 1); /* its end is 0 */
    conn->frame_bytes = RPS_HEADER_BYTES + (size_t)conn->header.body_bytes;
    if (conn->frame_bytes > limit) {
        snprintf(error.text, sizeof(error.text),
                "a frame of %zu bytes, at most %zu are taken %s",
                conn->frame_bytes, limit,
                conn->state == SERVING ? "at all" : "before HELLO");
        lose(conn, "bad_frame", error.text);
        return;
    }
    conn->header_ns = rps_clock_ns();
}

/* Reads until one frame is whole: true. false: nothing more for now. */
static bool
fill(struct rps_conn *conn)
{
    while (!conn->dead) {
        size_t target =
                conn->frame_bytes > 0 ? conn->frame_bytes : RPS_HEADER_BYTES;
        size_t want = target - conn->in_length;
        size_t room;
        ssize_t n;

        if (want == 0 && conn->frame_bytes > 0) {
            return true;
        }
        if (want == 0) {
            accept_header(conn);
            continue;
        }
        if (!make_room(conn, want)) {
            return false;
        }
        room = conn->in_capacity - conn->in_length;
        n = recv(conn->fd, conn->in + conn->in_length,
                want < room ? want : room, MSG_DONTWAIT);
        if (n > 0) {
            conn->in_length += (size_t)n;
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return false;
        } else {
            conn->ended = true; /* end of stream, or reset */
            return false;
        }
    }
    return false;
}

/* Why this header is refused without a look at its body; OK: it is not. */
static rps_status
refusal(struct rps_conn *conn)
{
    const struct rps_header *header = &conn->header;

    if (conn->header_status != RPS_OK) {
        return conn->header_status;
    }
    if (conn->surplus) {
        snprintf(conn->why, sizeof(conn->why),
                "this server serves %u connections at most "
                "(connections_max); try again later",
                rps_loop_shared(conn->loop)->connections_max);
        return RPS_E_LIMIT;
    }
    if (header->deadline_us != 0 &&
            rps_clock_ns() - conn->header_ns >
                    (uint64_t)header->deadline_us * 1000) {
        snprintf(conn->why, sizeof(conn->why),
                "the deadline passed before the request was whole; "
                "nothing was done");
        return RPS_E_DEADLINE;
    }
    return RPS_OK;
}

/* Serves the whole frame in `in`. */
static void
serve(struct rps_conn *conn)
{
    struct rps_error error = {.text = ""};
    struct rps_message message;
    rps_status status = refusal(conn);

    conn->pending++;
    conn->waiting_steps += conn->header.opcode == RPS_OP_STEP_END;
    conn->handling = true;
    if (status != RPS_OK) {
        rps_service_refuse(&conn->header, status, conn->why, on_reply, conn);
        conn->close_when_sent |= conn->surplus;
    } else if ((status = rps_message_open(&message, &conn->header, conn->in,
                        conn->frame_bytes, &error)) != RPS_OK) {
        lose(conn, "bad_frame", error.text);
    } else {
        if (conn->header.opcode == RPS_OP_HELLO) {
            event_del(&conn->timer);
        }
        rps_service_handle(conn->session, &message, on_reply, conn);
    }
    conn->handling = false;
}

/* Ready for the next frame; a buffer that one large frame made goes. */
static void
next_frame(struct rps_conn *conn)
{
    conn->in_length = 0;
    conn->frame_bytes = 0;
    if (conn->in_capacity > RPS_CONN_KEEP_BYTES) {
        free(conn->in);
        conn->in = NULL;
        conn->in_capacity = 0;
    }
}

/* ---- events ---- */

static void
arm(struct event *event, bool wanted)
{
    if (wanted) {
        event_add(event, NULL);
    } else {
        event_del(event);
    }
}

static void
set_timer(struct rps_conn *conn, uint32_t ms)
{
    struct timeval wait = {
            .tv_sec = ms / 1000, .tv_usec = (long)(ms % 1000) * 1000};

    event_add(&conn->timer, &wait);
}

/*
 * The one place where a connection changes state or ends; the last thing
 * that any callback does with it.
 */
static void
settle(struct rps_conn *conn)
{
    if (atomic_load(&conn->broken)) {
        lose(conn, "out_of_memory", "no memory for a reply");
    }
    if (conn->dead) {
        rps_conn_destroy(conn);
        return;
    }
    if (conn->close_when_sent && conn->out_first == NULL &&
            conn->state != LINGERING) {
        /* A close with unread input would reset, and eat our words. */
        conn->state = LINGERING;
        shutdown(conn->fd, SHUT_WR);
    }
    if (conn->close_when_sent && !evtimer_pending(&conn->timer, NULL)) {
        set_timer(conn, RPS_LINGER_MS);
    }
    arm(&conn->readable, may_read(conn) || conn->state == LINGERING);
    arm(&conn->writable, conn->out_first != NULL);
}

static void
discard(struct rps_conn *conn)
{
    char bytes[LINGER_READ];
    ssize_t n = recv(conn->fd, bytes, sizeof(bytes), MSG_DONTWAIT);

    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        conn->dead = true;
    }
}

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;

    (void)fd;
    (void)what;
    if (conn->state == LINGERING) {
        discard(conn);
        settle(conn);
        return;
    }
    for (uint32_t n = 0; n < RPS_CONN_TURN_FRAMES && may_read(conn); n++) {
        if (!fill(conn)) {
            break;
        }
        serve(conn);
        next_frame(conn);
    }
    flush(conn);
    conn->dead |= conn->ended;
    settle(conn);
}

static void
on_writable(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;

    (void)fd;
    (void)what;
    flush(conn);
    settle(conn);
}

static void
on_timer(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;

    (void)fd;
    (void)what;
    if (conn->state == GREETING && !conn->close_when_sent) {
        lose(conn, "no_hello", "no HELLO within 5 s");
    }
    conn->dead = true;
    settle(conn);
}

void
rps_conn_deliver(struct rps_conn *conn, uint8_t *frame, size_t frame_bytes)
{
    queue_reply(conn, frame, frame_bytes);
    flush(conn);
    settle(conn);
}

void
rps_conn_quiet(struct rps_conn *conn)
{
    settle(conn);
}

void
rps_conn_check_broken(struct rps_conn *conn)
{
    if (atomic_load(&conn->broken)) {
        settle(conn);
    }
}

static void
link_conn(struct rps_conn *conn)
{
    struct rps_conn **head = rps_loop_conns(conn->loop);

    conn->next = *head;
    if (conn->next != NULL) {
        conn->next->previous = conn;
    }
    *head = conn;
}

bool
rps_conn_open(struct rps_loop *loop, int fd, const char *peer)
{
    struct rps_loops_shared *shared = rps_loop_shared(loop);
    struct event_base *base = rps_loop_base(loop);
    struct rps_conn *conn = calloc(1, sizeof(*conn));

    if (conn != NULL) {
        conn->session = rps_session_open(shared->service, peer);
    }
    if (conn == NULL || conn->session == NULL) {
        free(conn);
        close(fd);
        atomic_fetch_sub(&shared->connections, 1);
        return false;
    }
    conn->loop = loop;
    conn->fd = fd;
    atomic_init(&conn->broken, false);
    strncpy(conn->peer, peer, sizeof(conn->peer) - 1);
    conn->surplus = atomic_load(&shared->connections) > shared->connections_max;
    event_assign(
            &conn->readable, base, fd, EV_READ | EV_PERSIST, on_readable, conn);
    event_assign(&conn->writable, base, fd, EV_WRITE | EV_PERSIST, on_writable,
            conn);
    evtimer_assign(&conn->timer, base, on_timer, conn);
    link_conn(conn);
    set_timer(conn, RPS_HELLO_WAIT_MS);
    settle(conn);
    return true;
}
