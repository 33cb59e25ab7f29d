/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that come from elsewhere, good ones and bad ones. */
#include "base/file.h"
#include "client/profile/json_stream.h"
#include "client/profile/read.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>

static char folder[FOLDER_BYTES];
static char path[FOLDER_BYTES + 16];

static void
set_up(void)
{
    folder_make(folder);
    (void)snprintf(path, sizeof(path), "%s/trace.json", folder);
}

static void
tear_down(void)
{
    folder_remove(folder);
}

static rps_status
read_bytes(const char *bytes, size_t length, struct rps_totals *totals,
        struct rps_trace_info *info, struct rps_error *error)
{
    rps_status status = rps_file_write(path, bytes, length, true, error);

    ck_assert_int_eq(status, RPS_OK);
    return rps_trace_read(path, "", totals, info, NULL, NULL, error);
}

/* A good one; the caller destroys the totals. */
static struct rps_totals *
read_good(const char *text, struct rps_trace_info *info)
{
    struct rps_totals *totals = rps_totals_create();
    struct rps_error error;
    const rps_status status =
            read_bytes(text, strlen(text), totals, info, &error);

    ck_assert_msg(status == RPS_OK, "%s", error.text);
    rps_totals_work_out(totals);
    return totals;
}

#define OURS                                                                  \
    "{\"otherData\": {\"program\": \"recps\", \"dropped\": 7, \"x\": [{}]}, " \
    "\"more\": {\"a\": [1, \"]}\\\"\", {}]}, \"traceEvents\": ["

START_TEST(a_trace_of_ours_is_added_up)
{
    struct rps_trace_info info;
    struct rps_totals *totals = read_good(OURS
            "{\"ph\": \"M\", \"name\": \"thread_name\"},\n"
            "{\"ph\": \"X\", \"name\": \"step 3\", \"cat\": \"step\", "
            "\"ts\": 1.5, \"dur\": 100, \"pid\": 0, \"tid\": 1},\n"
            "{\"ph\": \"X\", \"name\": \"top.0/linear\", \"cat\": "
            "\"operator\", \"ts\": 2.001, \"dur\": 10.125, \"pid\": 0, "
            "\"tid\": 2, \"args\": {\"type\": \"linear\", \"holds\": "
            "\"linear + bias\", \"bytes\": 12, \"flops\": 34}}\n"
            "], \"end\": null} \n",
            &info);
    size_t count;
    const struct rps_total *total = rps_totals_list(totals, &count);

    ck_assert(info.is_ours && !info.is_torch);
    ck_assert_uint_eq(info.dropped, 7);
    ck_assert_uint_eq(info.spans, 1);
    ck_assert_uint_eq(rps_totals_steps(totals).count, 1);
    ck_assert_uint_eq(rps_totals_steps(totals).ns, 100000);
    ck_assert_uint_eq(count, 1);
    ck_assert_str_eq(total->type, "linear");
    ck_assert_str_eq(total->holds, "linear + bias");
    ck_assert_uint_eq(total->ns, 10125);
    ck_assert_uint_eq(total->bytes, 12);
    ck_assert_uint_eq(total->flops, 34);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(kernels_make_pytorchs_host_operators_scheduling)
{
    struct rps_trace_info info;
    struct rps_totals *totals = read_good(
            "{\"schemaVersion\": 1, \"traceEvents\": ["
            "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", "
            "\"pid\": 12, \"tid\": 12, \"ts\": 1700000000000000, \"dur\": 50},"
            "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", "
            "\"pid\": 0, \"tid\": \"stream 7\", \"ts\": 1700000000000010.25, "
            "\"dur\": 30},"
            "{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"HtoD\", "
            "\"pid\": 0, \"tid\": 7, \"ts\": 5, \"dur\": 3},"
            "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": "
            "\"ncclDevKernel_AllReduce\", \"pid\": 0, \"tid\": 8, \"ts\": 5, "
            "\"dur\": 4},"
            "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": "
            "\"ProfilerStep#3\", \"pid\": 12, \"tid\": 12, \"ts\": 0, "
            "\"dur\": 99},"
            "{\"ph\": \"X\", \"cat\": \"gpu_user_annotation\", \"name\": "
            "\"ProfilerStep#3\", \"pid\": 0, \"tid\": 7, \"ts\": 0, \"dur\": "
            "99},"
            "{\"ph\": \"X\", \"cat\": \"Trace\", \"name\": \"PyTorch "
            "Profiler (0)\", \"pid\": \"Spans\", \"tid\": \"PyTorch "
            "Profiler\", \"ts\": 0, \"dur\": 500},"
            "{\"ph\": \"s\", \"id\": 1, \"cat\": \"ac2g\", \"name\": \"ac2g\", "
            "\"ts\": 1}]}",
            &info);

    ck_assert(info.is_torch && !info.is_ours);
    ck_assert_uint_eq(rps_totals_steps(totals).count, 1);
    ck_assert_uint_eq(rps_totals_class_ns(totals, RPS_PROFILE_OPERATOR), 30000);
    ck_assert_uint_eq(
            rps_totals_class_ns(totals, RPS_PROFILE_SCHEDULING), 50000);
    ck_assert_uint_eq(rps_totals_class_ns(totals, RPS_PROFILE_COPY), 3000);
    ck_assert_uint_eq(
            rps_totals_class_ns(totals, RPS_PROFILE_COMMUNICATION), 4000);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(names_alone_tell_where_there_are_no_categories)
{
    struct rps_trace_info info;
    struct rps_totals *totals = read_good(
            "[{\"name\": \"aten::linear\", \"ph\": \"X\", \"ts\": 10, "
            "\"dur\": 7, \"tid\": 1, \"pid\": \"CPU functions\", \"args\": "
            "{}}, {\"name\": \"AddmmBackward0\", \"ph\": \"X\", \"ts\": 20, "
            "\"dur\": 5, \"tid\": 1, \"pid\": \"CPU functions\"}, "
            "{\"name\": \"Optimizer.step#SGD.step\", \"ph\": \"X\", \"ts\": "
            "30, \"dur\": 4, \"tid\": 1, \"pid\": \"CPU functions\"}]",
            &info);

    ck_assert(info.is_torch);
    ck_assert_uint_eq(rps_totals_class_ns(totals, RPS_PROFILE_OPERATOR), 12000);
    ck_assert_uint_eq(
            rps_totals_class_ns(totals, RPS_PROFILE_SCHEDULING), 4000);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(names_cannot_move_a_terminals_cursor)
{
    struct rps_trace_info info;
    struct rps_totals *totals = read_good(
            "[{\"ph\": \"X\", \"name\": \"a\\u001b[2Jb\\n\\u007f\", \"ts\": 1, "
            "\"dur\": 1}]",
            &info);
    size_t count;

    ck_assert_str_eq(rps_totals_list(totals, &count)->name, "a?[2Jb??");
    rps_totals_destroy(totals);
}
END_TEST

static const struct {
    const char *text;
    rps_status status;
    const char *words;
} bad[] = {
        {"", RPS_E_CORRUPT, "begins with neither"},
        {"hello", RPS_E_CORRUPT, "begins with neither"},
        {"{}", RPS_E_CORRUPT, "no \"traceEvents\""},
        {"{\"a\": 1", RPS_E_CORRUPT, "the file ends where"},
        {"{\"a\" 1}", RPS_E_CORRUPT, "line 1, byte 5: '1' where ':'"},
        {"{1: 2}", RPS_E_CORRUPT, "no name before it"},
        {"{\"a\": }", RPS_E_CORRUPT, "'}' where a value should be"},
        {"{\"a\": [}]}", RPS_E_CORRUPT, "'}' closes nothing"},
        {"{\"a\": \"x", RPS_E_CORRUPT, "the end of a string"},
        {"{\"traceEvents\": 3}", RPS_E_CORRUPT, "'3' where '['"},
        {"{\"traceEvents\": [", RPS_E_CORRUPT, "it is cut off"},
        {"{\"traceEvents\": []", RPS_E_CORRUPT, "it is cut off"},
        {"{\"traceEvents\": []} x", RPS_E_CORRUPT, "follows the trace"},
        {"[1]", RPS_E_CORRUPT, "is no event"},
        {"[[]]", RPS_E_CORRUPT, "is no event"},
        {"[{}]", RPS_E_CORRUPT, "is no event"},
        {"[{\"ph\": \"M\"} {\"ph\": \"M\"}]", RPS_E_CORRUPT, "'{' where ','"},
        {"[{\"ph\": \"M\"},]", RPS_E_CORRUPT, "']' where a value"},
        {"[\n{\"ph\": \"M\"},\n{\"ph\": nil}]", RPS_E_CORRUPT,
                "line 3, byte 26: the value from line 3 on is no JSON"},
        {"[{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1}]", RPS_E_CORRUPT,
                "needs a name, and ts and dur"},
        {"[{\"ph\": \"X\", \"name\": \"a\", \"ts\": -1, \"dur\": 1}]",
                RPS_E_CORRUPT, "numbers from 0 on"},
        {"[{\"ph\": \"X\", \"name\": \"a\", \"ts\": \"1\", \"dur\": 1}]",
                RPS_E_CORRUPT, "numbers from 0 on"},
        {"[{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1e300, \"dur\": 1}]",
                RPS_E_CORRUPT, "numbers from 0 on"},
        {"[{\"ph\": \"X\", \"name\": \"a\", \"ts\": 1e16, \"dur\": 1e16}]",
                RPS_E_CORRUPT, "numbers from 0 on"},
        {"[{\"ph\": \"X\", \"name\": \"\", \"ts\": 1, \"dur\": 1}]",
                RPS_E_CORRUPT, "needs a name"},
        {"[{\"ph\": \"X\", \"name\": 3, \"ts\": 1, \"dur\": 1}]", RPS_E_CORRUPT,
                "needs a name"},
};

START_TEST(bad_json_is_named_by_its_place)
{
    struct rps_totals *totals = rps_totals_create();
    struct rps_trace_info info;
    struct rps_error error = {.text = ""};
    const char *text = bad[_i].text;

    ck_assert_int_eq(read_bytes(text, strlen(text), totals, &info, &error),
            bad[_i].status);
    ck_assert_msg(strstr(error.text, bad[_i].words) != NULL, "%s", error.text);
    ck_assert_ptr_nonnull(strstr(error.text, "trace.json"));
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(what_is_compressed_is_named)
{
    struct rps_totals *totals = rps_totals_create();
    struct rps_trace_info info;
    struct rps_error error;

    ck_assert_int_eq(read_bytes("\x1f\x8b\x08\x00", 4, totals, &info, &error),
            RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "gunzip"));
    ck_assert_int_eq(
            rps_trace_read("/nowhere", "", totals, &info, NULL, NULL, &error),
            RPS_E_NOT_FOUND);
    ck_assert_int_eq(
            rps_trace_read(folder, "", totals, &info, NULL, NULL, &error),
            RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "is a folder"));
    rps_totals_destroy(totals);
}
END_TEST

/* [{"ph": "M", "a": "xxx…"}], or a skipped member of so many brackets */
static rps_status
read_repeated(const char *before, char byte, size_t count, const char *after,
        struct rps_error *error)
{
    const size_t length = strlen(before) + count + strlen(after);
    struct rps_totals *totals = rps_totals_create();
    char *text = malloc(length + 1);
    struct rps_trace_info info;
    rps_status status;

    ck_assert_ptr_nonnull(text);
    memcpy(text, before, strlen(before));
    memset(text + strlen(before), byte, count);
    memcpy(text + strlen(before) + count, after, strlen(after) + 1);
    status = read_bytes(text, length, totals, &info, error);
    free(text);
    rps_totals_destroy(totals);
    return status;
}

START_TEST(values_have_an_end)
{
    struct rps_error error;

    ck_assert_int_eq(read_repeated("[{\"ph\": \"M\", \"a\": \"", 'x', 1000,
                             "\"}]", &error),
            RPS_OK);
    ck_assert_int_eq(read_repeated("[{\"ph\": \"M\", \"a\": \"", 'x',
                             RPS_JSON_VALUE_BYTES_MAX, "\"}]", &error),
            RPS_E_LIMIT);
    /* what is passed over may be of any length, but not of any depth */
    ck_assert_int_eq(
            read_repeated("{\"a\": \"", 'x', 4 * RPS_JSON_VALUE_BYTES_MAX,
                    "\", \"traceEvents\": []}", &error),
            RPS_OK);
    ck_assert_int_eq(
            read_repeated("{\"a\": ", '[', 100000, "", &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "deep"));
    ck_assert_int_eq(
            read_repeated("[", '[', 100000, "", &error), RPS_E_CORRUPT);
    ck_assert_int_eq(read_repeated("[", ' ', 1000000, "]", &error), RPS_OK);
}
END_TEST

START_TEST(every_prefix_of_a_trace_is_refused)
{
    static const char text[] =
            OURS "{\"ph\": \"X\", \"name\": \"a\\\\\", \"cat\": \"operator\", "
                 "\"ts\": 2.5, \"dur\": 1e1, \"args\": {\"bytes\": 3}}]}";
    struct rps_trace_info info;
    struct rps_error error;

    for (size_t n = 0; n + 1 < sizeof(text); n++) {
        struct rps_totals *totals = rps_totals_create();

        ck_assert_int_eq(
                read_bytes(text, n, totals, &info, &error), RPS_E_CORRUPT);
        rps_totals_destroy(totals);
    }
    rps_totals_destroy(read_good(text, &info));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("profile_read");
    TCase *tcase = tcase_create("read");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_trace_of_ours_is_added_up);
    tcase_add_test(tcase, kernels_make_pytorchs_host_operators_scheduling);
    tcase_add_test(tcase, names_alone_tell_where_there_are_no_categories);
    tcase_add_test(tcase, names_cannot_move_a_terminals_cursor);
    tcase_add_loop_test(tcase, bad_json_is_named_by_its_place, 0,
            (int)(sizeof(bad) / sizeof(bad[0])));
    tcase_add_test(tcase, what_is_compressed_is_named);
    tcase_add_test(tcase, values_have_an_end);
    tcase_add_test(tcase, every_prefix_of_a_trace_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
