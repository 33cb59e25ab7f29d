/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/interact.h"

#include <string.h>

/* What of the workspace is whose; NULL: not needed. */
struct layout {
    struct rps_dots_shape shape; /* of what the dots are given */
    float *vectors;              /* [n][stride]: a row's, rounded or padded */
    float *columns;              /* [stride][room], of the forward */
    float *pairs;                /* [n (n - 1) / 2]: dy's, rounded */
    float *gradient; /* [n][stride], where dv is not in whole lanes */
    double *sums;    /* [width], of the precise backward */
};

static size_t
pairs_of(size_t n)
{
    return n * (n - 1) / 2;
}

/* The fast backward reads and writes whole lanes, v and dv at one stride. */
static bool
back_in_place(const struct rps_npu_interact_args *args)
{
    return args->width % RPS_DOTS_LANES == 0 &&
           args->v_vector == args->dv_vector && !args->how.mixed;
}

static void
take_vectors(const struct rps_npu_interact_args *args, bool copied,
        struct rps_npu_room *room, struct layout *layout)
{
    layout->shape = rps_dots_shape_of(args->n, args->width);
    if (copied) {
        layout->vectors = rps_npu_room_take(
                room, (size_t)args->n * layout->shape.stride * sizeof(float));
    } else {
        layout->shape.stride = (uint32_t)args->v_vector;
    }
}

static size_t
lay_out(const struct rps_npu_interact_args *args, void *workspace,
        struct layout *layout)
{
    struct rps_npu_room room = {.at = workspace};

    *layout = (struct layout){0};
    take_vectors(args, args->how.mixed, &room, layout);
    if (!args->how.precise) {
        layout->columns = rps_npu_room_take(&room,
                (size_t)args->width * layout->shape.room * sizeof(float));
    }
    return room.used;
}

static size_t
lay_out_back(const struct rps_npu_interact_args *args, void *workspace,
        struct layout *layout)
{
    const bool precise = args->how.precise;
    const bool copied = args->how.mixed || (!precise && !back_in_place(args));
    struct rps_npu_room room = {.at = workspace};

    *layout = (struct layout){0};
    take_vectors(args, copied, &room, layout);
    if (args->how.mixed) {
        layout->pairs =
                rps_npu_room_take(&room, pairs_of(args->n) * sizeof(float));
    }
    if (precise) {
        layout->sums = rps_npu_room_take(&room, args->width * sizeof(double));
    } else if (copied) {
        layout->gradient = rps_npu_room_take(
                &room, (size_t)args->n * layout->shape.stride * sizeof(float));
    }
    return room.used;
}

size_t
rps_npu_interact_workspace(const struct rps_npu_interact_args *args)
{
    struct layout layout;

    return lay_out(args, NULL, &layout);
}

size_t
rps_npu_interact_back_workspace(const struct rps_npu_interact_args *args)
{
    struct layout layout;

    return lay_out_back(args, NULL, &layout);
}

/* A row's vectors as the dots take them. */
static const float *
vectors_of(const struct rps_npu_interact_args *args,
        const struct layout *layout, size_t row)
{
    const float *from = args->v + row * args->v_row;
    const size_t stride = layout->shape.stride;
    float *to = layout->vectors;

    if (to == NULL) {
        return from;
    }
    for (uint32_t i = 0; i < args->n; i++) {
        if (args->how.mixed) {
            args->how.set->round(
                    from + i * args->v_vector, to + i * stride, args->width);
        } else {
            memcpy(to + i * stride, from + i * args->v_vector,
                    args->width * sizeof(float));
        }
        memset(to + i * stride + args->width, 0,
                (stride - args->width) * sizeof(float));
    }
    return to;
}

static void
precise_dots(const struct rps_dots_shape *shape, const float *v, float *z)
{
    for (uint32_t i = 1; i < shape->n; i++) {
        const float *a = v + (size_t)i * shape->stride;

        for (uint32_t j = 0; j < i; j++) {
            const float *b = v + (size_t)j * shape->stride;
            double sum = 0.0;

            for (uint32_t k = 0; k < shape->width; k++) {
                sum += (double)a[k] * (double)b[k];
            }
            *z++ = (float)sum;
        }
    }
}

void
rps_npu_interact_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_interact_args *args = arguments;
    struct layout layout;

    lay_out(args, workspace, &layout);
    for (size_t r = 0; r < args->rows; r++) {
        const float *v = vectors_of(args, &layout, r);
        float *y = args->y + r * args->y_stride;

        if (args->first) {
            memcpy(y, args->v + r * args->v_row, args->width * sizeof(float));
            y += args->width;
        }
        if (args->how.precise) {
            precise_dots(&layout.shape, v, y);
        } else {
            args->dots->forward(&layout.shape, v, layout.columns, y);
        }
    }
}

/* dy of pair (i, j), i != j */
static double
pair_gradient(const float *dz, size_t i, size_t j)
{
    return (double)(i > j ? dz[pairs_of(i) + j] : dz[pairs_of(j) + i]);
}

static void
precise_back(const struct rps_npu_interact_args *args,
        const struct layout *layout, const float *v, const float *dz,
        const float *first, float *dv)
{
    const struct rps_dots_shape *shape = &layout->shape;
    double *sums = layout->sums;

    for (uint32_t i = 0; i < args->n; i++) {
        for (uint32_t k = 0; k < args->width; k++) {
            sums[k] = i == 0 && first != NULL ? (double)first[k] : 0.0;
        }
        for (uint32_t j = 0; j < args->n; j++) {
            const double d = i != j ? pair_gradient(dz, i, j) : 0.0;
            const float *other = v + (size_t)j * shape->stride;

            for (uint32_t k = 0; i != j && k < args->width; k++) {
                sums[k] += d * (double)other[k];
            }
        }
        args->how.set->from_f64(sums, dv + i * args->dv_vector, args->width);
    }
}

static void
fast_back(const struct rps_npu_interact_args *args, const struct layout *layout,
        const float *v, const float *dz, const float *first, float *dv)
{
    float *g = layout->gradient != NULL ? layout->gradient : dv;

    args->dots->backward(&layout->shape, v, dz, g);
    if (first != NULL) {
        args->how.set->add(first, g, g, args->width);
    }
    for (uint32_t i = 0; g != dv && i < args->n; i++) {
        memcpy(dv + i * args->dv_vector, g + (size_t)i * layout->shape.stride,
                args->width * sizeof(float));
    }
}

void
rps_npu_interact_back_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_interact_args *args = arguments;
    struct layout layout;

    lay_out_back(args, workspace, &layout);
    for (size_t r = 0; r < args->rows; r++) {
        const float *v = vectors_of(args, &layout, r);
        const float *dy = args->dy + r * args->dy_stride;
        const float *dz = args->first ? dy + args->width : dy;
        float *dv = args->dv + r * args->dv_row;

        if (layout.pairs != NULL) {
            args->how.set->round(dz, layout.pairs, pairs_of(args->n));
            dz = layout.pairs;
        }
        if (args->how.precise) {
            precise_back(args, &layout, v, dz, args->first ? dy : NULL, dv);
        } else {
            fast_back(args, &layout, v, dz, args->first ? dy : NULL, dv);
        }
    }
}
