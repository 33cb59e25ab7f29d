/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/daemon.h"

#include "admin/port_file.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "server/daemon/daemon_impl.h"
#include "server/daemon/notify.h"
#include "server/daemon/pages.h"
#include "server/daemon/peer_log.h"
#include "server/daemon/signals.h"
#include "server/daemon/stat_times.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#define BUFFERS_BYTES_MIN (64ull << 20)
#define SPARE_FILES       64u /* beside the connections: files, loops, log */

static void
on_service_event(void *context, int level, const char *event, const char *text)
{
    (void)context;
    rps_peer_log((enum rps_log_level)level, event, "%s", text);
}

static void
on_service_times(void *context, json_t *stat)
{
    const struct rps_daemon *daemon = context;

    rps_stat_times_add(&daemon->view, stat);
}

static void
on_service_shutdown(void *context)
{
    struct rps_daemon *daemon = context;
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

int
rps_daemon_check_address(
        const struct rps_options *options, struct rps_listen_plan *plan)
{
    struct rps_error error = {.text = ""};
    const bool own_bind = options->bind != NULL && options->bind[0] != '\0';
    const rps_status status = rps_listen_plan_make(
            plan, options->bind, options->cluster.own_address, &error);

    if (status != RPS_OK) {
        rps_log_status(RPS_LOG_ERROR, "bad_address", status, "%s: %s",
                own_bind ? "--bind" : "the own entry of the cluster",
                error.text);
        return status == RPS_E_RETRY_LATER ? RPS_EXIT_AGAIN
               : own_bind                  ? RPS_EXIT_USAGE
                                           : RPS_EXIT_CONFIG;
    }
    if (plan->port == 0 &&
            (options->port_file == NULL || options->port_file[0] == '\0')) {
        rps_log(RPS_LOG_ERROR, "bad_address",
                "%s: port 0 takes any port: give --port-file, so that it can "
                "be found",
                own_bind ? "--bind" : "the own entry of the cluster");
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

const char *
rps_daemon_checkpoint_dir(const struct rps_options *options)
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

static int
write_port_file(const char *path, uint16_t port)
{
    struct rps_error error = {.text = ""};

    if (path == NULL || path[0] == '\0') {
        return RPS_EXIT_OK;
    }
    if (rps_port_file_write(path, port, &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "port_file", "--port-file: %s", error.text);
        return RPS_EXIT_USAGE;
    }
    return RPS_EXIT_OK;
}

static uint32_t
own_index(const struct rps_cluster *cluster)
{
    return cluster->role == RPS_ROLE_PS ? cluster->index : 0;
}

/* A port in use is often ours, on its way out: it is tried for a while. */
/* INVAL is about the address; else it is the Unix socket's folder. */
static int
listen_failed(const struct rps_options *options, rps_status status,
        const struct rps_error *error)
{
    const bool bound = options->bind != NULL && options->bind[0] != '\0';
    const bool of_bind = bound && status == RPS_E_INVAL;

    rps_log_status(RPS_LOG_ERROR, "listen_failed", status, "%s%s",
            of_bind ? "--bind: " : "", error->text);
    return of_bind || status != RPS_E_INVAL ? RPS_EXIT_USAGE : RPS_EXIT_CONFIG;
}

static int
open_listener(struct rps_daemon *daemon, const struct rps_listen_plan *plan)
{
    struct rps_error error = {.text = ""};
    const struct rps_unix_plan unix_plan = {
            .unix_dir = daemon->options->unix_dir,
            .job_id = daemon->options->job_id,
            .ps = own_index(&daemon->options->cluster),
    };
    uint64_t give_up = rps_clock_ms() + RPS_BIND_WAIT_MS;
    bool said = false;

    for (;;) {
        rps_status status =
                rps_listener_open(&daemon->listener, plan, &unix_plan, &error);
        int signal_number;

        if (status == RPS_OK) {
            return RPS_EXIT_OK;
        }
        if (status != RPS_E_RETRY_LATER) {
            return listen_failed(daemon->options, status, &error);
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

/* The kernel kills who exceeds the group's limit; ours refuses keys. */
static void
check_memory_limit(const struct rps_daemon *daemon)
{
    const uint64_t group = daemon->view.memory_max;
    const uint64_t own = daemon->options->memory_limit;

    if (group > 0 && (own == 0 || own > group)) {
        rps_log(RPS_LOG_WARN, "memory_limit",
                "the control group has %" PRIu64 " bytes and --memory-limit "
                "is %" PRIu64 "%s: the kernel kills the server where tables "
                "grow beyond; give --memory-limit, three quarters of it, say",
                group, own, own == 0 ? " (none)" : "");
    }
}

/* What the admin thread may look at, and what it is warned of. */
static void
prepare_view(struct rps_daemon *daemon)
{
    daemon->view.options = daemon->options;
    daemon->view.service = daemon->service;
    daemon->view.shared = &daemon->shared;
    daemon->view.memory_max =
            rps_cgroup_memory_max("/proc/self/cgroup", "/sys/fs/cgroup");
    check_memory_limit(daemon);
}

static int
create_service(struct rps_daemon *daemon)
{
    const struct rps_options *options = daemon->options;
    const struct rps_cluster *cluster = &options->cluster;
    struct rps_error error = {.text = ""};
    struct rps_service_options settings = {
            .ps_index = own_index(cluster),
            .ps_count = cluster->ps_count > 0 ? cluster->ps_count : 1,
            .job_id = options->job_id,
            .job_seed = options->job_seed,
            .incarnation = rps_random_id(),
            /* a standalone server has no list to compare */
            .fingerprint =
                    cluster->role == RPS_ROLE_LOCAL ? 0 : cluster->fingerprint,
            /* who serves saves nothing */
            .checkpoint_dir = rps_daemon_serve_dir(options) == NULL
                                      ? rps_daemon_checkpoint_dir(options)
                                      : NULL,
            .warm_start_dirs = options->warm_start_dirs,
            .step_bytes_max = options->step_bytes_max,
            .step_timeout_ms = (uint32_t)(options->step_timeout * 1000.0),
            .client_ttl_ms = (uint64_t)(options->client_ttl * 1000.0),
            .background = true,
            .memory_limit = options->memory_limit,
            .disk_tier = options->disk_tier,
            .disk_limit = options->disk_limit,
            .save_buffer = options->save_buffer,
            .numa = options->numa,
            .token = &daemon->access.token,
            .event = on_service_event,
            .times = on_service_times,
            .shutdown = on_service_shutdown,
            .context = daemon,
    };
    rps_status status;

    rps_log_job(options->job_id, settings.incarnation);
    status = rps_service_create(&daemon->service, &settings, &error);

    if (status == RPS_E_IO) {
        rps_log_status(RPS_LOG_ERROR, "checkpoint_dir", status,
                "--checkpoint-dir: %s", error.text);
        return RPS_EXIT_CHECKPOINT_DIR;
    }
    if (status != RPS_OK) {
        rps_log_status(RPS_LOG_ERROR, "start_failed", status, "%s", error.text);
        return status == RPS_E_INVAL ? RPS_EXIT_USAGE : RPS_EXIT_INTERNAL;
    }
    if (strcmp(options->start_from, "newest") == 0) {
        status = rps_service_load_newest(daemon->service, &error);
    }
    if (status != RPS_OK) {
        rps_log_status(RPS_LOG_ERROR, "start_failed", status,
                "--start-from newest: %s", error.text);
        return status == RPS_E_INVAL     ? RPS_EXIT_USAGE
               : status == RPS_E_CORRUPT ? RPS_EXIT_CORRUPT
                                         : RPS_EXIT_CHECKPOINT_DIR;
    }
    return rps_daemon_start_serving(daemon);
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

/* They count in memory_limit: a quarter of it, unless somebody chose. */
static uint64_t
buffers_max(const struct rps_options *options)
{
    const uint64_t quarter = options->memory_limit / 4;

    if (quarter == 0 || rps_option_given(options, "buffers_max") ||
            quarter > options->buffers_max) {
        return options->buffers_max;
    }
    return quarter > BUFFERS_BYTES_MIN ? quarter : BUFFERS_BYTES_MIN;
}

static int
start_loops(struct rps_daemon *daemon)
{
    struct rps_error error = {.text = ""};
    uint32_t wanted = loops_wanted(daemon->options->loops);

    daemon->shared.buffers_max = buffers_max(daemon->options);
    daemon->shared.loop_buffers_max = daemon->shared.buffers_max / wanted;
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
say_started(const struct rps_daemon *daemon)
{
    const struct rps_options *options = daemon->options;
    const struct rps_cluster *cluster = &options->cluster;
    const char *dir = rps_daemon_checkpoint_dir(options);
    const char *unix_path = rps_listener_unix_path(daemon->listener);
    const char *chief = "none";

    if (cluster->chief_address != NULL) {
        chief = "chief:0";
    } else if (cluster->workers_listed > 0) {
        chief = "worker:0";
    }
    rps_log(RPS_LOG_INFO, "listening",
            "address=%s role=%s index=%" PRIu32 " n_ps=%" PRIu32
            " chief=%s own_address=%s fingerprint=%016" PRIx64
            " job_id=%s checkpoint_dir=%s loops=%" PRIu32
            " auth=%s unix=%s admin=%s version=%s",
            rps_listener_text(daemon->listener), rps_role_str(cluster->role),
            cluster->index, cluster->ps_count, chief,
            cluster->own_address != NULL ? cluster->own_address : "none",
            cluster->fingerprint, options->job_id, dir != NULL ? dir : "none",
            daemon->loop_count, rps_access_str(&daemon->access),
            unix_path != NULL ? unix_path : "off",
            daemon->admin != NULL ? rps_admin_address(daemon->admin) : "off",
            RPS_VERSION);
}

/* ---- signals, and what is looked at every second ---- */

/* Who read them would take a stranger's port for ours. */
static void
remove_port_files(const struct rps_daemon *daemon)
{
    if (daemon->listening[0] != '\0') {
        rps_port_file_remove(daemon->options->port_file, daemon->port);
    }
    if (daemon->admin != NULL) {
        rps_port_file_remove(daemon->options->admin_port_file,
                rps_admin_port(daemon->admin));
    }
}

static void
on_stop_signal(struct rps_daemon *daemon, int signal_number)
{
    const char *name = signal_number == SIGTERM ? "SIGTERM" : "SIGINT";

    const uint64_t now = rps_clock_ms();

    if (daemon->signalled_ms == 0) {
        daemon->signalled_ms = now;
        if (daemon->stopping != RPS_STOPPING_NOT) {
            rps_log(RPS_LOG_INFO, "stopping",
                    "%s: it stops already (%s); again: at once", name,
                    daemon->stop_reason);
            return;
        }
    }
    if (daemon->stopping != RPS_STOPPING_NOT) {
        if (now - daemon->signalled_ms < RPS_SAME_SIGNAL_MS) {
            return;
        }
        rps_log(RPS_LOG_WARN, "stopped", "%s again: stopping at once", name);
        rps_peer_log_rest(true);
        remove_port_files(daemon);
        _exit(RPS_EXIT_SIGNAL + signal_number);
    }
    daemon->by_signal = true;
    rps_daemon_stop(daemon, RPS_EXIT_SIGNAL + signal_number, name, true);
}

static void
on_save_signal(struct rps_daemon *daemon)
{
    struct rps_error error = {.text = ""};

    if (rps_daemon_wish_save(daemon, &error) == RPS_OK) {
        rps_log(RPS_LOG_INFO, "checkpoint_wished",
                "SIGUSR1: the chief is asked to save at the end of a step");
    } else {
        rps_log(RPS_LOG_WARN, "checkpoint_wished",
                "SIGUSR1: nothing is saved: %s", error.text);
    }
}

static void
on_signal(evutil_socket_t fd, short what, void *context)
{
    struct rps_daemon *daemon = context;
    int signal_number;

    (void)what;
    while ((signal_number = rps_signals_read(fd)) != 0) {
        switch (signal_number) {
        case SIGHUP:
            rps_daemon_reload(daemon);
            break;
        case SIGQUIT:
            rps_daemon_dump(daemon);
            break;
        case SIGUSR1:
            on_save_signal(daemon);
            break;
        default:
            on_stop_signal(daemon, signal_number);
        }
    }
}

/* Users set their grace periods by it. */
static void
say_stop_time(struct rps_daemon *daemon)
{
    double seconds = 0;
    const uint64_t saves = rps_service_saves(daemon->service, &seconds);
    const double half = daemon->options->drain_timeout / 2.0;

    if (saves == daemon->saves_told) {
        return;
    }
    daemon->saves_told = saves;
    if (seconds > half) {
        rps_log(RPS_LOG_WARN, "stop_time",
                "the last checkpoint took %.1f s, but at SIGTERM only half of "
                "drain_timeout, %.1f s, is for one: give --drain-timeout %.0f",
                seconds, half, seconds * 3.0);
    } else {
        rps_log(RPS_LOG_INFO, "stop_time",
                "a stop that saves takes about %.1f s, %.1f s at most", seconds,
                half * 2.0);
    }
}

static void
watch_loops(struct rps_daemon *daemon)
{
    struct rps_error why = {.text = ""};
    const bool live = rps_is_live(&daemon->view, &why);

    if (!live && !daemon->stands_told) {
        rps_log(RPS_LOG_ERROR, "loop_stands", "%s", why.text);
    } else if (live && daemon->stands_told) {
        rps_log(RPS_LOG_INFO, "loop_turns", "every loop turns again");
    }
    daemon->stands_told = !live;
}

static void
tell_status(struct rps_daemon *daemon)
{
    const enum rps_busy busy = rps_service_busy(daemon->service, NULL);

    if (busy != daemon->busy_told && daemon->stopping == RPS_STOPPING_NOT) {
        rps_notify("STATUS=%s %s",
                busy == RPS_BUSY_SAVE      ? "saving, serving"
                : busy == RPS_BUSY_RESTORE ? "restoring, serving"
                                           : "serving",
                daemon->listening);
    }
    daemon->busy_told = busy;
}

static void
on_tick(evutil_socket_t fd, short what, void *context)
{
    struct rps_daemon *daemon = context;

    (void)fd;
    (void)what;
    rps_peer_log_rest(false);
    watch_loops(daemon);
    tell_status(daemon);
    say_stop_time(daemon);
    rps_daemon_retry_admin(daemon);
}

/* systemd restarts a service that does not say this in time. */
static void
on_watchdog(evutil_socket_t fd, short what, void *context)
{
    struct rps_daemon *daemon = context;

    (void)fd;
    (void)what;
    if (rps_is_live(&daemon->view, NULL)) {
        rps_notify("WATCHDOG=1");
    }
}

/* Half of the time that systemd waits. */
static bool
add_watchdog(struct rps_daemon *daemon)
{
    const uint64_t half_us = rps_notify_watchdog_us() / 2;
    const struct timeval each = {.tv_sec = (time_t)(half_us / 1000000),
            .tv_usec = (suseconds_t)(half_us % 1000000)};

    daemon->watchdog =
            event_new(daemon->base, -1, EV_PERSIST, on_watchdog, daemon);
    return daemon->watchdog != NULL &&
           (half_us == 0 || event_add(daemon->watchdog, &each) == 0);
}

static bool
make_events(struct rps_daemon *daemon)
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
            EV_READ | EV_PERSIST, rps_daemon_on_shutdown, daemon);
    daemon->drained_event = event_new(daemon->base, daemon->shared.drained_fd,
            EV_READ | EV_PERSIST, rps_daemon_on_drained, daemon);
    daemon->deadline =
            evtimer_new(daemon->base, rps_daemon_on_deadline, daemon);
    daemon->settling = event_new(
            daemon->base, -1, EV_PERSIST, rps_daemon_on_settling, daemon);
    daemon->tick = event_new(daemon->base, -1, EV_PERSIST, on_tick, daemon);
    return daemon->signal_event != NULL && daemon->tick != NULL &&
           daemon->shutdown_event != NULL && daemon->drained_event != NULL &&
           daemon->deadline != NULL && daemon->settling != NULL &&
           add_watchdog(daemon) && event_add(daemon->signal_event, NULL) == 0 &&
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
say_unsaved(const struct rps_daemon *daemon)
{
    struct rps_service *service = daemon->service;
    char *text = service == NULL ? NULL : rps_service_unsaved(service);

    if (text != NULL) {
        const bool nothing = strncmp(text, "nothing", strlen("nothing")) == 0;
        const bool saved = rps_daemon_is_saved_for_stop(daemon);

        rps_log(nothing || saved ? RPS_LOG_INFO : RPS_LOG_WARN, "unsaved",
                "%s%s",
                saved && !nothing ? "after the checkpoint of this stop: " : "",
                text);
    }
    free(text);
}

/* A stop that no chief has saved for: this server's own part, for `recps
 * restore --orphans`. */
static void
write_orphan(struct rps_daemon *daemon)
{
    struct rps_service *service = daemon->service;
    struct rps_error error = {.text = ""};
    char *path = NULL;
    rps_status status;

    if (service == NULL || !daemon->by_signal ||
            rps_daemon_checkpoint_dir(daemon->options) == NULL ||
            !rps_service_is_unsaved(service) ||
            rps_daemon_is_saved_for_stop(daemon)) {
        return;
    }
    status = rps_service_write_orphan(service, &path, &error);
    if (status == RPS_OK) {
        rps_log(RPS_LOG_WARN, "orphan_written",
                "no chief saved for this stop: what the tables hold is in %s; "
                "`recps restore --orphans` makes a checkpoint of the parts of "
                "all servers",
                path);
    } else {
        rps_log_status(RPS_LOG_ERROR, "orphan_failed", status,
                "no chief saved for this stop, and the own part cannot be "
                "written: %s",
                error.text);
    }
    free(path);
}

/* Takes down whatever was built. */
static void
finish(struct rps_daemon *daemon)
{
    rps_signals_last_resort(daemon->signalled_ms);
    remove_port_files(daemon);
    rps_admin_stop(daemon->admin); /* before what it looks at */
    rps_listener_close(daemon->listener);
    for (uint32_t i = 0; i < daemon->loop_count; i++) {
        rps_loop_stop(daemon->loops[i]);
    }
    if (daemon->stopping != RPS_STOPPING_NOT) {
        say_unsaved(daemon);
        write_orphan(daemon);
    }
    if (daemon->service != NULL) {
        rps_service_destroy(daemon->service);
    }
    rps_access_finish(&daemon->access);
    free_event(daemon->signal_event);
    free_event(daemon->shutdown_event);
    free_event(daemon->drained_event);
    free_event(daemon->deadline);
    free_event(daemon->settling);
    free_event(daemon->watchdog);
    free_event(daemon->tick);
    if (daemon->base != NULL) {
        event_base_free(daemon->base);
    }
    close_fd(daemon->signal_fd);
    close_fd(daemon->shutdown_fd);
    close_fd(daemon->shared.drained_fd);
    rps_service_figures_finish(&daemon->figures);
    rps_peer_log_rest(true);
    if (daemon->stopping != RPS_STOPPING_NOT) {
        rps_log(RPS_LOG_INFO, "stopped", "exit code %d", daemon->exit_code);
    }
}

/* The admin thread may look at the loops from here on. */
static void
publish(struct rps_daemon *daemon)
{
    snprintf(daemon->listening, sizeof(daemon->listening), "%s",
            rps_listener_text(daemon->listener));
    daemon->port = rps_listener_port(daemon->listener);
    daemon->view.listening = daemon->listening;
    daemon->view.loops = daemon->loops;
    daemon->view.loop_count = daemon->loop_count;
    rps_view_enter(&daemon->view, RPS_STAGE_SERVING);
}

static int
start(struct rps_daemon *daemon, struct rps_listen_plan *plan)
{
    int code = create_service(daemon);

    if (code == RPS_EXIT_OK && !make_events(daemon)) {
        rps_log(RPS_LOG_ERROR, "start_failed", "no memory for the main loop");
        code = RPS_EXIT_INTERNAL;
    }
    if (code == RPS_EXIT_OK) {
        prepare_view(daemon);
        code = rps_daemon_start_admin(daemon);
    }
    if (code == RPS_EXIT_OK) {
        code = open_listener(daemon, plan);
    }
    if (code == RPS_EXIT_OK) {
        code = start_loops(daemon);
    }
    if (code == RPS_EXIT_OK) {
        publish(daemon);
        code = write_port_file(daemon->options->port_file,
                rps_listener_port(daemon->listener));
    }
    return code;
}

int
rps_daemon_run(const struct rps_options *options, rps_reread_fn *reread)
{
    struct rps_daemon daemon = {.options = options,
            .reread = reread,
            .signal_fd = -1,
            .shutdown_fd = -1,
            .shared = {.drained_fd = -1}};
    struct rps_listen_plan plan;
    struct rps_error error = {.text = ""};
    int code = check_role(&options->cluster);

    if (code == RPS_EXIT_OK) {
        code = rps_daemon_check_serve(options);
    }
    if (code == RPS_EXIT_OK) {
        code = rps_daemon_check_address(options, &plan);
    }
    if (code == RPS_EXIT_OK) {
        code = rps_daemon_check_admin(options, &plan, &daemon.admin_off);
    }
    if (code == RPS_EXIT_OK) {
        code = rps_access_init(&daemon.access, options, &plan);
    }
    if (code != RPS_EXIT_OK) {
        rps_access_finish(&daemon.access);
        return code;
    }
    rps_port_file_forget(options->port_file);
    rps_port_file_forget(options->admin_port_file);
    if (rps_signals_init(&daemon.signal_fd, &error) != RPS_OK) {
        rps_log(RPS_LOG_ERROR, "start_failed", "%s", error.text);
        rps_access_finish(&daemon.access);
        return RPS_EXIT_INTERNAL;
    }
    raise_file_limit(options->connections_max);
    rps_huge_pages_check(RPS_HUGE_PAGES_SETTING);
    daemon.shared.access = &daemon.access;
    daemon.shared.ring_bytes = options->shm_ring;
    daemon.shared.memory_limit = options->memory_limit;
    daemon.shared.connections_max =
            options->connections_max < UINT32_MAX - RPS_CONN_SURPLUS_MAX
                    ? (uint32_t)options->connections_max
                    : UINT32_MAX - RPS_CONN_SURPLUS_MAX;
    atomic_init(&daemon.shared.connections, 0);
    daemon.loopback = plan.loopback;
    code = start(&daemon, &plan);
    if (code == RPS_EXIT_OK) {
        say_started(&daemon);
        rps_notify("READY=1\nSTATUS=serving %s", daemon.listening);
        event_base_dispatch(daemon.base);
        code = daemon.exit_code;
    }
    finish(&daemon);
    return code;
}
