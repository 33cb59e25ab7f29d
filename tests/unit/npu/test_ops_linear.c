/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers as operators: views of every kind against the model, fused and not,
 * and what they refuse.
 */
#include "tests/unit/npu/ops.h"

#define ROWS 70u
#define IN   9u
#define OUT  5u

struct layer {
    float *x, *w, *b, *dy;
    rps_npu_tensor tx, tw, tb, tdy, tz, ty, tdx, tdw, tdb;
    rps_npu_linear forward;
    rps_npu_linear_gradient back;
};

static void
aim(struct layer *l, enum rps_npu_activation activation)
{
    l->forward = (rps_npu_linear){.x = &l->tx,
            .weight = &l->tw,
            .bias = &l->tb,
            .activation = activation,
            .z = activation == RPS_NPU_ACTIVATION_GELU ? &l->tz : NULL,
            .y = &l->ty};
    l->back = (rps_npu_linear_gradient){.x = &l->tx,
            .weight = &l->tw,
            .activation = activation,
            .kept = activation == RPS_NPU_ACTIVATION_GELU ? &l->tz : &l->ty,
            .dy = &l->tdy,
            .dx = &l->tdx,
            .dweight = &l->tdw,
            .dbias = &l->tdb};
}

static void
make_layer(struct layer *l, const struct bench *bench, size_t rows)
{
    uint64_t state = 4;

    l->x = noise_floats(rows * IN, 1.0, &state);
    l->w = noise_floats(OUT * IN, 0.4, &state);
    l->b = noise_floats(OUT, 0.5, &state);
    l->dy = noise_floats(rows * OUT, 1.0, &state);
    l->tx = matrix(bench, rows, IN, l->x);
    l->tw = matrix(bench, OUT, IN, l->w);
    l->tb = vector(bench, OUT, l->b);
    l->tdy = matrix(bench, rows, OUT, l->dy);
    l->tz = matrix(bench, rows, OUT, NULL);
    l->ty = matrix(bench, rows, OUT, NULL);
    l->tdx = matrix(bench, rows, IN, NULL);
    l->tdw = matrix(bench, OUT, IN, NULL);
    l->tdb = vector(bench, OUT, NULL);
}

static void
drop_layer(struct layer *l)
{
    rps_npu_tensor *const tensors[] = {&l->tx, &l->tw, &l->tb, &l->tdy, &l->tz,
            &l->ty, &l->tdx, &l->tdw, &l->tdb};

    for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) {
        rps_npu_tensor_release(tensors[i]);
    }
    free(l->x);
    free(l->w);
    free(l->b);
    free(l->dy);
}

static void
run_layer(const struct layer *l, const struct bench *bench)
{
    ck_assert_ok(rps_npu_linear_forward(&bench->ops, &l->forward));
    ck_assert_ok(rps_npu_linear_backward(&bench->ops, &l->back));
}

static void
assert_is_model(const struct layer *l, const struct bench *bench, double bound)
{
    const struct model_linear model = {.rows = l->ty.shape[0],
            .in = IN,
            .out = OUT,
            .x = l->x,
            .w = l->w,
            .b = l->b,
            .activation = (enum model_activation)l->forward.activation,
            .dy = l->dy};
    double *y = model_linear_y(&model), *dx = doubles(model.rows * IN);
    double *dw = doubles(OUT * IN), *db = doubles(OUT);

    model_linear_back(&model, dx, dw, db);
    assert_tensor_near(bench, "y", &l->ty, y, bound);
    assert_tensor_near(bench, "dx", &l->tdx, dx, bound);
    assert_tensor_near(bench, "dW", &l->tdw, dw, 4.0 * bound);
    assert_tensor_near(bench, "db", &l->tdb, db, 4.0 * bound);
    free(y);
    free(dx);
    free(dw);
    free(db);
}

static void
use_mode(struct bench *bench, int mode)
{
    bench->ops.options.deterministic = (mode & 1) != 0;
    bench->ops.options.implmode = (mode & 2) != 0
                                          ? RPS_NPU_IMPL_HIGH_PRECISION
                                          : RPS_NPU_IMPL_HIGH_PERFORMANCE;
    bench->ops.options.precision_mode = (mode & 4) != 0
                                                ? RPS_NPU_PRECISION_MIXED
                                                : RPS_NPU_PRECISION_ORIGIN;
}

START_TEST(a_layer_on_the_device_is_its_model)
{
    struct bench bench = open_bench();

    for (int activation = 0; activation < 3; activation++) {
        struct layer l;

        use_mode(&bench, _i);
        make_layer(&l, &bench, ROWS);
        aim(&l, (enum rps_npu_activation)activation);
        run_layer(&l, &bench);
        assert_is_model(&l, &bench, _i < 4 ? 1e-5 : 2e-2);
        drop_layer(&l);
    }
    close_bench(&bench);
}
END_TEST

START_TEST(fused_and_not_have_the_same_bits)
{
    struct bench bench = open_bench();

    bench.ops.name = "top.2";
    use_mode(&bench, _i);
    for (int activation = 0; activation < 3; activation++) {
        struct layer one, many;
        uint64_t count = 0;

        make_layer(&one, &bench, ROWS);
        make_layer(&many, &bench, ROWS);
        aim(&one, (enum rps_npu_activation)activation);
        aim(&many, (enum rps_npu_activation)activation);
        bench.ops.options.fusion = true;
        count = operations(&bench);
        run_layer(&one, &bench);
        ck_assert_uint_eq(operations(&bench) - count, 2);
        bench.ops.options.fusion = false;
        count = operations(&bench);
        run_layer(&many, &bench);
        /* bias, product, dbias, dweight, dx; the activation and its slope */
        ck_assert_uint_eq(operations(&bench) - count, activation == 0 ? 5 : 7);
        assert_tensors_same(&bench, "y", &one.ty, &many.ty);
        assert_tensors_same(&bench, "dx", &one.tdx, &many.tdx);
        assert_tensors_same(&bench, "dW", &one.tdw, &many.tdw);
        assert_tensors_same(&bench, "db", &one.tdb, &many.tdb);
        drop_layer(&one);
        drop_layer(&many);
    }
    close_bench(&bench);
}
END_TEST

/* --- views
 * --------------------------------------------------------------------- */

static void
replace(rps_npu_tensor *tensor, rps_npu_tensor with)
{
    rps_npu_tensor_release(tensor);
    *tensor = with;
}

/* The same numbers as a transpose of what lies there, or as a slice. */
static rps_npu_tensor
transposed(const struct bench *bench, size_t rows, size_t columns,
        const float *values)
{
    float *turned = zero_floats(rows * columns);
    rps_npu_tensor lying = {0}, view = {0};

    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < columns; c++) {
            turned[c * rows + r] = values[r * columns + c];
        }
    }
    lying = matrix(bench, columns, rows, turned);
    ck_assert_ok(rps_npu_tensor_transpose(&lying, 0, 1, &view));
    rps_npu_tensor_release(&lying);
    free(turned);
    return view;
}

static rps_npu_tensor
sliced(const struct bench *bench, size_t rows, size_t columns,
        const float *values)
{
    rps_npu_tensor whole = {0}, from = matrix(bench, rows, columns, values);
    rps_npu_tensor view = slice_of_wider(bench, rows, columns, 3, &whole);

    ck_assert_ok(rps_npu_cast(&bench->ops, &from, &view));
    rps_npu_tensor_release(&from);
    rps_npu_tensor_release(&whole);
    return view;
}

START_TEST(slices_are_used_where_they_lie)
{
    struct bench bench = open_bench();
    struct layer l;
    uint64_t count = 0;

    make_layer(&l, &bench, ROWS);
    replace(&l.tx, sliced(&bench, ROWS, IN, l.x));
    replace(&l.tw, sliced(&bench, OUT, IN, l.w));
    replace(&l.tdy, sliced(&bench, ROWS, OUT, l.dy));
    replace(&l.ty, sliced(&bench, ROWS, OUT, l.dy));
    replace(&l.tdx, sliced(&bench, ROWS, IN, l.x));
    replace(&l.tdw, sliced(&bench, OUT, IN, l.w));
    aim(&l, RPS_NPU_ACTIVATION_RELU);
    count = operations(&bench);
    run_layer(&l, &bench);
    ck_assert_uint_eq(operations(&bench) - count, 2);
    assert_is_model(&l, &bench, 1e-5);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(transposes_are_copied_and_counted)
{
    struct bench bench = open_bench();
    struct layer l;
    uint64_t count = 0;

    make_layer(&l, &bench, ROWS);
    replace(&l.tx, transposed(&bench, ROWS, IN, l.x));
    replace(&l.tw, transposed(&bench, OUT, IN, l.w));
    replace(&l.tdy, transposed(&bench, ROWS, OUT, l.dy));
    aim(&l, RPS_NPU_ACTIVATION_RELU);
    count = operations(&bench);
    run_layer(&l, &bench);
    /* x and W twice, dy once */
    ck_assert_uint_eq(operations(&bench) - count, 7);
    assert_is_model(&l, &bench, 1e-5);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(a_layer_of_no_rows_has_gradients_of_zero)
{
    struct bench bench = open_bench();
    struct layer l;
    float *dw = NULL, *db = NULL;

    bench.ops.options.fusion = _i == 1;
    make_layer(&l, &bench, 0);
    aim(&l, RPS_NPU_ACTIVATION_RELU);
    ck_assert_ok(rps_npu_fill(&bench.ops, 3.0f, &l.tdw));
    ck_assert_ok(rps_npu_fill(&bench.ops, 3.0f, &l.tdb));
    l.back.accumulate = true;
    run_layer(&l, &bench);
    dw = read_tensor(&bench, &l.tdw);
    ck_assert(dw[0] == 3.0f && dw[OUT * IN - 1] == 3.0f);
    free(dw);
    l.back.accumulate = false;
    run_layer(&l, &bench);
    dw = read_tensor(&bench, &l.tdw);
    db = read_tensor(&bench, &l.tdb);
    ck_assert(dw[0] == 0.0f && dw[OUT * IN - 1] == 0.0f && db[0] == 0.0f);
    free(dw);
    free(db);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(a_layer_without_input_is_its_bias)
{
    struct bench bench = open_bench();
    struct layer l;
    float *y = NULL, *db = NULL;
    double sum = 0.0;

    bench.ops.options.fusion = _i == 1;
    make_layer(&l, &bench, ROWS);
    aim(&l, RPS_NPU_ACTIVATION_RELU);
    l.forward.x = l.forward.weight = NULL;
    l.back.x = l.back.weight = l.back.dx = l.back.dweight = NULL;
    run_layer(&l, &bench);
    y = read_tensor(&bench, &l.ty);
    db = read_tensor(&bench, &l.tdb);
    for (size_t r = 0; r < ROWS; r++) {
        ck_assert(y[r * OUT + 1] == (l.b[1] > 0.0f ? l.b[1] : 0.0f));
        sum += l.b[1] > 0.0f ? (double)l.dy[r * OUT + 1] : 0.0;
    }
    ck_assert_double_eq_tol((double)db[1], sum, 1e-5);
    free(y);
    free(db);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(bf16_tensors_are_factors)
{
    const uint64_t x_shape[] = {ROWS, IN}, w_shape[] = {OUT, IN};
    struct bench bench = open_bench();
    struct layer mixed, narrow;
    rps_npu_tensor x = make_tensor(&bench, RPS_NPU_BF16, 2, x_shape, NULL);
    rps_npu_tensor w = make_tensor(&bench, RPS_NPU_BF16, 2, w_shape, NULL);

    /* what mixed precision rounds itself is the same as what was rounded */
    make_layer(&mixed, &bench, ROWS);
    make_layer(&narrow, &bench, ROWS);
    ck_assert_ok(rps_npu_cast(&bench.ops, &narrow.tx, &x));
    ck_assert_ok(rps_npu_cast(&bench.ops, &narrow.tw, &w));
    replace(&narrow.tx, x);
    replace(&narrow.tw, w);
    aim(&mixed, RPS_NPU_ACTIVATION_RELU);
    aim(&narrow, RPS_NPU_ACTIVATION_RELU);
    use_mode(&bench, 4);
    run_layer(&mixed, &bench);
    run_layer(&narrow, &bench);
    assert_tensors_same(&bench, "y", &mixed.ty, &narrow.ty);
    assert_tensors_same(&bench, "dx", &mixed.tdx, &narrow.tdx);
    assert_tensors_same(&bench, "dW", &mixed.tdw, &narrow.tdw);
    drop_layer(&mixed);
    drop_layer(&narrow);
    close_bench(&bench);
}
END_TEST

/* --- what is refused
 * ------------------------------------------------------------ */

static void
assert_refused(
        const struct bench *bench, const struct layer *l, const char *words)
{
    const uint64_t count = operations(bench);

    ck_assert_int_eq(
            rps_npu_linear_forward(&bench->ops, &l->forward), RPS_E_INVAL);
    assert_words(words);
    ck_assert_uint_eq(operations(bench), count);
}

START_TEST(what_does_not_fit_is_named)
{
    struct bench bench = open_bench();
    struct layer l;
    rps_npu_tensor view = {0};

    bench.ops.name = "bot.0";
    make_layer(&l, &bench, ROWS);
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    l.forward.weight = &l.tx;
    assert_refused(&bench, &l,
            "bot.0/linear: weight is [70][9] f32; it must be [5][9] f32 or "
            "bf16");
    l.forward.weight = NULL;
    assert_refused(&bench, &l, "weight is no tensor");
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    l.forward.bias = &l.tw;
    assert_refused(&bench, &l, "bias is [5][9] f32; it must be [5] f32");
    l.forward.bias = NULL;
    l.forward.x = l.forward.weight = NULL;
    assert_refused(&bench, &l, "without x there is no weight, and a bias");
    aim(&l, (enum rps_npu_activation)7);
    assert_refused(&bench, &l, "no activation 7");
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    ck_assert_ok(rps_npu_tensor_transpose(&l.tdx, 0, 1, &view));
    l.forward.x = &l.tw;
    l.forward.weight = &l.tw;
    l.forward.y = &view;
    assert_refused(&bench, &l, "it must be [9][any]");
    rps_npu_tensor_release(&view);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(an_output_in_columns_is_refused)
{
    struct bench bench = open_bench();
    rps_npu_tensor lying = matrix(&bench, OUT, ROWS, NULL), view = {0};
    struct layer l;

    make_layer(&l, &bench, ROWS);
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    ck_assert_ok(rps_npu_tensor_transpose(&lying, 0, 1, &view));
    l.forward.y = &view;
    assert_refused(&bench, &l, "y is an output: its elements must lie");
    rps_npu_tensor_release(&view);
    rps_npu_tensor_release(&lying);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(host_memory_and_other_devices_are_refused)
{
    struct bench bench = open_bench();
    rps_npu_ops ops = bench.ops;
    rps_npu_options options;
    rps_npu *other = NULL;
    rps_npu_stream *stream = NULL;
    rps_npu_tensor none = {0};
    struct layer l;

    rps_npu_options_init(&options);
    options.memory_bytes = UINT64_C(64) << 20;
    ck_assert_ok(rps_npu_open(&other, 1, &options));
    stream = open_stream(other, "other");
    make_layer(&l, &bench, ROWS);
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    ops.stream = stream;
    ck_assert_int_eq(rps_npu_linear_forward(&ops, &l.forward), RPS_E_INVAL);
    assert_words("y is not in the memory of npu 1");
    none = l.tx;
    none.storage = NULL; /* no memory at all */
    l.forward.x = &none;
    ck_assert_int_eq(
            rps_npu_linear_forward(&bench.ops, &l.forward), RPS_E_INVAL);
    assert_words("x is not in the memory");
    rps_npu_stream_destroy(stream);
    rps_npu_close(other);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(options_must_be_of_their_init)
{
    struct bench bench = open_bench();
    struct layer l;

    make_layer(&l, &bench, ROWS);
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    bench.ops.options.struct_bytes = 0;
    assert_refused(&bench, &l, "not of rps_npu_ops_options_init()");
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

START_TEST(deterministic_refuses_shared_out_products)
{
    struct bench bench = open_bench();
    struct layer l;

    make_layer(&l, &bench, ROWS);
    aim(&l, RPS_NPU_ACTIVATION_NONE);
    run_layer(&l, &bench); /* the first product sets one thread */
    bench.ops.options.deterministic = true;
    run_layer(&l, &bench);
    ck_assert_int_eq(rps_npu_set_blas_threads(0), RPS_E_INVAL);
    assert_words("0 threads: must be 1 to 1024");
    ck_assert_ok(rps_npu_set_blas_threads(2));
    assert_refused(&bench, &l, "deterministic does not go with 2 BLAS threads");
    ck_assert_ok(rps_npu_set_blas_threads(1));
    run_layer(&l, &bench);
    drop_layer(&l);
    close_bench(&bench);
}
END_TEST

static Suite *
ops_linear_suite(void)
{
    Suite *suite = suite_create("ops_linear");
    TCase *tcase = tcase_create("ops_linear");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_layer_on_the_device_is_its_model, 0, 8);
    tcase_add_loop_test(tcase, fused_and_not_have_the_same_bits, 0, 8);
    tcase_add_test(tcase, slices_are_used_where_they_lie);
    tcase_add_test(tcase, transposes_are_copied_and_counted);
    tcase_add_loop_test(tcase, a_layer_of_no_rows_has_gradients_of_zero, 0, 2);
    tcase_add_loop_test(tcase, a_layer_without_input_is_its_bias, 0, 2);
    tcase_add_test(tcase, bf16_tensors_are_factors);
    tcase_add_test(tcase, what_does_not_fit_is_named);
    tcase_add_test(tcase, an_output_in_columns_is_refused);
    tcase_add_test(tcase, host_memory_and_other_devices_are_refused);
    tcase_add_test(tcase, options_must_be_of_their_init);
    tcase_add_test(tcase, deterministic_refuses_shared_out_products);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    use_own_host();
    return run_suite(ops_linear_suite());
}
