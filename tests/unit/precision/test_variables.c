/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of variables; their numbers are test_precision_ckpt.py's. */
#include "client/precision/variable_operator.h"
#include "client/precision/variables.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <string.h>

static const struct {
    const char *table;
    bool dense;
    const char *gradient; /* NULL: nobody knows */
    const char *part;
} whose[] = {
        {"top.2.weight", true, "top.2/linear_backward", "top.2/linear_dweight"},
        {"bot.0.bias", true, "bot.0/linear_backward", "bot.0/linear_dbias"},
        {"a.weight.b.weight", true, "a.weight.b/linear_backward",
                "a.weight.b/linear_dweight"},
        {"proj.user.weight", true, "user/linear_backward",
                "user/linear_dweight"},
        {"user", false, "user/pooling_backward", ""},
        {"user.weight", false, "user.weight/pooling_backward", ""},
        {".weight", true, NULL, ""},
        {"mine", true, NULL, ""},
};

START_TEST(a_variable_is_the_work_of_its_layer)
{
    const struct rps_variable_operator who =
            rps_variable_operator_of(whose[_i].table, whose[_i].dense);

    ck_assert_int_eq(who.known, whose[_i].gradient != NULL);
    ck_assert_str_eq(
            who.gradient, whose[_i].gradient != NULL ? whose[_i].gradient : "");
    ck_assert_str_eq(who.part, whose[_i].part);
}
END_TEST

START_TEST(a_name_that_is_too_long_is_nobodys)
{
    char name[2 * RPS_VARIABLE_OPERATOR_BYTES];

    memset(name, 'x', sizeof(name));
    memcpy(name + sizeof(name) - 8, ".weight", 8);
    ck_assert(!rps_variable_operator_of(name, true).known);
    ck_assert(rps_variable_operator_of(name, false).known);
}
END_TEST

START_TEST(a_cosine_that_is_nearly_1_does_not_look_like_it)
{
    char text[RPS_COSINE_TEXT_BYTES];

    ck_assert_str_eq(rps_cosine_text(1.0, text), "1");
    ck_assert_str_eq(rps_cosine_text(1.0 - 0x1p-53, text), "1 - 1.1e-16");
    ck_assert_str_eq(rps_cosine_text(0.999999, text), "0.999999");
    ck_assert_str_eq(rps_cosine_text(-1.0, text), "-1");
    ck_assert_str_eq(rps_cosine_text((double)NAN, text), "nan");
}
END_TEST

START_TEST(nan_is_below_every_threshold)
{
    char words[] = "only in B";
    struct rps_variable variable = {.cosine = (double)NAN};

    ck_assert(rps_variable_is_below(&variable, -1.0));
    variable.cosine = 0.98;
    ck_assert(!rps_variable_is_below(&variable, 0.98));
    ck_assert(rps_variable_is_below(&variable, 0.980001));
    variable.problem = words;
    ck_assert(!rps_variable_is_below(&variable, 0.980001));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("precision_variables");
    TCase *tcase = tcase_create("words");

    tcase_add_loop_test(tcase, a_variable_is_the_work_of_its_layer, 0,
            (int)(sizeof(whose) / sizeof(whose[0])));
    tcase_add_test(tcase, a_name_that_is_too_long_is_nobodys);
    tcase_add_test(tcase, a_cosine_that_is_nearly_1_does_not_look_like_it);
    tcase_add_test(tcase, nan_is_below_every_threshold);
    suite_add_single_threaded(suite, tcase);
    return run_suite(suite);
}
