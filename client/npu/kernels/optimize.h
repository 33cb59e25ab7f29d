/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step of one variable, with the numbers of the step read when
 * it runs; and what stands around it: loss scale, the count of the steps.
 * PyTorch's laws, in the form lr sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) +
 * eps sqrt(1 - b2^t)), which is the same without a division an element.
 */
#ifndef RPS_NPU_KERNELS_OPTIMIZE_H
#define RPS_NPU_KERNELS_OPTIMIZE_H

#include "client/npu/kernels/product.h"

struct rps_npu_optimize_args {
    struct rps_npu_arithmetic how;
    bool adam;      /* else sgd */
    bool decoupled; /* weight decay is w *= 1 - lr decay */
    size_t n;
    float *weight;
    const float *gradient;
    float *m, *v;
    const double *learning_rate, *step;
    const int32_t *finite; /* NULL: 1 */
    double beta1, beta2, epsilon, decay;
};

/** args: struct rps_npu_optimize_args. */
void rps_npu_optimize_kernel(const void *args, void *workspace);

struct rps_npu_unscale_args {
    const struct rps_npu_elementwise *set;
    size_t rows, columns, stride;
    float *x;
    const double *factor; /* NULL: x is looked at */
    int32_t *finite;
    bool accumulate;
};

/** args: struct rps_npu_unscale_args. */
void rps_npu_unscale_kernel(const void *args, void *workspace);

struct rps_npu_count_args {
    double *counter;
    const int32_t *finite; /* NULL: 1 */
};

/** args: struct rps_npu_count_args. */
void rps_npu_count_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_OPTIMIZE_H */
