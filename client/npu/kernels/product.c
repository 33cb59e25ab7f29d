/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/product.h"

#include <assert.h>
#include <cblas.h>
#include <stdint.h>
#include <string.h>

#define LINE  64u
#define CHUNK 256u /* elements that go through the stack at once */

/* Of tiles that need not be deterministic, measured: a product of few columns
 * is bound by its results, which should stay near; a larger one by its
 * factors, which are packed anew for each tile. */
#define NARROW_COLUMNS 64u
#define NARROW_ROWS    64u
#define WIDE_ROWS      512u

void *
rps_npu_room_take(struct rps_npu_room *room, size_t bytes)
{
    void *at = room->at != NULL && bytes > 0 ? room->at + room->used : NULL;

    room->used += (bytes + LINE - 1) / LINE * LINE;
    return at;
}

size_t
rps_npu_tile_rows(const struct rps_npu_arithmetic *how, size_t rows, size_t in)
{
    const size_t most = in < NARROW_COLUMNS ? NARROW_ROWS : WIDE_ROWS;

    if (how->deterministic) {
        return RPS_NPU_KERNEL_TILE;
    }
    return rows < most ? rows : most;
}

static size_t
cell_bytes(const struct rps_npu_arithmetic *how)
{
    return how->precise ? sizeof(double) : sizeof(float);
}

size_t
rps_npu_factor_bytes(const struct rps_npu_arithmetic *how, bool bf16,
        size_t rows, size_t columns, bool ragged)
{
    return how->precise || how->mixed || bf16 || ragged
                   ? rows * columns * cell_bytes(how)
                   : 0;
}

size_t
rps_npu_result_bytes(const struct rps_npu_arithmetic *how, size_t rows,
        size_t columns, bool ragged)
{
    return how->precise || ragged ? rows * columns * cell_bytes(how) : 0;
}

/* `n` elements of a row as f32, rounded if they must be. */
static const float *
as_f32(const struct rps_npu_arithmetic *how, const struct rps_npu_matrix *m,
        size_t at, size_t n, float *to)
{
    if (m->bf16) {
        how->set->widen((const uint16_t *)m->at + at, to, n);
        return to;
    }
    if (how->mixed) {
        how->set->round((const float *)m->at + at, to, n);
        return to;
    }
    return (const float *)m->at + at;
}

static void
row_to_f64(const struct rps_npu_arithmetic *how, const struct rps_npu_matrix *m,
        size_t at, size_t columns, double *to)
{
    float chunk[CHUNK];

    for (size_t first = 0; first < columns; first += CHUNK) {
        const size_t left = columns - first;
        const size_t n = left < CHUNK ? left : CHUNK;

        how->set->to_f64(as_f32(how, m, at + first, n, chunk), to + first, n);
    }
}

static void
row_to_f32(const struct rps_npu_arithmetic *how, const struct rps_npu_matrix *m,
        size_t at, size_t columns, float *to)
{
    const float *from = as_f32(how, m, at, columns, to);

    if (from != to) {
        memcpy(to, from, columns * sizeof(float));
    }
}

struct rps_npu_operand
rps_npu_factor(const struct rps_npu_arithmetic *how,
        const struct rps_npu_matrix *m, size_t first, size_t n, size_t rows,
        size_t columns, void *copy)
{
    struct rps_npu_operand operand = {.at = copy, .stride = columns};
    char *end = (char *)copy;

    if (rps_npu_factor_bytes(how, m->bf16, rows, columns, n < rows) == 0) {
        /* read only, as an operand of a product is */
        operand.at =
                (void *)(uintptr_t)((const float *)m->at + first * m->stride);
        operand.stride = m->stride;
        return operand;
    }
    for (size_t r = 0; r < n; r++) {
        const size_t at = (first + r) * m->stride;

        if (how->precise) {
            row_to_f64(how, m, at, columns, (double *)copy + r * columns);
        } else {
            row_to_f32(how, m, at, columns, (float *)copy + r * columns);
        }
    }
    memset(end + n * columns * cell_bytes(how), 0,
            (rows - n) * columns * cell_bytes(how));
    return operand;
}

struct rps_npu_operand
rps_npu_result(const struct rps_npu_arithmetic *how, float *c, size_t stride,
        size_t n, size_t rows, size_t columns, bool load, void *copy)
{
    const struct rps_npu_matrix now = {.at = c, .stride = stride};
    struct rps_npu_arithmetic plain = *how;

    if (rps_npu_result_bytes(how, rows, columns, n < rows) == 0) {
        return (struct rps_npu_operand){.at = c, .stride = stride};
    }
    if (load) {
        plain.mixed = false; /* results are not rounded */
        return rps_npu_factor(&plain, &now, 0, n, rows, columns, copy);
    }
    return (struct rps_npu_operand){.at = copy, .stride = columns};
}

void
rps_npu_result_store(const struct rps_npu_arithmetic *how,
        const struct rps_npu_operand *result, float *c, size_t stride, size_t n,
        size_t columns)
{
    if (result->at == c) {
        return;
    }
    for (size_t r = 0; r < n; r++) {
        if (how->precise) {
            how->set->from_f64((const double *)result->at + r * columns,
                    c + r * stride, columns);
        } else {
            memcpy(c + r * stride, (const float *)result->at + r * columns,
                    columns * sizeof(float));
        }
    }
}

static void
clear(const struct rps_npu_arithmetic *how, const struct rps_npu_operand *c,
        size_t m, size_t n)
{
    const size_t cell = cell_bytes(how);

    for (size_t r = 0; r < m; r++) {
        memset((char *)c->at + r * c->stride * cell, 0, n * cell);
    }
}

void
rps_npu_product(const struct rps_npu_arithmetic *how, enum rps_npu_form form,
        size_t m, size_t n, size_t k, const struct rps_npu_operand *a,
        const struct rps_npu_operand *b, bool add,
        const struct rps_npu_operand *c)
{
    const CBLAS_TRANSPOSE left =
            form == RPS_NPU_FORM_TN ? CblasTrans : CblasNoTrans;
    const CBLAS_TRANSPOSE right =
            form == RPS_NPU_FORM_NT ? CblasTrans : CblasNoTrans;

    assert(m <= INT32_MAX && n <= INT32_MAX && k <= INT32_MAX);
    if (m == 0 || n == 0) {
        return;
    }
    if (k == 0) { /* a BLAS may refuse it */
        if (!add) {
            clear(how, c, m, n);
        }
        return;
    }
    if (how->precise) {
        cblas_dgemm(CblasRowMajor, left, right, (blasint)m, (blasint)n,
                (blasint)k, 1.0, a->at, (blasint)a->stride, b->at,
                (blasint)b->stride, add ? 1.0 : 0.0, c->at, (blasint)c->stride);
    } else {
        cblas_sgemm(CblasRowMajor, left, right, (blasint)m, (blasint)n,
                (blasint)k, 1.0f, a->at, (blasint)a->stride, b->at,
                (blasint)b->stride, add ? 1.0f : 0.0f, c->at,
                (blasint)c->stride);
    }
}
