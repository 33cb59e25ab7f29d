/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replica that was stopped (SIGSTOP) and is the last one. In async a chief
 * that is stopped keeps nobody waiting that could tell: the others do their
 * steps and end. A job all of whose replicas are stopped may stand as long as
 * it likes.
 */
#include "client/cli/launch.h"

#include <sys/wait.h>

/* WNOWAIT: it is asked again. */
static bool
is_stopped(const struct rps_launch_child *child)
{
    siginfo_t info = {.si_pid = 0};

    return waitid(P_PID, (id_t)child->pid, &info,
                   WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid != 0;
}

/* Where all that have not ended are stopped and others have ended; else
 * NULL. */
static const struct rps_launch_child *
last_halted(const struct rps_launch_plan *plan)
{
    const struct rps_launch_child *last = NULL;
    bool any_ended = false;

    for (uint32_t i = plan->ps_count; i < plan->count; i++) {
        const struct rps_launch_child *child = &plan->children[i];

        if (child->role == RPS_ROLE_EVALUATOR) {
            continue;
        }
        if (child->pid == 0 || child->restart_ms != 0) {
            return NULL; /* it starts soon */
        }
        if (child->ended) {
            any_ended = true;
        } else if (is_stopped(child)) {
            last = child;
        } else {
            return NULL;
        }
    }
    return any_ended ? last : NULL;
}

bool
rps_launch_is_halted(
        const struct rps_launch_plan *plan, uint64_t now, uint64_t *since_ms)
{
    const double limit = plan->options->step_timeout;
    const struct rps_launch_child *child = last_halted(plan);
    double waited;

    if (child == NULL || *since_ms == 0) {
        *since_ms = child != NULL ? now : 0;
        return false;
    }
    waited = (double)(now - *since_ms) / 1000.0;
    if (waited < limit) {
        return false;
    }
    *since_ms = now; /* said once in that time */
    rps_launch_say(plan,
            "%s has been stopped for %.1f s, and the other replicas have ended "
            "(--step-timeout is %.1f s); stopping all",
            child->label, waited, limit);
    return true;
}
