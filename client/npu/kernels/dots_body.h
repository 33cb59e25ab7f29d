/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of dots.h's functions, which each set compiles with its own flags:
 * LANES floats side by side, so that no sum changes its order. Four vectors
 * go together, so that what they are multiplied by is read once; the n mod 4
 * that are left over come first, where they have the fewest dots. The file
 * that includes it names the set and the bytes of its vectors: RPS_DOTS_SET,
 * RPS_DOTS_ISA, RPS_DOTS_BYTES.
 */
#include "client/npu/kernels/dots.h"

#include <string.h>

#define LANES (RPS_DOTS_BYTES / (uint32_t)sizeof(float))

_Static_assert(RPS_DOTS_LANES % LANES == 0, "a row is whole vectors");

typedef float lanes __attribute__((vector_size(RPS_DOTS_BYTES)));

/* The same, as it lies in memory. */
typedef float row_lanes
        __attribute__((vector_size(RPS_DOTS_BYTES), aligned(4), may_alias));

#define AT(row) (*(const row_lanes *)(const void *)(row))

/* The place of dz(i, 0). */
static inline size_t
row_of(uint32_t i)
{
    return i > 0 ? (size_t)i * (i - 1) / 2 : 0;
}

/* The lanes [first, first + LANES) of vector i's dots that are below i. */
static inline void
put_dots(float *z, uint32_t i, uint32_t first, const lanes *sum)
{
    if (first + LANES <= i) {
        memcpy(z + row_of(i) + first, sum, sizeof(*sum));
    } else if (first < i) {
        memcpy(z + row_of(i) + first, sum, (i - first) * sizeof(float));
    }
}

static void
one_forward(const struct rps_dots_shape *shape, const float *v,
        const float *columns, uint32_t i, float *z)
{
    const float *vector = v + (size_t)i * shape->stride;

    for (uint32_t first = 0; first < i; first += LANES) {
        const float *column = columns + first;
        lanes sum = {0.0f};

        for (uint32_t k = 0; k < shape->width; k++) {
            sum += vector[k] * AT(column);
            column += shape->room;
        }
        put_dots(z, i, first, &sum);
    }
}

static void
four_forward(const struct rps_dots_shape *shape, const float *v,
        const float *columns, uint32_t i, float *z)
{
    const float *a = v + (size_t)i * shape->stride;
    const float *b = a + shape->stride;
    const float *c = b + shape->stride;
    const float *d = c + shape->stride;

    for (uint32_t first = 0; first < i + 3; first += LANES) {
        const float *column = columns + first;
        lanes sum_a = {0.0f}, sum_b = {0.0f}, sum_c = {0.0f}, sum_d = {0.0f};

        for (uint32_t k = 0; k < shape->width; k++) {
            const lanes others = AT(column);

            sum_a += a[k] * others;
            sum_b += b[k] * others;
            sum_c += c[k] * others;
            sum_d += d[k] * others;
            column += shape->room;
        }
        put_dots(z, i, first, &sum_a);
        put_dots(z, i + 1, first, &sum_b);
        put_dots(z, i + 2, first, &sum_c);
        put_dots(z, i + 3, first, &sum_d);
    }
}

static void
forward(const struct rps_dots_shape *shape, const float *v, float *columns,
        float *z)
{
    for (uint32_t i = 0; i < shape->n; i++) {
        for (uint32_t k = 0; k < shape->width; k++) {
            columns[(size_t)k * shape->room + i] =
                    v[(size_t)i * shape->stride + k];
        }
    }
    for (uint32_t i = 0; i < shape->n % 4; i++) {
        one_forward(shape, v, columns, i, z);
    }
    for (uint32_t i = shape->n % 4; i < shape->n; i += 4) {
        four_forward(shape, v, columns, i, z);
    }
}

/* Lanes of vector i's gradient. v, g: moved on to the first lane. */
static void
one_backward(const struct rps_dots_shape *shape, const float *v,
        const float *dz, uint32_t i, float *g)
{
    const float *row = dz + row_of(i);
    lanes sum = {0.0f};

    for (uint32_t j = 0; j < i; j++) {
        sum += row[j] * AT(v + (size_t)j * shape->stride);
    }
    for (uint32_t j = i + 1; j < shape->n; j++) {
        sum += dz[row_of(j) + i] * AT(v + (size_t)j * shape->stride);
    }
    memcpy(g + (size_t)i * shape->stride, &sum, sizeof(sum));
}

static void
four_backward(const struct rps_dots_shape *shape, const float *v,
        const float *dz, uint32_t i, float *g)
{
    const size_t stride = shape->stride;
    const float *a = dz + row_of(i), *b = dz + row_of(i + 1);
    const float *c = dz + row_of(i + 2), *d = dz + row_of(i + 3);
    lanes sum_a = {0.0f}, sum_b = {0.0f}, sum_c = {0.0f}, sum_d = {0.0f};
    lanes other, next;

    for (uint32_t j = 0; j < i; j++, v += stride) {
        other = AT(v);
        sum_a += a[j] * other;
        sum_b += b[j] * other;
        sum_c += c[j] * other;
        sum_d += d[j] * other;
    }
    /* the four among themselves, each sum still in the order of j */
    other = AT(v);
    next = AT(v + stride);
    sum_a += b[i] * next;
    sum_b += b[i] * other;
    sum_c = sum_c + c[i] * other + c[i + 1] * next;
    sum_d = sum_d + d[i] * other + d[i + 1] * next;
    other = AT(v + 2 * stride);
    next = AT(v + 3 * stride);
    sum_a = sum_a + c[i] * other + d[i] * next;
    sum_b = sum_b + c[i + 1] * other + d[i + 1] * next;
    sum_c += d[i + 2] * next;
    sum_d += d[i + 2] * other;
    v += 4 * stride;
    for (uint32_t j = i + 4; j < shape->n; j++, v += stride) {
        const float *row = dz + row_of(j) + i;

        other = AT(v);
        sum_a += row[0] * other;
        sum_b += row[1] * other;
        sum_c += row[2] * other;
        sum_d += row[3] * other;
    }
    g += i * stride;
    memcpy(g, &sum_a, sizeof(lanes));
    memcpy(g + stride, &sum_b, sizeof(lanes));
    memcpy(g + 2 * stride, &sum_c, sizeof(lanes));
    memcpy(g + 3 * stride, &sum_d, sizeof(lanes));
}

static void
backward(const struct rps_dots_shape *shape, const float *v, const float *dz,
        float *g)
{
    for (uint32_t k = 0; k < shape->width; k += LANES) {
        for (uint32_t i = 0; i < shape->n % 4; i++) {
            one_backward(shape, v + k, dz, i, g + k);
        }
        for (uint32_t i = shape->n % 4; i < shape->n; i += 4) {
            four_backward(shape, v + k, dz, i, g + k);
        }
    }
}

const struct rps_dots RPS_DOTS_SET = {
        .isa = RPS_DOTS_ISA,
        .forward = forward,
        .backward = backward,
};
