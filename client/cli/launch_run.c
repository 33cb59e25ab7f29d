/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who ended how, and what follows:
 *
 *   anything fails        with --restart on-failure: start it again
 *   a replica fails       stop everything; with --on-lost leave, where it is
 *                         not the chief and the job runs, the others go on
 *                         without it
 *   all replicas end well wait for the servers (SHUTDOWN came from the
 *                         chief) and the evaluator, then stop what is left
 *   a server fails        the replicas stop by themselves, for a while
 *   TERM or INT           pass it on to the replicas and the evaluator, so
 *                         that the chief can save; then stop the servers
 *   TERM or INT again     kill everything
 *
 * The exit code is that of the first failure.
 */
#include "base/clock.h"
#include "base/text.h"
#include "client/cli/launch.h"
#include "client/cli/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define STOP_MS      10000u /* from TERM to KILL */
#define ORPHAN_MS    15000u /* replicas, after a server died */
#define SERVERS_MS   3000u  /* servers, after the last replica */
#define EVALUATOR_MS 60000u /* evaluator, after the last replica */
#define SUSPECT_MS   300u   /* a replica failed: did a server die first? */
#define OUTPUT_MS    1000u  /* pipes that a grandchild holds open */
#define SHUTDOWN_MS  500u   /* the same, once a signal came */
#define REPEAT_MS    100u   /* timeout(1) sends each signal twice */
#define LEFT_MS      5000u  /* replicas, after the chief (on-lost leave) */

struct watch {
    struct rps_launch_plan *plan;
    struct pollfd *polls; /* [1 + 2 count] */
    int signal_fd;
    int code;          /* of the first failure */
    int signal_number; /* that ended the launcher; 0: none */
    uint64_t signalled_ms;
    bool members_told; /* of that signal, after the chief */
    bool stopping;
    bool servers_stopped; /* no SHUTDOWN came to them */
    uint64_t orphaned_ms; /* when a server died; 0: none did */
    uint64_t halted_ms;   /* when the last replica that ran was stopped; 0 */
    uint64_t replicas_ended_ms;
    uint64_t all_ended_ms;
};

static bool
is_replica(const struct rps_launch_child *child)
{
    return child->role == RPS_ROLE_WORKER || child->role == RPS_ROLE_CHIEF;
}

static bool
is_running(const struct rps_launch_child *child)
{
    return child->pid > 0 && !child->ended;
}

/* It ended, and is started again. */
static bool
is_coming(const struct rps_launch_child *child)
{
    return child->restart_ms != 0;
}

/* Children of a kind that have not ended for good. */
static uint32_t
running(const struct watch *watch, enum rps_role role, bool replicas)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < watch->plan->count; i++) {
        const struct rps_launch_child *child = &watch->plan->children[i];

        count += (is_running(child) || is_coming(child)) &&
                 (replicas ? is_replica(child) : child->role == role);
    }
    return count;
}

static uint32_t
running_all(const struct watch *watch)
{
    return running(watch, RPS_ROLE_PS, false) +
           running(watch, RPS_ROLE_EVALUATOR, false) +
           running(watch, RPS_ROLE_NONE, true);
}

/* A signal to end well. mpirun passes SIGUSR2 on to its ranks; its own TERM
 * ends them at once. */
static int
ending_signal(const struct rps_launch_child *child, int signal_number)
{
    return child->ranks > 0 ? SIGUSR2 : signal_number;
}

static void
stop_child(struct rps_launch_child *child, int signal_number, uint64_t wait_ms)
{
    child->restart_ms = 0;
    if (is_running(child) && !child->told) {
        child->told = true;
        child->kill_ms = rps_clock_ms() + wait_ms;
        kill(child->ranks > 0 ? child->pid : -child->pid, signal_number);
        kill(-child->pid, SIGCONT); /* who is stopped hears nothing */
    }
}

static void
kill_child(struct rps_launch_child *child)
{
    child->restart_ms = 0;
    if (is_running(child) && !child->killed) {
        child->told = true;
        child->killed = true;
        kill(-child->pid, SIGKILL);
    }
}

/* Servers that no chief saves for write orphan parts, after drain_timeout at
 * the latest. */
static void
stop_servers(struct watch *watch)
{
    watch->servers_stopped = true;
    for (uint32_t i = 0; i < watch->plan->ps_count; i++) {
        stop_child(&watch->plan->children[i], SIGTERM,
                watch->plan->drain_ms + STOP_MS);
    }
}

static void
stop_all(struct watch *watch, int signal_number)
{
    watch->stopping = true;
    stop_servers(watch);
    for (uint32_t i = watch->plan->ps_count; i < watch->plan->count; i++) {
        stop_child(&watch->plan->children[i], signal_number, STOP_MS);
    }
}

/* The chief, or worker 0 in its place; NULL: there is no replica. */
static struct rps_launch_child *
chief_of(const struct watch *watch)
{
    struct rps_launch_child *chief = NULL;

    for (uint32_t i = 0; i < watch->plan->count; i++) {
        struct rps_launch_child *child = &watch->plan->children[i];

        if (child->role == RPS_ROLE_CHIEF ||
                (child->role == RPS_ROLE_WORKER && child->index == 0 &&
                        chief == NULL)) {
            chief = child;
        }
    }
    return chief;
}

/*
 * The signal goes to the chief first: it ends the job for all at one step and
 * saves. Were the others told at once, they would leave, and the chief's last
 * step would be without their part. They are told when it has ended, or at
 * half time. The servers, which the chief needs, come last (check_end).
 */
static void
check_members(struct watch *watch, uint64_t now)
{
    const struct rps_launch_child *chief = chief_of(watch);
    const uint64_t passed = now - watch->signalled_ms;
    const uint64_t drain = watch->plan->drain_ms;

    if (watch->signal_number == 0 || watch->members_told ||
            (chief != NULL && is_running(chief) && passed < drain / 2)) {
        return;
    }
    watch->members_told = true;
    for (uint32_t i = watch->plan->ps_count; i < watch->plan->count; i++) {
        stop_child(&watch->plan->children[i],
                ending_signal(&watch->plan->children[i], watch->signal_number),
                passed < drain ? drain - passed : 0);
    }
}

static void
kill_all(struct watch *watch)
{
    watch->stopping = true;
    for (uint32_t i = 0; i < watch->plan->count; i++) {
        kill_child(&watch->plan->children[i]);
    }
}

/* Whoever was told to stop and had its time. */
static void
kill_late(struct watch *watch, uint64_t now)
{
    for (uint32_t i = 0; i < watch->plan->count; i++) {
        struct rps_launch_child *child = &watch->plan->children[i];

        if (is_running(child) && child->told && !child->killed &&
                now >= child->kill_ms) {
            rps_launch_say(
                    watch->plan, "%s did not stop; killing it", child->label);
            kill_child(child);
        }
    }
}

static void
say_failed(const struct watch *watch, const struct rps_launch_child *child,
        const char *then)
{
    if (child->signal_number != 0) {
        rps_launch_say(watch->plan, "%s was ended by signal %d (%s)%s",
                child->label, child->signal_number,
                strsignal(child->signal_number), then);
    } else {
        rps_launch_say(watch->plan, "%s ended with code %d%s", child->label,
                child->code, then);
    }
}

static void
take_code(struct watch *watch, const struct rps_launch_child *child)
{
    if (watch->code == 0) {
        watch->code = child->code;
    }
}

/* Replicas that failed: by themselves, or because a server did? A dying
 * server's sockets close before it can be waited for, so their end may be seen
 * first. True: there was one. */
static bool
clear_suspects(struct watch *watch)
{
    bool any = false;

    for (uint32_t i = 0; i < watch->plan->count; i++) {
        any = any || watch->plan->children[i].suspect;
        watch->plan->children[i].suspect = false;
    }
    return any;
}

static void
server_failed(struct watch *watch, const struct rps_launch_child *child)
{
    const bool any = clear_suspects(watch);

    take_code(watch, child);
    if (watch->plan->restart) { /* the workers would wait for it */
        say_failed(watch, child, "; stopping all");
        stop_all(watch, SIGTERM);
        return;
    }
    if (running(watch, RPS_ROLE_NONE, true) == 0 && !any) {
        say_failed(watch, child, "");
        return;
    }
    say_failed(watch, child,
            " unexpectedly; the workers have 15 s to stop by themselves");
    if (watch->orphaned_ms == 0) {
        watch->orphaned_ms = rps_clock_ms();
    }
}

/* The chief has done all, or told the servers that it has. */
static bool
job_is_over(const struct watch *watch)
{
    const struct rps_launch_child *chief = chief_of(watch);
    bool over = chief != NULL && chief->ended && !is_coming(chief) &&
                chief->code == 0;

    for (uint32_t i = 0; i < watch->plan->ps_count; i++) {
        const struct rps_launch_child *server = &watch->plan->children[i];

        over = over ||
               (server->ended && !is_coming(server) && server->code == 0);
    }
    return over;
}

/* Who is killed when all is done has done its part, and so has a server that
 * was told to stop; another code says that not all was well. */
static bool
is_killed_late(const struct watch *watch, const struct rps_launch_child *child)
{
    const bool late = child->signal_number != 0 ||
                      (child->role == RPS_ROLE_PS &&
                              (child->code == 128 + SIGTERM ||
                                      child->code == 128 + SIGINT));

    if (late) {
        say_failed(watch, child, "; the job had ended");
    }
    return late;
}

/* true: its failure is none, or ends with another start. */
static bool
is_made_good(struct watch *watch, struct rps_launch_child *child)
{
    if (!watch->plan->restart || watch->stopping || watch->signal_number != 0) {
        return false;
    }
    if (job_is_over(watch)) {
        return is_killed_late(watch, child);
    }
    return rps_launch_restart_plan(watch->plan, child, child->ended_ms);
}

/* A child failed of its own accord. */
static void
failed(struct watch *watch, struct rps_launch_child *child)
{
    if (is_made_good(watch, child)) {
        return;
    }
    if (child->role == RPS_ROLE_EVALUATOR) {
        take_code(watch, child);
        say_failed(watch, child, "; the others go on");
    } else if (!is_replica(child)) {
        server_failed(watch, child);
    } else if (watch->orphaned_ms == 0) {
        child->suspect = true;
    }
}

static uint32_t
rank_of(const struct watch *watch, const struct rps_launch_child *child)
{
    return child->index + (chief_of(watch)->role == RPS_ROLE_CHIEF);
}

/*
 * --on-lost leave: NULL where the others go on without this one; else the end
 * of a line, free(). No job begins without it, and where the chief is silent
 * no step ends: the others have been told, and the chief may never end.
 */
static char *
why_not_without(const struct watch *watch, const struct rps_launch_child *child)
{
    char *why = NULL;
    char *then = NULL;

    switch (rps_launch_job_ask(watch->plan, &why)) {
    case RPS_LAUNCH_JOB_STOPPED:
        then = rps_format("; the job has stopped (%s); stopping all",
                why != NULL ? why : "a replica is missing");
        break;
    case RPS_LAUNCH_JOB_NOT_STARTED:
        then = rps_format("; the job does not begin without rank %" PRIu32
                          "; stopping all",
                rank_of(watch, child));
        break;
    case RPS_LAUNCH_JOB_UNKNOWN:
    case RPS_LAUNCH_JOB_RUNS:
        break;
    }
    free(why);
    return then;
}

/* No server died: the replica failed by itself. */
static void
replica_failed(struct watch *watch, const struct rps_launch_child *child)
{
    const struct rps_launch_child *chief = chief_of(watch);
    char *then = NULL;

    if (!watch->plan->on_lost_leave || child == chief) {
        then = rps_format("; stopping all");
    } else {
        then = why_not_without(watch, child);
    }
    if (then != NULL) {
        take_code(watch, child);
        say_failed(watch, child, then);
        (void)clear_suspects(watch);
        stop_all(watch, SIGTERM);
    } else {
        then = rps_format("; the others go on without rank %" PRIu32,
                rank_of(watch, child));
        say_failed(watch, child, then != NULL ? then : "");
    }
    free(then);
}

static struct rps_launch_child *
first_suspect(const struct watch *watch)
{
    struct rps_launch_child *first = NULL;

    for (uint32_t i = 0; i < watch->plan->count; i++) {
        struct rps_launch_child *child = &watch->plan->children[i];

        if (child->suspect &&
                (first == NULL || child->ended_ms < first->ended_ms)) {
            first = child;
        }
    }
    return first;
}

static void
check_suspects(struct watch *watch, uint64_t now)
{
    struct rps_launch_child *first = first_suspect(watch);

    while (first != NULL && (now - first->ended_ms >= SUSPECT_MS ||
                                    running(watch, RPS_ROLE_PS, false) == 0)) {
        first->suspect = false;
        replica_failed(watch, first);
        first = first_suspect(watch);
    }
}

/* The chief ended the job without some that it had given up: who hangs does
 * not keep the launcher. */
static void
check_left(struct watch *watch, uint64_t now)
{
    const struct rps_launch_child *chief = chief_of(watch);

    if (!(watch->plan->on_lost_leave || watch->plan->restart) ||
            chief == NULL || !chief->ended || is_coming(chief) ||
            now - chief->ended_ms < LEFT_MS) {
        return;
    }
    for (uint32_t i = watch->plan->ps_count; i < watch->plan->count; i++) {
        struct rps_launch_child *child = &watch->plan->children[i];

        if (is_replica(child) && is_running(child) && !child->told) {
            rps_launch_say(watch->plan,
                    "the chief has ended the job; stopping %s, which has not",
                    child->label);
            stop_child(child, SIGTERM, STOP_MS);
        }
    }
}

static void
check_halted(struct watch *watch, uint64_t now)
{
    if (rps_launch_is_halted(watch->plan, now, &watch->halted_ms) &&
            !watch->stopping) {
        watch->code = watch->code != 0 ? watch->code : RPS_TOOL_UNAVAILABLE;
        stop_all(watch, SIGTERM);
    }
}

static struct rps_launch_child *
child_of(struct watch *watch, pid_t pid)
{
    for (uint32_t i = 0; i < watch->plan->count; i++) {
        if (watch->plan->children[i].pid == pid) {
            return &watch->plan->children[i];
        }
    }
    return NULL;
}

static void
ended(struct watch *watch, struct rps_launch_child *child, int status)
{
    child->ended = true;
    child->ended_ms = rps_clock_ms();
    child->signal_number = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    child->code =
            WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (child->code != 0 && !child->told) {
        failed(watch, child);
    }
}

/* What a child leaves behind in its process group goes with it: the group's
 * number is ours until the child is reaped. */
static void
reap(struct watch *watch)
{
    siginfo_t info;
    int status;

    for (;;) {
        struct rps_launch_child *child;

        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
                info.si_pid == 0) {
            return;
        }
        child = child_of(watch, info.si_pid);
        if (child != NULL) {
            kill(-info.si_pid, SIGKILL);
        }
        if (waitpid(info.si_pid, &status, 0) == info.si_pid && child != NULL) {
            ended(watch, child, status);
        }
    }
}

/* Nothing is started any more. */
static void
stop_coming(struct watch *watch)
{
    for (uint32_t i = 0; i < watch->plan->count; i++) {
        watch->plan->children[i].restart_ms = 0;
    }
}

static void
take_signal(struct watch *watch, int number)
{
    uint64_t now = rps_clock_ms();

    if (watch->signal_number == number &&
            now - watch->signalled_ms < REPEAT_MS) {
        return;
    }
    if (watch->signal_number != 0) {
        rps_launch_say(watch->plan, "%s again: killing all", strsignal(number));
        kill_all(watch);
        return;
    }
    /* the terminal that hung up is ours, not theirs */
    watch->signal_number = number == SIGHUP ? SIGTERM : number;
    stop_coming(watch);
    watch->signalled_ms = now;
    watch->code = watch->code != 0 ? watch->code : 128 + number;
    rps_launch_say(watch->plan,
            "%s: the replicas have %.1f s to save and end; again: killing all",
            strsignal(number), (double)watch->plan->drain_ms / 1000.0);
    if (chief_of(watch) != NULL) {
        stop_child(chief_of(watch),
                ending_signal(chief_of(watch), watch->signal_number),
                watch->plan->drain_ms);
    }
}

/* A wish for a checkpoint: PS 0 knows it, and has the chief save. Where there
 * is none, the one replica has the tables. */
static void
pass_save_wish(const struct watch *watch)
{
    const struct rps_launch_child *to = watch->plan->ps_count > 0
                                                ? &watch->plan->children[0]
                                                : chief_of(watch);

    if (to != NULL && is_running(to)) {
        rps_launch_say(watch->plan, "SIGUSR1: %s is asked for a checkpoint",
                to->label);
        kill(to->pid, SIGUSR1);
    }
}

static void
read_signals(struct watch *watch)
{
    struct signalfd_siginfo info;

    while (read(watch->signal_fd, &info, sizeof(info)) ==
            (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGUSR1) {
            pass_save_wish(watch);
        } else if (info.ssi_signo != SIGCHLD) { /* reap() looks at all */
            take_signal(watch, (int)info.ssi_signo);
        }
    }
}

/* The replicas are done: SHUTDOWN ends the servers, and their end the
 * evaluator's work. Whoever stays is stopped. */
static void
check_end(struct watch *watch, uint64_t now)
{
    uint64_t waited = now - watch->replicas_ended_ms;
    uint32_t servers = running(watch, RPS_ROLE_PS, false);
    uint32_t evaluators = running(watch, RPS_ROLE_EVALUATOR, false);

    if (watch->orphaned_ms != 0) {
        stop_all(watch, SIGTERM);
    } else if (watch->signal_number != 0) {
        if (evaluators == 0 && waited >= SHUTDOWN_MS) {
            stop_servers(watch); /* if the chief's SHUTDOWN has not */
        }
    } else if (evaluators > 0 && waited >= EVALUATOR_MS) {
        rps_launch_say(watch->plan,
                "the workers have ended; stopping the evaluator, which is "
                "not done");
        stop_all(watch, SIGTERM);
    } else if (servers > 0 && waited >= SERVERS_MS && !watch->servers_stopped) {
        rps_launch_say(watch->plan,
                "the workers have ended; stopping the servers, which got no "
                "SHUTDOWN");
        stop_servers(watch);
    }
}

/* What a child wrote last is forwarded before the next one's first line. */
static bool
is_due(const struct rps_launch_child *child, uint64_t now)
{
    const bool quiet = child->streams[0].fd < 0 && child->streams[1].fd < 0;

    return is_coming(child) && now >= child->restart_ms &&
           (quiet || now - child->restart_ms >= OUTPUT_MS);
}

static void
check_restarts(struct watch *watch, uint64_t now)
{
    const bool terminal = isatty(STDOUT_FILENO) != 0;

    for (uint32_t i = 0; i < watch->plan->count; i++) {
        struct rps_launch_child *child = &watch->plan->children[i];

        if (!is_due(child, now)) {
            continue;
        }
        if (job_is_over(watch)) {
            child->restart_ms = 0;
            child->suspect = !is_killed_late(watch, child);
        } else if (!rps_launch_restart(watch->plan, child, terminal)) {
            rps_launch_say(watch->plan, "cannot start %s: %s", child->label,
                    strerror(errno));
            watch->code = watch->code != 0 ? watch->code : RPS_TOOL_FAILED;
            stop_all(watch, SIGTERM);
        }
    }
}

static void
check_clocks(struct watch *watch)
{
    uint64_t now = rps_clock_ms();

    check_restarts(watch, now);
    check_suspects(watch, now);
    check_left(watch, now);
    check_halted(watch, now);
    check_members(watch, now);
    if (running(watch, RPS_ROLE_NONE, true) == 0 &&
            watch->replicas_ended_ms == 0) {
        watch->replicas_ended_ms = now;
    }
    if (running_all(watch) == 0 && watch->all_ended_ms == 0) {
        watch->all_ended_ms = now;
    }
    kill_late(watch, now);
    if (watch->stopping) {
        return;
    }
    if (watch->replicas_ended_ms != 0) {
        check_end(watch, now);
    } else if (watch->orphaned_ms != 0 &&
               now - watch->orphaned_ms >= ORPHAN_MS) {
        rps_launch_say(watch->plan, "the workers did not stop; stopping all");
        stop_all(watch, SIGTERM);
    }
}

/* Everything has ended, and all that it wrote is forwarded. */
static bool
is_over(const struct watch *watch)
{
    if (watch->all_ended_ms == 0) {
        return false;
    }
    for (uint32_t i = 0; i < watch->plan->count; i++) {
        const struct rps_launch_child *child = &watch->plan->children[i];

        if (child->streams[0].fd >= 0 || child->streams[1].fd >= 0) {
            return rps_clock_ms() - watch->all_ended_ms >= OUTPUT_MS;
        }
    }
    return true;
}

static void
wait_once(struct watch *watch)
{
    struct rps_launch_plan *plan = watch->plan;
    nfds_t count = 1 + 2 * (nfds_t)plan->count;

    watch->polls[0] = (struct pollfd){.fd = watch->signal_fd, .events = POLLIN};
    for (uint32_t i = 0; i < 2 * plan->count; i++) {
        watch->polls[1 + i] =
                (struct pollfd){.fd = plan->children[i / 2].streams[i % 2].fd,
                        .events = POLLIN};
    }
    if (poll(watch->polls, count, 100) <= 0) {
        return;
    }
    for (uint32_t i = 0; i < 2 * plan->count; i++) {
        if (watch->polls[1 + i].revents != 0) {
            struct rps_launch_child *child = &plan->children[i / 2];

            rps_launch_stream_read(plan, child, &child->streams[i % 2]);
        }
    }
    read_signals(watch);
}

static bool
block_signals(struct watch *watch)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    watch->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return watch->signal_fd >= 0;
}

static void
say_begin(const struct rps_launch_plan *plan)
{
    uint32_t replicas = 0;
    uint32_t ranks = 0;
    uint32_t evaluators = 0;

    for (uint32_t i = 0; i < plan->count; i++) {
        replicas += is_replica(&plan->children[i]);
        ranks += plan->children[i].ranks;
    }
    evaluators = plan->count - plan->ps_count - replicas;
    rps_launch_say(plan,
            "%" PRIu32 " servers (%s), %" PRIu32 " replicas (%s%s)%s",
            plan->ps_count, plan->ps_count > 0 ? plan->server[0] : "embedded",
            ranks > 0 ? ranks : replicas, ranks > 0 ? "mpirun: " : "",
            plan->command[0], evaluators > 0 ? ", an evaluator" : "");
}

static void
start_all(struct watch *watch)
{
    struct rps_launch_plan *plan = watch->plan;
    bool terminal = isatty(STDOUT_FILENO) != 0;

    for (uint32_t i = 0; i < plan->count && !watch->stopping; i++) {
        if (!rps_launch_child_start(plan, &plan->children[i], terminal)) {
            rps_launch_say(plan, "cannot start %s: %s", plan->children[i].label,
                    strerror(errno));
            watch->code = RPS_TOOL_FAILED;
            stop_all(watch, SIGTERM);
        }
    }
}

int
rps_launch_run(struct rps_launch_plan *plan)
{
    struct watch watch = {.plan = plan, .signal_fd = -1};

    watch.polls = calloc(1 + 2 * (size_t)plan->count, sizeof(*watch.polls));
    if (watch.polls == NULL || !block_signals(&watch)) {
        free(watch.polls);
        return rps_tool_fail(RPS_TOOL_FAILED, "launch", "%s", strerror(errno));
    }
    rps_launch_extend_path();
    say_begin(plan);
    start_all(&watch);
    while (!is_over(&watch)) {
        wait_once(&watch);
        reap(&watch);
        check_clocks(&watch);
    }
    close(watch.signal_fd);
    free(watch.polls);
    return watch.code;
}
