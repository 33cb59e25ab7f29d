/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/listener.h"

#include "base/file.h"
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
#define ANY_PORT_TRIES  16  /* port 0: another family may have that port */

#define KEEPALIVE_IDLE_S     60
#define KEEPALIVE_INTERVAL_S 15
#define KEEPALIVE_PROBES     4
#define USER_TIMEOUT_MS      120000 /* what is sent, and not acknowledged */

struct rps_listener {
    int fds[RPS_LISTEN_MAX];
    struct event *events[RPS_LISTEN_MAX];
    uint32_t count;
    uint16_t port;
    char text[RPS_ADDRESS_TEXT_BYTES];
    struct event *resume; /* ends a pause */
    struct rps_loop **loops;
    uint32_t loop_count;
    uint32_t next; /* whose turn it is */
};

static rps_status
bind_failure(const struct sockaddr_storage *address, socklen_t length, int code,
        struct rps_error *error)
{
    char text[RPS_ADDRESS_TEXT_BYTES];

    rps_address_text((const struct sockaddr *)address, length, text);
    return rps_fail(error, code == EADDRINUSE ? RPS_E_RETRY_LATER : RPS_E_INVAL,
            "cannot listen on %s: %s", text, strerror(code));
}

/* Opens one socket; *fd_out is -1 where an optional family is missing. */
static rps_status
open_one(const struct rps_listen_address *where, uint16_t port, int *fd_out,
        struct rps_error *error)
{
    struct sockaddr_storage storage = where->storage;
    int one = 1;
    int code;
    int fd;

    *fd_out = -1;
    rps_address_set_port(&storage, port);
    fd = socket(
            storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        code = errno;
        return where->optional
                       ? RPS_OK
                       : bind_failure(&storage, where->length, code, error);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (storage.ss_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    }
    if (bind(fd, (const struct sockaddr *)&storage, where->length) == 0 &&
            listen(fd, BACKLOG) == 0) {
        *fd_out = fd;
        return RPS_OK;
    }
    code = errno;
    close(fd);
    if (where->optional && (code == EADDRNOTAVAIL || code == EAFNOSUPPORT)) {
        return RPS_OK;
    }
    return bind_failure(&storage, where->length, code, error);
}

static void
close_all(struct rps_listener *listener)
{
    for (uint32_t i = 0; i < listener->count; i++) {
        if (listener->events[i] != NULL) {
            event_free(listener->events[i]);
        }
        close(listener->fds[i]);
        listener->events[i] = NULL;
    }
    listener->count = 0;
}

/* The first socket settles the port, the others follow it. */
static rps_status
open_all(struct rps_listener *listener, const struct rps_listen_plan *plan,
        struct rps_error *error)
{
    listener->port = plan->port;
    for (uint32_t i = 0; i < plan->count; i++) {
        struct sockaddr_storage bound;
        socklen_t length = sizeof(bound);
        int fd = -1;
        rps_status status =
                open_one(&plan->addresses[i], listener->port, &fd, error);

        if (status != RPS_OK) {
            close_all(listener);
            return status;
        }
        if (fd < 0) {
            continue;
        }
        listener->fds[listener->count] = fd;
        listener->events[listener->count++] = NULL;
        if (listener->count == 1 &&
                getsockname(fd, (struct sockaddr *)&bound, &length) == 0) {
            listener->port = rps_address_port(&bound);
            rps_address_text((struct sockaddr *)&bound, length, listener->text);
        }
    }
    if (listener->count == 0) {
        return rps_fail(error, RPS_E_INVAL, "no address to listen on");
    }
    return RPS_OK;
}

rps_status
rps_listener_open(struct rps_listener **listener_out,
        const struct rps_listen_plan *plan, struct rps_error *error)
{
    struct rps_listener *listener = calloc(1, sizeof(*listener));
    rps_status status = RPS_E_RETRY_LATER;
    int tries = plan->port == 0 ? ANY_PORT_TRIES : 1;

    *listener_out = NULL;
    if (listener == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the listener");
    }
    while (status == RPS_E_RETRY_LATER && tries-- > 0) {
        status = open_all(listener, plan, error);
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
    return listener->port;
}

const char *
rps_listener_text(const struct rps_listener *listener)
{
    return listener->text;
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
    for (uint32_t i = 0; i < listener->count; i++) {
        event_del(listener->events[i]);
    }
    evtimer_add(listener->resume, &wait);
}

static void
on_resume(evutil_socket_t fd, short what, void *context)
{
    struct rps_listener *listener = context;

    (void)fd;
    (void)what;
    for (uint32_t i = 0; i < listener->count; i++) {
        event_add(listener->events[i], NULL);
    }
}

static void
on_connection(evutil_socket_t fd, short what, void *context)
{
    struct rps_listener *listener = context;

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
        set_options(accepted);
        rps_address_text((struct sockaddr *)&peer, length, text);
        rps_loop_give(listener->loops[listener->next], accepted, text);
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
    for (uint32_t i = 0; i < listener->count; i++) {
        listener->events[i] = event_new(base, listener->fds[i],
                EV_READ | EV_PERSIST, on_connection, listener);
        if (listener->events[i] == NULL ||
                event_add(listener->events[i], NULL) != 0) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for the listener");
        }
    }
    return RPS_OK;
}

uint32_t
rps_listener_release(struct rps_listener *listener, int fds[RPS_LISTEN_MAX])
{
    const uint32_t count = listener->count;

    memcpy(fds, listener->fds, count * sizeof(fds[0]));
    free(listener);
    return count;
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

rps_status
rps_port_file_write(const char *path, uint16_t port, struct rps_error *error)
{
    char *temporary = rps_format("%s.%ld.tmp", path, (long)getpid());
    char text[16];
    int length = snprintf(text, sizeof(text), "%u\n", port);
    rps_status status;

    if (temporary == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    status = rps_file_write(temporary, text, (size_t)length, true, error);
    if (status == RPS_OK && rename(temporary, path) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno));
        unlink(temporary);
    }
    free(temporary);
    return status;
}
