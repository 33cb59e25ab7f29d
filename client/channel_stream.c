/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames over a connected stream socket: TCP, with or without TLS, or a Unix
 * socket. Owns the socket, the frames that wait to be written and the receive
 * buffers; knows nothing of requests.
 *
 * Where no frame is open, bytes are read into `ahead`: a header and what comes
 * with it, so that a short reply takes one call. The rest of a frame is read to
 * its place. While much of it is missing, the kernel is told to wake nobody
 * for less (SO_RCVLOWAT): to be woken for every packet costs the server, which
 * does it, and us more than the copies do.
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
#define AHEAD_BYTES     4096u
/* Less than this of a frame is not waited for in one go. */
#define WAKE_BYTES (64u << 10)

struct stream {
    struct rps_channel base;
    int fd;
    struct rps_tls *tls;   /* NULL: plain */
    bool expects;          /* descriptors come with the next bytes */
    int fds[RPS_RING_FDS]; /* that came; -1: none */
    struct rps_out_frames out;
    uint8_t ahead[AHEAD_BYTES]; /* [ahead_at, ahead_end): not taken yet */
    size_t ahead_at;
    size_t ahead_end;
    bool open;                /* a frame is being received */
    struct rps_header header; /* its */
    size_t received;          /* bytes of it, header included */
    uint8_t *frame;           /* [capacity]; the frame so far */
    size_t capacity;
    int low_water; /* SO_RCVLOWAT; 1, or no more than a frame's missing bytes */
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

static size_t
frame_bytes_of(const struct stream *stream)
{
    return RPS_HEADER_BYTES + (size_t)stream->header.body_bytes;
}

static bool
is_whole(const struct stream *stream)
{
    return stream->open && stream->received == frame_bytes_of(stream);
}

static rps_status
make_room(struct stream *stream, struct rps_error *error)
{
    const size_t need = frame_bytes_of(stream);
    uint8_t *grown;

    if (need <= stream->capacity) {
        return RPS_OK;
    }
    grown = realloc(stream->frame, need);
    if (grown == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a reply");
    }
    stream->frame = grown;
    stream->capacity = need;
    return RPS_OK;
}

/* A header is here: make room for its frame, and take what came with it. */
static rps_status
open_frame(struct stream *stream, struct rps_error *error)
{
    const uint8_t *ahead = stream->ahead + stream->ahead_at;
    size_t there = stream->ahead_end - stream->ahead_at;
    rps_status status = rps_header_decode(ahead, &stream->header, error);

    if (status != RPS_OK) {
        return status;
    }
    if (stream->header.body_bytes > RPS_BODY_BYTES_MAX) {
        return rps_fail(error, RPS_E_CORRUPT, "a reply of %u bytes",
                stream->header.body_bytes);
    }
    status = make_room(stream, error);
    if (status != RPS_OK) {
        return status;
    }
    there = there < frame_bytes_of(stream) ? there : frame_bytes_of(stream);
    memcpy(stream->frame, ahead, there);
    stream->ahead_at += there;
    stream->received = there;
    stream->open = true;
    return RPS_OK;
}

static void
set_option(int fd, int level, int name, int value)
{
    /* Each of them only helps; a socket without it still works. */
    (void)setsockopt(fd, level, name, &value, sizeof(value));
}

/* Never more than is sure to come: the rest of the frame. (What TLS holds back
 * is in no socket.) */
static void
set_low_water(struct stream *stream)
{
    const size_t left =
            stream->open ? frame_bytes_of(stream) - stream->received : 0;
    const bool waits = left >= WAKE_BYTES && stream->tls == NULL;

    if (waits ? stream->low_water != 1 && (size_t)stream->low_water <= left
              : stream->low_water == 1) {
        return;
    }
    stream->low_water = waits ? (int)left : 1;
    set_option(stream->fd, SOL_SOCKET, SO_RCVLOWAT, stream->low_water);
}

/* A reply is whole. */
static rps_status
give(struct stream *stream, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    struct rps_message reply;
    rps_status status = rps_out_frames_check_reply(
            &stream->out, stream->header.request_id, error);

    stream->open = false;
    if (status == RPS_OK) {
        status = rps_message_open(&reply, &stream->header, stream->frame,
                frame_bytes_of(stream), error);
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

/* As recv(2), to where the next bytes belong. *asked_out: how many those are at
 * most. */
static ssize_t
receive_next(struct stream *stream, size_t *asked_out)
{
    ssize_t n;

    if (stream->open) {
        *asked_out = frame_bytes_of(stream) - stream->received;
        n = receive_bytes(stream, stream->frame + stream->received, *asked_out);
        stream->received += n > 0 ? (size_t)n : 0;
        return n;
    }
    memmove(stream->ahead, stream->ahead + stream->ahead_at,
            stream->ahead_end - stream->ahead_at);
    stream->ahead_end -= stream->ahead_at;
    stream->ahead_at = 0;
    *asked_out = AHEAD_BYTES - stream->ahead_end;
    n = receive_bytes(stream, stream->ahead + stream->ahead_end, *asked_out);
    stream->ahead_end += n > 0 ? (size_t)n : 0;
    return n;
}

/* *dry_out: the socket has nothing more. TLS knows that only when it has
 * looked. */
static rps_status
read_some(struct stream *stream, bool *dry_out, struct rps_error *error)
{
    size_t asked = 0;
    const ssize_t n = receive_next(stream, &asked);

    *dry_out =
            n < 0 ? errno == EAGAIN : stream->tls == NULL && (size_t)n < asked;
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) {
        return RPS_OK;
    }
    if (n < 0 && errno == EPROTO && stream->tls != NULL) {
        return tls_failed(stream, error);
    }
    return n < 0 ? lost(stream, "while receiving", errno, error)
                 : ended(stream, error);
}

/* What TLS holds back would wake nobody that polls the socket. */
static bool
may_read_on(const struct stream *stream, int frames)
{
    return frames < FRAMES_PER_MOVE ||
           (stream->tls != NULL && rps_tls_has_pending(stream->tls));
}

/* Nor would what lies in `ahead`: whole frames of it are always taken. */
static rps_status
read_frames(struct stream *stream, rps_reply_take_fn *take, void *context,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    bool dry = false;
    int frames = 0;

    while (status == RPS_OK) {
        if (is_whole(stream)) {
            frames++;
            status = give(stream, take, context, error);
        } else if (!stream->open &&
                   stream->ahead_end - stream->ahead_at >= RPS_HEADER_BYTES) {
            status = open_frame(stream, error);
        } else if (!dry && may_read_on(stream, frames)) {
            status = read_some(stream, &dry, error);
        } else {
            break;
        }
    }
    if (status == RPS_OK) {
        set_low_water(stream);
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
    stream->low_water = 1;
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
