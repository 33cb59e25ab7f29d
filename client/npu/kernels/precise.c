/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of elementwise.h in f64, each result rounded to f32 once.
 */
#include "client/npu/kernels/elementwise.h"

#include <math.h>

#define GELU_IN    0.79788456080286535588 /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715

static double
logistic(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double
gelu_inner(double x)
{
    return GELU_IN * (x + GELU_CUBIC * x * x * x);
}

static void
relu(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = x[i] <= 0.0f ? 0.0f : x[i];
    }
}

static void
gelu(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double in = (double)x[i];

        /* (1 + tanh u) / 2 without its cancellation below 0 */
        y[i] = (float)(in * logistic(2.0 * gelu_inner(in)));
    }
}

static void
hyperbolic(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (float)tanh((double)x[i]);
    }
}

static void
sigmoid(const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (float)logistic((double)x[i]);
    }
}

static void
relu_back(const float *kept, const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dx[i] = kept[i] <= 0.0f ? 0.0f : dy[i];
    }
}

static double
gelu_slope(double x)
{
    const double t = tanh(gelu_inner(x));
    const double slope = GELU_IN * (1.0 + 3.0 * GELU_CUBIC * x * x);

    /* beyond, 1 - t^2 is 0 and slope may be infinite */
    if (fabs(x) > 32.0) {
        return x > 0.0 ? 1.0 : 0.0;
    }
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope;
}

static void
gelu_back(const float *kept, const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dx[i] = (float)(gelu_slope((double)kept[i]) * (double)dy[i]);
    }
}

static void
tanh_back(const float *kept, const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double y = (double)kept[i];

        dx[i] = (float)((1.0 - y * y) * (double)dy[i]);
    }
}

static void
sigmoid_back(const float *kept, const float *dy, float *dx, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double y = (double)kept[i];

        dx[i] = (float)(y * (1.0 - y) * (double)dy[i]);
    }
}

rps_npu_apply_fn *const rps_npu_precise_apply[RPS_NPU_KERNEL_FUNCTIONS] = {
        relu, gelu, hyperbolic, sigmoid};
rps_npu_apply_back_fn
        *const rps_npu_precise_apply_back[RPS_NPU_KERNEL_FUNCTIONS] = {
                relu_back, gelu_back, tanh_back, sigmoid_back};

void
rps_npu_precise_sgd(float *w, const float *g, size_t n,
        const struct rps_npu_step_numbers *c)
{
    for (size_t i = 0; i < n; i++) {
        const double old = (double)w[i];

        w[i] = (float)(c->keep * old -
                       c->rate * ((double)g[i] + c->decay * old));
    }
}

void
rps_npu_precise_adam(float *w, const float *g, float *m, float *v, size_t n,
        const struct rps_npu_step_numbers *c)
{
    for (size_t i = 0; i < n; i++) {
        const double old = (double)w[i];
        const double step = (double)g[i] + c->decay * old;
        const double mean = c->beta1 * (double)m[i] + c->beta1_rest * step;
        const double square =
                c->beta2 * (double)v[i] + c->beta2_rest * (step * step);

        w[i] = (float)(c->keep * old -
                       (c->rate * mean) / (sqrt(square) + c->epsilon));
        m[i] = (float)mean;
        v[i] = (float)square;
    }
}
