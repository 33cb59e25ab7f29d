/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/daemon.h"

#include "base/clock.h"
#include "base/log.h"
#include "server/daemon/access.h"
#include "server/daemon/listener.h"
#include "server/daemon/loop.h"
#include "server/daemon/pages.h"
#include "server/daemon/peer_log.h"
#include "server/daemon/signals.h"
#include "server/service.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define SPARE_FILES 64u /* beside the connections: files, loops, log */

struct daemon {
    const struct rps_options *options;
    struct rps_service *service;
    struct rps_access access;
    struct rps_loops_shared shared;
    struct rps_loop *loops[RPS_LOOPS_MAX];
    uint32_t loop_count;
    struct rps_listener *listener;

    /* main thread's loop */
    struct event_base *base;
    struct event *signal_event;
    struct event *shutdown_event;
    struct event *drained_event;
    struct event *deadline;
    struct event *tick;
    int signal_fd;
    int shutdown_fd; /* eventfd: SHUTDOWN was accepted, by any thread */
    uint32_t loops_drained;
    bool stopping;
    int exit_code;
};

static void
on_service_event(void *context, int level, const char *event, const char *text)
{
    (void)context;
    rps_peer_log((enum rps_log_level)level, event, "%s", text);
}

static void
on_service_shutdown(void *context)
{
    struct daemon *daemon = context;
    uint64_t one = 1;
    ssize_t n = write(daemon->shutdown_fd, &one, sizeof(one));

    (void)n; /* full: it is readable already */
}

/* ---- before anything is opened ---- */

static int
check_role(const struct rps_cluster *cluster)
{
    if (cluster->role == RPS_ROLE_PS || cluster->role == RPS_ROLE_LOCAL) {
        return RPS_EXIT_OK;
    }
    rps_log(RPS_LOG_ERROR, "wrong_role",
            "this task is %s %" PRIu32 ", and recpsd serves as ps only: "
            "give task {\"type\": \"ps\", \"index\": N} or "
            "--job-name ps --task-index N",
            rps_role_str(cluster->role), cluster->index);
    return RPS_EXIT_CONFIG;
}

static int
check_address(const struct rps_options *options, struct rps_listen_plan *plan)
{
    struct rps_error error = {.text = ""};
    bool own_bind = options->bind != NULL && options->bind[0] != '\0';

    if (rps_listen_plan_make(plan, options->bind, options->cluster.own_address,
                &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "bad_address", "%s", error.text);
        return own_bind ? RPS_EXIT_USAGE : RPS_EXIT_CONFIG;
    }
    if (plan->port == 0 &&
            (options->port_file == NULL || options->port_file[0] == '\0')) {
        rps_log(RPS_LOG_ERROR, "bad_address",
                "port 0 takes any port: give --port-file, so that it can be "
                "found");
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

static const char *
checkpoint_dir(const struct rps_options *options)
{
    const char *dir = options->checkpoint_dir;

    return dir != NULL && dir[0] != '\0' ? dir : NULL;
}

static void
raise_file_limit(uint64_t connections_max)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return;
    }
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur != RLIM_INFINITY &&
            limit.rlim_cur < connections_max + SPARE_FILES) {
        rps_log(RPS_LOG_WARN, "few_files",
                "the limit of %ju open files is below connections_max %" PRIu64
                " + %u: raise it (ulimit -n)",
                (uintmax_t)limit.rlim_cur, connections_max, SPARE_FILES);
    }
}

/* ---- start ---- */

/* A port in use is often ours, on its way out: it is tried for a while. */
static int
open_listener(struct daemon *daemon, const struct rps_listen_plan *plan)
{
    struct rps_error error = {.text = ""};
    uint64_t give_up = rps_clock_ms() + RPS_BIND_WAIT_MS;
    bool said = false;

    for (;;) {
        rps_status status = rps_listener_open(&daemon->listener, plan, &error);
        int signal_number;

        if (status == RPS_OK) {
            return RPS_EXIT_OK;
        }
        if (status != RPS_E_RETRY_LATER) {
            rps_log(RPS_LOG_ERROR, "listen_failed", "%s", error.text);
            return daemon->options->bind != NULL &&
                                   daemon->options->bind[0] != '\0'
                           ? RPS_EXIT_USAGE
                           : RPS_EXIT_CONFIG;
        }
        if (rps_clock_ms() >= give_up) {
            rps_log(RPS_LOG_ERROR, "port_in_use",
                    "%s; gave up: another recpsd, or give another port",
                    error.text);
            return RPS_EXIT_AGAIN;
        }
        if (!said) {
            rps_log(RPS_LOG_WARN, "port_in_use", "%s; trying for %u s",
                    error.text, RPS_BIND_WAIT_MS / 1000);
            said = true;
        }
        signal_number = rps_signals_sleep(RPS_BIND_RETRY_MS);
        if (signal_number != 0) {
            return RPS_EXIT_SIGNAL + signal_number;
        }
    }
}

static int
create_service(struct daemon *daemon)
{
    const struct rps_options *options = daemon->options;
    const struct rps_cluster *cluster = &options->cluster;
    struct rps_error error = {.text = ""};
    struct rps_service_options settings = {
            .ps_index = cluster->role == RPS_ROLE_PS ? cluster->index : 0,
            .ps_count = cluster->ps_count > 0 ? cluster->ps_count : 1,
            .job_id = options->job_id,
            .job_seed = options->job_seed,
            /* a standalone server has no list to compare */
            .fingerprint =
                    cluster->role == RPS_ROLE_LOCAL ? 0 : cluster->fingerprint,
            .checkpoint_dir = checkpoint_dir(options),
            .step_bytes_max = options->step_bytes_max,
            .step_timeout_ms = (uint32_t)(options->step_timeout * 1000.0),
            .background = true,
            .memory_limit = options->memory_limit,
            .numa = options->numa,
            .token = &daemon->access.token,
            .event = on_service_event,
            .shutdown = on_service_shutdown,
            .context = daemon,
    };
    rps_status status = rps_service_create(&daemon->service, &settings, &error);

    if (status == RPS_E_IO) {
        rps_log(RPS_LOG_ERROR, "checkpoint_dir", "%s", error.text);
        return RPS_EXIT_CHECKPOINT_DIR;
    }
    if (status != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "start_failed", "%s", error.text);
        return RPS_EXIT_INTERNAL;
    }
    daemon->shared.service = daemon->service;
    return RPS_EXIT_OK;
}

static uint32_t
loops_wanted(uint64_t asked)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    if (asked > 0) {
        return asked < RPS_LOOPS_MAX ? (uint32_t)asked : RPS_LOOPS_MAX;
    }
    if (cores < 1) {
        return 1;
    }
    return cores < (long)RPS_LOOPS_AUTO_MAX ? (uint32_t)cores
                                            : RPS_LOOPS_AUTO_MAX;
}

static int
start_loops(struct daemon *daemon)
{
    struct rps_error error = {.text = ""};
    uint32_t wanted = loops_wanted(daemon->options->loops);

    daemon->shared.greeters_max =
            (uint32_t)(daemon->options->handshakes_max + wanted - 1) / wanted;
    for (uint32_t i = 0; i < wanted; i++) {
        if (rps_loop_start(&daemon->loops[i], i, &daemon->shared, &error) !=
                RPS_OK) {
            rps_log(RPS_LOG_ERROR, "start_failed", "%s", error.text);
            return RPS_EXIT_INTERNAL;
        }
        daemon->loop_count = i + 1;
    }
    if (rps_listener_start(daemon->listener, daemon->base, daemon->loops,
                daemon->loop_count, &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "start_failed", "%s", error.text);
        return RPS_EXIT_INTERNAL;
    }
    return RPS_EXIT_OK;
}

static void
say_started(const struct daemon *daemon)
{
    const struct rps_options *options = daemon->options;
    const struct rps_cluster *cluster = &options->cluster;
    const char *dir = checkpoint_dir(options);
    const char *chief = "none";

    if (cluster->chief_address != NULL) {
        chief = "chief:0";
    } else if (cluster->workers_listed > 0) {
        chief = "worker:0";
    }
    rps_log(RPS_LOG_INFO, "listening",
            "address=%s role=%s index=%" PRIu32 " n_ps=%" PRIu32
            " chief=%s own_address=%s fingerprint=%016" PRIx64
            " job_id=%s checkpoint_dir=%s loops=%" PRIu32 " auth=%s version=%s",
            rps_listener_text(daemon->listener), rps_role_str(cluster->role),
            cluster->index, cluster->ps_count, chief,
            cluster->own_address != NULL ? cluster->own_address : "none",
            cluster->fingerprint, options->job_id, dir != NULL ? dir : "none",
            daemon->loop_count, rps_access_str(&daemon->access), RPS_VERSION);
}

/* ---- the end ---- */

/* Stop accepting, finish what is in hand; the rest follows on_drained. */
static void
begin_stop(struct daemon *daemon, int exit_code, const char *reason)
{
    double seconds = daemon->options->drain_timeout;
    struct timeval wait = {.tv_sec = (time_t)seconds,
            .tv_usec =
                    (suseconds_t)((seconds - (double)(time_t)seconds) * 1e6)};

    daemon->stopping = true;
    daemon->exit_code = exit_code;
    rps_log(RPS_LOG_INFO, "stopping",
            "%s: finishing the requests in hand, %.1f s at most", reason,
            seconds);
    rps_listener_close(daemon->listener);
    daemon->listener = NULL;
    for (uint32_t i = 0; i < daemon->loop_count; i++) {
        rps_loop_drain(daemon->loops[i]);
    }
    evtimer_add(daemon->deadline, &wait);
}

static void
on_signal(evutil_socket_t fd, short what, void *context)
{
    struct daemon *daemon = context;
    int signal_number;

    (void)what;
    while ((signal_number = rps_signals_read(fd)) != 0) {
        const char *name = signal_number == SIGTERM ? "SIGTERM" : "SIGINT";

        if (signal_number == SIGHUP) {
            (void)rps_access_reload(&daemon->access, daemon->service);
            continue;
        }
        if (daemon->stopping) {
            rps_log(RPS_LOG_WARN, "stopped", "%s again: stopping at once",
                    name);
            rps_peer_log_rest(true);
            _exit(RPS_EXIT_SIGNAL + signal_number);
        }
        begin_stop(daemon, RPS_EXIT_SIGNAL + signal_number, name);
    }
}

static void
on_shutdown(evutil_socket_t fd, short what, void *context)
{
    struct daemon *daemon = context;
    uint64_t count;
    ssize_t n = read(fd, &count, sizeof(count));

    (void)n;
    (void)what;
    if (!daemon->stopping) {
        begin_stop(daemon, RPS_EXIT_OK, "SHUTDOWN");
    }
}

static void
on_drained(evutil_socket_t fd, short what, void *context)
{
    struct daemon *daemon = context;
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

static void
on_deadline(evutil_socket_t fd, short what, void *context)
{
    struct daemon *daemon = context;

    (void)fd;
    (void)what;
    rps_log(RPS_LOG_WARN, "drain_timeout",
            "requests in hand are not finished; stopping all the same");
    event_base_loopbreak(daemon->base);
}

static void
on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
    rps_peer_log_rest(false);
}

static bool
make_events(struct daemon *daemon)
{
    const struct timeval second = {.tv_sec = 1};

    daemon->base = event_base_new();
    daemon->shutdown_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    daemon->shared.drained_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (daemon->base == NULL || daemon->shutdown_fd < 0 ||
            daemon->shared.drained_fd < 0) {
        return false;
    }
    daemon->signal_event = event_new(daemon->base, daemon->signal_fd,
            EV_READ | EV_PERSIST, on_signal, daemon);
    daemon->shutdown_event = event_new(daemon->base, daemon->shutdown_fd,
            EV_READ | EV_PERSIST, on_shutdown, daemon);
    daemon->drained_event = event_new(daemon->base, daemon->shared.drained_fd,
            EV_READ | EV_PERSIST, on_drained, daemon);
    daemon->deadline = evtimer_new(daemon->base, on_deadline, daemon);
    daemon->tick = event_new(daemon->base, -1, EV_PERSIST, on_tick, NULL);
    return daemon->signal_event != NULL && daemon->tick != NULL &&
           daemon->shutdown_event != NULL && daemon->drained_event != NULL &&
           daemon->deadline != NULL &&
           event_add(daemon->signal_event, NULL) == 0 &&
           event_add(daemon->shutdown_event, NULL) == 0 &&
           event_add(daemon->drained_event, NULL) == 0 &&
           event_add(daemon->tick, &second) == 0;
}

static void
free_event(struct event *event)
{
    if (event != NULL) {
        event_free(event);
    }
}

static void
close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

/* Says what dies with this process: nobody else can know it. */
static void
say_unsaved(struct rps_service *service)
{
    char *text = service == NULL ? NULL : rps_service_unsaved(service);

    if (text != NULL) {
        bool nothing = strncmp(text, "nothing", strlen("nothing")) == 0;

        rps_log(nothing ? RPS_LOG_INFO : RPS_LOG_WARN, "unsaved", "%s", text);
    }
    free(text);
}

/* Takes down whatever was built. */
static void
finish(struct daemon *daemon)
{
    rps_signals_last_resort();
    rps_listener_close(daemon->listener);
    for (uint32_t i = 0; i < daemon->loop_count; i++) {
        rps_loop_stop(daemon->loops[i]);
    }
    if (daemon->stopping) {
        say_unsaved(daemon->service);
    }
    if (daemon->service != NULL) {
        rps_service_destroy(daemon->service);
    }
    rps_access_finish(&daemon->access);
    free_event(daemon->signal_event);
    free_event(daemon->shutdown_event);
    free_event(daemon->drained_event);
    free_event(daemon->deadline);
    free_event(daemon->tick);
    if (daemon->base != NULL) {
        event_base_free(daemon->base);
    }
    close_fd(daemon->signal_fd);
    close_fd(daemon->shutdown_fd);
    close_fd(daemon->shared.drained_fd);
    rps_peer_log_rest(true);
    if (daemon->stopping) {
        rps_log(RPS_LOG_INFO, "stopped", "exit code %d", daemon->exit_code);
    }
}

static int
write_port_file(const struct daemon *daemon)
{
    const char *path = daemon->options->port_file;
    struct rps_error error = {.text = ""};

    if (path == NULL || path[0] == '\0') {
        return RPS_EXIT_OK;
    }
    if (rps_port_file_write(
                path, rps_listener_port(daemon->listener), &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "port_file", "%s", error.text);
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

static int
start(struct daemon *daemon, struct rps_listen_plan *plan)
{
    int code = create_service(daemon);

    if (code == RPS_EXIT_OK && !make_events(daemon)) {
        rps_log(RPS_LOG_ERROR, "start_failed", "no memory for the main loop");
        code = RPS_EXIT_INTERNAL;
    }
    if (code == RPS_EXIT_OK) {
        code = open_listener(daemon, plan);
    }
    if (code == RPS_EXIT_OK) {
        code = start_loops(daemon);
    }
    if (code == RPS_EXIT_OK) {
        code = write_port_file(daemon);
    }
    return code;
}

int
rps_daemon_run(const struct rps_options *options)
{
    struct daemon daemon = {.options = options,
            .signal_fd = -1,
            .shutdown_fd = -1,
            .shared = {.drained_fd = -1}};
    struct rps_listen_plan plan;
    struct rps_error error = {.text = ""};
    int code = check_role(&options->cluster);

    if (code == RPS_EXIT_OK) {
        code = check_address(options, &plan);
    }
    if (code == RPS_EXIT_OK) {
        code = rps_access_init(&daemon.access, options, &plan);
    }
    if (code != RPS_EXIT_OK) {
        rps_access_finish(&daemon.access);
        return code;
    }
    if (rps_signals_init(&daemon.signal_fd, &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "start_failed", "%s", error.text);
        return RPS_EXIT_INTERNAL;
    }
    raise_file_limit(options->connections_max);
    rps_huge_pages_check(RPS_HUGE_PAGES_SETTING);
    daemon.shared.access = &daemon.access;
    daemon.shared.connections_max =
            options->connections_max < UINT32_MAX - RPS_CONN_SURPLUS_MAX
                    ? (uint32_t)options->connections_max
                    : UINT32_MAX - RPS_CONN_SURPLUS_MAX;
    atomic_init(&daemon.shared.connections, 0);
    code = start(&daemon, &plan);
    if (code == RPS_EXIT_OK) {
        say_started(&daemon);
        event_base_dispatch(daemon.base);
        code = daemon.exit_code;
    }
    finish(&daemon);
    return code;
}
