/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The admin port: probes, metrics and the configuration over HTTP, in a
 * thread of its own, so that it answers when the loops do not. Nothing can be
 * changed through it.
 */
#ifndef RPS_SERVER_DAEMON_ADMIN_H
#define RPS_SERVER_DAEMON_ADMIN_H

#include "base/error.h"
#include "server/daemon/view.h"

#include <stdbool.h>
#include <stdint.h>

struct rps_admin;

#define RPS_ADMIN_TABLES_MS 200u /* wait for the tables' figures */

/**
 * Bind `address` (host:port) and start the thread. *view outlives it.
 *
 * Errors: INVAL (address), RETRY_LATER (in use), NOMEM, IO.
 */
rps_status rps_admin_start(struct rps_admin **admin_out, const char *address,
        struct rps_view *view, struct rps_error *error);

/** The address that was bound, as text, and its port. */
const char *rps_admin_address(const struct rps_admin *admin);
uint16_t rps_admin_port(const struct rps_admin *admin);

/** Close and end the thread. NULL is allowed. */
void rps_admin_stop(struct rps_admin *admin);

/* The checks of /livez and /readyz, for others who are asked the same. */

/** Every loop turned within live_timeout. `why` (may be NULL) gets the first
 * that did not. */
bool rps_is_live(const struct rps_view *view, struct rps_error *why);

/** This server can serve, whatever its peers do. */
bool rps_is_ready(const struct rps_view *view, struct rps_error *why);

#endif /* RPS_SERVER_DAEMON_ADMIN_H */
