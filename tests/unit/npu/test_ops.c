/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on views: elementwise, joins, pooling, dots, loss, dropout and
 * optimizers, fused and not, and in compiled steps.
 */
#include "base/half.h"
#include "tests/unit/npu/ops.h"

/* --- elementwise
 * ---------------------------------------------------------------- */

/* [3][4][5] in the middle of a wider [3][7][5]: rows of 20 */
static rps_npu_tensor
middle(const struct bench *bench, const float *values, rps_npu_tensor *whole)
{
    const uint64_t shape[] = {3, 7, 5};
    rps_npu_tensor view = {0};

    *whole = make_tensor(bench, RPS_NPU_F32, 3, shape, values);
    ck_assert_ok(rps_npu_tensor_slice(whole, 1, 2, 4, &view));
    return view;
}

#define WIDE 105u /* 3 7 5 */
#define MID  60u

/* Element i of the middle in the whole. */
static size_t
middle_at(size_t i)
{
    return i / 20 * 35 + 10 + i % 20;
}

struct views {
    float values[3][WIDE];
    rps_npu_tensor whole[3], view[3];
};

static void
make_views(struct views *v, const struct bench *bench)
{
    uint64_t state = 31;

    for (size_t i = 0; i < 3; i++) {
        for (size_t k = 0; k < WIDE; k++) {
            v->values[i][k] = (float)(2.0 * noise(&state));
        }
        v->view[i] = middle(bench, v->values[i], &v->whole[i]);
    }
}

static void
drop_views(struct views *v)
{
    for (size_t i = 0; i < 3; i++) {
        rps_npu_tensor_release(&v->whole[i]);
        rps_npu_tensor_release(&v->view[i]);
    }
}

/* What view 2 holds; around it nothing has changed. */
static void
read_result(struct views *v, const struct bench *bench, float *to)
{
    float *all = read_tensor(bench, &v->whole[2]);
    bool inside[WIDE] = {false};

    for (size_t i = 0; i < MID; i++) {
        to[i] = all[middle_at(i)];
        inside[middle_at(i)] = true;
    }
    for (size_t k = 0; k < WIDE; k++) {
        ck_assert(inside[k] || same(all[k], v->values[2][k]));
    }
    free(all);
}

START_TEST(functions_walk_views)
{
    struct bench bench = open_bench();
    struct views v;
    float got[MID];
    const uint64_t count = operations(&bench);

    make_views(&v, &bench);
    ck_assert_ok(
            rps_npu_apply(&bench.ops, RPS_NPU_TANH, &v.view[0], &v.view[2]));
    read_result(&v, &bench, got);
    for (size_t i = 0; i < MID; i++) {
        const double x = (double)v.values[0][middle_at(i)];

        ck_assert_double_eq_tol((double)got[i], tanh(x), 1e-6);
    }
    ck_assert_ok(rps_npu_add(&bench.ops, &v.view[0], &v.view[1], &v.view[2]));
    read_result(&v, &bench, got);
    for (size_t i = 0; i < MID; i++) {
        const size_t at = middle_at(i);

        ck_assert(got[i] == v.values[0][at] + v.values[1][at]);
    }
    ck_assert_ok(rps_npu_apply_backward(
            &bench.ops, RPS_NPU_RELU, &v.view[0], &v.view[1], &v.view[2]));
    read_result(&v, &bench, got);
    for (size_t i = 0; i < MID; i++) {
        const size_t at = middle_at(i);

        ck_assert(got[i] == (v.values[0][at] > 0.0f ? v.values[1][at] : 0.0f));
    }
    ck_assert_uint_eq(operations(&bench) - count, 3); /* nothing was copied */
    drop_views(&v);
    close_bench(&bench);
}
END_TEST

START_TEST(scale_and_fill_in_place)
{
    struct bench bench = open_bench();
    struct views v;
    float got[MID];
    const double half = 0.5;
    rps_npu_tensor factor = scalars(&bench, 1, &half);

    make_views(&v, &bench);
    ck_assert_ok(
            rps_npu_scale(&bench.ops, &v.view[2], 3.0, &factor, &v.view[2]));
    read_result(&v, &bench, got);
    for (size_t i = 0; i < MID; i++) {
        ck_assert(got[i] == v.values[2][middle_at(i)] * 1.5f);
    }
    ck_assert_ok(rps_npu_fill(&bench.ops, -2.0f, &v.view[2]));
    read_result(&v, &bench, got);
    ck_assert(got[0] == -2.0f && got[MID - 1] == -2.0f);
    rps_npu_tensor_release(&factor);
    drop_views(&v);
    close_bench(&bench);
}
END_TEST

START_TEST(an_expanded_input_is_repeated)
{
    const uint64_t shape[] = {3, 4, 5}, one_row[] = {1, 1, 5};
    struct bench bench = open_bench();
    struct views v;
    rps_npu_tensor row = {0}, rows = {0};
    float got[MID];

    make_views(&v, &bench);
    row = make_tensor(&bench, RPS_NPU_F32, 3, one_row, v.values[0]);
    ck_assert_ok(rps_npu_tensor_expand(&row, 3, shape, &rows));
    ck_assert_ok(rps_npu_add(&bench.ops, &rows, &v.view[1], &v.view[2]));
    read_result(&v, &bench, got);
    for (size_t i = 0; i < MID; i++) {
        ck_assert(got[i] == v.values[0][i % 5] + v.values[1][middle_at(i)]);
    }
    /* but nothing can be written to it */
    ck_assert_int_eq(rps_npu_fill(&bench.ops, 1.0f, &rows), RPS_E_INVAL);
    assert_words("y is an output");
    rps_npu_tensor_release(&rows);
    rps_npu_tensor_release(&row);
    drop_views(&v);
    close_bench(&bench);
}
END_TEST

START_TEST(casts_round_to_nearest_even_and_come_back)
{
    const uint64_t shape[] = {3, 4, 5};
    struct bench bench = open_bench();
    struct views v;
    float got[MID];
    rps_npu_tensor narrow = make_tensor(&bench, RPS_NPU_BF16, 3, shape, NULL);

    make_views(&v, &bench);
    ck_assert_ok(rps_npu_cast(&bench.ops, &v.view[0], &narrow));
    ck_assert_ok(rps_npu_cast(&bench.ops, &narrow, &v.view[2]));
    read_result(&v, &bench, got);
    for (size_t i = 0; i < MID; i++) {
        const float x = v.values[0][middle_at(i)];

        ck_assert(same(got[i], rps_float_of_bf16(rps_float_to_bf16(x))));
    }
    ck_assert_ok(rps_npu_cast(&bench.ops, &v.view[0], &v.view[2]));
    read_result(&v, &bench, got);
    ck_assert(same(got[7], v.values[0][middle_at(7)]));
    rps_npu_tensor_release(&narrow);
    drop_views(&v);
    close_bench(&bench);
}
END_TEST

START_TEST(tensors_of_other_shapes_and_types_are_named)
{
    const uint64_t n = 6;
    struct bench bench = open_bench();
    rps_npu_tensor a = vector(&bench, 5, NULL), b = vector(&bench, 6, NULL);
    rps_npu_tensor wide = scalars(&bench, 6, NULL);
    rps_npu_tensor whole = make_tensor(&bench, RPS_NPU_I32, 1, &n, NULL);

    ck_assert_int_eq(rps_npu_add(&bench.ops, &a, &b, &b), RPS_E_INVAL);
    assert_words("add: a is [5] f32; it must be [6] f32");
    ck_assert_int_eq(
            rps_npu_apply(&bench.ops, RPS_NPU_RELU, &b, &wide), RPS_E_INVAL);
    assert_words("relu: y is [6] f64; it must be f32");
    ck_assert_int_eq(rps_npu_cast(&bench.ops, &whole, &b), RPS_E_INVAL);
    assert_words("cast: x is [6] i32; it must be [6] f32 or bf16");
    ck_assert_int_eq(
            rps_npu_apply(&bench.ops, (enum rps_npu_function)9, &a, &a),
            RPS_E_INVAL);
    assert_words("no function 9");
    ck_assert_int_eq(rps_npu_scale(&bench.ops, &a, 1.0, &b, &a), RPS_E_INVAL);
    assert_words("device_factor is [6] f32; it must be [1] f64");
    rps_npu_tensor_release(&a);
    rps_npu_tensor_release(&b);
    rps_npu_tensor_release(&wide);
    rps_npu_tensor_release(&whole);
    close_bench(&bench);
}
END_TEST

/* --- joins
 * ----------------------------------------------------------------------- */

#define PARTS 8u

START_TEST(parts_are_joined_and_split_again)
{
    static const uint64_t columns[PARTS] = {3, 1, 0, 7, 2, 5, 16, 1};
    struct bench bench = open_bench();
    rps_npu_tensor parts[PARTS], back[PARTS], whole = {0};
    float *values = NULL, *all = NULL;
    uint64_t state = 2;
    size_t at = 0;

    for (size_t p = 0; p < PARTS; p++) {
        values = noise_floats(6 * columns[p], 1.0, &state);
        parts[p] = matrix(&bench, 6, columns[p], values);
        back[p] = matrix(&bench, 6, columns[p], NULL);
        free(values);
    }
    whole = matrix(&bench, 6, 35, NULL);
    ck_assert_ok(rps_npu_concat(&bench.ops, parts, PARTS, &whole));
    ck_assert_ok(rps_npu_split(&bench.ops, &whole, back, PARTS));
    all = read_tensor(&bench, &whole);
    for (size_t p = 0; p < PARTS; p++) {
        values = read_tensor(&bench, &parts[p]);
        for (size_t i = 0; i < 6 * columns[p]; i++) {
            ck_assert(values[i] ==
                      all[i / columns[p] * 35 + at + i % columns[p]]);
        }
        at += columns[p];
        free(values);
        assert_tensors_same(&bench, "part", &parts[p], &back[p]);
    }
    ck_assert_int_eq(rps_npu_concat(&bench.ops, parts, 3, &whole), RPS_E_INVAL);
    assert_words("the whole has 35 columns, its parts together 4");
    ck_assert_int_eq(rps_npu_split(&bench.ops, &whole, back, 0), RPS_E_INVAL);
    assert_words("0 tensors: 1 to 15 are joined");
    for (size_t p = 0; p < PARTS; p++) {
        rps_npu_tensor_release(&parts[p]);
        rps_npu_tensor_release(&back[p]);
    }
    rps_npu_tensor_release(&whole);
    free(all);
    close_bench(&bench);
}
END_TEST

/* --- pooling and dots
 * -------------------------------------------------------------- */

#define SAMPLES 5u
#define BAGS    3u /* of a sample */
#define WIDTH   16u
#define VECTORS (1 + BAGS)
#define TOKENS  40u

struct dlrm {
    rps_npu_tensor bottom, rows, slots, starts, v, y, dy, dv, dtokens;
    rps_npu_bags bags;
};

static void
make_dlrm(struct dlrm *d, const struct bench *bench)
{
    const uint64_t v_shape[] = {SAMPLES, VECTORS, WIDTH}, tokens = TOKENS;
    const uint64_t starts = SAMPLES * BAGS + 1;
    const uint64_t out = WIDTH + VECTORS * (VECTORS - 1) / 2;
    int32_t slot[TOKENS], start[SAMPLES * BAGS + 1];
    uint64_t state = 12;
    float *values = noise_floats(1000, 1.0, &state);

    for (int32_t t = 0; t < (int32_t)TOKENS; t++) {
        slot[t] = t * 7 % 20;
    }
    for (int32_t b = 0; b <= (int32_t)(SAMPLES * BAGS); b++) {
        start[b] = b * b / 7; /* 0 to 32: none, one or several */
    }
    d->bottom = matrix(bench, SAMPLES, WIDTH, values);
    d->rows = matrix(bench, 20, WIDTH, values + 100);
    d->slots = make_tensor(bench, RPS_NPU_I32, 1, &tokens, slot);
    d->starts = make_tensor(bench, RPS_NPU_I32, 1, &starts, start);
    d->v = make_tensor(bench, RPS_NPU_F32, 3, v_shape, values);
    d->dv = make_tensor(bench, RPS_NPU_F32, 3, v_shape, NULL);
    d->y = matrix(bench, SAMPLES, out, NULL);
    d->dy = matrix(bench, SAMPLES, out, values + 500);
    d->dtokens = matrix(bench, TOKENS, WIDTH, values);
    d->bags = (rps_npu_bags){.pooling = RPS_POOLING_MEAN,
            .slots = &d->slots,
            .starts = &d->starts};
    free(values);
}

static void
drop_dlrm(struct dlrm *d)
{
    rps_npu_tensor *const all[] = {&d->bottom, &d->rows, &d->slots, &d->starts,
            &d->v, &d->y, &d->dy, &d->dv, &d->dtokens};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rps_npu_tensor_release(all[i]);
    }
}

/* v = [bottom, pooled bags]; y and the way back. */
static void
run_dlrm(const struct dlrm *d, const struct bench *bench)
{
    const uint64_t bottom_shape[] = {SAMPLES, 1, WIDTH};
    rps_npu_tensor first = {0}, rest = {0}, bottom = {0}, dpooled = {0};

    ck_assert_ok(rps_npu_tensor_slice(&d->v, 1, 0, 1, &first));
    ck_assert_ok(rps_npu_tensor_slice(&d->v, 1, 1, BAGS, &rest));
    ck_assert_ok(rps_npu_tensor_slice(&d->dv, 1, 1, BAGS, &dpooled));
    ck_assert_ok(rps_npu_tensor_reshape(&d->bottom, 3, bottom_shape, &bottom));
    ck_assert_ok(rps_npu_cast(&bench->ops, &bottom, &first));
    ck_assert_ok(rps_npu_pool_bags(&bench->ops, &d->bags, &d->rows, &rest));
    ck_assert_ok(rps_npu_dots(&bench->ops, &d->v, true, &d->y));
    ck_assert_ok(
            rps_npu_dots_backward(&bench->ops, &d->v, true, &d->dy, &d->dv));
    ck_assert_ok(rps_npu_pool_bags_backward(
            &bench->ops, &d->bags, &dpooled, &d->dtokens));
    rps_npu_tensor_release(&first);
    rps_npu_tensor_release(&rest);
    rps_npu_tensor_release(&bottom);
    rps_npu_tensor_release(&dpooled);
}

static void
assert_pooled(const struct dlrm *d, const struct bench *bench)
{
    float *rows = read_tensor(bench, &d->rows), *v = read_tensor(bench, &d->v);

    for (int32_t b = 0; b < (int32_t)(SAMPLES * BAGS); b++) {
        const int32_t first = b * b / 7, end = (b + 1) * (b + 1) / 7;
        const float *got = v + (b / 3 * 4 + 1 + b % 3) * 16;

        for (int32_t k = 0; k < 16; k++) {
            double want = 0.0;

            for (int32_t t = first; t < end; t++) {
                want += (double)rows[t * 7 % 20 * 16 + k];
            }
            want /= end > first ? (double)(end - first) : 1.0;
            ck_assert_double_eq_tol((double)got[k], want, 1e-6);
        }
    }
    free(rows);
    free(v);
}

static void
assert_spread(const struct dlrm *d, const struct bench *bench)
{
    float *dv = read_tensor(bench, &d->dv);
    float *got = read_tensor(bench, &d->dtokens);

    for (int32_t b = 0; b < (int32_t)(SAMPLES * BAGS); b++) {
        const int32_t first = b * b / 7, end = (b + 1) * (b + 1) / 7;
        const float *from = dv + (b / 3 * 4 + 1 + b % 3) * 16;

        for (int32_t t = first; t < end; t++) {
            ck_assert_double_eq_tol((double)got[t * 16 + 5],
                    (double)from[5] / (double)(end - first), 1e-6);
        }
    }
    free(dv);
    free(got);
}

START_TEST(bags_are_pooled_into_what_dots_read)
{
    struct bench bench = open_bench();
    struct dlrm d;
    float *v = NULL, *dy = NULL;
    double *y = NULL, *dv = NULL;

    make_dlrm(&d, &bench);
    run_dlrm(&d, &bench);
    assert_pooled(&d, &bench);
    assert_spread(&d, &bench);
    v = read_tensor(&bench, &d.v);
    dy = read_tensor(&bench, &d.dy);
    y = model_dots(SAMPLES, VECTORS, WIDTH, true, v);
    dv = model_dots_back(SAMPLES, VECTORS, WIDTH, true, v, dy);
    assert_tensor_near(&bench, "y", &d.y, y, 2e-6);
    assert_tensor_near(&bench, "dv", &d.dv, dv, 2e-6);
    free(v);
    free(dy);
    free(y);
    free(dv);
    drop_dlrm(&d);
    close_bench(&bench);
}
END_TEST

START_TEST(pooling_fused_with_concat_has_the_same_bits)
{
    struct bench bench = open_bench();
    struct dlrm one, many;
    uint64_t count = 0;

    bench.ops.options.deterministic = true;
    make_dlrm(&one, &bench);
    make_dlrm(&many, &bench);
    count = operations(&bench);
    run_dlrm(&one, &bench);
    ck_assert_uint_eq(operations(&bench) - count, 5);
    bench.ops.options.fusion = false;
    count = operations(&bench);
    run_dlrm(&many, &bench);
    ck_assert_uint_eq(operations(&bench) - count, 6);
    assert_tensors_same(&bench, "v", &one.v, &many.v);
    assert_tensors_same(&bench, "y", &one.y, &many.y);
    assert_tensors_same(&bench, "dtokens", &one.dtokens, &many.dtokens);
    drop_dlrm(&one);
    drop_dlrm(&many);
    close_bench(&bench);
}
END_TEST

START_TEST(bags_and_dots_that_do_not_fit_are_named)
{
    struct bench bench = open_bench();
    struct dlrm d;

    make_dlrm(&d, &bench);
    ck_assert_int_eq(rps_npu_pool_bags(&bench.ops, &d.bags, &d.rows, &d.rows),
            RPS_E_INVAL);
    assert_words("pooling: starts is [16] i32; it must be [21] i32");
    d.bags.pooling = RPS_POOLING_NONE;
    ck_assert_int_eq(
            rps_npu_pool_bags(&bench.ops, &d.bags, &d.rows, &d.v), RPS_E_INVAL);
    assert_words("must be sum, mean or sqrtn");
    ck_assert_int_eq(rps_npu_dots(&bench.ops, &d.v, false, &d.y), RPS_E_INVAL);
    assert_words("dots: y is [5][22] f32; it must be [5][6] f32");
    drop_dlrm(&d);
    close_bench(&bench);
}
END_TEST

/* --- loss
 * -------------------------------------------------------------------------- */

START_TEST(loss_and_gradient_fused_and_not)
{
    static const float x[] = {0.5f, -2.0f, 3.0f, 0.0f};
    static const float labels[] = {1, 0, 0, 1}, weight[] = {1, 0};
    static const double factors[] = {0.5, 4.0};
    const double want = log1p(exp(-0.5)) + log1p(exp(-2.0));
    struct bench bench = open_bench();
    rps_npu_tensor tx = matrix(&bench, 2, 2, x);
    rps_npu_tensor ty = matrix(&bench, 2, 2, labels);
    rps_npu_tensor tw = vector(&bench, 2, weight);
    rps_npu_tensor scale = scalars(&bench, 2, factors);
    rps_npu_tensor loss = scalars(&bench, 1, NULL);
    rps_npu_tensor dx = matrix(&bench, 2, 2, NULL);
    rps_npu_bce bce = {.logits = &tx,
            .labels = &ty,
            .weights = &tw,
            .scale = &scale,
            .loss = &loss,
            .dlogits = &dx};
    const uint64_t count = operations(&bench);
    float *got = NULL;

    bench.ops.options.fusion = _i == 1;
    ck_assert_ok(rps_npu_bce_with_logits(&bench.ops, &bce));
    ck_assert_uint_eq(operations(&bench) - count, _i == 1 ? 1 : 2);
    ck_assert_double_eq_tol(read_double(&bench, &loss), 0.5 * want, 1e-12);
    got = read_tensor(&bench, &dx);
    ck_assert_double_eq_tol(
            (double)got[0], 4.0 * (1.0 / (1.0 + exp(-0.5)) - 1.0), 1e-6);
    ck_assert(got[2] == 0.0f && got[3] == 0.0f);
    bce.accumulate = true;
    ck_assert_ok(rps_npu_bce_with_logits(&bench.ops, &bce));
    ck_assert_double_eq_tol(read_double(&bench, &loss), want, 1e-12);
    bce.loss = bce.dlogits = NULL;
    ck_assert_int_eq(rps_npu_bce_with_logits(&bench.ops, &bce), RPS_E_INVAL);
    assert_words("neither loss nor dlogits");
    free(got);
    rps_npu_tensor_release(&tx);
    rps_npu_tensor_release(&ty);
    rps_npu_tensor_release(&tw);
    rps_npu_tensor_release(&scale);
    rps_npu_tensor_release(&loss);
    rps_npu_tensor_release(&dx);
    close_bench(&bench);
}
END_TEST

/* --- dropout
 * ----------------------------------------------------------------------- */

START_TEST(dropout_asks_no_view_and_is_not_there_at_zero)
{
    const double at = 5.0;
    struct bench bench = open_bench();
    struct views v;
    rps_npu_tensor step = scalars(&bench, 1, &at);
    rps_npu_tensor packed = {0}, out = {0};
    rps_npu_dropout dropout = {
            .rate = 0.4, .seed = 9, .site = 2, .step = &step};
    uint64_t count = 0;

    make_views(&v, &bench);
    ck_assert_ok(
            rps_npu_tensor_contiguous(bench.ops.stream, &v.view[0], &packed));
    ck_assert_ok(rps_npu_tensor_create(
            bench.ops.stream, RPS_NPU_F32, 3, packed.shape, &out));
    ck_assert_ok(rps_npu_dropout_apply(
            &bench.ops, &dropout, &v.view[0], &v.view[2]));
    ck_assert_ok(rps_npu_dropout_apply(&bench.ops, &dropout, &packed, &out));
    assert_tensors_same(&bench, "view and packed", &v.view[2], &out);
    count = operations(&bench);
    dropout.rate = 0.0;
    ck_assert_ok(rps_npu_dropout_apply(
            &bench.ops, &dropout, &v.view[0], &v.view[0]));
    ck_assert_uint_eq(operations(&bench), count);
    dropout.rate = 1.0;
    ck_assert_int_eq(rps_npu_dropout_apply(&bench.ops, &dropout, &packed, &out),
            RPS_E_INVAL);
    assert_words("its rate is 1: must be from 0 to below 1");
    rps_npu_tensor_release(&packed);
    rps_npu_tensor_release(&out);
    rps_npu_tensor_release(&step);
    drop_views(&v);
    close_bench(&bench);
}
END_TEST

/* --- loss scale and optimizers
 * --------------------------------------------------------- */

START_TEST(an_overflow_is_seen_and_skips_the_step)
{
    static const float good[] = {1, 2, 3}, bad[] = {1, INFINITY, 3};
    const double quarter = 0.25, zero = 0.0;
    const uint64_t one = 1;
    struct bench bench = open_bench();
    rps_npu_tensor w = vector(&bench, 3, good), g = vector(&bench, 3, bad);
    rps_npu_tensor factor = scalars(&bench, 1, &quarter);
    rps_npu_tensor step = scalars(&bench, 1, &zero);
    rps_npu_tensor finite = make_tensor(&bench, RPS_NPU_I32, 1, &one, NULL);
    rps_npu_optimizer sgd;
    float *now = NULL;

    rps_npu_optimizer_init(&sgd, RPS_NPU_SGD);
    sgd.learning_rate = &factor;
    sgd.finite = &finite;
    for (int round = 0; round < 2; round++) {
        ck_assert_ok(rps_npu_unscale(&bench.ops, &g, &factor, &finite, false));
        ck_assert_ok(rps_npu_unscale(&bench.ops, &w, NULL, &finite, true));
        ck_assert_ok(rps_npu_count(&bench.ops, &step, &finite));
        ck_assert_ok(
                rps_npu_optimizer_step(&bench.ops, &sgd, &w, &g, NULL, NULL));
        now = read_tensor(&bench, &w);
        ck_assert(now[0] == (round == 0 ? 1.0f : 1.0f - 0.25f * 0.25f));
        ck_assert(read_double(&bench, &step) == (double)round);
        free(now);
        ck_assert_ok(rps_npu_tensor_from_host(bench.ops.stream, &g, good));
        ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    }
    sgd.weight_decay = -1.0;
    ck_assert_int_eq(
            rps_npu_optimizer_step(&bench.ops, &sgd, &w, &g, NULL, NULL),
            RPS_E_INVAL);
    assert_words("sgd: its weight decay is -1");
    rps_npu_tensor_release(&w);
    rps_npu_tensor_release(&g);
    rps_npu_tensor_release(&factor);
    rps_npu_tensor_release(&step);
    rps_npu_tensor_release(&finite);
    close_bench(&bench);
}
END_TEST

/* --- compiled steps
 * ---------------------------------------------------------------------- */

#define BATCH    70u
#define FEATURES 6u
#define STEPS    28u

/* One layer with dropout, its loss, its gradients and adamw, with all that
 * changes from step to step in device memory. */
struct training {
    rps_npu_tensor x, labels, w, b, m, v, mb, vb;
    rps_npu_tensor dropped, logits, dlogits, dw, db, loss, step, rate;
    rps_npu_optimizer adamw;
    rps_npu_dropout dropout;
};

static void
make_training(struct training *t, const struct bench *bench)
{
    const double zero = 0.0, rate = 0.01;
    uint64_t state = 1;
    float *values = noise_floats(BATCH * FEATURES, 1.0, &state);
    float *zeros = zero_floats(BATCH);

    t->x = matrix(bench, BATCH, FEATURES, values);
    t->w = matrix(bench, 1, FEATURES, values + 11);
    for (size_t r = 0; r < BATCH; r++) {
        values[r] = values[r * FEATURES] > 0.0f ? 1.0f : 0.0f;
    }
    t->labels = matrix(bench, BATCH, 1, values);
    t->b = vector(bench, 1, zeros);
    t->m = matrix(bench, 1, FEATURES, zeros);
    t->v = matrix(bench, 1, FEATURES, zeros);
    t->mb = vector(bench, 1, zeros);
    t->vb = vector(bench, 1, zeros);
    t->dropped = matrix(bench, BATCH, FEATURES, NULL);
    t->logits = matrix(bench, BATCH, 1, NULL);
    t->dlogits = matrix(bench, BATCH, 1, NULL);
    t->dw = matrix(bench, 1, FEATURES, NULL);
    t->db = vector(bench, 1, NULL);
    t->loss = scalars(bench, 1, &zero);
    t->step = scalars(bench, 1, &zero);
    t->rate = scalars(bench, 1, &rate);
    rps_npu_optimizer_init(&t->adamw, RPS_NPU_ADAMW);
    t->adamw.learning_rate = &t->rate;
    t->adamw.step = &t->step;
    t->dropout = (rps_npu_dropout){
            .rate = 0.2, .seed = 3, .site = 1, .step = &t->step};
    free(values);
    free(zeros);
}

static void
drop_training(struct training *t)
{
    rps_npu_tensor *const all[] = {&t->x, &t->labels, &t->w, &t->b, &t->m,
            &t->v, &t->mb, &t->vb, &t->dropped, &t->logits, &t->dlogits, &t->dw,
            &t->db, &t->loss, &t->step, &t->rate};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        rps_npu_tensor_release(all[i]);
    }
}

static void
train_once(const struct training *t, const struct bench *bench)
{
    const rps_npu_linear layer = {
            .x = &t->dropped, .weight = &t->w, .bias = &t->b, .y = &t->logits};
    const rps_npu_bce bce = {.logits = &t->logits,
            .labels = &t->labels,
            .loss = &t->loss,
            .accumulate = true,
            .dlogits = &t->dlogits};
    const rps_npu_linear_gradient back = {.x = &t->dropped,
            .dy = &t->dlogits,
            .dweight = &t->dw,
            .dbias = &t->db};
    const rps_npu_ops *ops = &bench->ops;

    ck_assert_ok(rps_npu_count(ops, &t->step, NULL));
    ck_assert_ok(rps_npu_dropout_apply(ops, &t->dropout, &t->x, &t->dropped));
    ck_assert_ok(rps_npu_linear_forward(ops, &layer));
    ck_assert_ok(rps_npu_bce_with_logits(ops, &bce));
    ck_assert_ok(rps_npu_linear_backward(ops, &back));
    ck_assert_ok(rps_npu_optimizer_step(
            ops, &t->adamw, &t->w, &t->dw, &t->m, &t->v));
    ck_assert_ok(rps_npu_optimizer_step(
            ops, &t->adamw, &t->b, &t->db, &t->mb, &t->vb));
}

START_TEST(a_compiled_step_trains_as_the_plain_calls_do)
{
    static const uint64_t loops[] = {1, 7, 28};
    struct bench bench = open_bench();
    struct training plain, compiled;
    rps_npu_step *step = NULL;

    bench.ops.options.deterministic = true;
    bench.ops.options.fusion = _i != 1; /* with memory of its own, too */
    make_training(&plain, &bench);
    make_training(&compiled, &bench);
    for (size_t s = 0; s < STEPS; s++) {
        train_once(&plain, &bench);
    }
    ck_assert_ok(rps_npu_capture_begin(bench.ops.stream));
    train_once(&compiled, &bench);
    ck_assert_ok(rps_npu_capture_end(bench.ops.stream, &step));
    for (uint64_t done = 0; done < STEPS; done += loops[_i]) {
        ck_assert_ok(rps_npu_launch(bench.ops.stream, step, loops[_i]));
    }
    assert_tensors_same(&bench, "w", &plain.w, &compiled.w);
    assert_tensors_same(&bench, "b", &plain.b, &compiled.b);
    ck_assert(read_double(&bench, &plain.loss) ==
              read_double(&bench, &compiled.loss));
    ck_assert(read_double(&bench, &compiled.step) == (double)STEPS);
    rps_npu_step_destroy(step);
    drop_training(&plain);
    drop_training(&compiled);
    close_bench(&bench);
}
END_TEST

/* A rate that the host writes between launches is the next step's. */
START_TEST(numbers_of_a_step_are_read_when_it_runs)
{
    struct bench bench = open_bench();
    struct training t;
    rps_npu_step *step = NULL;
    float *before = NULL, *after = NULL;

    make_training(&t, &bench);
    ck_assert_ok(rps_npu_capture_begin(bench.ops.stream));
    train_once(&t, &bench);
    ck_assert_ok(rps_npu_capture_end(bench.ops.stream, &step));
    write_double(&bench, &t.rate, 0.0);
    before = read_tensor(&bench, &t.w);
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 3));
    after = read_tensor(&bench, &t.w);
    assert_same_bits("at rate 0", after, before, FEATURES);
    free(after);
    write_double(&bench, &t.rate, 0.1);
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 1));
    after = read_tensor(&bench, &t.w);
    ck_assert(!same(after[0], before[0]));
    free(before);
    free(after);
    rps_npu_step_destroy(step);
    drop_training(&t);
    close_bench(&bench);
}
END_TEST

static Suite *
ops_suite(void)
{
    Suite *suite = suite_create("ops");
    TCase *tcase = tcase_create("ops");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, functions_walk_views);
    tcase_add_test(tcase, scale_and_fill_in_place);
    tcase_add_test(tcase, an_expanded_input_is_repeated);
    tcase_add_test(tcase, casts_round_to_nearest_even_and_come_back);
    tcase_add_test(tcase, tensors_of_other_shapes_and_types_are_named);
    tcase_add_test(tcase, parts_are_joined_and_split_again);
    tcase_add_test(tcase, bags_are_pooled_into_what_dots_read);
    tcase_add_test(tcase, pooling_fused_with_concat_has_the_same_bits);
    tcase_add_test(tcase, bags_and_dots_that_do_not_fit_are_named);
    tcase_add_loop_test(tcase, loss_and_gradient_fused_and_not, 0, 2);
    tcase_add_test(tcase, dropout_asks_no_view_and_is_not_there_at_zero);
    tcase_add_test(tcase, an_overflow_is_seen_and_skips_the_step);
    tcase_add_loop_test(
            tcase, a_compiled_step_trains_as_the_plain_calls_do, 0, 3);
    tcase_add_test(tcase, numbers_of_a_step_are_read_when_it_runs);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    use_own_host();
    return run_suite(ops_suite());
}
