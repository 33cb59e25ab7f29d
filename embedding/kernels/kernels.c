/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/kernels.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

static const char *const isa_names[RPS_ISA_COUNT] = {
        "scalar", "avx2", "avx512"};

const char *
rps_isa_str(enum rps_isa isa)
{
    return (unsigned)isa < RPS_ISA_COUNT ? isa_names[isa] : "unknown";
}

#if defined(__x86_64__)
static bool
cpu_has_f16c(void)
{
    unsigned a = 0;
    unsigned b = 0;
    unsigned c = 0;
    unsigned d = 0;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}

/* What every CPU with AVX-512 has since the first of Intel's servers. */
static bool
cpu_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

/* The wide sets convert halves by F16C, which a hypervisor may hide. */
static enum rps_isa
isa_of_cpu(void)
{
#if defined(__x86_64__)
    if (cpu_has_f16c() && cpu_has_avx512()) {
        return RPS_ISA_AVX512;
    }
    if (cpu_has_f16c() && __builtin_cpu_supports("avx2")) {
        return RPS_ISA_AVX2;
    }
#endif
    return RPS_ISA_SCALAR;
}

enum rps_isa
rps_isa_detect(void)
{
    const enum rps_isa isa = isa_of_cpu();
    const char *cap = getenv("RPS_ISA");

    for (int i = 0; cap != NULL && i < (int)isa; i++) {
        if (strcmp(cap, isa_names[i]) == 0) {
            return (enum rps_isa)i;
        }
    }
    return isa;
}

/* Weakest first: a stronger set overwrites only the kernels it improves. */
void
rps_kernels_init(struct rps_kernels *k, enum rps_isa isa)
{
    assert((unsigned)isa < RPS_ISA_COUNT);

    rps_kernels_init_scalar(k);
    rps_probe_init_scalar(k);
#if defined(__x86_64__)
    if (isa >= RPS_ISA_AVX2) {
        rps_kernels_init_avx2(k);
        rps_probe_init_avx2(k);
    }
    if (isa >= RPS_ISA_AVX512) {
        rps_kernels_init_avx512(k);
    }
#endif
}
