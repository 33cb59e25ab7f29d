/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of compiled steps. */
#include "tests/unit/npu/fake_device.h"
#include "tests/unit/suite.h"

#include <string.h>

static struct fake_device device;
static struct rps_npu_pool *pool;
static struct rps_pool_private *step;
static rps_npu_stream compute = {.name = "compute"};
static rps_npu_stream comm = {.name = "comm"};

static void
begin(void)
{
    step = rps_pool_private_create(pool);
    ck_assert_ptr_nonnull(step);
    compute.captures = true;
}

static void
end(void)
{
    rps_pool_private_close(pool, step);
    compute.captures = false;
}

static void
destroy(void)
{
    rps_pool_private_destroy(pool, step);
    step = NULL;
}

static void
setup(void)
{
    fake_device_init(&device, 1024 * MIB);
    pool = fake_pool_create(&device);
}

static void
teardown(void)
{
    rps_pool_private_destroy(pool, step);
    rps_pool_destroy(pool);
    fake_device_finish(&device);
}

/* In the step's memory, on a stream. */
static void *
step_alloc(rps_npu_stream *stream, uint64_t bytes)
{
    struct rps_error error = {.text = ""};
    void *address = NULL;

    ck_assert_msg(rps_pool_alloc(pool, stream, step, bytes, &address, &error) ==
                          RPS_OK,
            "%s", error.text);
    return address;
}

START_TEST(a_capture_uses_again_what_was_freed_in_it)
{
    void *first;

    begin();
    first = step_alloc(&compute, 4096);
    fake_free(pool, first);
    ck_assert_ptr_eq(step_alloc(&compute, 4096), first);
    end();
    ck_assert_uint_eq(rps_pool_private_bytes(pool, step), 2 * MIB);
}
END_TEST

START_TEST(what_was_freed_in_a_capture_is_nobody_elses_until_the_step_is_gone)
{
    void *address;
    rps_npu_pool_stats stats;

    begin();
    address = step_alloc(&compute, 4096);
    fake_free(pool, address);
    end();
    stats = fake_stats(pool);
    ck_assert_uint_eq(stats.held, 2 * MIB);
    ck_assert_uint_eq(stats.active.now, 0);
    ck_assert_uint_eq(stats.largest_free, 0);
    ck_assert_ptr_ne(fake_alloc(pool, &compute, 4096), address);
    ck_assert_uint_eq(rps_pool_trim(pool), 0);
    destroy();
    ck_assert_uint_eq(fake_stats(pool).held, 0);
    ck_assert_ptr_eq(fake_alloc(pool, &comm, 4096), address);
}
END_TEST

START_TEST(each_stream_of_a_capture_has_blocks_of_its_own)
{
    void *address;

    begin();
    comm.captures = true;
    address = step_alloc(&compute, 4096);
    fake_free(pool, address);
    ck_assert_ptr_ne(step_alloc(&comm, 4096), address);
    comm.captures = false;
    end();
    ck_assert_uint_eq(rps_pool_private_bytes(pool, step), 4 * MIB);
}
END_TEST

START_TEST(a_block_that_another_stream_of_the_capture_uses_is_not_used_again)
{
    void *address;

    begin();
    comm.captures = true;
    address = step_alloc(&compute, 4096);
    fake_record(pool, address, &comm);
    fake_free(pool, address);
    ck_assert_ptr_ne(step_alloc(&compute, 4096), address);
    comm.captures = false;
    end();
    ck_assert_uint_eq(fake_stats(pool).active.now, 4096);
}
END_TEST

START_TEST(a_capture_uses_a_block_again_behind_what_others_did_with_it)
{
    void *address;

    begin();
    compute.other = &comm;
    compute.known = 0;
    comm.captures = true;
    address = step_alloc(&compute, 4096);
    fake_record_place(pool, address, &comm, 3);
    fake_record_place(pool, address, &comm, 7);
    fake_free(pool, address);
    compute.known = 6;
    ck_assert_ptr_ne(step_alloc(&compute, 4096), address);
    compute.known = 7;
    ck_assert_ptr_eq(step_alloc(&compute, 4096), address);
    comm.captures = false;
    end();
    compute.other = NULL;
}
END_TEST

START_TEST(a_use_of_which_no_place_is_known_is_never_behind_a_capture)
{
    void *address;

    begin();
    compute.other = &comm;
    comm.captures = true;
    address = step_alloc(&compute, 4096);
    fake_record_place(pool, address, &comm, 3);
    fake_record(pool, address, &comm);
    fake_free(pool, address);
    compute.known = UINT64_MAX;
    ck_assert_ptr_ne(step_alloc(&compute, 4096), address);
    comm.captures = false;
    end();
    compute.other = NULL;
}
END_TEST

START_TEST(a_block_of_no_step_that_a_capturing_stream_uses_waits_for_its_end)
{
    void *address = fake_alloc(pool, &comm, 4096);

    fake_record(pool, address, &compute);
    fake_stream_give(&compute);
    begin();
    fake_free(pool, address);
    ck_assert_uint_eq(fake_stats(pool).active.now, 4096);
    end();
    ck_assert_uint_eq(fake_stats(pool).active.now, 4096);
    fake_stream_finish(&compute);
    ck_assert_uint_eq(fake_stats(pool).active.now, 0);
}
END_TEST

START_TEST(a_step_that_is_compiled_again_takes_the_memory_of_the_former)
{
    for (size_t i = 0; i < 5; i++) {
        begin();
        step_alloc(&compute, 4096);
        fake_free(pool, step_alloc(&compute, 30 * MIB));
        fake_free(pool, step_alloc(&compute, 512));
        end();
        /* what is live goes back by itself */
        fake_free(pool, (void *)(uintptr_t)device.segments[0].address);
        destroy();
    }
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 32 * MIB);
    ck_assert_uint_eq(device.takes, 2);
}
END_TEST

START_TEST(a_block_that_outlives_its_step_goes_back_to_its_stream)
{
    void *address;

    begin();
    address = step_alloc(&compute, 4096);
    end();
    destroy();
    ck_assert_uint_eq(fake_stats(pool).allocated.now, 4096);
    fake_stream_give(&compute);
    fake_free(pool, address);
    /* its stream's kernels may still use it */
    ck_assert_ptr_ne(fake_alloc(pool, &comm, 4096), address);
    fake_stream_finish(&compute);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 4096), address);
}
END_TEST

START_TEST(what_is_freed_after_the_capture_waits_for_its_own_stream)
{
    void *address;

    begin();
    address = step_alloc(&compute, 4096);
    end();
    fake_stream_give(&compute); /* say, a copy of it to the host */
    fake_free(pool, address);
    destroy();
    ck_assert_ptr_ne(fake_alloc(pool, &comm, 4096), address);
    ck_assert_uint_eq(fake_stats(pool).active.now, 8192);
    fake_stream_finish(&compute);
    ck_assert_uint_eq(fake_stats(pool).active.now, 4096);
}
END_TEST

START_TEST(memory_of_a_step_outlives_its_stream)
{
    rps_npu_stream gone = {.name = "gone"};
    void *address;

    begin();
    address = step_alloc(&gone, 4096);
    step_alloc(&compute, 4096);
    end();
    rps_pool_forget_stream(pool, &gone);
    /* another stream at the same place is another stream */
    ck_assert_ptr_ne(fake_alloc(pool, &gone, 4096), address);
    fake_free(pool, address);
    destroy();
    ck_assert_ptr_eq(fake_alloc(pool, &comm, 4096), address);
}
END_TEST

START_TEST(a_snapshot_says_which_step_has_a_segment)
{
    char *text;

    begin();
    step_alloc(&compute, 4096);
    end();
    text = rps_pool_snapshot(pool, 0, 1024 * MIB);
    ck_assert_ptr_nonnull(strstr(text, "\"step\":1,"));
    free(text);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_pool_steps");
    TCase *tcase = tcase_create("steps");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_capture_uses_again_what_was_freed_in_it);
    tcase_add_test(tcase,
            what_was_freed_in_a_capture_is_nobody_elses_until_the_step_is_gone);
    tcase_add_test(tcase, each_stream_of_a_capture_has_blocks_of_its_own);
    tcase_add_test(tcase,
            a_block_that_another_stream_of_the_capture_uses_is_not_used_again);
    tcase_add_test(
            tcase, a_capture_uses_a_block_again_behind_what_others_did_with_it);
    tcase_add_test(
            tcase, a_use_of_which_no_place_is_known_is_never_behind_a_capture);
    tcase_add_test(tcase,
            a_block_of_no_step_that_a_capturing_stream_uses_waits_for_its_end);
    tcase_add_test(tcase,
            a_step_that_is_compiled_again_takes_the_memory_of_the_former);
    tcase_add_test(
            tcase, a_block_that_outlives_its_step_goes_back_to_its_stream);
    tcase_add_test(
            tcase, what_is_freed_after_the_capture_waits_for_its_own_stream);
    tcase_add_test(tcase, memory_of_a_step_outlives_its_stream);
    tcase_add_test(tcase, a_snapshot_says_which_step_has_a_segment);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
