/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds the kernels of the set that RPS_ISA names to the scalar ones. Guards
 * around each array catch a kernel that writes outside; lengths 0..300 and
 * odd offsets reach every tail; inputs are ordinary or extreme.
 */
#include "embedding/kernels/kernels.h"
#include "tests/unit/suite.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LENGTH_MAX 300u
#define GUARD      32u
#define FLOATS     (LENGTH_MAX + 2 * GUARD)
#define ARRAYS     4u /* as many as the widest kernel takes */

struct arrays {
    float a[ARRAYS][FLOATS];
};

static struct rps_kernels scalar;
static struct rps_kernels fast;
static uint32_t seed = 1;

static uint32_t
random_bits(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* In [-1, 1), times a power of two from 2^-20 to 2^19. */
static float
ordinary(void)
{
    const float unit = (float)random_bits() / 8388608.0f - 1.0f;

    return ldexpf(unit, (int)(random_bits() % 40) - 20);
}

static float
extreme(void)
{
    static const float values[] = {0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN,
            -FLT_MIN, 1e-45f, -1e-45f, 1e-40f, 1e-30f, -1e30f, 1.8e19f, 1.0f,
            -1.0f, INFINITY, -INFINITY, NAN};

    return values[random_bits() % (sizeof(values) / sizeof(values[0]))];
}

static void
fill(struct arrays *arrays, bool extremes)
{
    for (size_t i = 0; i < ARRAYS; i++) {
        for (size_t j = 0; j < FLOATS; j++) {
            arrays->a[i][j] =
                    extremes && random_bits() % 2 == 0 ? extreme() : ordinary();
        }
    }
}

/* Equal bits, or both NaN: which NaN is not promised. */
static bool
same(float x, float y)
{
    return memcmp(&x, &y, sizeof(x)) == 0 || (isnan(x) && isnan(y));
}

/* One check an array, not an element: Check writes each to a file. */
static void
assert_same(const struct arrays *a, const struct arrays *b, size_t length)
{
    for (size_t i = 0; i < ARRAYS; i++) {
        size_t j = 0;
        while (j < FLOATS && same(a->a[i][j], b->a[i][j])) {
            j++;
        }
        if (j < FLOATS) {
            ck_abort_msg("length %zu: array %zu at %zu: %a, scalar %a", length,
                    i, j, b->a[i][j], a->a[i][j]);
        }
    }
}

typedef void call_fn(
        const struct rps_kernels *k, struct arrays *in, size_t at, size_t n);

/* Both sets on the same input, every length, three offsets, both kinds. */
static void
compare(call_fn *call)
{
    for (size_t n = 0; n <= LENGTH_MAX; n++) {
        for (size_t at = GUARD; at < GUARD + 3; at++) {
            struct arrays expected;
            struct arrays given;
            fill(&expected, (n + at) % 2 == 0);
            given = expected;
            call(&scalar, &expected, at + n % 5, n);
            call(&fast, &given, at + n % 5, n);
            assert_same(&expected, &given, n);
        }
    }
}

static void
call_add(const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    k->add(in->a[0] + at, in->a[1] + at + 1, n);
}

static void
call_scale(const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    k->scale(in->a[0] + at, in->a[1][0], n);
}

static void
call_clip(const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    for (size_t j = 0; j < FLOATS; j++) {
        in->a[0][j] = isnan(in->a[0][j]) ? 2.0f : in->a[0][j];
    }
    k->clip(in->a[0] + at, n % 3 == 0 ? 0.0f : 0.75f, n);
}

static void
call_sgd(const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    k->sgd(in->a[0] + at, in->a[1] + at + 1, 0.1f, n);
}

static void
call_adagrad(
        const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    for (size_t j = 0; n % 2 == 0 && j < FLOATS; j++) {
        in->a[1][j] = fabsf(in->a[1][j]);
    }
    k->adagrad(in->a[0] + at, in->a[1] + at + 3, in->a[2] + at + 1, 0.02f, n);
}

static void
call_adam(const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    const struct rps_adam adam = {0.003f, 0.9f, 0.1f, 0.999f, 0.001f, 1e-8f};

    for (size_t j = 0; n % 2 == 0 && j < FLOATS; j++) {
        in->a[2][j] = fabsf(in->a[2][j]);
    }
    k->adam(in->a[0] + at, in->a[1] + at + 3, in->a[2] + at + 2,
            in->a[3] + at + 1, &adam, n);
}

START_TEST(add_equals_scalar)
{
    compare(call_add);
}
END_TEST

START_TEST(scale_equals_scalar)
{
    compare(call_scale);
}
END_TEST

START_TEST(clip_equals_scalar)
{
    compare(call_clip);
}
END_TEST

START_TEST(sgd_equals_scalar)
{
    compare(call_sgd);
}
END_TEST

START_TEST(adagrad_equals_scalar)
{
    compare(call_adagrad);
}
END_TEST

START_TEST(adam_equals_scalar)
{
    compare(call_adam);
}
END_TEST

/* What lies before and behind is not finite and must not be looked at. */
START_TEST(finite_finds_a_bad_element_wherever_it_is)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    size_t missed = 0;

    for (size_t n = 0; n <= LENGTH_MAX; n++) {
        float g[FLOATS];
        for (size_t j = 0; j < FLOATS; j++) {
            g[j] = j >= GUARD && j < GUARD + n ? FLT_MAX : NAN;
        }
        missed += !fast.finite(g + GUARD, n) || !scalar.finite(g + GUARD, n);
        for (size_t j = GUARD; j < GUARD + n; j++) {
            g[j] = bad[j % 3];
            missed += fast.finite(g + GUARD, n) || scalar.finite(g + GUARD, n);
            g[j] = j % 2 == 0 ? -FLT_MAX : 1e-45f;
        }
    }
    ck_assert_uint_eq(missed, 0);
}
END_TEST

/* The rule of the header, written a second time. */
static double
square_sum_by_rule(const float *g, size_t n)
{
    double s[16] = {0.0};

    for (size_t lane = 0; lane < 16; lane++) {
        for (size_t j = lane; j < n; j += 16) {
            s[lane] += (double)g[j] * (double)g[j];
        }
    }
    for (size_t i = 0; i < 8; i++) {
        s[i] += s[i + 8];
    }
    for (size_t i = 0; i < 4; i++) {
        s[i] += s[i + 4];
    }
    return (s[0] + s[2]) + (s[1] + s[3]);
}

START_TEST(square_sum_follows_its_rule_to_the_last_bit)
{
    for (size_t n = 0; n <= LENGTH_MAX; n++) {
        struct arrays in;
        double expected = 0.0;
        double got = 0.0;
        fill(&in, false);
        expected = square_sum_by_rule(in.a[0] + n % 7, n);
        got = fast.square_sum(in.a[0] + n % 7, n);
        ck_assert_mem_eq(&got, &expected, sizeof(got));
        got = scalar.square_sum(in.a[0] + n % 7, n);
        ck_assert_mem_eq(&got, &expected, sizeof(got));
    }
}
END_TEST

static Suite *
kernel_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *kernels = tcase_create("kernels");

    tcase_set_timeout(kernels, 60);
    tcase_add_test(kernels, add_equals_scalar);
    tcase_add_test(kernels, scale_equals_scalar);
    tcase_add_test(kernels, clip_equals_scalar);
    tcase_add_test(kernels, sgd_equals_scalar);
    tcase_add_test(kernels, adagrad_equals_scalar);
    tcase_add_test(kernels, adam_equals_scalar);
    tcase_add_test(kernels, finite_finds_a_bad_element_wherever_it_is);
    tcase_add_test(kernels, square_sum_follows_its_rule_to_the_last_bit);
    suite_add_tcase(suite, kernels);
    return suite;
}

int
main(void)
{
    const char *wanted = getenv("RPS_ISA");
    const enum rps_isa isa = rps_isa_detect();

    if (wanted != NULL && strcmp(wanted, rps_isa_str(isa)) != 0) {
        printf("this CPU has no %s\n", wanted);
        return 77;
    }
    rps_kernels_init(&scalar, RPS_ISA_SCALAR);
    rps_kernels_init(&fast, isa);
    return run_suite(kernel_suite());
}
