/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/dots.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rps_dots best; /* set by `once` */

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
#if RPS_NPU_ISAS
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

static void
choose(void)
{
    struct rps_dots sets[3];

    best = sets[rps_dots_sets(sets) - 1];
}

const struct rps_dots *
rps_dots_best(void)
{
    pthread_once(&once, choose);
    return &best;
}
