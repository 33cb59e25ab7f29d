/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over a connected TCP socket. Owns the socket, the frames that wait
 * to be written and one receive buffer; knows nothing of requests.
 */
#include "client/channel.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A host that vanished is noticed after this long, idle or not. */
#define USER_TIMEOUT_MS   60000
#define KEEPALIVE_IDLE_S  10
#define KEEPALIVE_EVERY_S 5
#define KEEPALIVE_COUNT   6
/* Frames read in one move, so that one PS cannot starve the others. */
#define FRAMES_PER_MOVE 64

struct out_frame {
    struct out_frame *next;
    uint8_t *bytes;
    size_t length;
    size_t written;
};

struct tcp {
    struct rps_channel base;
    int fd;
    struct out_frame *out;
    struct out_frame **out_tail;
    uint8_t head[RPS_HEADER_BYTES]; /* of the frame being received */
    size_t received;                /* bytes of it, header included */
    struct rps_header header;       /* valid from 64 received bytes on */
    uint8_t *frame;                 /* [capacity]; the frame so far */
    size_t capacity;
};

static struct tcp *
tcp_of(struct rps_channel *channel)
{
    return (struct tcp *)channel;
}

static rps_status
lost(struct rps_error *error, const char *doing, int cause)
{
    return rps_fail(error, RPS_E_UNREACHABLE, "connection lost %s: %s", doing,
            strerror(cause));
}

static void
drop_first(struct tcp *tcp)
{
    struct out_frame *first = tcp->out;

    tcp->out = first->next;
    if (tcp->out == NULL) {
        tcp->out_tail = &tcp->out;
    }
    free(first->bytes);
    free(first);
}

static rps_status
write_some(struct tcp *tcp, struct rps_error *error)
{
    while (tcp->out != NULL) {
        struct out_frame *first = tcp->out;
        ssize_t n = send(tcp->fd, first->bytes + first->written,
                first->length - first->written, MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return RPS_OK;
        }
        if (n < 0) {
            return lost(error, "while sending", errno);
        }
        first->written += (size_t)n;
        if (first->written == first->length) {
            drop_first(tcp);
        }
    }
    return RPS_OK;
}

static rps_status
tcp_send(struct rps_channel *channel, uint8_t *frame, size_t frame_bytes,
        struct rps_error *error)
{
    struct tcp *tcp = tcp_of(channel);
    struct out_frame *out = calloc(1, sizeof(*out));

    if (out == NULL) {
        free(frame);
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    out->bytes = frame;
    out->length = frame_bytes;
    *tcp->out_tail = out;
    tcp->out_tail = &out->next;
    return write_some(tcp, error);
}

/* The header is whole: make room for the body behind it. */
static rps_status
open_frame(struct tcp *tcp, struct rps_error *error)
{
    size_t need;
    rps_status status = rps_header_decode(tcp->head, &tcp->header, error);

    if (status != RPS_OK) {
        return status;
    }
    if (tcp->header.body_bytes > RPS_BODY_BYTES_MAX) {
        return rps_fail(error, RPS_E_CORRUPT, "a reply of %u bytes",
                tcp->header.body_bytes);
    }
    need = RPS_HEADER_BYTES + tcp->header.body_bytes;
    if (need > tcp->capacity) {
        uint8_t *grown = realloc(tcp->frame, need);

        if (grown == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for a reply");
        }
        tcp->frame = grown;
        tcp->capacity = need;
    }
    memcpy(tcp->frame, tcp->head, RPS_HEADER_BYTES);
    return RPS_OK;
}

/* Read into header or body; *again_out: the socket had something. */
static rps_status
read_some(struct tcp *tcp, bool *again_out, struct rps_error *error)
{
    bool in_head = tcp->received < RPS_HEADER_BYTES;
    uint8_t *into = in_head ? tcp->head : tcp->frame;
    size_t end = in_head ? RPS_HEADER_BYTES
                         : RPS_HEADER_BYTES + tcp->header.body_bytes;
    ssize_t n = recv(tcp->fd, into + tcp->received, end - tcp->received, 0);

    *again_out = n > 0 || (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return RPS_OK;
    }
    if (n < 0) {
        return lost(error, "while receiving", errno);
    }
    if (n == 0) {
        return rps_fail(
                error, RPS_E_UNREACHABLE, "the server closed the connection");
    }
    tcp->received += (size_t)n;
    if (in_head && tcp->received == RPS_HEADER_BYTES) {
        return open_frame(tcp, error);
    }
    return RPS_OK;
}

static rps_status
read_frames(struct tcp *tcp, rps_frame_fn *take, void *context,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    bool again = true;
    int frames = 0;

    while (status == RPS_OK && again && frames < FRAMES_PER_MOVE) {
        status = read_some(tcp, &again, error);
        if (status == RPS_OK && tcp->received >= RPS_HEADER_BYTES &&
                tcp->received == RPS_HEADER_BYTES + tcp->header.body_bytes) {
            tcp->received = 0;
            frames++;
            status = take(context, &tcp->base, &tcp->header, tcp->frame,
                    RPS_HEADER_BYTES + tcp->header.body_bytes, error);
        }
    }
    return status;
}

static rps_status
tcp_move(struct rps_channel *channel, rps_frame_fn *take, void *context,
        struct rps_error *error)
{
    struct tcp *tcp = tcp_of(channel);
    struct rps_error ignored;
    rps_status written = write_some(tcp, error);
    /* What the server said before it closed is its last word. */
    rps_status read = read_frames(
            tcp, take, context, written == RPS_OK ? error : &ignored);

    return written != RPS_OK ? written : read;
}

static bool
tcp_arm(struct rps_channel *channel)
{
    return false;
}

static int
tcp_watch(const struct rps_channel *channel, short *events_out)
{
    const struct tcp *tcp = (const struct tcp *)channel;

    *events_out = (short)(POLLIN | (tcp->out != NULL ? POLLOUT : 0));
    return tcp->fd;
}

static void
tcp_hang_up(struct rps_channel *channel)
{
    struct tcp *tcp = tcp_of(channel);

    (void)close(tcp->fd);
    tcp->fd = -1;
}

static void
tcp_destroy(struct rps_channel *channel, bool forked)
{
    struct tcp *tcp = tcp_of(channel);

    while (tcp->out != NULL) {
        drop_first(tcp);
    }
    if (tcp->fd >= 0) {
        (void)close(tcp->fd);
    }
    free(tcp->frame);
    free(tcp->base.address);
    free(tcp);
}

static const struct rps_channel_ops tcp_ops = {
        .send = tcp_send,
        .move = tcp_move,
        .arm = tcp_arm,
        .watch = tcp_watch,
        .hang_up = tcp_hang_up,
        .destroy = tcp_destroy,
};

static void
set_option(int fd, int level, int name, int value)
{
    /* Each of them only helps; a socket without it still works. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

struct rps_channel *
rps_channel_tcp_create(uint32_t ps, const char *address, int socket_fd)
{
    struct tcp *tcp = calloc(1, sizeof(*tcp));

    if (tcp == NULL) {
        (void)close(socket_fd);
        return NULL;
    }
    tcp->base.ops = &tcp_ops;
    tcp->base.ps = ps;
    tcp->fd = socket_fd;
    tcp->out_tail = &tcp->out;
    tcp->base.address = strdup(address);
    if (tcp->base.address == NULL) {
        tcp_destroy(&tcp->base, false);
        return NULL;
    }
    set_option(socket_fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket_fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket_fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(socket_fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    set_option(socket_fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    set_option(socket_fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
    return &tcp->base;
}

void
rps_channel_destroy(struct rps_channel *channel, bool forked)
{
    if (channel != NULL) {
        channel->ops->destroy(channel, forked);
    }
}
