/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/conn.h"

#include "base/clock.h"
#include "server/daemon/access.h"
#include "server/daemon/conn_impl.h"
#include "server/daemon/conn_ring.h"
#include "server/daemon/peer_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_READ 4096u

/* A peer's fault: it loses the connection, and the log says why, once. */
void
rps_conn_lose(struct rps_conn *conn, const char *event, const char *why)
{
    if (!conn->dead) {
        rps_peer_log_of(
                conn->peer, RPS_LOG_WARN, event, "%s; connection closed", why);
        rps_conn_stats_lost(conn, event);
    }
    conn->dead = true;
}

void
rps_conn_refuse(struct rps_conn *conn, const char *event, const char *why)
{
    rps_conn_lose(conn, event, why);
    conn->dead = false;
    conn->close_when_sent = true;
}

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

/* Its client has another connection by now. Under the service's lock, so
 * that the connection is there. */
static void
on_superseded(void *context)
{
    struct rps_conn *conn = context;

    atomic_store(&conn->superseded, true);
    rps_loop_look(conn->loop);
}

/* Our half is shut: nothing more comes. */
static void
say_end(struct rps_conn *conn)
{
    if (conn->tls != NULL) {
        rps_tls_say_end(conn->tls);
    }
    if (conn->ring != NULL) {
        rps_conn_ring_say_end(conn);
    }
    shutdown(conn->fd, SHUT_WR);
}

static void
add_greeter(struct rps_conn *conn)
{
    struct rps_greeters *greeters = rps_loop_greeters(conn->loop);

    conn->greeter = true;
    conn->older = greeters->newest;
    if (conn->older != NULL) {
        conn->older->newer = conn;
    } else {
        greeters->oldest = conn;
    }
    greeters->newest = conn;
    greeters->count++;
}

void
rps_conn_greeted(struct rps_conn *conn)
{
    struct rps_greeters *greeters = rps_loop_greeters(conn->loop);

    if (!conn->greeter) {
        return;
    }
    conn->greeter = false;
    if (conn->older != NULL) {
        conn->older->newer = conn->newer;
    } else {
        greeters->oldest = conn->newer;
    }
    if (conn->newer != NULL) {
        conn->newer->older = conn->older;
    } else {
        greeters->newest = conn->older;
    }
    greeters->count--;
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
    rps_conn_greeted(conn);
    rps_conn_finish_memory(conn);
    event_del(&conn->readable);
    event_del(&conn->writable);
    event_del(&conn->timer);
    /* No reply comes after this; what came before lies in the mailbox. */
    rps_session_close(conn->session);
    rps_loop_forget(conn->loop, conn);
    rps_conn_ring_finish(conn);
    say_end(conn);
    rps_tls_close(conn->tls);
    close(conn->fd);
    atomic_fetch_sub(&rps_loop_shared(conn->loop)->connections, 1);
    rps_conn_stats_finish(conn);
    rps_conn_free_out(conn);
    free(conn->in);
    free(conn);
}

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

/* A handshake's own bytes did not fit the socket. */
static bool
read_waits_to_write(const struct rps_conn *conn)
{
    return conn->tls != NULL && rps_conn_may_read(conn) &&
           rps_tls_read_waits_to_write(conn->tls);
}

/* What TLS holds back is invisible to the socket's events. */
static void
settle_tls(struct rps_conn *conn)
{
    if (rps_tls_write_waits_to_read(conn->tls)) {
        arm(&conn->readable, true);
        arm(&conn->writable, false);
    }
    if (read_waits_to_write(conn)) {
        arm(&conn->writable, true);
    }
    if (rps_conn_may_read(conn) && rps_tls_has_pending(conn->tls)) {
        event_active(&conn->readable, EV_READ, 1);
    }
}

/* Its socket says nothing but its end. */
static void
settle_ring(struct rps_conn *conn)
{
    const bool lingers = conn->state == RPS_CONN_LINGERING;

    arm(&conn->readable, lingers || !conn->ring->gone);
    arm(&conn->writable, false);
    rps_conn_ring_settle(conn);
}

void
rps_conn_settle(struct rps_conn *conn)
{
    if (atomic_load(&conn->broken)) {
        rps_conn_lose(conn, "out_of_memory", "no memory for a reply");
    }
    if (conn->dead || atomic_load(&conn->superseded)) {
        rps_conn_destroy(conn);
        return;
    }
    if (conn->close_when_sent && conn->out_first == NULL &&
            conn->state != RPS_CONN_LINGERING) {
        /* A close with unread input would reset, and eat our words. */
        conn->state = RPS_CONN_LINGERING;
        say_end(conn);
    }
    if (conn->close_when_sent && !evtimer_pending(&conn->timer, NULL)) {
        set_timer(conn, RPS_LINGER_MS);
    }
    rps_conn_settle_memory(conn);
    if (!rps_conn_may_read(conn) && conn->state == RPS_CONN_SERVING) {
        rps_conn_note_backlog(conn);
    }
    if (conn->ring != NULL) {
        settle_ring(conn);
        return;
    }
    arm(&conn->readable,
            rps_conn_may_read(conn) || conn->state == RPS_CONN_LINGERING);
    arm(&conn->writable, conn->out_first != NULL);
    if (conn->tls != NULL && conn->state != RPS_CONN_LINGERING) {
        settle_tls(conn);
    }
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

bool
rps_conn_turn_goes_on(uint32_t done, uint64_t start_ns)
{
    return done == 0 || (done < RPS_CONN_TURN_FRAMES &&
                                rps_clock_ns() - start_ns < RPS_CONN_TURN_NS);
}

void
rps_conn_take_turn(struct rps_conn *conn)
{
    const uint64_t start_ns = rps_clock_ns();

    for (uint32_t n = 0;
            rps_conn_turn_goes_on(n, start_ns) && rps_conn_may_read(conn);
            n++) {
        if (!rps_conn_may_begin(conn)) {
            break;
        }
        if (!rps_conn_fill(conn)) {
            if (conn->passes && conn->in_length == 0) {
                rps_conn_end_frame(conn);
            }
            break;
        }
        rps_conn_serve(conn);
        if (conn->out_bytes >= RPS_CONN_FLUSH_BYTES) {
            rps_conn_flush(conn); /* while it is in a cache */
        }
    }
    rps_conn_flush(conn);
    conn->dead |= conn->ended;
}

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;

    (void)fd;
    (void)what;
    if (conn->state == RPS_CONN_LINGERING) {
        discard(conn);
    } else if (conn->ring != NULL) {
        rps_conn_ring_on_socket(conn);
    } else {
        rps_conn_take_turn(conn);
    }
    rps_conn_settle(conn);
}

static void
on_writable(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;

    if (read_waits_to_write(conn)) {
        on_readable(fd, what, context);
        return;
    }
    rps_conn_flush(conn);
    rps_conn_settle(conn);
}

static void
on_timer(evutil_socket_t fd, short what, void *context)
{
    struct rps_conn *conn = context;

    (void)fd;
    (void)what;
    if (conn->state == RPS_CONN_GREETING && !conn->close_when_sent) {
        rps_conn_lose(conn, "no_hello", "no HELLO within 5 s");
    }
    conn->dead = true;
    rps_conn_settle(conn);
}

void
rps_conn_deliver(struct rps_conn *conn, uint8_t *frame, size_t frame_bytes)
{
    rps_conn_queue(conn, frame, frame_bytes);
    rps_conn_flush(conn);
    rps_conn_settle(conn);
}

void
rps_conn_quiet(struct rps_conn *conn)
{
    rps_conn_settle(conn);
}

void
rps_conn_check_broken(struct rps_conn *conn)
{
    if (atomic_load(&conn->broken) || atomic_load(&conn->superseded)) {
        rps_conn_settle(conn);
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

/* The oldest goes, not the newest: who is honest says HELLO at once, and one
 * who holds many connections open must open them anew all the time. What the
 * oldest has sent is looked at first: when a whole job connects at once, its
 * HELLOs wait here behind one another. */
static void
limit_greeters(struct rps_loop *loop)
{
    struct rps_greeters *greeters = rps_loop_greeters(loop);

    while (greeters->count > rps_loop_shared(loop)->greeters_max) {
        struct rps_conn *oldest = greeters->oldest;

        rps_conn_take_turn(oldest);
        if (!oldest->greeter) {
            rps_conn_settle(oldest);
            continue;
        }
        rps_conn_lose(oldest, "handshakes_max",
                "too many connections that have not said HELLO, and this was "
                "the oldest");
        rps_conn_destroy(oldest);
    }
}

bool
rps_conn_open(struct rps_loop *loop, int fd, const char *peer, bool near)
{
    struct rps_loops_shared *shared = rps_loop_shared(loop);
    struct event_base *base = rps_loop_base(loop);
    struct rps_conn *conn = calloc(1, sizeof(*conn));
    bool good = conn != NULL &&
                (near || rps_access_open_tls(shared->access, fd, &conn->tls));

    if (good) {
        conn->session = rps_session_open(shared->service, peer);
        good = conn->session != NULL;
    }
    if (!good) {
        rps_tls_close(conn != NULL ? conn->tls : NULL);
        free(conn);
        close(fd);
        atomic_fetch_sub(&shared->connections, 1);
        return false;
    }
    conn->loop = loop;
    conn->fd = fd;
    conn->near = near;
    atomic_init(&conn->broken, false);
    atomic_init(&conn->superseded, false);
    rps_conn_stream_init(conn);
    rps_session_on_superseded(conn->session, on_superseded, conn);
    strncpy(conn->peer, peer, sizeof(conn->peer) - 1);
    conn->surplus = atomic_load(&shared->connections) > shared->connections_max;
    event_assign(
            &conn->readable, base, fd, EV_READ | EV_PERSIST, on_readable, conn);
    event_assign(&conn->writable, base, fd, EV_WRITE | EV_PERSIST, on_writable,
            conn);
    evtimer_assign(&conn->timer, base, on_timer, conn);
    rps_stat_add(&rps_loop_stats(loop)->accepted, 1);
    rps_stat_add(
            &rps_loop_stats(loop)->refused[RPS_REFUSED_LIMIT], conn->surplus);
    rps_conn_set_transport(conn, near ? RPS_TRANSPORT_UNIX : RPS_TRANSPORT_TCP);
    link_conn(conn);
    add_greeter(conn);
    limit_greeters(loop);
    set_timer(conn, RPS_HELLO_WAIT_MS);
    rps_conn_settle(conn);
    return true;
}
