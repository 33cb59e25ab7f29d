/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A replica that was stopped (SIGSTOP) and is the last one.
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

const struct rps_launch_child *
rps_launch_halted(const struct rps_launch_plan *plan)
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
