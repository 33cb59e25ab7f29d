/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/elementwise.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct rps_npu_elementwise *best; /* set by `once` */

size_t
rps_npu_elementwise_sets(const struct rps_npu_elementwise *sets[3])
{
    const char *cap = getenv("RPS_ISA");
    size_t count = 0;

    sets[count++] = &rps_npu_elementwise_scalar;
#if RPS_NPU_ISAS
    if ((cap == NULL || strcmp(cap, "scalar") != 0) &&
            __builtin_cpu_supports("avx2")) {
        sets[count++] = &rps_npu_elementwise_avx2;
        if ((cap == NULL || strcmp(cap, "avx2") != 0) &&
                __builtin_cpu_supports("avx512f")) {
            sets[count++] = &rps_npu_elementwise_avx512;
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
    const struct rps_npu_elementwise *sets[3];

    best = sets[rps_npu_elementwise_sets(sets) - 1];
}

const struct rps_npu_elementwise *
rps_npu_elementwise(void)
{
    pthread_once(&once, choose);
    return best;
}
