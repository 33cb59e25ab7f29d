/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP port for probes, metrics and the like, in a thread of its own, so
 * that it answers when others do not. GET and HEAD only: nothing can be changed
 * through it.
 */
#ifndef RPS_ADMIN_HTTP_H
#define RPS_ADMIN_HTTP_H

#include "admin/address.h"
#include "base/error.h"
#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

struct rps_http;

#define RPS_HTTP_CONNECTIONS_MAX 64u /* more wait in the backlog */
#define RPS_HTTP_IDLE_S          5   /* of a connection, each direction */
#define RPS_HTTP_OLD_MS          50  /* may be cut for a new one */
#define RPS_HTTP_HEADER_BYTES    8192
#define RPS_HTTP_BODY_BYTES      1024

struct rps_http_request {
    void *context;     /* of the options */
    uint32_t page;     /* its place in the options' paths */
    const char *query; /* what comes after '?', or NULL */
    bool verbose;      /* ?verbose */
    bool local;        /* asked from this host: may see keys */
};

struct rps_http_answer {
    int code;
    const char *type;   /* Content-Type */
    const char *policy; /* Content-Security-Policy */
    struct rps_text body;
};

/** Fill the answer of a page. It comes as 200, text/plain, empty, with a policy
 * that lets a browser do nothing with it. Admin thread. */
typedef void rps_http_page(
        const struct rps_http_request *request, struct rps_http_answer *answer);

struct rps_http_options {
    const char *const *paths; /* [page_count] of pages; live as long */
    uint32_t page_count;
    rps_http_page *answer;
    void *context; /* lives as long */
};

/**
 * Bind the plan's addresses and start the thread.
 *
 * Errors: INVAL (address), RETRY_LATER (in use), NOMEM, IO.
 */
rps_status rps_http_start(struct rps_http **server_out,
        const struct rps_listen_plan *plan,
        const struct rps_http_options *options, struct rps_error *error);

/** The address that was bound, as text, and its port. */
const char *rps_http_address(const struct rps_http *server);
uint16_t rps_http_port(const struct rps_http *server);

/** Close and end the thread. NULL is allowed. */
void rps_http_stop(struct rps_http *server);

#endif /* RPS_ADMIN_HTTP_H */
