/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One element of each kernel: the scalar loops and the tails of the wider
 * ones are made of these, so that the formulas stand once.
 */
#ifndef RPS_EMBEDDING_KERNELS_ELEMENT_H
#define RPS_EMBEDDING_KERNELS_ELEMENT_H

#include "embedding/kernels/kernels.h"

#include <math.h>
#include <string.h>

#define RPS_SQUARE_SUMS 16u

static inline float
element_clip(float g, float limit)
{
    /* as min(max(g, -limit), limit) of SSE: the second operand wins ties */
    const float low = g > -limit ? g : -limit;

    return low < limit ? low : limit;
}

static inline bool
element_finite(float g)
{
    uint32_t bits = 0;

    memcpy(&bits, &g, sizeof(bits));
    return (bits & 0x7f800000u) != 0x7f800000u;
}

static inline void
element_sgd(float *w, float g, float lr)
{
    *w -= lr * g;
}

static inline void
element_adagrad(float *w, float *a, float g, float lr)
{
    *a += g * g;
    if (*a > 0.0f) {
        *w -= (lr * g) / sqrtf(*a);
    }
}

static inline void
element_adam(float *w, float *m, float *v, float g, const struct rps_adam *c)
{
    *m = c->beta1 * *m + c->beta1_rest * g;
    *v = c->beta2 * *v + c->beta2_rest * (g * g);
    *w -= (c->rate * *m) / (sqrtf(*v) + c->epsilon);
}

/* Add what is left of g from `start` on, then fold the 16 sums into one. */
static inline double
element_square_sum(
        double sums[RPS_SQUARE_SUMS], const float *g, size_t start, size_t n)
{
    for (size_t j = start; j < n; j++) {
        sums[j % RPS_SQUARE_SUMS] += (double)g[j] * (double)g[j];
    }
    for (size_t half = RPS_SQUARE_SUMS / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; i++) {
            sums[i] += sums[i + half];
        }
    }
    return sums[0];
}

#endif /* RPS_EMBEDDING_KERNELS_ELEMENT_H */
