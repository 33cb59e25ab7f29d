/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the table of the admin port's pages, and what their answers are made of;
 * what a page says is left to its function, HTTP to admin/http.c.
 */
#include "server/daemon/admin.h"

#include "admin/http.h"
#include "server/daemon/admin_impl.h"

#include <stdlib.h>

static const char *const paths[] = {
        "/", "/livez", "/readyz", "/startupz", "/metrics", "/configz", "/hotz"};

static rps_admin_page *const pages[] = {rps_admin_page_for_people,
        rps_admin_livez, rps_admin_readyz, rps_admin_startupz,
        rps_admin_metrics, rps_admin_configz, rps_admin_hotz};

#define PAGE_COUNT (sizeof(pages) / sizeof(pages[0]))
_Static_assert(PAGE_COUNT == sizeof(paths) / sizeof(paths[0]),
        "each path has its page");

struct rps_admin {
    struct rps_view *view;
    struct rps_http *http;
    struct rps_service_figures figures; /* admin thread, once it runs */
};

static void
answer_page(const struct rps_http_request *http, struct rps_http_answer *answer)
{
    struct rps_admin *admin = http->context;
    const struct rps_admin_request request = {.view = admin->view,
            .figures = &admin->figures,
            .query = http->query,
            .verbose = http->verbose,
            .local = http->local};

    pages[http->page](&request, answer);
}

rps_status
rps_admin_start(struct rps_admin **admin_out, const char *address,
        struct rps_view *view, struct rps_error *error)
{
    struct rps_http_options options = {
            .paths = paths, .page_count = PAGE_COUNT, .answer = answer_page};
    struct rps_listen_plan plan;
    struct rps_admin *admin;
    rps_status status = rps_listen_plan_make(&plan, address, NULL, error);

    *admin_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    admin = calloc(1, sizeof(*admin));
    if (admin == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the admin port");
    }
    admin->view = view;
    options.context = admin;
    status = rps_http_start(&admin->http, &plan, &options, error);
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
    return rps_http_address(admin->http);
}

uint16_t
rps_admin_port(const struct rps_admin *admin)
{
    return rps_http_port(admin->http);
}

void
rps_admin_stop(struct rps_admin *admin)
{
    if (admin == NULL) {
        return;
    }
    rps_http_stop(admin->http);
    rps_service_figures_finish(&admin->figures);
    free(admin);
}
