/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/pause.h"

#include "base/clock.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <time.h>

#define LOOKED_NS   80000u
#define RELAX_LOOKS 16u

static void
sleep_until(uint64_t ns)
{
    static _Thread_local bool sharp; /* this thread's timer slack is 1 ns */
    const struct timespec until = {
            .tv_sec = (time_t)(ns / 1000000000u),
            .tv_nsec = (long)(ns % 1000000000u),
    };

    if (!sharp) {
        (void)prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
        sharp = true;
    }
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
            EINTR) {
    }
}

void
rps_npu_pause_until(uint64_t ns)
{
    if (ns > rps_clock_ns() + LOOKED_NS) {
        sleep_until(ns - LOOKED_NS);
    }
    while (rps_clock_ns() < ns) {
    }
}

static void
relax_once(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#else
    __asm__ volatile("");
#endif
}

void
rps_npu_relax(void)
{
    for (unsigned i = 0; i < RELAX_LOOKS; i++) {
        relax_once();
    }
}
