/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/loop_sums.h"

uint32_t
rps_loops_of(const struct rps_view *view)
{
    return rps_view_stage(view) == RPS_STAGE_STARTING ? 0 : view->loop_count;
}

static const _Atomic uint64_t *
counter_at(const struct rps_view *view, uint32_t loop, size_t offset)
{
    const char *stats = (const char *)rps_loop_stats(view->loops[loop]);

    return (const _Atomic uint64_t *)(const void *)(stats + offset);
}

uint64_t
rps_loops_sum(const struct rps_view *view, size_t offset)
{
    const uint32_t loops = rps_loops_of(view);
    uint64_t sum = 0;

    for (uint32_t i = 0; i < loops; i++) {
        sum += rps_stat_get(counter_at(view, i, offset));
    }
    return sum;
}
