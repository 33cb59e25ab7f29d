/* SPDX-License-Identifier: Apache-2.0 */
/* The sketch of hot keys against exact counts. */
#include "base/hash.h"
#include "embedding/hot.h"
#include "tests/unit/suite.h"

#include <string.h>

enum {
    KEYS = 20000
};

static uint64_t exact[KEYS];

/* Zipf with exponent 1: key k with odds 1/(k+1), by inverting the harmonic
 * sums, which a table holds. */
static uint64_t
zipf(uint64_t *random)
{
    static double sums[KEYS];
    double u = 0.0;
    size_t low = 0;
    size_t high = KEYS - 1;

    for (size_t k = 0; sums[KEYS - 1] <= 0.0 && k < KEYS; k++) {
        sums[k] = (k == 0 ? 0.0 : sums[k - 1]) + 1.0 / (double)(k + 1);
    }
    *random = rps_mix64(*random);
    u = rps_unit_double(*random) * sums[KEYS - 1];
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (sums[middle] < u) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Keys far apart, the special ones among them. */
static uint64_t
spread(uint64_t k)
{
    return k == 0 ? UINT64_MAX : k == 1 ? 0 : rps_mix64(k);
}

static uint64_t
feed(struct rps_hot *hot, size_t draws, uint64_t *random)
{
    uint64_t added = 0;

    for (size_t i = 0; i < draws; i++) {
        const uint64_t k = zipf(random);
        const uint64_t weight = 1 + i % 3;
        rps_hot_add(hot, spread(k), weight);
        exact[k] += weight;
        added += weight;
    }
    return added;
}

static uint64_t
find(const struct rps_hot_key *top, size_t n, uint64_t key, uint64_t *error)
{
    for (size_t i = 0; i < n; i++) {
        if (top[i].key == key) {
            *error = top[i].error;
            return top[i].count;
        }
    }
    *error = 0;
    return 0;
}

START_TEST(counts_and_errors_bound_the_truth)
{
    static struct rps_hot_key top[RPS_HOT_KEYS_MAX];
    struct rps_hot *hot = rps_hot_create();
    uint64_t random = 3;
    uint64_t added = 0;
    size_t n = 0;
    size_t seen = 0;

    ck_assert_ptr_nonnull(hot);
    memset(exact, 0, sizeof(exact));
    added = feed(hot, 300000, &random);
    ck_assert_uint_lt(added, RPS_HOT_AGE_ADDED);
    n = rps_hot_top(hot, RPS_HOT_KEYS_MAX, top);
    ck_assert_uint_eq(n, RPS_HOT_KEYS_MAX);
    for (uint64_t k = 0; k < KEYS; k++) {
        uint64_t error = 0;
        const uint64_t count = find(top, n, spread(k), &error);
        if (count == 0) {
            ck_assert_uint_le(exact[k], added / RPS_HOT_KEYS_MAX);
            continue;
        }
        seen++;
        ck_assert_uint_le(exact[k], count);
        ck_assert_uint_le(count - error, exact[k]);
        ck_assert_uint_le(error, added / RPS_HOT_KEYS_MAX);
    }
    ck_assert_uint_eq(seen, n);
    rps_hot_destroy(hot);
}
END_TEST

START_TEST(the_first_is_the_hottest)
{
    struct rps_hot_key top[3] = {{.key = 0}};
    struct rps_hot *hot = rps_hot_create();
    uint64_t random = 9;

    ck_assert_ptr_nonnull(hot);
    ck_assert_uint_eq(rps_hot_top(hot, 3, top), 0);
    rps_hot_add(hot, 42, 1);
    ck_assert_uint_eq(rps_hot_top(hot, 3, top), 1);
    ck_assert_uint_eq(top[0].key, 42);
    feed(hot, 100000, &random);
    ck_assert_uint_eq(rps_hot_top(hot, 3, top), 3);
    for (uint64_t k = 0; k < 3; k++) {
        ck_assert_uint_eq(top[k].key, spread(k));
    }
    ck_assert_uint_ge(top[0].count, top[1].count);
    ck_assert_uint_ge(top[1].count, top[2].count);
    ck_assert_uint_eq(rps_hot_top(hot, 0, NULL), 0);
    rps_hot_destroy(hot);
}
END_TEST

START_TEST(a_key_that_is_pushed_no_more_fades)
{
    struct rps_hot_key top[2];
    struct rps_hot *hot = rps_hot_create();

    ck_assert_ptr_nonnull(hot);
    rps_hot_add(hot, 1, 400000);
    for (uint64_t i = 0; i < 3 * RPS_HOT_AGE_ADDED; i += 1000) {
        rps_hot_add(hot, 2, 1000);
    }
    ck_assert_uint_eq(rps_hot_top(hot, 2, top), 2);
    ck_assert_uint_eq(top[0].key, 2);
    ck_assert_uint_eq(top[1].key, 1);
    ck_assert_uint_lt(top[1].count, 400000 / 8);
    for (int i = 0; i < 40; i++) {
        rps_hot_add(hot, 2, RPS_HOT_AGE_ADDED);
    }
    ck_assert_uint_eq(rps_hot_top(hot, 2, top), 1);
    rps_hot_add(hot, 2, UINT64_MAX / 2); /* ends, and does not overflow */
    ck_assert_uint_eq(rps_hot_top(hot, 2, top), 1);
    rps_hot_destroy(hot);
}
END_TEST

START_TEST(every_position_is_sampled_alike)
{
    size_t hits[RPS_HOT_SAMPLE] = {0};

    for (uint64_t push = 1; push <= 64000; push++) {
        const size_t first = rps_hot_first(5, push);
        ck_assert_uint_lt(first, RPS_HOT_SAMPLE);
        hits[first]++;
    }
    for (size_t i = 0; i < RPS_HOT_SAMPLE; i++) {
        ck_assert_uint_gt(hits[i], 840); /* 1000 +- 5 deviations */
        ck_assert_uint_lt(hits[i], 1160);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("hot");
    TCase *tc = tcase_create("hot");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, counts_and_errors_bound_the_truth);
    tcase_add_test(tc, the_first_is_the_hottest);
    tcase_add_test(tc, a_key_that_is_pushed_no_more_fades);
    tcase_add_test(tc, every_position_is_sampled_alike);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
