/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows to their places: y[places[i]] = row i, rows that were packed behind
 * one another at a place which is known when it is done.
 *
 * Shapes: packed [packed_count]; header {first, count}: row i is
 *         packed + first + i dim; places [capacity]; y [row_count] rows of
 *         dim floats, row_stride apart.
 *
 * Numbers come from device memory, which nobody has checked: a row that is not
 * wholly in `packed`, and a place beyond y, are left out.
 */
#ifndef RPS_NPU_KERNELS_SCATTER_H
#define RPS_NPU_KERNELS_SCATTER_H

#include <stddef.h>
#include <stdint.h>

struct rps_npu_scatter_args {
    const float *packed;
    size_t packed_count;
    const int32_t *header;
    const int32_t *places;
    size_t capacity;
    float *rows;
    size_t row_count, row_stride, dim;
};

/** args: struct rps_npu_scatter_args; needs no workspace. */
void rps_npu_scatter_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_SCATTER_H */
