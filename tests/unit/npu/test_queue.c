/* SPDX-License-Identifier: Apache-2.0 */
/* Input queues: an input thread fills, steps take; loops, ends, latencies. */
#include "base/clock.h"
#include "tests/unit/npu/kernel.h"

#include <pthread.h>

#define PARTS 2u

static rps_npu *npu;
static rps_npu_stream *a;
static rps_npu_queue *queue;
static void *x;         /* what the kernels compute */
static void *to[PARTS]; /* where sets are taken to */

static const uint64_t bytes[PARTS] = {4, 2000};

static void
set_up(void)
{
    npu = open_npu();
    a = open_stream(npu, "a");
    x = take_memory(npu, 4);
    to[0] = take_memory(npu, bytes[0]);
    to[1] = take_memory(npu, bytes[1]);
    ck_assert_ok(rps_npu_queue_create(npu, "input", 4, bytes, PARTS, &queue));
}

static void
tear_down(void)
{
    rps_npu_queue_destroy(queue);
    ck_assert_ok(rps_npu_free(npu, x));
    ck_assert_ok(rps_npu_free(npu, to[0]));
    ck_assert_ok(rps_npu_free(npu, to[1]));
    rps_npu_stream_destroy(a);
    rps_npu_close(npu);
}

static rps_npu_counters
counters(void)
{
    rps_npu_counters now;

    rps_npu_read_counters(npu, &now);
    return now;
}

static rps_status
put(uint32_t number)
{
    unsigned char more[2000];
    const void *const from[PARTS] = {&number, more};

    memset(more, (int)number, sizeof(more));
    return rps_npu_queue_put(queue, from);
}

struct input {
    uint32_t sets;
    rps_status status; /* of the last put */
};

static void *
put_many(void *context)
{
    struct input *input = context;

    for (uint32_t i = 1; i <= input->sets && input->status == RPS_OK; i++) {
        input->status = put(i);
    }
    if (input->status == RPS_OK) {
        rps_npu_queue_end(queue);
    }
    return NULL;
}

static pthread_t
start_input(struct input *input)
{
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, put_many, input), 0);
    return thread;
}

/* x = 3 x + number + the last byte of the second part */
struct fold {
    uint32_t *x;
    const uint32_t *number;
    const unsigned char *more;
};

static void
run_fold(const void *args, void *workspace)
{
    const struct fold *fold = args;

    *fold->x = *fold->x * 3 + *fold->number + fold->more[1999];
}

static void
give_fold(void)
{
    const struct fold fold = {
            .x = rps_npu_inside(npu, x),
            .number = rps_npu_inside(npu, to[0]),
            .more = rps_npu_inside(npu, to[1]),
    };
    const struct rps_npu_operation operation = {
            .type = "fold",
            .kernel = run_fold,
            .args = &fold,
            .args_bytes = sizeof(fold),
    };

    ck_assert_ok(rps_npu_enqueue(a, &operation));
}

static uint32_t
folded(uint32_t sets)
{
    uint32_t value = 0;

    for (uint32_t i = 1; i <= sets; i++) {
        value = value * 3 + i + (unsigned char)i;
    }
    return value;
}

static rps_npu_step *
capture_fold(void)
{
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_queue_take(a, queue, to));
    give_fold();
    ck_assert_ok(rps_npu_capture_end(a, &step));
    return step;
}

START_TEST(sets_are_taken_in_the_order_in_which_they_were_put)
{
    for (uint32_t i = 1; i <= 10; i++) {
        ck_assert_ok(put(i));
        ck_assert_ok(rps_npu_queue_take(a, queue, to));
        give_fold();
        ck_assert_ok(rps_npu_stream_synchronize(a));
    }
    ck_assert_uint_eq(read_word(a, x), folded(10));
    ck_assert_uint_eq(counters().queue_copies, 10);
    ck_assert_uint_eq(counters().queue_depth_max, 1);
}
END_TEST

static void
run_loops(uint64_t loop)
{
    struct input input = {.sets = 100};
    const pthread_t thread = start_input(&input);
    rps_npu_step *step = capture_fold();
    uint64_t done = 0;

    rps_npu_queue_expect(queue, 100);
    ck_assert_ok(rps_npu_set_loop_size(loop));
    ck_assert_ok(rps_npu_run(a, step, 100, &done));
    pthread_join(thread, NULL);
    ck_assert_int_eq(input.status, RPS_OK);
    ck_assert_uint_eq(done, 100);
    ck_assert_uint_eq(counters().launches, (100 + loop - 1) / loop);
    ck_assert_uint_eq(counters().queue_copies, 100);
    ck_assert_uint_eq(counters().copies_to_device, 100);
    ck_assert_uint_eq(counters().copies_on_device, 100);
    ck_assert_uint_eq(counters().bytes_to_device, 100 * 2004);
    ck_assert_uint_eq(read_word(a, x), folded(100));
    rps_npu_step_destroy(step);
}

START_TEST(every_loop_size_does_the_same_with_as_many_launches_as_loops)
{
    static const uint64_t loops[] = {1, 7, 32, 100, 1000};

    run_loops(loops[_i]);
}
END_TEST

static rps_status
wait_until_full(void *context)
{
    while (counters().queue_depth_max < 4) {
        usleep(100);
    }
    return RPS_OK;
}

/* The first iteration waits until the input thread is as far ahead as it may.
 */
START_TEST(the_input_thread_fills_the_queue_to_its_depth_and_no_further)
{
    struct input input = {.sets = 20};
    rps_npu_step *step = NULL;
    pthread_t thread;
    uint64_t done = 0;

    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_call_async(a, "wait", wait_until_full, NULL));
    ck_assert_ok(rps_npu_queue_take(a, queue, to));
    give_fold();
    ck_assert_ok(rps_npu_capture_end(a, &step));
    thread = start_input(&input);
    ck_assert_ok(rps_npu_set_loop_size(20));
    ck_assert_ok(rps_npu_run(a, step, 20, &done));
    pthread_join(thread, NULL);
    ck_assert_uint_eq(done, 20);
    ck_assert_uint_eq(counters().queue_depth_max, 4);
    ck_assert_uint_eq(read_word(a, x), folded(20));
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(data_that_end_inside_a_loop_end_the_loop)
{
    struct input input = {.sets = 10};
    const pthread_t thread = start_input(&input);
    rps_npu_step *step = capture_fold();
    uint64_t done = 0;

    ck_assert_ok(rps_npu_set_loop_size(4));
    ck_assert_ok(rps_npu_run(a, step, 100, &done));
    pthread_join(thread, NULL);
    ck_assert_uint_eq(done, 10);
    ck_assert_uint_eq(counters().launches, 3);
    ck_assert_uint_eq(counters().steps, 10);
    ck_assert_uint_eq(read_word(a, x), folded(10));
    ck_assert_ok(rps_npu_run(a, step, 100, &done));
    ck_assert_uint_eq(done, 0);
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_loop_larger_than_what_is_left_is_refused_with_both_numbers)
{
    struct input input = {.sets = 10};
    rps_npu_step *step = capture_fold();
    pthread_t thread;

    rps_npu_queue_expect(queue, 10);
    ck_assert_int_eq(rps_npu_launch(a, step, 11), RPS_E_INVAL);
    assert_words("launch a loop of 11: it takes 11 sets of queue \"input\", "
                 "which has 10 left");
    thread = start_input(&input);
    ck_assert_ok(rps_npu_launch(a, step, 7));
    ck_assert_int_eq(rps_npu_launch(a, step, 4), RPS_E_INVAL);
    assert_words("has 3 left");
    ck_assert_ok(rps_npu_launch(a, step, 3));
    ck_assert_uint_eq(read_word(a, x), folded(10));
    ck_assert_int_eq(rps_npu_launch(a, step, 1), RPS_E_INVAL);
    ck_assert_int_eq(rps_npu_queue_take(a, queue, to), RPS_E_INVAL);
    pthread_join(thread, NULL);
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_loop_that_ended_early_gives_back_what_it_did_not_take)
{
    rps_npu_step *step = capture_fold();

    rps_npu_queue_expect(queue, 10);
    ck_assert_ok(put(1));
    rps_npu_queue_end(queue);
    ck_assert_ok(rps_npu_launch(a, step, 10));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    ck_assert_uint_eq(counters().steps, 1);
    ck_assert_ok(rps_npu_launch(a, step, 9));
    ck_assert_int_eq(rps_npu_launch(a, step, 10), RPS_E_INVAL);
    ck_assert_ok(rps_npu_stream_synchronize(a));
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_step_may_take_several_sets)
{
    struct input input = {.sets = 5};
    const pthread_t thread = start_input(&input);
    rps_npu_step *step = NULL;
    uint64_t done = 0;

    ck_assert_ok(rps_npu_capture_begin(a));
    for (int i = 0; i < 2; i++) {
        ck_assert_ok(rps_npu_queue_take(a, queue, to));
        give_fold();
    }
    ck_assert_ok(rps_npu_capture_end(a, &step));
    ck_assert_ok(rps_npu_run(a, step, 3, &done));
    pthread_join(thread, NULL);
    ck_assert_uint_eq(done, 2); /* the fifth is none whole */
    ck_assert_uint_eq(read_word(a, x), folded(4));
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_canceled_queue_lets_everyone_go_and_takes_sets_again)
{
    struct input input = {.sets = 1000};
    pthread_t thread = start_input(&input);
    rps_npu_step *step = capture_fold();

    while (counters().queue_depth_max < 4) {
        usleep(100);
    }
    rps_npu_queue_cancel(queue);
    pthread_join(thread, NULL);
    ck_assert_int_eq(input.status, RPS_E_CANCELED);
    ck_assert_ok(rps_npu_launch(a, step, 5));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    ck_assert_uint_eq(counters().steps, 0);
    rps_npu_queue_restart(queue);
    ck_assert_ok(rps_npu_launch(a, step, 5)); /* waits */
    input = (struct input){.sets = 5};
    thread = start_input(&input);
    ck_assert_uint_eq(read_word(a, x), folded(5));
    pthread_join(thread, NULL);
    rps_npu_queue_restart(queue);
    ck_assert_ok(rps_npu_launch(a, step, 5));
    rps_npu_queue_cancel(queue); /* a step that waits ends its loop */
    ck_assert_ok(rps_npu_stream_synchronize(a));
    ck_assert_uint_eq(counters().steps, 5);
    rps_npu_step_destroy(step);
}
END_TEST

START_TEST(a_stream_that_takes_beyond_the_end_fails)
{
    ck_assert_ok(put(1));
    rps_npu_queue_end(queue);
    ck_assert_ok(rps_npu_queue_take(a, queue, to));
    ck_assert_ok(rps_npu_queue_take(a, queue, to));
    ck_assert_int_eq(rps_npu_stream_synchronize(a), RPS_E_NOT_FOUND);
    assert_words("queue \"input\" has no set left");
    rps_npu_stream_reset(a);
}
END_TEST

START_TEST(queues_and_sets_that_cannot_be_are_refused)
{
    static const uint64_t nothing[1] = {0};
    static const uint64_t much[1] = {UINT64_C(60) << 20};
    rps_npu_queue *none = queue;
    uint32_t number = 0;
    const void *wrong[PARTS] = {&number, x};
    void *short_of[PARTS] = {to[0], (char *)to[1] + 2100};

    ck_assert_int_eq(rps_npu_queue_create(npu, "q", 0, bytes, PARTS, &none),
            RPS_E_INVAL);
    ck_assert_ptr_null(none);
    ck_assert_int_eq(
            rps_npu_queue_create(npu, "q", 1, nothing, 1, &none), RPS_E_INVAL);
    assert_words("part 0 has 0 bytes");
    ck_assert_int_eq(
            rps_npu_queue_create(npu, "q", 2, much, 1, &none), RPS_E_NOMEM);
    ck_assert_int_eq(rps_npu_queue_put(queue, wrong), RPS_E_INVAL);
    assert_words("part 1");
    ck_assert_int_eq(rps_npu_queue_take(a, queue, short_of), RPS_E_INVAL);
    assert_words("to[1]");
    ck_assert_int_eq(rps_npu_queue_take(a, NULL, to), RPS_E_INVAL);
}
END_TEST

/* --- simulated latencies: lower bounds, which no load of the machine breaks -
 */

static void
set_up_slow(void)
{
    rps_npu_options options;

    rps_npu_options_init(&options);
    options.memory_bytes = UINT64_C(16) << 20;
    options.link_bytes_per_second = 1000000000;
    options.copy_latency_ns = 300000;
    options.launch_latency_ns = 200000;
    ck_assert_ok(rps_npu_open(&npu, 0, &options));
    a = open_stream(npu, "a");
}

static void
tear_down_slow(void)
{
    rps_npu_stream_destroy(a);
    rps_npu_close(npu);
}

START_TEST(copies_of_all_streams_share_a_direction_of_the_link)
{
    static char host[3000000];
    rps_npu_stream *b = open_stream(npu, "b");
    char *device = take_memory(npu, sizeof(host));
    const uint64_t start = rps_clock_ns();

    ck_assert_ok(
            rps_npu_copy_async(a, device, host, 1000000, RPS_NPU_TO_DEVICE));
    ck_assert_ok(rps_npu_copy_async(
            b, device + 1000000, host, 2000000, RPS_NPU_TO_DEVICE));
    ck_assert_ok(rps_npu_synchronize(npu));
    ck_assert_uint_ge(rps_clock_ns() - start, 3000000);
    rps_npu_stream_destroy(b);
    ck_assert_ok(rps_npu_free(npu, device));
}
END_TEST

START_TEST(a_launch_takes_its_latency_once_however_often_it_loops)
{
    uint64_t start = 0;
    rps_npu_step *step = NULL;
    void *word = take_memory(npu, 4);

    ck_assert_ok(rps_npu_capture_begin(a));
    start = rps_clock_ns();
    for (uint32_t i = 0; i < 10; i++) {
        give_step(npu, a, word, i);
    }
    ck_assert_ok(rps_npu_capture_end(a, &step));
    for (int i = 0; i < 10; i++) {
        ck_assert_ok(rps_npu_launch(a, step, 1));
    }
    ck_assert_uint_ge(rps_clock_ns() - start, 10 * 200000);
    ck_assert_ok(rps_npu_launch(a, step, 1000));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    ck_assert_uint_eq(counters().launches, 11);
    rps_npu_step_destroy(step);
    ck_assert_ok(rps_npu_free(npu, word));
}
END_TEST

START_TEST(a_copy_takes_its_latency_and_its_bytes)
{
    static char host[100000];
    void *device = take_memory(npu, sizeof(host));
    rps_npu_event *before = NULL;
    rps_npu_event *after = NULL;
    uint64_t ns = 0;

    ck_assert_ok(rps_npu_event_create(npu, &before));
    ck_assert_ok(rps_npu_event_create(npu, &after));
    ck_assert_ok(rps_npu_event_record(before, a));
    for (int i = 0; i < 3; i++) {
        ck_assert_ok(rps_npu_copy_async(
                a, device, host, sizeof(host), RPS_NPU_TO_DEVICE));
    }
    ck_assert_ok(rps_npu_event_record(after, a));
    rps_npu_event_synchronize(after);
    ck_assert_ok(rps_npu_event_elapsed(before, after, &ns));
    ck_assert_uint_ge(ns, 3 * (300000 + 100000));
    rps_npu_event_destroy(before);
    rps_npu_event_destroy(after);
    ck_assert_ok(rps_npu_free(npu, device));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("queue");
    TCase *tcase = tcase_create("queue");
    TCase *slow = tcase_create("latencies");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, sets_are_taken_in_the_order_in_which_they_were_put);
    tcase_add_loop_test(tcase,
            every_loop_size_does_the_same_with_as_many_launches_as_loops, 0, 5);
    tcase_add_test(tcase,
            the_input_thread_fills_the_queue_to_its_depth_and_no_further);
    tcase_add_test(tcase, data_that_end_inside_a_loop_end_the_loop);
    tcase_add_test(tcase,
            a_loop_larger_than_what_is_left_is_refused_with_both_numbers);
    tcase_add_test(
            tcase, a_loop_that_ended_early_gives_back_what_it_did_not_take);
    tcase_add_test(tcase, a_step_may_take_several_sets);
    tcase_add_test(
            tcase, a_canceled_queue_lets_everyone_go_and_takes_sets_again);
    tcase_add_test(tcase, a_stream_that_takes_beyond_the_end_fails);
    tcase_add_test(tcase, queues_and_sets_that_cannot_be_are_refused);
    suite_add_tcase(suite, tcase);
    tcase_add_checked_fixture(slow, set_up_slow, tear_down_slow);
    tcase_add_test(slow, copies_of_all_streams_share_a_direction_of_the_link);
    tcase_add_test(
            slow, a_launch_takes_its_latency_once_however_often_it_loops);
    tcase_add_test(slow, a_copy_takes_its_latency_and_its_bytes);
    suite_add_tcase(suite, slow);
    return run_suite(suite);
}
