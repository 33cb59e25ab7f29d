/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds each optimizer's kernel of the set that RPS_ISA names to the scalar
 * one: results, what is taken back, and what lies around the arrays.
 */
#include "tests/kernel/kernels.h"

/* w, slots and what was there before, each with room around. */
struct step_arrays {
    float w[FLOATS];
    float slots[2 * FLOATS];
    float before[3 * FLOATS];
    float g[FLOATS];
};

static const struct rps_step_numbers numbers = {
        .rate = 0.02f,
        .keep = 0.999f,
        .momentum = 0.9f,
        .beta1 = 0.9f,
        .beta1_rest = 0.1f,
        .beta2 = 0.999f,
        .beta2_rest = 0.001f,
        .epsilon = 1e-8f,
        .tail = 0.01f,
        .tail_keep = 0.97f,
        .l1 = 0.125f,
        .l2 = 0.02f,
        .shrinkage = 0.002f,
        .power = 0.3f,
};

static struct rps_stepper
stepper_of(const struct rps_kernels *k, size_t which)
{
    const struct rps_stepper all[] = {k->sgd, k->momentum, k->nesterov,
            k->adagrad, k->rowwise_adagrad, k->adam, k->adam_catchup, k->ftrl,
            k->ftrl_power, k->rmsprop};

    return all[which];
}

static rps_step_fn *
kernel_of(const struct rps_kernels *k, size_t which)
{
    return stepper_of(k, which).row;
}

#define KERNELS 10

/* Extremes in some runs only, or no step would ever be taken. */
static void
fill_step(struct step_arrays *in, bool extremes)
{
    float *const arrays[] = {in->w, in->slots, in->slots + FLOATS, in->g};

    memset(in, 0x5a, sizeof(*in));
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < FLOATS; j++) {
            arrays[i][j] = extremes && random_bits() % 16 == 0 ? extreme()
                                                               : ordinary();
        }
    }
    for (size_t j = 0; j < 2 * FLOATS; j++) {
        in->slots[j] = fabsf(in->slots[j]);
    }
}

static bool
run(rps_step_fn *kernel, struct step_arrays *in, size_t at, size_t n,
        size_t dim)
{
    struct rps_step_numbers c = numbers;

    c.dim = dim;
    return kernel(in->w + at, in->slots + at + 1, in->g + at + 2, n, &c,
            in->before + at + 3);
}

static bool
same_floats(const float *a, const float *b, size_t n)
{
    size_t j = 0;

    while (j < n && same(a[j], b[j])) {
        j++;
    }
    return j == n;
}

START_TEST(step_equals_scalar_in_every_bit)
{
    size_t taken = 0;
    size_t refused = 0;

    for (size_t n = 0; n <= LENGTH_MAX; n++) {
        for (size_t at = GUARD; at < GUARD + 3; at++) {
            const size_t dim = n + at % 2;
            struct step_arrays old;
            struct step_arrays expected;
            struct step_arrays given;
            bool finite = false;
            fill_step(&old, (n + at) % 3 == 0);
            expected = old;
            given = old;
            finite = run(kernel_of(&scalar, (size_t)_i), &expected, at, n, dim);
            ck_assert_int_eq(
                    run(kernel_of(&fast, (size_t)_i), &given, at, n, dim),
                    finite);
            ck_assert(same_floats(expected.w, given.w, FLOATS));
            ck_assert(same_floats(expected.slots, given.slots, 2 * FLOATS));
            ck_assert(same_floats(expected.before, given.before, 3 * FLOATS));
            ck_assert_mem_eq(given.g, old.g, sizeof(old.g));
            if (!finite) {
                ck_assert_mem_eq(given.w, old.w, sizeof(old.w));
                ck_assert_mem_eq(given.slots, old.slots, sizeof(old.slots));
            }
            taken += finite;
            refused += !finite;
        }
    }
    ck_assert_uint_gt(taken, 300);
    ck_assert_uint_gt(refused, 100);
}
END_TEST

/* One bad element anywhere takes the whole row back. */
START_TEST(result_that_is_not_finite_takes_the_row_back)
{
    rps_step_fn *const kernel = kernel_of(&fast, (size_t)_i);

    for (size_t n = 1; n <= 40; n++) {
        for (size_t bad = 0; bad < n; bad++) {
            struct step_arrays old;
            struct step_arrays given;
            fill_step(&old, false);
            old.g[GUARD + 2 + bad] = bad % 2 == 0 ? INFINITY : NAN;
            given = old;
            ck_assert(!run(kernel, &given, GUARD, n, n));
            ck_assert_mem_eq(given.w, old.w, sizeof(old.w));
            ck_assert_mem_eq(given.slots, old.slots, sizeof(old.slots));
        }
    }
}
END_TEST

#define ROWS 7u

/* Three arrays of a row, side by side as in a table, or as they are. */
struct step_rows {
    float rows[ROWS][3 * FLOATS];
    float g[ROWS][FLOATS];
    float before[3 * FLOATS];
};

/* Row 3 is left out; one row in three has extremes. */
static void
fill_rows(struct step_rows *in, size_t dim)
{
    memset(in, 0x5a, sizeof(*in));
    for (size_t i = 0; i < ROWS; i++) {
        const bool extremes = i % 3 == 1;
        for (size_t j = 0; j < 3 * dim; j++) {
            in->rows[i][1 + j] = extremes && random_bits() % 64 == 0
                                         ? extreme()
                                         : ordinary();
            if (j >= dim) {
                in->rows[i][1 + j] = fabsf(in->rows[i][1 + j]);
            }
        }
        for (size_t j = 0; j < dim; j++) {
            in->g[i][j] = extremes && random_bits() % 64 == 0 ? extreme()
                                                              : ordinary();
        }
    }
}

static uint64_t
run_rows(const struct rps_stepper *stepper, struct step_rows *in, size_t dim)
{
    struct rps_step_numbers c = numbers;
    float *rows[ROWS];
    const float *gradients[ROWS];

    c.dim = dim;
    for (size_t i = 0; i < ROWS; i++) {
        rows[i] = i == 3 ? NULL : in->rows[i] + 1;
        gradients[i] = i == 3 ? NULL : in->g[i];
    }
    return stepper->rows(rows, gradients, ROWS, &c, in->before);
}

/* One after the other, by the scalar kernel of a row. */
static uint64_t
run_rows_scalar(size_t which, struct step_rows *in, size_t dim)
{
    struct rps_step_numbers c = numbers;
    uint64_t refused = 0;

    c.dim = dim;
    for (size_t i = 0; i < ROWS; i++) {
        float *w = in->rows[i] + 1;
        if (i != 3 && !kernel_of(&scalar, which)(
                              w, w + dim, in->g[i], dim, &c, in->before)) {
            refused |= (uint64_t)1 << i;
        }
    }
    return refused;
}

START_TEST(rows_equal_scalar_rows_in_every_bit)
{
    const struct rps_stepper stepper = stepper_of(&fast, (size_t)_i);
    size_t refused = 0;

    for (size_t n = 0; n < 400; n++) {
        /* 16 and 64 are constants of the kernels */
        const size_t dim = n < 100 ? 16 : n < 200 ? 64 : 1 + n % LENGTH_MAX;
        struct step_rows old;
        struct step_rows expected;
        struct step_rows given;
        uint64_t expected_refused = 0;
        fill_rows(&old, dim);
        expected = old;
        given = old;
        expected_refused = run_rows_scalar((size_t)_i, &expected, dim);
        ck_assert_uint_eq(run_rows(&stepper, &given, dim), expected_refused);
        for (size_t i = 0; i < ROWS; i++) {
            ck_assert(same_floats(expected.rows[i], given.rows[i], 3 * FLOATS));
            if ((expected_refused >> i & 1) != 0) {
                ck_assert_mem_eq(
                        given.rows[i], old.rows[i], sizeof(old.rows[i]));
                refused++;
            }
        }
        ck_assert_mem_eq(given.g, old.g, sizeof(old.g));
    }
    ck_assert_uint_gt(refused, 100);
    ck_assert_uint_lt(refused, 400 * 2);
}
END_TEST

/* One bad element anywhere takes its row back, and no other one. */
START_TEST(row_that_is_not_finite_is_the_only_one_taken_back)
{
    const struct rps_stepper stepper = stepper_of(&fast, (size_t)_i);
    static const size_t dims[] = {8, 16, 17, 64};

    for (size_t d = 0; d < sizeof(dims) / sizeof(dims[0]); d++) {
        for (size_t bad = 0; bad < dims[d]; bad++) {
            struct step_rows old;
            struct step_rows given;
            fill_rows(&old, dims[d]);
            for (size_t i = 0; i < ROWS; i++) { /* of rows without extremes */
                memcpy(old.rows[i], old.rows[0], sizeof(old.rows[0]));
                memcpy(old.g[i], old.g[0], sizeof(old.g[0]));
            }
            old.g[5][bad] = bad % 2 == 0 ? INFINITY : NAN;
            given = old;
            ck_assert_uint_eq(run_rows(&stepper, &given, dims[d]), 1u << 5);
            for (size_t i = 0; i < ROWS; i++) {
                ck_assert_int_eq(memcmp(given.rows[i], old.rows[i],
                                         sizeof(old.rows[i])) == 0,
                        i == 3 || i == 5);
            }
        }
    }
}
END_TEST

static Suite *
step_suite(void)
{
    Suite *suite = suite_create("steps");
    TCase *steps = tcase_create("steps");

    tcase_set_timeout(steps, 60);
    tcase_add_loop_test(steps, step_equals_scalar_in_every_bit, 0, KERNELS);
    tcase_add_loop_test(
            steps, result_that_is_not_finite_takes_the_row_back, 0, KERNELS);
    tcase_add_loop_test(steps, rows_equal_scalar_rows_in_every_bit, 0, KERNELS);
    tcase_add_loop_test(steps,
            row_that_is_not_finite_is_the_only_one_taken_back, 0, KERNELS);
    suite_add_tcase(suite, steps);
    return suite;
}

int
main(void)
{
    const int skip = kernels_choose();

    return skip != 0 ? skip : run_suite(step_suite());
}
