/* SPDX-License-Identifier: Apache-2.0 */
#include "base/give_way.h"

#include "base/clock.h"

#include <sched.h>

#define WORK_NS 100000u

uint64_t
rps_give_way_next(uint64_t start_ns, uint64_t end_ns)
{
    const uint64_t half = (end_ns - start_ns) / 2;

    return end_ns + (half > WORK_NS ? half : WORK_NS);
}

void
rps_give_way(void)
{
    static _Thread_local uint64_t due;
    const uint64_t start = rps_clock_ns();

    if (start >= due) {
        (void)sched_yield();
        due = rps_give_way_next(start, rps_clock_ns());
    }
}
