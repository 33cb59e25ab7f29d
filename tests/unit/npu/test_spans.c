/* SPDX-License-Identifier: Apache-2.0 */
/* What a profile shows of the device. */
#include "client/profile/collect.h"
#include "tests/unit/npu/kernel.h"

static rps_npu *npu;
static rps_npu_stream *a;
static void *x;

static void
set_up(void)
{
    npu = open_npu();
    a = open_stream(npu, "compute");
    x = take_memory(npu, 4);
    rps_profile_arm(1, 1, UINT64_C(1) << 20);
    rps_profile_step(1);
}

static void
tear_down(void)
{
    ck_assert_ok(rps_npu_free(npu, x));
    rps_npu_stream_destroy(a);
    rps_npu_close(npu);
}

/* How many spans of this class and type there are, and one of them. */
static size_t
find(const struct rps_profile_collected *collected,
        enum rps_profile_class class, const char *type,
        struct rps_profile_span *span)
{
    size_t count = 0;

    for (size_t i = 0; i < collected->count; i++) {
        const struct rps_profile_record *record = collected->records[i];

        if (!record->is_figure && record->span.class == class &&
                strcmp(record->span.type, type) == 0) {
            *span = record->span;
            count++;
        }
    }
    return count;
}

static rps_status
do_nothing(void *context)
{
    return RPS_OK;
}

static void
nothing(const void *args, void *workspace)
{
}

static void
give_linear(void)
{
    static const uint64_t shape[2] = {128, 13};
    rps_npu_tensor tensor;
    struct rps_npu_operation operation = {
            .type = "linear",
            .name = "top.2/linear",
            .holds = "linear + bias",
            .kernel = nothing,
            .flops = 7,
            .bytes = 9,
            .input_count = 1,
            .output_count = 1,
    };

    ck_assert_ok(rps_npu_tensor_create(a, RPS_NPU_F32, 2, shape, &tensor));
    operation.inputs = &tensor;
    operation.outputs = &tensor;
    ck_assert_ok(rps_npu_enqueue(a, &operation));
    rps_npu_tensor_release(&tensor);
}

START_TEST(every_kernel_copy_call_launch_and_wait_is_a_span)
{
    struct rps_profile_collected collected;
    struct rps_profile_span span;
    uint32_t word = 0;

    give_linear();
    ck_assert_ok(rps_npu_copy_async(a, x, &word, 4, RPS_NPU_TO_DEVICE));
    ck_assert_ok(rps_npu_call_async(a, "push", do_nothing, NULL));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    rps_profile_step(0);
    rps_profile_disarm();
    ck_assert(rps_profile_take(&collected));
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_OPERATOR, "linear", &span), 1);
    ck_assert_str_eq(span.name, "top.2/linear");
    ck_assert_str_eq(span.holds, "linear + bias");
    ck_assert_str_eq(span.track, "npu0 stream compute");
    ck_assert_str_eq(span.shapes, "[128,13] -> [128,13]");
    ck_assert_uint_eq(span.flops, 7);
    ck_assert_uint_eq(span.bytes, 9);
    ck_assert_uint_ge(span.end_ns, span.start_ns);
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_COPY, "to_device", &span), 1);
    ck_assert_uint_eq(span.bytes, 4);
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_SCHEDULING, "host_function", &span),
            1);
    ck_assert_str_eq(span.name, "push");
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_SCHEDULING, "launch", &span), 2);
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_SCHEDULING, "synchronize", &span), 1);
    rps_profile_collected_finish(&collected);
}
END_TEST

/* Its last value; the number of its values. */
static size_t
find_figure(const struct rps_profile_collected *collected, const char *name,
        double *value)
{
    size_t count = 0;

    for (size_t i = 0; i < collected->count; i++) {
        const struct rps_profile_record *record = collected->records[i];

        if (record->is_figure && strcmp(record->span.name, name) == 0) {
            *value = record->value;
            count++;
        }
    }
    return count;
}

START_TEST(memory_is_shown_when_blocks_come_and_go_and_at_launches)
{
    struct rps_profile_collected collected;
    rps_npu_step *step = NULL;
    void *address = NULL;
    double value = -1;

    ck_assert_ok(rps_npu_capture_begin(a));
    ck_assert_ok(rps_npu_pool_alloc(a, 1000, &address)); /* 1 */
    ck_assert_ok(rps_npu_pool_free(npu, address));       /* 2 */
    ck_assert_ok(rps_npu_pool_alloc(a, 3000, &address)); /* 3 */
    ck_assert_ok(rps_npu_capture_end(a, &step));
    ck_assert_ok(rps_npu_launch(a, step, 5)); /* 4 */
    ck_assert_ok(rps_npu_stream_synchronize(a));
    rps_profile_step(0);
    rps_profile_disarm();
    ck_assert(rps_profile_take(&collected));
    ck_assert_uint_eq(find_figure(&collected, "npu0 allocated", &value), 4);
    ck_assert_double_eq(value, 3072);
    ck_assert_uint_eq(find_figure(&collected, "npu0 active", &value), 4);
    ck_assert_double_eq(value, 3072);
    ck_assert_uint_eq(find_figure(&collected, "npu0 reserved", &value), 4);
    ck_assert_double_eq(value, 2 << 20);
    rps_profile_collected_finish(&collected);
    rps_npu_step_destroy(step);
    ck_assert_ok(rps_npu_pool_free(npu, address));
}
END_TEST

START_TEST(a_step_that_was_captured_before_shows_its_kernels_every_time)
{
    struct rps_profile_collected collected;
    struct rps_profile_span span;
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_begin(a));
    give_linear();
    ck_assert_ok(rps_npu_capture_end(a, &step));
    ck_assert_ok(rps_npu_launch(a, step, 5));
    ck_assert_ok(rps_npu_stream_synchronize(a));
    rps_profile_step(0);
    rps_profile_disarm();
    ck_assert(rps_profile_take(&collected));
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_OPERATOR, "linear", &span), 5);
    ck_assert_str_eq(span.shapes, "[128,13] -> [128,13]");
    ck_assert_uint_eq(
            find(&collected, RPS_PROFILE_SCHEDULING, "launch_step", &span), 1);
    rps_profile_collected_finish(&collected);
    rps_npu_step_destroy(step);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("spans");
    TCase *tcase = tcase_create("spans");

    use_own_host();
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, every_kernel_copy_call_launch_and_wait_is_a_span);
    tcase_add_test(
            tcase, memory_is_shown_when_blocks_come_and_go_and_at_launches);
    tcase_add_test(tcase,
            a_step_that_was_captured_before_shows_its_kernels_every_time);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
