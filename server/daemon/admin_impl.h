/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the admin port's files: admin.c has the table of pages; each page is
 * a function that fills an answer.
 */
#ifndef RPS_SERVER_DAEMON_ADMIN_IMPL_H
#define RPS_SERVER_DAEMON_ADMIN_IMPL_H

#include "admin/http.h"
#include "server/daemon/admin.h"
#include "server/figures.h"

#include <stdbool.h>

struct rps_admin_request {
    const struct rps_view *view;
    struct rps_service_figures *figures; /* of the last look: see its header */
    const char *query;                   /* what comes after '?', or NULL */
    bool verbose;                        /* ?verbose */
    bool local; /* asked from this host: may see keys */
};

/** A page. The answer comes as 200, text/plain, empty, with a policy that
 * lets a browser do nothing with it. Admin thread. */
typedef void rps_admin_page(const struct rps_admin_request *request,
        struct rps_http_answer *answer);

/* admin_probes.c */
rps_admin_page rps_admin_livez;
rps_admin_page rps_admin_readyz;
rps_admin_page rps_admin_startupz;

/* admin_metrics.c */
rps_admin_page rps_admin_metrics;

/* admin_config.c */
rps_admin_page rps_admin_configz;

/* admin_page.c */
rps_admin_page rps_admin_page_for_people;
rps_admin_page rps_admin_hotz;

#endif /* RPS_SERVER_DAEMON_ADMIN_IMPL_H */
