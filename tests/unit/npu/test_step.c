/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled steps: capture, launch, loops, several streams, failures. */
#include "tests/unit/npu/kernel.h"

#include <pthread.h>
#include <stdatomic.h>

static rps_npu *npu;
static rps_npu_stream *a;
static rps_npu_stream *b;
static rps_npu_stream *c;
static void *x;

static void
set_up(void)
{
    npu = open_npu();
    a = open_stream(npu, "a");
    b = open_stream(npu, "b");
    c = open_stream(npu, "c");
    x = take_memory(npu, 4);
}

static void
tear_down(void)
{
    ck_assert_ok(rps_npu_free(npu, x));
    rps_npu_stream_destroy(a);
    rps_npu_stream_destroy(b);
    rps_npu_stream_destroy(c);
    rps_npu_close(npu);
}

static rps_npu_counters
counters(void)
{
    rps_npu_counters now;

    rps_npu_read_counters(npu, &now);
    return now;
}

static rps_npu_event *
make_event(void)
{
    rps_npu_event *event = NULL;

    ck_assert_ok(rps_npu_event_create(npu, &event));
    return event;
}

/* The second stream is behind the first. */
static void
order(rps_npu_stream *first, rps_npu_stream *second)
{
    rps_npu_event *event = make_event();

    ck_assert_ok(rps_npu_event_record(event, first));
    ck_assert_ok(rps_npu_stream_wait(second, event));
    rps_npu_event_destroy(event);
}

static rps_npu_step *
end_capture(rps_npu_stream *stream)
{
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_end(stream, &step));
    return step;
}

/* x = 9 x + 11 an iteration */
static rps_npu_step *
capture_two_kernels(void)
{
    ck_assert_ok(rps_npu_capture_begin(a));
    give_step(npu, a, x, 3);
    give_step(npu, a, x, 2);
    return end_capture(a);
}

static uint32_t
two_kernels(uint32_t start, uint64_t iterations)
{
    while (iterations-- > 0) {
        start = (start * 3 + 3) * 3 + 2;
    }
    return start;
}

START_TEST(what_is_captured_is_done_when_it_is_launched)
{
    rps_npu_step *step = capture_two_kernels();
    rps_npu_step_info info;

    ck_assert_uint_eq(read_word(a, x), 0);
    ck_assert_ok(rps_npu_launch(a, step, 5));
    ck_assert_uint_eq(read_word(a, x), two_kernels(0, 5));
    ck_assert_ok(rps_npu_launch(b, step, 1)); /* any stream, one at a time */
    ck_assert_ok(rps_npu_launch(a, step, 1));
    ck_assert_uint_eq(read_word(a, x), two_kernels(0, 7));
    ck_assert_uint_eq(counters().steps, 7);
    ck_assert_uint_eq(counters().captures, 1);
    ck_assert_uint_eq(counters().operations, 14);
    ck_assert_uint_eq(counters().launches, 3 + 3);
    rps_npu_step_describe(step, &info);
    ck_assert_uint_eq(info.operations, 2);
    ck_assert_uint_eq(info.copies, 0);
    ck_assert_uint_eq(info.calls, 0);
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_hundred_steps_in_loops_of_thirty_are_four_launches)
{
    rps_npu_step *step = capture_two_kernels();
    uint64_t done = 0;

    ck_assert_ok(rps_npu_set_loop_size(30));
    ck_assert_ok(rps_npu_run(a, step, 100, &done));
    ck_assert_uint_eq(done, 100);
    ck_assert_uint_eq(counters().launches, 4);
    ck_assert_uint_eq(counters().steps, 100);
    ck_assert_uint_eq(read_word(a, x), two_kernels(0, 100));
    ck_assert_ok(rps_npu_set_loop_size(1)); /* also between loops */
    ck_assert_ok(rps_npu_run(a, step, 7, NULL));
    ck_assert_uint_eq(counters().launches, 4 + 1 + 7);
    ck_assert_ok(rps_npu_run(a, step, 0, &done));
    ck_assert_uint_eq(done, 0);
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(the_loop_size_is_the_variables_until_it_is_set)
{
    uint64_t size = 0;

    setenv("NPU_LOOP_SIZE", "32", 1);
    ck_assert_ok(rps_npu_loop_size(&size));
    ck_assert_uint_eq(size, 32);
    ck_assert_ok(rps_npu_set_loop_size(7));
    ck_assert_ok(rps_npu_loop_size(&size));
    ck_assert_uint_eq(size, 7);
    ck_assert_int_eq(rps_npu_set_loop_size(0), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_set_loop_size(1000001), RPS_E_INVAL);
    assert_words("1000001 iterations; 1 to 1000000");
}
END_TEST

START_TEST(a_loop_size_that_is_none_is_an_error_until_it_is_set)
{
    uint64_t size = 0;

    setenv("NPU_LOOP_SIZE", "-3", 1);
    ck_assert_int_eq(rps_npu_loop_size(&size), RPS_E_INVAL);
    assert_words("NPU_LOOP_SIZE");
    ck_assert_uint_eq(size, 1);
    ck_assert_ok(rps_npu_set_loop_size(2));
    ck_assert_ok(rps_npu_loop_size(&size));
    ck_assert_uint_eq(size, 2);
}
END_TEST

/* a, then b, then c (behind b), then a again: one order of x. */
static rps_npu_step *
capture_three_streams(void)
{
    ck_assert_ok(rps_npu_capture_begin(a));
    give_step(npu, a, x, 1);
    order(a, b);
    give_step(npu, b, x, 2);
    order(b, c);
    give_step(npu, c, x, 3);
    order(c, a);
    give_step(npu, a, x, 4);
    return end_capture(a);
}

static uint32_t
three_streams(uint32_t start, uint64_t iterations)
{
    while (iterations-- > 0) {
        for (uint32_t add = 1; add <= 4; add++) {
            start = start * 3 + add;
        }
    }
    return start;
}

START_TEST(streams_of_a_step_keep_their_order_in_every_iteration)
{
    rps_npu_step *step = capture_three_streams();

    ck_assert_ok(rps_npu_launch(a, step, 500));
    ck_assert_ok(rps_npu_launch(a, step, 1));
    ck_assert_ok(rps_npu_launch(a, step, 500));
    ck_assert_uint_eq(read_word(a, x), three_streams(0, 1001));
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_step_may_be_destroyed_behind_its_launch)
{
    for (int i = 0; i < 100; i++) {
        rps_npu_step *step = capture_three_streams();

        ck_assert_ok(rps_npu_launch(a, step, 2));
        rps_npu_step_destroy(step);
    }
    rps_npu_step_destroy(NULL);
    ck_assert_uint_eq(read_word(a, x), three_streams(0, 200));
}
END_TEST

/* b is given what waits for the launch before the launch has come to b. */
START_TEST(what_waits_for_a_launch_comes_behind_its_part_in_the_same_stream)
{
    rps_npu_step *step = capture_three_streams();

    for (uint32_t i = 0; i < 200; i++) {
        ck_assert_ok(rps_npu_launch(a, step, 1));
        order(a, b);
        give_step(npu, b, x, 9);
        order(b, a);
    }
    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_uint_eq(counters().steps, 200);
    rps_npu_step_destroy(step);
}
END_TEST

static void *
launch_often(void *context)
{
    rps_npu_stream *stream = *(rps_npu_stream **)context;
    rps_npu_step *step = ((void **)context)[1];

    for (int i = 0; i < 300; i++) {
        ck_assert_ok(rps_npu_launch(stream, step, 1));
    }
    return NULL;
}

/* Each has the other's stream as its side stream. */
START_TEST(steps_that_share_streams_do_not_wait_for_each_other)
{
    void *first[2] = {a, NULL};
    void *second[2] = {b, NULL};
    pthread_t thread;

    ck_assert_ok(rps_npu_capture_begin(a));
    order(a, b);
    give_step(npu, b, x, 1);
    order(b, a);
    first[1] = end_capture(a);
    ck_assert_ok(rps_npu_capture_begin(b));
    order(b, a);
    give_step(npu, a, x, 1);
    order(a, b);
    second[1] = end_capture(b);
    ck_assert_int_eq(pthread_create(&thread, NULL, launch_often, first), 0);
    launch_often(second);
    pthread_join(thread, NULL);
    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_uint_eq(counters().steps, 600);
    rps_npu_step_destroy(first[1]);
    rps_npu_step_destroy(second[1]);
}
END_TEST

static void
assert_no_step(rps_npu_stream *stream, const char *words)
{
    rps_npu_step *step = (rps_npu_step *)&npu;

    ck_assert_int_eq(rps_npu_capture_end(stream, &step), RPS_E_INVAL);
    ck_assert_ptr_null(step);
    assert_words(words);
}

START_TEST(what_no_step_can_do_makes_the_capture_void)
{
    char byte = 0;
    bool done = false;

    assert_no_step(a, "it began none");
    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_int_eq(rps_npu_capture_begin(a), RPS_E_INVAL);
    assert_words("it captures already");
    ck_assert_int_eq(rps_npu_stream_synchronize(a), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_stream_query(a, &done), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_npu_copy(a, &byte, x, 1, RPS_NPU_TO_HOST), RPS_E_INVAL);
    assert_no_step(a, "it is void, since: npu0 stream \"a\": synchronize");
    ck_assert_ok(rps_npu_stream_synchronize(a)); /* it is over */
}
END_TEST

START_TEST(a_stream_that_nobody_waits_for_makes_the_capture_void)
{
    ck_assert_ok(rps_npu_capture_begin(a));
    order(a, b);
    order(b, c);
    give_step(npu, c, x, 1);
    order(b, a); /* which is not behind c */
    assert_no_step(a, "it does not wait for all of stream \"c\"");
    ck_assert_ok(rps_npu_stream_synchronize(c));
    ck_assert_ok(rps_npu_capture_begin(c)); /* none is left in it */
    rps_npu_step_destroy(end_capture(c));
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

START_TEST(events_do_not_cross_the_border_of_a_capture)
{
    rps_npu_event *event = make_event();
    rps_npu_event *outside = make_event();
    atomic_bool go = false;
    uint64_t ns = 0;

    ck_assert_ok(rps_npu_call_async(b, "gate", wait_for_flag, &go));
    ck_assert_ok(rps_npu_event_record(outside, b));
    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_event_record(event, a));
    ck_assert(rps_npu_event_query(event)); /* no mark outside */
    rps_npu_event_synchronize(event);
    ck_assert_int_eq(rps_npu_event_elapsed(event, event, &ns), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_stream_wait(a, outside), RPS_E_INVAL);
    assert_words("recorded outside the capture");
    go = true;
    assert_no_step(a, "recorded outside the capture");
    ck_assert_int_eq(rps_npu_stream_wait(b, event), RPS_E_INVAL);
    assert_words("a capture that has ended");
    ck_assert_ok(rps_npu_stream_synchronize(b));
    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_stream_wait(a, outside)); /* it is done */
    rps_npu_step_destroy(end_capture(a));
    rps_npu_event_destroy(event);
    rps_npu_event_destroy(outside);
}
END_TEST

START_TEST(a_destroyed_stream_leaves_its_capture)
{
    rps_npu_stream *gone = open_stream(npu, "gone");

    ck_assert_ok(rps_npu_capture_begin(gone));
    give_step(npu, gone, x, 1);
    rps_npu_stream_destroy(gone);
    gone = open_stream(npu, "gone");
    ck_assert_ok(rps_npu_capture_begin(a));
    order(a, gone);
    rps_npu_stream_destroy(gone);
    assert_no_step(a, "\"gone\" was destroyed");
}
END_TEST

START_TEST(launches_that_cannot_be_are_refused)
{
    rps_npu_step *step = capture_three_streams();

    ck_assert_int_eq(rps_npu_launch(a, step, 0), RPS_E_INVAL);
    assert_words("a loop of 0 iterations");
    ck_assert_int_eq(rps_npu_launch(b, step, 1), RPS_E_INVAL);
    assert_words("another one's capture came to");
    ck_assert_int_eq(rps_npu_launch(a, NULL, 1), RPS_E_INVAL);
    ck_assert_uint_eq(counters().launches, 0);
    rps_npu_step_destroy(step);
}
END_TEST

struct countdown {
    int left;
    int calls;
};

static rps_status
fail_at_last(void *context)
{
    struct countdown *countdown = context;

    countdown->calls++;
    return --countdown->left > 0
                   ? RPS_OK
                   : rps_npu_host_failed(RPS_E_UNREACHABLE, "the PS is gone");
}

static rps_status
end_at_last(void *context)
{
    struct countdown *countdown = context;

    countdown->calls++;
    if (--countdown->left == 0) {
        rps_npu_host_end_loop();
    }
    return RPS_OK;
}

START_TEST(a_failure_in_any_stream_ends_the_loop_with_its_words)
{
    struct countdown countdown = {.left = 4};
    rps_npu_step *step = NULL;
    uint64_t done = 99;

    ck_assert_ok(rps_npu_capture_begin(a));
    give_step(npu, a, x, 1);
    order(a, b);
    ck_assert_ok(rps_npu_call_async(b, "push", fail_at_last, &countdown));
    order(b, c);
    give_step(npu, c, x, 2);
    order(c, a);
    step = end_capture(a);
    ck_assert_ok(rps_npu_set_loop_size(10));
    ck_assert_int_eq(rps_npu_run(a, step, 20, &done), RPS_E_UNREACHABLE);
    assert_words("call \"push\": the PS is gone");
    ck_assert_uint_eq(done, 3);
    ck_assert_int_eq(countdown.calls, 4);
    ck_assert_int_eq(rps_npu_launch(a, step, 1), RPS_E_UNREACHABLE);
    ck_assert_ok(rps_npu_stream_synchronize(b)); /* the launch was a's */
    rps_npu_stream_reset(a);
    countdown.left = 3;
    ck_assert_ok(rps_npu_run(a, step, 2, &done));
    ck_assert_uint_eq(done, 2);
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_launch_given_behind_a_failure_does_nothing_and_holds_nobody)
{
    struct countdown countdown = {.left = 1};
    atomic_bool go = false;
    rps_npu_step *step = capture_three_streams();

    ck_assert_ok(rps_npu_call_async(a, "gate", wait_for_flag, &go));
    ck_assert_ok(rps_npu_call_async(a, "push", fail_at_last, &countdown));
    ck_assert_ok(rps_npu_launch(a, step, 3));
    ck_assert_ok(rps_npu_launch(a, step, 3));
    go = true;
    ck_assert_int_eq(rps_npu_synchronize(npu), RPS_E_UNREACHABLE);
    ck_assert_uint_eq(counters().steps, 0);
    rps_npu_stream_reset(a);
    ck_assert_ok(rps_npu_launch(a, step, 3));
    ck_assert_uint_eq(read_word(a, x), three_streams(0, 3));
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_host_function_may_end_the_loop_after_its_iteration)
{
    struct countdown countdown = {.left = 4};
    rps_npu_step *step = NULL;
    uint64_t done = 0;

    rps_npu_host_end_loop(); /* outside a step: nothing */
    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_call_async(a, "stop", end_at_last, &countdown));
    give_step(npu, a, x, 1);
    step = end_capture(a);
    ck_assert_ok(rps_npu_set_loop_size(3));
    ck_assert_ok(rps_npu_run(a, step, 100, &done));
    ck_assert_uint_eq(done, 4);
    ck_assert_uint_eq(counters().launches, 2);
    ck_assert_uint_eq(counters().operations, 4);
    rps_npu_step_destroy(step);
}
END_TEST

struct scratch {
    uint64_t bytes;
    unsigned char value;
    uint32_t *wrong; /* inside */
};

/* Both streams' kernels hold their workspace for a while. */
static void
use_scratch(const void *args, void *workspace)
{
    const struct scratch *scratch = args;
    const unsigned char *bytes = workspace;

    memset(workspace, scratch->value, scratch->bytes);
    usleep(100);
    for (uint64_t i = 0; i < scratch->bytes; i++) {
        *scratch->wrong += bytes[i] != scratch->value;
    }
}

static void
give_scratch(rps_npu_stream *stream, uint64_t bytes, unsigned char value,
        void *wrong)
{
    const struct scratch scratch = {bytes, value, rps_npu_inside(npu, wrong)};
    const struct rps_npu_operation operation = {
            .type = "scratch",
            .kernel = use_scratch,
            .args = &scratch,
            .args_bytes = sizeof(scratch),
            .workspace_bytes = bytes,
    };

    ck_assert_ok(rps_npu_enqueue(stream, &operation));
}

START_TEST(streams_of_a_step_have_workspaces_of_their_own)
{
    void *wrong = take_memory(npu, 4);
    rps_npu_step *step = NULL;
    rps_npu_step_info info;

    ck_assert_ok(rps_npu_capture_begin(a));
    order(a, b);
    give_scratch(a, 1000, 1, x);
    give_scratch(b, 3000, 2, wrong);
    give_scratch(a, 70, 3, x);
    order(b, a);
    step = end_capture(a);
    ck_assert_ok(rps_npu_launch(a, step, 20));
    ck_assert_uint_eq(read_word(a, x), 0);
    ck_assert_uint_eq(read_word(a, wrong), 0);
    rps_npu_step_describe(step, &info);
    ck_assert_uint_eq(info.workspace_bytes, 1024 + 3072);
    rps_npu_step_destroy(step);
    ck_assert_ok(rps_npu_free(npu, wrong));
}
END_TEST

START_TEST(copies_fills_and_calls_are_part_of_a_step)
{
    struct countdown countdown = {.left = 1000};
    uint32_t in = 5;
    uint32_t out = 0;
    rps_npu_step *step = NULL;
    rps_npu_step_info info;

    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_copy_async(a, x, &in, 4, RPS_NPU_TO_DEVICE));
    give_step(npu, a, x, 1);
    ck_assert_ok(rps_npu_copy_async(a, &out, x, 4, RPS_NPU_TO_HOST));
    ck_assert_ok(rps_npu_fill_async(a, x, 0, 4));
    ck_assert_ok(rps_npu_call_async(a, "count", end_at_last, &countdown));
    step = end_capture(a);
    ck_assert_uint_eq(out, 0);
    ck_assert_ok(rps_npu_launch(a, step, 10));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    ck_assert_uint_eq(out, 16);
    ck_assert_int_eq(countdown.calls, 10);
    rps_npu_step_describe(step, &info);
    ck_assert_uint_eq(info.operations, 2);
    ck_assert_uint_eq(info.copies, 2);
    ck_assert_uint_eq(info.calls, 1);
    ck_assert_uint_eq(counters().copies_to_device, 10);
    ck_assert_uint_eq(counters().launches, 1);
    rps_npu_step_destroy(step);
}
END_TEST

/* --- memory ------------------------------------------------------------------
 */

static rps_npu_tensor
make_tensor(rps_npu_stream *stream)
{
    static const uint64_t shape[1] = {1000};
    rps_npu_tensor tensor;

    ck_assert_ok(rps_npu_tensor_create(stream, RPS_NPU_F32, 1, shape, &tensor));
    return tensor;
}

static uint64_t
live_bytes(void)
{
    rps_npu_pool_stats stats;

    rps_npu_pool_read_stats(npu, &stats);
    return stats.requested.now;
}

static void
touch(const void *args, void *workspace)
{
}

static void
give_touch(rps_npu_stream *stream, const rps_npu_tensor *tensor)
{
    const struct rps_npu_operation operation = {
            .type = "touch",
            .kernel = touch,
            .inputs = tensor,
            .input_count = 1,
            .outputs = tensor,
            .output_count = 1,
    };

    ck_assert_ok(rps_npu_enqueue(stream, &operation));
}

START_TEST(memory_of_a_capture_is_the_steps_and_used_again_inside_it)
{
    rps_npu_tensor first;
    rps_npu_tensor second;
    rps_npu_tensor outside;
    rps_npu_step *step = NULL;
    rps_npu_step_info info;
    const void *address = NULL;

    ck_assert_ok(rps_npu_capture_begin(a));
    first = make_tensor(a);
    address = rps_npu_tensor_address(&first);
    give_touch(a, &first);
    rps_npu_tensor_release(&first);
    second = make_tensor(a);
    ck_assert_ptr_eq(rps_npu_tensor_address(&second), address);
    rps_npu_tensor_release(&second);
    step = end_capture(a);
    rps_npu_step_describe(step, &info);
    ck_assert_uint_eq(info.memory_bytes, UINT64_C(2) << 20);
    outside = make_tensor(a); /* the step's kernels keep addresses */
    ck_assert_ptr_ne(rps_npu_tensor_address(&outside), address);
    rps_npu_tensor_release(&outside);
    rps_npu_step_destroy(step);
    ck_assert_uint_eq(live_bytes(), 0);
}
END_TEST

START_TEST(a_step_keeps_tensors_that_were_there_before_it)
{
    rps_npu_tensor tensor = make_tensor(b);
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_begin(a));
    give_touch(a, &tensor);
    rps_npu_tensor_release(&tensor);
    ck_assert_uint_eq(live_bytes(), 4000);
    step = end_capture(a);
    ck_assert_ok(rps_npu_launch(a, step, 3));
    ck_assert_uint_eq(live_bytes(), 4000);
    rps_npu_step_destroy(step);
    ck_assert_uint_eq(live_bytes(), 0);
}
END_TEST

struct word {
    uint32_t *word;  /* inside */
    uint32_t *wrong; /* inside; NULL: write it */
};

static void
use_word(const void *args, void *workspace)
{
    const struct word *word = args;

    if (word->wrong == NULL) {
        *word->word = 7;
    } else {
        *word->wrong += *word->word != 7;
    }
}

static void
give_word(const rps_npu_tensor *tensor, void *wrong)
{
    const struct word word = {
            rps_npu_inside(npu, rps_npu_tensor_address(tensor)),
            rps_npu_inside(npu, wrong)};
    const struct rps_npu_operation operation = {
            .type = "word",
            .kernel = use_word,
            .args = &word,
            .args_bytes = sizeof(word),
    };

    ck_assert_ok(rps_npu_enqueue(a, &operation));
}

START_TEST(a_steps_workspace_is_nothing_that_its_tensors_have)
{
    void *ignored = take_memory(npu, 4);
    rps_npu_step *step = NULL;
    rps_npu_tensor tensor;

    ck_assert_ok(rps_npu_capture_begin(a));
    tensor = make_tensor(a);
    give_word(&tensor, NULL);
    give_scratch(a, 4000, 1, ignored);
    give_word(&tensor, x);
    rps_npu_tensor_release(&tensor); /* before the workspace is made */
    step = end_capture(a);
    ck_assert_ok(rps_npu_launch(a, step, 3));
    ck_assert_uint_eq(read_word(a, x), 0);
    rps_npu_step_destroy(step);
    ck_assert_ok(rps_npu_free(npu, ignored));
}
END_TEST

/* The block is b's; a's kernel waits before it uses it. */
START_TEST(a_tensor_of_another_stream_is_kept_until_its_kernel_is_done)
{
    rps_npu_tensor tensor = make_tensor(b);
    const void *address = rps_npu_tensor_address(&tensor);
    rps_npu_tensor again;
    atomic_bool go = false;

    ck_assert_ok(rps_npu_call_async(a, "gate", wait_for_flag, &go));
    give_touch(a, &tensor);
    rps_npu_tensor_release(&tensor);
    again = make_tensor(b);
    ck_assert_ptr_ne(rps_npu_tensor_address(&again), address);
    rps_npu_tensor_release(&again);
    go = true;
    ck_assert_ok(rps_npu_stream_synchronize(a));
    again = make_tensor(b);
    tensor = make_tensor(b);
    ck_assert(rps_npu_tensor_address(&again) == address ||
              rps_npu_tensor_address(&tensor) == address);
    rps_npu_tensor_release(&again);
    rps_npu_tensor_release(&tensor);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("step");
    TCase *tcase = tcase_create("step");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, what_is_captured_is_done_when_it_is_launched);
    tcase_add_test(tcase, a_hundred_steps_in_loops_of_thirty_are_four_launches);
    tcase_add_test(tcase, the_loop_size_is_the_variables_until_it_is_set);
    tcase_add_test(tcase, a_loop_size_that_is_none_is_an_error_until_it_is_set);
    tcase_add_test(
            tcase, streams_of_a_step_keep_their_order_in_every_iteration);
    tcase_add_test(tcase, a_step_may_be_destroyed_behind_its_launch);
    tcase_add_test(tcase,
            what_waits_for_a_launch_comes_behind_its_part_in_the_same_stream);
    tcase_add_test(tcase, steps_that_share_streams_do_not_wait_for_each_other);
    tcase_add_test(tcase, what_no_step_can_do_makes_the_capture_void);
    tcase_add_test(
            tcase, a_stream_that_nobody_waits_for_makes_the_capture_void);
    tcase_add_test(tcase, events_do_not_cross_the_border_of_a_capture);
    tcase_add_test(tcase, a_destroyed_stream_leaves_its_capture);
    tcase_add_test(tcase, launches_that_cannot_be_are_refused);
    tcase_add_test(tcase, a_failure_in_any_stream_ends_the_loop_with_its_words);
    tcase_add_test(tcase,
            a_launch_given_behind_a_failure_does_nothing_and_holds_nobody);
    tcase_add_test(tcase, a_host_function_may_end_the_loop_after_its_iteration);
    tcase_add_test(tcase, streams_of_a_step_have_workspaces_of_their_own);
    tcase_add_test(tcase, copies_fills_and_calls_are_part_of_a_step);
    tcase_add_test(
            tcase, memory_of_a_capture_is_the_steps_and_used_again_inside_it);
    tcase_add_test(tcase, a_steps_workspace_is_nothing_that_its_tensors_have);
    tcase_add_test(tcase, a_step_keeps_tensors_that_were_there_before_it);
    tcase_add_test(
            tcase, a_tensor_of_another_stream_is_kept_until_its_kernel_is_done);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
