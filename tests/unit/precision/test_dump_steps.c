/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the steps that are dumped. */
#include "base/text.h"
#include "client/precision/dump.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>

static void
expect_steps(const char *text, const char *want)
{
    struct rps_dump_steps steps;
    struct rps_error error;
    char found[256] = "";
    size_t n = 0;

    ck_assert_int_eq(rps_dump_steps_parse(&steps, text, &error), RPS_OK);
    for (uint32_t i = 0; i < steps.count; i++) {
        n += (size_t)snprintf(found + n, sizeof(found) - n, "%llu-%llu ",
                (unsigned long long)steps.ranges[i].first,
                (unsigned long long)steps.ranges[i].last);
    }
    ck_assert_str_eq(found, want);
}

START_TEST(steps_are_numbers_and_ranges_in_any_order)
{
    expect_steps("0", "0-0 ");
    expect_steps("0|5|10", "0-0 5-5 10-10 ");
    expect_steps("7|0-3", "0-3 7-7 ");
    expect_steps("3-5|4-9|1|10", "1-1 3-10 ");
    expect_steps("5|1|3|2-4", "1-5 ");
    expect_steps("all", "0-18446744073709551615 ");
}
END_TEST

START_TEST(words_that_are_no_steps_are_named)
{
    static const char *const bad[] = {"", "|", "1|", "|1", "1||2", "a", "1|b",
            "-1", "1-", "-", "3-1", "1-2-3", "0 | 5", "all|1", "1,2",
            "18446744073709551615", "0-18446744073709551616", "+1",
            "11111111111111111111111111111111111111111111111111111111111"};
    struct rps_dump_steps steps;
    struct rps_error error;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_int_eq(
                rps_dump_steps_parse(&steps, bad[i], &error), RPS_E_INVAL);
        ck_assert_ptr_nonnull(strstr(error.text, bad[i]));
    }
    (void)rps_dump_steps_parse(&steps, "1|b", &error);
    ck_assert_ptr_nonnull(strstr(error.text, "\"b\""));
}
END_TEST

START_TEST(more_ranges_than_there_is_room_for_are_refused)
{
    struct rps_text text = {0};
    struct rps_dump_steps steps;
    struct rps_error error;

    for (unsigned i = 0; i < RPS_DUMP_STEPS_MAX; i++) {
        rps_text_add(&text, "%s%u", i == 0 ? "" : "|", i * 2);
    }
    ck_assert_int_eq(rps_dump_steps_parse(&steps, text.bytes, &error), RPS_OK);
    rps_text_add(&text, "|1000");
    ck_assert_int_eq(
            rps_dump_steps_parse(&steps, text.bytes, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "64 ranges"));
    rps_text_finish(&text);
}
END_TEST

START_TEST(steps_are_looked_up_and_counted)
{
    struct rps_dump_steps steps;

    ck_assert_int_eq(rps_dump_steps_parse(&steps, "0-3|7", NULL), RPS_OK);
    ck_assert(rps_dump_steps_has(&steps, 0) && rps_dump_steps_has(&steps, 3) &&
              rps_dump_steps_has(&steps, 7));
    ck_assert(!rps_dump_steps_has(&steps, 4) && !rps_dump_steps_has(&steps, 8));
    ck_assert_uint_eq(rps_dump_steps_count(&steps, 0), 0);
    ck_assert_uint_eq(rps_dump_steps_count(&steps, 2), 2);
    ck_assert_uint_eq(rps_dump_steps_count(&steps, 7), 4);
    ck_assert_uint_eq(rps_dump_steps_count(&steps, 100), 5);
    ck_assert_int_eq(rps_dump_steps_parse(&steps, "all", NULL), RPS_OK);
    ck_assert(rps_dump_steps_has(&steps, UINT64_MAX - 1));
    ck_assert_uint_eq(rps_dump_steps_count(&steps, 1000), 1000);
}
END_TEST

static Suite *
suite(void)
{
    Suite *suite = suite_create("precision dump steps");
    TCase *tcase = tcase_create("steps");

    tcase_add_test(tcase, steps_are_numbers_and_ranges_in_any_order);
    tcase_add_test(tcase, words_that_are_no_steps_are_named);
    tcase_add_test(tcase, more_ranges_than_there_is_room_for_are_refused);
    tcase_add_test(tcase, steps_are_looked_up_and_counted);
    suite_add_single_threaded(suite, tcase);
    return suite;
}

int
main(void)
{
    return run_suite(suite());
}
