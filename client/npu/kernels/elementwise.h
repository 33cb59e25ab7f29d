/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element after the other: activations, sums, roundings, optimizers.
 * elementwise_body.h is written once and compiled for each instruction set;
 * precise.c has the same in f64 (implmode high_precision).
 *
 * For all of them
 * Shapes: arrays of n, of their type's alignment. `y` may be `x` (in place),
 *         else they do not overlap.
 * Bits:   one IEEE operation after the other in the order written, so that
 *         every set has the same; only which NaN a NaN is may differ. An
 *         element's result does not depend on its place or on n.
 */
#ifndef RPS_NPU_KERNELS_ELEMENTWISE_H
#define RPS_NPU_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** As enum rps_npu_function counts them. */
enum rps_npu_kernel_function {
    RPS_NPU_KERNEL_RELU,
    RPS_NPU_KERNEL_GELU,
    RPS_NPU_KERNEL_TANH,
    RPS_NPU_KERNEL_SIGMOID,
    RPS_NPU_KERNEL_FUNCTIONS
};

/** The numbers of one optimizer step. */
struct rps_npu_step_numbers {
    double rate;  /* lr; of Adam lr sqrt(1 - b2^t) / (1 - b1^t) */
    double keep;  /* 1 - lr weight_decay where that is decoupled, else 1 */
    double decay; /* weight decay that is added to the gradient, else 0 */
    double beta1, beta1_rest; /* b1, 1 - b1 */
    double beta2, beta2_rest;
    double epsilon; /* times sqrt(1 - b2^t) */
};

/** y[i] = f(x[i]) */
typedef void rps_npu_apply_fn(const float *x, float *y, size_t n);

/** dx[i] = f'(…) dy[i]; kept: x of gelu, y of the others. */
typedef void rps_npu_apply_back_fn(
        const float *kept, const float *dy, float *dx, size_t n);

/** w -= rate (g + decay w), after w *= keep. */
typedef void rps_npu_sgd_fn(float *w, const float *g, size_t n,
        const struct rps_npu_step_numbers *c);

/**
 * g' = g + decay w; m = beta1 m + beta1_rest g'
 * v = beta2 v + beta2_rest (g' g')
 * w = keep w - (rate m) / (sqrt(v) + epsilon)
 */
typedef void rps_npu_adam_fn(float *w, const float *g, float *m, float *v,
        size_t n, const struct rps_npu_step_numbers *c);

struct rps_npu_elementwise {
    const char *isa;
    /* f32 within some ulp of the truth (elementwise_body.h) */
    rps_npu_apply_fn *apply[RPS_NPU_KERNEL_FUNCTIONS];
    rps_npu_apply_back_fn *apply_back[RPS_NPU_KERNEL_FUNCTIONS];

    /** y[i] = a[i] + b[i]; y may be a, b or both */
    void (*add)(const float *a, const float *b, float *y, size_t n);

    /** y[i] = x[i] factor */
    void (*scale)(const float *x, float factor, float *y, size_t n);

    /** y[i] = x[i] / by */
    void (*divide)(const float *x, float by, float *y, size_t n);

    /** Is no element an infinity or a NaN? */
    bool (*finite)(const float *x, size_t n);

    /** bf16 to f32; f32 to bf16; f32 through bf16: nearest, ties to even. */
    void (*widen)(const uint16_t *x, float *y, size_t n);
    void (*narrow)(const float *x, uint16_t *y, size_t n);
    rps_npu_apply_fn *round;

    void (*to_f64)(const float *x, double *y, size_t n);
    void (*from_f64)(const double *x, float *y, size_t n);

    /** sum[i] += x[i] */
    void (*add_f64)(const float *x, double *sum, size_t n);

    rps_npu_sgd_fn *sgd;
    rps_npu_adam_fn *adam;
};

/** The sets that this CPU runs, the best one last, capped by RPS_ISA as
 * embedding/kernels are. Returns how many. */
size_t rps_npu_elementwise_sets(const struct rps_npu_elementwise *sets[3]);

/** The best of them, looked for once. Threads: any. */
const struct rps_npu_elementwise *rps_npu_elementwise(void);

/* In f64, rounded once, with the C library's exp and tanh: the same bits on
 * every instruction set. */
extern rps_npu_apply_fn *const rps_npu_precise_apply[RPS_NPU_KERNEL_FUNCTIONS];
extern rps_npu_apply_back_fn
        *const rps_npu_precise_apply_back[RPS_NPU_KERNEL_FUNCTIONS];
rps_npu_sgd_fn rps_npu_precise_sgd;
rps_npu_adam_fn rps_npu_precise_adam;

/* For elementwise.c: one a file that is compiled with its own flags. */
extern const struct rps_npu_elementwise rps_npu_elementwise_scalar;
extern const struct rps_npu_elementwise rps_npu_elementwise_avx2;
extern const struct rps_npu_elementwise rps_npu_elementwise_avx512;

#endif /* RPS_NPU_KERNELS_ELEMENTWISE_H */
