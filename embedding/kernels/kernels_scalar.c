/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/kernels/element.h"
#include "embedding/kernels/kernels.h"

static void
add_scalar(float *restrict sum, const float *restrict g, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        sum[j] += g[j];
    }
}

static void
scale_scalar(float *g, float factor, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        g[j] *= factor;
    }
}

static void
clip_scalar(float *g, float limit, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        g[j] = element_clip(g[j], limit);
    }
}

static bool
finite_scalar(const float *g, size_t n)
{
    bool finite = true;

    for (size_t j = 0; j < n; j++) {
        finite = finite && element_finite(g[j]);
    }
    return finite;
}

static double
square_sum_scalar(const float *g, size_t n)
{
    double sums[RPS_SQUARE_SUMS] = {0.0};

    return element_square_sum(sums, g, 0, n);
}

static void
sgd_scalar(float *restrict w, const float *restrict g, float lr, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        element_sgd(&w[j], g[j], lr);
    }
}

static void
adagrad_scalar(float *restrict w, float *restrict a, const float *restrict g,
        float lr, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        element_adagrad(&w[j], &a[j], g[j], lr);
    }
}

static void
adam_scalar(float *restrict w, float *restrict m, float *restrict v,
        const float *restrict g, const struct rps_adam *c, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        element_adam(&w[j], &m[j], &v[j], g[j], c);
    }
}

void
rps_kernels_init_scalar(struct rps_kernels *k)
{
    *k = (struct rps_kernels){
            .add = add_scalar,
            .scale = scale_scalar,
            .clip = clip_scalar,
            .finite = finite_scalar,
            .square_sum = square_sum_scalar,
            .sgd = sgd_scalar,
            .adagrad = adagrad_scalar,
            .adam = adam_scalar,
    };
}
