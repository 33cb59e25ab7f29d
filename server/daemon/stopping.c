/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the end of the daemon, up to the end of its main loop:
 *
 *   SERVES   /readyz is 503 and systemd knows; requests and new connections
 *            are served as before. Until --drain-delay is over (who routes
 *            connections here has seen /readyz), and the checkpoint that the
 *            chief was asked for is there, or half of --drain-timeout is over
 *   DRAINS   nothing new: no connections, requests are answered RETRY_LATER;
 *            what is in hand is finished and sent
 *   the end  of the main loop: drained, or --drain-timeout is over
 */
#include "base/clock.h"
#include "base/log.h"
#include "server/daemon/daemon_impl.h"
#include "server/daemon/notify.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

#define SETTLING_MS 50
#define MORE_TIME_US                                         \
    5000000u /* beyond --drain-timeout: memory is given back \
              */

static void
drain(struct rps_daemon *daemon)
{
    daemon->stopping = RPS_STOPPING_DRAINS;
    evtimer_del(daemon->settling);
    rps_listener_close(daemon->listener);
    daemon->listener = NULL;
    atomic_store(&daemon->shared.stop_reason, daemon->stop_reason);
    for (uint32_t i = 0; i < daemon->loop_count; i++) {
        rps_loop_drain(daemon->loops[i]);
    }
}

bool
rps_daemon_is_saved_for_stop(const struct rps_daemon *daemon)
{
    return daemon->end_wished == RPS_END_WISH_SAVE &&
           rps_service_saved_cut(daemon->service) > daemon->cuts_before;
}

/* Has the chief done what it was asked for, or is it hopeless? */
static bool
is_save_over(struct rps_daemon *daemon, uint64_t waited_ms)
{
    const double half_ms = daemon->options->drain_timeout * 500.0;

    if (daemon->end_wished == RPS_END_WISH_STOP
                    ? daemon->shutdown_came
                    : rps_daemon_is_saved_for_stop(daemon)) {
        return true;
    }
    if (!rps_service_chief_connected(daemon->service)) {
        rps_log(RPS_LOG_WARN, "not_saved", "the chief left before it saved");
        return true;
    }
    if ((double)waited_ms >= half_ms) {
        rps_log(RPS_LOG_WARN, "not_saved",
                "the chief did not save within %.1f s, half of drain_timeout",
                half_ms / 1e3);
        return true;
    }
    return false;
}

/* True: it is drained from here on, or was already. */
static bool
settle(struct rps_daemon *daemon)
{
    const uint64_t waited_ms = rps_clock_ms() - daemon->stop_since_ms;

    if (daemon->waits_for_chief && is_save_over(daemon, waited_ms)) {
        daemon->waits_for_chief = false;
    }
    if (daemon->waits_for_chief || waited_ms < daemon->delay_ms) {
        return false;
    }
    drain(daemon);
    return true;
}

void
rps_daemon_on_shutdown(evutil_socket_t fd, short what, void *context)
{
    struct rps_daemon *daemon = context;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));

    (void)n;
    (void)what;
    daemon->shutdown_came = true;
    if (daemon->stopping == RPS_STOPPING_NOT) {
        rps_daemon_stop(daemon, RPS_EXIT_OK, "SHUTDOWN", false);
    } else if (daemon->stopping == RPS_STOPPING_SERVES) {
        if (daemon->end_wished != RPS_END_WISH_STOP) {
            daemon->exit_code = RPS_EXIT_OK; /* the job's own end was first */
        }
        (void)settle(daemon);
    }
}

void
rps_daemon_on_settling(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)settle(context);
}

rps_status
rps_daemon_wish_save(struct rps_daemon *daemon, struct rps_error *error)
{
    const char *folder = daemon->options->checkpoint_dir;

    if (folder == NULL || folder[0] == '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "there is no checkpoint_dir; set --checkpoint-dir, the same "
                "for the whole job");
    }
    return rps_service_wish_save(daemon->service, error);
}

/* What no checkpoint holds is the chief's to save; it is asked. So it is for
 * the end of a job that cannot go on without this server. */
static void
wish_end(struct rps_daemon *daemon)
{
    struct rps_error error = {.text = ""};
    const bool has_folder = rps_daemon_checkpoint_dir(daemon->options) != NULL;

    rps_service_end_begins(daemon->service);
    /* a save that runs by now lacks what changed since its cut */
    daemon->cuts_before = rps_service_cuts(daemon->service);
    if (has_folder) {
        daemon->end_wished = rps_service_wish_end(daemon->service, &error);
    }
    daemon->waits_for_chief = daemon->end_wished != RPS_END_WISH_NONE;
    if (daemon->waits_for_chief) {
        rps_log(RPS_LOG_INFO, "checkpoint_wished",
                "waiting for the chief to save%s, %.1f s at most",
                daemon->end_wished == RPS_END_WISH_STOP
                        ? " and end the job, which cannot go on without this "
                          "server (no --recover)"
                        : "",
                daemon->options->drain_timeout / 2.0);
    }
}

static struct timeval
time_of(double seconds)
{
    return (struct timeval){.tv_sec = (time_t)seconds,
            .tv_usec =
                    (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};
}

static void
say_stopping(const struct rps_daemon *daemon)
{
    const double seconds = daemon->options->drain_timeout;

    rps_log(RPS_LOG_INFO, "stopping",
            "%s: finishing the requests in hand, %.1f s at most",
            daemon->stop_reason, seconds);
    rps_notify("STOPPING=1\nSTATUS=stopping (%s)\nEXTEND_TIMEOUT_USEC=%" PRIu64,
            daemon->stop_reason, (uint64_t)(seconds * 1e6) + MORE_TIME_US);
}

void
rps_daemon_stop(struct rps_daemon *daemon, int exit_code, const char *reason,
        bool delay)
{
    const struct rps_options *options = daemon->options;
    const struct timeval limit = time_of(options->drain_timeout);
    const struct timeval poll = {.tv_usec = SETTLING_MS * 1000};

    daemon->stopping = RPS_STOPPING_SERVES;
    daemon->exit_code = exit_code;
    daemon->stop_reason = reason;
    daemon->stop_since_ms = rps_clock_ms();
    atomic_store(&daemon->view.stop, reason);
    rps_view_enter(&daemon->view, RPS_STAGE_DRAINING);
    say_stopping(daemon);
    evtimer_add(daemon->deadline, &limit);
    if (delay) {
        /* nobody routes to a loopback address */
        if (rps_option_given(options, "drain_delay")) {
            daemon->delay_ms = (uint64_t)(options->drain_delay * 1e3);
        } else if (!daemon->loopback) { /* and time is left to drain in */
            daemon->delay_ms = (uint64_t)(fmin(options->drain_delay,
                                                  options->drain_timeout / 2) *
                                          1e3);
        }
        wish_end(daemon);
    }
    if (!settle(daemon)) {
        event_add(daemon->settling, &poll);
    }
}

void
rps_daemon_on_drained(evutil_socket_t fd, short what, void *context)
{
    struct rps_daemon *daemon = context;
    uint64_t count = 0;
    ssize_t n = read(fd, &count, sizeof(count));

    (void)what;
    if (n == (ssize_t)sizeof(count)) {
        daemon->loops_drained += (uint32_t)count;
    }
    if (daemon->loops_drained >= daemon->loop_count) {
        event_base_loopbreak(daemon->base);
    }
}

void
rps_daemon_on_deadline(evutil_socket_t fd, short what, void *context)
{
    struct rps_daemon *daemon = context;

    (void)fd;
    (void)what;
    rps_log(RPS_LOG_WARN, "drain_timeout",
            "requests in hand are not finished; stopping all the same");
    event_base_loopbreak(daemon->base);
}
