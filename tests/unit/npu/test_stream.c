/* SPDX-License-Identifier: Apache-2.0 */
/* Order in a stream and between streams, host functions, failures. */
#include "tests/unit/npu/kernel.h"

#include <stdatomic.h>

static rps_npu *npu;
static rps_npu_stream *a;
static rps_npu_stream *b;

static void
set_up(void)
{
    npu = open_npu();
    a = open_stream(npu, "a");
    b = open_stream(npu, "b");
}

static void
tear_down(void)
{
    rps_npu_stream_destroy(a);
    rps_npu_stream_destroy(b);
    rps_npu_close(npu);
}

START_TEST(a_stream_does_what_it_is_given_in_order)
{
    void *x = take_memory(npu, 4);
    uint32_t expected = 0;

    for (uint32_t i = 0; i < 20000; i++) { /* more than a stream holds */
        give_step(npu, a, x, i);
        expected = expected * 3 + i;
    }
    ck_assert_uint_eq(read_word(a, x), expected);
    ck_assert_ok(rps_npu_free(npu, x));
}
END_TEST

START_TEST(copies_go_in_all_directions)
{
    unsigned char from[3000];
    unsigned char to[3000];
    char *first = take_memory(npu, sizeof(from));
    char *second = take_memory(npu, sizeof(from));
    rps_npu_counters counters;

    for (size_t i = 0; i < sizeof(from); i++) {
        from[i] = (unsigned char)(i * 31);
    }
    ck_assert_ok(rps_npu_copy_async(
            a, first, from, sizeof(from), RPS_NPU_TO_DEVICE));
    ck_assert_ok(rps_npu_copy_async(
            a, second, first, sizeof(from), RPS_NPU_ON_DEVICE));
    ck_assert_ok(rps_npu_fill_async(a, second + 100, 7, 50));
    ck_assert_ok(rps_npu_copy(a, to, second, sizeof(to), RPS_NPU_TO_HOST));
    ck_assert_ok(rps_npu_copy(a, to, second, 0, RPS_NPU_TO_HOST));
    memset(from + 100, 7, 50);
    ck_assert_mem_eq(to, from, sizeof(to));
    rps_npu_read_counters(npu, &counters);
    ck_assert_uint_eq(counters.launches, 4);
    ck_assert_uint_eq(counters.copies_to_device, 1);
    ck_assert_uint_eq(counters.copies_on_device, 1);
    ck_assert_uint_eq(counters.copies_to_host, 1);
    ck_assert_uint_eq(counters.bytes_to_device, sizeof(from));
    ck_assert_uint_eq(counters.bytes_to_host, sizeof(from));
    ck_assert_uint_gt(counters.busy_ns, 0);
    ck_assert_ok(rps_npu_free(npu, first));
    ck_assert_ok(rps_npu_free(npu, second));
}
END_TEST

/* b makes, a uses, b waits before it makes the next: x has one order. */
START_TEST(events_order_work_between_streams)
{
    void *x = take_memory(npu, 4);
    uint32_t expected = 0;
    rps_npu_event *made = NULL;
    rps_npu_event *used = NULL;

    ck_assert_ok(rps_npu_event_create(npu, &made));
    ck_assert_ok(rps_npu_event_create(npu, &used));
    for (uint32_t i = 0; i < 2000; i++) {
        ck_assert_ok(rps_npu_stream_wait(b, used));
        give_step(npu, b, x, i);
        ck_assert_ok(rps_npu_event_record(made, b));
        ck_assert_ok(rps_npu_stream_wait(a, made));
        give_step(npu, a, x, ~i);
        ck_assert_ok(rps_npu_event_record(used, a));
        expected = (expected * 3 + i) * 3 + ~i;
    }
    rps_npu_event_destroy(used); /* who waits goes on waiting */
    rps_npu_event_destroy(made);
    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_uint_eq(read_word(b, x), expected);
    ck_assert_ok(rps_npu_free(npu, x));
}
END_TEST

static rps_status
wait_for_flag(void *context)
{
    atomic_bool *flag = context;

    while (!*flag) {
        usleep(100);
    }
    return RPS_OK;
}

START_TEST(an_event_is_done_when_its_stream_came_to_it)
{
    atomic_bool go = false;
    bool done = true;
    uint64_t ns = 1;
    rps_npu_event *first = NULL;
    rps_npu_event *second = NULL;

    ck_assert_ok(rps_npu_event_create(npu, &first));
    ck_assert_ok(rps_npu_event_create(npu, &second));
    ck_assert(rps_npu_event_query(first));
    rps_npu_event_synchronize(first);
    ck_assert_int_eq(rps_npu_event_elapsed(first, second, &ns), RPS_E_INVAL);
    ck_assert_ok(rps_npu_event_record(first, a));
    ck_assert_ok(rps_npu_call_async(a, "gate", wait_for_flag, &go));
    ck_assert_ok(rps_npu_event_record(second, a));
    rps_npu_event_synchronize(first);
    ck_assert(rps_npu_event_query(first));
    ck_assert(!rps_npu_event_query(second));
    ck_assert_ok(rps_npu_stream_query(a, &done));
    ck_assert(!done);
    ck_assert_ok(rps_npu_stream_query(b, &done));
    ck_assert(done);
    ck_assert_int_eq(rps_npu_event_elapsed(first, second, &ns), RPS_E_INVAL);
    assert_words("not done");
    usleep(2000);
    go = true;
    rps_npu_event_synchronize(second);
    ck_assert_ok(rps_npu_event_elapsed(first, second, &ns));
    ck_assert_uint_ge(ns, 2000000);
    ck_assert_int_eq(rps_npu_event_elapsed(second, first, &ns), RPS_E_INVAL);
    assert_words("before the first");
    rps_npu_event_destroy(first);
    rps_npu_event_destroy(second);
}
END_TEST

static rps_status
fail_host(void *context)
{
    return rps_npu_host_failed(RPS_E_UNREACHABLE, "the PS is gone");
}

static rps_status
count_call(void *context)
{
    ++*(int *)context;
    return RPS_OK;
}

START_TEST(a_failure_ends_what_its_stream_has_to_do_until_it_is_reset)
{
    int calls = 0;
    char byte = 0;
    rps_npu_event *event = NULL;

    ck_assert_ok(rps_npu_event_create(npu, &event));
    ck_assert_ok(rps_npu_call_async(a, "push", fail_host, NULL));
    /* what comes behind it may see the failure or not yet */
    (void)!rps_npu_call_async(a, "count", count_call, &calls);
    ck_assert_int_eq(rps_npu_stream_synchronize(a), RPS_E_UNREACHABLE);
    assert_words("npu0 stream \"a\": synchronize: the stream failed "
                 "(RPS_E_UNREACHABLE): call \"push\": the PS is gone");
    ck_assert_int_eq(calls, 0);
    ck_assert_int_eq(rps_npu_call_async(a, "count", count_call, &calls),
            RPS_E_UNREACHABLE);
    ck_assert_int_eq(rps_npu_copy(a, &byte, &byte, 1, RPS_NPU_TO_HOST),
            RPS_E_UNREACHABLE);
    ck_assert_int_eq(rps_npu_event_record(event, a), RPS_E_UNREACHABLE);
    ck_assert_int_eq(rps_npu_synchronize(npu), RPS_E_UNREACHABLE);
    ck_assert_ok(rps_npu_stream_synchronize(b));
    rps_npu_stream_reset(a);
    ck_assert_ok(rps_npu_call_async(a, "count", count_call, &calls));
    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_int_eq(calls, 1);
    rps_npu_event_destroy(event);
}
END_TEST

START_TEST(marks_behind_a_failure_are_reached_all_the_same)
{
    atomic_bool go = false;
    rps_npu_event *event = NULL;

    ck_assert_ok(rps_npu_event_create(npu, &event));
    ck_assert_ok(rps_npu_call_async(a, "gate", wait_for_flag, &go));
    ck_assert_ok(rps_npu_call_async(a, "push", fail_host, NULL));
    ck_assert_ok(rps_npu_event_record(event, a));
    ck_assert_ok(rps_npu_stream_wait(b, event));
    go = true;
    ck_assert_ok(rps_npu_stream_synchronize(b));
    ck_assert(rps_npu_event_query(event));
    rps_npu_event_destroy(event);
    rps_npu_stream_reset(a);
}
END_TEST

static void
write_workspace(const void *args, void *workspace)
{
    const uint64_t bytes = *(const uint64_t *)args;

    ck_assert_uint_eq((uintptr_t)workspace % 64, 0);
    memset(workspace, 1, bytes);
}

START_TEST(a_workspace_is_as_large_as_the_largest_kernel_asks)
{
    for (uint64_t bytes = 1; bytes < UINT64_C(4) << 20; bytes *= 3) {
        const struct rps_npu_operation operation = {
                .type = "scratch",
                .name = "top.1/scratch",
                .kernel = write_workspace,
                .args = &bytes,
                .args_bytes = sizeof(bytes),
                .workspace_bytes = bytes,
        };

        ck_assert_ok(rps_npu_enqueue(a, &operation));
    }
    ck_assert_ok(rps_npu_stream_synchronize(a));
}
END_TEST

START_TEST(words_are_each_threads_own_and_streams_have_names)
{
    rps_npu_stream *none = a;

    ck_assert_int_eq(rps_npu_stream_create(npu, "", &none), RPS_E_INVAL);
    ck_assert_ptr_null(none);
    assert_words("no name");
    ck_assert_ptr_eq(rps_npu_stream_device(a), npu);
    ck_assert_int_eq(rps_npu_call_async(a, "x", NULL, NULL), RPS_E_INVAL);
    assert_words("there is none");
    rps_npu_stream_destroy(NULL);
    rps_npu_event_destroy(NULL);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("stream");
    TCase *tcase = tcase_create("stream");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_stream_does_what_it_is_given_in_order);
    tcase_add_test(tcase, copies_go_in_all_directions);
    tcase_add_test(tcase, events_order_work_between_streams);
    tcase_add_test(tcase, an_event_is_done_when_its_stream_came_to_it);
    tcase_add_test(
            tcase, a_failure_ends_what_its_stream_has_to_do_until_it_is_reset);
    tcase_add_test(tcase, marks_behind_a_failure_are_reached_all_the_same);
    tcase_add_test(tcase, a_workspace_is_as_large_as_the_largest_kernel_asks);
    tcase_add_test(tcase, words_are_each_threads_own_and_streams_have_names);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
