/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/loop.h"

#include "base/clock.h"
#include "server/daemon/conn.h"
#include "server/daemon/peer_log.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define PEER_BYTES     72u
#define DRAIN_POLL_MS  20
#define DRAIN_FLUSH_MS 2000u /* for peers that do not read their replies */

enum mail_kind {
    MAIL_SOCKET,
    MAIL_REPLY,
    MAIL_DRAIN,
    MAIL_STOP
};

struct mail {
    struct mail *next;
    enum mail_kind kind;
    int fd;                /* SOCKET */
    bool near;             /* SOCKET: a Unix one */
    char peer[PEER_BYTES]; /* SOCKET */
    struct rps_conn *conn; /* REPLY */
    uint8_t *frame;        /* REPLY, owned */
    size_t frame_bytes;
};

struct rps_loop {
    struct rps_loops_shared *shared;
    struct event_base *base; /* loop thread, once it runs */
    struct event *wake;
    struct event *drain_poll;
    struct event *tick;
    struct rps_loop_stats *stats;
    pthread_t thread;
    bool started;
    int wake_fd;

    atomic_bool some_broken; /* a connection is broken, or superseded */
    pthread_mutex_t lock;
    struct mail *first; /* lock */
    struct mail *last;  /* lock */

    /* loop thread only */
    struct rps_conn *conns;
    uint32_t rings;
    uint8_t *part; /* made when it is first asked for */
    struct rps_greeters greeters;
    struct rps_loop_memory memory;
    struct mail drain_mail; /* so that neither needs memory when it is due */
    struct mail stop_mail;
    bool draining;
    bool drained;
    uint64_t quiet_since_ms; /* 0: something is in hand */
};

static _Thread_local const struct rps_loop *current_loop;

struct rps_loop_stats *
rps_loop_stats(const struct rps_loop *loop)
{
    return loop->stats;
}

bool
rps_loop_is_own(const struct rps_loop *loop)
{
    return current_loop == loop;
}

struct event_base *
rps_loop_base(struct rps_loop *loop)
{
    return loop->base;
}

struct rps_loops_shared *
rps_loop_shared(struct rps_loop *loop)
{
    return loop->shared;
}

bool
rps_loop_draining(const struct rps_loop *loop)
{
    return loop->draining;
}

struct rps_conn **
rps_loop_conns(struct rps_loop *loop)
{
    return &loop->conns;
}

uint8_t *
rps_loop_part(struct rps_loop *loop)
{
    if (loop->part == NULL) {
        loop->part = aligned_alloc(RPS_MESSAGE_ALIGN,
                2 * RPS_FRAME_PART_BYTES + RPS_MESSAGE_ALIGN);
    }
    return loop->part;
}

uint32_t *
rps_loop_rings(struct rps_loop *loop)
{
    return &loop->rings;
}

struct rps_loop_memory *
rps_loop_memory(struct rps_loop *loop)
{
    return &loop->memory;
}

struct rps_greeters *
rps_loop_greeters(struct rps_loop *loop)
{
    return &loop->greeters;
}

/* An eventfd that is full is readable: a lost write loses nothing. */
static void
ring(int fd)
{
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof(one));

    (void)n;
}

static void
post(struct rps_loop *loop, struct mail *mail)
{
    mail->next = NULL;
    pthread_mutex_lock(&loop->lock);
    if (loop->last != NULL) {
        loop->last->next = mail;
    } else {
        loop->first = mail;
    }
    loop->last = mail;
    pthread_mutex_unlock(&loop->lock);
    ring(loop->wake_fd);
}

void
rps_loop_give(struct rps_loop *loop, int fd, const char *peer, bool near)
{
    struct rps_loops_shared *shared = loop->shared;
    struct mail *mail = NULL;

    if (atomic_fetch_add(&shared->connections, 1) <
            shared->connections_max + RPS_CONN_SURPLUS_MAX) {
        mail = calloc(1, sizeof(*mail));
    }
    if (mail == NULL) {
        atomic_fetch_sub(&shared->connections, 1);
        /* relaxed: a counter orders nothing */
        atomic_fetch_add_explicit(
                &shared->turned_away, 1, memory_order_relaxed);
        rps_peer_log_of(peer, RPS_LOG_WARN, "connection_dropped",
                "too many connections");
        close(fd);
        return;
    }
    mail->kind = MAIL_SOCKET;
    mail->fd = fd;
    mail->near = near;
    strncpy(mail->peer, peer, sizeof(mail->peer) - 1);
    post(loop, mail);
}

void
rps_loop_look(struct rps_loop *loop)
{
    atomic_store(&loop->some_broken, true);
    ring(loop->wake_fd);
}

void
rps_loop_mail_reply(struct rps_loop *loop, struct rps_conn *conn,
        uint8_t *frame, size_t frame_bytes)
{
    struct mail *mail = frame == NULL ? NULL : calloc(1, sizeof(*mail));

    if (mail == NULL) {
        free(frame);
        rps_conn_break(conn);
        rps_loop_look(loop);
        return;
    }
    mail->kind = MAIL_REPLY;
    mail->conn = conn;
    mail->frame = frame;
    mail->frame_bytes = frame_bytes;
    post(loop, mail);
}

void
rps_loop_forget(struct rps_loop *loop, const struct rps_conn *conn)
{
    struct mail **link = &loop->first;
    struct mail *last = NULL;

    pthread_mutex_lock(&loop->lock);
    while (*link != NULL) {
        struct mail *mail = *link;

        if (mail->kind == MAIL_REPLY && mail->conn == conn) {
            *link = mail->next;
            free(mail->frame);
            free(mail);
            continue;
        }
        last = mail;
        link = &mail->next;
    }
    loop->last = last;
    pthread_mutex_unlock(&loop->lock);
}

void
rps_loop_drain(struct rps_loop *loop)
{
    post(loop, &loop->drain_mail);
}

/* Each visit may destroy the connection it visits, and no other. */
static void
each_conn(struct rps_loop *loop, void (*visit)(struct rps_conn *conn))
{
    struct rps_conn *next;

    for (struct rps_conn *conn = loop->conns; conn != NULL; conn = next) {
        next = rps_conn_next(conn);
        visit(conn);
    }
}

static void
begin_drain(struct rps_loop *loop)
{
    struct timeval wait = {.tv_usec = DRAIN_POLL_MS * 1000};

    loop->draining = true;
    each_conn(loop, rps_conn_quiet);
    event_add(loop->drain_poll, &wait);
}

static void
on_drain_poll(evutil_socket_t fd, short what, void *context)
{
    struct rps_loop *loop = context;
    bool busy = false;
    bool unsent = false;

    (void)fd;
    (void)what;
    for (struct rps_conn *c = loop->conns; c != NULL; c = rps_conn_next(c)) {
        busy |= rps_conn_busy(c);
        unsent |= rps_conn_unsent(c);
    }
    if (busy) {
        loop->quiet_since_ms = 0;
        return;
    }
    if (loop->quiet_since_ms == 0) {
        loop->quiet_since_ms = rps_clock_ms();
    }
    if (!loop->drained && (!unsent || rps_clock_ms() - loop->quiet_since_ms >=
                                              DRAIN_FLUSH_MS)) {
        loop->drained = true;
        ring(loop->shared->drained_fd);
    }
}

/* How late a turn came is how long the loop was in one callback. */
static void
on_tick(evutil_socket_t fd, short what, void *context)
{
    struct rps_loop *loop = context;
    const uint64_t due_ns = rps_stat_get(&loop->stats->tick_ns) +
                            (uint64_t)RPS_LOOP_TICK_MS * 1000000u;
    const uint64_t now_ns = rps_clock_ns();

    (void)fd;
    (void)what;
    rps_stat_set(&loop->stats->lag_ns, now_ns > due_ns ? now_ns - due_ns : 0);
    rps_stat_set(&loop->stats->tick_ns, now_ns);
    if (rps_loop_is_short(loop)) {
        each_conn(loop, rps_conn_look_at_memory);
    }
}

/* Takes one letter; false when the box is empty. */
static bool
take(struct rps_loop *loop, struct mail **mail_out)
{
    struct mail *mail;

    pthread_mutex_lock(&loop->lock);
    mail = loop->first;
    if (mail != NULL) {
        loop->first = mail->next;
        if (loop->first == NULL) {
            loop->last = NULL;
        }
    }
    pthread_mutex_unlock(&loop->lock);
    *mail_out = mail;
    return mail != NULL;
}

static void
welcome(struct rps_loop *loop, const struct mail *mail)
{
    if (loop->draining) {
        close(mail->fd);
        atomic_fetch_sub(&loop->shared->connections, 1);
        return;
    }
    if (!rps_conn_open(loop, mail->fd, mail->peer, mail->near)) {
        rps_peer_log_of(
                mail->peer, RPS_LOG_WARN, "connection_dropped", "no memory");
    }
}

static void
on_wake(evutil_socket_t fd, short what, void *context)
{
    struct rps_loop *loop = context;
    struct mail *mail;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));

    (void)n;
    (void)what;
    while (take(loop, &mail)) {
        switch (mail->kind) {
        case MAIL_SOCKET:
            welcome(loop, mail);
            free(mail);
            break;
        case MAIL_REPLY:
            rps_conn_deliver(mail->conn, mail->frame, mail->frame_bytes);
            free(mail);
            break;
        case MAIL_DRAIN:
            begin_drain(loop);
            break;
        case MAIL_STOP:
            each_conn(loop, rps_conn_destroy);
            event_base_loopbreak(loop->base);
            return;
        }
    }
    if (atomic_exchange(&loop->some_broken, false)) {
        each_conn(loop, rps_conn_check_broken);
    }
}

static void *
run(void *context)
{
    struct rps_loop *loop = context;

    current_loop = loop;
    event_base_dispatch(loop->base);
    return NULL;
}

/* Sockets that came after the end. */
static void
drop_mail(struct rps_loop *loop)
{
    struct mail *mail;

    while (take(loop, &mail)) {
        if (mail->kind == MAIL_SOCKET) {
            close(mail->fd);
            atomic_fetch_sub(&loop->shared->connections, 1);
        }
        if (mail != &loop->drain_mail && mail != &loop->stop_mail) {
            free(mail->frame);
            free(mail);
        }
    }
}

void
rps_loop_stop(struct rps_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    if (loop->started) {
        post(loop, &loop->stop_mail);
        pthread_join(loop->thread, NULL);
    }
    drop_mail(loop);
    if (loop->wake != NULL) {
        event_free(loop->wake);
    }
    if (loop->drain_poll != NULL) {
        event_free(loop->drain_poll);
    }
    if (loop->tick != NULL) {
        event_free(loop->tick);
    }
    if (loop->base != NULL) {
        event_base_free(loop->base);
    }
    if (loop->wake_fd >= 0) {
        close(loop->wake_fd);
    }
    pthread_mutex_destroy(&loop->lock);
    free(loop->stats);
    free(loop->part);
    free(loop);
}

/* What is activated while others are called goes to the end of the same list:
 * without a bound, rings that are never empty would keep the loop from its
 * sockets. */
#define CALLS_BETWEEN_POLLS 16

static struct event_base *
new_base(void)
{
    struct event_config *config = event_config_new();
    struct event_base *base = NULL;

    if (config != NULL && event_config_set_max_dispatch_interval(
                                  config, NULL, CALLS_BETWEEN_POLLS, 0) == 0) {
        base = event_base_new_with_config(config);
    }
    if (config != NULL) {
        event_config_free(config);
    }
    return base;
}

static bool
make_events(struct rps_loop *loop)
{
    const struct timeval tick = {.tv_usec = RPS_LOOP_TICK_MS * 1000};

    loop->stats = rps_loop_stats_create();
    loop->base = new_base();
    loop->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (loop->base == NULL || loop->stats == NULL || loop->wake_fd < 0) {
        return false;
    }
    rps_stat_set(&loop->stats->tick_ns, rps_clock_ns());
    loop->wake = event_new(
            loop->base, loop->wake_fd, EV_READ | EV_PERSIST, on_wake, loop);
    loop->drain_poll =
            event_new(loop->base, -1, EV_PERSIST, on_drain_poll, loop);
    loop->tick = event_new(loop->base, -1, EV_PERSIST, on_tick, loop);
    return loop->wake != NULL && loop->drain_poll != NULL &&
           loop->tick != NULL && event_add(loop->wake, NULL) == 0 &&
           event_add(loop->tick, &tick) == 0;
}

rps_status
rps_loop_start(struct rps_loop **loop_out, uint32_t index,
        struct rps_loops_shared *shared, struct rps_error *error)
{
    struct rps_loop *loop = calloc(1, sizeof(*loop));
    char name[16];
    int rc;

    *loop_out = NULL;
    if (loop == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for an event loop");
    }
    pthread_mutex_init(&loop->lock, NULL);
    loop->shared = shared;
    loop->memory.max = shared->loop_buffers_max;
    loop->wake_fd = -1;
    loop->drain_mail.kind = MAIL_DRAIN;
    loop->stop_mail.kind = MAIL_STOP;
    if (!make_events(loop)) {
        rps_loop_stop(loop);
        return rps_fail(error, RPS_E_IO, "cannot make an event loop: %s",
                strerror(errno));
    }
    rc = pthread_create(&loop->thread, NULL, run, loop);
    if (rc != 0) {
        rps_loop_stop(loop);
        return rps_fail(
                error, RPS_E_IO, "cannot start a thread: %s", strerror(rc));
    }
    loop->started = true;
    snprintf(name, sizeof(name), "recps-loop-%u", index % 1000);
    pthread_setname_np(loop->thread, name);
    *loop_out = loop;
    return RPS_OK;
}
