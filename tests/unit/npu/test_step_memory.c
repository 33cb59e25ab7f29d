/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors in captures, and on other streams than their own. */
#include "client/npu/operation.h"
#include "tests/unit/npu/npu.h"

#include <stdatomic.h>

#define WORDS 1000u
#define BYTES 4096u /* of a block of so many words */

static rps_npu *npu;
static rps_npu_stream *a;
static rps_npu_stream *b;
static _Atomic bool gate_is_open;

static void
set_up(void)
{
    npu = open_npu();
    a = open_stream(npu, "a");
    b = open_stream(npu, "b");
    gate_is_open = false;
}

static void
tear_down(void)
{
    rps_npu_pool_stats stats;

    rps_npu_pool_read_stats(npu, &stats);
    ck_assert_uint_eq(stats.allocated.now, 0);
    rps_npu_stream_destroy(a);
    rps_npu_stream_destroy(b);
    rps_npu_close(npu);
}

static rps_npu_tensor
make(rps_npu_stream *stream)
{
    rps_npu_tensor tensor;

    ck_assert_ok(rps_npu_tensor_create(
            stream, RPS_NPU_I32, 1, (const uint64_t[]){WORDS}, &tensor));
    return tensor;
}

static rps_npu_pool_stats
read_stats(void)
{
    rps_npu_pool_stats stats;

    rps_npu_pool_read_stats(npu, &stats);
    return stats;
}

/* A kernel: y = 3 x + add, mod 2^32. */
struct line {
    const int32_t *x;
    int32_t *y;
    int32_t add;
};

static void
run_line(const void *args, void *workspace)
{
    const struct line *line = args;

    for (uint32_t i = 0; i < WORDS; i++) {
        line->y[i] = (int32_t)(3u * (uint32_t)line->x[i] + (uint32_t)line->add);
    }
}

static void
give_line(rps_npu_stream *stream, const rps_npu_tensor *x,
        const rps_npu_tensor *y, int32_t add)
{
    const struct line line = {
            .x = rps_npu_inside(npu, rps_npu_tensor_address(x)),
            .y = rps_npu_inside(npu, rps_npu_tensor_address(y)),
            .add = add,
    };
    const struct rps_npu_operation operation = {
            .type = "line",
            .kernel = run_line,
            .args = &line,
            .args_bytes = sizeof(line),
            .inputs = x,
            .input_count = 1,
            .outputs = y,
            .output_count = 1,
    };

    ck_assert_ok(rps_npu_enqueue(stream, &operation));
}

static void
fill(const rps_npu_tensor *tensor, int32_t value)
{
    int32_t values[WORDS];

    for (uint32_t i = 0; i < WORDS; i++) {
        values[i] = value;
    }
    ck_assert_ok(rps_npu_tensor_from_host(a, tensor, values));
    ck_assert_ok(rps_npu_stream_synchronize(a));
}

static void
assert_all(const rps_npu_tensor *tensor, int32_t value)
{
    int32_t values[WORDS];

    ck_assert_ok(rps_npu_tensor_to_host(a, tensor, values));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    for (uint32_t i = 0; i < WORDS; i++) {
        ck_assert_int_eq(values[i], value);
    }
}

/* x = 3 (3 (3 x + 1) + 2) + 3, by two tensors that live for one kernel each. */
static void
give_chain(const rps_npu_tensor *x)
{
    rps_npu_tensor first = make(a);
    rps_npu_tensor second;

    give_line(a, x, &first, 1);
    second = make(a);
    give_line(a, &first, &second, 2);
    rps_npu_tensor_release(&first);
    first = make(a);
    give_line(a, &second, &first, 3);
    rps_npu_tensor_release(&second);
    ck_assert_ok(rps_npu_copy_async(a, rps_npu_tensor_address(x),
            rps_npu_tensor_address(&first), WORDS * sizeof(int32_t),
            RPS_NPU_ON_DEVICE));
    rps_npu_tensor_release(&first);
}

static int32_t
chain(int32_t x)
{
    return 3 * (3 * (3 * x + 1) + 2) + 3;
}

START_TEST(a_step_with_blocks_that_are_used_again_computes_the_same)
{
    rps_npu_tensor x = make(a);
    rps_npu_step *step = NULL;
    rps_npu_step_info info;

    fill(&x, 5);
    ck_assert_ok(rps_npu_capture_begin(a));
    give_chain(&x);
    ck_assert_ok(rps_npu_capture_end(a, &step));
    rps_npu_step_describe(step, &info);
    ck_assert_uint_eq(info.memory_bytes, 2u << 20);
    /* two blocks serve three tensors */
    ck_assert_uint_eq(read_stats().blocks.total, 4);
    ck_assert_uint_eq(read_stats().allocated.peak, 3 * BYTES);
    ck_assert_ok(rps_npu_launch(a, step, 3));
    assert_all(&x, chain(chain(chain(5))));
    rps_npu_step_destroy(step);
    rps_npu_tensor_release(&x);
}
END_TEST

START_TEST(work_beside_a_step_never_gets_its_memory)
{
    rps_npu_tensor x = make(a);
    rps_npu_tensor other[8];
    rps_npu_step *step = NULL;

    fill(&x, 1);
    ck_assert_ok(rps_npu_capture_begin(a));
    give_chain(&x);
    ck_assert_ok(rps_npu_capture_end(a, &step));
    for (size_t i = 0; i < 8; i++) {
        other[i] = make(a);
        fill(&other[i], 77);
    }
    ck_assert_ok(rps_npu_launch(a, step, 1));
    assert_all(&x, chain(1));
    for (size_t i = 0; i < 8; i++) {
        assert_all(&other[i], 77);
        rps_npu_tensor_release(&other[i]);
    }
    rps_npu_step_destroy(step);
    rps_npu_tensor_release(&x);
}
END_TEST

START_TEST(a_step_holds_tensors_that_are_not_its_own)
{
    rps_npu_tensor x = make(a);
    rps_npu_tensor y = make(a);
    rps_npu_step *step = NULL;

    fill(&x, 4);
    ck_assert_ok(rps_npu_capture_begin(a));
    give_line(a, &x, &y, 1);
    ck_assert_ok(rps_npu_capture_end(a, &step));
    rps_npu_tensor_release(&x);
    ck_assert_uint_eq(read_stats().allocated.now, 2 * BYTES);
    ck_assert_ok(rps_npu_launch(a, step, 1));
    assert_all(&y, 13);
    rps_npu_step_destroy(step);
    ck_assert_uint_eq(read_stats().allocated.now, BYTES);
    rps_npu_tensor_release(&y);
}
END_TEST

START_TEST(a_tensor_of_a_step_may_be_read_after_it)
{
    rps_npu_tensor x = make(a);
    rps_npu_tensor y;
    rps_npu_step *step = NULL;

    fill(&x, 4);
    ck_assert_ok(rps_npu_capture_begin(a));
    y = make(a);
    give_line(a, &x, &y, 1);
    ck_assert_ok(rps_npu_capture_end(a, &step));
    ck_assert_ok(rps_npu_launch(a, step, 1));
    rps_npu_step_destroy(step);
    assert_all(&y, 13);
    rps_npu_tensor_release(&x);
    rps_npu_tensor_release(&y);
    ck_assert_uint_eq(read_stats().held, 0);
}
END_TEST

START_TEST(compiling_and_running_again_and_again_reserves_nothing_more)
{
    rps_npu_tensor x = make(a);
    uint64_t reserved = 0;
    int32_t expected = 0;

    fill(&x, 0);
    for (int compiled = 0; compiled < 20; compiled++) {
        rps_npu_step *step = NULL;

        ck_assert_ok(rps_npu_capture_begin(a));
        give_chain(&x);
        ck_assert_ok(rps_npu_capture_end(a, &step));
        for (int launch = 0; launch < 10; launch++) {
            ck_assert_ok(rps_npu_launch(a, step, 2));
            expected = (int32_t)(27u * (27u * (uint32_t)expected + 18u) + 18u);
        }
        rps_npu_step_destroy(step);
        reserved = compiled == 0 ? read_stats().reserved.now : reserved;
        ck_assert_uint_eq(read_stats().reserved.now, reserved);
    }
    assert_all(&x, expected);
    rps_npu_tensor_release(&x);
}
END_TEST

START_TEST(a_step_of_two_streams_shares_no_block_between_them)
{
    rps_npu_tensor x = make(a);
    rps_npu_tensor y = make(a);
    rps_npu_tensor middle;
    rps_npu_event *event = NULL;
    rps_npu_step *step = NULL;

    fill(&x, 1);
    ck_assert_ok(rps_npu_event_create(npu, &event));
    ck_assert_ok(rps_npu_capture_begin(a));
    middle = make(a);
    give_line(a, &x, &middle, 1);
    ck_assert_ok(rps_npu_event_record(event, a));
    ck_assert_ok(rps_npu_stream_wait(b, event));
    give_line(b, &middle, &y, 2); /* y = 3 (3 x + 1) + 2 */
    rps_npu_tensor_release(&middle);
    middle = make(a); /* b may not have read the former one yet */
    give_line(a, &x, &middle, 100);
    ck_assert_ok(rps_npu_event_record(event, b));
    ck_assert_ok(rps_npu_stream_wait(a, event));
    rps_npu_tensor_release(&middle);
    ck_assert_ok(rps_npu_capture_end(a, &step));
    for (int launch = 0; launch < 200; launch++) {
        ck_assert_ok(rps_npu_launch(a, step, 1));
        assert_all(&y, 14);
    }
    rps_npu_step_destroy(step);
    rps_npu_event_destroy(event);
    rps_npu_tensor_release(&x);
    rps_npu_tensor_release(&y);
}
END_TEST

/* Offloading: a's tensor goes to the host on b, and its block is a's again
 * once a waits for b. */
START_TEST(a_block_that_another_stream_copied_is_used_again_behind_the_copy)
{
    static int32_t host[2][WORDS];
    rps_npu_tensor x = make(a);
    rps_npu_event *event = NULL;
    rps_npu_step *step = NULL;
    void *first = NULL;

    fill(&x, 1);
    ck_assert_ok(rps_npu_event_create(npu, &event));
    ck_assert_ok(rps_npu_capture_begin(a));
    for (int i = 0; i < 2; i++) {
        rps_npu_tensor moved = make(a);

        first = i == 0 ? rps_npu_tensor_address(&moved) : first;
        ck_assert_ptr_eq(rps_npu_tensor_address(&moved), first);
        give_line(a, &x, &moved, 10 + i);
        ck_assert_ok(rps_npu_event_record(event, a));
        ck_assert_ok(rps_npu_stream_wait(b, event));
        ck_assert_ok(rps_npu_tensor_to_host(b, &moved, host[i]));
        ck_assert_ok(rps_npu_event_record(event, b));
        rps_npu_tensor_release(&moved);
        moved = make(a); /* b may still copy */
        ck_assert_ptr_ne(rps_npu_tensor_address(&moved), first);
        rps_npu_tensor_release(&moved);
        ck_assert_ok(rps_npu_stream_wait(a, event));
    }
    ck_assert_ok(rps_npu_capture_end(a, &step));
    for (int launch = 0; launch < 100; launch++) {
        memset(host, 0, sizeof(host));
        ck_assert_ok(rps_npu_launch(a, step, 1));
        ck_assert_ok(rps_npu_stream_synchronize(a));
        for (uint32_t i = 0; i < WORDS; i++) {
            ck_assert_int_eq(host[0][i], 13);
            ck_assert_int_eq(host[1][i], 14);
        }
    }
    rps_npu_step_destroy(step);
    rps_npu_event_destroy(event);
    rps_npu_tensor_release(&x);
}
END_TEST

static rps_status
wait_for_gate(void *context)
{
    while (!gate_is_open) {
        usleep(100);
    }
    return RPS_OK;
}

START_TEST(a_tensor_that_another_streams_kernel_reads_keeps_its_memory)
{
    rps_npu_tensor x = make(a);
    rps_npu_tensor y = make(b);
    rps_npu_tensor next;

    fill(&x, 6);
    ck_assert_ok(rps_npu_call_async(b, "wait", wait_for_gate, NULL));
    give_line(b, &x, &y, 1);
    rps_npu_tensor_release(&x);
    next = make(a);
    fill(&next, 1000);
    gate_is_open = true;
    ck_assert_ok(rps_npu_stream_synchronize(b));
    assert_all(&y, 19);
    rps_npu_tensor_release(&y);
    rps_npu_tensor_release(&next);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_step_memory");
    TCase *tcase = tcase_create("memory");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(
            tcase, a_step_with_blocks_that_are_used_again_computes_the_same);
    tcase_add_test(tcase, work_beside_a_step_never_gets_its_memory);
    tcase_add_test(tcase, a_step_holds_tensors_that_are_not_its_own);
    tcase_add_test(tcase, a_tensor_of_a_step_may_be_read_after_it);
    tcase_add_test(
            tcase, compiling_and_running_again_and_again_reserves_nothing_more);
    tcase_add_test(tcase, a_step_of_two_streams_shares_no_block_between_them);
    tcase_add_test(tcase,
            a_block_that_another_stream_copied_is_used_again_behind_the_copy);
    tcase_add_test(
            tcase, a_tensor_that_another_streams_kernel_reads_keeps_its_memory);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
