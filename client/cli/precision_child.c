/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/precision_child.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define TICK_MS          200u
#define EXIT_CANNOT_EXEC 126
#define EXIT_NOT_FOUND   127

/* In the child, up to exec. */
static void
become(const struct rps_precision_child *child, int output, pid_t parent)
{
    const int empty = open("/dev/null", O_RDONLY);
    sigset_t none;
    int code;

    /* recps launch then ends its own; a training saves what it has */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) {
        _exit(EXIT_CANNOT_EXEC); /* it died before we asked */
    }
    setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    dup2(empty, STDIN_FILENO);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    setenv("RECPS_JSON_LOG", child->json_log, 1);
    unsetenv("RECPS_PROGRESS");
    execvp(child->argv[0], child->argv);
    code = errno;
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", child->argv[0],
            strerror(code));
    _exit(code == ENOENT ? EXIT_NOT_FOUND : EXIT_CANNOT_EXEC);
}

/* The signals that end us, and that of a child's end. */
static sigset_t
waited_for(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    return set;
}

static void
take_signal(struct rps_precision_child *child, pid_t pid, int number,
        uint64_t *kill_ms)
{
    if (number == SIGCHLD) {
        return;
    }
    /* to the whole group: a shell does not pass it on */
    kill(-pid, child->signal_number == 0 ? number : SIGKILL);
    if (child->signal_number == 0) {
        child->signal_number = number;
        *kill_ms = rps_clock_ms() + child->patience_ms;
    }
}

static void
wait_for(struct rps_precision_child *child, pid_t pid, const sigset_t *set)
{
    const struct timespec tick = {.tv_nsec = TICK_MS * 1000000L};
    uint64_t kill_ms = UINT64_MAX;
    int status = 0;
    pid_t ended;

    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 ||
            (ended < 0 && errno == EINTR)) {
        const int number = sigtimedwait(set, NULL, &tick);

        if (number > 0) {
            take_signal(child, pid, number, &kill_ms);
        } else if (child->tick != NULL) {
            child->tick(child->context);
        }
        if (rps_clock_ms() >= kill_ms) {
            kill(-pid, SIGKILL);
        }
    }
    child->code =
            WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

void
rps_precision_child_run(struct rps_precision_child *child)
{
    const sigset_t set = waited_for();
    const int output = open(child->output,
            O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0640);
    const pid_t parent = getpid();
    sigset_t before;
    pid_t pid = -1;

    child->code = 0;
    child->failed_errno = 0;
    sigprocmask(SIG_BLOCK, &set, &before);
    if (output >= 0) {
        pid = fork();
    }
    if (pid == 0) {
        become(child, output, parent);
    }
    if (pid < 0) {
        child->failed_errno = errno;
    } else {
        setpgid(pid, pid); /* whoever comes first */
        wait_for(child, pid, &set);
    }
    if (output >= 0) {
        (void)close(output);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}
