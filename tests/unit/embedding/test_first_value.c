/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expected values: the formulas of docs/TABLE.md in Python integers and
 * floats, rounded to float32 by struct.pack.
 */
#include "embedding/first_value.h"
#include "tests/unit/embedding/fixture.h"

static float
column_of(uint64_t seed, uint64_t key, size_t column, float low, float high)
{
    rps_table_spec spec = spec_of(RPS_DIM_MAX, RPS_OPTIMIZER_SGD);
    struct rps_first_value first;
    float row[RPS_DIM_MAX];

    spec.seed = seed;
    spec.initializer_low = low;
    spec.initializer_high = high;
    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, key, row, RPS_DIM_MAX);
    return row[column];
}

START_TEST(uniform_values_are_those_of_the_formula)
{
    ck_assert_float_eq(
            column_of(0, 0, 0, -0.05f, 0.05f), -0x1.9948200000000p-5f);
    ck_assert_float_eq(
            column_of(0, 0, 1, -0.05f, 0.05f), -0x1.f47bda0000000p-7f);
    ck_assert_float_eq(
            column_of(0, UINT64_MAX, 0, -0.05f, 0.05f), 0x1.7b35c00000000p-5f);
    ck_assert_float_eq(
            column_of(UINT64_MAX, (uint64_t)1 << 63, 8191, -0.05f, 0.05f),
            0x1.0ae2440000000p-5f);
    ck_assert_float_eq(
            column_of(7, 12345, 3, 1.0f, 2.0f), 0x1.58fbb80000000p+0f);
    ck_assert_float_eq(
            column_of(7, 12345, 4, -100.0f, 3.0f), -0x1.abe9a40000000p+3f);
}
END_TEST

static float
only_column(const rps_table_spec *spec, uint64_t key)
{
    struct rps_table *table = table_of(spec);
    float value = 0.0f;

    rps_table_first_value(table, key, &value);
    rps_table_destroy(table);
    return value;
}

START_TEST(zeros_and_constant_fill_every_column)
{
    rps_table_spec spec = spec_of(3, RPS_OPTIMIZER_SGD);
    struct rps_table *table = NULL;
    float row[3];

    spec.initializer = RPS_INITIALIZER_ZEROS;
    table = table_of(&spec);
    read_row(table, 9, row);
    ck_assert(row[0] == 0.0f && row[1] == 0.0f && row[2] == 0.0f);
    rps_table_destroy(table);
    spec.initializer = RPS_INITIALIZER_CONSTANT;
    spec.initializer_low = 0.25f;
    table = table_of(&spec);
    read_row(table, 9, row);
    ck_assert(row[0] == 0.25f && row[1] == 0.25f && row[2] == 0.25f);
    rps_table_destroy(table);
}
END_TEST

START_TEST(seed_name_and_key_each_change_the_value)
{
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_SGD);
    const float value = only_column(&spec, 1);

    ck_assert_float_ne(only_column(&spec, 2), value);
    spec.seed = 1;
    ck_assert_float_ne(only_column(&spec, 1), value);
    spec.seed = (uint64_t)1 << 63;
    ck_assert_float_ne(only_column(&spec, 1), value);
    spec.seed = 0;
    spec.name[0] = 'E';
    ck_assert_float_ne(only_column(&spec, 1), value);
}
END_TEST

START_TEST(optimizer_dimension_and_job_seed_do_not_change_the_value)
{
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_SGD);
    const float value = only_column(&spec, 1);
    struct rps_table *table = NULL;
    float row[32];

    spec = spec_of(32, RPS_OPTIMIZER_ADAM);
    ck_assert_int_eq(rps_table_create(&table, &spec, 12345, NULL), RPS_OK);
    rps_table_first_value(table, 1, row);
    ck_assert_float_eq(row[0], value);
    rps_table_destroy(table);
}
END_TEST

/* 2^24 draws of [1, 2): values there are 2^-23 apart, so that half of the
 * draws are ties, and 2 - 2^-24 would round to 2. */
START_TEST(no_value_reaches_the_end_of_the_range)
{
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_SGD);
    struct rps_first_value first;
    float below = 0.0f;
    float row[4096];

    spec.initializer_low = 1.0f;
    spec.initializer_high = nextafterf(1.0f, 2.0f);
    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, 3, row, 4096);
    for (size_t j = 0; j < 4096; j++) {
        ck_assert_float_eq(row[j], 1.0f);
    }
    spec.initializer_low = 1.0f;
    spec.initializer_high = 1.0f + 0x1.0p-21f;
    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, 3, row, 4096);
    for (size_t j = 0; j < 4096; j++) {
        ck_assert_float_lt(row[j], spec.initializer_high);
        ck_assert_float_ge(row[j], 1.0f);
        below += row[j] == nextafterf(spec.initializer_high, 0.0f);
    }
    ck_assert_float_gt(below, 0.0f);
    spec.initializer_high = spec.initializer_low = -3.0f;
    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, 3, row, 1);
    ck_assert_float_eq(row[0], -3.0f);
}
END_TEST

/* Means and variances of 2 x 10^5 draws within five standard errors; chi
 * squared over 100 bins (99 degrees: mean 99, sd 14) below mean + 5 sd. */
START_TEST(values_are_spread_evenly_over_keys_and_columns)
{
    enum {
        KEYS = 2000,
        COLUMNS = 100,
        BINS = 100
    };
    rps_table_spec spec = spec_of(COLUMNS, RPS_OPTIMIZER_SGD);
    struct rps_first_value first;
    const double n = (double)KEYS * COLUMNS;
    double bins[BINS] = {0.0};
    double sum = 0.0;
    double squares = 0.0;
    double chi = 0.0;

    spec.initializer_low = 0.0f;
    spec.initializer_high = 1.0f;
    rps_first_value_init(&first, &spec);
    for (uint64_t key = 0; key < KEYS; key++) {
        float row[COLUMNS];
        rps_first_value_fill(&first, key, row, COLUMNS);
        for (size_t j = 0; j < COLUMNS; j++) {
            const double x = (double)row[j] - 0.5;
            sum += x;
            squares += x * x;
            bins[(size_t)(row[j] * BINS)]++;
        }
    }
    for (size_t b = 0; b < BINS; b++) {
        const double expected = n / BINS;
        chi += (bins[b] - expected) * (bins[b] - expected) / expected;
    }
    ck_assert_double_lt(fabs(sum / n), 5.0 * sqrt(1.0 / 12.0 / n));
    ck_assert_double_lt(
            fabs(squares / n - 1.0 / 12.0), 5.0 * sqrt(1.0 / 180.0 / n));
    ck_assert_double_lt(chi, 99.0 + 5.0 * 14.1);
}
END_TEST

START_TEST(a_row_begins_with_the_value_that_its_key_answered)
{
    struct rps_table *table = table_new(8, RPS_OPTIMIZER_SGD);
    const uint64_t key = 42;
    const float zeros[8] = {0.0f};
    float before[8];
    float after[8];

    read_row(table, key, before);
    push(table, 1, 1, &key, zeros);
    ck_assert_uint_eq(rows_of(table), 1);
    read_row(table, key, after);
    ck_assert_mem_eq(before, after, sizeof(before));
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("first_value");
    TCase *values = tcase_create("values");

    tcase_add_test(values, uniform_values_are_those_of_the_formula);
    tcase_add_test(values, zeros_and_constant_fill_every_column);
    tcase_add_test(values, seed_name_and_key_each_change_the_value);
    tcase_add_test(
            values, optimizer_dimension_and_job_seed_do_not_change_the_value);
    tcase_add_test(values, no_value_reaches_the_end_of_the_range);
    tcase_add_test(values, values_are_spread_evenly_over_keys_and_columns);
    tcase_add_test(values, a_row_begins_with_the_value_that_its_key_answered);
    suite_add_tcase(suite, values);
    return run_suite(suite);
}
