/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dots of every pair of each row's vectors (dots.h), behind the first
 * vector, and back.
 *
 * Shapes: v, dv [rows][n][width], a row's vectors and its rows with strides;
 *         y, dy [rows][width + n (n - 1) / 2], or without `width` where `first`
 *         is not set.
 * Bits:   dots.h's; in f64 where precise, each sum in the same order.
 */
#ifndef RPS_NPU_KERNELS_INTERACT_H
#define RPS_NPU_KERNELS_INTERACT_H

#include "client/npu/kernels/dots.h"
#include "client/npu/kernels/product.h"

struct rps_npu_interact_args {
    struct rps_npu_arithmetic how;
    const struct rps_dots *dots;
    size_t rows;
    uint32_t n, width;
    bool first;
    const float *v;
    size_t v_row, v_vector; /* strides: to the next row, the next vector */
    float *y;               /* of the forward */
    size_t y_stride;
    const float *dy; /* of the backward */
    size_t dy_stride;
    float *dv;
    size_t dv_row, dv_vector;
};

size_t rps_npu_interact_workspace(const struct rps_npu_interact_args *args);
/** args: struct rps_npu_interact_args. */
void rps_npu_interact_kernel(const void *args, void *workspace);

size_t rps_npu_interact_back_workspace(
        const struct rps_npu_interact_args *args);
void rps_npu_interact_back_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_INTERACT_H */
