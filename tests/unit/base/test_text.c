/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text.h"
#include "tests/unit/suite.h"

#include <stdlib.h>
#include <string.h>

START_TEST(text_grows_and_keeps_what_was_added)
{
    struct rps_text text = {0};

    for (int i = 0; i < 1000; i++) {
        rps_text_add(&text, "%d,", i % 10);
    }
    ck_assert_uint_eq(text.length, 2000);
    ck_assert_uint_eq(strlen(text.bytes), 2000);
    ck_assert_str_eq(text.bytes + 1996, "8,9,");
    ck_assert(!text.failed);
    rps_text_finish(&text);
    ck_assert_ptr_null(text.bytes);
}
END_TEST

START_TEST(whole_numbers_are_read_to_their_last_character)
{
    uint64_t u = 0;
    int64_t i = 0;

    ck_assert(rps_parse_u64("18446744073709551615", &u));
    ck_assert_uint_eq(u, UINT64_MAX);
    ck_assert(!rps_parse_u64("18446744073709551616", &u));
    ck_assert(!rps_parse_u64("-1", &u));
    ck_assert(!rps_parse_u64("+1", &u));
    ck_assert(!rps_parse_u64(" 1", &u));
    ck_assert(!rps_parse_u64("1 ", &u));
    ck_assert(!rps_parse_u64("", &u));
    ck_assert(rps_parse_i64("-9223372036854775808", &i));
    ck_assert_int_eq(i, INT64_MIN);
    ck_assert(!rps_parse_i64("--1", &i));
    ck_assert(rps_parse_hex64("68fd1e64", &u));
    ck_assert_uint_eq(u, 0x68fd1e64u);
    ck_assert(!rps_parse_hex64("0x1", &u));
    ck_assert(!rps_parse_hex64("11112222333344445", &u));
}
END_TEST

START_TEST(real_numbers_must_be_finite)
{
    double value = 0;

    ck_assert(rps_parse_double("-2.5e3", &value));
    ck_assert_double_eq(value, -2500.0);
    ck_assert(!rps_parse_double("nan", &value));
    ck_assert(!rps_parse_double("inf", &value));
    ck_assert(!rps_parse_double("1e999", &value));
    ck_assert(!rps_parse_double("1x", &value));
    ck_assert(!rps_parse_double(" 1", &value));
    ck_assert(!rps_parse_double("0x10", &value));
    ck_assert(!rps_parse_double("-0X1p3", &value));
}
END_TEST

START_TEST(byte_sizes_take_binary_units_and_refuse_overflow)
{
    uint64_t bytes = 0;

    ck_assert(rps_parse_bytes("64k", &bytes));
    ck_assert_uint_eq(bytes, 65536);
    ck_assert(rps_parse_bytes("256MiB", &bytes));
    ck_assert_uint_eq(bytes, 268435456);
    ck_assert(rps_parse_bytes("1GB", &bytes));
    ck_assert_uint_eq(bytes, 1073741824);
    ck_assert(rps_parse_bytes("12b", &bytes));
    ck_assert_uint_eq(bytes, 12);
    ck_assert(rps_parse_bytes("0", &bytes));
    ck_assert_uint_eq(bytes, 0);
    ck_assert(!rps_parse_bytes("1x", &bytes));
    ck_assert(!rps_parse_bytes("1ki5", &bytes));
    ck_assert(!rps_parse_bytes("99999999999t", &bytes));
    ck_assert(!rps_parse_bytes("-1k", &bytes));
}
END_TEST

START_TEST(nearest_name_is_found_within_a_third_of_the_word)
{
    const char *const names[] = {"ps", "worker", "chief", "evaluator"};

    ck_assert_str_eq(rps_nearest_name("workers", names, 4), "worker");
    ck_assert_str_eq(rps_nearest_name("chef", names, 4), "chief");
    ck_assert_str_eq(rps_nearest_name("p", names, 4), "ps");
    ck_assert_str_eq(rps_nearest_name("evalator", names, 4), "evaluator");
    ck_assert_str_eq(rps_nearest_name("evalutr0", names, 4), "evaluator");
    ck_assert_ptr_null(rps_nearest_name("evlutr00", names, 4));
    ck_assert_ptr_null(rps_nearest_name("banana", names, 4));
    ck_assert_ptr_null(rps_nearest_name("a", names, 4));
    ck_assert_ptr_null(rps_nearest_name("", names, 4));
}
END_TEST

START_TEST(short_or_unrelated_words_are_nobodys_slip)
{
    const char *const names[] = {"task", "loops", "bind", "job_id"};

    ck_assert_ptr_null(rps_nearest_name("a", names, 4));
    ck_assert_ptr_null(rps_nearest_name("bogus", names, 4));
    ck_assert_str_eq(rps_nearest_name("tasks", names, 4), "task");
    ck_assert_str_eq(rps_nearest_name("lops", names, 4), "loops");
    ck_assert_str_eq(rps_nearest_name("jobid", names, 4), "job_id");
}
END_TEST

START_TEST(bytes_for_people_have_one_decimal)
{
    char out[32];

    ck_assert_str_eq(rps_format_bytes(312, out), "312 B");
    ck_assert_str_eq(rps_format_bytes(1536, out), "1.5 KiB");
    ck_assert_str_eq(rps_format_bytes(3u << 30, out), "3.0 GiB");
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("text");
    TCase *tc = tcase_create("text");

    tcase_add_test(tc, text_grows_and_keeps_what_was_added);
    tcase_add_test(tc, whole_numbers_are_read_to_their_last_character);
    tcase_add_test(tc, real_numbers_must_be_finite);
    tcase_add_test(tc, byte_sizes_take_binary_units_and_refuse_overflow);
    tcase_add_test(tc, nearest_name_is_found_within_a_third_of_the_word);
    tcase_add_test(tc, short_or_unrelated_words_are_nobodys_slip);
    tcase_add_test(tc, bytes_for_people_have_one_decimal);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
