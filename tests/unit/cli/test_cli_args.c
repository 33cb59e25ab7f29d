/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/args.h"
#include "client/cli/key.h"
#include "tests/unit/suite.h"

#include <string.h>

#define ARGUMENTS_MAX 16

static struct rps_tool_flag flags[] = {
        {.name = "workers", .argument = "N", .letter = "w"},
        {.name = "chief", .letter = "ch"},
        {.name = NULL},
};

static char *argv[ARGUMENTS_MAX + 1];
static int argc;
static struct rps_tool_call call;

/* Sorts the words of `line`; what is left is in argc and argv. */
static bool
sort(const struct rps_tool *tool, const char *line)
{
    static char words[256];
    char *next = NULL;

    flags[0].value = NULL;
    flags[1].value = NULL;
    memset(&call, 0, sizeof(call));
    strncpy(words, line, sizeof(words) - 1);
    argc = 0;
    for (char *word = strtok_r(words, " ", &next); word != NULL;
            word = strtok_r(NULL, " ", &next)) {
        argv[argc++] = word;
    }
    argv[argc] = NULL;
    return rps_args_sort(tool, &argc, argv, &call);
}

static const struct rps_tool launch = {
        .name = "launch", .flags = flags, .runs_command = true};
static const struct rps_tool erase = {
        .name = "erase", .operands_max = 4, .takes_keys = true};
static const struct rps_tool verify = {.name = "verify", .operands_max = 1};

START_TEST(a_flags_letter_is_the_flag)
{
    ck_assert(sort(&launch, "recps -w 3 -ch"));
    ck_assert_str_eq(flags[0].value, "3");
    ck_assert_str_eq(flags[1].value, "");
    ck_assert_int_eq(argc, 1);
    ck_assert(sort(&launch, "recps -c -wx")); /* others are options */
    ck_assert_ptr_null(flags[0].value);
    ck_assert_int_eq(argc, 3);
    ck_assert(!sort(&launch, "recps -w"));
}
END_TEST

START_TEST(own_flags_are_taken_and_options_stay)
{
    ck_assert(sort(&launch,
            "recps --workers 3 --job-id x --chief --loops=2 -- a --chief"));
    ck_assert_str_eq(flags[0].value, "3");
    ck_assert_str_eq(flags[1].value, "");
    ck_assert_int_eq(argc, 4);
    ck_assert_str_eq(argv[1], "--job-id");
    ck_assert_str_eq(argv[2], "x");
    ck_assert_str_eq(argv[3], "--loops=2");
    ck_assert_ptr_null(argv[4]);
    ck_assert_str_eq(call.command[0], "a");
    ck_assert_str_eq(call.command[1], "--chief");
    ck_assert_ptr_null(call.command[2]);
}
END_TEST

START_TEST(a_command_of_one_word_survives_the_end_of_the_options)
{
    ck_assert(sort(&launch, "recps -- a"));
    ck_assert_int_eq(argc, 1);
    ck_assert_str_eq(call.command[0], "a");
    ck_assert(sort(&launch, "recps --job-id x -- a"));
    ck_assert_str_eq(call.command[0], "a");
    ck_assert(sort(&launch, "recps --job-id x --"));
    ck_assert_ptr_null(call.command[0]);
}
END_TEST

START_TEST(an_operand_may_stand_before_between_and_after)
{
    const char *lines[] = {"recps DIR --json --job-id x",
            "recps --json DIR --job-id x", "recps --json --job-id x DIR",
            "recps --json --job-id x -- DIR"};

    for (size_t i = 0; i < 4; i++) {
        ck_assert(sort(&verify, lines[i]));
        ck_assert_int_eq(call.operand_count, 1);
        ck_assert_str_eq(call.operands[0], "DIR");
        ck_assert_int_eq(argc, 4);
    }
}
END_TEST

START_TEST(too_many_operands_and_missing_values_are_refused)
{
    ck_assert(!sort(&verify, "recps a b"));
    ck_assert(!sort(&verify, "recps -- a b"));
    ck_assert(!sort(&launch, "recps a -- b"));
    ck_assert(!sort(&launch, "recps --workers"));
    ck_assert(!sort(&launch, "recps --chief=1"));
}
END_TEST

START_TEST(values_are_known_from_the_table_of_options)
{
    ck_assert(rps_args_takes_value("--ps-hosts"));
    ck_assert(rps_args_takes_value("--ps_hosts"));
    ck_assert(rps_args_takes_value("--checkpoint-dir"));
    ck_assert(!rps_args_takes_value("--checkpoint-dir=x"));
    ck_assert(!rps_args_takes_value("--json"));
    ck_assert(!rps_args_takes_value("--evaluate"));
    ck_assert(!rps_args_takes_value("--restore"));
    ck_assert(!rps_args_takes_value("--ps"));
}
END_TEST

START_TEST(a_negative_number_is_an_operand_where_keys_are)
{
    ck_assert(sort(&erase, "recps emb -5 --json -- -7"));
    ck_assert_int_eq(call.operand_count, 3);
    ck_assert_str_eq(call.operands[1], "-5");
    ck_assert_str_eq(call.operands[2], "-7");
    ck_assert_int_eq(argc, 2);
    ck_assert(sort(&erase, "recps emb 1 -.5 -1e-3"));
    ck_assert_int_eq(call.operand_count, 4);
    ck_assert(sort(&erase, "recps emb -x"));
    ck_assert_int_eq(call.operand_count, 1);
    ck_assert(sort(&verify, "recps -5"));
    ck_assert_int_eq(call.operand_count, 0);
}
END_TEST

START_TEST(keys_are_decimal_negative_or_hex)
{
    static const struct {
        const char *text;
        uint64_t key;
    } good[] = {{"0", 0}, {"18446744073709551615", UINT64_MAX},
            {"-1", UINT64_MAX}, {"-9223372036854775808", 1ull << 63},
            {"0x0", 0}, {"0xFf", 255}, {"0Xffffffffffffffff", UINT64_MAX}};
    static const char *const bad[] = {"", "-", "x", "1x", "0x", "1.5", " 1",
            "1 ", "18446744073709551616", "-9223372036854775809",
            "0x10000000000000000", "--1", "-0x1", "-.5"};
    uint64_t key = 0;

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        ck_assert_msg(rps_key_parse(good[i].text, &key), "%s", good[i].text);
        ck_assert_uint_eq(key, good[i].key);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        ck_assert_msg(!rps_key_parse(bad[i], &key), "%s", bad[i]);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("cli_args");
    TCase *tcase = tcase_create("sort");

    tcase_add_test(tcase, a_flags_letter_is_the_flag);
    tcase_add_test(tcase, own_flags_are_taken_and_options_stay);
    tcase_add_test(
            tcase, a_command_of_one_word_survives_the_end_of_the_options);
    tcase_add_test(tcase, an_operand_may_stand_before_between_and_after);
    tcase_add_test(tcase, too_many_operands_and_missing_values_are_refused);
    tcase_add_test(tcase, values_are_known_from_the_table_of_options);
    tcase_add_test(tcase, a_negative_number_is_an_operand_where_keys_are);
    tcase_add_test(tcase, keys_are_decimal_negative_or_hex);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
