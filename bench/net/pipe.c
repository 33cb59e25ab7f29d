/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/net/pipe.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define RING_BYTES  ((uint64_t)4 << 20) /* the server's default, --shm-ring */
#define SPIN_ROUNDS 32u                 /* as client/channel_shm.c */

/* --- sockets ------------------------------------------------------------- */

static ssize_t
result(ssize_t n)
{
    if (n > 0) {
        return n;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

static ssize_t
socket_put(struct bench_end *end, const void *bytes, size_t n, bool waits)
{
    return result(
            send(end->fd, bytes, n, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)));
}

static ssize_t
socket_get(struct bench_end *end, void *into, size_t n, bool waits)
{
    return result(recv(end->fd, into, n, waits ? 0 : MSG_DONTWAIT));
}

static void
socket_wait(struct bench_end *end)
{
    struct pollfd entry = {.fd = end->fd, .events = POLLIN | POLLOUT};

    (void)poll(&entry, 1, -1);
}

static const struct bench_pipe_ops socket_ops = {
        .put = socket_put, .get = socket_get, .wait = socket_wait};

/* --- shared memory ------------------------------------------------------- */

static void
wake(struct bench_end *end, uint32_t reason)
{
    const uint64_t one = 1;

    if (rps_ring_wakes(&end->ring, reason)) {
        (void)!write(end->bell, &one, sizeof(one));
    }
}

static size_t
room_of(const struct bench_end *end)
{
    struct rps_error ignored;
    size_t n = 0;

    return rps_ring_room(&end->ring, &n, &ignored) == RPS_OK ? n : 0;
}

static size_t
data_of(const struct bench_end *end)
{
    struct rps_error ignored;
    size_t n = 0;

    return rps_ring_has(&end->ring, &n, &ignored) == RPS_OK ? n : 0;
}

static bool
look(void *context)
{
    const struct bench_end *end = context;

    return rps_ring_spin(&end->ring, SPIN_ROUNDS);
}

static void
ring_sleep(struct bench_end *end, uint32_t reasons)
{
    uint64_t bells = 0;

    if (reasons == RPS_RING_FOR_DATA && rps_spin(&end->spin, look, end)) {
        return;
    }
    rps_ring_sleep(&end->ring, reasons);
    if (((reasons & RPS_RING_FOR_DATA) == 0 || data_of(end) == 0) &&
            ((reasons & RPS_RING_FOR_ROOM) == 0 || room_of(end) == 0)) {
        (void)!read(end->own_bell, &bells, sizeof(bells));
    }
    rps_ring_sleep(&end->ring, 0);
}

static ssize_t
ring_put(struct bench_end *end, const void *bytes, size_t n, bool waits)
{
    size_t room = room_of(end);

    while (room == 0 && waits) {
        ring_sleep(end, RPS_RING_FOR_ROOM);
        room = room_of(end);
    }
    n = n < room ? n : room;
    if (n > 0) {
        memcpy(rps_ring_back(&end->ring), bytes, n);
        rps_ring_publish(&end->ring, n);
        wake(end, RPS_RING_FOR_DATA);
    }
    return (ssize_t)n;
}

static ssize_t
ring_get(struct bench_end *end, void *into, size_t n, bool waits)
{
    size_t there = data_of(end);

    while (there == 0 && waits) {
        ring_sleep(end, RPS_RING_FOR_DATA);
        there = data_of(end);
    }
    n = n < there ? n : there;
    if (n > 0) {
        rps_ring_take(&end->ring, into, n);
        rps_ring_release(&end->ring);
        wake(end, RPS_RING_FOR_ROOM);
    }
    return (ssize_t)n;
}

static void
ring_wait(struct bench_end *end)
{
    ring_sleep(end, RPS_RING_FOR_DATA | RPS_RING_FOR_ROOM);
}

static const struct bench_pipe_ops ring_ops = {
        .put = ring_put, .get = ring_get, .wait = ring_wait};

/* --- both ---------------------------------------------------------------- */

static void
set_no_delay(int fd)
{
    const int on = 1;

    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

/* A connected pair over the loopback. */
static bool
tcp_pair(int fds[2])
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t bytes = sizeof(at);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool done = false;

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener >= 0 && fds[0] >= 0 &&
            bind(listener, (struct sockaddr *)&at, sizeof(at)) == 0 &&
            listen(listener, 1) == 0 &&
            getsockname(listener, (struct sockaddr *)&at, &bytes) == 0 &&
            connect(fds[0], (struct sockaddr *)&at, sizeof(at)) == 0) {
        fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        done = fds[1] >= 0;
    }
    if (listener >= 0) {
        (void)close(listener);
    }
    if (done) {
        set_no_delay(fds[0]);
        set_no_delay(fds[1]);
    }
    return done;
}

static bool
make_memory(struct bench_pipe *pipe)
{
    pipe->memory = memfd_create("recps-bench", MFD_CLOEXEC);
    pipe->bells[0] = eventfd(0, EFD_CLOEXEC);
    pipe->bells[1] = eventfd(0, EFD_CLOEXEC);
    return pipe->memory >= 0 && pipe->bells[0] >= 0 && pipe->bells[1] >= 0 &&
           ftruncate(pipe->memory, (off_t)rps_ring_file_bytes(RING_BYTES)) == 0;
}

rps_status
bench_pipe_init(struct bench_pipe *pipe, enum rps_transport transport,
        struct rps_error *error)
{
    bool done = true;

    *pipe = (struct bench_pipe){.transport = transport,
            .fds = {-1, -1},
            .memory = -1,
            .bells = {-1, -1}};
    switch (transport) {
    case RPS_TRANSPORT_TCP:
        done = tcp_pair(pipe->fds);
        break;
    case RPS_TRANSPORT_UNIX:
        done = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pipe->fds) ==
               0;
        break;
    case RPS_TRANSPORT_SHM:
        done = make_memory(pipe);
        break;
    default:
        break;
    }
    return done ? RPS_OK
                : rps_fail(error, RPS_E_IO, "bare messages: %s",
                          strerror(errno));
}

static void
close_fd(int fd)
{
    if (fd >= 0) {
        (void)close(fd);
    }
}

rps_status
bench_pipe_end(struct bench_pipe *pipe, bool child, struct bench_end *end,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    *end = (struct bench_end){.ops = &socket_ops,
            .fd = pipe->fds[child],
            .own_bell = pipe->bells[child],
            .bell = pipe->bells[!child]};
    close_fd(pipe->fds[!child]);
    if (pipe->transport == RPS_TRANSPORT_SHM) {
        end->ops = &ring_ops;
        rps_spin_init(&end->spin);
        status = rps_ring_map(&end->ring, pipe->memory, RING_BYTES,
                child ? RPS_RING_SERVER : RPS_RING_CLIENT, error);
        close_fd(pipe->memory);
    }
    return status;
}

void
bench_end_finish(struct bench_end *end)
{
    if (end->ops != NULL) {
        close_fd(end->fd);
        close_fd(end->own_bell);
        close_fd(end->bell);
        rps_ring_unmap(&end->ring);
    }
}
