/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether and when there is an admin port. It is opened before the main one,
 * so that probes are answered while that is waited for. One that was asked for
 * must be free, after a while at the latest; the default gives way to whoever
 * has it, and is tried again: the other may be this server's predecessor.
 */
#include "admin/port_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "server/daemon/daemon_impl.h"
#include "server/daemon/signals.h"

#include <netinet/in.h>
#include <string.h>

static bool
is_any(const struct sockaddr_storage *address)
{
    if (address->ss_family == AF_INET) {
        return ((const struct sockaddr_in *)address)->sin_addr.s_addr ==
               htonl(INADDR_ANY);
    }
    return IN6_IS_ADDR_UNSPECIFIED(
                   &((const struct sockaddr_in6 *)address)->sin6_addr) != 0;
}

/* Would one keep the other's port? Of one family: IPv6 sockets take no IPv4. */
static bool
meet(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family) {
        return false;
    }
    if (is_any(a) || is_any(b)) {
        return true;
    }
    if (a->ss_family == AF_INET) {
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    }
    return IN6_ARE_ADDR_EQUAL(&((const struct sockaddr_in6 *)a)->sin6_addr,
                   &((const struct sockaddr_in6 *)b)->sin6_addr) != 0;
}

static bool
plans_meet(const struct rps_listen_plan *a, const struct rps_listen_plan *b)
{
    bool found = false;

    for (uint32_t i = 0; a->port != 0 && a->port == b->port && i < a->count;
            i++) {
        for (uint32_t k = 0; k < b->count; k++) {
            found = found ||
                    meet(&a->addresses[i].storage, &b->addresses[k].storage);
        }
    }
    return found;
}

int
rps_daemon_check_admin(const struct rps_options *options,
        const struct rps_listen_plan *plan, bool *off_out)
{
    struct rps_listen_plan admin;
    struct rps_error error = {.text = ""};
    const bool own_bind = options->bind != NULL && options->bind[0] != '\0';
    rps_status status;

    *off_out = strcmp(options->admin, "off") == 0;
    if (*off_out) {
        return RPS_EXIT_OK;
    }
    status = rps_listen_plan_make(&admin, options->admin, NULL, &error);
    if (status != RPS_OK) {
        rps_log_status(RPS_LOG_ERROR, "admin_failed", status, "--admin: %s",
                error.text);
        return status == RPS_E_RETRY_LATER ? RPS_EXIT_AGAIN : RPS_EXIT_USAGE;
    }
    if (!plans_meet(&admin, plan)) {
        return RPS_EXIT_OK;
    }
    if (!rps_option_given(options, "admin")) {
        *off_out = true;
        rps_log(RPS_LOG_WARN, "admin_off",
                "%s is the port that %s asks for; going on without probes and "
                "metrics: give --admin HOST:PORT",
                options->admin, own_bind ? "--bind" : "the own entry");
        return RPS_EXIT_OK;
    }
    rps_log(RPS_LOG_ERROR, "bad_address",
            "--admin %s and %s %s ask for the same port: give --admin another "
            "one, or off",
            options->admin, own_bind ? "--bind" : "the own entry",
            own_bind ? options->bind
            : options->cluster.own_address != NULL
                    ? options->cluster.own_address
                    : "127.0.0.1:2222");
    return RPS_EXIT_USAGE;
}

static int
write_file(struct rps_daemon *daemon)
{
    const char *path = daemon->options->admin_port_file;
    struct rps_error error = {.text = ""};

    if (path == NULL || path[0] == '\0' ||
            rps_port_file_write(path, rps_admin_port(daemon->admin), &error) ==
                    RPS_OK) {
        return RPS_EXIT_OK;
    }
    rps_log(RPS_LOG_ERROR, "port_file", "--admin-port-file: %s", error.text);
    return RPS_EXIT_USAGE;
}

static int
refuse(rps_status status, const struct rps_error *error)
{
    rps_log_status(
            RPS_LOG_ERROR, "admin_failed", status, "--admin: %s", error->text);
    return status == RPS_E_INVAL         ? RPS_EXIT_USAGE
           : status == RPS_E_RETRY_LATER ? RPS_EXIT_AGAIN
                                         : RPS_EXIT_INTERNAL;
}

/* As the main port's: often it is ours, on its way out. */
static int
wait_for_port(struct rps_daemon *daemon, struct rps_error *error)
{
    const uint64_t give_up = rps_clock_ms() + RPS_BIND_WAIT_MS;
    rps_status status = RPS_E_RETRY_LATER;

    rps_log(RPS_LOG_WARN, "admin_in_use", "--admin: %s; trying for %u s",
            error->text, RPS_BIND_WAIT_MS / 1000);
    while (status == RPS_E_RETRY_LATER && rps_clock_ms() < give_up) {
        const int signal_number = rps_signals_sleep(RPS_BIND_RETRY_MS);

        if (signal_number != 0) {
            return RPS_EXIT_SIGNAL + signal_number;
        }
        status = rps_admin_start(
                &daemon->admin, daemon->options->admin, &daemon->view, error);
    }
    return status == RPS_OK ? write_file(daemon) : refuse(status, error);
}

int
rps_daemon_start_admin(struct rps_daemon *daemon)
{
    const struct rps_options *options = daemon->options;
    struct rps_error error = {.text = ""};
    rps_status status;

    if (daemon->admin_off) {
        return RPS_EXIT_OK;
    }
    status = rps_admin_start(
            &daemon->admin, options->admin, &daemon->view, &error);
    if (status == RPS_OK) {
        return write_file(daemon);
    }
    if (status != RPS_E_RETRY_LATER) {
        return refuse(status, &error);
    }
    if (rps_option_given(options, "admin")) {
        return wait_for_port(daemon, &error);
    }
    daemon->admin_wanted = true;
    rps_log(RPS_LOG_WARN, "admin_off",
            "%s; going on without probes and metrics until it is free: give "
            "--admin HOST:PORT, or --admin off",
            error.text);
    return RPS_EXIT_OK;
}

void
rps_daemon_retry_admin(struct rps_daemon *daemon)
{
    struct rps_error error = {.text = ""};

    if (!daemon->admin_wanted || daemon->stopping != RPS_STOPPING_NOT) {
        return;
    }
    if (rps_admin_start(&daemon->admin, daemon->options->admin, &daemon->view,
                &error) == RPS_OK) {
        daemon->admin_wanted = false;
        rps_log(RPS_LOG_INFO, "admin_on", "admin=%s: it was freed",
                rps_admin_address(daemon->admin));
        (void)write_file(daemon);
    }
}
