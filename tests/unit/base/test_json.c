/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "tests/unit/suite.h"

#include <stdlib.h>

START_TEST(text_is_compact_and_releases_the_value)
{
    json_t *inner = json_string("b");
    char *text = rps_json_text(json_pack("{s:O}", "a", inner));

    ck_assert_str_eq(text, "{\"a\":\"b\"}");
    ck_assert_uint_eq(inner->refcount, 1);
    ck_assert_ptr_null(rps_json_text(NULL));
    free(text);
    json_decref(inner);
}
END_TEST

START_TEST(a_whole_number_may_be_a_decimal_string)
{
    static const struct {
        const char *json;
        bool count;
        bool whole;
        uint64_t value;
    } cases[] = {
            {"7", true, true, 7},
            {"0", true, true, 0},
            {"-1", false, false, 0},
            {"7.0", false, false, 0},
            {"true", false, false, 0},
            {"\"18446744073709551615\"", false, true, UINT64_MAX},
            {"\"18446744073709551616\"", false, false, 0},
            {"\"-1\"", false, false, 0},
            {"\"\"", false, false, 0},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *value = json_loads(cases[i].json, JSON_DECODE_ANY, NULL);
        uint64_t out = 99;

        ck_assert_ptr_nonnull(value);
        ck_assert_msg(rps_json_count(value, &out) == cases[i].count, "count %s",
                cases[i].json);
        ck_assert_uint_eq(out, cases[i].count ? cases[i].value : 99);
        out = 99;
        ck_assert_msg(rps_json_whole(value, &out) == cases[i].whole, "whole %s",
                cases[i].json);
        ck_assert_uint_eq(out, cases[i].whole ? cases[i].value : 99);
        json_decref(value);
    }
    ck_assert(!rps_json_whole(NULL, &(uint64_t){0}));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("json");
    TCase *tests = tcase_create("json");

    tcase_add_test(tests, text_is_compact_and_releases_the_value);
    tcase_add_test(tests, a_whole_number_may_be_a_decimal_string);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
