/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binary cross entropy on logits, always in f64: one element a row costs
 * nothing beside a row's products, and the loss is what people compare.
 *
 * loss = scale[0] sum of w (max(x, 0) - x y + log(1 + e^-|x|))
 * dx   = scale[1] w (1 / (1 + e^-x) - y)
 *
 * Shapes: x, y, dx [rows][labels], w [rows]; rows may have strides.
 * Bits:   sums of RPS_NPU_KERNEL_TILE rows, times scale[0], added in order.
 *         Rows whose w is 0 are not read.
 */
#ifndef RPS_NPU_KERNELS_LOSS_H
#define RPS_NPU_KERNELS_LOSS_H

#include <stdbool.h>
#include <stddef.h>

struct rps_npu_bce_args {
    size_t rows, labels;
    const float *x;
    size_t x_stride;
    const float *y;
    size_t y_stride;
    const float *weights; /* NULL: 1 */
    const double *scale;  /* [2]; NULL: 1 and 1 */
    double *loss;         /* NULL: not wanted */
    bool accumulate;
    float *dx; /* NULL: not wanted */
    size_t dx_stride;
};

/** args: struct rps_npu_bce_args. */
void rps_npu_bce_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_LOSS_H */
