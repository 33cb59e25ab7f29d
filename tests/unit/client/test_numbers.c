/* SPDX-License-Identifier: Apache-2.0 */
#include "client/numbers.h"
#include "tests/unit/suite.h"

START_TEST(what_is_cut_off_is_counted_once)
{
    struct rps_numbers numbers = {0};
    uint64_t number;

    for (number = 2; number <= 100; number++) {
        rps_numbers_acknowledge(&numbers, number);
    }
    ck_assert_uint_eq(numbers.run_count, 1);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 100), 0);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 90), 10);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 90), 0);
    rps_numbers_acknowledge(&numbers, 91);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 0), 90);
    ck_assert_uint_eq(numbers.run_count, 0);
}
END_TEST

START_TEST(numbers_between_pushes_are_not_counted)
{
    struct rps_numbers numbers = {0};
    uint64_t number;

    for (number = 1; number <= 200; number++) {
        if (number % 10 != 0) { /* 10, 20, … are other changes */
            rps_numbers_acknowledge(&numbers, number);
        }
    }
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 195), 4);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 190), 5);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 189), 0);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 95), 89 - 4);
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 0), 86);
}
END_TEST

START_TEST(too_many_runs_are_joined_from_the_oldest)
{
    struct rps_numbers numbers = {0};
    const uint64_t n = 3 * RPS_RUNS_MAX;
    uint64_t number;

    for (number = 1; number <= n; number++) {
        rps_numbers_acknowledge(&numbers, 2 * number);
    }
    ck_assert_uint_eq(numbers.run_count, RPS_RUNS_MAX);
    /* the newest are exact */
    ck_assert_uint_eq(rps_numbers_cut(&numbers, 2 * (n - 200)), 200);
    /* the oldest may be too many, never too few */
    ck_assert_uint_ge(rps_numbers_cut(&numbers, 10), n - 200 - 5);
    ck_assert_uint_le(rps_numbers_cut(&numbers, 0), 5);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("numbers");
    TCase *tcase = tcase_create("numbers");

    tcase_add_test(tcase, what_is_cut_off_is_counted_once);
    tcase_add_test(tcase, numbers_between_pushes_are_not_counted);
    tcase_add_test(tcase, too_many_runs_are_joined_from_the_oldest);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
