/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "server/daemon/conn_impl.h"
#include "server/daemon/conn_ring.h"
#include "server/daemon/peer_log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define IN_BYTES_START 4096u

bool
rps_conn_may_read(const struct rps_conn *conn)
{
    return !conn->dead && !conn->close_when_sent &&
           conn->state != RPS_CONN_LINGERING && !conn->waits &&
           !conn->clogged && conn->out_bytes < RPS_CONN_OUT_BYTES_MAX &&
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
    if (!rps_conn_reserve(conn, capacity - conn->in_capacity)) {
        return false;
    }
    in = aligned_alloc(RPS_MESSAGE_ALIGN, capacity);
    if (in == NULL) {
        rps_conn_release(conn, capacity - conn->in_capacity);
        rps_conn_lose(conn, "out_of_memory", "no memory for a request");
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

/* A stranger gets a few frames and a few bytes to say HELLO in. */
static bool
check_greeting(struct rps_conn *conn, struct rps_error *error)
{
    conn->greeting_bytes += conn->frame_bytes;
    if (conn->greeting_bytes > RPS_GREETING_BYTES_MAX) {
        rps_fail(error, RPS_E_LIMIT,
                "%zu bytes before HELLO was answered, at most %u are taken",
                conn->greeting_bytes, RPS_GREETING_BYTES_MAX);
        return false;
    }
    if (++conn->greeting_frames > RPS_GREETING_FRAMES) {
        rps_fail(error, RPS_E_LIMIT, "%u frames and no HELLO among them",
                conn->greeting_frames);
        return false;
    }
    return true;
}

/* The header is here: what may follow it? */
static void
accept_header(struct rps_conn *conn)
{
    struct rps_error error = {.text = ""};

    conn->header_status = rps_header_decode(conn->in, &conn->header, &error);
    if (conn->header_status != RPS_OK &&
            conn->header_status != RPS_E_UNSUPPORTED) {
        rps_conn_lose(conn, "bad_frame", error.text);
        return;
    }
    memcpy(conn->why, error.text, sizeof(conn->why) - 1); /* its end is 0 */
    conn->frame_bytes = RPS_HEADER_BYTES + (size_t)conn->header.body_bytes;
    if (conn->state != RPS_CONN_SERVING && !check_greeting(conn, &error)) {
        rps_conn_lose(conn, "bad_frame", error.text);
        return;
    }
    conn->header_ns = conn->backlog > 0 ? conn->backlog_ns : rps_clock_ns();
}

/* The first byte tells: a frame begins with 'R', a TLS record never does. Who
 * speaks plainly is told so, plainly, and gets nothing else: see refusal(). As
 * recv(2) of that byte, which stays. */
static ssize_t
look_for_plain(struct rps_conn *conn)
{
    char first = 0;
    ssize_t n = recv(conn->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

    conn->looked = n == 1;
    if (n == 1 && first == 'R') {
        rps_tls_close(conn->tls);
        conn->tls = NULL;
        conn->plain = true;
        rps_peer_log_of(conn->peer, RPS_LOG_WARN, "tls_failed",
                "it speaks without TLS; refused");
        rps_conn_stats_lost(conn, "tls_failed");
    }
    return n;
}

/* recv(2), or what TLS or the ring has of it. */
static ssize_t
receive(struct rps_conn *conn, void *bytes, size_t n)
{
    if (conn->ring != NULL) {
        return rps_conn_ring_receive(conn, bytes, n);
    }
    if (conn->tls != NULL && !conn->looked) {
        ssize_t seen = look_for_plain(conn);

        if (seen <= 0) {
            return seen;
        }
    }
    return conn->tls == NULL ? recv(conn->fd, bytes, n, MSG_DONTWAIT)
                             : rps_tls_read(conn->tls, bytes, n);
}

void
rps_conn_note_backlog(struct rps_conn *conn)
{
    int bytes = 0;

    if (conn->ring != NULL && conn->backlog == 0) {
        conn->backlog = rps_conn_ring_backlog(conn);
        conn->backlog_ns = rps_clock_ns();
        return;
    }
    if (conn->backlog == 0 && conn->tls == NULL &&
            ioctl(conn->fd, FIONREAD, &bytes) == 0 && bytes > 0) {
        conn->backlog = (size_t)bytes;
        conn->backlog_ns = rps_clock_ns();
    }
}

/* Reads until one frame is whole: true. false: nothing more for now. */
bool
rps_conn_fill(struct rps_conn *conn)
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
        n = receive(
                conn, conn->in + conn->in_length, want < room ? want : room);
        if (n > 0) {
            conn->in_length += (size_t)n;
            conn->backlog -=
                    (size_t)n < conn->backlog ? (size_t)n : conn->backlog;
            rps_conn_moved(conn, (size_t)n);
            rps_stat_add(
                    &rps_loop_stats(conn->loop)->received_bytes, (uint64_t)n);
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return false;
        } else if (n < 0 && errno == EPROTO && conn->tls != NULL) {
            rps_conn_refuse(conn, "tls_failed", rps_tls_why(conn->tls));
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
    if (conn->header_status != RPS_OK) {
        return conn->header_status;
    }
    if (conn->plain) {
        snprintf(conn->why, sizeof(conn->why),
                "this server speaks TLS and nothing else: give the client "
                "--tls-ca");
        return RPS_E_AUTH;
    }
    if (conn->surplus) {
        snprintf(conn->why, sizeof(conn->why),
                "this server serves %u connections at most "
                "(connections_max); try again later",
                rps_loop_shared(conn->loop)->connections_max);
        return RPS_E_LIMIT;
    }
    if (rps_loop_draining(conn->loop)) {
        const char *reason =
                atomic_load(&rps_loop_shared(conn->loop)->stop_reason);

        snprintf(conn->why, sizeof(conn->why),
                "this server is stopping (%s): nothing was done; try again "
                "when another serves here",
                reason != NULL ? reason : "told to");
        return RPS_E_RETRY_LATER;
    }
    return RPS_OK;
}

/* Ready for the next frame; a buffer that one large frame made may go. */
static void
next_frame(struct rps_conn *conn)
{
    conn->in_length = 0;
    conn->frame_bytes = 0;
    if (!rps_conn_may_keep(conn)) {
        rps_conn_drop_buffer(conn);
    }
    rps_conn_end_frame(conn);
    rps_conn_settle_memory(conn);
}

/* Serves the whole frame in `in`. */
void
rps_conn_serve(struct rps_conn *conn)
{
    struct rps_error error = {.text = ""};
    struct rps_message message;
    rps_status status = refusal(conn);

    conn->pending++;
    conn->waiting_steps += conn->header.opcode == RPS_OP_STEP_END;
    conn->handling = true;
    rps_conn_stats_begin(conn);
    if (status != RPS_OK) {
        rps_service_refuse(
                &conn->header, status, conn->why, rps_conn_on_reply, conn);
        conn->close_when_sent |= conn->surplus || conn->plain;
    } else if ((status = rps_message_open(&message, &conn->header, conn->in,
                        conn->frame_bytes, &error)) != RPS_OK) {
        rps_conn_lose(conn, "bad_frame", error.text);
    } else if (conn->header.opcode == RPS_OP_SHM_ATTACH &&
               conn->state == RPS_CONN_SERVING) {
        rps_conn_attach(conn);
    } else {
        if (conn->header.opcode == RPS_OP_HELLO) {
            event_del(&conn->timer);
        }
        rps_conn_stats_keys(conn, &message);
        rps_service_handle_since(conn->session, &message, conn->header_ns,
                rps_conn_on_reply, conn);
    }
    rps_conn_stats_end(conn);
    conn->handling = false;
    next_frame(conn);
}
