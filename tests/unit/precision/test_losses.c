/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of runs, good ones and bad ones, and what several of them say. */
#include "base/file.h"
#include "client/precision/losses.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char folder[FOLDER_BYTES];
static char path[FOLDER_BYTES + 16];

static void
set_up(void)
{
    folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/log", folder);
}

static void
tear_down(void)
{
    folder_remove(folder);
}

static rps_status
read_bytes(struct rps_losses *losses, const char *bytes, size_t length,
        struct rps_error *error)
{
    const rps_status status = rps_file_write(path, bytes, length, true, error);

    ck_assert_int_eq(status, RPS_OK);
    return rps_losses_read(losses, path, error);
}

static struct rps_losses
read_good(const char *text)
{
    struct rps_losses losses;
    struct rps_error error = {.text = ""};
    const rps_status status = read_bytes(&losses, text, strlen(text), &error);

    ck_assert_msg(status == RPS_OK, "%s", error.text);
    return losses;
}

START_TEST(a_log_of_recps_train_is_read)
{
    struct rps_losses losses =
            read_good("{\"step\": 1, \"epoch\": 2, \"loss\": 0.5}\n"
                      "\n"
                      "{\"event\": \"other\", \"step\": 9, \"loss\": 9}\n"
                      "{\"step\": 2, \"loss\": null}\n"
                      "{\"learning_rate\": 1}\n"
                      "{\"step\": 3, \"loss\": 1}\n"
                      "{\"event\": \"done\", \"auc\": 0.75}");

    ck_assert_uint_eq(losses.count, 3);
    ck_assert_uint_eq(losses.list[0].step, 1);
    ck_assert_double_eq(losses.list[0].value, 0.5);
    ck_assert(isnan(losses.list[1].value));
    ck_assert_double_eq(losses.list[2].value, 1.0);
    ck_assert(!losses.exact);
    ck_assert_double_eq(
            json_real_value(json_object_get(losses.done, "auc")), 0.75);
    rps_losses_finish(&losses);
}
END_TEST

START_TEST(bits_say_more_than_digits)
{
    struct rps_losses losses =
            read_good("{\"step\": 1, \"loss\": 0.7, \"loss_bits\": "
                      "\"3fe62e42fefa39ef\"}\n");

    ck_assert(losses.exact);
    ck_assert_double_eq(losses.list[0].value, 0x1.62e42fefa39efp-1);
    rps_losses_finish(&losses);
}
END_TEST

START_TEST(numbers_that_python_writes_are_not_finite)
{
    struct rps_losses losses = read_good(
            "{\"step\":1,\"loss\":NaN,\"note\":\"NaN \\\" Infinity\"}\n"
            "{\"step\":2,\"loss\":-Infinity}\n");

    ck_assert_uint_eq(losses.count, 2);
    ck_assert(isnan(losses.list[0].value) && isnan(losses.list[1].value));
    rps_losses_finish(&losses);
}
END_TEST

START_TEST(what_a_job_went_back_over_is_void)
{
    struct rps_losses losses =
            read_good("{\"step\": 1, \"loss\": 1}\n{\"step\": 2, \"loss\": 2}\n"
                      "{\"step\": 3, \"loss\": 3}\n"
                      "{\"event\": \"rolled_back\", \"from\": 3, \"to\": 1}\n"
                      "{\"step\": 2, \"loss\": 5}\n{\"step\": 3, \"loss\": 6}\n"
                      "{\"step\": 3, \"loss\": 7}\n");

    ck_assert_uint_eq(losses.count, 3);
    ck_assert_uint_eq(losses.backs, 1);
    ck_assert_double_eq(losses.list[1].value, 5.0);
    ck_assert_double_eq(losses.list[2].value, 7.0);
    rps_losses_finish(&losses);
}
END_TEST

static const struct {
    const char *text;
    const char *words;
} bad_logs[] = {
        {"step 1 loss 0.5\n", "line 1: is no JSON object"},
        {"{\"step\": 1, \"loss\": 1}\n[1]\n", "line 2: is no JSON object"},
        {"{\"step\": 1.5, \"loss\": 1}\n", "\"step\" is no whole number"},
        {"{\"step\": -1, \"loss\": 1}\n", "\"step\" is no whole number"},
        {"{\"step\": 1, \"loss\": \"1\"}\n", "\"loss\" is no number"},
        {"{\"step\": 1, \"loss\": 1, \"loss_bits\": \"xyz\"}\n",
                "\"loss_bits\""},
        {"{\"step\": 1, \"loss\": 1", "is no JSON object"},
};

START_TEST(a_bad_line_is_named)
{
    struct rps_losses losses;
    struct rps_error error = {.text = ""};

    ck_assert_int_eq(read_bytes(&losses, bad_logs[_i].text,
                             strlen(bad_logs[_i].text), &error),
            RPS_E_CORRUPT);
    ck_assert_msg(
            strstr(error.text, bad_logs[_i].words) != NULL, "%s", error.text);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    ck_assert_ptr_null(losses.list);
}
END_TEST

START_TEST(a_line_has_an_end_and_no_nul)
{
    const size_t bytes = RPS_LOSSES_LINE_BYTES_MAX + 10;
    char *text = malloc(bytes);
    struct rps_losses losses;
    struct rps_error error;

    ck_assert_ptr_nonnull(text);
    memset(text, ' ', bytes);
    ck_assert_int_eq(read_bytes(&losses, text, bytes, &error), RPS_E_LIMIT);
    ck_assert_int_eq(
            read_bytes(&losses, "{}\0 \n{}\n", 8, &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "NUL"));
    ck_assert_int_eq(rps_losses_read(&losses, "/nowhere/at/all", &error),
            RPS_E_NOT_FOUND);
    free(text);
}
END_TEST

/* --- several runs ----------------------------------------------------------
 */

#define STEPS 4

/* Losses 1, 2, 3, 4 of steps from `first` on, but for one of them. */
static struct rps_losses
run_of(uint64_t first, size_t count, size_t other, double loss)
{
    struct rps_losses run = {.count = count, .exact = true};

    run.list = calloc(STEPS, sizeof(*run.list));
    ck_assert_ptr_nonnull(run.list);
    for (size_t i = 0; i < count; i++) {
        run.list[i].step = first + i;
        run.list[i].value = i == other ? loss : (double)(i + 1);
    }
    return run;
}

static struct rps_losses_compared
compare_with(struct rps_losses second)
{
    struct rps_losses runs[] = {
            run_of(1, STEPS, 9, 0), second, run_of(1, STEPS, 9, 0)};
    const struct rps_losses_compared compared =
            rps_losses_compare(runs, 3, 0.001);

    for (int i = 0; i < 3; i++) {
        rps_losses_finish(&runs[i]);
    }
    return compared;
}

START_TEST(equal_runs_are_equal)
{
    const struct rps_losses_compared compared =
            compare_with(run_of(1, STEPS, 9, 0));

    ck_assert_int_eq(compared.verdict, RPS_LOSSES_EQUAL);
    ck_assert_uint_eq(compared.steps, STEPS);
    ck_assert(compared.exact && !compared.not_finite);
}
END_TEST

START_TEST(a_small_later_difference_is_close)
{
    const struct rps_losses_compared compared =
            compare_with(run_of(1, STEPS, 2, 3.0009));

    ck_assert_int_eq(compared.verdict, RPS_LOSSES_CLOSE);
    ck_assert_uint_eq(compared.first_step, 3);
    ck_assert_uint_eq(compared.first_run, 1);
    ck_assert_double_eq(compared.first_loss[0], 3.0);
    ck_assert_double_eq(compared.first_loss[1], 3.0009);
    ck_assert_double_eq_tol(compared.largest, 0.0009, 1e-12);
}
END_TEST

START_TEST(a_difference_of_the_tolerance_is_too_much)
{
    ck_assert_int_eq(compare_with(run_of(1, STEPS, 3, 4.0011)).verdict,
            RPS_LOSSES_DIFFER);
}
END_TEST

START_TEST(the_first_step_may_not_differ_at_all)
{
    const struct rps_losses_compared compared =
            compare_with(run_of(1, STEPS, 0, 1 + 0x1p-52));

    ck_assert_int_eq(compared.verdict, RPS_LOSSES_DIFFER);
    ck_assert_uint_eq(compared.first_step, 1);
}
END_TEST

START_TEST(a_loss_that_is_not_finite_differs_from_one_that_is)
{
    const struct rps_losses_compared compared =
            compare_with(run_of(1, STEPS, 1, (double)NAN));

    ck_assert_int_eq(compared.verdict, RPS_LOSSES_DIFFER);
    ck_assert(compared.not_finite && isinf(compared.largest));
    ck_assert_uint_eq(compared.not_finite_step, 2);
    ck_assert_uint_eq(compared.not_finite_run, 1);
}
END_TEST

START_TEST(a_run_that_ended_early_is_uneven)
{
    const struct rps_losses_compared compared =
            compare_with(run_of(1, 2, 9, 0));

    ck_assert_int_eq(compared.verdict, RPS_LOSSES_UNEVEN);
    ck_assert_uint_eq(compared.uneven_run, 1);
    ck_assert_uint_eq(compared.even_steps, 2);
    ck_assert_uint_eq(compared.steps, 2);
}
END_TEST

START_TEST(a_run_that_began_later_has_no_step_in_common)
{
    const struct rps_losses_compared compared =
            compare_with(run_of(5, STEPS, 9, 0));

    ck_assert_int_eq(compared.verdict, RPS_LOSSES_UNEVEN);
    ck_assert_uint_eq(compared.uneven_run, 1);
    ck_assert_uint_eq(compared.even_steps, 0);
    ck_assert_uint_eq(compared.steps, 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("precision_losses");
    TCase *logs = tcase_create("logs");
    TCase *runs = tcase_create("runs");

    tcase_add_checked_fixture(logs, set_up, tear_down);
    tcase_add_test(logs, a_log_of_recps_train_is_read);
    tcase_add_test(logs, bits_say_more_than_digits);
    tcase_add_test(logs, numbers_that_python_writes_are_not_finite);
    tcase_add_test(logs, what_a_job_went_back_over_is_void);
    tcase_add_loop_test(logs, a_bad_line_is_named, 0,
            (int)(sizeof(bad_logs) / sizeof(bad_logs[0])));
    tcase_add_test(logs, a_line_has_an_end_and_no_nul);
    suite_add_single_threaded(suite, logs);
    tcase_add_test(runs, equal_runs_are_equal);
    tcase_add_test(runs, a_small_later_difference_is_close);
    tcase_add_test(runs, a_difference_of_the_tolerance_is_too_much);
    tcase_add_test(runs, the_first_step_may_not_differ_at_all);
    tcase_add_test(runs, a_loss_that_is_not_finite_differs_from_one_that_is);
    tcase_add_test(runs, a_run_that_ended_early_is_uneven);
    tcase_add_test(runs, a_run_that_began_later_has_no_step_in_common);
    suite_add_single_threaded(suite, runs);
    return run_suite(suite);
}
