/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over a connected stream socket: TCP, with or without TLS, or a Unix
 * socket. Owns the socket, the frames that wait to be written and one receive
 * buffer; knows nothing of requests.
 */
#include "client/channel.h"
#include "client/out_frames.h"

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

struct stream {
    struct rps_channel base;
    int fd;
    struct rps_tls *tls;   /* NULL: plain */
    bool expects;          /* descriptors come with the next bytes */
    int fds[RPS_RING_FDS]; /* that came; -1: none */
    struct rps_out_frames out;
    uint8_t head[RPS_HEADER_BYTES]; /* of the frame being received */
    size_t received;                /* bytes of it, header included */
    struct rps_header header;       /* valid from 64 received bytes on */
    uint8_t *frame;                 /* [capacity]; the frame so far */
    size_t capacity;
};

static struct stream *
stream_of(struct rps_channel *channel)
{
    return (struct stream *)channel;
}

/* A server without TLS takes our handshake for garbage. */
static const char *
tls_hint(const struct stream *stream)
{
    return stream->tls != NULL && !rps_tls_is_used(stream->tls)
                   ? ", before a word over TLS (does it have --tls-cert?)"
                   : "";
}

static rps_status
lost(const struct stream *stream, const char *doing, int cause,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_UNREACHABLE, "connection lost %s: %s%s", doing,
            strerror(cause), tls_hint(stream));
}

/* TLS failed: before the server's first byte it is a refusal, by it or by us,
 * that no waiting heals. */
static rps_status
tls_failed(const struct stream *stream, struct rps_error *error)
{
    return rps_fail(error,
            rps_tls_is_used(stream->tls) ? RPS_E_UNREACHABLE : RPS_E_AUTH, "%s",
            rps_tls_why(stream->tls));
}

static ssize_t
send_bytes(struct stream *stream, const void *bytes, size_t n)
{
    return stream->tls == NULL ? send(stream->fd, bytes, n, MSG_NOSIGNAL)
                               : rps_tls_write(stream->tls, bytes, n);
}

static void
close_fds(struct stream *stream)
{
    for (int i = 0; i < RPS_RING_FDS; i++) {
        if (stream->fds[i] >= 0) {
            (void)close(stream->fds[i]);
        }
        stream->fds[i] = -1;
    }
}

/* recv(2), and the descriptors that come with it. */
static ssize_t
receive_fds(struct stream *stream, void *bytes, size_t n)
{
    struct iovec vector = {.iov_base = bytes, .iov_len = n};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(RPS_RING_FDS * sizeof(int))];
    } control = {.bytes = ""};
    struct msghdr message = {.msg_iov = &vector,
            .msg_iovlen = 1,
            .msg_control = control.bytes,
            /* not a descriptor more than is asked for */
            .msg_controllen = CMSG_LEN(RPS_RING_FDS * sizeof(int))};
    ssize_t got = recvmsg(stream->fd, &message, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *rights = got > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    size_t bytes_of_fds;

    if (rights == NULL || rights->cmsg_level != SOL_SOCKET ||
            rights->cmsg_type != SCM_RIGHTS) {
        return got;
    }
    close_fds(stream);
    bytes_of_fds = rights->cmsg_len - CMSG_LEN(0);
    memcpy(stream->fds, CMSG_DATA(rights),
            bytes_of_fds < sizeof(stream->fds) ? bytes_of_fds
                                               : sizeof(stream->fds));
    stream->expects = false;
    return got;
}

static ssize_t
receive_bytes(struct stream *stream, void *bytes, size_t n)
{
    if (stream->expects) {
        return receive_fds(stream, bytes, n);
    }
    return stream->tls == NULL ? recv(stream->fd, bytes, n, 0)
                               : rps_tls_read(stream->tls, bytes, n);
}

static rps_status
write_some(struct stream *stream, struct rps_error *error)
{
    while (stream->out.first != NULL) {
        const struct rps_out_frame *first = stream->out.first;
        ssize_t n = send_bytes(stream, first->bytes + first->written,
                first->length - first->written);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return RPS_OK;
        }
        if (n < 0 && errno == EPROTO && stream->tls != NULL) {
            return tls_failed(stream, error);
        }
        if (n < 0) {
            return lost(stream, "while sending", errno, error);
        }
        rps_out_frames_wrote(&stream->out, (size_t)n);
    }
    return RPS_OK;
}

static rps_status
stream_send(struct rps_channel *channel, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error)
{
    struct stream *stream = stream_of(channel);
    rps_status status =
            rps_out_frames_add(&stream->out, frame, frame_bytes, error);

    return status == RPS_OK ? write_some(stream, error) : status;
}

/* The header is whole: make room for the body behind it. */
static rps_status
open_frame(struct stream *stream, struct rps_error *error)
{
    size_t need;
    rps_status status = rps_header_decode(stream->head, &stream->header, error);

    if (status != RPS_OK) {
        return status;
    }
    if (stream->header.body_bytes > RPS_BODY_BYTES_MAX) {
        return rps_fail(error, RPS_E_CORRUPT, "a reply of %u bytes",
                stream->header.body_bytes);
    }
    need = RPS_HEADER_BYTES + stream->header.body_bytes;
    if (need > stream->capacity) {
        uint8_t *grown = realloc(stream->frame, need);

        if (grown == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for a reply");
        }
        stream->frame = grown;
        stream->capacity = need;
    }
    memcpy(stream->frame, stream->head, RPS_HEADER_BYTES);
    return RPS_OK;
}

/* A reply is whole. */
static rps_status
give(struct stream *stream, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    struct rps_message reply;
    rps_status status = rps_out_frames_check_reply(
            &stream->out, stream->header.request_id, error);

    stream->received = 0;
    if (status == RPS_OK) {
        status = rps_message_open(&reply, &stream->header, stream->frame,
                RPS_HEADER_BYTES + stream->header.body_bytes, error);
    }
    return status == RPS_OK ? take(context, &stream->base, &reply, error)
                            : status;
}

/* The end of the stream. */
static rps_status
ended(const struct stream *stream, struct rps_error *error)
{
    return rps_fail(error, RPS_E_UNREACHABLE,
            "the server closed the connection%s", tls_hint(stream));
}

/* Read into header or body; *again_out: the socket had something. */
static rps_status
read_some(struct stream *stream, bool *again_out, struct rps_error *error)
{
    bool in_head = stream->received < RPS_HEADER_BYTES;
    uint8_t *into = in_head ? stream->head : stream->frame;
    size_t end = in_head ? RPS_HEADER_BYTES
                         : RPS_HEADER_BYTES + stream->header.body_bytes;
    ssize_t n = receive_bytes(
            stream, into + stream->received, end - stream->received);

    *again_out = n > 0 || (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return RPS_OK;
    }
    if (n < 0 && errno == EPROTO && stream->tls != NULL) {
        return tls_failed(stream, error);
    }
    if (n < 0) {
        return lost(stream, "while receiving", errno, error);
    }
    if (n == 0) {
        return ended(stream, error);
    }
    stream->received += (size_t)n;
    if (in_head && stream->received == RPS_HEADER_BYTES) {
        return open_frame(stream, error);
    }
    return RPS_OK;
}

static rps_status
read_frames(struct stream *stream, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    bool again = true;
    int frames = 0;

    /* what TLS holds back would wake nobody that polls the socket */
    while (status == RPS_OK && again &&
            (frames < FRAMES_PER_MOVE ||
                    (stream->tls != NULL &&
                            rps_tls_has_pending(stream->tls)))) {
        status = read_some(stream, &again, error);
        if (status == RPS_OK && stream->received >= RPS_HEADER_BYTES &&
                stream->received ==
                        RPS_HEADER_BYTES + stream->header.body_bytes) {
            frames++;
            status = give(stream, take, context, error);
        }
    }
    return status;
}

static rps_status
stream_move(struct rps_channel *channel, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    struct stream *stream = stream_of(channel);
    struct rps_error ignored;
    rps_status written = write_some(stream, error);
    /* What the server said before it closed is its last word. */
    rps_status read = read_frames(
            stream, take, context, written == RPS_OK ? error : &ignored);

    return written != RPS_OK ? written : read;
}

static bool
stream_arm(struct rps_channel *channel, bool waits)
{
    return false;
}

static int
stream_watch(const struct rps_channel *channel, short *events_out)
{
    const struct stream *stream = (const struct stream *)channel;

    const struct rps_tls *tls = stream->tls;
    bool writes = stream->out.first != NULL;

    if (tls != NULL) {
        writes = (writes && !rps_tls_write_waits_to_read(tls)) ||
                 rps_tls_read_waits_to_write(tls);
    }
    *events_out = (short)(POLLIN | (writes ? POLLOUT : 0));
    return stream->fd;
}

static void
stream_hang_up(struct rps_channel *channel)
{
    struct stream *stream = stream_of(channel);

    rps_out_frames_clear(&stream->out);
    (void)close(stream->fd);
    stream->fd = -1;
}

static void
stream_destroy(struct rps_channel *channel, bool forked)
{
    struct stream *stream = stream_of(channel);

    rps_out_frames_clear(&stream->out);
    if (stream->tls != NULL && stream->fd >= 0 && !forked) {
        rps_tls_say_end(stream->tls);
    }
    rps_tls_close(stream->tls);
    close_fds(stream);
    if (stream->fd >= 0) {
        (void)close(stream->fd);
    }
    free(stream->frame);
    free(stream->base.address);
    free(stream);
}

static const struct rps_channel_ops stream_ops = {
        .send = stream_send,
        .move = stream_move,
        .arm = stream_arm,
        .watch = stream_watch,
        .hang_up = stream_hang_up,
        .destroy = stream_destroy,
};

static void
set_option(int fd, int level, int name, int value)
{
    /* Each of them only helps; a socket without it still works. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* A Unix socket takes none of them and needs none: its peer is a process of
 * this host, and the kernel tells at once when it ends. */
static void
set_tcp_options(int fd)
{
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_EVERY_S);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS);
}

/* The host of "host:port" or "[v6]:port". */
static bool
open_tls(struct stream *stream, struct rps_tls_context *context)
{
    const char *host = stream->base.address;
    const char *colon = strrchr(host, ':');
    size_t length = colon != NULL ? (size_t)(colon - host) : strlen(host);
    char *name;

    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    name = strndup(host, length);
    if (name != NULL) {
        stream->tls = rps_tls_open(context, stream->fd, name);
    }
    free(name);
    return stream->tls != NULL;
}

struct rps_channel *
rps_channel_stream_create(uint32_t ps, const char *address, int socket_fd,
        struct rps_tls_context *tls)
{
    struct stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        (void)close(socket_fd);
        return NULL;
    }
    stream->base.ops = &stream_ops;
    stream->base.ps = ps;
    stream->fd = socket_fd;
    memset(stream->fds, 0xff, sizeof(stream->fds)); /* -1 */
    rps_out_frames_init(&stream->out);
    stream->base.address = strdup(address);
    if (stream->base.address == NULL ||
            (tls != NULL && !open_tls(stream, tls))) {
        stream_destroy(&stream->base, false);
        return NULL;
    }
    set_tcp_options(socket_fd);
    return &stream->base;
}

void
rps_channel_stream_expect(struct rps_channel *channel)
{
    stream_of(channel)->expects = true;
}

void
rps_channel_stream_take(
        struct rps_channel *channel, int *socket_out, int fds[RPS_RING_FDS])
{
    struct stream *stream = stream_of(channel);

    *socket_out = stream->fd;
    stream->fd = -1;
    if (stream->fds[RPS_RING_FDS - 1] < 0) {
        close_fds(stream); /* all, or none */
    }
    for (int i = 0; i < RPS_RING_FDS; i++) {
        fds[i] = stream->fds[i];
        stream->fds[i] = -1;
    }
}

void
rps_channel_destroy(struct rps_channel *channel, bool forked)
{
    if (channel != NULL) {
        channel->ops->destroy(channel, forked);
    }
}
