/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the admin thread and its HTTP, which is libevent's. Leaves what a page
 * says to its function.
 *
 * libevent's server accepts without a limit and tells nobody when it lets a
 * connection go. So each one is created here and held by a second reference:
 * when ours is the last, it has gone. At the limit nobody is accepted until
 * one goes, and connections that are old are cut.
 */
#include "server/daemon/admin.h"

#include "base/clock.h"
#include "server/daemon/address.h"
#include "server/daemon/admin_impl.h"
#include "server/daemon/listener.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define SWEEP_MS 200 /* how soon a connection that went is noticed */

static const struct {
    const char *path;
    rps_admin_page *page;
} pages[] = {
        {"/", rps_admin_page_for_people},
        {"/livez", rps_admin_livez},
        {"/readyz", rps_admin_readyz},
        {"/startupz", rps_admin_startupz},
        {"/metrics", rps_admin_metrics},
        {"/configz", rps_admin_configz},
        {"/hotz", rps_admin_hotz},
};

struct guest {
    struct bufferevent *connection; /* a reference of ours */
    uint64_t since_ms;
};

struct rps_admin {
    struct rps_view *view;
    char text[RPS_ADDRESS_TEXT_BYTES];
    uint16_t port;
    int stop_fd; /* eventfd, any thread */
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
    struct guest guests[RPS_ADMIN_CONNECTIONS_MAX];
    uint32_t guest_count;
    struct rps_service_figures figures;
};

/* ---- connections ---- */

static void
accept_or_not(struct rps_admin *admin)
{
    const bool full = admin->guest_count >= RPS_ADMIN_CONNECTIONS_MAX;

    for (uint32_t i = 0; full != admin->full && i < admin->listener_count;
            i++) {
        if (full) {
            evconnlistener_disable(admin->listeners[i]);
        } else {
            evconnlistener_enable(admin->listeners[i]);
        }
    }
    admin->full = full;
}

/* Those whose last reference was ours are gone. */
static void
forget_gone(struct rps_admin *admin)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < admin->guest_count; i++) {
        struct guest *guest = &admin->guests[i];

        if (bufferevent_decref(guest->connection) == 0) {
            bufferevent_incref(guest->connection); /* HTTP has it still */
            admin->guests[kept++] = *guest;
        }
    }
    admin->guest_count = kept;
}

/*
 * The older half gives way, so that others than those who hold connections
 * are answered. A request takes a millisecond and is not cut: between two
 * turns of this thread none is in hand. HTTP sees the end of the stream and
 * lets go.
 */
static void
cut_old(struct rps_admin *admin)
{
    const uint64_t now = rps_clock_ms();

    for (uint32_t i = 0; i < admin->guest_count / 2; i++) {
        const struct guest *guest = &admin->guests[i];

        if (now - guest->since_ms >= RPS_ADMIN_OLD_MS) {
            shutdown(bufferevent_getfd(guest->connection), SHUT_RDWR);
        }
    }
}

static void
on_sweep(evutil_socket_t fd, short what, void *context)
{
    struct rps_admin *admin = context;

    (void)fd;
    (void)what;
    forget_gone(admin);
    if (admin->guest_count >= RPS_ADMIN_CONNECTIONS_MAX) {
        cut_old(admin);
    }
    accept_or_not(admin);
}

/* NULL makes libevent create its own, which is then not counted: only where
 * there is no memory, or several came before the listener could be told. */
static struct bufferevent *
on_guest(struct event_base *base, void *context)
{
    struct rps_admin *admin = context;
    struct bufferevent *connection = NULL;

    if (admin->guest_count >= RPS_ADMIN_CONNECTIONS_MAX) {
        forget_gone(admin);
    }
    if (admin->guest_count < RPS_ADMIN_CONNECTIONS_MAX) {
        connection = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    }
    if (connection != NULL) {
        bufferevent_incref(connection);
        admin->guests[admin->guest_count++] = (struct guest){
                .connection = connection, .since_ms = rps_clock_ms()};
    }
    accept_or_not(admin);
    return connection;
}

/* ---- requests ---- */

static void
send_answer(struct evhttp_request *http, struct rps_admin_answer *answer)
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
list_pages(struct rps_admin_answer *answer)
{
    answer->code = HTTP_NOTFOUND;
    rps_text_add(&answer->body, "no such page; there are:\n");
    for (size_t i = 0; i < sizeof(pages) / sizeof(pages[0]); i++) {
        rps_text_add(&answer->body, "%s\n", pages[i].path);
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

static rps_admin_page *
find_page(const char *path)
{
    for (size_t i = 0; path != NULL && i < sizeof(pages) / sizeof(pages[0]);
            i++) {
        if (strcmp(path, pages[i].path) == 0) {
            return pages[i].page;
        }
    }
    return NULL;
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
    struct rps_admin *admin = context;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(http);
    const enum evhttp_cmd_type method = evhttp_request_get_command(http);
    struct rps_admin_request request = {
            .view = admin->view, .figures = &admin->figures};
    struct rps_admin_answer answer = {.code = HTTP_OK,
            .type = "text/plain; charset=utf-8",
            .policy = "default-src 'none'; frame-ancestors 'none'"};
    rps_admin_page *page =
            find_page(uri != NULL ? evhttp_uri_get_path(uri) : NULL);

    request.query = uri != NULL ? evhttp_uri_get_query(uri) : NULL;
    request.verbose = is_verbose(request.query);
    request.local = is_local(http);
    if (method != EVHTTP_REQ_GET && method != EVHTTP_REQ_HEAD) {
        answer.code = HTTP_BADMETHOD;
        evhttp_add_header(
                evhttp_request_get_output_headers(http), "Allow", "GET, HEAD");
        rps_text_add(&answer.body, "GET and HEAD only\n");
    } else if (page != NULL) {
        page(&request, &answer);
    } else {
        list_pages(&answer);
    }
    send_answer(http, &answer);
}

/* ---- life ---- */

static void
on_stop(evutil_socket_t fd, short what, void *context)
{
    struct rps_admin *admin = context;

    (void)fd;
    (void)what;
    event_base_loopbreak(admin->base);
}

static void *
run(void *context)
{
    struct rps_admin *admin = context;

    event_base_dispatch(admin->base);
    return NULL;
}

/* Takes the sockets of a listener that was opened for us. */
static bool
take_sockets(struct rps_admin *admin, struct rps_listener *listener)
{
    int fds[RPS_LISTEN_MAX];
    uint32_t count;
    bool taken = true;

    admin->port = rps_listener_port(listener);
    memcpy(admin->text, rps_listener_text(listener), sizeof(admin->text));
    count = rps_listener_release(listener, fds);
    for (uint32_t i = 0; i < count; i++) {
        struct evconnlistener *each = evconnlistener_new(admin->base, NULL,
                NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, fds[i]);

        if (each == NULL || evhttp_bind_listener(admin->http, each) == NULL) {
            if (each != NULL) {
                evconnlistener_free(each);
            } else {
                close(fds[i]);
            }
            taken = false;
        } else {
            admin->listeners[admin->listener_count++] = each;
        }
    }
    return taken;
}

static bool
make_http(struct rps_admin *admin)
{
    const struct timeval sweep = {.tv_usec = SWEEP_MS * 1000};

    admin->base = event_base_new();
    admin->stop_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (admin->base == NULL || admin->stop_fd < 0) {
        return false;
    }
    admin->http = evhttp_new(admin->base);
    admin->stop = event_new(
            admin->base, admin->stop_fd, EV_READ | EV_PERSIST, on_stop, admin);
    admin->sweep = event_new(admin->base, -1, EV_PERSIST, on_sweep, admin);
    if (admin->http == NULL || admin->stop == NULL || admin->sweep == NULL ||
            event_add(admin->stop, NULL) != 0 ||
            event_add(admin->sweep, &sweep) != 0) {
        return false;
    }
    evhttp_set_timeout(admin->http, RPS_ADMIN_IDLE_S);
    evhttp_set_max_headers_size(admin->http, RPS_ADMIN_HEADER_BYTES);
    evhttp_set_max_body_size(admin->http, RPS_ADMIN_BODY_BYTES);
    evhttp_set_allowed_methods(
            admin->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST |
                                 EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
                                 EVHTTP_REQ_OPTIONS | EVHTTP_REQ_PATCH);
    evhttp_set_bevcb(admin->http, on_guest, admin);
    evhttp_set_gencb(admin->http, on_request, admin);
    return true;
}

static rps_status
start(struct rps_admin *admin, struct rps_listener *listener,
        struct rps_error *error)
{
    int rc;

    if (!make_http(admin)) {
        rps_listener_close(listener);
        return rps_fail(error, RPS_E_NOMEM, "no memory for the admin port");
    }
    if (!take_sockets(admin, listener)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the admin port");
    }
    rc = pthread_create(&admin->thread, NULL, run, admin);
    if (rc != 0) {
        return rps_fail(
                error, RPS_E_IO, "cannot start a thread: %s", strerror(rc));
    }
    admin->started = true;
    pthread_setname_np(admin->thread, "recps-admin");
    return RPS_OK;
}

rps_status
rps_admin_start(struct rps_admin **admin_out, const char *address,
        struct rps_view *view, struct rps_error *error)
{
    struct rps_listen_plan plan;
    struct rps_listener *listener;
    struct rps_admin *admin;
    rps_status status = rps_listen_plan_make(&plan, address, NULL, error);

    *admin_out = NULL;
    if (status == RPS_OK) {
        status = rps_listener_open(&listener, &plan, NULL, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    admin = calloc(1, sizeof(*admin));
    if (admin == NULL) {
        rps_listener_close(listener);
        return rps_fail(error, RPS_E_NOMEM, "no memory for the admin port");
    }
    admin->view = view;
    admin->stop_fd = -1;
    status = start(admin, listener, error);
    if (status != RPS_OK) {
        rps_admin_stop(admin);
        return status;
    }
    *admin_out = admin;
    return RPS_OK;
}

const char *
rps_admin_address(const struct rps_admin *admin)
{
    return admin->text;
}

uint16_t
rps_admin_port(const struct rps_admin *admin)
{
    return admin->port;
}

static void
free_events(struct rps_admin *admin)
{
    if (admin->http != NULL) {
        evhttp_free(admin->http); /* the listeners and connections, too */
    }
    for (uint32_t i = 0; i < admin->guest_count; i++) {
        bufferevent_decref(admin->guests[i].connection);
    }
    if (admin->stop != NULL) {
        event_free(admin->stop);
    }
    if (admin->sweep != NULL) {
        event_free(admin->sweep);
    }
    if (admin->base != NULL) {
        event_base_free(admin->base);
    }
}

void
rps_admin_stop(struct rps_admin *admin)
{
    uint64_t one = 1;
    ssize_t n;

    if (admin == NULL) {
        return;
    }
    if (admin->started) {
        n = write(admin->stop_fd, &one, sizeof(one));
        (void)n; /* full: it is readable already */
        pthread_join(admin->thread, NULL);
    }
    free_events(admin);
    if (admin->stop_fd >= 0) {
        close(admin->stop_fd);
    }
    rps_service_figures_finish(&admin->figures);
    free(admin);
}
