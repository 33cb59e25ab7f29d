/* SPDX-License-Identifier: Apache-2.0 */
#include "base/spin.h"

#include "base/clock.h"

#include <sched.h>

#define CREDIT_MAX 8u
#define TRY_EVERY  16u /* sleeps without a look */
#define TRY_NS     200000u

void
rps_spin_init(struct rps_spin *spin)
{
    cpu_set_t set;

    *spin = (struct rps_spin){.credit = CREDIT_MAX};
    spin->alone =
            sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) < 2;
}

bool
rps_spin(struct rps_spin *spin, bool (*look)(void *context), void *context)
{
    uint64_t end;
    /* whose peer sleeps must outlast its wake to find it awake from then on */
    const uint64_t most = spin->credit == 0 ? TRY_NS : RPS_SPIN_NS;

    if (spin->alone || (spin->credit == 0 && ++spin->skipped < TRY_EVERY)) {
        return false;
    }
    spin->skipped = 0;
    end = rps_clock_ns() + most;
    do {
        if (look(context)) {
            spin->credit = CREDIT_MAX;
            return true;
        }
    } while (rps_clock_ns() < end);
    spin->credit -= spin->credit > 0;
    return false;
}
