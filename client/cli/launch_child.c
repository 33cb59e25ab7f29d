/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define EXIT_CANNOT_EXEC 126
#define EXIT_NOT_FOUND   127
#define READ_BYTES       16384u
#define RECONNECT_S      "2"

/* A "\r" line stands on the terminal and waits to be replaced. */
static bool progress_shown;

static void
write_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = write(fd, bytes, length);

        if (n > 0) {
            bytes += n;
            length -= (size_t)n;
        } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
            return; /* nobody reads us any more; the job goes on */
        }
    }
}

static void
clear_progress(void)
{
    if (progress_shown) {
        write_all(STDOUT_FILENO, "\r\033[K", 4);
        progress_shown = false;
    }
}

/* One colour a role, so that a line's speaker is seen before it is read. */
static const char *
colour_of(enum rps_role role)
{
    switch (role) {
    case RPS_ROLE_PS:
        return "\033[36m";
    case RPS_ROLE_CHIEF:
        return "\033[32m";
    case RPS_ROLE_WORKER:
        return "\033[33m";
    default:
        return "\033[35m";
    }
}

/* "worker:0 | text" and `end`, in one write, so that lines stay whole. */
static void
forward(const struct rps_launch_plan *plan,
        const struct rps_launch_child *child,
        const struct rps_launch_stream *stream, int to, const char *end)
{
    struct rps_text out = {.bytes = NULL};
    bool colour = isatty(to) != 0;

    rps_text_add(&out, "%s%-*s |%s ", colour ? colour_of(child->role) : "",
            plan->label_width,
            stream->speaker[0] != '\0' ? stream->speaker : child->label,
            colour ? "\033[0m" : "");
    rps_text_add_bytes(&out, stream->line.bytes, stream->line.length);
    rps_text_add(&out, "%s", end);
    if (!out.failed) {
        write_all(to, out.bytes, out.length);
    }
    rps_text_finish(&out);
}

/* Lines that were held back; `shown` is released. */
static void
forward_shown(const struct rps_launch_plan *plan,
        const struct rps_launch_child *child, struct rps_launch_stream *stream,
        char *shown)
{
    char *end;

    for (char *at = shown; at != NULL && (end = strchr(at, '\n')) != NULL;
            at = end + 1) {
        clear_progress();
        stream->line.length = 0;
        rps_text_add_bytes(&stream->line, at, (size_t)(end - at));
        forward(plan, child, stream, stream->to, "\n");
    }
    stream->line.length = 0;
    free(shown);
}

static void
forward_line(const struct rps_launch_plan *plan,
        const struct rps_launch_child *child, struct rps_launch_stream *stream)
{
    char *shown = NULL;

    rps_launch_mpi_untag(child, stream);
    if (!rps_launch_mpi_banner(child, stream,
                stream->line.bytes != NULL ? stream->line.bytes : "", &shown)) {
        clear_progress();
        forward(plan, child, stream, stream->to, "\n");
    }
    stream->line.length = 0;
    forward_shown(plan, child, stream, shown);
}

static void
forward_progress(const struct rps_launch_plan *plan,
        const struct rps_launch_child *child, struct rps_launch_stream *stream)
{
    rps_launch_mpi_untag(child, stream);
    if (stream->line.length > 0) {
        clear_progress();
        forward(plan, child, stream, STDOUT_FILENO, "");
        progress_shown = true;
    }
    stream->line.length = 0;
}

/* Takes bytes[0, n) apart into lines. */
static void
take(const struct rps_launch_plan *plan, const struct rps_launch_child *child,
        struct rps_launch_stream *stream, const char *bytes, size_t n)
{
    size_t start = 0;

    for (size_t i = 0; i < n; i++) {
        bool line = bytes[i] == '\n';
        bool progress = bytes[i] == '\r' && child->progress;

        if (!line && !progress &&
                stream->line.length + (i - start) < RPS_LAUNCH_LINE_MAX) {
            continue;
        }
        rps_text_add_bytes(&stream->line, bytes + start,
                i - start + (line || progress ? 0 : 1));
        start = i + 1;
        if (progress) {
            forward_progress(plan, child, stream);
        } else {
            forward_line(plan, child, stream);
        }
    }
    if (start < n) {
        rps_text_add_bytes(&stream->line, bytes + start, n - start);
    }
}

void
rps_launch_stream_read(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, struct rps_launch_stream *stream)
{
    char bytes[READ_BYTES];
    ssize_t n = read(stream->fd, bytes, sizeof(bytes));

    if (n > 0) {
        take(plan, child, stream, bytes, (size_t)n);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    rps_launch_stream_close(plan, child, stream);
}

void
rps_launch_stream_close(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, struct rps_launch_stream *stream)
{
    char *shown = NULL;

    if (stream->line.length > 0) {
        forward_line(plan, child, stream);
    }
    (void)rps_launch_mpi_banner(child, stream, NULL, &shown);
    forward_shown(plan, child, stream, shown);
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    stream->fd = -1;
}

void
rps_launch_say(const struct rps_launch_plan *plan, const char *format, ...)
{
    struct rps_text out = {.bytes = NULL};
    char text[1024];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    clear_progress();
    rps_text_add(&out, "%-*s | %s\n", plan->label_width, "launch", text);
    if (!out.failed) {
        write_all(STDERR_FILENO, out.bytes, out.length);
    }
    rps_text_finish(&out);
}

/* A chief that is started again goes on, and does not begin anew. */
static void
say_restarts(const struct rps_launch_child *child)
{
    char count[16];

    (void)snprintf(count, sizeof(count), "%" PRIu32, child->restarts);
    if (child->restarts > 0) {
        setenv("RECPS_RESTART_COUNT", count, 1);
    } else {
        unsetenv("RECPS_RESTART_COUNT");
    }
}

/* In the child, up to exec. */
static void
become(const struct rps_launch_plan *plan, const struct rps_launch_child *child,
        int out, int err, pid_t parent, bool terminal)
{
    char **argv = child->argv != NULL          ? child->argv
                  : child->role == RPS_ROLE_PS ? plan->server
                                               : plan->command;
    const bool gently = child->role == RPS_ROLE_PS || child->ranks > 0;
    int null_fd = open("/dev/null", O_RDONLY);
    sigset_t none;
    int code;

    /* a server finishes what it has in hand, mpirun ends its ranks; a command
     * may ignore TERM */
    prctl(PR_SET_PDEATHSIG, gently ? SIGTERM : SIGKILL);
    if (getppid() != parent) {
        _exit(EXIT_CANNOT_EXEC); /* it died before we asked */
    }
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    dup2(null_fd, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    setenv("TF_CONFIG", child->tf_config, 1);
    if (child->role != RPS_ROLE_PS) {
        /* it waits for a connection that was cut, not for a server that is
         * gone: none is started again here, or (--restart) it knows nothing
         * of the job, which then begins again */
        setenv("RECPS_RECONNECT_TIMEOUT", RECONNECT_S, 0);
    }
    say_restarts(child);
    unsetenv("TF_CONFIG_FILE");
    if (terminal && child->progress) {
        setenv("RECPS_PROGRESS", "1", 1);
    } else {
        unsetenv("RECPS_PROGRESS");
    }
    execvp(argv[0], argv);
    code = errno;
    dprintf(STDERR_FILENO, "cannot run %s: %s%s\n", argv[0], strerror(code),
            child->ranks > 0 && code == ENOENT
                    ? ": install Open MPI (Debian: openmpi-bin)"
                    : "");
    _exit(code == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC);
}

static void
close_pair(int pair[2])
{
    if (pair[0] >= 0) {
        close(pair[0]);
        close(pair[1]);
    }
}

bool
rps_launch_child_start(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, bool terminal)
{
    int out[2] = {-1, -1};
    int err[2] = {-1, -1};
    pid_t parent = getpid();
    pid_t pid = -1;

    if (pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0) {
        pid = fork();
    }
    if (pid < 0) {
        int code = errno;

        close_pair(out);
        close_pair(err);
        errno = code;
        return false;
    }
    if (pid == 0) {
        become(plan, child, out[1], err[1], parent, terminal);
    }
    setpgid(pid, pid); /* whoever comes first; the loser's call does nothing */
    close(out[1]);
    close(err[1]);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    child->pid = pid;
    child->streams[0].fd = out[0];
    child->streams[1].fd = err[0];
    return true;
}
