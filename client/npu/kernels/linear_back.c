/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/linear.h"

#include <assert.h>
#include <string.h>

/* What of the workspace is whose. Sums in f64 have places of their own; f32
 * ones are the results themselves. */
struct layout {
    size_t tile;       /* rows */
    float *dz;         /* [tile][out], where it is not kept */
    void *dz_factor;   /* the same as a factor */
    void *x;           /* [tile][in] */
    void *weight;      /* [out][in] */
    void *dx;          /* [tile][in] */
    void *dweight;     /* [out][in] */
    double *dbias_sum; /* [out] */
};

static void
lay_out_products(const struct rps_npu_linear_back_args *args, bool padded,
        struct rps_npu_room *room, struct layout *layout)
{
    const struct rps_npu_arithmetic *how = &args->how;
    const size_t tile = layout->tile, in = args->in, out = args->out;

    layout->dz_factor = rps_npu_room_take(
            room, rps_npu_factor_bytes(how, false, tile, out, padded));
    if ((args->parts & RPS_NPU_LINEAR_DWEIGHT) != 0) {
        layout->x = rps_npu_room_take(room,
                rps_npu_factor_bytes(how, args->x.bf16, tile, in, padded));
        layout->dweight = rps_npu_room_take(
                room, rps_npu_result_bytes(how, out, in, false));
    }
    if ((args->parts & RPS_NPU_LINEAR_DX) != 0) {
        layout->weight = rps_npu_room_take(room,
                rps_npu_factor_bytes(how, args->weight.bf16, out, in, false));
        layout->dx = rps_npu_room_take(
                room, rps_npu_result_bytes(how, tile, in, padded));
    }
}

static size_t
lay_out(const struct rps_npu_linear_back_args *args, void *workspace,
        struct layout *layout)
{
    const struct rps_npu_arithmetic *how = &args->how;
    const uint32_t products = RPS_NPU_LINEAR_DWEIGHT | RPS_NPU_LINEAR_DX;
    struct rps_npu_room room = {.at = workspace};
    const size_t tile = rps_npu_tile_rows(how, args->rows, args->in);
    const bool ragged = tile > 0 && args->rows % tile != 0;

    *layout = (struct layout){.tile = tile};
    if ((args->parts & RPS_NPU_LINEAR_DZ) != 0 && args->dz == NULL) {
        layout->dz = rps_npu_room_take(&room, tile * args->out * sizeof(float));
    }
    if ((args->parts & RPS_NPU_LINEAR_DBIAS) != 0 && how->precise) {
        layout->dbias_sum =
                rps_npu_room_take(&room, args->out * sizeof(double));
    }
    if ((args->parts & products) != 0) {
        lay_out_products(args, ragged && how->deterministic, &room, layout);
    }
    return room.used;
}

size_t
rps_npu_linear_back_workspace(const struct rps_npu_linear_back_args *args)
{
    struct layout layout;

    return lay_out(args, NULL, &layout);
}

/* n rows of dz. */
static struct rps_npu_matrix
make_dz(const struct rps_npu_linear_back_args *args,
        const struct layout *layout, size_t first, size_t n)
{
    const enum rps_npu_kernel_function function =
            args->activation == RPS_NPU_KERNEL_ACT_RELU ? RPS_NPU_KERNEL_RELU
                                                        : RPS_NPU_KERNEL_GELU;
    rps_npu_apply_back_fn *f = args->how.precise
                                       ? rps_npu_precise_apply_back[function]
                                       : args->how.set->apply_back[function];
    const float *dy = args->dy + first * args->dy_stride;
    const float *kept = args->kept + first * args->kept_stride;
    const size_t stride = args->dz != NULL ? args->dz_stride : args->out;
    float *dz = args->dz != NULL ? args->dz + first * stride : layout->dz;

    assert(args->activation != RPS_NPU_KERNEL_ACT_NONE);
    for (size_t r = 0; r < n; r++) {
        f(kept + r * args->kept_stride, dy + r * args->dy_stride,
                dz + r * stride, args->out);
    }
    return (struct rps_npu_matrix){.at = dz, .stride = stride};
}

static void
bias_begin(const struct rps_npu_linear_back_args *args,
        const struct layout *layout)
{
    double *sum = layout->dbias_sum;

    if (!args->accumulate) {
        memset(args->dbias, 0, args->out * sizeof(float));
    }
    if (sum != NULL) {
        args->how.set->to_f64(args->dbias, sum, args->out);
    }
}

static void
bias_add(const struct rps_npu_linear_back_args *args,
        const struct layout *layout, const struct rps_npu_matrix *dz, size_t n)
{
    const struct rps_npu_elementwise *set = args->how.set;
    const float *row = dz->at;

    for (size_t r = 0; r < n; r++, row += dz->stride) {
        if (layout->dbias_sum != NULL) {
            set->add_f64(row, layout->dbias_sum, args->out);
        } else {
            set->add(args->dbias, row, args->dbias, args->out);
        }
    }
}

/* The sums that go on from tile to tile. */
struct sums {
    struct rps_npu_operand weight;  /* W, for dx */
    struct rps_npu_operand dweight; /* f64 where precise */
    bool begun;                     /* dweight holds something */
};

static void
products(const struct rps_npu_linear_back_args *args,
        const struct layout *layout, const struct rps_npu_matrix *dz,
        size_t first, size_t n, struct sums *sums)
{
    const struct rps_npu_arithmetic *how = &args->how;
    const size_t in = args->in, out = args->out;
    const size_t rows = how->deterministic ? layout->tile : n;
    const struct rps_npu_operand factor =
            rps_npu_factor(how, dz, 0, n, rows, out, layout->dz_factor);

    if ((args->parts & RPS_NPU_LINEAR_DWEIGHT) != 0) {
        const struct rps_npu_operand x =
                rps_npu_factor(how, &args->x, first, n, rows, in, layout->x);

        rps_npu_product(how, RPS_NPU_FORM_TN, out, in, rows, &factor, &x,
                sums->begun, &sums->dweight);
        sums->begun = true;
    }
    if ((args->parts & RPS_NPU_LINEAR_DX) != 0) {
        float *dx = args->dx + first * args->dx_stride;
        const struct rps_npu_operand result = rps_npu_result(
                how, dx, args->dx_stride, n, rows, in, false, layout->dx);

        rps_npu_product(how, RPS_NPU_FORM_NN, rows, in, out, &factor,
                &sums->weight, false, &result);
        rps_npu_result_store(how, &result, dx, args->dx_stride, n, in);
    }
}

static void
clear_dweight(const struct rps_npu_linear_back_args *args)
{
    for (size_t o = 0; o < args->out; o++) {
        memset(args->dweight + o * args->dweight_stride, 0,
                args->in * sizeof(float));
    }
}

static void
begin(const struct rps_npu_linear_back_args *args, const struct layout *layout,
        struct sums *sums)
{
    const struct rps_npu_arithmetic *how = &args->how;
    const size_t in = args->in, out = args->out;

    if ((args->parts & RPS_NPU_LINEAR_DBIAS) != 0) {
        bias_begin(args, layout);
    }
    if ((args->parts & RPS_NPU_LINEAR_DWEIGHT) != 0) {
        sums->begun = args->accumulate;
        sums->dweight = rps_npu_result(how, args->dweight, args->dweight_stride,
                out, out, in, sums->begun, layout->dweight);
        if (args->rows == 0 && !args->accumulate) {
            clear_dweight(args);
        }
    }
    if ((args->parts & RPS_NPU_LINEAR_DX) != 0 && args->rows > 0) {
        sums->weight = rps_npu_factor(
                how, &args->weight, 0, out, out, in, layout->weight);
    }
}

static void
end(const struct rps_npu_linear_back_args *args, const struct layout *layout,
        const struct sums *sums)
{
    if (layout->dbias_sum != NULL) {
        args->how.set->from_f64(layout->dbias_sum, args->dbias, args->out);
    }
    if ((args->parts & RPS_NPU_LINEAR_DWEIGHT) != 0 && args->rows > 0) {
        rps_npu_result_store(&args->how, &sums->dweight, args->dweight,
                args->dweight_stride, args->out, args->in);
    }
}

void
rps_npu_linear_back_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_linear_back_args *args = arguments;
    const uint32_t product_parts = RPS_NPU_LINEAR_DWEIGHT | RPS_NPU_LINEAR_DX;
    struct sums sums = {0};
    struct layout layout;

    lay_out(args, workspace, &layout);
    begin(args, &layout, &sums);
    for (size_t first = 0; first < args->rows; first += layout.tile) {
        const size_t left = args->rows - first;
        const size_t n = left < layout.tile ? left : layout.tile;
        struct rps_npu_matrix dz = {.at = args->dy + first * args->dy_stride,
                .stride = args->dy_stride};

        if ((args->parts & RPS_NPU_LINEAR_DZ) != 0) {
            dz = make_dz(args, &layout, first, n);
        }
        if ((args->parts & RPS_NPU_LINEAR_DBIAS) != 0) {
            bias_add(args, &layout, &dz, n);
        }
        if ((args->parts & product_parts) != 0) {
            products(args, &layout, &dz, first, n, &sums);
        }
    }
    end(args, &layout, &sums);
}
