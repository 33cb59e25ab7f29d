/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/linear.h"

#include <assert.h>
#include <string.h>

/* What of the workspace is whose. */
struct layout {
    size_t tile; /* rows */
    void *weight;
    void *x;
    void *z;
};

static size_t
lay_out(const struct rps_npu_linear_args *args, void *workspace,
        struct layout *layout)
{
    const struct rps_npu_arithmetic *how = &args->how;
    struct rps_npu_room room = {.at = workspace};
    const size_t tile = rps_npu_tile_rows(how, args->rows, args->in);
    const bool ragged = tile > 0 && args->rows % tile != 0;
    const bool padded = ragged && how->deterministic;

    *layout = (struct layout){.tile = tile};
    if ((args->parts & RPS_NPU_LINEAR_PRODUCT) == 0) {
        return 0;
    }
    layout->weight = rps_npu_room_take(
            &room, rps_npu_factor_bytes(
                           how, args->weight.bf16, args->out, args->in, false));
    layout->x = rps_npu_room_take(&room,
            rps_npu_factor_bytes(how, args->x.bf16, tile, args->in, padded));
    layout->z = rps_npu_room_take(
            &room, rps_npu_result_bytes(how, tile, args->out, padded));
    return room.used;
}

size_t
rps_npu_linear_workspace(const struct rps_npu_linear_args *args)
{
    struct layout layout;

    return lay_out(args, NULL, &layout);
}

static void
put_bias(const struct rps_npu_linear_args *args, size_t first, size_t n)
{
    for (size_t r = first; r < first + n; r++) {
        memcpy(args->z + r * args->z_stride, args->bias,
                args->out * sizeof(float));
    }
}

static void
multiply(const struct rps_npu_linear_args *args, const struct layout *layout,
        const struct rps_npu_operand *weight, size_t first, size_t n)
{
    const struct rps_npu_arithmetic *how = &args->how;
    const size_t rows = how->deterministic ? layout->tile : n;
    const bool add = args->bias != NULL;
    float *z = args->z + first * args->z_stride;
    const struct rps_npu_operand x =
            rps_npu_factor(how, &args->x, first, n, rows, args->in, layout->x);
    const struct rps_npu_operand result = rps_npu_result(
            how, z, args->z_stride, n, rows, args->out, add, layout->z);

    rps_npu_product(how, RPS_NPU_FORM_NT, rows, args->out, args->in, &x, weight,
            add, &result);
    rps_npu_result_store(how, &result, z, args->z_stride, n, args->out);
}

static rps_npu_apply_fn *
function_of(const struct rps_npu_arithmetic *how,
        enum rps_npu_kernel_activation activation)
{
    const enum rps_npu_kernel_function function =
            activation == RPS_NPU_KERNEL_ACT_RELU ? RPS_NPU_KERNEL_RELU
                                                  : RPS_NPU_KERNEL_GELU;

    return how->precise ? rps_npu_precise_apply[function]
                        : how->set->apply[function];
}

static void
activate(const struct rps_npu_linear_args *args, size_t first, size_t n)
{
    const size_t columns = args->out;
    const float *z = args->z + first * args->z_stride;
    float *y = args->y + first * args->y_stride;
    rps_npu_apply_fn *f;

    if (args->activation == RPS_NPU_KERNEL_ACT_NONE) {
        for (size_t r = 0; z != y && r < n; r++) {
            memcpy(y + r * args->y_stride, z + r * args->z_stride,
                    columns * sizeof(float));
        }
        return;
    }
    f = function_of(&args->how, args->activation);
    if (args->z_stride == columns && args->y_stride == columns) {
        f(z, y, n * columns);
        return;
    }
    for (size_t r = 0; r < n; r++) {
        f(z + r * args->z_stride, y + r * args->y_stride, columns);
    }
}

void
rps_npu_linear_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_linear_args *args = arguments;
    struct rps_npu_operand weight = {0};
    struct layout layout;

    lay_out(args, workspace, &layout);
    if (args->rows > 0 && (args->parts & RPS_NPU_LINEAR_PRODUCT) != 0) {
        weight = rps_npu_factor(&args->how, &args->weight, 0, args->out,
                args->out, args->in, layout.weight);
    }
    for (size_t first = 0; first < args->rows; first += layout.tile) {
        const size_t left = args->rows - first;
        const size_t n = left < layout.tile ? left : layout.tile;

        if ((args->parts & RPS_NPU_LINEAR_BIAS) != 0) {
            put_bias(args, first, n);
        }
        if ((args->parts & RPS_NPU_LINEAR_PRODUCT) != 0) {
            multiply(args, &layout, &weight, first, n);
        }
        if ((args->parts & RPS_NPU_LINEAR_ACTIVATION) != 0) {
            activate(args, first, n);
        }
    }
}
