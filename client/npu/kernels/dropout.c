/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/dropout.h"

#include "base/draw.h"

#include <stdbool.h>

/* Where the draws of (seed, site, step) start. */
static uint64_t
start_of(const struct rps_npu_dropout_args *args)
{
    const double step = *args->step;
    const bool whole = step >= 0.0 && step < 0x1.0p63; /* and no NaN */

    return rps_draw_row(rps_draw_row(rps_mix64(args->seed), args->site),
            whole ? (uint64_t)step : 0);
}

void
rps_npu_dropout_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_dropout_args *args = arguments;
    const uint64_t start = start_of(args);
    const uint64_t below = (uint64_t)(args->rate * 0x1.0p32);
    const float factor = (float)(1.0 / (1.0 - args->rate));
    uint64_t element = args->first;
    uint64_t draw = rps_draw_column(start, element / 2);

    (void)workspace;
    for (size_t r = 0; r < args->rows; r++) {
        const float *x = args->x + r * args->x_stride;
        float *y = args->y + r * args->y_stride;

        for (size_t c = 0; c < args->columns; c++, element++) {
            if (element % 2 == 0) {
                draw = rps_draw_column(start, element / 2);
            }
            y[c] = (uint32_t)(draw >> (element % 2 * 32)) < below
                           ? 0.0f
                           : x[c] * factor;
        }
    }
}
