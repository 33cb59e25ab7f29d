/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/dots.h"

#include <stdlib.h>
#include <string.h>

static uint32_t
padded(uint32_t n)
{
    return (n + RPS_DOTS_LANES - 1) / RPS_DOTS_LANES * RPS_DOTS_LANES;
}

struct rps_dots_shape
rps_dots_shape_of(uint32_t n, uint32_t width)
{
    return (struct rps_dots_shape){
            .n = n, .width = width, .stride = padded(width), .room = padded(n)};
}

size_t
rps_dots_sets(struct rps_dots sets[3])
{
    const char *cap = getenv("RPS_ISA");
    size_t count = 0;

    sets[count++] = rps_dots_scalar;
#if RPS_DOTS_ISAS
    if ((cap == NULL || strcmp(cap, "scalar") != 0) &&
            __builtin_cpu_supports("avx2")) {
        sets[count++] = rps_dots_avx2;
        if ((cap == NULL || strcmp(cap, "avx2") != 0) &&
                __builtin_cpu_supports("avx512f")) {
            sets[count++] = rps_dots_avx512;
        }
    }
#else
    (void)cap;
#endif
    return count;
}
