/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/map.h"

#include <string.h>

void
rps_npu_apply_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_map_args *args = arguments;
    const struct rps_npu_rows *s = &args->shape;
    rps_npu_apply_fn *f = args->how.precise
                                  ? rps_npu_precise_apply[args->function]
                                  : args->how.set->apply[args->function];

    (void)workspace;
    for (size_t r = 0; r < s->rows; r++) {
        f(args->a + r * s->a, args->y + r * s->y, s->columns);
    }
}

void
rps_npu_apply_back_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_map_args *args = arguments;
    const struct rps_npu_rows *s = &args->shape;
    rps_npu_apply_back_fn *f =
            args->how.precise ? rps_npu_precise_apply_back[args->function]
                              : args->how.set->apply_back[args->function];

    (void)workspace;
    for (size_t r = 0; r < s->rows; r++) {
        f(args->a + r * s->a, args->b + r * s->b, args->y + r * s->y,
                s->columns);
    }
}

void
rps_npu_add_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_map_args *args = arguments;
    const struct rps_npu_rows *s = &args->shape;

    (void)workspace;
    for (size_t r = 0; r < s->rows; r++) {
        args->how.set->add(args->a + r * s->a, args->b + r * s->b,
                args->y + r * s->y, s->columns);
    }
}

void
rps_npu_scale_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_map_args *args = arguments;
    const struct rps_npu_rows *s = &args->shape;
    const double device =
            args->device_factor != NULL ? *args->device_factor : 1.0;
    const float factor = (float)(args->factor * device);

    (void)workspace;
    for (size_t r = 0; r < s->rows; r++) {
        args->how.set->scale(
                args->a + r * s->a, factor, args->y + r * s->y, s->columns);
    }
}

void
rps_npu_fill_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_map_args *args = arguments;
    const struct rps_npu_rows *s = &args->shape;

    (void)workspace;
    for (size_t r = 0; r < s->rows; r++) {
        float *y = args->y + r * s->y;

        for (size_t c = 0; c < s->columns; c++) {
            y[c] = (float)args->factor;
        }
    }
}

void
rps_npu_cast_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_cast_args *args = arguments;
    const struct rps_npu_rows *s = &args->shape;

    (void)workspace;
    for (size_t r = 0; r < s->rows; r++) {
        if (args->widen) {
            args->set->widen((const uint16_t *)args->a + r * s->a,
                    (float *)args->y + r * s->y, s->columns);
        } else if (args->narrow) {
            args->set->narrow((const float *)args->a + r * s->a,
                    (uint16_t *)args->y + r * s->y, s->columns);
        } else {
            memcpy((char *)args->y + r * s->y * args->bytes,
                    (const char *)args->a + r * s->a * args->bytes,
                    s->columns * args->bytes);
        }
    }
}

void
rps_npu_concat_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_join_args *args = arguments;

    (void)workspace;
    for (size_t r = 0; r < args->rows; r++) {
        float *row = args->whole + r * args->whole_stride;

        for (uint32_t p = 0; p < args->count; p++) {
            memcpy(row + args->part[p].column,
                    args->part[p].at + r * args->part[p].stride,
                    args->part[p].columns * sizeof(float));
        }
    }
}

void
rps_npu_split_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_join_args *args = arguments;

    (void)workspace;
    for (size_t r = 0; r < args->rows; r++) {
        const float *row = args->whole + r * args->whole_stride;

        for (uint32_t p = 0; p < args->count; p++) {
            memcpy(args->part[p].at + r * args->part[p].stride,
                    row + args->part[p].column,
                    args->part[p].columns * sizeof(float));
        }
    }
}
