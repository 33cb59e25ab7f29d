/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/loss_scale.h"
#include "tests/unit/suite.h"

#include <recps/types.h>

#include <float.h>
#include <math.h>

static struct rps_loss_scale
parsed(const char *text, uint64_t growth)
{
    struct rps_loss_scale scale;

    ck_assert_int_eq(rps_loss_scale_parse(&scale, text, growth, NULL), RPS_OK);
    return scale;
}

START_TEST(powers_of_two_are_taken_in_both_forms)
{
    ck_assert_int_eq(parsed("1024", 1).exponent, 10);
    ck_assert_int_eq(parsed("2^10", 1).exponent, 10);
    ck_assert_int_eq(parsed("dynamic:2^127", 1).exponent, 127);
    ck_assert_int_eq(parsed("dynamic", 1).exponent, RPS_LOSS_SCALE_START);
    ck_assert(parsed("dynamic:1", 1).dynamic && !parsed("1024", 1).dynamic);
}
END_TEST

START_TEST(one_is_off_unless_it_is_dynamic)
{
    const struct rps_loss_scale fixed = parsed("1", 1);
    const struct rps_loss_scale dynamic = parsed("dynamic:1", 1);

    ck_assert(!rps_loss_scale_is_on(&fixed));
    ck_assert(rps_loss_scale_is_on(&dynamic));
}
END_TEST

START_TEST(an_overflow_halves_and_clean_steps_double)
{
    struct rps_loss_scale scale = parsed("dynamic:8", 3);

    rps_loss_scale_step(&scale, true);
    rps_loss_scale_step(&scale, true);
    rps_loss_scale_step(&scale, false); /* the two do not count on */
    ck_assert_double_eq(rps_loss_scale_factor(&scale), 4.0);
    rps_loss_scale_step(&scale, true);
    rps_loss_scale_step(&scale, true);
    ck_assert_double_eq(rps_loss_scale_factor(&scale), 4.0);
    rps_loss_scale_step(&scale, true);
    ck_assert_double_eq(rps_loss_scale_factor(&scale), 8.0);
    ck_assert_uint_eq(scale.skipped, 1);
    ck_assert_uint_eq(scale.clean, 0);
}
END_TEST

START_TEST(it_stays_between_one_and_the_largest_power)
{
    struct rps_loss_scale low = parsed("dynamic:1", 1);
    struct rps_loss_scale high = parsed("dynamic:2^127", 1);

    rps_loss_scale_step(&low, false);
    rps_loss_scale_step(&high, true);
    ck_assert_int_eq(low.exponent, 0);
    ck_assert_int_eq(high.exponent, RPS_LOSS_SCALE_EXPONENT_MAX);
}
END_TEST

START_TEST(a_fixed_one_stays)
{
    struct rps_loss_scale scale = parsed("1024", 1);

    rps_loss_scale_step(&scale, false);
    rps_loss_scale_step(&scale, true);
    ck_assert_int_eq(scale.exponent, 10);
    ck_assert_uint_eq(scale.skipped, 1);
}
END_TEST

/* A model of one variable and one table, just the buffers. */
static float dense[RPS_DENSE_ROW_FLOATS];
static float pooled[8];
static struct rps_model model;
static struct rps_model_input input;

static void
fill(float value)
{
    model = (struct rps_model){.table_count = 1, .variable_count = 1};
    model.tables[0] = (struct rps_model_table){.dim = 2, .bags = 2};
    model.variables[0].rows = 1;
    model.variables[0].gradients = dense;
    input = (struct rps_model_input){.rows = 2};
    input.pooled_gradients[0] = pooled;
    for (size_t i = 0; i < RPS_DENSE_ROW_FLOATS; i++) {
        dense[i] = value;
    }
    for (size_t i = 0; i < 8; i++) {
        pooled[i] = -value;
    }
}

START_TEST(the_factor_is_taken_out_exactly)
{
    static const int exponents[] = {0, 1, 10, 127};

    for (size_t i = 0; i < sizeof(exponents) / sizeof(exponents[0]); i++) {
        struct rps_loss_scale scale = {.exponent = exponents[i]};
        const float value = 1.7182818f;

        fill(ldexpf(value, exponents[i]));
        ck_assert(rps_loss_scale_remove(&scale, &model, &input));
        ck_assert(dense[0] == value && pooled[7] == -value);
        ck_assert(dense[RPS_DENSE_ROW_FLOATS - 1] == value);
    }
}
END_TEST

START_TEST(one_value_that_is_not_finite_is_found_anywhere)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    const struct rps_loss_scale scale = {.exponent = 4};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fill(FLT_MAX);
        ck_assert(rps_loss_scale_remove(&scale, &model, &input));
        dense[1023] = bad[i];
        ck_assert(!rps_loss_scale_remove(&scale, &model, &input));
        fill(1.0f);
        pooled[7] = bad[i];
        ck_assert(!rps_loss_scale_remove(&scale, &model, &input));
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("loss_scale");
    TCase *tests = tcase_create("loss_scale");

    tcase_add_test(tests, powers_of_two_are_taken_in_both_forms);
    tcase_add_test(tests, one_is_off_unless_it_is_dynamic);
    tcase_add_test(tests, an_overflow_halves_and_clean_steps_double);
    tcase_add_test(tests, it_stays_between_one_and_the_largest_power);
    tcase_add_test(tests, a_fixed_one_stays);
    tcase_add_test(tests, the_factor_is_taken_out_exactly);
    tcase_add_test(tests, one_value_that_is_not_finite_is_found_anywhere);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
