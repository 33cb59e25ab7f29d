/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/exposition.h"
#include "tests/unit/suite.h"

#include <string.h>

START_TEST(a_family_is_help_type_and_samples)
{
    struct rps_text text = {0};

    rps_counter(&text, "a_total", "Counts a.", UINT64_MAX);
    rps_gauge(&text, "b", "Shows b.", 0.25);
    rps_sample(&text, "c", "x=\"1\"", 2);
    ck_assert_str_eq(text.bytes, "# HELP a_total Counts a.\n"
                                 "# TYPE a_total counter\n"
                                 "a_total 18446744073709551615\n"
                                 "# HELP b Shows b.\n"
                                 "# TYPE b gauge\n"
                                 "b 0.25\n"
                                 "c{x=\"1\"} 2\n");
    rps_text_finish(&text);
}
END_TEST

START_TEST(a_time_keeps_its_milliseconds)
{
    struct rps_text text = {0};

    rps_sample_real(&text, "t", "", 1798761600.125);
    ck_assert_str_eq(text.bytes, "t 1798761600.125\n");
    rps_text_finish(&text);
}
END_TEST

START_TEST(a_label_is_escaped)
{
    char out[64];

    ck_assert_str_eq(rps_label(out, sizeof(out), "table", "a\"b\\c\nd"),
            "table=\"a\\\"b\\\\c\\nd\"");
    ck_assert_str_eq(rps_label(out, sizeof(out), "table", ""), "table=\"\"");
}
END_TEST

START_TEST(a_label_that_is_too_long_is_cut_and_closed)
{
    for (size_t room = 12; room < 20; room++) {
        char out[32];

        memset(out, 'z', sizeof(out));
        rps_label(out, room, "table", "\"\"\"\"\"\"\"\"\"\"\"\"\"\"");
        ck_assert_uint_lt(strlen(out), room);
        ck_assert_int_eq(out[strlen(out) - 1], '"');
        ck_assert_uint_eq((strlen(out) - strlen("table=\"\"")) % 2, 0);
        ck_assert_int_eq(out[room], 'z');
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("exposition");
    TCase *tcase = tcase_create("text");

    tcase_add_test(tcase, a_family_is_help_type_and_samples);
    tcase_add_test(tcase, a_time_keeps_its_milliseconds);
    tcase_add_test(tcase, a_label_is_escaped);
    tcase_add_test(tcase, a_label_that_is_too_long_is_cut_and_closed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
