/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/signals.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

static void
stop_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
}

rps_status
rps_signals_init(int *fd_out, struct rps_error *error)
{
    sigset_t set;

    stop_set(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGQUIT);
    sigaddset(&set, SIGUSR1);
    signal(SIGPIPE, SIG_IGN);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    *fd_out = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (*fd_out < 0) {
        return rps_fail(error, RPS_E_IO, "signalfd: %s", strerror(errno));
    }
    return RPS_OK;
}

int
rps_signals_read(int fd)
{
    struct signalfd_siginfo info;
    ssize_t n = read(fd, &info, sizeof(info));

    return n == (ssize_t)sizeof(info) ? (int)info.ssi_signo : 0;
}

int
rps_signals_sleep(uint32_t ms)
{
    struct timespec wait = {
            .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    sigset_t set;
    int signal_number;

    stop_set(&set);
    signal_number = sigtimedwait(&set, NULL, &wait);
    return signal_number > 0 ? signal_number : 0;
}

/* The main thread's and its handler's: no other thread has these unblocked. */
static _Atomic uint64_t first_signal_ms;

static void
on_late_signal(int signal_number)
{
    const uint64_t now = rps_clock_ms();

    if (first_signal_ms == 0) {
        first_signal_ms = now; /* the end is near without it */
    } else if (now - first_signal_ms >= RPS_SAME_SIGNAL_MS) {
        _exit(128 + signal_number);
    }
}

void
rps_signals_last_resort(uint64_t first_ms)
{
    struct sigaction action = {
            .sa_handler = on_late_signal, .sa_flags = SA_RESTART};
    sigset_t set;

    first_signal_ms = first_ms;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    stop_set(&set);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}
