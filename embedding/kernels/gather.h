/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows from here and there into the caller's buffer, for the lanes included
 * before. The dims of most tables are constants where they are copied, so
 * that a row of 16 floats is two or four moves and no loop.
 */
#ifndef RPS_EMBEDDING_KERNELS_GATHER_H
#define RPS_EMBEDDING_KERNELS_GATHER_H

#include "embedding/kernels/convert.h"

#define INLINED static inline __attribute__((always_inline))

typedef lanes load_fn(const void *from, size_t j, size_t count);

INLINED lanes
load_f32(const void *from, size_t j, size_t count)
{
    return lanes_load((const float *)from + j, count);
}

INLINED lanes
load_f16(const void *from, size_t j, size_t count)
{
    return lanes_of_f16((const uint16_t *)from + j, count);
}

INLINED lanes
load_bf16(const void *from, size_t j, size_t count)
{
    return lanes_of_bf16((const uint16_t *)from + j, count);
}

/* Four groups at a time, so that a long row's loop is short. */
INLINED void
copy_row(load_fn *load, float *to, const void *from, size_t dim)
{
    size_t j = 0;

    for (; j + 4 * LANES <= dim; j += 4 * LANES) {
        const lanes a = load(from, j, LANES);
        const lanes b = load(from, j + LANES, LANES);
        const lanes c = load(from, j + 2 * LANES, LANES);
        const lanes d = load(from, j + 3 * LANES, LANES);
        lanes_store(to + j, LANES, a);
        lanes_store(to + j + LANES, LANES, b);
        lanes_store(to + j + 2 * LANES, LANES, c);
        lanes_store(to + j + 3 * LANES, LANES, d);
    }
    for (; j + LANES <= dim; j += LANES) {
        lanes_store(to + j, LANES, load(from, j, LANES));
    }
    if (LANES > 1 && j < dim) {
        lanes_store(to + j, dim - j, load(from, j, dim - j));
    }
}

INLINED void
copy_rows(load_fn *load, float *rows, size_t stride_bytes,
        const uint16_t *positions, const void *const *sources, size_t n,
        size_t dim)
{
    for (size_t i = 0; i < n; i++) {
        char *to = (char *)rows + positions[i] * stride_bytes;
        copy_row(load, (float *)(void *)to, sources[i], dim);
    }
}

INLINED void
gather_any(load_fn *load, float *rows, size_t stride_bytes,
        const uint16_t *positions, const void *const *sources, size_t n,
        size_t dim)
{
    switch (dim) {
    case 8:
        copy_rows(load, rows, stride_bytes, positions, sources, n, 8);
        break;
    case 16:
        copy_rows(load, rows, stride_bytes, positions, sources, n, 16);
        break;
    case 32:
        copy_rows(load, rows, stride_bytes, positions, sources, n, 32);
        break;
    case 64:
        copy_rows(load, rows, stride_bytes, positions, sources, n, 64);
        break;
    default:
        copy_rows(load, rows, stride_bytes, positions, sources, n, dim);
        break;
    }
}

static void
gather_f32(float *rows, size_t stride_bytes, const uint16_t *positions,
        const void *const *sources, size_t n, size_t dim)
{
    gather_any(load_f32, rows, stride_bytes, positions, sources, n, dim);
}

static void
gather_f16(float *rows, size_t stride_bytes, const uint16_t *positions,
        const void *const *sources, size_t n, size_t dim)
{
    gather_any(load_f16, rows, stride_bytes, positions, sources, n, dim);
}

static void
gather_bf16(float *rows, size_t stride_bytes, const uint16_t *positions,
        const void *const *sources, size_t n, size_t dim)
{
    gather_any(load_bf16, rows, stride_bytes, positions, sources, n, dim);
}

static void
gather_init(struct rps_kernels *k)
{
    k->gather[RPS_VALUE_F32] = gather_f32;
    k->gather[RPS_VALUE_F16] = gather_f16;
    k->gather[RPS_VALUE_BF16] = gather_bf16;
}

#endif /* RPS_EMBEDDING_KERNELS_GATHER_H */
