/* SPDX-License-Identifier: Apache-2.0 */
/* Built without MPI. */
#include "bench/allreduce/rank.h"

#include <sysexits.h>

bool
bench_allreduce_is_built(void)
{
    return false;
}

int
bench_allreduce_rank(const struct bench_allreduce_args *args)
{
    (void)args;
    return EX_UNAVAILABLE;
}
