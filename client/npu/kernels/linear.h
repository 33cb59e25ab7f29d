/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer: y = act(z), z = x W^T + b, and its gradients. A call does the parts
 * it is asked for, tile by tile; a fused operator is all of them in one call,
 * and has the bits of one call a part.
 *
 * Shapes:  x [rows][in], W [out][in], b [out], z, y [rows][out]; rows may have
 *          strides.
 * Bits:    of a deterministic arithmetic, row i's depend on its place in its
 *          tile; sums over rows add in their order (bias), or tile by tile.
 */
#ifndef RPS_NPU_KERNELS_LINEAR_H
#define RPS_NPU_KERNELS_LINEAR_H

#include "client/npu/kernels/product.h"

/** As enum rps_npu_activation counts them. */
enum rps_npu_kernel_activation {
    RPS_NPU_KERNEL_ACT_NONE,
    RPS_NPU_KERNEL_ACT_RELU,
    RPS_NPU_KERNEL_ACT_GELU
};

/* Parts of the forward. */
#define RPS_NPU_LINEAR_BIAS       1u /* z = b */
#define RPS_NPU_LINEAR_PRODUCT    2u /* z = x W^T, or += where there is b */
#define RPS_NPU_LINEAR_ACTIVATION 4u /* y = act(z) */

struct rps_npu_linear_args {
    struct rps_npu_arithmetic how;
    uint32_t parts;
    enum rps_npu_kernel_activation activation;
    size_t rows, in, out;
    struct rps_npu_matrix x, weight;
    const float *bias; /* NULL: none */
    float *z;          /* y, where it is not kept */
    size_t z_stride;
    float *y;
    size_t y_stride;
};

size_t rps_npu_linear_workspace(const struct rps_npu_linear_args *args);

/** args: struct rps_npu_linear_args. */
void rps_npu_linear_kernel(const void *args, void *workspace);

/* Parts of the backward. */
#define RPS_NPU_LINEAR_DZ      1u /* dz = act'(…) dy */
#define RPS_NPU_LINEAR_DBIAS   2u
#define RPS_NPU_LINEAR_DWEIGHT 4u
#define RPS_NPU_LINEAR_DX      8u

struct rps_npu_linear_back_args {
    struct rps_npu_arithmetic how;
    uint32_t parts;
    enum rps_npu_kernel_activation activation;
    size_t rows, in, out;
    struct rps_npu_matrix x, weight;
    const float *kept; /* y of relu, z of gelu; of DZ alone */
    size_t kept_stride;
    const float *dy; /* without DZ: dz */
    size_t dy_stride;
    float *dz; /* NULL: a tile of it at a time, in workspace */
    size_t dz_stride;
    float *dx;
    size_t dx_stride;
    float *dweight;
    size_t dweight_stride;
    float *dbias;
    bool accumulate;
};

size_t rps_npu_linear_back_workspace(
        const struct rps_npu_linear_back_args *args);

/** args: struct rps_npu_linear_back_args. */
void rps_npu_linear_back_kernel(const void *args, void *workspace);

#endif /* RPS_NPU_KERNELS_LINEAR_H */
