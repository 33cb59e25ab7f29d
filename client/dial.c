/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One dial: wait (back-off), resolve, connect, HELLO, SHM_ATTACH. Names are
 * resolved anew at each attempt, for a restarted server may have another
 * address. What can heal by waiting is tried again; what cannot (another job,
 * another number of servers) is fatal at once.
 */
#include "client/dial.h"

#include "base/hash.h"
#include "base/text.h"
#include "client/io_thread.h"
#include "client/near.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKOFF_MS_MIN 50u
#define BACKOFF_MS_MAX 2000u
#define CONNECT_MS_MAX 5000u  /* of one attempt: then resolve again */
#define HELLO_MS_MAX   10000u /* from the connection to the answer */
#define RESOLVE_MS_MAX 20000u /* of a name */
#define LAST_MS        1000u  /* that an attempt has at the very least */

void
rps_dial_clear(struct rps_dial *dial)
{
    if (dial->fd >= 0) {
        (void)close(dial->fd);
        dial->fd = -1;
    }
    rps_resolve_drop(dial->resolve);
    dial->resolve = NULL;
    if (dial->addresses != NULL) {
        freeaddrinfo(dial->addresses);
        dial->addresses = NULL;
        dial->next = NULL;
    }
    rps_channel_destroy(dial->channel, false);
    dial->channel = NULL;
    dial->near = false;
    dial->near_tried = false;
    rps_attach_clear(&dial->attach);
    rps_hello_finish(&dial->hello);
}

/* A part of an attempt begins. It may take `most`, but not long beyond what
 * the attempt is for. */
static void
begin_part(struct rps_dial *dial, uint64_t now, uint64_t most)
{
    uint64_t end = now + most;
    uint64_t last =
            now + LAST_MS > dial->until_ms ? now + LAST_MS : dial->until_ms;

    dial->began_ms = now;
    dial->at_ms = end < last ? end : last;
}

/* Try again after half to whole of the back-off, which then doubles. */
void
rps_dial_again(struct rps_dial *dial, uint64_t now)
{
    uint32_t half = dial->backoff_ms / 2;

    rps_dial_clear(dial);
    dial->draw = rps_mix64(dial->draw);
    dial->at_ms = now + half + dial->draw % (half + 1);
    if (dial->at_ms > dial->until_ms && now < dial->until_ms) {
        dial->at_ms = dial->until_ms; /* one last time */
    }
    dial->attempts++;
    dial->backoff_ms *= 2;
    if (dial->backoff_ms > BACKOFF_MS_MAX) {
        dial->backoff_ms = BACKOFF_MS_MAX;
    }
    dial->state = RPS_DIAL_WAIT;
}

/* AUTO: who is not reached by the Unix socket is reached by TCP. */
static bool
may_pass_by(const struct rps_dial *dial)
{
    return dial->near && dial->client->transport == RPS_TRANSPORT_AUTO;
}

static void
pass_by(struct rps_dial *dial, const struct rps_error *why)
{
    free(dial->passed_by);
    dial->passed_by = strdup(why->text);
}

static void connect_next(struct rps_dial *dial, uint64_t now);

/* The channel failed on its way to a greeting. */
static void
dial_failed(struct rps_dial *dial, rps_status status, uint64_t now)
{
    if (may_pass_by(dial)) {
        pass_by(dial, &dial->cause);
        rps_channel_destroy(dial->channel, false);
        dial->channel = NULL;
        rps_hello_finish(&dial->hello);
        rps_attach_clear(&dial->attach);
        dial->near = false;
        connect_next(dial, now);
        return;
    }
    if (status == RPS_E_AUTH) { /* a certificate was refused */
        dial->fatal = status;
        return;
    }
    if (status == RPS_E_CORRUPT) {
        struct rps_error words = dial->cause;

        (void)rps_fail(
                &dial->cause, status, "not a recpsd? %.900s", words.text);
    }
    rps_dial_again(dial, now);
}

/* A connect to an ephemeral port without a listener may meet itself. */
static bool
is_own_end(int fd)
{
    struct sockaddr_storage own = {0};
    struct sockaddr_storage peer = {0};
    socklen_t own_bytes = sizeof(own);
    socklen_t peer_bytes = sizeof(peer);

    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 &&
           own_bytes == peer_bytes && memcmp(&own, &peer, own_bytes) == 0;
}

static void
greet(struct rps_dial *dial, uint64_t now)
{
    int fd = dial->fd;
    rps_status status;

    dial->fd = -1;
    if (is_own_end(fd)) {
        (void)close(fd);
        (void)rps_fail(
                &dial->cause, RPS_E_UNREACHABLE, "%s", strerror(ECONNREFUSED));
        rps_dial_again(dial, now);
        return;
    }
    dial->channel = rps_channel_stream_create(
            dial->ps, dial->address, fd, dial->near ? NULL : dial->client->tls);
    if (dial->channel == NULL) {
        dial->fatal = rps_fail(&dial->cause, RPS_E_NOMEM, "out of memory");
        return;
    }
    dial->channel->transport =
            dial->near ? RPS_TRANSPORT_UNIX : RPS_TRANSPORT_TCP;
    status = rps_hello_begin(
            &dial->hello, dial->client, dial->channel, &dial->cause);
    if (status != RPS_OK) {
        dial_failed(dial, status, now);
        return;
    }
    (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
            "connected, no answer to HELLO yet (is a recpsd there?)");
    begin_part(dial, now, HELLO_MS_MAX);
    dial->state = RPS_DIAL_HELLO;
}

/* Is this server to be asked at its Unix socket? */
static bool
wants_near(const struct rps_dial *dial)
{
    switch (dial->client->transport) {
    case RPS_TRANSPORT_UNIX:
    case RPS_TRANSPORT_SHM:
        return true;
    case RPS_TRANSPORT_AUTO: /* TLS was asked for: TCP has it */
        return dial->client->tls == NULL && rps_near_is_own(dial->addresses);
    default:
        return false;
    }
}

/* Of "host:port"; resolve.c has checked it. */
static uint16_t
port_of(const struct rps_dial *dial)
{
    const char *colon = strrchr(dial->address, ':');

    return colon != NULL ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
}

/* The way of this attempt that comes first. False: it is no way. */
static bool
connect_near(struct rps_dial *dial, uint64_t now)
{
    struct rps_error why = {{0}};
    bool there = false;

    if (dial->near_tried || !wants_near(dial)) {
        return false;
    }
    dial->near_tried = true;
    dial->fd = rps_near_connect(
            dial->client, dial->ps, port_of(dial), &there, &why);
    if (dial->fd >= 0) {
        dial->near = true;
        greet(dial, now);
        return true;
    }
    if (dial->client->transport != RPS_TRANSPORT_AUTO) {
        dial->cause = why;
        rps_dial_again(dial, now);
        return true;
    }
    if (there) {
        pass_by(dial, &why);
    }
    return false;
}

/* Start on the next address of this attempt, or end the attempt. */
static void
connect_next(struct rps_dial *dial, uint64_t now)
{
    if (connect_near(dial, now)) {
        return;
    }
    while (dial->next != NULL) {
        struct addrinfo *to = dial->next;
        int fd = socket(
                to->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

        dial->next = to->ai_next;
        if (fd < 0) {
            (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE, "socket: %s",
                    strerror(errno));
            continue;
        }
        dial->fd = fd;
        if (connect(fd, to->ai_addr, to->ai_addrlen) == 0) {
            greet(dial, now);
            return;
        }
        if (errno == EINPROGRESS) {
            begin_part(dial, now, CONNECT_MS_MAX);
            dial->state = RPS_DIAL_CONNECT;
            return;
        }
        (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE, "%s", strerror(errno));
        (void)close(fd);
        dial->fd = -1;
    }
    rps_dial_again(dial, now);
}

static void
connect_ended(struct rps_dial *dial, uint64_t now)
{
    int code = 0;
    socklen_t bytes = sizeof(code);

    if (getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &code, &bytes) != 0) {
        code = errno;
    }
    if (code == 0) {
        greet(dial, now);
        return;
    }
    (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE, "%s", strerror(code));
    (void)close(dial->fd);
    dial->fd = -1;
    connect_next(dial, now);
}

/* A server that is full, or stops, or is not yet there may take us later. */
static bool
heals(rps_status status)
{
    return status == RPS_E_RETRY_LATER || status == RPS_E_LIMIT ||
           status == RPS_E_NOMEM || status == RPS_E_CORRUPT ||
           status == RPS_E_UNREACHABLE;
}

/* rps_reply_take_fn */
static rps_status
take_hello(void *context, struct rps_channel *channel,
        const struct rps_message *reply, struct rps_error *error)
{
    struct rps_dial *dial = context;
    rps_status status = dial->attach.begun
                                ? rps_attach_take(&dial->attach, reply, error)
                                : rps_hello_take(&dial->hello, dial->client,
                                          channel, reply, error);

    if (status != RPS_OK && !heals(status) && !may_pass_by(dial)) {
        dial->fatal = status;
    }
    return status;
}

/* One line a client, not one a server and attempt. */
static void
tell_passed_by(const struct rps_dial *dial)
{
    rps_client *client = dial->client;
    struct rps_text line = {0};

    if (dial->passed_by == NULL || dial->near || client->told_passed_by ||
            client->report == NULL || rps_io_is_alone(client)) {
        return;
    }
    client->told_passed_by = true;
    rps_text_add(&line, "PS %u (%s) is on this host, and reached by tcp: %s",
            dial->ps, dial->address, dial->passed_by);
    if (line.bytes != NULL) {
        client->report(client->report_context, line.bytes);
    }
    rps_text_finish(&line);
}

/* It is greeted: does it go on over this socket, or over shared memory? */
static rps_status
settle_transport(struct rps_dial *dial, uint64_t now)
{
    if (!dial->near || dial->client->transport == RPS_TRANSPORT_UNIX) {
        return RPS_OK;
    }
    if (dial->attach.answered) {
        return rps_attach_finish(&dial->attach, &dial->channel, &dial->cause);
    }
    if (dial->attach.begun) {
        return RPS_OK;
    }
    (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
            "greeted, no answer to SHM_ATTACH yet");
    begin_part(dial, now, HELLO_MS_MAX);
    return rps_attach_begin(
            &dial->attach, dial->client, dial->channel, &dial->cause);
}

static void
move_hello(struct rps_dial *dial, uint64_t now)
{
    rps_status status = dial->channel->ops->move(
            dial->channel, take_hello, dial, &dial->cause);

    if (dial->fatal != RPS_OK) {
        return;
    }
    if (status == RPS_OK && dial->hello.greeted) {
        status = settle_transport(dial, now);
    }
    if (status == RPS_OK && dial->hello.greeted &&
            (!dial->attach.begun || dial->attach.answered)) {
        tell_passed_by(dial);
        rps_hello_finish(&dial->hello);
        dial->state = RPS_DIAL_DONE;
        return;
    }
    if (status != RPS_OK) {
        dial_failed(dial, status, now);
    }
}

/* The addresses are here, or why there are none. */
static void
move_resolve(struct rps_dial *dial, uint64_t now)
{
    if (!rps_resolve_take(dial->resolve, &dial->addresses, &dial->cause)) {
        return;
    }
    rps_resolve_drop(dial->resolve);
    dial->resolve = NULL;
    dial->next = dial->addresses;
    if (dial->addresses == NULL) {
        rps_dial_again(dial, now);
    } else {
        connect_next(dial, now);
    }
}

static void
resolve(struct rps_dial *dial, uint64_t now)
{
    rps_status status =
            rps_resolve_begin(&dial->resolve, dial->address, &dial->cause);

    if (status != RPS_OK) {
        dial->fatal = status;
        return;
    }
    begin_part(dial, now, RESOLVE_MS_MAX);
    dial->state = RPS_DIAL_RESOLVE;
    move_resolve(dial, now);
}

/* The attempt has had its time. */
static void
expire(struct rps_dial *dial, uint64_t now)
{
    const double passed_s = (double)(now - dial->began_ms) / 1000.0;

    switch (dial->state) {
    case RPS_DIAL_RESOLVE:
        (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
                "no answer from the name server in %.1f s", passed_s);
        break;
    case RPS_DIAL_CONNECT:
        (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
                "no answer to a connect in %.1f s", passed_s);
        break;
    default:
        (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE, "%s in %.1f s",
                dial->attach.begun ? "greeted, but no answer to SHM_ATTACH"
                                   : "connected, but no answer to HELLO",
                passed_s);
        dial_failed(dial, RPS_E_UNREACHABLE, now);
        return;
    }
    rps_dial_again(dial, now);
}

void
rps_dial_move(struct rps_dial *dial, short revents, uint64_t now_ms)
{
    const bool due = now_ms >= dial->at_ms;

    switch (dial->state) {
    case RPS_DIAL_WAIT:
        if (due) {
            resolve(dial, now_ms);
        }
        break;
    case RPS_DIAL_RESOLVE:
    case RPS_DIAL_CONNECT:
    case RPS_DIAL_HELLO:
        if (revents == 0) {
            if (due) {
                expire(dial, now_ms);
            }
        } else if (dial->state == RPS_DIAL_RESOLVE) {
            move_resolve(dial, now_ms);
        } else if (dial->state == RPS_DIAL_CONNECT) {
            connect_ended(dial, now_ms);
        } else {
            move_hello(dial, now_ms);
        }
        break;
    case RPS_DIAL_DONE:
        break;
    }
}

int
rps_dial_watch(const struct rps_dial *dial, short *events_out)
{
    *events_out = POLLIN;
    switch (dial->state) {
    case RPS_DIAL_RESOLVE:
        return rps_resolve_fd(dial->resolve);
    case RPS_DIAL_CONNECT:
        *events_out = POLLOUT;
        return dial->fd;
    case RPS_DIAL_HELLO:
        return dial->channel->ops->watch(dial->channel, events_out);
    default:
        return -1;
    }
}

void
rps_dial_begin(struct rps_dial *dial, uint64_t at_ms, uint64_t until_ms)
{
    rps_dial_clear(dial);
    dial->state = RPS_DIAL_WAIT;
    dial->at_ms = at_ms;
    dial->until_ms = until_ms;
    dial->backoff_ms = BACKOFF_MS_MIN;
    dial->attempts = 0;
    dial->fatal = RPS_OK;
    dial->cause.text[0] = '\0';
}

struct rps_channel *
rps_dial_take(struct rps_dial *dial)
{
    struct rps_channel *channel = dial->channel;

    dial->channel = NULL;
    rps_dial_clear(dial);
    return channel;
}

struct rps_dial *
rps_dials_create(rps_client *client)
{
    struct rps_dial *dials = calloc(client->channel_count, sizeof(*dials));
    uint32_t i;

    for (i = 0; dials != NULL && i < client->channel_count; i++) {
        dials[i].client = client;
        dials[i].ps = i;
        dials[i].fd = -1;
        dials[i].draw = client->client_id + i;
        dials[i].address = client->cluster.ps[i].address;
    }
    return dials;
}

void
rps_dials_destroy(struct rps_dial *dials, uint32_t count)
{
    uint32_t i;

    for (i = 0; dials != NULL && i < count; i++) {
        rps_dial_clear(&dials[i]);
        free(dials[i].passed_by);
    }
    free(dials);
}
