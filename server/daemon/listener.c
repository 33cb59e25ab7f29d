/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/listener.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "server/daemon/peer_log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKLOG         1024
#define TURN_ACCEPT_MAX 64  /* accepts a turn, so that signals get theirs */
#define PAUSE_MS        100 /* after "too many open files" */

#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES     4
#define USER_TIMEOUT_MS      120000 /* what is sent, and not acknowledged */

struct rps_listener {
    struct rps_sockets sockets;
    struct event *events[RPS_LISTEN_MAX + 1]; /* the last: the Unix socket's */
    struct rps_unix_listener near;            /* fd -1: none */
    struct event *resume;                     /* ends a pause */
    struct rps_loop **loops;
    uint32_t loop_count;
    uint32_t next; /* whose turn it is */
};

static void
close_all(struct rps_listener *listener)
{
    for (uint32_t i = 0; i <= RPS_LISTEN_MAX; i++) {
        if (listener->events[i] != NULL) {
            event_free(listener->events[i]);
        }
        listener->events[i] = NULL;
    }
    rps_sockets_close(&listener->sockets);
    rps_unix_listener_close(&listener->near);
}

/* Without it who is near comes by TCP: that is no reason not to serve, but
 * for those who asked for it. */
static rps_status
open_near(struct rps_listener *listener, const struct rps_unix_plan *plan,
        struct rps_error *error)
{
    const bool asked =
            plan != NULL && plan->unix_dir != NULL && plan->unix_dir[0] != '\0';
    rps_status status;

    if (plan == NULL || rps_unix_is_off(plan->unix_dir)) {
        return RPS_OK;
    }
    status = rps_unix_listen(
            &listener->near, plan, listener->sockets.port, BACKLOG, error);
    if (status == RPS_OK || asked) {
        return status;
    }
    rps_log(RPS_LOG_WARN, "unix_off",
            "%s; going on without a Unix socket: who is on this host comes by "
            "TCP, too (give --unix-dir FOLDER, or --unix-dir off)",
            error->text);
    return RPS_OK;
}

rps_status
rps_listener_open(struct rps_listener **listener_out,
        const struct rps_listen_plan *plan,
        const struct rps_unix_plan *unix_plan, struct rps_error *error)
{
    struct rps_listener *listener = calloc(1, sizeof(*listener));
    rps_status status = RPS_E_RETRY_LATER;
    int tries = plan->port == 0 ? RPS_ANY_PORT_TRIES : 1;

    *listener_out = NULL;
    if (listener == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the listener");
    }
    listener->near.fd = -1;
    while (status == RPS_E_RETRY_LATER && tries-- > 0) {
        status = rps_sockets_bind(&listener->sockets, plan, error);
        if (status == RPS_OK) {
            status = open_near(listener, unix_plan, error);
        }
        if (status == RPS_OK) {
            status = rps_sockets_listen(&listener->sockets, BACKLOG, error);
        }
        if (status != RPS_OK) {
            close_all(listener);
        }
    }
    if (status != RPS_OK) {
        free(listener);
        return status;
    }
    *listener_out = listener;
    return RPS_OK;
}

uint16_t
rps_listener_port(const struct rps_listener *listener)
{
    return listener->sockets.port;
}

const char *
rps_listener_text(const struct rps_listener *listener)
{
    return listener->sockets.text;
}

const char *
rps_listener_unix_path(const struct rps_listener *listener)
{
    return listener->near.fd >= 0 ? listener->near.address.sun_path : NULL;
}

static void
set_options(int fd)
{
    int one = 1;
    int idle = KEEPALIVE_IDLE_S;
    int interval = KEEPALIVE_INTERVAL_S;
    int probes = KEEPALIVE_PROBES;
    int unanswered_ms = USER_TIMEOUT_MS;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms,
            sizeof(unanswered_ms));
}

/* Out of descriptors: a ready listener would spin, so it rests a while. */
static void
pause_accepting(struct rps_listener *listener, int code)
{
    struct timeval wait = {.tv_usec = PAUSE_MS * 1000};

    rps_peer_log(
            RPS_LOG_WARN, "accept_failed", "cannot accept: %s", strerror(code));
    for (uint32_t i = 0; i <= RPS_LISTEN_MAX; i++) {
        if (listener->events[i] != NULL) {
            event_del(listener->events[i]);
        }
    }
    evtimer_add(listener->resume, &wait);
}

static void
on_resume(evutil_socket_t fd, short what, void *context)
{
    struct rps_listener *listener = context;

    (void)fd;
    (void)what;
    for (uint32_t i = 0; i <= RPS_LISTEN_MAX; i++) {
        if (listener->events[i] != NULL) {
            event_add(listener->events[i], NULL);
        }
    }
}

/* False: it is not for us, and closed. */
static bool
name_peer(const struct rps_listener *listener, int accepted,
        const struct sockaddr_storage *peer, socklen_t length, bool near,
        char text[RPS_ADDRESS_TEXT_BYTES])
{
    struct rps_unix_peer who;
    struct rps_error error = {.text = ""};

    if (!near) {
        set_options(accepted);
        rps_address_text((const struct sockaddr *)peer, length, text);
        return true;
    }
    if (rps_unix_peer_check(accepted, &who, &error) != RPS_OK) {
        rps_peer_log(RPS_LOG_WARN, "connection_refused", "%s: %s; closed",
                listener->near.address.sun_path, error.text);
        close(accepted);
        return false;
    }
    rps_unix_widen(accepted);
    snprintf(text, RPS_ADDRESS_TEXT_BYTES, "unix:%ld", (long)who.pid);
    return true;
}

static void
on_connection(evutil_socket_t fd, short what, void *context)
{
    struct rps_listener *listener = context;
    const bool near = fd == listener->near.fd;

    (void)what;
    for (int n = 0; n < TURN_ACCEPT_MAX; n++) {
        struct sockaddr_storage peer;
        socklen_t length = sizeof(peer);
        char text[RPS_ADDRESS_TEXT_BYTES];
        int accepted = accept4(fd, (struct sockaddr *)&peer, &length,
                SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (accepted < 0) {
            if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
                    errno == ENOMEM) {
                pause_accepting(listener, errno);
            }
            return; /* nobody there, or gone again before we came */
        }
        if (!name_peer(listener, accepted, &peer, length, near, text)) {
            continue;
        }
        rps_loop_give(listener->loops[listener->next], accepted, text, near);
        listener->next = (listener->next + 1) % listener->loop_count;
    }
}

rps_status
rps_listener_start(struct rps_listener *listener, struct event_base *base,
        struct rps_loop **loops, uint32_t loop_count, struct rps_error *error)
{
    listener->loops = loops;
    listener->loop_count = loop_count;
    listener->resume = evtimer_new(base, on_resume, listener);
    if (listener->resume == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the listener");
    }
    for (uint32_t i = 0; i <= RPS_LISTEN_MAX; i++) {
        int fd = i < listener->sockets.count ? listener->sockets.fds[i] : -1;

        fd = i == RPS_LISTEN_MAX ? listener->near.fd : fd;
        if (fd < 0) {
            continue;
        }
        listener->events[i] = event_new(
                base, fd, EV_READ | EV_PERSIST, on_connection, listener);
        if (listener->events[i] == NULL ||
                event_add(listener->events[i], NULL) != 0) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for the listener");
        }
    }
    return RPS_OK;
}

void
rps_listener_close(struct rps_listener *listener)
{
    if (listener == NULL) {
        return;
    }
    close_all(listener);
    if (listener->resume != NULL) {
        event_free(listener->resume);
    }
    free(listener);
}
