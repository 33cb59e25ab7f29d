/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the NPU's kernels are from a model in double precision, by implmode
 * and precision_mode. What is printed is the table of docs/NPU_OPERATORS.md.
 */
#include "client/npu/kernels/bags.h"
#include "client/npu/kernels/interact.h"
#include "client/npu/kernels/linear.h"
#include "tests/unit/npu/models.h"

#include <cblas.h>
#include <stdio.h>

#define LONG 4096u /* terms of a sum */
#define FEW  8u
#define DIM  64u

enum mode {
    FAST,
    PRECISE,
    MIXED,
    MODES
};

static struct rps_npu_arithmetic
how_of(enum mode mode)
{
    return (struct rps_npu_arithmetic){.set = rps_npu_elementwise(),
            .deterministic = true,
            .mixed = mode == MIXED,
            .precise = mode == PRECISE};
}

static void *
workspace_of(size_t bytes)
{
    void *workspace = NULL;

    ck_assert_int_eq(posix_memalign(&workspace, 64, bytes + 64), 0);
    return workspace;
}

/* --- layers
 * ------------------------------------------------------------------- */

struct layer {
    size_t rows, in;
    float *x, *w, *b, *dy, *y, *dx, *dw, *db;
    double *want_y, *want_dx, *want_dw, *want_db;
};

static struct layer
make_layer(size_t rows, size_t in)
{
    uint64_t state = 9;
    struct layer l = {.rows = rows,
            .in = in,
            .x = noise_floats(rows * in, 1.0, &state),
            .w = noise_floats(FEW * in, 1.0 / sqrt((double)in), &state),
            .b = noise_floats(FEW, 1.0, &state),
            .dy = noise_floats(rows * FEW, 1.0 / sqrt((double)rows), &state),
            .y = zero_floats(rows * FEW),
            .dx = zero_floats(rows * in),
            .dw = zero_floats(FEW * in),
            .db = zero_floats(FEW),
            .want_dx = doubles(rows * in),
            .want_dw = doubles(FEW * in),
            .want_db = doubles(FEW)};
    const struct model_linear model = {.rows = rows,
            .in = in,
            .out = FEW,
            .x = l.x,
            .w = l.w,
            .b = l.b,
            .dy = l.dy};

    l.want_y = model_linear_y(&model);
    model_linear_back(&model, l.want_dx, l.want_dw, l.want_db);
    return l;
}

static void
drop_layer(struct layer *l)
{
    void *const all[] = {l->x, l->w, l->b, l->dy, l->y, l->dx, l->dw, l->db,
            l->want_y, l->want_dx, l->want_dw, l->want_db};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        free(all[i]);
    }
}

static void
run_layer(const struct layer *l, enum mode mode)
{
    const struct rps_npu_matrix x = {.at = l->x, .stride = l->in};
    const struct rps_npu_matrix w = {.at = l->w, .stride = l->in};
    const struct rps_npu_linear_args forward = {.how = how_of(mode),
            .parts = RPS_NPU_LINEAR_BIAS | RPS_NPU_LINEAR_PRODUCT |
                     RPS_NPU_LINEAR_ACTIVATION,
            .rows = l->rows,
            .in = l->in,
            .out = FEW,
            .x = x,
            .weight = w,
            .bias = l->b,
            .z = l->y,
            .z_stride = FEW,
            .y = l->y,
            .y_stride = FEW};
    const struct rps_npu_linear_back_args back = {.how = how_of(mode),
            .parts = RPS_NPU_LINEAR_DBIAS | RPS_NPU_LINEAR_DWEIGHT |
                     RPS_NPU_LINEAR_DX,
            .rows = l->rows,
            .in = l->in,
            .out = FEW,
            .x = x,
            .weight = w,
            .dy = l->dy,
            .dy_stride = FEW,
            .dx = l->dx,
            .dx_stride = l->in,
            .dweight = l->dw,
            .dweight_stride = l->in,
            .dbias = l->db};
    void *workspace = workspace_of(rps_npu_linear_workspace(&forward) +
                                   rps_npu_linear_back_workspace(&back));

    rps_npu_linear_kernel(&forward, workspace);
    rps_npu_linear_back_kernel(&back, workspace);
    free(workspace);
}

static void
measure_forward(double off[MODES])
{
    struct layer l = make_layer(FEW, LONG);

    for (int mode = 0; mode < MODES; mode++) {
        run_layer(&l, (enum mode)mode);
        off[mode] = distance(l.y, l.want_y, FEW * FEW);
    }
    drop_layer(&l);
}

static void
measure_dweight(double off[MODES])
{
    struct layer l = make_layer(LONG, FEW);

    for (int mode = 0; mode < MODES; mode++) {
        run_layer(&l, (enum mode)mode);
        off[mode] = distance(l.dw, l.want_dw, FEW * FEW);
    }
    drop_layer(&l);
}

static void
measure_dbias(double off[MODES])
{
    struct layer l = make_layer(LONG, FEW);

    for (int mode = 0; mode < MODES; mode++) {
        run_layer(&l, (enum mode)mode);
        off[mode] = distance(l.db, l.want_db, FEW);
    }
    drop_layer(&l);
}

/* --- rows
 * ----------------------------------------------------------------------- */

static void
measure_dots(double off[MODES])
{
    uint64_t state = 3;
    float *v = noise_floats(27 * DIM, 1.0, &state), *y = zero_floats(351);
    double *want = model_dots(1, 27, DIM, false, v);

    for (int mode = 0; mode < MODES; mode++) {
        const struct rps_npu_interact_args args = {
                .how = how_of((enum mode)mode),
                .dots = rps_dots_best(),
                .rows = 1,
                .n = 27,
                .width = DIM,
                .v = v,
                .v_row = 27 * DIM,
                .v_vector = DIM,
                .y = y,
                .y_stride = 351};
        void *workspace = workspace_of(rps_npu_interact_workspace(&args));

        rps_npu_interact_kernel(&args, workspace);
        off[mode] = distance(y, want, 351);
        free(workspace);
    }
    free(v);
    free(y);
    free(want);
}

static void
measure_pooling(double off[MODES])
{
    const int32_t starts[] = {0, LONG};
    uint64_t state = 3;
    float *rows = noise_floats(LONG * DIM, 1.0, &state), pooled[DIM];
    double want[DIM] = {0.0};

    for (size_t i = 0; i < LONG * DIM; i++) {
        rows[i] += 1.0f; /* a sum that grows */
        want[i % DIM] += (double)rows[i] / LONG;
    }
    for (int mode = 0; mode < MODES; mode++) {
        const struct rps_npu_bags_args args = {.how = how_of((enum mode)mode),
                .mean = true,
                .bags = 1,
                .tokens = LONG,
                .dim = DIM,
                .starts = starts,
                .rows = rows,
                .row_count = LONG,
                .row_stride = DIM,
                .pooled = pooled,
                .inner = 1,
                .outer_stride = DIM};
        void *workspace = workspace_of(rps_npu_bags_workspace(&args));

        rps_npu_bags_kernel(&args, workspace);
        off[mode] = distance(pooled, want, DIM);
        free(workspace);
    }
    free(rows);
}

/* --- functions
 * -------------------------------------------------------------------- */

static double
truth(enum rps_npu_kernel_function function, double x)
{
    if (function == RPS_NPU_KERNEL_GELU) {
        return model_activate(MODEL_GELU, x);
    }
    return function == RPS_NPU_KERNEL_TANH ? tanh(x) : 1.0 / (1.0 + exp(-x));
}

static void
measure_function(enum rps_npu_kernel_function function, double off[MODES])
{
    float *x = zero_floats(LONG), *y = zero_floats(LONG);
    double *want = doubles(LONG);

    for (size_t i = 0; i < LONG; i++) {
        x[i] = (float)(8.0 * ((double)i / (LONG / 2) - 1.0));
        want[i] = truth(function, (double)x[i]);
    }
    for (int mode = 0; mode < MODES; mode++) {
        if (mode == PRECISE) {
            rps_npu_precise_apply[function](x, y, LONG);
        } else {
            rps_npu_elementwise()->apply[function](x, y, LONG);
        }
        off[mode] = distance(y, want, LONG);
    }
    free(x);
    free(y);
    free(want);
}

static const struct {
    const char *what;
    void (*measure)(double off[MODES]);
} sums[] = {{"linear, 4096 inputs", measure_forward},
        {"its dW, 4096 rows", measure_dweight},
        {"its db, 4096 rows", measure_dbias}, {"dots, width 64", measure_dots},
        {"mean of 4096 rows", measure_pooling}};
#define SUMS 5

static void
check(const char *what, const double off[MODES])
{
    printf("| %s | %.1e | %.1e | %.1e |\n", what, off[FAST], off[PRECISE],
            off[MIXED]);
    ck_assert_double_lt(off[PRECISE], off[FAST]);
    ck_assert_double_le(off[PRECISE], 0x1p-24); /* rounded once */
    ck_assert_double_le(off[FAST], off[MIXED]);
}

START_TEST(high_precision_sums_are_nearer_to_the_truth)
{
    double off[MODES];

    sums[_i].measure(off);
    check(sums[_i].what, off);
}
END_TEST

START_TEST(high_precision_functions_are_nearer_to_the_truth)
{
    static const char *const names[] = {
            "relu", "gelu, -8 to 8", "tanh, -8 to 8", "sigmoid, -8 to 8"};
    double off[MODES];

    measure_function((enum rps_npu_kernel_function)_i, off);
    check(names[_i], off);
}
END_TEST

static Suite *
modes_suite(void)
{
    Suite *suite = suite_create("modes");
    TCase *tcase = tcase_create("modes");

    tcase_add_loop_test(
            tcase, high_precision_sums_are_nearer_to_the_truth, 0, SUMS);
    tcase_add_loop_test(tcase, high_precision_functions_are_nearer_to_the_truth,
            RPS_NPU_KERNEL_GELU, RPS_NPU_KERNEL_SIGMOID + 1);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    openblas_set_num_threads(1);
    return run_suite(modes_suite());
}
