/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/report.h"
#include "client/worker/summary.h"
#include "tests/unit/suite.h"
#include "tests/unit/worker/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>

static char *
read_file(const char *name)
{
    char *bytes = NULL;
    size_t length = 0;
    struct rps_error error = {""};

    ck_assert_msg(rps_file_read(path_of(name), 1 << 20, &bytes, &length,
                          &error) == RPS_OK,
            "%s", error.text);
    return bytes;
}

static void
redirect_stdout(void)
{
    make_folder();
    unsetenv("RECPS_PROGRESS");
    ck_assert_ptr_nonnull(freopen(path_of("stdout"), "w+", stdout));
}

/* Three steps and an end. */
static void
run(const struct rps_report_options *options, bool complete)
{
    const double losses[] = {0.5, 0.693147180559945, NAN};
    struct rps_report_end end = {.steps = 3};
    struct rps_report *report = NULL;
    struct rps_error error = {""};
    uint64_t i;

    if (complete) {
        end = (struct rps_report_end){.has_auc = true,
                .auc = 0.75,
                .has_log_loss = true,
                .log_loss = 0.25,
                .has_final_loss = true,
                .final_loss = 0.125,
                .steps = 3,
                .samples_per_second = 1000.0};
    }
    ck_assert_msg(rps_report_create(&report, options, &error) == RPS_OK, "%s",
            error.text);
    for (i = 0; i < 3; i++) {
        struct rps_report_step step = {.step = i + 1,
                .loss = losses[i],
                .samples = 128,
                .sparse_lr = 0.02,
                .dense_lr = 0.001,
                .round_trips = 3};

        ck_assert_int_eq(rps_report_step(report, &step, &error), RPS_OK);
    }
    rps_report_note(report, "a note");
    ck_assert_int_eq(rps_report_done(report, &end, &error), RPS_OK);
    rps_report_destroy(report);
}

START_TEST(the_json_log_has_a_line_a_step_and_an_end)
{
    struct rps_report_options options = {.log_every = 1};
    char *text;

    options.json_log = path_of("log");
    run(&options, true);
    text = read_file("log");
    ck_assert_str_eq(text,
            "{\"step\": 1, \"loss\": 0.5, \"sparse_lr\": 0.02, "
            "\"dense_lr\": 0.001, \"round_trips\": 3}\n"
            "{\"step\": 2, \"loss\": 0.693147181, \"sparse_lr\": 0.02, "
            "\"dense_lr\": 0.001, \"round_trips\": 3}\n"
            "{\"step\": 3, \"loss\": null, \"sparse_lr\": 0.02, "
            "\"dense_lr\": 0.001, \"round_trips\": 3}\n"
            "{\"event\": \"done\", \"auc\": 0.75, \"log_loss\": 0.25, "
            "\"final_loss\": 0.125, \"steps\": 3, "
            "\"samples_per_second\": 1000}\n");
    free(text);
}
END_TEST

START_TEST(stages_and_the_bits_of_a_loss_are_in_log_and_last_lines)
{
    const struct rps_report_stage stages[] = {{"read", "read", 0.25},
            {"push_wait", "push wait", 0.75}, {"save", "save", 0.0}};
    const struct rps_report_stage reader[] = {{"split", "keys", 0.5}};
    const struct rps_report_step step = {
            .step = 1, .loss = 0.5, .round_trips = 4};
    const struct rps_report_end end = {.steps = 1,
            .spent = {.stages = stages,
                    .count = 3,
                    .reader = reader,
                    .reader_count = 1,
                    .depth = 2,
                    .round_trips = 4.0,
                    .sent_bytes = 2048.4,
                    .received_bytes = 3e6}};
    struct rps_report_options options = {.log_every = 1, .loss_bits = true};
    struct rps_report *report = NULL;
    struct rps_error error = {""};
    char *text;

    options.json_log = path_of("log");
    ck_assert_int_eq(rps_report_create(&report, &options, &error), RPS_OK);
    ck_assert_int_eq(rps_report_step(report, &step, &error), RPS_OK);
    ck_assert_int_eq(rps_report_done(report, &end, &error), RPS_OK);
    rps_report_destroy(report);
    text = read_file("log");
    ck_assert_ptr_nonnull(strstr(text,
            "\"round_trips\": 4, \"loss_bits\": \"3fe0000000000000\"}\n"));
    ck_assert_ptr_nonnull(strstr(text,
            "\"pipeline_depth\": 2, \"round_trips_per_step\": 4, "
            "\"stages\": {\"read\": 0.2500, \"push_wait\": 0.7500, "
            "\"save\": 0.0000}, \"reader\": {\"split\": 0.5000}, "
            "\"sent_bytes_per_step\": 2048, "
            "\"received_bytes_per_step\": 3000000}\n"));
    free(text);
    text = read_file("stdout");
    ck_assert_ptr_nonnull(strstr(text,
            "\npipeline depth 2 round trips a step 4: read 25.0 %, push wait "
            "75.0 %; beside it: keys 50.0 %; 2.0 KiB sent and 2.9 MiB "
            "received a step\ndone steps 1\n"));
    free(text);
}
END_TEST

START_TEST(what_there_is_not_is_null)
{
    struct rps_report_options options = {.log_every = 100};
    char *text;

    options.json_log = path_of("log");
    run(&options, false);
    text = read_file("log");
    ck_assert_str_eq(text,
            "{\"event\": \"done\", \"auc\": null, \"log_loss\": null, "
            "\"final_loss\": null, \"steps\": 3, "
            "\"samples_per_second\": null}\n");
    free(text);
}
END_TEST

START_TEST(without_a_terminal_there_are_plain_lines)
{
    struct rps_report_options options = {.log_every = 2};
    char *text;

    run(&options, true);
    text = read_file("stdout");
    ck_assert_int_eq(
            strncmp(text, "step 2 loss 0.693147181 samples/s ", 34), 0);
    ck_assert_ptr_nonnull(
            strstr(text, "\na note\n"
                         "done steps 3 auc 0.75 log_loss 0.25 final_loss 0.125 "
                         "samples/s 1000\n"));
    ck_assert_ptr_null(strchr(text, '\r'));
    free(text);
}
END_TEST

START_TEST(the_live_line_is_redrawn_and_gone_before_other_lines)
{
    struct rps_report_options options = {.log_every = 1, .steps_total = 3};
    char *text;

    ck_assert_int_eq(setenv("RECPS_PROGRESS", "1", 1), 0);
    run(&options, true);
    text = read_file("stdout");
    ck_assert_ptr_nonnull(strstr(text, "\r\033[Kstep 1/3  loss 0.5"));
    ck_assert_ptr_nonnull(strstr(text, "\r\033[Kstep 3/3  loss nan"));
    ck_assert_ptr_nonnull(strstr(text, " 0:00 left\r\033[Ka note\n"));
    ck_assert_ptr_null(strstr(text, "samples/s\n"));
    free(text);
}
END_TEST

START_TEST(who_is_not_the_chief_writes_nothing)
{
    struct rps_report_options options = {.log_every = 1, .quiet = true};
    char *text;

    options.json_log = path_of("log");
    options.summary_dir = path_of("summaries");
    run(&options, true);
    text = read_file("stdout");
    ck_assert_str_eq(text, "");
    free(text);
    ck_assert_int_ne(access(path_of("log"), F_OK), 0);
    ck_assert_int_ne(access(path_of("summaries"), F_OK), 0);
}
END_TEST

START_TEST(a_log_that_cannot_be_made_is_named)
{
    struct rps_report_options options = {.log_every = 1};
    struct rps_report *report = NULL;
    struct rps_error error = {""};

    options.json_log = path_of("none/log");
    ck_assert_int_eq(rps_report_create(&report, &options, &error), RPS_E_IO);
    ck_assert_ptr_null(report);
    ck_assert_ptr_nonnull(strstr(error.text, "--json-log: "));
    ck_assert_ptr_nonnull(strstr(error.text, "none/log"));
}
END_TEST

START_TEST(samples_per_second_is_of_the_steps_so_far)
{
    struct rps_report_options options = {.log_every = 1, .quiet = true};
    struct rps_report_step step = {.step = 1, .loss = 1.0, .samples = 1000};
    struct rps_report *report = NULL;
    double rate;

    ck_assert_int_eq(rps_report_create(&report, &options, NULL), RPS_OK);
    ck_assert_double_eq(rps_report_samples_per_second(report), 0.0);
    rps_report_start(report);
    ck_assert_int_eq(usleep(10000), 0);
    ck_assert_int_eq(rps_report_step(report, &step, NULL), RPS_OK);
    rate = rps_report_samples_per_second(report);
    ck_assert_double_gt(rate, 0.0);
    ck_assert_double_le(rate, 100000.0);
    rps_report_destroy(report);
}
END_TEST

/* Vectors of RFC 3720, B.4, and the usual check value. */
START_TEST(crc32c_gives_the_published_values)
{
    uint8_t bytes[32];
    int i;

    ck_assert_uint_eq(rps_crc32c("123456789", 9), 0xe3069283);
    memset(bytes, 0, sizeof(bytes));
    ck_assert_uint_eq(rps_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof(bytes));
    ck_assert_uint_eq(rps_crc32c(bytes, 32), 0x62a8ab43);
    for (i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    ck_assert_uint_eq(rps_crc32c(bytes, 32), 0x46dd794e);
}
END_TEST

START_TEST(two_runs_in_one_second_write_two_event_files)
{
    struct rps_report_options options = {.log_every = 1};
    struct dirent *entry;
    unsigned count = 0;
    DIR *events;

    options.summary_dir = path_of("events");
    run(&options, true);
    run(&options, true);
    events = opendir(path_of("events"));
    ck_assert_ptr_nonnull(events);
    while ((entry = readdir(events)) != NULL) {
        count += strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
    }
    closedir(events);
    ck_assert_uint_eq(count, 2);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("report");
    TCase *tc = tcase_create("report");

    tcase_set_timeout(tc, 60); /* sanitizers, busy machines */
    tcase_add_checked_fixture(tc, redirect_stdout, remove_folder);
    tcase_add_test(tc, the_json_log_has_a_line_a_step_and_an_end);
    tcase_add_test(tc, stages_and_the_bits_of_a_loss_are_in_log_and_last_lines);
    tcase_add_test(tc, what_there_is_not_is_null);
    tcase_add_test(tc, without_a_terminal_there_are_plain_lines);
    tcase_add_test(tc, the_live_line_is_redrawn_and_gone_before_other_lines);
    tcase_add_test(tc, who_is_not_the_chief_writes_nothing);
    tcase_add_test(tc, a_log_that_cannot_be_made_is_named);
    tcase_add_test(tc, samples_per_second_is_of_the_steps_so_far);
    tcase_add_test(tc, crc32c_gives_the_published_values);
    tcase_add_test(tc, two_runs_in_one_second_write_two_event_files);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
