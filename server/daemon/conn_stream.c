/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a long reply on its way out while it is made (rps_frame_sink): its
 * parts are written to memory of the loop, and sent from there at once. What
 * the socket does not take is kept, and so is all that is made after it:
 *
 *   frame:  sent              | kept, made | left, to be made
 *           at                  rest->length - rest_skip
 *
 * Threads: the loop's, while a request of the connection is handled.
 */
#include "server/daemon/conn_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct rps_conn *
conn_of(struct rps_frame_sink *sink)
{
    return (struct rps_conn *)(void *)((char *)sink -
                                       offsetof(struct rps_conn, sink));
}

/* Bytes are sent as they come: not over TLS, which makes records of them, nor
 * past replies that wait. */
static bool
begin(struct rps_frame_sink *sink, size_t frame_bytes)
{
    struct rps_conn *conn = conn_of(sink);

    if (!conn->handling || conn->tls != NULL || conn->ring != NULL) {
        return false;
    }
    rps_conn_flush(conn);
    if (conn->dead || conn->out_first != NULL ||
            rps_loop_part(conn->loop) == NULL) {
        return false;
    }
    conn->stream = (struct rps_conn_stream){.left = frame_bytes};
    return true;
}

/* Where the bytes that are not sent begin. */
static uint8_t *
unsent(const struct rps_conn *conn)
{
    return rps_loop_part(conn->loop) + conn->stream.at % RPS_MESSAGE_ALIGN;
}

static uint8_t *
room(struct rps_frame_sink *sink, size_t bytes)
{
    const struct rps_conn *conn = conn_of(sink);
    const struct rps_conn_stream *stream = &conn->stream;

    assert(bytes <= stream->left && bytes <= RPS_FRAME_PART_BYTES);
    return stream->rest != NULL ? stream->rest->frame + stream->rest->length
                                : unsent(conn) + stream->filled;
}

/* The socket takes no more: what is not sent, and what will be made. */
static void
keep(struct rps_conn *conn, const uint8_t *bytes, size_t n)
{
    struct rps_conn_stream *stream = &conn->stream;
    const size_t skip = stream->at % RPS_MESSAGE_ALIGN;
    const size_t all = skip + n + stream->left + RPS_MESSAGE_ALIGN - 1;
    struct rps_out *rest = calloc(1, sizeof(*rest));

    if (rest != NULL) {
        rest->frame =
                aligned_alloc(RPS_MESSAGE_ALIGN, all - all % RPS_MESSAGE_ALIGN);
    }
    if (rest == NULL || rest->frame == NULL) {
        free(rest);
        rps_conn_lose(conn, "out_of_memory", "no memory for a reply");
        return;
    }
    memcpy(rest->frame + skip, bytes, n);
    rest->length = skip + n;
    stream->rest = rest;
}

/* MSG_MORE: no short packet at the end of each part. */
static void
send_filled(struct rps_conn *conn)
{
    struct rps_conn_stream *stream = &conn->stream;
    const int more = stream->left > 0 ? MSG_MORE : 0;
    const uint8_t *bytes = unsent(conn);
    size_t n = stream->filled;

    stream->filled = 0;
    while (n > 0 && !conn->dead && stream->rest == NULL) {
        ssize_t sent =
                send(conn->fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT | more);

        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
            stream->at += (size_t)sent;
            rps_conn_moved(conn, (size_t)sent);
            rps_stat_add(
                    &rps_loop_stats(conn->loop)->sent_bytes, (uint64_t)sent);
        } else if (sent < 0 && errno == EAGAIN) {
            keep(conn, bytes, n);
        } else if (sent == 0 || errno != EINTR) {
            conn->dead = true; /* the peer is gone: nothing to say */
        }
    }
}

static void
end(struct rps_conn *conn)
{
    struct rps_conn_stream *stream = &conn->stream;

    rps_conn_account(conn, &stream->head);
    if (stream->rest != NULL) {
        rps_conn_append(conn, stream->rest, stream->at % RPS_MESSAGE_ALIGN);
        stream->rest = NULL;
    }
}

static void
put(struct rps_frame_sink *sink, size_t bytes)
{
    struct rps_conn *conn = conn_of(sink);
    struct rps_conn_stream *stream = &conn->stream;

    if (stream->at == 0 && stream->filled == 0) {
        assert(bytes >= RPS_HEADER_BYTES);
        stream->head = rps_reply_head(unsent(conn));
    }
    stream->left -= bytes;
    if (stream->rest != NULL) {
        stream->rest->length += bytes;
    } else {
        stream->filled += bytes;
    }
    if (stream->filled >= RPS_FRAME_PART_BYTES || stream->left == 0) {
        send_filled(conn);
    }
    if (stream->left == 0) {
        end(conn);
    }
}

void
rps_conn_stream_init(struct rps_conn *conn)
{
    conn->sink =
            (struct rps_frame_sink){.begin = begin, .room = room, .put = put};
    rps_session_set_sink(conn->session, &conn->sink);
}
