/* SPDX-License-Identifier: Apache-2.0 */
/* Against libm and the normal distribution's erfc; bits as Python has them. */
#include "base/draw.h"
#include "base/real.h"
#include "tests/unit/suite.h"

#include <math.h>

static uint64_t seed = 1;

static double
uniform(void)
{
    seed = rps_mix64(seed);
    return (double)(seed >> 11) * 0x1.0p-53;
}

START_TEST(logarithm_is_right_to_its_last_bits)
{
    for (size_t i = 0; i < 20000; i++) {
        const double x = ldexp(uniform() + 0x1.0p-60, (int)(i % 280) - 150);
        const double wanted = log(x);
        ck_assert_double_eq_tol(
                rps_ln(x), wanted, 4e-16 * fmax(1.0, fabs(wanted)));
    }
    ck_assert_double_eq(rps_ln(1.0), 0.0);
}
END_TEST

START_TEST(power_is_right_for_all_floats)
{
    for (size_t i = 0; i < 20000; i++) {
        const double x = ldexp(uniform() + 0x1.0p-60, (int)(i % 276) - 148);
        const double y = uniform();
        const double wanted = pow(x, y);
        ck_assert_double_eq_tol(rps_power(x, y), wanted, 1e-13 * wanted);
    }
    ck_assert_double_eq(rps_power(0.0, 0.3), 0.0);
    ck_assert_double_eq(rps_power(7.0, 0.0), 1.0);
    ck_assert(isinf(rps_power(INFINITY, 0.3)));
    ck_assert(isnan(rps_power(NAN, 0.3)));
}
END_TEST

START_TEST(whole_power_is_pow)
{
    ck_assert_double_eq(rps_power_whole(0.5, 10), 0x1.0p-10);
    ck_assert_double_eq(rps_power_whole(0.0, 0), 1.0);
    ck_assert_double_eq(rps_power_whole(0.999, UINT64_MAX), 0.0);
    ck_assert_double_eq_tol(
            rps_power_whole(0.999, 12345), pow(0.999, 12345), 1e-18);
}
END_TEST

/* P(z) by erfc, whose error is far below: P(Q(p)) is p again. */
START_TEST(quantile_is_the_inverse_of_the_normal_distribution)
{
    for (size_t i = 0; i < 20000; i++) {
        const double p =
                i % 2 == 0 ? uniform() : ldexp(uniform(), -(int)(i % 50));
        double z = 0.0;
        if (p == 0.0) {
            continue;
        }
        z = rps_normal_quantile(p);
        ck_assert_double_eq_tol(
                0.5 * erfc(-z / sqrt(2.0)), p, 1e-13 * p + 1e-18);
    }
    ck_assert_double_eq(rps_normal_quantile(0.5), 0.0);
}
END_TEST

/* The formulas once more, in Python. */
START_TEST(normal_draws_have_pinned_bits)
{
    ck_assert_double_eq(rps_normal_value(0), -0x1.06b48528cea51p+3);
    ck_assert_double_eq(rps_normal_value(0x1000), -0x1.02734508d1f1cp+3);
    ck_assert_double_eq(rps_normal_value(UINT64_MAX), 0x1.06b48528cea51p+3);
    ck_assert_double_eq(
            rps_normal_value(UINT64_C(1) << 63), 0x1.40d931ff62707p-52);
    ck_assert_double_eq(
            rps_normal_value(UINT64_C(123456789) << 20), -0x1.15f8bbb6eea55p+2);
    ck_assert_double_eq(rps_truncated_normal_value(0), -0x1.ffffffffffff7p+0);
    ck_assert_double_eq(
            rps_truncated_normal_value(UINT64_MAX), 0x1.ffffffffffff7p+0);
    ck_assert_double_eq(rps_truncated_normal_value(UINT64_C(123456789) << 20),
            -0x1.fff7deca3e8f4p+0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("real");
    TCase *tc = tcase_create("real");

    tcase_add_test(tc, logarithm_is_right_to_its_last_bits);
    tcase_add_test(tc, power_is_right_for_all_floats);
    tcase_add_test(tc, whole_power_is_pow);
    tcase_add_test(tc, quantile_is_the_inverse_of_the_normal_distribution);
    tcase_add_test(tc, normal_draws_have_pinned_bits);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
