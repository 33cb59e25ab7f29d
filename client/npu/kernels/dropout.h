/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: element e is dropped where 32 bits of a draw are below rate 2^32.
 * Draws are splitmix64's, from a start that (seed, site, step) alone give: two
 * elements a draw, the even one its lower half. So an element's fate is a
 * function of numbers, and can be asked for again, in any order.
 *
 * Shapes: x, y rows of columns with strides; y may be x. Element (r, c) is
 *         number first + r columns + c.
 */
#ifndef RPS_NPU_KERNELS_DROPOUT_H
#define RPS_NPU_KERNELS_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

struct rps_npu_dropout_args {
    size_t rows, columns;
    const float *x;
    size_t x_stride;
    float *y;
    size_t y_stride;
    double rate;
    uint64_t seed, site;
    const double *step; /* whole */
    uint64_t first;
};

/** args: struct rps_npu_dropout_args. */
void rps_npu_dropout_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_DROPOUT_H */
