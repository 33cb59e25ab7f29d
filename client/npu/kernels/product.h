/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products in tiles of rows, on OpenBLAS: their factors brought into
 * the form that the arithmetic asks for (rounded to bf16, widened to f64,
 * padded to a whole tile), in workspace where they are not in it already.
 *
 * Threads: any; a workspace is one call's.
 */
#ifndef RPS_NPU_KERNELS_PRODUCT_H
#define RPS_NPU_KERNELS_PRODUCT_H

#include "client/npu/kernels/elementwise.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Rows of a deterministic product: RPS_NPU_TILE_ROWS of npu_ops.h. */
#define RPS_NPU_KERNEL_TILE 64u

/** How a kernel computes. */
struct rps_npu_arithmetic {
    const struct rps_npu_elementwise *set;
    bool deterministic; /* tiles of RPS_NPU_KERNEL_TILE rows, padded */
    bool mixed;         /* factors of products are rounded to bf16 */
    bool precise;       /* sums and functions in f64 */
};

/** Rows of f32, or of bf16. */
struct rps_npu_matrix {
    const void *at;
    size_t stride; /* elements from a row to the next */
    bool bf16;
};

/** A part of a workspace that is handed out from its start. `at` NULL: only
 * counted, to learn how much there must be. */
struct rps_npu_room {
    unsigned char *at;
    size_t used;
};

/** The next `bytes`, aligned to 64; NULL where only counted, or for 0. */
void *rps_npu_room_take(struct rps_npu_room *room, size_t bytes);

/** Rows of the tiles in which `rows` rows of `in` columns are multiplied. */
size_t rps_npu_tile_rows(
        const struct rps_npu_arithmetic *how, size_t rows, size_t in);

/** A factor, or a result, as the BLAS has it: f64 where precise, else f32. */
struct rps_npu_operand {
    void *at;
    size_t stride;
};

/** Bytes that `rows` rows take in workspace, `ragged` if padded. 0: they are
 * used where they lie. */
size_t rps_npu_factor_bytes(const struct rps_npu_arithmetic *how, bool bf16,
        size_t rows, size_t columns, bool ragged);

/** The same of a result. */
size_t rps_npu_result_bytes(const struct rps_npu_arithmetic *how, size_t rows,
        size_t columns, bool ragged);

/**
 * Rows [first, first + n) of m, zeros behind them up to `rows`: where they lie,
 * or in `copy`, of rps_npu_factor_bytes().
 */
struct rps_npu_operand rps_npu_factor(const struct rps_npu_arithmetic *how,
        const struct rps_npu_matrix *m, size_t first, size_t n, size_t rows,
        size_t columns, void *copy);

/** Where a product of n rows of c goes, at `rows` rows; with `load` what c
 * holds is there. */
struct rps_npu_operand rps_npu_result(const struct rps_npu_arithmetic *how,
        float *c, size_t stride, size_t n, size_t rows, size_t columns,
        bool load, void *copy);

/** Bring n rows of it to c, unless it lies there. */
void rps_npu_result_store(const struct rps_npu_arithmetic *how,
        const struct rps_npu_operand *result, float *c, size_t stride, size_t n,
        size_t columns);

/** Which of the factors is transposed. */
enum rps_npu_form {
    RPS_NPU_FORM_NT, /* c[m][n] = a[m][k] b[n][k]^T */
    RPS_NPU_FORM_NN, /* c[m][n] = a[m][k] b[k][n] */
    RPS_NPU_FORM_TN  /* c[m][n] = a[k][m]^T b[k][n] */
};

/** c = the product, or c += it. */
void rps_npu_product(const struct rps_npu_arithmetic *how,
        enum rps_npu_form form, size_t m, size_t n, size_t k,
        const struct rps_npu_operand *a, const struct rps_npu_operand *b,
        bool add, const struct rps_npu_operand *c);

#endif /* RPS_NPU_KERNELS_PRODUCT_H */
