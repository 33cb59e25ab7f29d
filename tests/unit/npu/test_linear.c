/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of a layer against a model in double precision, its gradients
 * against differences of it, and what each arithmetic promises.
 */
#include "base/half.h"
#include "client/npu/kernels/linear.h"
#include "tests/unit/npu/models.h"

#include <cblas.h>

#define PAD   3u /* columns behind a strided row */
#define GUARD 77.0f

struct arithmetic {
    bool deterministic, mixed, precise;
    double forward, backward; /* bounds, relative */
};

/* f32: some hundred products of numbers below 1; rounded once: half an ulp */
static const struct arithmetic arithmetics[] = {
        {false, false, false, 3e-6, 2e-5}, {true, false, false, 3e-6, 2e-5},
        {false, true, false, 3e-6, 2e-5}, {true, true, false, 3e-6, 2e-5},
        {false, false, true, 7e-8, 2e-7}, {true, false, true, 7e-8, 2e-7},
        {true, true, true, 7e-8, 2e-7}};
#define ARITHMETICS 7

static struct rps_npu_arithmetic
how_of(const struct arithmetic *a)
{
    return (struct rps_npu_arithmetic){.set = rps_npu_elementwise(),
            .deterministic = a->deterministic,
            .mixed = a->mixed,
            .precise = a->precise};
}

/* One layer, strided or not, and its model's view of it. */
struct layer {
    size_t rows, in, out;
    size_t pad;
    float *x, *w, *b, *dy;                /* contiguous */
    float *sx, *sy, *sz, *sdy, *sdx, *sw; /* as the kernel sees them */
    float *dw, *db;
    struct rps_npu_linear_args forward;
    struct rps_npu_linear_back_args back;
};

static float *
spread(const float *from, size_t rows, size_t columns, size_t pad)
{
    const size_t stride = columns + pad;
    float *to = zero_floats(rows * stride);

    for (size_t i = 0; i < rows * stride; i++) {
        to[i] = GUARD;
    }
    for (size_t r = 0; from != NULL && r < rows; r++) {
        memcpy(to + r * stride, from + r * columns, columns * sizeof(float));
    }
    return to;
}

static float *
gather(const float *from, size_t rows, size_t columns, size_t pad)
{
    float *to = zero_floats(rows * columns);

    for (size_t r = 0; r < rows; r++) {
        const float *row = from + r * (columns + pad);

        memcpy(to + r * columns, row, columns * sizeof(float));
        for (size_t p = 0; p < pad; p++) {
            ck_assert(row[columns + p] == GUARD); /* not written beside it */
        }
    }
    return to;
}

static void
aim(struct layer *l, const struct arithmetic *a,
        enum rps_npu_kernel_activation activation, bool bias)
{
    l->forward = (struct rps_npu_linear_args){.how = how_of(a),
            .parts = RPS_NPU_LINEAR_PRODUCT | RPS_NPU_LINEAR_ACTIVATION |
                     (bias ? RPS_NPU_LINEAR_BIAS : 0),
            .activation = activation,
            .rows = l->rows,
            .in = l->in,
            .out = l->out,
            .x = {.at = l->sx, .stride = l->in + l->pad},
            .weight = {.at = l->sw, .stride = l->in + l->pad},
            .bias = bias ? l->b : NULL,
            .z = l->sz,
            .z_stride = l->out + l->pad,
            .y = l->sy,
            .y_stride = l->out + l->pad};
    l->back = (struct rps_npu_linear_back_args){.how = l->forward.how,
            .parts =
                    RPS_NPU_LINEAR_DBIAS | RPS_NPU_LINEAR_DWEIGHT |
                    RPS_NPU_LINEAR_DX |
                    (activation == RPS_NPU_KERNEL_ACT_NONE ? 0
                                                           : RPS_NPU_LINEAR_DZ),
            .activation = activation,
            .rows = l->rows,
            .in = l->in,
            .out = l->out,
            .x = l->forward.x,
            .weight = l->forward.weight,
            .kept = activation == RPS_NPU_KERNEL_ACT_RELU ? l->sy : l->sz,
            .kept_stride = l->out + l->pad,
            .dy = l->sdy,
            .dy_stride = l->out + l->pad,
            .dx = l->sdx,
            .dx_stride = l->in + l->pad,
            .dweight = l->dw,
            .dweight_stride = l->in,
            .dbias = l->db};
}

static struct layer
make_layer(size_t rows, size_t in, size_t out, size_t pad, uint64_t seed)
{
    struct layer l = {.rows = rows, .in = in, .out = out, .pad = pad};

    l.x = noise_floats(rows * in, 1.0, &seed);
    l.w = noise_floats(out * in, 1.0 / sqrt((double)in + 1.0), &seed);
    l.b = noise_floats(out, 0.5, &seed);
    l.dy = noise_floats(rows * out, 0.5, &seed);
    l.sx = spread(l.x, rows, in, pad);
    l.sw = spread(l.w, out, in, pad);
    l.sy = spread(NULL, rows, out, pad);
    l.sz = spread(NULL, rows, out, pad);
    l.sdy = spread(l.dy, rows, out, pad);
    l.sdx = spread(NULL, rows, in, pad);
    l.dw = noise_floats(out * in, 1.0, &seed);
    l.db = noise_floats(out, 1.0, &seed);
    return l;
}

static void
drop_layer(struct layer *l)
{
    float *const all[] = {l->x, l->w, l->b, l->dy, l->sx, l->sw, l->sy, l->sz,
            l->sdy, l->sdx, l->dw, l->db};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

/* As stream.c does: workspace of the size asked for, aligned to 64. */
static void
run(void (*kernel)(const void *args, void *workspace), const void *args,
        size_t bytes)
{
    void *workspace = NULL;

    if (bytes > 0) {
        ck_assert_int_eq(posix_memalign(&workspace, 64, bytes), 0);
        memset(workspace, 0xff, bytes);
    }
    kernel(args, workspace);
    free(workspace);
}

static void
run_forward(const struct layer *l)
{
    run(rps_npu_linear_kernel, &l->forward,
            rps_npu_linear_workspace(&l->forward));
}

static void
run_back(const struct layer *l)
{
    run(rps_npu_linear_back_kernel, &l->back,
            rps_npu_linear_back_workspace(&l->back));
}

static void
round_all(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = rps_float_of_bf16(rps_float_to_bf16(x[i]));
    }
}

/* The model's; in mixed precision its factors are rounded first. */
static struct model_linear
model_of(struct layer *l, const struct arithmetic *a,
        enum rps_npu_kernel_activation activation, bool bias)
{
    if (a->mixed) {
        round_all(l->x, l->rows * l->in);
        round_all(l->w, l->out * l->in);
    }
    return (struct model_linear){.rows = l->rows,
            .in = l->in,
            .out = l->out,
            .x = l->x,
            .w = l->w,
            .b = bias ? l->b : NULL,
            .activation = (enum model_activation)activation,
            .dy = l->dy};
}

static const size_t shapes[][3] = {{0, 3, 2}, {1, 1, 1}, {1, 70, 5},
        {3, 13, 33}, {63, 5, 1}, {64, 16, 8}, {65, 70, 9}, {130, 0, 4},
        {130, 64, 3}, {600, 66, 2}};
#define SHAPES 10u

static void
check_forward(const size_t *shape, const struct arithmetic *a,
        enum rps_npu_kernel_activation activation, size_t pad)
{
    const bool bias = (shape[1] + activation) % 2 == 0;
    struct layer l = make_layer(shape[0], shape[1], shape[2], pad, 7);
    struct model_linear model = model_of(&l, a, activation, bias);
    double *want = model_linear_y(&model), *want_z = model_linear_z(&model);
    float *y = NULL, *z = NULL;

    aim(&l, a, activation, bias);
    run_forward(&l);
    y = gather(l.sy, l.rows, l.out, pad);
    z = gather(l.sz, l.rows, l.out, pad);
    assert_near("y", y, want, l.rows * l.out, a->forward);
    assert_near("z", z, want_z, l.rows * l.out, a->forward);
    free(y);
    free(z);
    free(want);
    free(want_z);
    drop_layer(&l);
}

START_TEST(a_layer_is_its_model)
{
    const struct arithmetic *a = &arithmetics[_i];

    for (size_t k = 0; k < 3 * SHAPES; k++) {
        const enum rps_npu_kernel_activation activation =
                (enum rps_npu_kernel_activation)(k % 3);

        check_forward(shapes[k / 3], a, activation, 0);
        check_forward(shapes[k / 3], a, activation, PAD);
    }
}
END_TEST

/* dz is rounded, too, before it meets x and W; the model's is not: its bound
 * is bf16's. */
static double
back_bound(const struct arithmetic *a)
{
    return a->mixed ? 2e-2 : a->backward;
}

static void
check_back(const size_t *shape, const struct arithmetic *a,
        enum rps_npu_kernel_activation activation, size_t pad, bool accumulate)
{
    struct layer l = make_layer(shape[0], shape[1], shape[2], pad, 11);
    struct model_linear model = model_of(&l, a, activation, true);
    double *dx = doubles(l.rows * l.in), *dw = doubles(l.out * l.in);
    double *db = doubles(l.out);
    float *got = NULL;

    for (size_t i = 0; accumulate && i < l.out * l.in; i++) {
        dw[i] = (double)l.dw[i];
    }
    for (size_t i = 0; accumulate && i < l.out; i++) {
        db[i] = (double)l.db[i];
    }
    aim(&l, a, activation, true);
    l.back.accumulate = accumulate;
    run_forward(&l);
    run_back(&l);
    model_linear_back(&model, dx, dw, db);
    got = gather(l.sdx, l.rows, l.in, pad);
    assert_near("dx", got, dx, l.rows * l.in, back_bound(a));
    assert_near("dW", l.dw, dw, l.out * l.in, back_bound(a));
    assert_near("db", l.db, db, l.out, a->backward * 4.0);
    free(got);
    free(dx);
    free(dw);
    free(db);
    drop_layer(&l);
}

START_TEST(gradients_are_the_models)
{
    const struct arithmetic *a = &arithmetics[_i];

    for (size_t k = 0; k < 3 * SHAPES; k++) {
        const enum rps_npu_kernel_activation activation =
                (enum rps_npu_kernel_activation)(k % 3);

        check_back(shapes[k / 3], a, activation, k % 3, false);
        check_back(shapes[k / 3], a, activation, PAD, true);
    }
}
END_TEST

/* sum of dy y, by the model */
static double
model_loss(const struct model_linear *model)
{
    double *y = model_linear_y(model);
    double sum = 0.0;

    for (size_t i = 0; i < model->rows * model->out; i++) {
        sum += (double)model->dy[i] * y[i];
    }
    free(y);
    return sum;
}

/* The loss's slope in one number, which is put back. */
static double
difference(const struct model_linear *model, float *number)
{
    const float old = *number;
    const float above = old + 0x1p-9f, below = old - 0x1p-9f;
    double up = 0.0;

    *number = above;
    up = model_loss(model);
    *number = below;
    up -= model_loss(model);
    *number = old;
    return up / (double)(above - below);
}

START_TEST(gradients_are_differences_of_the_loss)
{
    const size_t shape[] = {9, 6, 5};
    const enum rps_npu_kernel_activation activation =
            _i == 0 ? RPS_NPU_KERNEL_ACT_NONE : RPS_NPU_KERNEL_ACT_GELU;
    struct layer l = make_layer(shape[0], shape[1], shape[2], 0, 3);
    struct model_linear model = model_of(&l, &arithmetics[0], activation, true);

    aim(&l, &arithmetics[0], activation, true);
    run_forward(&l);
    run_back(&l);
    for (size_t i = 0; i < l.out * l.in; i++) {
        ck_assert_double_le(
                fabs((double)l.dw[i] - difference(&model, &l.w[i])), 2e-4);
    }
    for (size_t i = 0; i < l.rows * l.in; i++) {
        ck_assert_double_le(
                fabs((double)l.sdx[i] - difference(&model, &l.x[i])), 2e-4);
    }
    for (size_t i = 0; i < l.out; i++) {
        ck_assert_double_le(
                fabs((double)l.db[i] - difference(&model, &l.b[i])), 2e-4);
    }
    drop_layer(&l);
}
END_TEST

/* --- bits --------------------------------------------------------------------
 */

static void
run_forward_parts(struct layer *l)
{
    static const uint32_t parts[] = {RPS_NPU_LINEAR_BIAS,
            RPS_NPU_LINEAR_PRODUCT, RPS_NPU_LINEAR_ACTIVATION};
    const uint32_t all = l->forward.parts;

    for (size_t p = 0; p < 3; p++) {
        l->forward.parts = all & parts[p];
        run_forward(l);
    }
    l->forward.parts = all;
}

static void
run_back_parts(struct layer *l, float *dz)
{
    static const uint32_t parts[] = {
            RPS_NPU_LINEAR_DBIAS, RPS_NPU_LINEAR_DWEIGHT, RPS_NPU_LINEAR_DX};
    const struct rps_npu_linear_back_args all = l->back;

    if ((all.parts & RPS_NPU_LINEAR_DZ) != 0) {
        l->back.parts = RPS_NPU_LINEAR_DZ;
        l->back.dz = dz;
        l->back.dz_stride = l->out;
        run_back(l);
        l->back = all;
        l->back.dy = dz;
        l->back.dy_stride = l->out;
    }
    for (size_t p = 0; p < 3; p++) {
        l->back.parts = all.parts & parts[p];
        run_back(l);
    }
    l->back = all;
}

static void
assert_same_layers(const struct layer *a, const struct layer *b)
{
    const size_t stride_in = a->in + a->pad, stride_out = a->out + a->pad;

    assert_same_bits("y", a->sy, b->sy, a->rows * stride_out);
    assert_same_bits("z", a->sz, b->sz, a->rows * stride_out);
    assert_same_bits("dx", a->sdx, b->sdx, a->rows * stride_in);
    assert_same_bits("dW", a->dw, b->dw, a->out * a->in);
    assert_same_bits("db", a->db, b->db, a->out);
}

START_TEST(parts_have_the_bits_of_the_whole)
{
    const struct arithmetic *a = &arithmetics[_i];

    for (size_t k = 0; k < 3 * SHAPES; k++) {
        const enum rps_npu_kernel_activation activation =
                (enum rps_npu_kernel_activation)(k % 3);
        const size_t *shape = shapes[k / 3];
        struct layer one = make_layer(shape[0], shape[1], shape[2], PAD, 5);
        struct layer many = make_layer(shape[0], shape[1], shape[2], PAD, 5);
        float *dz = zero_floats(many.rows * many.out);

        aim(&one, a, activation, k % 3 != 0);
        aim(&many, a, activation, k % 3 != 0);
        run_forward(&one);
        run_forward_parts(&many);
        run_back(&one);
        run_back_parts(&many, dz);
        assert_same_layers(&one, &many);
        free(dz);
        drop_layer(&one);
        drop_layer(&many);
    }
}
END_TEST

static void
check_strides(const size_t *shape, const struct arithmetic *a)
{
    struct layer near = make_layer(shape[0], shape[1], shape[2], 0, 41);
    struct layer far = make_layer(shape[0], shape[1], shape[2], PAD, 41);
    float *y = NULL, *dx = NULL;

    aim(&near, a, RPS_NPU_KERNEL_ACT_GELU, true);
    aim(&far, a, RPS_NPU_KERNEL_ACT_GELU, true);
    run_forward(&near);
    run_forward(&far);
    run_back(&near);
    run_back(&far);
    y = gather(far.sy, far.rows, far.out, PAD);
    dx = gather(far.sdx, far.rows, far.in, PAD);
    assert_same_bits("y", y, near.sy, near.rows * near.out);
    assert_same_bits("dx", dx, near.sdx, near.rows * near.in);
    assert_same_bits("dW", far.dw, near.dw, near.out * near.in);
    assert_same_bits("db", far.db, near.db, near.out);
    free(y);
    free(dx);
    drop_layer(&near);
    drop_layer(&far);
}

START_TEST(strides_change_no_bit)
{
    for (size_t k = 0; k < SHAPES; k++) {
        check_strides(shapes[k], &arithmetics[_i]);
    }
}
END_TEST

/* The last 66 of 130 rows alone. */
START_TEST(a_deterministic_row_depends_on_its_place_in_its_tile)
{
    const struct arithmetic *a = &arithmetics[_i];
    struct layer l = make_layer(130, 40, 21, 0, 13);
    float *y = zero_floats(130 * 21), *dx = zero_floats(130 * 40);

    ck_assert(a->deterministic);
    aim(&l, a, RPS_NPU_KERNEL_ACT_RELU, true);
    run_forward(&l);
    run_back(&l);
    memcpy(y, l.sy, 130 * 21 * sizeof(float));
    memcpy(dx, l.sdx, 130 * 40 * sizeof(float));
    l.forward.rows = l.back.rows = 66;
    l.forward.x.at = l.back.x.at = l.sx + 64 * 40;
    l.back.dy = l.sdy + 64 * 21;
    l.back.kept = y + 64 * 21;
    run_forward(&l);
    run_back(&l);
    assert_same_bits("y", l.sy, y + 64 * 21, 66 * 21);
    assert_same_bits("dx", l.sdx, dx + 64 * 40, 66 * 40);
    free(y);
    free(dx);
    drop_layer(&l);
}
END_TEST

/* Rows [first, first + rows) of it, sums going on. */
static void
run_back_rows(struct layer *l, size_t first, size_t rows)
{
    const struct rps_npu_linear_back_args all = l->back;

    l->back.rows = rows;
    l->back.x.at = l->sx + first * l->in;
    l->back.dy = l->sdy + first * l->out;
    l->back.dx = l->sdx + first * l->in;
    l->back.accumulate = first > 0;
    run_back(l);
    l->back = all;
}

START_TEST(parts_of_a_batch_that_are_tiles_have_the_bits_of_the_batch)
{
    struct layer whole = make_layer(200, 30, 7, 0, 17);
    struct layer parts = make_layer(200, 30, 7, 0, 17);

    aim(&whole, &arithmetics[1], RPS_NPU_KERNEL_ACT_NONE, true);
    aim(&parts, &arithmetics[1], RPS_NPU_KERNEL_ACT_NONE, true);
    run_back(&whole);
    run_back_rows(&parts, 0, 64);
    run_back_rows(&parts, 64, 128);
    run_back_rows(&parts, 192, 8);
    assert_same_layers(&whole, &parts);
    drop_layer(&whole);
    drop_layer(&parts);
}
END_TEST

/* --- modes -------------------------------------------------------------------
 */

/* Sums of 4096 products of both signs. */
static double
far_from_the_truth(const struct arithmetic *a)
{
    struct layer l = make_layer(20, 4096, 3, 0, 19);
    struct model_linear model = model_of(&l, a, RPS_NPU_KERNEL_ACT_NONE, true);
    double *want = model_linear_y(&model);
    double off = 0.0;

    aim(&l, a, RPS_NPU_KERNEL_ACT_NONE, true);
    run_forward(&l);
    off = distance(l.sy, want, l.rows * l.out);
    free(want);
    drop_layer(&l);
    return off;
}

START_TEST(high_precision_sums_are_nearer_to_the_truth)
{
    const double fast = far_from_the_truth(&arithmetics[1]);
    const double precise = far_from_the_truth(&arithmetics[5]);

    ck_assert_double_le(precise, 0x1p-24);
    ck_assert_double_gt(fast, 2.0 * precise);
}
END_TEST

START_TEST(mixed_precision_rounds_the_factors_alone)
{
    const struct arithmetic *a = &arithmetics[3];
    struct layer mixed = make_layer(70, 30, 8, 0, 23);
    struct layer origin = make_layer(70, 30, 8, 0, 23);

    /* factors that bf16 holds: nothing is left to round */
    round_all(mixed.sx, 70 * 30);
    round_all(mixed.sw, 8 * 30);
    round_all(mixed.sdy, 70 * 8);
    memcpy(origin.sx, mixed.sx, 70 * 30 * sizeof(float));
    memcpy(origin.sw, mixed.sw, 8 * 30 * sizeof(float));
    memcpy(origin.sdy, mixed.sdy, 70 * 8 * sizeof(float));
    aim(&mixed, a, RPS_NPU_KERNEL_ACT_NONE, true);
    aim(&origin, &arithmetics[1], RPS_NPU_KERNEL_ACT_NONE, true);
    run_forward(&mixed);
    run_back(&mixed);
    run_forward(&origin);
    run_back(&origin);
    assert_same_layers(&mixed, &origin);
    /* and with others something is */
    mixed.sx[0] = origin.sx[0] = 1.00390625f;
    run_forward(&mixed);
    run_forward(&origin);
    ck_assert(!same(mixed.sy[0], origin.sy[0]));
    drop_layer(&mixed);
    drop_layer(&origin);
}
END_TEST

START_TEST(bf16_factors_are_what_their_values_are)
{
    struct layer wide = make_layer(70, 30, 8, 0, 29);
    struct layer narrow = make_layer(70, 30, 8, 0, 29);
    uint16_t *x = calloc(70 * 30, sizeof(*x)), *w = calloc(8 * 30, sizeof(*w));

    round_all(wide.sx, 70 * 30);
    round_all(wide.sw, 8 * 30);
    rps_npu_elementwise()->narrow(wide.sx, x, 70 * 30);
    rps_npu_elementwise()->narrow(wide.sw, w, 8 * 30);
    aim(&wide, &arithmetics[_i], RPS_NPU_KERNEL_ACT_GELU, true);
    aim(&narrow, &arithmetics[_i], RPS_NPU_KERNEL_ACT_GELU, true);
    narrow.forward.x = narrow.back.x =
            (struct rps_npu_matrix){.at = x, .stride = 30, .bf16 = true};
    narrow.forward.weight = narrow.back.weight =
            (struct rps_npu_matrix){.at = w, .stride = 30, .bf16 = true};
    run_forward(&wide);
    run_forward(&narrow);
    run_back(&wide);
    run_back(&narrow);
    assert_same_layers(&wide, &narrow);
    free(x);
    free(w);
    drop_layer(&wide);
    drop_layer(&narrow);
}
END_TEST

START_TEST(a_nan_reaches_the_output)
{
    struct layer l = make_layer(3, 4, 2, 0, 31);

    aim(&l, &arithmetics[1], RPS_NPU_KERNEL_ACT_RELU, true);
    l.sx[5] = NAN;
    run_forward(&l);
    ck_assert(isnan(l.sy[2]) && isnan(l.sy[3]) && !isnan(l.sy[0]));
    drop_layer(&l);
}
END_TEST

static Suite *
linear_suite(void)
{
    Suite *suite = suite_create("linear");
    TCase *tcase = tcase_create("linear");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, a_layer_is_its_model, 0, ARITHMETICS);
    tcase_add_loop_test(tcase, gradients_are_the_models, 0, ARITHMETICS);
    tcase_add_loop_test(tcase, gradients_are_differences_of_the_loss, 0, 2);
    tcase_add_loop_test(
            tcase, parts_have_the_bits_of_the_whole, 0, ARITHMETICS);
    tcase_add_loop_test(tcase, strides_change_no_bit, 0, ARITHMETICS);
    tcase_add_loop_test(
            tcase, a_deterministic_row_depends_on_its_place_in_its_tile, 1, 2);
    tcase_add_loop_test(
            tcase, a_deterministic_row_depends_on_its_place_in_its_tile, 3, 4);
    tcase_add_loop_test(
            tcase, a_deterministic_row_depends_on_its_place_in_its_tile, 5, 7);
    tcase_add_test(
            tcase, parts_of_a_batch_that_are_tiles_have_the_bits_of_the_batch);
    tcase_add_test(tcase, high_precision_sums_are_nearer_to_the_truth);
    tcase_add_test(tcase, mixed_precision_rounds_the_factors_alone);
    tcase_add_loop_test(
            tcase, bf16_factors_are_what_their_values_are, 0, ARITHMETICS);
    tcase_add_test(tcase, a_nan_reaches_the_output);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    openblas_set_num_threads(1);
    return run_suite(linear_suite());
}
