/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps launch --restart: whether a child that failed is started again, and
 * when. Its own failures count, none of another's.
 */
#include "client/cli/launch.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

#define WINDOW_MS   600000u /* in which restarts are counted */
#define RECENT_MS   60000u  /* in which each makes the next wait longer */
#define WAIT_MS     100u    /* before the first one */
#define WAIT_MS_MAX 5000u

/* Codes that another start would only give again (docs/OPERATIONS.md, "Exit
 * codes"), and those of a replica that was told to end. A server that was has
 * had the chief save, and the job waits for it to be there again. */
static bool
is_for_good(const struct rps_launch_child *child)
{
    static const int codes[] = {
            EX_USAGE, EX_DATAERR, EX_NOINPUT, EX_NOPERM, EX_CONFIG, 126, 127};

    if (child->role != RPS_ROLE_PS &&
            (child->code == 128 + SIGINT || child->code == 128 + SIGTERM)) {
        return true;
    }
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
        if (child->code == codes[i]) {
            return true;
        }
    }
    return false;
}

static uint32_t
restarts_within(const struct rps_launch_child *child, uint32_t kept,
        uint64_t now, uint64_t ms)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < kept && i < child->restarts; i++) {
        count += now - child->restarted_ms[i] < ms;
    }
    return count;
}

static void
say_again(const struct rps_launch_plan *plan,
        const struct rps_launch_child *child, const char *how, uint64_t wait,
        uint32_t counted)
{
    rps_launch_say(plan,
            "%s %s; starting it again in %.1f s (restart %" PRIu32
            ", at most %" PRIu32 " in 10 minutes)",
            child->label, how, (double)wait / 1000.0, counted + 1,
            plan->restarts_max);
}

bool
rps_launch_restart_plan(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, uint64_t now)
{
    const uint32_t counted =
            restarts_within(child, plan->restarts_max, now, WINDOW_MS);
    const uint32_t recent =
            restarts_within(child, plan->restarts_max, now, RECENT_MS);
    uint64_t wait = recent < 8 ? (uint64_t)WAIT_MS << recent : WAIT_MS_MAX;
    char how[96];

    if (is_for_good(child)) {
        return false;
    }
    if (counted >= plan->restarts_max) {
        rps_launch_say(plan,
                "%s was started again %" PRIu32
                " times within 10 minutes: giving up (--max-restarts)",
                child->label, counted);
        return false;
    }
    if (child->signal_number != 0) {
        (void)snprintf(how, sizeof(how), "was ended by signal %d (%.60s)",
                child->signal_number, strsignal(child->signal_number));
    } else {
        (void)snprintf(how, sizeof(how), "ended with code %d", child->code);
    }
    wait = wait < WAIT_MS_MAX ? wait : WAIT_MS_MAX;
    say_again(plan, child, how, wait, counted);
    child->restarted_ms[child->restarts++ % plan->restarts_max] = now;
    child->restart_ms = now + wait;
    return true;
}

bool
rps_launch_restart(const struct rps_launch_plan *plan,
        struct rps_launch_child *child, bool terminal)
{
    for (int i = 0; i < 2; i++) {
        rps_launch_stream_close(plan, child, &child->streams[i]);
    }
    child->restart_ms = 0;
    child->pid = 0;
    child->ended = false;
    child->told = false;
    child->killed = false;
    child->suspect = false;
    child->code = 0;
    child->signal_number = 0;
    return rps_launch_child_start(plan, child, terminal);
}
