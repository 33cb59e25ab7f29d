/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/conn_impl.h"
#include "server/daemon/conn_ring.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define OUT_IOVECS 16

void
rps_conn_free_out(struct rps_conn *conn)
{
    while (conn->out_first != NULL) {
        struct rps_out *out = conn->out_first;

        conn->out_first = out->next;
        free(out->frame);
        free(out);
    }
}

/* Looks at a finished reply for what it means to the connection. */
void
rps_conn_account(struct rps_conn *conn, const struct rps_reply_head *head)
{
    const uint16_t opcode = head->opcode;
    const int32_t status = head->status;

    rps_conn_stats_reply(conn, head);
    assert(conn->pending > 0);
    conn->pending--;
    if (opcode == RPS_OP_STEP_END && conn->waiting_steps > 0) {
        conn->waiting_steps--;
    }
    if (opcode == RPS_OP_AUTH && status != RPS_OK) {
        conn->close_when_sent = true;
    }
    if (opcode == RPS_OP_HELLO && conn->state == RPS_CONN_GREETING) {
        if (status == RPS_OK && !conn->surplus) {
            conn->state = RPS_CONN_SERVING;
            event_del(&conn->timer);
            rps_conn_greeted(conn);
        } else {
            conn->close_when_sent = true;
        }
    }
}

static void
account(struct rps_conn *conn, const uint8_t *frame)
{
    const struct rps_reply_head head = rps_reply_head(frame);

    rps_conn_account(conn, &head);
}

void
rps_conn_append(struct rps_conn *conn, struct rps_out *out, size_t offset)
{
    const size_t bytes = out->length - offset;

    if (conn->out_first != NULL) {
        assert(offset == 0);
        conn->out_last->next = out;
    } else {
        conn->out_first = out;
        conn->out_offset = offset;
    }
    conn->out_last = out;
    conn->out_bytes += bytes;
    rps_conn_hold(conn, bytes);
    rps_stat_add(&rps_loop_stats(conn->loop)->unsent_bytes, bytes);
}

/* Its client can write to it, and does so to its own harm: what the header
 * says is looked at once. */
static void
take_lent(struct rps_conn *conn, const uint8_t *frame, size_t frame_bytes)
{
    uint8_t head[RPS_HEADER_BYTES];

    memcpy(head, frame, sizeof(head));
    atomic_signal_fence(memory_order_seq_cst);
    account(conn, head);
    rps_conn_ring_publish(conn, frame_bytes);
}

void
rps_conn_queue(struct rps_conn *conn, uint8_t *frame, size_t frame_bytes)
{
    struct rps_out *out = NULL;

    if (frame != NULL && rps_conn_ring_lent(conn, frame)) {
        take_lent(conn, frame, frame_bytes);
        return;
    }
    if (frame != NULL) {
        assert(frame_bytes >= RPS_HEADER_BYTES);
        account(conn, frame);
        out = calloc(1, sizeof(*out));
    }
    if (out == NULL) {
        free(frame);
        rps_conn_lose(conn, "out_of_memory", "no memory for a reply");
        return;
    }
    out->frame = frame;
    out->length = frame_bytes;
    rps_conn_append(conn, out, 0);
}

/* rps_reply_fn; any thread. Only a reply to the request that this thread is
 * handling may go straight out: another connection is settled in its own
 * turn, when no lock of the service is held. */
void
rps_conn_on_reply(void *context, uint8_t *frame, size_t frame_bytes)
{
    struct rps_conn *conn = context;

    if (rps_loop_is_own(conn->loop) && conn->handling) {
        rps_conn_queue(conn, frame, frame_bytes);
    } else {
        rps_loop_mail_reply(conn->loop, conn, frame, frame_bytes);
    }
}

void
rps_conn_sent(struct rps_conn *conn, size_t n)
{
    struct rps_loop_stats *stats = rps_loop_stats(conn->loop);

    conn->out_bytes -= n;
    rps_conn_release(conn, n);
    rps_conn_moved(conn, n);
    rps_stat_add(&stats->sent_bytes, n);
    rps_stat_add(&stats->unsent_bytes, 0 - (uint64_t)n);
    while (n > 0) {
        struct rps_out *out = conn->out_first;
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

/* TLS takes a frame at a time. */
static void
flush_tls(struct rps_conn *conn)
{
    while (!conn->dead && conn->out_first != NULL) {
        const struct rps_out *out = conn->out_first;
        ssize_t n = rps_tls_write(conn->tls, out->frame + conn->out_offset,
                out->length - conn->out_offset);

        if (n > 0) {
            rps_conn_sent(conn, (size_t)n);
        } else if (errno == EAGAIN) {
            return;
        } else {
            conn->dead = true; /* the peer is gone: nothing to say */
        }
    }
}

void
rps_conn_flush(struct rps_conn *conn)
{
    if (conn->tls != NULL) {
        flush_tls(conn);
        return;
    }
    if (conn->ring != NULL) {
        rps_conn_ring_flush(conn);
        return;
    }
    while (!conn->dead && conn->out_first != NULL) {
        struct iovec vectors[OUT_IOVECS];
        struct msghdr message = {.msg_iov = vectors};
        size_t skip = conn->out_offset;
        ssize_t n;

        for (struct rps_out *out = conn->out_first;
                out != NULL && message.msg_iovlen < OUT_IOVECS;
                out = out->next) {
            vectors[message.msg_iovlen].iov_base = out->frame + skip;
            vectors[message.msg_iovlen++].iov_len = out->length - skip;
            skip = 0;
        }
        n = sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            rps_conn_sent(conn, (size_t)n);
        } else if (n < 0 && errno == EINTR) {
            continue;
        } else if (n < 0 && errno == EAGAIN) {
            return;
        } else {
            conn->dead = true; /* the peer is gone: nothing to say */
        }
    }
}
