/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What operators compute, in double precision and as plainly as can be: the
 * tests' own words for it, against which kernels are held.
 */
#ifndef RPS_TESTS_UNIT_NPU_MODELS_H
#define RPS_TESTS_UNIT_NPU_MODELS_H

#include "tests/unit/npu/numbers.h"

enum model_activation {
    MODEL_NONE,
    MODEL_RELU,
    MODEL_GELU
};

static inline double *
doubles(size_t n)
{
    double *cells = calloc(n + 1, sizeof(double));

    ck_assert_ptr_nonnull(cells);
    return cells;
}

static inline double
model_activate(enum model_activation activation, double z)
{
    if (activation == MODEL_RELU) {
        return z > 0.0 ? z : 0.0;
    }
    if (activation == MODEL_GELU) {
        return 0.5 * z *
               (1.0 + tanh(sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z)));
    }
    return z;
}

/* By a difference: no second derivation that could share a mistake. */
static inline double
model_slope(enum model_activation activation, double z)
{
    const double h = 1e-6;

    if (activation == MODEL_RELU) {
        return z > 0.0 ? 1.0 : 0.0;
    }
    return (model_activate(activation, z + h) -
                   model_activate(activation, z - h)) /
           (2.0 * h);
}

/* Contiguous. x NULL: b alone; b NULL: none. */
struct model_linear {
    size_t rows, in, out;
    const float *x, *w, *b;
    enum model_activation activation;
    const float *dy;
};

static inline double *
model_linear_z(const struct model_linear *l)
{
    double *z = doubles(l->rows * l->out);

    for (size_t r = 0; r < l->rows; r++) {
        for (size_t o = 0; o < l->out; o++) {
            double sum = l->b != NULL ? (double)l->b[o] : 0.0;

            for (size_t i = 0; l->x != NULL && i < l->in; i++) {
                sum += (double)l->x[r * l->in + i] *
                       (double)l->w[o * l->in + i];
            }
            z[r * l->out + o] = sum;
        }
    }
    return z;
}

static inline double *
model_linear_y(const struct model_linear *l)
{
    double *y = model_linear_z(l);

    for (size_t i = 0; i < l->rows * l->out; i++) {
        y[i] = model_activate(l->activation, y[i]);
    }
    return y;
}

/* dx [rows][in], dw [out][in], db [out]: added to what is there. */
static inline void
model_linear_back(
        const struct model_linear *l, double *dx, double *dw, double *db)
{
    double *z = model_linear_z(l);

    for (size_t r = 0; r < l->rows; r++) {
        for (size_t o = 0; o < l->out; o++) {
            const size_t at = r * l->out + o;
            const double dz =
                    (double)l->dy[at] * model_slope(l->activation, z[at]);

            db[o] += dz;
            for (size_t i = 0; i < l->in; i++) {
                dx[r * l->in + i] += dz * (double)l->w[o * l->in + i];
                dw[o * l->in + i] += dz * (double)l->x[r * l->in + i];
            }
        }
    }
    free(z);
}

/* y [rows][n (n - 1) / 2 + (first ? width : 0)] of v [rows][n][width] */
static inline double *
model_dots(size_t rows, size_t n, size_t width, bool first, const float *v)
{
    const size_t out = n * (n - 1) / 2 + (first ? width : 0);
    double *y = doubles(rows * out);

    for (size_t r = 0; r < rows; r++) {
        const float *a = v + r * n * width;
        double *to = y + r * out;

        for (size_t k = 0; first && k < width; k++) {
            *to++ = (double)a[k];
        }
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < i; j++) {
                for (size_t k = 0; k < width; k++) {
                    *to += (double)a[i * width + k] * (double)a[j * width + k];
                }
                to++;
            }
        }
    }
    return y;
}

static inline double *
model_dots_back(size_t rows, size_t n, size_t width, bool first, const float *v,
        const float *dy)
{
    const size_t out = n * (n - 1) / 2 + (first ? width : 0);
    double *dv = doubles(rows * n * width);

    for (size_t r = 0; r < rows; r++) {
        const float *a = v + r * n * width, *from = dy + r * out;
        double *to = dv + r * n * width;

        for (size_t k = 0; first && k < width; k++) {
            to[k] += (double)*from++;
        }
        for (size_t i = 0; i < n; i++) {
            for (size_t j = 0; j < i; j++, from++) {
                for (size_t k = 0; k < width; k++) {
                    to[i * width + k] +=
                            (double)*from * (double)a[j * width + k];
                    to[j * width + k] +=
                            (double)*from * (double)a[i * width + k];
                }
            }
        }
    }
    return dv;
}

#endif /* RPS_TESTS_UNIT_NPU_MODELS_H */
