/* SPDX-License-Identifier: Apache-2.0 */
/*
 * First values that are normal, whole or truncated. Pinned numbers: the
 * formulas of docs/TABLE.md in Python integers and floats. The distribution
 * is held to the normal one by libm's erfc.
 */
#include "embedding/first_value.h"
#include "tests/unit/embedding/fixture.h"

#include <stdlib.h>

static rps_table_spec
normal_spec(enum rps_initializer kind, float mean, float deviation)
{
    rps_table_spec spec = spec_of(RPS_DIM_MAX, RPS_OPTIMIZER_SGD);

    spec.initializer = kind;
    spec.initializer_low = mean;
    spec.initializer_high = deviation;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    return spec;
}

static const struct {
    enum rps_initializer kind;
    uint64_t seed;
    uint64_t key;
    size_t column;
    float mean;
    float deviation;
    float value;
} pinned[] = {
        {RPS_INITIALIZER_NORMAL, 0, 0, 0, 0.0f, 1.0f, -0x1.ae2fa2p+1f},
        {RPS_INITIALIZER_NORMAL, 0, 0, 1, -0.01f, 0.01f, -0x1.c85d82p-7f},
        {RPS_INITIALIZER_TRUNCATED_NORMAL, 0, 0, 0, 0.0f, 0.05f,
                -0x1.9833eap-4f},
        {RPS_INITIALIZER_NORMAL, 0, UINT64_MAX, 0, 0.0f, 1.0f, 0x1.c910d8p+0f},
        {RPS_INITIALIZER_TRUNCATED_NORMAL, 0, UINT64_MAX, 0, 0.0f, 0.05f,
                0x1.419ef2p-4f},
        {RPS_INITIALIZER_NORMAL, UINT64_MAX, UINT64_C(1) << 63, 8191, -0.01f,
                0.01f, -0x1.46ee86p-11f},
        {RPS_INITIALIZER_TRUNCATED_NORMAL, UINT64_MAX, UINT64_C(1) << 63, 8191,
                0.0f, 0.05f, 0x1.690aa6p-5f},
        {RPS_INITIALIZER_NORMAL, 7, 12345, 3, 0.0f, 1.0f, -0x1.913c9cp-2f},
        {RPS_INITIALIZER_NORMAL, 7, 12345, 4, -0.01f, 0.01f, -0x1.9e1ff0p-17f},
        {RPS_INITIALIZER_TRUNCATED_NORMAL, 7, 12345, 4, 0.0f, 0.05f,
                0x1.7fa5e0p-5f},
};

START_TEST(normal_values_are_those_of_the_formula)
{
    rps_table_spec spec =
            normal_spec(pinned[_i].kind, pinned[_i].mean, pinned[_i].deviation);
    struct rps_first_value first;
    float row[RPS_DIM_MAX];

    spec.seed = pinned[_i].seed;
    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, pinned[_i].key, row, RPS_DIM_MAX);
    ck_assert_float_eq(row[pinned[_i].column], pinned[_i].value);
}
END_TEST

#define KEYS    1000u
#define COLUMNS 200u
#define N       (KEYS * COLUMNS)

static float values[N]; /* in units of deviations from the mean */

static void
draw_values(enum rps_initializer kind)
{
    const rps_table_spec spec = normal_spec(kind, 0.0f, 1.0f);
    struct rps_first_value first;

    rps_first_value_init(&first, &spec);
    for (uint64_t key = 0; key < KEYS; key++) {
        rps_first_value_fill(&first, key, values + key * COLUMNS, COLUMNS);
    }
}

static double
normal_below(double z)
{
    return 0.5 * erfc(-z / sqrt(2.0));
}

static double
truncated_below(double z)
{
    return (normal_below(z) - normal_below(-2.0)) /
           (normal_below(2.0) - normal_below(-2.0));
}

static int
by_value(const void *a, const void *b)
{
    const float x = *(const float *)a;
    const float y = *(const float *)b;

    return (x > y) - (x < y);
}

/* Kolmogorov and Smirnov: sqrt(n) times the largest distance exceeds 2.3 for
 * one sample in 20000 of the right distribution. */
static void
assert_distribution(double (*below)(double), double deviation)
{
    double sum = 0.0;
    double squares = 0.0;
    double distance = 0.0;

    qsort(values, N, sizeof(*values), by_value);
    for (size_t i = 0; i < N; i++) {
        const double p = below((double)values[i]);
        distance = fmax(distance, fabs(p - (double)i / N));
        distance = fmax(distance, fabs(p - (double)(i + 1) / N));
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    ck_assert_double_lt(distance * sqrt(N), 2.3);
    ck_assert_double_lt(fabs(sum / N), 5.0 * deviation / sqrt(N));
    ck_assert_double_lt(fabs(sqrt(squares / N) - deviation),
            5.0 * deviation / sqrt(2.0 * N));
}

/* 0.27 % lie beyond three deviations: 540 of 200000, 23 the deviation. */
START_TEST(normal_values_are_normal_to_their_tails)
{
    size_t beyond = 0;

    draw_values(RPS_INITIALIZER_NORMAL);
    for (size_t i = 0; i < N; i++) {
        beyond += fabsf(values[i]) > 3.0f;
    }
    ck_assert_uint_gt(beyond, 540 - 5 * 24);
    ck_assert_uint_lt(beyond, 540 + 5 * 24);
    assert_distribution(normal_below, 1.0);
}
END_TEST

START_TEST(truncated_values_lie_within_two_deviations)
{
    float most = 0.0f;

    draw_values(RPS_INITIALIZER_TRUNCATED_NORMAL);
    for (size_t i = 0; i < N; i++) {
        most = fmaxf(most, fabsf(values[i]));
    }
    ck_assert_float_le(most, 2.0f);
    ck_assert_float_gt(most, 1.999f);
    assert_distribution(truncated_below, 0.87962566103423978);
}
END_TEST

START_TEST(mean_and_deviation_shift_and_stretch)
{
    const rps_table_spec spec =
            normal_spec(RPS_INITIALIZER_TRUNCATED_NORMAL, -0.01f, 0.01f);
    struct rps_first_value first;
    float row[64];

    draw_values(RPS_INITIALIZER_TRUNCATED_NORMAL);
    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, 5, row, 64);
    for (size_t j = 0; j < 64; j++) {
        const double z = (double)values[5 * COLUMNS + j];
        ck_assert_double_eq_tol((double)row[j], -0.01 + 0.01 * z, 3e-9);
    }
}
END_TEST

/* A column is the same however many come with it. */
START_TEST(columns_do_not_depend_on_the_dimension)
{
    const rps_table_spec spec =
            normal_spec((enum rps_initializer)_i, -0.25f, 0.5f);
    struct rps_first_value first;
    float whole[300];
    float part[300];

    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, 77, whole, 300);
    for (size_t n = 0; n <= 300; n++) {
        memset(part, 0x5a, sizeof(part));
        rps_first_value_fill(&first, 77, part, n);
        ck_assert_mem_eq(part, whole, n * sizeof(float));
        ck_assert(n == 300 || ((const unsigned char *)&part[n])[0] == 0x5a);
    }
}
END_TEST

START_TEST(no_deviation_is_the_mean)
{
    const rps_table_spec spec =
            normal_spec(RPS_INITIALIZER_NORMAL, 0.75f, 0.0f);
    struct rps_first_value first;
    float row[16];

    rps_first_value_init(&first, &spec);
    rps_first_value_fill(&first, 1, row, 16);
    for (size_t j = 0; j < 16; j++) {
        ck_assert_float_eq(row[j], 0.75f);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("normal_values");
    TCase *normals = tcase_create("values");

    tcase_add_loop_test(normals, normal_values_are_those_of_the_formula, 0,
            (int)(sizeof(pinned) / sizeof(pinned[0])));
    tcase_add_test(normals, normal_values_are_normal_to_their_tails);
    tcase_add_test(normals, truncated_values_lie_within_two_deviations);
    tcase_add_test(normals, mean_and_deviation_shift_and_stretch);
    tcase_add_loop_test(normals, columns_do_not_depend_on_the_dimension,
            RPS_INITIALIZER_ZEROS, RPS_INITIALIZER_VARIANCE_SCALING);
    tcase_add_test(normals, no_deviation_is_the_mean);
    suite_add_tcase(suite, normals);
    return run_suite(suite);
}
