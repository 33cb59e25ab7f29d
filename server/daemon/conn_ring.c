/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/conn_ring.h"

#include "base/clock.h"
#include "server/daemon/peer_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif

/* Of a memory limit a ring takes at most so much; more rings, smaller ones. */
#define LIMIT_SHARE  64u
#define SPIN_ROUNDS  32u /* a look: about a microsecond */
#define ATTACH_WORDS 64u

/* --- making it ----------------------------------------------------------- */

/* Memory that nobody can make shorter under us, longer, or a program. */
static int
make_memory(uint64_t bytes)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd = memfd_create("recps-ring", flags | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) { /* an older kernel */
        fd = memfd_create("recps-ring", flags);
    }
    if (fd < 0) {
        return -1;
    }
    if (ftruncate(fd, (off_t)bytes) != 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) !=
                    0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* --- reading ------------------------------------------------------------- */

/* The client sleeps: one byte wakes it. Not an eventfd: whoever has one may
 * fill its counter and take O_NONBLOCK from it, for both ends, and our write(2)
 * would stand still. The writing end of a pipe is ours alone; a full pipe is
 * readable. */
static void
ring_bell(const struct rps_conn *conn)
{
    const char byte = 0;

    (void)!write(conn->ring->client_fd, &byte, 1);
}

static void
wake(struct rps_conn *conn, uint32_t reason)
{
    if (rps_ring_wakes(&conn->ring->ring, reason)) {
        ring_bell(conn);
    }
}

size_t
rps_conn_ring_backlog(const struct rps_conn *conn)
{
    struct rps_error ignored;
    size_t n = 0;

    (void)rps_ring_has(&conn->ring->ring, &n, &ignored);
    return n;
}

static bool
has_data(const struct rps_conn *conn)
{
    struct rps_error ignored;
    size_t n = 0;

    /* rubbish is told where it is read */
    return rps_ring_has(&conn->ring->ring, &n, &ignored) != RPS_OK || n > 0;
}

ssize_t
rps_conn_ring_receive(struct rps_conn *conn, void *bytes, size_t n)
{
    struct rps_conn_ring *ring = conn->ring;
    struct rps_error error;
    size_t there = 0;

    if (rps_ring_has(&ring->ring, &there, &error) != RPS_OK) {
        rps_conn_lose(conn, "bad_frame", error.text);
        errno = EAGAIN;
        return -1;
    }
    if (there == 0) {
        errno = EAGAIN;
        return ring->gone ? 0 : -1;
    }
    n = n < there ? n : there;
    rps_ring_take(&ring->ring, bytes, n);
    /* n is the frame's rest, or all that is there: a multiple of 64 */
    rps_ring_release(&ring->ring);
    wake(conn, RPS_RING_FOR_ROOM);
    return (ssize_t)n;
}

/* --- writing ------------------------------------------------------------- */

static size_t
room_of(struct rps_conn *conn)
{
    struct rps_error error;
    size_t room = 0;

    if (rps_ring_room(&conn->ring->ring, &room, &error) != RPS_OK) {
        rps_conn_lose(conn, "bad_frame", error.text);
    }
    return room;
}

void
rps_conn_ring_flush(struct rps_conn *conn)
{
    bool any = false;

    while (!conn->dead && conn->out_first != NULL) {
        const struct rps_out *out = conn->out_first;
        size_t n = room_of(conn);

        if (n == 0) {
            break;
        }
        if (n > out->length - conn->out_offset) {
            n = out->length - conn->out_offset;
        }
        memcpy(rps_ring_back(&conn->ring->ring), out->frame + conn->out_offset,
                n);
        rps_ring_publish(&conn->ring->ring, n);
        rps_conn_sent(conn, n);
        any = true;
    }
    if (any) {
        wake(conn, RPS_RING_FOR_DATA);
    }
}

/* room() of rps_frame_memory: only for the request that is being handled, and
 * not past replies that wait for room. */
static uint8_t *
lend(struct rps_frame_memory *memory, size_t bytes)
{
    struct rps_conn_ring *ring =
            (struct rps_conn_ring *)(void *)((char *)memory -
                                             offsetof(struct rps_conn_ring,
                                                     memory));
    struct rps_conn *conn = ring->conn;

    if (!conn->handling || conn->out_first != NULL || conn->dead ||
            room_of(conn) < bytes) {
        return NULL;
    }
    return rps_ring_back(&ring->ring);
}

bool
rps_conn_ring_lent(const struct rps_conn *conn, const uint8_t *frame)
{
    return conn->ring != NULL && frame == rps_ring_back(&conn->ring->ring);
}

void
rps_conn_ring_publish(struct rps_conn *conn, size_t frame_bytes)
{
    rps_ring_publish(&conn->ring->ring, frame_bytes);
    rps_stat_add(&rps_loop_stats(conn->loop)->sent_bytes, frame_bytes);
    wake(conn, RPS_RING_FOR_DATA);
}

/* --- events -------------------------------------------------------------- */

static bool
look(void *context)
{
    const struct rps_conn *conn = context;

    return rps_ring_spin(&conn->ring->ring, SPIN_ROUNDS);
}

/* While one client alone talks through a ring here, its next request is
 * waited for a little. */
static bool
more_soon(struct rps_conn *conn)
{
    return *rps_loop_rings(conn->loop) == 1 && !conn->dead && !conn->ended &&
           conn->pending == 0 && conn->out_first == NULL &&
           rps_conn_may_read(conn) && !rps_loop_draining(conn->loop) &&
           rps_spin(&conn->ring->spin, look, conn);
}

static void
on_bell(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;
    const uint64_t start_ns = rps_clock_ns();
    uint32_t turns = 0;

    (void)fd;
    (void)what;
    rps_ring_sleep(&conn->ring->ring, 0);
    if (conn->state == RPS_CONN_LINGERING) {
        return;
    }
    do {
        rps_conn_take_turn(conn);
    } while (rps_conn_turn_goes_on(++turns, start_ns) && more_soon(conn));
    rps_conn_settle(conn);
}

void
rps_conn_ring_on_socket(struct rps_conn *conn)
{
    char byte;
    ssize_t n = recv(conn->fd, &byte, 1, MSG_DONTWAIT);

    if (n > 0) {
        rps_conn_lose(conn, "bad_frame",
                "bytes on the socket of a connection that has a ring");
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        conn->ring->gone = true;
        rps_conn_take_turn(conn);
    } else { /* conn_memory.c lets it go on */
        rps_conn_take_turn(conn);
    }
}

void
rps_conn_ring_settle(struct rps_conn *conn)
{
    struct rps_ring *ring = &conn->ring->ring;
    const bool reads = rps_conn_may_read(conn);
    const bool writes = conn->out_first != NULL;

    if (conn->state == RPS_CONN_LINGERING) {
        return;
    }
    if (!(reads && has_data(conn))) {
        rps_ring_sleep(ring, (reads ? RPS_RING_FOR_DATA : 0) |
                                     (writes ? RPS_RING_FOR_ROOM : 0));
        if (!(reads && has_data(conn)) && !(writes && room_of(conn) > 0)) {
            return;
        }
        rps_ring_sleep(ring, 0);
    }
    event_active(&conn->ring->bell, EV_READ, 1);
}

void
rps_conn_ring_say_end(struct rps_conn *conn)
{
    struct rps_conn_ring *ring = conn->ring;

    if (ring->client_fd >= 0) {
        close(ring->client_fd);
    }
    ring->client_fd = -1;
}

void
rps_conn_ring_finish(struct rps_conn *conn)
{
    struct rps_conn_ring *ring = conn->ring;

    if (ring == NULL) {
        return;
    }
    event_del(&ring->bell);
    close(ring->bell_fd);
    rps_conn_ring_say_end(conn);
    rps_ring_unmap(&ring->ring);
    rps_service_give_memory(rps_loop_shared(conn->loop)->service, ring->held);
    --*rps_loop_rings(conn->loop);
    rps_stat_add(&rps_loop_stats(conn->loop)->ring_bytes, 0 - ring->held);
    conn->ring = NULL;
    free(ring);
}

/* --- attaching ----------------------------------------------------------- */

/* The option's size, or less where a memory limit is small; 0: not even the
 * least fits. */
static uint64_t
ring_size(const struct rps_conn *conn)
{
    const struct rps_loops_shared *shared = rps_loop_shared(conn->loop);
    uint64_t size = rps_ring_round(shared->ring_bytes);

    while (shared->memory_limit > 0 && size >= RPS_RING_BYTES_MIN &&
            rps_ring_file_bytes(size) > shared->memory_limit / LIMIT_SHARE) {
        size /= 2;
    }
    return size >= RPS_RING_BYTES_MIN ? size : 0;
}

/* The answer's first byte brings the descriptors. An empty socket takes all of
 * it at once, or it is not a socket that we can go on with. */
static bool
send_with(struct rps_conn *conn, const int fds[RPS_RING_FDS])
{
    const struct rps_out *out = conn->out_first;
    struct iovec vector = {.iov_base = out->frame, .iov_len = out->length};
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(RPS_RING_FDS * sizeof(int))];
    } control = {.bytes = ""};
    struct msghdr message = {.msg_iov = &vector,
            .msg_iovlen = 1,
            .msg_control = control.bytes,
            .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    const size_t length = out->length;

    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(RPS_RING_FDS * sizeof(int));
    memcpy(CMSG_DATA(rights), fds, RPS_RING_FDS * sizeof(int));
    if (sendmsg(conn->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)length) {
        conn->dead = true;
        return false;
    }
    rps_conn_sent(conn, length);
    return true;
}

/* Memory, mapping and bells; the descriptors in fds are for the client, who
 * gets copies: those of 0 and 2 are only for him. */
static rps_status
build(struct rps_conn *conn, struct rps_conn_ring *ring, uint64_t size,
        int fds[RPS_RING_FDS], struct rps_error *error)
{
    int ends[2] = {-1, -1};
    rps_status status;

    fds[0] = make_memory(rps_ring_file_bytes(size));
    ring->bell_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    fds[1] = ring->bell_fd;
    if (fds[0] < 0 || ring->bell_fd < 0 ||
            pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) {
        return rps_fail(error, RPS_E_LIMIT, "SHM_ATTACH: %s", strerror(errno));
    }
    fds[2] = ends[0];
    ring->client_fd = ends[1];
    status = rps_ring_map(&ring->ring, fds[0], size, RPS_RING_SERVER, error);
    if (status != RPS_OK) {
        return status;
    }
    event_assign(&ring->bell, rps_loop_base(conn->loop), ring->bell_fd,
            EV_READ | EV_PERSIST | EV_ET, on_bell, conn);
    return event_add(&ring->bell, NULL) == 0
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "SHM_ATTACH: no memory");
}

static rps_status
may_attach(const struct rps_conn *conn, struct rps_error *error)
{
    if (!conn->near) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "SHM_ATTACH: shared memory is for those who came by the Unix "
                "socket");
    }
    if (conn->ring != NULL) {
        return rps_fail(
                error, RPS_E_INVAL, "SHM_ATTACH: this connection has a ring");
    }
    if (conn->pending > 1 || conn->out_first != NULL) {
        return rps_fail(error, RPS_E_RETRY_LATER,
                "SHM_ATTACH: other requests are in flight: wait for them");
    }
    return RPS_OK;
}

static void
close_one(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* Answer and switch over. */
static rps_status
attach(struct rps_conn *conn, struct rps_conn_ring *ring, uint64_t size,
        struct rps_error *error)
{
    int fds[RPS_RING_FDS] = {-1, -1, -1};
    char words[ATTACH_WORDS];
    uint8_t *frame = NULL;
    size_t length = 0;
    rps_status status = build(conn, ring, size, fds, error);

    if (status == RPS_OK) {
        snprintf(words, sizeof(words), "{\"ring_bytes\":%llu}",
                (unsigned long long)size);
        status = rps_reply_text(
                &conn->header, RPS_OK, words, 0, 0, &frame, &length);
    }
    if (status == RPS_OK) {
        rps_conn_queue(conn, frame, length);
        if (conn->out_first != NULL && send_with(conn, fds)) {
            conn->ring = ring;
            ++*rps_loop_rings(conn->loop);
            rps_stat_add(&rps_loop_stats(conn->loop)->ring_bytes, ring->held);
        }
    }
    close_one(fds[0]);
    close_one(fds[2]);
    return status;
}

static void
drop(struct rps_conn_ring *ring)
{
    if (event_initialized(&ring->bell)) {
        event_del(&ring->bell);
    }
    close_one(ring->bell_fd);
    close_one(ring->client_fd);
    rps_ring_unmap(&ring->ring);
    free(ring);
}

static rps_status
reserve(struct rps_conn *conn, struct rps_conn_ring **ring_out,
        uint64_t *size_out, struct rps_error *error)
{
    struct rps_service *service = rps_loop_shared(conn->loop)->service;
    struct rps_conn_ring *ring;

    *size_out = ring_size(conn);
    if (*size_out == 0 ||
            !rps_service_take_memory(service, rps_ring_file_bytes(*size_out))) {
        return rps_fail(error, RPS_E_LIMIT,
                "SHM_ATTACH: a ring does not fit the memory limit of this "
                "server");
    }
    ring = calloc(1, sizeof(*ring));
    if (ring == NULL) {
        rps_service_give_memory(service, rps_ring_file_bytes(*size_out));
        return rps_fail(error, RPS_E_NOMEM, "SHM_ATTACH: no memory");
    }
    ring->conn = conn;
    ring->memory.room = lend;
    ring->bell_fd = -1;
    ring->client_fd = -1;
    ring->held = rps_ring_file_bytes(*size_out);
    rps_spin_init(&ring->spin);
    *ring_out = ring;
    return RPS_OK;
}

void
rps_conn_attach(struct rps_conn *conn)
{
    struct rps_conn_ring *ring = NULL;
    struct rps_error error = {.text = ""};
    uint64_t size = 0;
    rps_status status = may_attach(conn, &error);

    if (status == RPS_OK) {
        status = reserve(conn, &ring, &size, &error);
    }
    if (status == RPS_OK) {
        status = attach(conn, ring, size, &error);
    }
    if (conn->ring == ring && ring != NULL) {
        rps_session_set_memory(conn->session, &ring->memory);
        rps_conn_set_transport(conn, RPS_TRANSPORT_SHM);
        return;
    }
    if (ring != NULL) {
        rps_service_give_memory(
                rps_loop_shared(conn->loop)->service, ring->held);
        drop(ring);
    }
    if (status != RPS_OK) {
        rps_service_refuse(
                &conn->header, status, error.text, rps_conn_on_reply, conn);
    }
}
