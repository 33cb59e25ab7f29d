/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text of dots.h's functions, which each set compiles with its own flags:
 * loops over RPS_DOTS_LANES floats side by side, which a compiler keeps in
 * vectors without changing the order of any sum. The file that includes it
 * names the set: RPS_DOTS_SET.
 */
#include "client/worker/dots.h"

#include <string.h>

#define LANES RPS_DOTS_LANES

static void
add_scaled(float *restrict sum, float factor, const float *restrict row)
{
    for (uint32_t l = 0; l < LANES; l++) {
        sum[l] += factor * row[l];
    }
}

/* The dots of vector i with vectors [first, first + LANES). */
static void
dot_block(const struct rps_dots_shape *shape, const float *restrict vector,
        const float *restrict columns, float *restrict z)
{
    float sum[LANES] = {0.0f};

    for (uint32_t k = 0; k < shape->width; k++) {
        add_scaled(sum, vector[k], columns + (size_t)k * shape->room);
    }
    memcpy(z, sum, sizeof(sum));
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
    /* what a block has beyond i is overwritten by the next i's dots */
    for (uint32_t i = 1; i < shape->n; i++) {
        for (uint32_t first = 0; first < i; first += LANES) {
            dot_block(shape, v + (size_t)i * shape->stride, columns + first,
                    z + first);
        }
        z += i;
    }
}

/* g[LANES] of vector i: dz(i, j) lies at i (i - 1) / 2 + j, or the other way
 * round. */
static void
back_block(const struct rps_dots_shape *shape, uint32_t i,
        const float *restrict v, const float *restrict dz, float *restrict g)
{
    const float *row = dz + (size_t)i * (i - (i > 0)) / 2;
    size_t at = (size_t)i * (i + 1) / 2 + i;
    float sum[LANES] = {0.0f};

    for (uint32_t j = 0; j < i; j++) {
        add_scaled(sum, row[j], v + (size_t)j * shape->stride);
    }
    for (uint32_t j = i + 1; j < shape->n; j++) {
        add_scaled(sum, dz[at], v + (size_t)j * shape->stride);
        at += j;
    }
    memcpy(g, sum, sizeof(sum));
}

static void
backward(const struct rps_dots_shape *shape, const float *v, const float *dz,
        float *g)
{
    for (uint32_t i = 0; i < shape->n; i++) {
        for (uint32_t k = 0; k < shape->width; k += LANES) {
            back_block(shape, i, v + k, dz, g + (size_t)i * shape->stride + k);
        }
    }
}

const struct rps_dots RPS_DOTS_SET = {
        .isa = RPS_DOTS_ISA,
        .forward = forward,
        .backward = backward,
};
