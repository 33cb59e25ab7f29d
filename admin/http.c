/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the thread and its HTTP, which is libevent's. Leaves what a page says to
 * its function.
 *
 * libevent's server accepts without a limit and tells nobody when it lets a
 * connection go. So each one is created here and held by a second reference:
 * when ours is the last, it has gone. At the limit nobody is accepted until
 * one goes, and connections that are old are cut.
 */
#include "admin/http.h"

#include "admin/sockets.h"
#include "base/clock.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG  128
#define SWEEP_MS 200 /* how soon a connection that went is noticed */

struct guest {
    struct bufferevent *connection; /* a reference of ours */
    uint64_t since_ms;
};

struct rps_http {
    struct rps_http_options options; /* set before start */
    struct rps_sockets sockets;      /* the same */
    int stop_fd;                     /* eventfd, any thread */
    pthread_t thread;
    bool started;

    /* admin thread, once it runs */
    struct event_base *base;
    struct evhttp *http;
    struct event *stop;
    struct event *sweep;
    struct evconnlistener *listeners[RPS_LISTEN_MAX];
    uint32_t listener_count;
    bool full;
    struct guest guests[RPS_HTTP_CONNECTIONS_MAX];
    uint32_t guest_count;
};

/* ---- connections ---- */

static void
accept_or_not(struct rps_http *server)
{
    const bool full = server->guest_count >= RPS_HTTP_CONNECTIONS_MAX;

    for (uint32_t i = 0; full != server->full && i < server->listener_count;
            i++) {
        if (full) {
            evconnlistener_disable(server->listeners[i]);
        } else {
            evconnlistener_enable(server->listeners[i]);
        }
    }
    server->full = full;
}

/* Those whose last reference was ours are gone. */
static void
forget_gone(struct rps_http *server)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < server->guest_count; i++) {
        struct guest *guest = &server->guests[i];

        if (bufferevent_decref(guest->connection) == 0) {
            bufferevent_incref(guest->connection); /* HTTP has it still */
            server->guests[kept++] = *guest;
        }
    }
    server->guest_count = kept;
}

/*
 * The older half gives way, so that others than those who hold connections
 * are answered. A request takes a millisecond and is not cut: between two
 * turns of this thread none is in hand. HTTP sees the end of the stream and
 * lets go.
 */
static void
cut_old(struct rps_http *server)
{
    const uint64_t now = rps_clock_ms();

    for (uint32_t i = 0; i < server->guest_count / 2; i++) {
        const struct guest *guest = &server->guests[i];

        if (now - guest->since_ms >= RPS_HTTP_OLD_MS) {
            shutdown(bufferevent_getfd(guest->connection), SHUT_RDWR);
        }
    }
}

static void
on_sweep(evutil_socket_t fd, short what, void *context)
{
    struct rps_http *server = context;

    (void)fd;
    (void)what;
    forget_gone(server);
    if (server->guest_count >= RPS_HTTP_CONNECTIONS_MAX) {
        cut_old(server);
    }
    accept_or_not(server);
}

/* NULL makes libevent create its own, which is then not counted: only where
 * there is no memory, or several came before the listener could be told. */
static struct bufferevent *
on_guest(struct event_base *base, void *context)
{
    struct rps_http *server = context;
    struct bufferevent *connection = NULL;

    if (server->guest_count >= RPS_HTTP_CONNECTIONS_MAX) {
        forget_gone(server);
    }
    if (server->guest_count < RPS_HTTP_CONNECTIONS_MAX) {
        connection = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    }
    if (connection != NULL) {
        bufferevent_incref(connection);
        server->guests[server->guest_count++] = (struct guest){
                .connection = connection, .since_ms = rps_clock_ms()};
    }
    accept_or_not(server);
    return connection;
}

/* ---- requests ---- */

static void
send_answer(struct evhttp_request *http, struct rps_http_answer *answer)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(http);
    struct evbuffer *body = evbuffer_new();

    if (body == NULL || answer->body.failed ||
            evbuffer_add(body, answer->body.bytes, answer->body.length) != 0) {
        evhttp_send_error(http, HTTP_INTERNAL, "no memory");
    } else {
        evhttp_add_header(headers, "Content-Type", answer->type);
        evhttp_add_header(headers, "Cache-Control", "no-store");
        evhttp_add_header(headers, "X-Content-Type-Options", "nosniff");
        evhttp_add_header(headers, "Content-Security-Policy", answer->policy);
        evhttp_add_header(headers, "Referrer-Policy", "no-referrer");
        evhttp_send_reply(http, answer->code, NULL, body);
    }
    if (body != NULL) {
        evbuffer_free(body);
    }
    rps_text_finish(&answer->body);
}

static void
list_pages(const struct rps_http *server, struct rps_http_answer *answer)
{
    const struct rps_http_options *options = &server->options;

    answer->code = HTTP_NOTFOUND;
    rps_text_add(&answer->body, "no such page; there are:\n");
    for (uint32_t i = 0; i < options->page_count; i++) {
        rps_text_add(&answer->body, "%s\n", options->paths[i]);
    }
}

/* "verbose", alone or with a value, as one of the query's parts. */
static bool
is_verbose(const char *query)
{
    static const char word[] = "verbose";
    const size_t length = sizeof(word) - 1;

    while (query != NULL && *query != '\0') {
        const size_t part = strcspn(query, "&");

        if (part >= length && strncmp(query, word, length) == 0 &&
                (part == length || query[length] == '=')) {
            return true;
        }
        query += part;
        query += *query == '&';
    }
    return false;
}

/* Its place; page_count: there is none. */
static uint32_t
find_page(const struct rps_http *server, const char *path)
{
    uint32_t i = path == NULL ? server->options.page_count : 0;

    while (i < server->options.page_count &&
            strcmp(path, server->options.paths[i]) != 0) {
        i++;
    }
    return i;
}

/* Where a browser took us for another: a name of a stranger's that was led to
 * this host would have the stranger's script read our answers. */
static bool
is_called_local(struct evhttp_request *http)
{
    static const char *const names[] = {"localhost", "127.0.0.1", "[::1]"};
    const char *host = evhttp_request_get_host(http);
    bool called = host == NULL; /* no browser */

    for (size_t i = 0; !called && i < sizeof(names) / sizeof(names[0]); i++) {
        called = evutil_ascii_strcasecmp(host, names[i]) == 0;
    }
    return called;
}

static bool
is_local(struct evhttp_request *http)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(http);
    struct sockaddr_storage peer;
    socklen_t length = sizeof(peer);
    const int fd =
            bufferevent_getfd(evhttp_connection_get_bufferevent(connection));

    return getpeername(fd, (struct sockaddr *)&peer, &length) == 0 &&
           rps_address_is_loopback(&peer) && is_called_local(http);
}

static void
on_request(struct evhttp_request *http, void *context)
{
    struct rps_http *server = context;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(http);
    const enum evhttp_cmd_type method = evhttp_request_get_command(http);
    struct rps_http_request request = {.context = server->options.context};
    struct rps_http_answer answer = {.code = HTTP_OK,
            .type = "text/plain; charset=utf-8",
            .policy = "default-src 'none'; frame-ancestors 'none'"};

    request.page =
            find_page(server, uri != NULL ? evhttp_uri_get_path(uri) : NULL);
    request.query = uri != NULL ? evhttp_uri_get_query(uri) : NULL;
    request.verbose = is_verbose(request.query);
    request.local = is_local(http);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
        answer.code = HTTP_BADMETHOD;
        evhttp_add_header(
                evhttp_request_get_output_headers(http), "Allow", "GET, HEAD");
        rps_text_add(&answer.body, "GET and HEAD only\n");
    } else if (request.page < server->options.page_count) {
        server->options.answer(&request, &answer);
    } else {
        list_pages(server, &answer);
    }
    send_answer(http, &answer);
}

/* ---- life ---- */

static void
on_stop(evutil_socket_t fd, short what, void *context)
{
    struct rps_http *server = context;

    (void)fd;
    (void)what;
    event_base_loopbreak(server->base);
}

static void *
run(void *context)
{
    struct rps_http *server = context;

    event_base_dispatch(server->base);
    return NULL;
}

/* The sockets become libevent's. */
static bool
take_sockets(struct rps_http *server)
{
    struct rps_sockets *sockets = &server->sockets;
    const uint32_t count = sockets->count;
    bool taken = true;

    sockets->count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct evconnlistener *each = evconnlistener_new(server->base, NULL,
                NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0,
                sockets->fds[i]);

        if (each == NULL || evhttp_bind_listener(server->http, each) == NULL) {
            if (each != NULL) {
                evconnlistener_free(each);
            } else {
                close(sockets->fds[i]);
            }
            taken = false;
        } else {
            server->listeners[server->listener_count++] = each;
        }
    }
    return taken;
}

static bool
make_http(struct rps_http *server)
{
    const struct timeval sweep = {.tv_usec = SWEEP_MS * 1000};

    server->base = event_base_new();
    server->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (server->base == NULL || server->stop_fd < 0) {
        return false;
    }
    server->http = evhttp_new(server->base);
    server->stop = event_new(server->base, server->stop_fd,
            EV_READ | EV_PERSIST, on_stop, server);
    server->sweep = event_new(server->base, -1, EV_PERSIST, on_sweep, server);
    if (server->http == NULL || server->stop == NULL || server->sweep == NULL ||
            event_add(server->stop, NULL) != 0 ||
            event_add(server->sweep, &sweep) != 0) {
        return false;
    }
    evhttp_set_timeout(server->http, RPS_HTTP_IDLE_S);
    evhttp_set_max_headers_size(server->http, RPS_HTTP_HEADER_BYTES);
    evhttp_set_max_body_size(server->http, RPS_HTTP_BODY_BYTES);
    evhttp_set_allowed_methods(
            server->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                  EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                  EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_bevcb(server->http, on_guest, server);
    evhttp_set_gencb(server->http, on_request, server);
    return true;
}

/* Signals are other threads': they interrupt their waits. */
static int
start_thread(struct rps_http *server)
{
    sigset_t all, before;
    int rc;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&server->thread, NULL, run, server);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static rps_status
start(struct rps_http *server, const struct rps_listen_plan *plan,
        struct rps_error *error)
{
    rps_status status =
            rps_sockets_open(&server->sockets, plan, BACKLOG, error);
    int rc;

    if (status != RPS_OK) {
        return status;
    }
    if (!make_http(server) || !take_sockets(server)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the admin port");
    }
    rc = start_thread(server);
    if (rc != 0) {
        return rps_fail(
                error, RPS_E_IO, "cannot start a thread: %s", strerror(rc));
    }
    server->started = true;
    pthread_setname_np(server->thread, "recps-admin");
    return RPS_OK;
}

rps_status
rps_http_start(struct rps_http **server_out, const struct rps_listen_plan *plan,
        const struct rps_http_options *options, struct rps_error *error)
{
    struct rps_http *server = calloc(1, sizeof(*server));
    rps_status status;

    *server_out = NULL;
    if (server == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the admin port");
    }
    server->options = *options;
    server->stop_fd = -1;
    status = start(server, plan, error);
    if (status != RPS_OK) {
        rps_http_stop(server);
        return status;
    }
    *server_out = server;
    return RPS_OK;
}

const char *
rps_http_address(const struct rps_http *server)
{
    return server->sockets.text;
}

uint16_t
rps_http_port(const struct rps_http *server)
{
    return server->sockets.port;
}

static void
free_events(struct rps_http *server)
{
    if (server->http != NULL) {
        evhttp_free(server->http); /* the listeners and connections, too */
    }
    for (uint32_t i = 0; i < server->guest_count; i++) {
        bufferevent_decref(server->guests[i].connection);
    }
    if (server->stop != NULL) {
        event_free(server->stop);
    }
    if (server->sweep != NULL) {
        event_free(server->sweep);
    }
    if (server->base != NULL) {
        event_base_free(server->base);
    }
}

void
rps_http_stop(struct rps_http *server)
{
    uint64_t one = 1;
    ssize_t n;

    if (server == NULL) {
        return;
    }
    if (server->started) {
        n = write(server->stop_fd, &one, sizeof(one));
        (void)n; /* full: it is readable already */
        pthread_join(server->thread, NULL);
    }
    free_events(server);
    if (server->stop_fd >= 0) {
        close(server->stop_fd);
    }
    rps_sockets_close(&server->sockets);
    free(server);
}
