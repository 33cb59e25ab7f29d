/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of rows: conversions against arithmetic in double, gathers against
 * one copy an element; each set against the scalar one.
 */
#include "tests/kernel/kernels.h"

#include <recps/types.h>

struct half_type {
    enum rps_value value;
    int mantissa; /* bits after the point */
    int least;    /* exponent of the least normal number */
    double limit; /* what is as large rounds to an infinity */
};

static const struct half_type half_types[] = {
        {RPS_VALUE_F16, 10, -14, 65520.0},
        {RPS_VALUE_BF16, 7, -126, 0x1.ffp+127},
};

/* The nearest number of the type, as a double; infinite beyond its limit. */
static double
nearest(const struct half_type *type, double x)
{
    int exponent = 0;
    double step = 0.0;

    if (fabs(x) >= type->limit) {
        return copysign(INFINITY, x);
    }
    (void)frexp(x, &exponent); /* |x| in [1/2, 1) 2^exponent */
    exponent = exponent - 1 > type->least ? exponent - 1 : type->least;
    step = ldexp(1.0, exponent - type->mantissa);
    return nearbyint(x / step) * step; /* ties to even by default */
}

/* All 65536 halves, to a float and back; a NaN stays one. */
START_TEST(every_half_survives_the_way_to_a_float_and_back)
{
    const enum rps_value value = half_types[_i].value;
    static uint16_t halves[65536];
    static uint16_t back[65536];
    static float floats[65536];
    static float expected[65536];
    size_t wrong = 0;

    for (size_t h = 0; h < 65536; h++) {
        halves[h] = (uint16_t)h;
    }
    scalar.widen[value](expected, halves, 65536);
    fast.widen[value](floats, halves, 65536);
    fast.narrow[value](back, floats, 65536);
    for (size_t h = 0; h < 65536; h++) {
        wrong += !same(floats[h], expected[h]);
        wrong += isnan(floats[h]) ? isfinite(floats[h]) : back[h] != halves[h];
        wrong += !isnan(floats[h]) &&
                 (signbit(floats[h]) != 0) != (h >= 0x8000u);
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

/* sign, exponent, fraction by the definition of the formats. */
START_TEST(a_half_is_the_number_that_its_bits_say)
{
    const struct half_type *type = &half_types[_i];
    const int bias = 1 - type->least;
    size_t wrong = 0;

    for (uint32_t h = 0; h < 0x8000u; h++) {
        const int exponent = (int)(h >> type->mantissa);
        const int fraction = (int)(h & ((1u << type->mantissa) - 1u));
        const uint16_t half = (uint16_t)h;
        double number = ldexp(fraction, type->least - type->mantissa);
        float x = 0.0f;
        fast.widen[type->value](&x, &half, 1);
        if (exponent > 0) {
            number = ldexp((1 << type->mantissa) + fraction,
                    exponent - bias - type->mantissa);
        }
        if (exponent < 2 * bias + 1) {
            wrong += (double)x != number;
        } else {
            wrong += fraction == 0 ? !isinf(x) : !isnan(x);
        }
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

static float
any_float(void)
{
    const uint32_t bits = random_bits() << 16 ^ random_bits();
    float x = 0.0f;

    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Near halves' ties, their subnormals and limits, and anything at all. */
static float
rounding_case(const struct half_type *type, size_t i)
{
    const float sign = random_bits() % 2 == 0 ? 1.0f : -1.0f;
    const int exponent =
            type->least - type->mantissa - 3 + (int)(random_bits() % 60);
    const float unit = (float)(random_bits() % 4096) / 2048.0f;

    switch (i % 4) {
    case 0:
        return any_float();
    case 1:
        return sign * ldexpf(unit, exponent);
    case 2:
        return sign * nextafterf(ldexpf(unit, exponent),
                              random_bits() % 2 == 0 ? INFINITY : 0.0f);
    default:
        return sign * nextafterf((float)type->limit,
                              random_bits() % 2 == 0 ? INFINITY : 0.0f);
    }
}

START_TEST(narrow_rounds_to_the_nearest_half_and_ties_to_even)
{
    const struct half_type *type = &half_types[_i];

    for (size_t i = 0; i < 200000; i++) {
        const float x = rounding_case(type, i);
        uint16_t half = 0;
        uint16_t by_scalar = 0;
        float back = 0.0f;
        const bool finite = fast.narrow[type->value](&half, &x, 1);
        scalar.narrow[type->value](&by_scalar, &x, 1);
        fast.widen[type->value](&back, &half, 1);
        if (half != by_scalar && !isnan(x)) {
            ck_abort_msg("%a: %x, scalar %x", x, half, by_scalar);
        }
        if (isnan(x) ? !isnan(back) || finite
                     : (double)back != nearest(type, (double)x) ||
                                finite != (bool)isfinite(back)) {
            ck_abort_msg("%a became %a", x, back);
        }
    }
}
END_TEST

START_TEST(narrow_and_widen_keep_to_their_arrays)
{
    const enum rps_value value = (enum rps_value)_i;
    const size_t bytes = value == RPS_VALUE_F32 ? 4 : 2;

    for (size_t n = 0; n <= LENGTH_MAX; n++) {
        struct arrays in;
        uint16_t expected[2 * FLOATS];
        uint16_t given[2 * FLOATS];
        float wide[2][FLOATS];
        fill(&in, false);
        memset(expected, 0x11, sizeof(expected));
        memset(given, 0x11, sizeof(given));
        memset(wide, 0x22, sizeof(wide));
        (void)scalar.narrow[value](expected + n % 5 * 2, in.a[0] + n % 3, n);
        (void)fast.narrow[value](given + n % 5 * 2, in.a[0] + n % 3, n);
        ck_assert_mem_eq(expected, given, sizeof(given));
        scalar.widen[value](wide[0] + n % 7, given + n % 5 * 2, n);
        fast.widen[value](wide[1] + n % 7, given + n % 5 * 2, n);
        ck_assert_mem_eq(wide[0], wide[1], sizeof(wide[0]));
        ck_assert_uint_eq(given[n % 5 * 2 + n * bytes / 2], 0x1111);
    }
}
END_TEST

/* Any bad element, nowhere else, makes narrow say so. */
START_TEST(narrow_says_what_is_not_finite_wherever_it_is)
{
    const enum rps_value value = (enum rps_value)_i;
    size_t missed = 0;

    for (size_t n = 1; n <= 100; n++) {
        float x[128];
        uint16_t out[256];
        for (size_t j = 0; j < 128; j++) {
            x[j] = j < n ? 1.0f : NAN;
        }
        missed += !fast.narrow[value](out, x, n);
        for (size_t j = 0; j < n; j++) {
            x[j] = j % 2 == 0 ? INFINITY : -INFINITY;
            missed += fast.narrow[value](out, x, n);
            x[j] = 1.0f;
        }
    }
    ck_assert_uint_eq(missed, 0);
}
END_TEST

/*
 * Every draw in turn, in 2^16 even steps: the mean of what comes out is x to
 * what so many steps can tell, and nothing but the two neighbours comes out.
 */
START_TEST(stochastic_rounding_is_right_in_the_mean)
{
    const struct half_type *type = &half_types[_i];
    static float x[65536];
    static uint32_t draws[65536];
    static uint16_t halves[65536];
    static float back[65536];

    for (size_t round = 0; round < 100; round++) {
        const float at = fmodf(rounding_case(type, 1), 1000.0f);
        double step = 0.0;
        double sum = 0.0;
        size_t far = 0;
        int exponent = 0;
        (void)frexp((double)at, &exponent);
        exponent = exponent - 1 > type->least ? exponent - 1 : type->least;
        step = ldexp(1.0, exponent - type->mantissa);
        for (uint32_t i = 0; i < 65536; i++) {
            x[i] = at;
            draws[i] = i << 16 | (i * 40503u & 0xffffu);
        }
        ck_assert(fast.narrow_drawn[type->value](halves, x, draws, 65536));
        fast.widen[type->value](back, halves, 65536);
        for (size_t i = 0; i < 65536; i++) {
            far += fabs((double)back[i] - (double)at) >= step;
            sum += (double)back[i] / step;
        }
        ck_assert_uint_eq(far, 0);
        ck_assert_double_eq_tol(
                sum / 65536.0, (double)at / step, 2.0 / 65536.0);
    }
}
END_TEST

START_TEST(stochastic_rounding_leaves_what_a_half_holds)
{
    const enum rps_value value = half_types[_i].value;
    size_t wrong = 0;

    for (uint32_t h = 0; h < 65536; h++) {
        const uint16_t half = (uint16_t)h;
        const uint32_t draw = h % 2 == 0 ? UINT32_MAX : random_bits() << 8;
        uint16_t back = 0;
        float x = 0.0f;
        bool finite = false;
        scalar.widen[value](&x, &half, 1);
        finite = fast.narrow_drawn[value](&back, &x, &draw, 1);
        wrong += finite != (bool)isfinite(x);
        wrong += !isnan(x) && back != half;
    }
    ck_assert_uint_eq(wrong, 0);
}
END_TEST

#define SOURCES 9u

/* A gather of some rows to places of their own. */
static void
gather_once(enum rps_value value, size_t dim, size_t stride)
{
    const size_t bytes = value == RPS_VALUE_F32 ? 4 : 2;
    static float expected[SOURCES * FLOATS];
    static float given[SOURCES * FLOATS];
    static float from[SOURCES][FLOATS];
    const void *sources[SOURCES];
    uint16_t positions[SOURCES];

    memset(expected, 0x33, sizeof(expected));
    memset(given, 0x33, sizeof(given));
    for (size_t i = 0; i < SOURCES; i++) {
        char *row = (char *)from[i] + i % 3 * bytes;
        for (size_t j = 0; j < FLOATS; j++) {
            from[i][j] = ordinary();
        }
        positions[i] = (uint16_t)((i * 5 + 2) % SOURCES);
        sources[i] = row;
        for (size_t j = 0; j < dim; j++) {
            scalar.widen[value](
                    expected + positions[i] * stride + j, row + j * bytes, 1);
        }
    }
    fast.gather[value](
            given, stride * sizeof(float), positions, sources, SOURCES, dim);
    ck_assert_mem_eq(expected, given, sizeof(given));
}

START_TEST(gather_copies_rows_to_their_places)
{
    for (size_t dim = 0; dim <= LENGTH_MAX; dim++) {
        gather_once((enum rps_value)_i, dim, dim + dim % 3);
    }
}
END_TEST

static Suite *
row_suite(void)
{
    Suite *suite = suite_create("rows");
    TCase *rows = tcase_create("rows");

    tcase_set_timeout(rows, 60);
    tcase_add_loop_test(
            rows, every_half_survives_the_way_to_a_float_and_back, 0, 2);
    tcase_add_loop_test(rows, a_half_is_the_number_that_its_bits_say, 0, 2);
    tcase_add_loop_test(
            rows, narrow_rounds_to_the_nearest_half_and_ties_to_even, 0, 2);
    tcase_add_loop_test(rows, narrow_and_widen_keep_to_their_arrays, 0, 3);
    tcase_add_loop_test(
            rows, narrow_says_what_is_not_finite_wherever_it_is, 0, 3);
    tcase_add_loop_test(rows, stochastic_rounding_is_right_in_the_mean, 0, 2);
    tcase_add_loop_test(
            rows, stochastic_rounding_leaves_what_a_half_holds, 0, 2);
    tcase_add_loop_test(rows, gather_copies_rows_to_their_places, 0, 3);
    suite_add_tcase(suite, rows);
    return suite;
}

int
main(void)
{
    const int skip = kernels_choose();

    return skip != 0 ? skip : run_suite(row_suite());
}
