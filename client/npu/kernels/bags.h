/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bags of rows: pooled to a row a bag, and a bag's gradient back to each of
 * its tokens.
 *
 * Shapes: rows [row_count][dim]; slots [tokens] or NULL: token t is row t;
 *         starts [bags + 1]; pooled [outer][inner][dim], bags = outer inner,
 *         with strides; tokens [tokens][dim].
 * Bits:   a bag's rows add in the order of its tokens, and are divided where
 *         there are several, in f64 where precise.
 *
 * Indices come from device memory, which nobody has checked: a slot beyond
 * the rows is left out, starts are cut to [0, tokens].
 */
#ifndef RPS_NPU_KERNELS_BAGS_H
#define RPS_NPU_KERNELS_BAGS_H

#include "client/npu/kernels/product.h"

struct rps_npu_bags_args {
    struct rps_npu_arithmetic how;
    bool mean, sqrtn; /* divided by n, by sqrt(n) */
    size_t bags, tokens, dim;
    const int32_t *slots;
    const int32_t *starts;
    const float *rows;
    size_t row_count, row_stride;
    float *pooled; /* read by the backward */
    size_t inner;  /* bags that stand side by side */
    size_t inner_stride, outer_stride;
    float *dtokens;
    size_t dtokens_stride;
};

size_t rps_npu_bags_workspace(const struct rps_npu_bags_args *args);
/** args: struct rps_npu_bags_args. */
void rps_npu_bags_kernel(const void *args, void *workspace);

/** Needs no workspace. */
void rps_npu_bags_back_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_BAGS_H */
