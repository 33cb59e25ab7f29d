/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "base/file.h"
#include "client/profile/profile.h"
#include "client/profile/session.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

#define FILE_BYTES_MAX (1u << 20)

static char folder[FOLDER_BYTES];

static void
set_up(void)
{
    folder_make(folder);
}

static void
tear_down(void)
{
    folder_remove(folder);
}

static struct rps_profile_session *
begin(uint64_t first, uint64_t last)
{
    const struct rps_profile_options options = {.folder = folder,
            .rank = 3,
            .first_step = first,
            .last_step = last};
    struct rps_profile_session *session;
    struct rps_error error;

    ck_assert_msg(rps_profile_begin(&session, &options, &error) == RPS_OK, "%s",
            error.text);
    return session;
}

static struct rps_profile_result
end(struct rps_profile_session *session)
{
    struct rps_profile_result result;
    struct rps_error error;

    ck_assert_msg(rps_profile_end(session, &result, &error) == RPS_OK, "%s",
            error.text);
    return result;
}

static char *
read_file(const char *name)
{
    char path[FOLDER_BYTES + 64];
    struct rps_error error;
    char *bytes;
    size_t length;

    (void)snprintf(path, sizeof(path), "%s/rank3/%s", folder, name);
    ck_assert_msg(rps_file_read(path, FILE_BYTES_MAX, &bytes, &length,
                          &error) == RPS_OK,
            "%s", error.text);
    return bytes;
}

static void
add_step(uint64_t step)
{
    const uint64_t now = rps_clock_ns();

    rps_profile_step(step);
    rps_profile_add(&(struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
            .type = "compute",
            .track = "host",
            .start_ns = now + 1000,
            .end_ns = now + 9000});
    rps_profile_add(&(struct rps_profile_span){.class = RPS_PROFILE_OPERATOR,
            .type = "linear",
            .name = "top.0/linear",
            .holds = "linear + bias + relu",
            .track = "host",
            .shapes = "[2,3], \"quoted\"",
            .start_ns = now + 2000,
            .end_ns = now + 5000,
            .bytes = 24,
            .flops = 12});
    rps_profile_add(
            &(struct rps_profile_span){.class = RPS_PROFILE_COMMUNICATION,
                    .type = "push",
                    .track = "net\n\x01\xff",
                    .start_ns = now,
                    .end_ns = now + 7000,
                    .bytes = 100});
    rps_profile_figure("host resident", now + 10, 4096.0);
}

static const json_t *
find_event(const json_t *events, const char *name)
{
    const json_t *event;
    size_t i;

    json_array_foreach(events, i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "name")), name) ==
                0) {
            return event;
        }
    }
    ck_abort_msg("no event %s", name);
}

START_TEST(a_trace_has_every_span_and_figure)
{
    struct rps_profile_session *session = begin(2, 3);
    struct rps_profile_result result;
    char *text;
    json_t *trace;
    const json_t *events, *event, *args;

    for (uint64_t step = 1; step <= 4; step++) {
        add_step(step);
    }
    result = end(session);
    ck_assert_uint_eq(result.steps, 2);
    ck_assert_uint_eq(result.spans, 8);
    ck_assert_uint_eq(result.dropped, 0);
    text = read_file("trace.json");
    trace = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_ptr_nonnull(trace);
    events = json_object_get(trace, "traceEvents");
    /* 2 steps, 8 spans and figures; labels: process, steps, two tracks */
    ck_assert_uint_eq(json_array_size(events), 2 + 8 + 4);
    event = find_event(events, "top.0/linear");
    args = json_object_get(event, "args");
    ck_assert_str_eq(json_string_value(json_object_get(event, "ph")), "X");
    ck_assert_str_eq(
            json_string_value(json_object_get(event, "cat")), "operator");
    ck_assert_double_eq_tol(
            json_number_value(json_object_get(event, "dur")), 3.0, 1e-9);
    ck_assert_str_eq(json_string_value(json_object_get(args, "shapes")),
            "[2,3], \"quoted\"");
    ck_assert_int_eq(json_integer_value(json_object_get(args, "step")), 2);
    ck_assert_int_eq(json_integer_value(json_object_get(args, "flops")), 12);
    event = find_event(events, "step 3");
    ck_assert_str_eq(json_string_value(json_object_get(event, "cat")), "step");
    event = find_event(events, "host resident");
    ck_assert_str_eq(json_string_value(json_object_get(event, "ph")), "C");
    ck_assert_double_eq(json_number_value(json_object_get(
                                json_object_get(event, "args"), "value")),
            4096.0);
    json_decref(trace);
    free(text);
}
END_TEST

START_TEST(tables_add_spans_up)
{
    char *text;

    struct rps_profile_session *session = begin(1, 2);

    add_step(1);
    add_step(2);
    rps_profile_step(3);
    (void)end(session);
    text = read_file("operators.csv");
    ck_assert_ptr_nonnull(strstr(text,
            "\noperator,linear,top.0/linear,linear + bias + relu,host,"
            "\"[2,3], \"\"quoted\"\"\",2,6.000,6.000,3.000,3.000,3.000,"));
    ck_assert_ptr_nonnull(strstr(text, ",48,24\n"));
    free(text);
    text = read_file("communication.csv");
    ck_assert_ptr_nonnull(strstr(text, "\ncommunication,push,push,,\"net\n"));
    free(text);
    text = read_file("scheduling.csv"); /* without the operator inside */
    ck_assert_ptr_nonnull(strstr(text,
            "\nscheduling,compute,compute,,host,,2,16.000,10.000,8.000,"));
    free(text);
    text = read_file("memory.csv");
    ck_assert_ptr_nonnull(strstr(text, ",2,host resident,4096\n"));
    free(text);
}
END_TEST

START_TEST(without_a_step_nothing_is_written)
{
    struct rps_profile_session *session = begin(5, 6);
    char path[FOLDER_BYTES + 64];
    struct rps_profile_result result;

    add_step(1);
    result = end(session);
    ck_assert_uint_eq(result.steps, 0);
    (void)snprintf(path, sizeof(path), "%s/rank3/trace.json", folder);
    ck_assert_int_ne(access(path, F_OK), 0);
    result = end(begin(5, 6)); /* an empty folder is no other profile's */
    ck_assert_uint_eq(result.steps, 0);
}
END_TEST

START_TEST(another_profiles_files_are_not_overwritten)
{
    const struct rps_profile_options options = {
            .folder = folder, .rank = 3, .first_step = 1, .last_step = 1};
    struct rps_profile_options again = options;
    struct rps_profile_session *session = begin(1, 1);
    struct rps_error error;

    add_step(1);
    (void)end(session);
    ck_assert_int_eq(
            rps_profile_begin(&session, &options, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "rank3 is there"));
    again.restart = 1; /* a process that was started again has its own */
    ck_assert_int_eq(rps_profile_begin(&session, &again, &error), RPS_OK);
    ck_assert_ptr_nonnull(strstr(end(session).folder, "rank3.restart1"));
}
END_TEST

START_TEST(it_is_written_when_its_last_step_has_ended)
{
    struct rps_profile_session *session = begin(1, 1);
    char path[FOLDER_BYTES + 64];

    add_step(1);
    add_step(2);
    (void)snprintf(path, sizeof(path), "%s/rank3/memory.csv", folder);
    while (access(path, F_OK) != 0) { /* the test's own time limit ends it */
        (void)usleep(1000);
    }
    ck_assert_uint_eq(end(session).spans, 4);
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_told)
{
    char path[FOLDER_BYTES + 64];
    const struct rps_profile_options options = {
            .folder = path, .first_step = 1, .last_step = 1};
    struct rps_profile_session *session;
    struct rps_error error;

    (void)snprintf(path, sizeof(path), "%s/file", folder);
    ck_assert_int_eq(rps_file_write(path, "", 0, false, &error), RPS_OK);
    ck_assert_int_eq(rps_profile_begin(&session, &options, &error), RPS_E_IO);
    ck_assert_ptr_null(session);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("profile_session");
    TCase *tcase = tcase_create("session");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_trace_has_every_span_and_figure);
    tcase_add_test(tcase, tables_add_spans_up);
    tcase_add_test(tcase, without_a_step_nothing_is_written);
    tcase_add_test(tcase, another_profiles_files_are_not_overwritten);
    tcase_add_test(tcase, it_is_written_when_its_last_step_has_ended);
    tcase_add_test(tcase, a_folder_that_cannot_be_made_is_told);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
