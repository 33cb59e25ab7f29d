/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every set of element by element kernels against the scalar one, bit for bit,
 * and both forms against the C library in double precision.
 */
#include "base/half.h"
#include "client/npu/kernels/elementwise.h"
#include "tests/unit/npu/numbers.h"

#include <float.h>

#define LENGTH 300u
#define GUARD  16u

static const struct rps_npu_elementwise *sets[3];
static size_t set_count;

static float
extreme(uint64_t *state)
{
    static const float values[] = {0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN,
            -FLT_MIN, 1e-45f, -1e-45f, 1e-40f, 88.7f, -87.5f, -103.9f, 1.0f,
            0.625f, 16.0f, -16.0f, INFINITY, -INFINITY, NAN};
    const size_t count = sizeof(values) / sizeof(values[0]);

    return values[(size_t)((noise(state) + 1.0) * 1e6) % count];
}

static void
fill(float *to, size_t n, bool extremes, uint64_t seed)
{
    uint64_t state = seed;

    for (size_t i = 0; i < n; i++) {
        const float plain =
                (float)ldexp(noise(&state), (int)(noise(&state) * 12.0));

        to[i] = extremes && noise(&state) > 0.5 ? extreme(&state) : plain;
    }
}

struct arrays {
    float a[LENGTH + 2 * GUARD], b[LENGTH + 2 * GUARD], c[LENGTH + 2 * GUARD];
    double wide[LENGTH + 2 * GUARD];
    uint16_t narrow[LENGTH + 2 * GUARD];
};

/* All that a set has, on n elements from `at` on. */
static void
run_all(const struct rps_npu_elementwise *set, struct arrays *x, size_t at,
        size_t n)
{
    const struct rps_npu_step_numbers c = {.rate = 0.01,
            .keep = 0.999,
            .decay = 0.1,
            .beta1 = 0.9,
            .beta1_rest = 0.1,
            .beta2 = 0.99,
            .beta2_rest = 0.01,
            .epsilon = 1e-8};
    float *a = x->a + at, *b = x->b + at, *to = x->c + at;

    for (size_t f = 0; f < RPS_NPU_KERNEL_FUNCTIONS; f++) {
        set->apply[f](a, to, n);
        set->add(b, to, b, n);
        set->apply_back[f](a, b, to, n);
        set->add(b, to, b, n);
    }
    set->divide(b, 3.0f, b, n);
    set->scale(b, 1.25f, b, n);
    set->narrow(b, x->narrow + at, n);
    set->widen(x->narrow + at, to, n);
    set->round(to, b, n);
    set->to_f64(a, x->wide + at, n);
    set->add_f64(b, x->wide + at, n);
    set->from_f64(x->wide + at, to, n);
    set->sgd(a, to, n, &c);
    set->apply[RPS_NPU_KERNEL_RELU](b, b, n);
    set->adam(a, to, to, b, n, &c);
}

static void
assert_same_arrays(
        const char *isa, const struct arrays *x, const struct arrays *y)
{
    const size_t n = LENGTH + 2 * GUARD;

    assert_same_bits(isa, x->a, y->a, n);
    assert_same_bits(isa, x->b, y->b, n);
    assert_same_bits(isa, x->c, y->c, n);
}

START_TEST(every_set_has_the_bits_of_the_scalar_one)
{
    static struct arrays start, want, got;

    for (size_t n = 0; n < LENGTH; n += n < 70 ? 1 : 23) {
        const size_t at = GUARD - n % 3;

        fill(start.a, LENGTH + 2 * GUARD, _i == 1, 1 + n);
        fill(start.b, LENGTH + 2 * GUARD, _i == 1, 1000 + n);
        fill(start.c, LENGTH + 2 * GUARD, _i == 1, 2000 + n);
        want = start;
        run_all(sets[0], &want, at, n);
        for (size_t s = 1; s < set_count; s++) {
            got = start;
            run_all(sets[s], &got, at, n);
            assert_same_arrays(sets[s]->isa, &got, &want);
        }
        /* what lies around is untouched */
        assert_same_bits("before", want.c, start.c, at);
        assert_same_bits(
                "behind", want.c + at + n, start.c + at + n, LENGTH - n);
    }
}
END_TEST

START_TEST(an_element_does_not_depend_on_its_place)
{
    float x[LENGTH], all[LENGTH], one;

    fill(x, LENGTH, true, 5);
    for (size_t s = 0; s < set_count; s++) {
        for (size_t f = 0; f < RPS_NPU_KERNEL_FUNCTIONS; f++) {
            sets[s]->apply[f](x, all, LENGTH);
            for (size_t i = 0; i < LENGTH; i++) {
                sets[s]->apply[f](x + i, &one, 1);
                ck_assert(same(one, all[i]));
            }
        }
    }
}
END_TEST

START_TEST(finite_sees_each_place)
{
    float x[LENGTH];

    for (size_t s = 0; s < set_count; s++) {
        fill(x, LENGTH, false, 3);
        x[7] = FLT_MAX;
        ck_assert(sets[s]->finite(x, LENGTH));
        ck_assert(sets[s]->finite(x, 0));
        for (size_t i = 0; i < LENGTH; i++) {
            const float old = x[i];

            x[i] = i % 2 == 0 ? NAN : -INFINITY;
            ck_assert(!sets[s]->finite(x, LENGTH));
            ck_assert(sets[s]->finite(x, i));
            x[i] = old;
        }
    }
}
END_TEST

/* --- against the C library -------------------------------------------------
 */

static double
logistic(double x)
{
    return x >= 0.0 ? 1.0 / (1.0 + exp(-x)) : exp(x) / (1.0 + exp(x));
}

static double
truth(size_t function, double x)
{
    const double inner = sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x);

    switch (function) {
    case RPS_NPU_KERNEL_RELU:
        return x > 0.0 ? x : 0.0;
    case RPS_NPU_KERNEL_GELU: /* (1 + tanh u) / 2, below 0, too */
        return x * logistic(2.0 * inner);
    case RPS_NPU_KERNEL_TANH:
        return tanh(x);
    default:
        return logistic(x);
    }
}

/* Distance in units of the last place of `want` as a float. */
static double
ulps(float got, double want)
{
    const double next = (double)nextafterf((float)fabs(want), INFINITY);
    const double unit = fmax(next - fabs((double)(float)want), 0x1p-149);

    return fabs((double)got - want) / unit;
}

#define POINTS 20001u

static double
worst(rps_npu_apply_fn *apply, size_t function, double reach)
{
    double most = 0.0;

    for (size_t i = 0; i < POINTS; i++) {
        const float x = (float)(reach * ((double)i / 10000.0 - 1.0));
        float y = 0.0f;
        double off = 0.0;

        apply(&x, &y, 1);
        off = ulps(y, truth(function, (double)x));
        most = off > most || isnan(off) ? off : most;
    }
    return most;
}

/* gelu's argument of e^x carries its own rounding: relative to a small result
 * it grows with the argument */
static const double bound[] = {0.0, 30.0, 4.0, 4.0};

START_TEST(functions_are_near_the_truth)
{
    const size_t f = (size_t)_i;

    ck_assert_double_le(worst(sets[0]->apply[f], f, 4.0), bound[f]);
    ck_assert_double_le(worst(sets[0]->apply[f], f, 0.01), bound[f]);
    ck_assert_double_le(
            worst(rps_npu_precise_apply[f], f, 5.0), f == 0 ? 0.0 : 0.501);
}
END_TEST

START_TEST(high_precision_is_nearer)
{
    const size_t f = (size_t)_i;
    const double fast = worst(sets[0]->apply[f], f, 3.0);
    const double exact = worst(rps_npu_precise_apply[f], f, 3.0);

    ck_assert_double_gt(fast, 1.5 * exact);
}
END_TEST

/* Slopes by a difference of the truth. */
static double
slope(size_t function, double x)
{
    const double h = 1e-5;

    return (truth(function, x + h) - truth(function, x - h)) / (2.0 * h);
}

START_TEST(slopes_are_those_of_the_functions)
{
    const size_t f = (size_t)_i;
    rps_npu_apply_back_fn *const both[] = {
            sets[0]->apply_back[f], rps_npu_precise_apply_back[f]};

    for (size_t k = 0; k < 2; k++) {
        for (double at = -6.03; at < 6.0; at += 0.05) {
            const float x = (float)at, dy = 2.0f;
            const float y = (float)truth(f, (double)x);
            float dx = 0.0f;

            both[k](f == RPS_NPU_KERNEL_GELU ? &x : &y, &dy, &dx, 1);
            ck_assert_double_le(
                    fabs((double)dx - 2.0 * slope(f, (double)x)), 1e-6);
        }
    }
}
END_TEST

START_TEST(far_away_nothing_overflows)
{
    const float x[] = {-INFINITY, -FLT_MAX, -1e20f, -200.0f, 200.0f, 1e20f,
            FLT_MAX, INFINITY};
    const float dy[] = {1, 1, 1, 1, 1, 1, 1, 1};
    float y[8], dx[8];

    for (size_t s = 0; s < set_count; s++) {
        for (size_t k = 0; k < 2; k++) {
            rps_npu_apply_fn *const *apply =
                    k == 0 ? sets[s]->apply : rps_npu_precise_apply;
            rps_npu_apply_back_fn *const *back =
                    k == 0 ? sets[s]->apply_back : rps_npu_precise_apply_back;

            apply[RPS_NPU_KERNEL_TANH](x, y, 8);
            ck_assert(same(y[0], -1.0f) && same(y[3], -1.0f));
            ck_assert(same(y[4], 1.0f) && same(y[7], 1.0f));
            apply[RPS_NPU_KERNEL_SIGMOID](x, y, 8);
            ck_assert(y[0] == 0.0f && y[3] == 0.0f);
            ck_assert(same(y[4], 1.0f) && same(y[7], 1.0f));
            apply[RPS_NPU_KERNEL_GELU](x + 1, y, 6);
            ck_assert(y[0] == 0.0f && y[2] == 0.0f);
            ck_assert(same(y[3], 200.0f) && same(y[5], FLT_MAX));
            back[RPS_NPU_KERNEL_GELU](x, dy, dx, 8);
            ck_assert(dx[0] == 0.0f && dx[3] == 0.0f);
            ck_assert(same(dx[4], 1.0f) && same(dx[7], 1.0f));
        }
    }
}
END_TEST

START_TEST(a_nan_stays_one)
{
    const float x[] = {NAN, 1.0f}, one[] = {1.0f, 1.0f};
    float y[2];

    for (size_t f = 0; f < RPS_NPU_KERNEL_FUNCTIONS; f++) {
        sets[set_count - 1]->apply[f](x, y, 2);
        ck_assert(isnan(y[0]) && !isnan(y[1]));
        rps_npu_precise_apply[f](x, y, 2);
        ck_assert(isnan(y[0]) && !isnan(y[1]));
        if (f != RPS_NPU_KERNEL_RELU) { /* its dy is looked at, not its y */
            sets[set_count - 1]->apply_back[f](x, one, y, 2);
            ck_assert(isnan(y[0]) && !isnan(y[1]));
        }
    }
}
END_TEST

START_TEST(bf16_is_rounded_as_rows_are)
{
    float x[LENGTH], back[LENGTH], rounded[LENGTH];
    uint16_t narrow[LENGTH];

    fill(x, LENGTH, true, 9);
    x[0] = rps_float_of_bits(0x3f808000u); /* a tie, down to even */
    x[1] = rps_float_of_bits(0x3f818000u); /* a tie, up to even */
    x[2] = rps_float_of_bits(0x7f800001u); /* a NaN that rounds to infinity */
    for (size_t s = 0; s < set_count; s++) {
        sets[s]->narrow(x, narrow, LENGTH);
        sets[s]->widen(narrow, back, LENGTH);
        sets[s]->round(x, rounded, LENGTH);
        for (size_t i = 0; i < LENGTH; i++) {
            ck_assert_uint_eq(narrow[i], rps_float_to_bf16(x[i]));
            ck_assert(same(back[i], rps_float_of_bf16(narrow[i])));
            ck_assert(same(rounded[i], back[i]));
        }
        ck_assert(isnan(back[2]));
    }
}
END_TEST

static Suite *
elementwise_suite(void)
{
    Suite *suite = suite_create("elementwise");
    TCase *tcase = tcase_create("elementwise");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, every_set_has_the_bits_of_the_scalar_one, 0, 2);
    tcase_add_test(tcase, an_element_does_not_depend_on_its_place);
    tcase_add_test(tcase, finite_sees_each_place);
    tcase_add_loop_test(tcase, functions_are_near_the_truth, 0, 4);
    tcase_add_loop_test(tcase, high_precision_is_nearer, 1, 4);
    tcase_add_loop_test(tcase, slopes_are_those_of_the_functions, 0, 4);
    tcase_add_test(tcase, far_away_nothing_overflows);
    tcase_add_test(tcase, a_nan_stays_one);
    tcase_add_test(tcase, bf16_is_rounded_as_rows_are);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    set_count = rps_npu_elementwise_sets(sets);
    return run_suite(elementwise_suite());
}
