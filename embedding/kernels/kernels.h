/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the table engine: one struct of function pointers, filled
 * for the CPU at hand. kernels_scalar.c is the specification; every other
 * file must agree with it (tests/kernel/ holds them to that).
 *
 * For all of them
 * Shapes: arrays of n f32, any alignment of 4 bytes, not overlapping.
 * Bits:   those of the scalar kernel, which does one IEEE operation after
 *         the other in the order written: no FMA, no reciprocal estimates.
 *         Only which NaN a NaN is may differ.
 */
#ifndef RPS_EMBEDDING_KERNELS_H
#define RPS_EMBEDDING_KERNELS_H

#include "embedding/kernels/line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Instruction sets, each including the ones below it. */
enum rps_isa {
    RPS_ISA_SCALAR,
    RPS_ISA_AVX2,
    RPS_ISA_AVX512,
    RPS_ISA_COUNT
};

/** Constants of one Adam step; lr, b1, b2, eps and t as in docs/TABLE.md. */
struct rps_adam {
    float rate;       /* lr sqrt(1 - b2^t) / (1 - b1^t) */
    float beta1;      /* b1 */
    float beta1_rest; /* 1 - b1 */
    float beta2;      /* b2 */
    float beta2_rest; /* 1 - b2 */
    float epsilon;    /* eps sqrt(1 - b2^t), above 0 */
};

struct rps_kernels {
    /**
     * lanes[i] = where keys[i] lies in *lines[i]: 0..3; RPS_LANE_ABSENT if
     * it is not there and a place is free, RPS_LANE_BEYOND if none is.
     */
    void (*probe)(const struct rps_index_line *const *lines,
            const uint64_t *keys, size_t n, uint8_t *lanes);

    /** sum[j] += g[j] */
    void (*add)(float *restrict sum, const float *restrict g, size_t n);

    /** g[j] *= factor */
    void (*scale)(float *g, float factor, size_t n);

    /** g[j] = min(max(g[j], -limit), limit); limit >= 0, no NaN in g */
    void (*clip)(float *g, float limit, size_t n);

    /** Whether no element is an infinity or a NaN. */
    bool (*finite)(const float *g, size_t n);

    /**
     * Sum of squares, in double.
     *
     * Bits: 16 partial sums, sum i takes the elements i, i + 16, ... in
     *       order; then sum i += sum i + 8 (i < 8), += i + 4, += i + 2, += 1.
     */
    double (*square_sum)(const float *g, size_t n);

    /** w[j] -= lr * g[j] */
    void (*sgd)(float *restrict w, const float *restrict g, float lr, size_t n);

    /**
     * a[j] += g[j] * g[j]
     * if a[j] > 0: w[j] -= (lr * g[j]) / sqrt(a[j])
     */
    void (*adagrad)(float *restrict w, float *restrict a,
            const float *restrict g, float lr, size_t n);

    /**
     * m[j] = beta1 * m[j] + beta1_rest * g[j]
     * v[j] = beta2 * v[j] + beta2_rest * (g[j] * g[j])
     * w[j] -= (rate * m[j]) / (sqrt(v[j]) + epsilon)
     */
    void (*adam)(float *restrict w, float *restrict m, float *restrict v,
            const float *restrict g, const struct rps_adam *c, size_t n);
};

/** Best set this CPU runs, capped by the environment variable RPS_ISA. */
enum rps_isa rps_isa_detect(void);

/** "scalar", "avx2" or "avx512". */
const char *rps_isa_str(enum rps_isa isa);

/** Fill *k for `isa`. */
void rps_kernels_init(struct rps_kernels *k, enum rps_isa isa);

void rps_probe_init_scalar(struct rps_kernels *k);
void rps_probe_init_avx2(struct rps_kernels *k);
void rps_kernels_init_scalar(struct rps_kernels *k);
void rps_kernels_init_avx2(struct rps_kernels *k);
void rps_kernels_init_avx512(struct rps_kernels *k);

#endif /* RPS_EMBEDDING_KERNELS_H */
