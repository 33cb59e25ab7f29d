/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elementwise.h's functions over rows: what operators of one or two inputs
 * give to a stream.
 *
 * Shapes: rows of `columns`, each array with its stride (elements from a row
 *         to the next).
 */
#ifndef RPS_NPU_KERNELS_MAP_H
#define RPS_NPU_KERNELS_MAP_H

#include "client/npu/kernels/product.h"

/** Strides of rows; a contiguous array is one row. */
struct rps_npu_rows {
    size_t rows, columns;
    size_t a, b, y; /* strides */
};

struct rps_npu_map_args {
    struct rps_npu_arithmetic how;
    struct rps_npu_rows shape;
    enum rps_npu_kernel_function function;
    const float *a; /* x; of the backward what was kept */
    const float *b; /* dy */
    float *y;
    double factor;
    const double *device_factor; /* NULL: 1 */
};

/** y = f(a) */
void rps_npu_apply_kernel(const void *args, void *workspace);
/** y = f'(a) b */
void rps_npu_apply_back_kernel(const void *args, void *workspace);
/** y = a + b */
void rps_npu_add_kernel(const void *args, void *workspace);
/** y = a (factor *device_factor) */
void rps_npu_scale_kernel(const void *args, void *workspace);
/** y = factor */
void rps_npu_fill_kernel(const void *args, void *workspace);

struct rps_npu_cast_args {
    const struct rps_npu_elementwise *set;
    struct rps_npu_rows shape; /* of a to y */
    const void *a;
    void *y;
    uint32_t bytes;     /* of an element, where both are of one type */
    bool widen, narrow; /* from bf16; to bf16; neither: copied */
};

void rps_npu_cast_kernel(const void *args, void *workspace);

/** Up to as many parts as an operation has tensors beside the whole. */
#define RPS_NPU_JOIN_MAX 15u

/** One operation joins at most JOIN_AT_ONCE parts, for its arguments' room. */
#define RPS_NPU_JOIN_AT_ONCE 5u

struct rps_npu_join_args {
    size_t rows;
    float *whole;
    size_t whole_stride;
    uint32_t count;
    struct {
        float *at;
        size_t stride;
        size_t columns;
        size_t column; /* of the whole, where it begins */
    } part[RPS_NPU_JOIN_AT_ONCE];
};

/** whole = [part 0, part 1, …] */
void rps_npu_concat_kernel(const void *args, void *workspace);
/** [part 0, part 1, …] = whole */
void rps_npu_split_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_MAP_H */
