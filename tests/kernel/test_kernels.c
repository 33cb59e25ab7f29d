/* SPDX-License-Identifier: Apache-2.0 */
/* Holds the vector kernels of the set that RPS_ISA names to the scalar ones. */
#include "tests/kernel/kernels.h"

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
call_decay(const struct rps_kernels *k, struct arrays *in, size_t at, size_t n)
{
    k->decay(in->a[0] + at, in->a[1] + at + 1, in->a[2] + at + 2, 0.01f, n);
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

START_TEST(decay_equals_scalar)
{
    compare(call_decay);
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

/* splitmix64 (Steele, Lea and Flood, 2014): its output for this state. */
static uint64_t
splitmix64(uint64_t state)
{
    uint64_t z = state + UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

START_TEST(draws_are_those_of_splitmix64)
{
    uint64_t keys[70], draws[70];

    ck_assert_uint_eq(splitmix64(0), UINT64_C(0xe220a8397b1dcdaf));
    for (size_t i = 0; i < 70; i++) {
        keys[i] = (uint64_t)random_bits() << 48 ^
                  (uint64_t)random_bits() << 24 ^ random_bits();
    }
    for (size_t n = 0; n < 70; n++) {
        const uint64_t of_table = splitmix64(n);
        const uint64_t step = n * n * n;
        memset(draws, 0x5a, sizeof(draws));
        fast.draw(draws, keys, n, of_table, step);
        for (size_t i = 0; i < n; i++) {
            ck_assert_uint_eq(draws[i],
                    splitmix64(splitmix64(of_table ^ keys[i]) ^ step));
        }
        ck_assert_uint_eq(draws[n], UINT64_C(0x5a5a5a5a5a5a5a5a));
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
    tcase_add_test(kernels, decay_equals_scalar);
    tcase_add_test(kernels, finite_finds_a_bad_element_wherever_it_is);
    tcase_add_test(kernels, square_sum_follows_its_rule_to_the_last_bit);
    tcase_add_test(kernels, draws_are_those_of_splitmix64);
    suite_add_tcase(suite, kernels);
    return suite;
}

int
main(void)
{
    const int skip = kernels_choose();

    return skip != 0 ? skip : run_suite(kernel_suite());
}
