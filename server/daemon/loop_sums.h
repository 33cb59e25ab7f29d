/* SPDX-License-Identifier: Apache-2.0 */
/* The loops' counters, summed by whoever shows them. */
#ifndef RPS_SERVER_DAEMON_LOOP_SUMS_H
#define RPS_SERVER_DAEMON_LOOP_SUMS_H

#include "server/daemon/view.h"

#include <stddef.h>

/** RPS_LOOPS_SUM(view, times[op].ns) */
#define RPS_LOOPS_SUM(view, field) \
    rps_loops_sum(view, offsetof(struct rps_loop_stats, field))

/** Loops that may be looked at: none before the port is bound. */
uint32_t rps_loops_of(const struct rps_view *view);

/** Of one of their uint64_t counters, by its place. Threads: any. */
uint64_t rps_loops_sum(const struct rps_view *view, size_t offset);

#endif /* RPS_SERVER_DAEMON_LOOP_SUMS_H */
