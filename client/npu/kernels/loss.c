/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/loss.h"

#include "client/npu/kernels/product.h"

#include <math.h>

/* No overflow for any x. */
static double
cross_entropy(double x, double y)
{
    return (x > 0.0 ? x : 0.0) - x * y + log1p(exp(-fabs(x)));
}

static double
row_loss(const struct rps_npu_bce_args *args, size_t row, double sum)
{
    const double weight =
            args->weights != NULL ? (double)args->weights[row] : 1.0;
    const float *x = args->x + row * args->x_stride;
    const float *y = args->y + row * args->y_stride;

    for (size_t o = 0; weight != 0.0 && o < args->labels; o++) {
        sum += weight * cross_entropy((double)x[o], (double)y[o]);
    }
    return sum;
}

static void
row_gradient(const struct rps_npu_bce_args *args, size_t row, double scale)
{
    const double weight =
            args->weights != NULL ? (double)args->weights[row] : 1.0;
    const float *x = args->x + row * args->x_stride;
    const float *y = args->y + row * args->y_stride;
    float *dx = args->dx + row * args->dx_stride;

    for (size_t o = 0; o < args->labels; o++) {
        if (weight == 0.0) {
            dx[o] = 0.0f;
        } else {
            const double p = 1.0 / (1.0 + exp(-(double)x[o]));

            dx[o] = (float)((p - (double)y[o]) * (scale * weight));
        }
    }
}

void
rps_npu_bce_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_bce_args *args = arguments;
    const double factor = args->scale != NULL ? args->scale[0] : 1.0;
    const double slope = args->scale != NULL ? args->scale[1] : 1.0;
    /* of parts of a batch, each goes on where the last one stopped */
    double loss = args->loss != NULL && args->accumulate ? *args->loss : 0.0;

    (void)workspace;
    for (size_t first = 0; first < args->rows; first += RPS_NPU_KERNEL_TILE) {
        const size_t left = args->rows - first;
        const size_t n =
                left < RPS_NPU_KERNEL_TILE ? left : RPS_NPU_KERNEL_TILE;
        double sum = 0.0;

        for (size_t r = first; r < first + n; r++) {
            if (args->loss != NULL) {
                sum = row_loss(args, r, sum);
            }
            if (args->dx != NULL) {
                row_gradient(args, r, slope);
            }
        }
        loss += sum * factor;
    }
    if (args->loss != NULL) {
        *args->loss = loss;
    }
}
