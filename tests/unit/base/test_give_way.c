/* SPDX-License-Identifier: Apache-2.0 */
#include "base/give_way.h"
#include "tests/unit/suite.h"

#include <check.h>

#define US 1000u
#define MS 1000000u

START_TEST(it_is_due_after_a_tenth_of_a_millisecond_where_nobody_waited)
{
    ck_assert_uint_eq(rps_give_way_next(5 * MS, 5 * MS), 5 * MS + 100 * US);
    ck_assert_uint_eq(rps_give_way_next(5 * MS, 5 * MS + 150 * US),
            5 * MS + 150 * US + 100 * US);
}
END_TEST

START_TEST(who_gave_way_for_long_works_half_as_long)
{
    ck_assert_uint_eq(rps_give_way_next(5 * MS, 9 * MS), 9 * MS + 2 * MS);
    ck_assert_uint_eq(rps_give_way_next(0, 3000 * (uint64_t)MS),
            3000 * (uint64_t)MS + 1500 * (uint64_t)MS);
}
END_TEST

START_TEST(giving_way_alone_goes_on)
{
    for (unsigned i = 0; i < 1000; i++) {
        rps_give_way();
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("give_way");
    TCase *tc = tcase_create("give_way");

    tcase_add_test(
            tc, it_is_due_after_a_tenth_of_a_millisecond_where_nobody_waited);
    tcase_add_test(tc, who_gave_way_for_long_works_half_as_long);
    tcase_add_test(tc, giving_way_alone_goes_on);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
