/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows that are scattered into a store, and copies whose size is read when
 * they are done: in one compiled step, as a device cache has it.
 */
#include "tests/unit/npu/ops.h"

#define STORE  9u
#define DIM    3u
#define ROWS   4u
#define FIRST  2u /* floats before the rows */
#define PACKED (FIRST + ROWS * DIM)

static struct bench bench;
static rps_npu_tensor packed, header, places, store;

static void
set_up(void)
{
    const uint64_t two = 2, rows = ROWS;
    const int32_t nothing[ROWS] = {0};
    const float zeros[STORE * DIM] = {0};

    bench = open_bench();
    packed = vector(&bench, PACKED, zeros);
    header = make_tensor(&bench, RPS_NPU_I32, 1, &two, nothing);
    places = make_tensor(&bench, RPS_NPU_I32, 1, &rows, nothing);
    store = matrix(&bench, STORE, DIM, zeros);
}

static void
tear_down(void)
{
    rps_npu_tensor_release(&packed);
    rps_npu_tensor_release(&header);
    rps_npu_tensor_release(&places);
    rps_npu_tensor_release(&store);
    close_bench(&bench);
}

static void
write_words(const rps_npu_tensor *tensor, const int32_t *words)
{
    ck_assert_ok(rps_npu_tensor_from_host(bench.ops.stream, tensor, words));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
}

/* expected[p]: the first number of the row in place p; its rest counts on. */
static void
assert_store(const float *expected)
{
    float *values = read_tensor(&bench, &store);

    for (size_t i = 0; i < STORE * DIM; i++) {
        const float first = expected[i / DIM];

        ck_assert_float_eq(
                values[i], first == 0.0F ? 0.0F : first + (float)(i % DIM));
    }
    free(values);
}

/* Row i is 100 i + base + 0, 1, 2. */
static void
fill_rows(float *values, float base)
{
    for (size_t i = 0; i < ROWS; i++) {
        for (size_t d = 0; d < DIM; d++) {
            values[FIRST + i * DIM + d] = 100.0F * (float)i + base + (float)d;
        }
    }
}

static void
scatter(void)
{
    ck_assert_ok(rps_npu_scatter_rows(
            &bench.ops, &packed, &header, &places, &store));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
}

static void
give_rows(float base)
{
    float values[PACKED] = {0};

    fill_rows(values, base);
    ck_assert_ok(rps_npu_tensor_from_host(bench.ops.stream, &packed, values));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
}

START_TEST(rows_go_to_their_places_and_no_others_change)
{
    const float first[STORE] = {0, 0, 301, 0, 0, 1, 0, 101, 201};
    const float second[STORE] = {0, 107, 301, 0, 0, 7, 0, 101, 201};

    give_rows(1.0F);
    write_words(&header, (int32_t[]){FIRST, ROWS});
    write_words(&places, (int32_t[]){5, 7, 8, 2});
    scatter();
    assert_store(first);
    give_rows(7.0F);
    write_words(&header, (int32_t[]){FIRST, 2});
    write_words(&places, (int32_t[]){5, 1, 3, 3});
    scatter();
    assert_store(second);
}
END_TEST

START_TEST(numbers_that_lead_out_of_the_tensors_move_nothing)
{
    const float one[STORE] = {1};
    static const int32_t bad[][2] = {{-1, 4}, {PACKED, 1}, {INT32_MAX, 4},
            {PACKED - DIM + 1, 4}, {0, -1}, {0, 0}, {INT32_MIN, INT32_MAX}};

    give_rows(1.0F);
    write_words(&places, (int32_t[]){1, 2, 3, 4});
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        write_words(&header, bad[i]);
        scatter();
    }
    write_words(&places, (int32_t[]){0, -1, STORE, INT32_MIN});
    write_words(&header, (int32_t[]){FIRST, INT32_MAX});
    scatter();
    assert_store(one);
}
END_TEST

START_TEST(tensors_that_do_not_fit_are_named)
{
    ck_assert_int_eq(
            rps_npu_scatter_rows(&bench.ops, &packed, &places, &places, &store),
            RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(rps_npu_error(), "header"));
    ck_assert_int_eq(rps_npu_scatter_rows(
                             &bench.ops, &packed, &header, &places, &packed),
            RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(rps_npu_error(), "y"));
    ck_assert_int_eq(rps_npu_copy_some_async(bench.ops.stream,
                             rps_npu_tensor_address(&packed), &bench, NULL, 4,
                             RPS_NPU_TO_DEVICE),
            RPS_E_INVAL);
}
END_TEST

/* --- a compiled step -------------------------------------------------------
 */

static uint64_t some; /* bytes that the next iteration copies */
static float rows_here[PACKED];
static int32_t header_here[2], places_here[ROWS];
static uint64_t iteration;

/* Iteration n moves n rows, to the places from n on. */
static rps_status
next(void *context)
{
    (void)context;
    fill_rows(rows_here, (float)(iteration + 1));
    header_here[0] = FIRST;
    header_here[1] = (int32_t)iteration;
    for (size_t i = 0; i < ROWS; i++) {
        places_here[i] = (int32_t)(iteration + i);
    }
    some = iteration > 0 ? (FIRST + iteration * DIM) * sizeof(float) : 0;
    iteration++;
    return RPS_OK;
}

static rps_npu_step *
compile(void)
{
    rps_npu_step *step = NULL;

    ck_assert_ok(rps_npu_capture_begin(bench.ops.stream));
    ck_assert_ok(rps_npu_call_async(bench.ops.stream, "next", next, NULL));
    ck_assert_ok(
            rps_npu_tensor_from_host(bench.ops.stream, &header, header_here));
    ck_assert_ok(
            rps_npu_tensor_from_host(bench.ops.stream, &places, places_here));
    ck_assert_ok(rps_npu_copy_some_async(bench.ops.stream,
            rps_npu_tensor_address(&packed), rows_here, &some,
            sizeof(rows_here), RPS_NPU_TO_DEVICE));
    ck_assert_ok(rps_npu_scatter_rows(
            &bench.ops, &packed, &header, &places, &store));
    ck_assert_ok(rps_npu_capture_end(bench.ops.stream, &step));
    return step;
}

START_TEST(a_compiled_step_copies_as_much_as_it_has)
{
    const uint64_t floats = FIRST + DIM + FIRST + 2 * DIM + FIRST + 3 * DIM;
    rps_npu_step *step = compile();
    rps_npu_counters before, after;

    rps_npu_read_counters(bench.npu, &before);
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 3));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    assert_store((float[STORE]){0, 2, 3, 103});
    ck_assert_ok(rps_npu_launch(bench.ops.stream, step, 1));
    ck_assert_ok(rps_npu_stream_synchronize(bench.ops.stream));
    rps_npu_read_counters(bench.npu, &after);
    ck_assert_uint_eq(after.bytes_to_device - before.bytes_to_device,
            floats * sizeof(float) + 4 * (2 + ROWS) * sizeof(int32_t));
    assert_store((float[STORE]){0, 2, 3, 4, 104, 204});
    rps_npu_step_destroy(step);
}
END_TEST

static Suite *
scatter_suite(void)
{
    Suite *suite = suite_create("npu_scatter");
    TCase *tests = tcase_create("scatter");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, rows_go_to_their_places_and_no_others_change);
    tcase_add_test(tests, numbers_that_lead_out_of_the_tensors_move_nothing);
    tcase_add_test(tests, tensors_that_do_not_fit_are_named);
    tcase_add_test(tests, a_compiled_step_copies_as_much_as_it_has);
    suite_add_tcase(suite, tests);
    return suite;
}

int
main(void)
{
    return run_suite(scatter_suite());
}
