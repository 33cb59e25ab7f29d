/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over a connected TCP socket, with or without TLS. Owns the socket, the
 * frames that wait to be written and one receive buffer; knows nothing of
 * requests.
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
    const uint8_t *bytes; /* borrowed */
    size_t length;
    size_t written;
};

struct tcp {
    struct rps_channel base;
    int fd;
    struct rps_tls *tls; /* NULL: plain */
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

/* A server without TLS takes our handshake for garbage. */
static const char *
tls_hint(const struct tcp *tcp)
{
    return tcp->tls != NULL && !rps_tls_is_used(tcp->tls)
                   ? ", before a word over TLS (does it have --tls-cert?)"
                   : "";
}

static rps_status
lost(const struct tcp *tcp, const char *doing, int cause,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_UNREACHABLE, "connection lost %s: %s%s", doing,
            strerror(cause), tls_hint(tcp));
}

/* TLS failed: before the server's first byte it is a refusal, by it or by us,
 * that no waiting heals. */
static rps_status
tls_failed(const struct tcp *tcp, struct rps_error *error)
{
    return rps_fail(error,
            rps_tls_is_used(tcp->tls) ? RPS_E_UNREACHABLE : RPS_E_AUTH, "%s",
            rps_tls_why(tcp->tls));
}

static ssize_t
send_bytes(struct tcp *tcp, const void *bytes, size_t n)
{
    return tcp->tls == NULL ? send(tcp->fd, bytes, n, MSG_NOSIGNAL)
                            : rps_tls_write(tcp->tls, bytes, n);
}

static ssize_t
receive_bytes(struct tcp *tcp, void *bytes, size_t n)
{
    return tcp->tls == NULL ? recv(tcp->fd, bytes, n, 0)
                            : rps_tls_read(tcp->tls, bytes, n);
}

static void
drop_first(struct tcp *tcp)
{
    struct out_frame *first = tcp->out;

    tcp->out = first->next;
    if (tcp->out == NULL) {
        tcp->out_tail = &tcp->out;
    }
    free(first);
}

static rps_status
write_some(struct tcp *tcp, struct rps_error *error)
{
    while (tcp->out != NULL) {
        struct out_frame *first = tcp->out;
        ssize_t n = send_bytes(tcp, first->bytes + first->written,
                first->length - first->written);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return RPS_OK;
        }
        if (n < 0 && errno == EPROTO && tcp->tls != NULL) {
            return tls_failed(tcp, error);
        }
        if (n < 0) {
            return lost(tcp, "while sending", errno, error);
        }
        first->written += (size_t)n;
        if (first->written == first->length) {
            drop_first(tcp);
        }
    }
    return RPS_OK;
}

static rps_status
tcp_send(struct rps_channel *channel, const uint8_t *frame, size_t frame_bytes,
        struct rps_error *error)
{
    struct tcp *tcp = tcp_of(channel);
    struct out_frame *out = calloc(1, sizeof(*out));

    if (out == NULL) {
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

/* Does it answer what the server cannot have read to its end? */
static bool
is_early(const struct tcp *tcp)
{
    const struct out_frame *out = tcp->out;

    while (out != NULL &&
            memcmp(out->bytes + RPS_REQUEST_ID_AT,
                    tcp->head + RPS_REQUEST_ID_AT, sizeof(uint64_t)) != 0) {
        out = out->next;
    }
    return out != NULL;
}

/* A reply is whole. */
static rps_status
give(struct tcp *tcp, rps_frame_fn *take, void *context,
        struct rps_error *error)
{
    tcp->received = 0;
    if (is_early(tcp)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "a reply to a request that is not sent yet");
    }
    return take(context, &tcp->base, &tcp->header, tcp->frame,
            RPS_HEADER_BYTES + tcp->header.body_bytes, error);
}

/* The end of the stream. */
static rps_status
ended(const struct tcp *tcp, struct rps_error *error)
{
    return rps_fail(error, RPS_E_UNREACHABLE,
            "the server closed the connection%s", tls_hint(tcp));
}

/* Read into header or body; *again_out: the socket had something. */
static rps_status
read_some(struct tcp *tcp, bool *again_out, struct rps_error *error)
{
    bool in_head = tcp->received < RPS_HEADER_BYTES;
    uint8_t *into = in_head ? tcp->head : tcp->frame;
    size_t end = in_head ? RPS_HEADER_BYTES
                         : RPS_HEADER_BYTES + tcp->header.body_bytes;
    ssize_t n = receive_bytes(tcp, into + tcp->received, end - tcp->received);

    *again_out = n > 0 || (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return RPS_OK;
    }
    if (n < 0 && errno == EPROTO && tcp->tls != NULL) {
        return tls_failed(tcp, error);
    }
    if (n < 0) {
        return lost(tcp, "while receiving", errno, error);
    }
    if (n == 0) {
        return ended(tcp, error);
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

    /* what TLS holds back would wake nobody that polls the socket */
    while (status == RPS_OK && again &&
            (frames < FRAMES_PER_MOVE ||
                    (tcp->tls != NULL && rps_tls_has_pending(tcp->tls)))) {
        status = read_some(tcp, &again, error);
        if (status == RPS_OK && tcp->received >= RPS_HEADER_BYTES &&
                tcp->received == RPS_HEADER_BYTES + tcp->header.body_bytes) {
            frames++;
            status = give(tcp, take, context, error);
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

    const struct rps_tls *tls = tcp->tls;
    bool writes = tcp->out != NULL;

    if (tls != NULL) {
        writes = (writes && !rps_tls_write_waits_to_read(tls)) ||
                 rps_tls_read_waits_to_write(tls);
    }
    *events_out = (short)(POLLIN | (writes ? POLLOUT : 0));
    return tcp->fd;
}

static void
tcp_hang_up(struct rps_channel *channel)
{
    struct tcp *tcp = tcp_of(channel);

    while (tcp->out != NULL) {
        drop_first(tcp);
    }
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
    if (tcp->tls != NULL && tcp->fd >= 0 && !forked) {
        rps_tls_say_end(tcp->tls);
    }
    rps_tls_close(tcp->tls);
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

/* The host of "host:port" or "[v6]:port". */
static bool
open_tls(struct tcp *tcp, struct rps_tls_context *context)
{
    const char *host = tcp->base.address;
    const char *colon = strrchr(host, ':');
    size_t length = colon != NULL ? (size_t)(colon - host) : strlen(host);
    char *name;

    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    name = strndup(host, length);
    if (name != NULL) {
        tcp->tls = rps_tls_open(context, tcp->fd, name);
    }
    free(name);
    return tcp->tls != NULL;
}

struct rps_channel *
rps_channel_tcp_create(uint32_t ps, const char *address, int socket_fd,
        struct rps_tls_context *tls)
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
    if (tcp->base.address == NULL || (tls != NULL && !open_tls(tcp, tls))) {
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
