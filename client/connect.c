/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One dial a PS, all moved by one loop: wait (back-off), resolve, connect,
 * HELLO. Names are resolved anew at each attempt, for a restarted server may
 * have another address. What can heal by waiting is tried again; what cannot
 * (another job, another number of servers) ends the open at once.
 */
#include "client/connect.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "client/hello.h"

#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKOFF_MS_MIN  50u
#define BACKOFF_MS_MAX  2000u
#define CONNECT_MS_MAX  5000u  /* of one attempt: then resolve again */
#define HELLO_MS_MAX    10000u /* from the connection to the answer */
#define REPORT_EVERY_MS 10000u

enum dial_state {
    DIAL_WAIT,    /* until at_ms */
    DIAL_CONNECT, /* the socket is on its way, at most until at_ms */
    DIAL_HELLO,   /* sent, at most until at_ms */
    DIAL_DONE
};

struct dial {
    rps_client *client;
    uint32_t ps;
    const char *address;
    enum dial_state state;
    uint64_t at_ms;
    uint32_t backoff_ms;
    int fd;                      /* DIAL_CONNECT */
    struct addrinfo *addresses;  /* of this attempt */
    struct addrinfo *next;       /* address to try next */
    struct rps_channel *channel; /* DIAL_HELLO */
    struct rps_hello hello;
    rps_status fatal; /* waiting would not help; cause says why */
    struct rps_error cause;
    uint64_t draw; /* of the jitter */
};

static void
dial_clear(struct dial *dial)
{
    if (dial->fd >= 0) {
        (void)close(dial->fd);
        dial->fd = -1;
    }
    if (dial->addresses != NULL) {
        freeaddrinfo(dial->addresses);
        dial->addresses = NULL;
        dial->next = NULL;
    }
    rps_channel_destroy(dial->channel, false);
    dial->channel = NULL;
    rps_hello_finish(&dial->hello);
}

/* Try again after half to whole of the back-off, which then doubles. */
static void
dial_again(struct dial *dial, uint64_t now)
{
    uint32_t half = dial->backoff_ms / 2;

    dial_clear(dial);
    dial->draw = rps_mix64(dial->draw);
    dial->at_ms = now + half + dial->draw % (half + 1);
    dial->backoff_ms *= 2;
    if (dial->backoff_ms > BACKOFF_MS_MAX) {
        dial->backoff_ms = BACKOFF_MS_MAX;
    }
    dial->state = DIAL_WAIT;
}

/* The channel failed on its way to a greeting. */
static void
dial_failed(struct dial *dial, rps_status status, uint64_t now)
{
    if (status == RPS_E_AUTH) { /* a certificate was refused */
        dial->fatal = status;
        return;
    }
    if (status == RPS_E_CORRUPT) {
        struct rps_error words = dial->cause;

        (void)rps_fail(
                &dial->cause, status, "not a recpsd? %.900s", words.text);
    }
    dial_again(dial, now);
}

/* "host:port" or "[v6]:port". */
static bool
resolve(struct dial *dial)
{
    struct addrinfo hints = {
            .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    const char *colon = strrchr(dial->address, ':');
    const char *host = dial->address;
    size_t length;
    char name[256];
    int code;

    if (colon == NULL) {
        (void)rps_fail(&dial->cause, RPS_E_INVAL, "no port in its address");
        dial->fatal = RPS_E_INVAL;
        return false;
    }
    length = (size_t)(colon - host);
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (length >= sizeof(name)) {
        (void)rps_fail(&dial->cause, RPS_E_INVAL, "its name is too long");
        dial->fatal = RPS_E_INVAL;
        return false;
    }
    memcpy(name, host, length);
    name[length] = '\0';
    code = getaddrinfo(name, colon + 1, &hints, &dial->addresses);
    if (code != 0) {
        dial->addresses = NULL;
        (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE, "cannot resolve %s: %s",
                name,
                code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code));
        return false;
    }
    dial->next = dial->addresses;
    return true;
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
greet(struct dial *dial, uint64_t now)
{
    int fd = dial->fd;
    rps_status status;

    dial->fd = -1;
    if (is_own_end(fd)) {
        (void)close(fd);
        (void)rps_fail(
                &dial->cause, RPS_E_UNREACHABLE, "%s", strerror(ECONNREFUSED));
        dial_again(dial, now);
        return;
    }
    dial->channel = rps_channel_tcp_create(
            dial->ps, dial->address, fd, dial->client->tls);
    if (dial->channel == NULL) {
        dial->fatal = rps_fail(&dial->cause, RPS_E_NOMEM, "out of memory");
        return;
    }
    status = rps_hello_begin(
            &dial->hello, dial->client, dial->channel, &dial->cause);
    if (status != RPS_OK) {
        dial_failed(dial, status, now);
        return;
    }
    (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
            "connected, no answer to HELLO yet (is a recpsd there?)");
    dial->at_ms = now + HELLO_MS_MAX;
    dial->state = DIAL_HELLO;
}

/* Start on the next address of this attempt, or end the attempt. */
static void
connect_next(struct dial *dial, uint64_t now)
{
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
            dial->at_ms = now + CONNECT_MS_MAX;
            dial->state = DIAL_CONNECT;
            return;
        }
        (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE, "%s", strerror(errno));
        (void)close(fd);
        dial->fd = -1;
    }
    dial_again(dial, now);
}

static void
connect_ended(struct dial *dial, uint64_t now)
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

/* rps_frame_fn */
static rps_status
take_hello(void *context, struct rps_channel *channel,
        const struct rps_header *header, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error)
{
    struct dial *dial = context;
    rps_status status = rps_hello_take(&dial->hello, dial->client, channel,
            header, frame, frame_bytes, error);

    if (status != RPS_OK && status != RPS_E_RETRY_LATER &&
            status != RPS_E_CORRUPT && status != RPS_E_UNREACHABLE) {
        dial->fatal = status;
    }
    return status;
}

static void
move_hello(struct dial *dial, uint64_t now)
{
    rps_status status = dial->channel->ops->move(
            dial->channel, take_hello, dial, &dial->cause);

    if (dial->fatal != RPS_OK) {
        return;
    }
    if (dial->hello.greeted) {
        dial->client->channels[dial->ps] = dial->channel;
        dial->channel = NULL;
        dial_clear(dial);
        dial->state = DIAL_DONE;
        return;
    }
    if (status != RPS_OK) {
        dial_failed(dial, status, now);
    }
}

static void
move_dial(struct dial *dial, short revents, uint64_t now)
{
    switch (dial->state) {
    case DIAL_WAIT:
        if (now >= dial->at_ms && !resolve(dial)) {
            dial_again(dial, now);
        } else if (now >= dial->at_ms) {
            connect_next(dial, now);
        }
        break;
    case DIAL_CONNECT:
        if (revents != 0) {
            connect_ended(dial, now);
        } else if (now >= dial->at_ms) {
            (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
                    "no answer to a connect in %u s", CONNECT_MS_MAX / 1000);
            dial_again(dial, now);
        }
        break;
    case DIAL_HELLO:
        if (revents != 0) {
            move_hello(dial, now);
        } else if (now >= dial->at_ms) {
            (void)rps_fail(&dial->cause, RPS_E_UNREACHABLE,
                    "connected, but no answer to HELLO in %u s",
                    HELLO_MS_MAX / 1000);
            dial_again(dial, now);
        }
        break;
    case DIAL_DONE:
        break;
    }
}

/* Milliseconds until the first dial is due, at most `most`. */
static int
prepare_poll(const struct dial *dials, uint32_t count, struct pollfd *polls,
        uint64_t now, uint64_t most)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        const struct dial *dial = &dials[i];

        polls[i] = (struct pollfd){.fd = -1};
        if (dial->state == DIAL_CONNECT) {
            polls[i].fd = dial->fd;
            polls[i].events = POLLOUT;
        } else if (dial->state == DIAL_HELLO) {
            polls[i].fd =
                    dial->channel->ops->watch(dial->channel, &polls[i].events);
        }
        if (dial->state != DIAL_DONE) {
            uint64_t left = dial->at_ms > now ? dial->at_ms - now : 0;

            most = left < most ? left : most;
        }
    }
    return most > INT_MAX ? INT_MAX : (int)most;
}

static uint32_t
missing_count(const struct dial *dials, uint32_t count)
{
    uint32_t missing = 0;
    uint32_t i;

    for (i = 0; i < count; i++) {
        missing += dials[i].state != DIAL_DONE;
    }
    return missing;
}

/* "PS 1 (h:p): why; PS 2 (h:p): why" */
static void
name_missing(const struct dial *dials, uint32_t count, struct rps_text *text)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        const struct dial *dial = &dials[i];

        if (dial->state != DIAL_DONE) {
            rps_text_add(text, "%sPS %u (%s): %s", text->length > 0 ? "; " : "",
                    dial->ps, dial->address,
                    dial->cause.text[0] != '\0' ? dial->cause.text
                                                : "not reached yet");
        }
    }
}

static void
report(const rps_client *client, const struct dial *dials, uint32_t count,
        uint64_t passed_ms)
{
    struct rps_text missing = {0};
    struct rps_text line = {0};

    if (client->report == NULL) {
        return;
    }
    name_missing(dials, count, &missing);
    rps_text_add(&line,
            "waiting for %u of %u parameter servers (%u s of %u): %s",
            missing_count(dials, count), count, (uint32_t)(passed_ms / 1000),
            client->connect_timeout_ms / 1000,
            missing.bytes != NULL ? missing.bytes : "");
    if (line.bytes != NULL) {
        client->report(client->report_context, line.bytes);
    }
    rps_text_finish(&missing);
    rps_text_finish(&line);
}

static rps_status
give_up(const rps_client *client, const struct dial *dials, uint32_t count)
{
    struct rps_text missing = {0};
    rps_status status;

    name_missing(dials, count, &missing);
    status = rps_client_fail(RPS_E_UNREACHABLE,
            "not reached in %.1f s: %s (is recpsd running there? see "
            "connect_timeout)",
            client->connect_timeout_ms / 1000.0,
            missing.bytes != NULL ? missing.bytes : "");
    rps_text_finish(&missing);
    return status;
}

static const struct dial *
first_fatal(const struct dial *dials, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (dials[i].fatal != RPS_OK) {
            return &dials[i];
        }
    }
    return NULL;
}

static rps_status
dial_loop(rps_client *client, struct dial *dials, uint32_t count)
{
    uint64_t start = rps_clock_ms();
    uint64_t reported = 0;
    uint32_t i;

    while (missing_count(dials, count) > 0) {
        uint64_t passed = rps_clock_ms() - start;
        uint64_t left;
        const struct dial *fatal;

        if (passed >= client->connect_timeout_ms) {
            return give_up(client, dials, count);
        }
        if (passed - reported >= REPORT_EVERY_MS) {
            reported = passed;
            report(client, dials, count, passed);
        }
        left = client->connect_timeout_ms - passed;
        if (left > reported + REPORT_EVERY_MS - passed) {
            left = reported + REPORT_EVERY_MS - passed;
        }
        (void)poll(client->polls, count,
                prepare_poll(
                        dials, count, client->polls, start + passed, left));
        for (i = 0; i < count; i++) {
            move_dial(&dials[i], client->polls[i].revents, rps_clock_ms());
        }
        fatal = first_fatal(dials, count);
        if (fatal != NULL) {
            return rps_client_fail(fatal->fatal, "PS %u (%s): %s", fatal->ps,
                    fatal->address, fatal->cause.text);
        }
    }
    return RPS_OK;
}

rps_status
rps_connect_all(rps_client *client)
{
    uint32_t count = client->channel_count;
    struct dial *dials = calloc(count, sizeof(*dials));
    rps_status status = RPS_OK;
    uint32_t i;

    if (dials == NULL) {
        return rps_client_nomem();
    }
    for (i = 0; i < count; i++) {
        dials[i].client = client;
        dials[i].ps = i;
        dials[i].fd = -1;
        dials[i].backoff_ms = BACKOFF_MS_MIN;
        dials[i].draw = client->client_id + i;
        dials[i].address = client->cluster.ps[i].address;
        if (dials[i].address == NULL) {
            status = rps_client_fail(
                    RPS_E_INVAL, "PS %u: the cluster has no address for it", i);
        }
    }
    if (status == RPS_OK) {
        status = dial_loop(client, dials, count);
    }
    for (i = 0; i < count; i++) {
        dial_clear(&dials[i]);
    }
    free(dials);
    return status;
}

struct local_hello {
    rps_client *client;
    struct rps_hello hello;
};

static rps_status
take_local(void *context, struct rps_channel *channel,
        const struct rps_header *header, const uint8_t *frame,
        size_t frame_bytes, struct rps_error *error)
{
    struct local_hello *hello = context;

    return rps_hello_take(&hello->hello, hello->client, channel, header, frame,
            frame_bytes, error);
}

rps_status
rps_connect_local(rps_client *client)
{
    struct rps_local_options options = {
            .job_id = client->job_id,
            .job_seed = client->job_seed,
            .checkpoint_dir = client->checkpoint_dir,
            .checkpoint_read_only = client->checkpoint_read_only,
    };
    struct local_hello hello = {.client = client};
    struct rps_error error = {{0}};
    struct rps_channel *channel = NULL;
    rps_status status = rps_channel_local_create(&channel, &options, &error);

    if (status == RPS_OK) {
        client->channels[0] = channel;
        status = rps_hello_begin(&hello.hello, client, channel, &error);
    }
    while (status == RPS_OK && !hello.hello.greeted) {
        if (!channel->ops->arm(channel)) {
            struct pollfd wait = {0};

            wait.fd = channel->ops->watch(channel, &wait.events);
            (void)poll(&wait, 1, -1);
        }
        status = channel->ops->move(channel, take_local, &hello, &error);
    }
    rps_hello_finish(&hello.hello);
    return status == RPS_OK ? RPS_OK : rps_client_fail_with(status, &error);
}
