/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "tests/unit/npu/fake_device.h"
#include "tests/unit/suite.h"

#include <jansson.h>
#include <string.h>

static struct fake_device device;
static struct rps_npu_pool *pool;
static rps_npu_stream compute = {.name = "compute"};
static rps_npu_stream comm = {.name = "comm"};

static void
setup_with(uint64_t capacity)
{
    fake_device_init(&device, capacity);
    pool = fake_pool_create(&device);
}

static void
setup(void)
{
    setup_with(1024 * MIB);
}

static void
teardown(void)
{
    rps_pool_destroy(pool);
    fake_device_finish(&device);
}

static uint64_t
number(const void *address)
{
    return (uint64_t)(uintptr_t)address;
}

/* --- the guide's examples --------------------------------------------------
 */

START_TEST(of_100_mib_given_back_20_allocated_leave_100_reserved)
{
    rps_npu_pool_stats stats;

    fake_free(pool, fake_alloc(pool, &compute, 100 * MIB));
    fake_alloc(pool, &compute, 20 * MIB);
    stats = fake_stats(pool);
    ck_assert_uint_eq(stats.allocated.now, 20 * MIB);
    ck_assert_uint_eq(stats.reserved.now, 100 * MIB);
    ck_assert_uint_eq(stats.allocated.peak, 100 * MIB);
    ck_assert_uint_eq(stats.largest_free, 80 * MIB);
    ck_assert_double_eq(stats.fragmentation, 0.0);
    ck_assert_uint_eq(stats.requests, 2);
    ck_assert_uint_eq(stats.reused, 1);
}
END_TEST

/* A tensor of stream A is reduced on stream B and let go meanwhile. */
START_TEST(allocated_falls_at_once_and_active_when_the_other_stream_is_done)
{
    void *sum = fake_alloc(pool, &compute, 4 * MIB);
    rps_npu_pool_stats stats;

    fake_record(pool, sum, &comm);
    fake_stream_give(&comm);
    fake_free(pool, sum);
    stats = fake_stats(pool);
    ck_assert_uint_eq(stats.allocated.now, 0);
    ck_assert_uint_eq(stats.active.now, 4 * MIB);
    ck_assert_ptr_ne(fake_alloc(pool, &compute, 4 * MIB), sum);
    fake_stream_finish(&comm);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 4 * MIB), sum);
    stats = fake_stats(pool);
    ck_assert_uint_eq(stats.allocated.now, 8 * MIB);
    ck_assert_uint_eq(stats.active.now, 8 * MIB);
}
END_TEST

/* --- segments and blocks ----------------------------------------------------
 */

START_TEST(segments_are_2_mib_20_mib_or_of_the_requests_own_size)
{
    static const struct {
        uint64_t bytes, reserved;
    } cases[] = {
            {1, 2 * MIB},
            {MIB, 2 * MIB},
            {MIB + 1, 20 * MIB},
            {10 * MIB, 20 * MIB},
            {10 * MIB + 1, 12 * MIB},
            {31 * MIB, 32 * MIB},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        void *address = fake_alloc(pool, &compute, cases[i].bytes);

        ck_assert_uint_eq(number(address) % 512, 0);
        ck_assert_uint_eq(fake_stats(pool).reserved.now, cases[i].reserved);
        fake_free(pool, address);
        ck_assert_uint_eq(rps_pool_trim(pool), cases[i].reserved);
    }
}
END_TEST

START_TEST(small_requests_share_a_segment_and_large_ones_another)
{
    void *small = fake_alloc(pool, &compute, 1000);
    void *next = fake_alloc(pool, &compute, 1000);
    void *large = fake_alloc(pool, &compute, 2 * MIB);

    ck_assert_uint_eq(number(next), number(small) + 1024);
    ck_assert(number(large) >= number(small) + 2 * MIB);
    ck_assert_uint_eq(fake_stats(pool).segments.now, 2);
    ck_assert_uint_eq(fake_stats(pool).requested.now, 2000 + 2 * MIB);
    ck_assert_uint_eq(fake_stats(pool).allocated.now, 2048 + 2 * MIB);
}
END_TEST

START_TEST(the_smallest_block_that_is_large_enough_is_taken)
{
    void *held[7];

    /* holes of 8, 2 and 4 KiB, each between blocks that stay */
    for (size_t i = 0; i < 7; i++) {
        static const uint64_t kib[7] = {1, 8, 1, 2, 1, 4, 1};

        held[i] = fake_alloc(pool, &compute, kib[i] * 1024);
    }
    for (size_t i = 1; i < 7; i += 2) {
        fake_free(pool, held[i]);
    }
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 3 * 1024), held[5]);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 2 * 1024), held[3]);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 2 * 1024), held[1]);
}
END_TEST

START_TEST(neighbours_merge_whatever_the_order_of_their_frees)
{
    static const size_t orders[6][3] = {
            {0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    for (size_t i = 0; i < 6; i++) {
        void *blocks[3];

        for (size_t j = 0; j < 3; j++) {
            blocks[j] = fake_alloc(pool, &compute, 512 * (j + 1));
        }
        for (size_t j = 0; j < 3; j++) {
            fake_free(pool, blocks[orders[i][j]]);
        }
        ck_assert_uint_eq(fake_stats(pool).largest_free, 2 * MIB);
    }
    ck_assert_uint_eq(fake_stats(pool).segments.total, 1);
}
END_TEST

START_TEST(a_rest_that_only_small_requests_could_use_stays_with_its_block)
{
    fake_alloc(pool, &compute, 11 * MIB); /* of 12 */
    ck_assert_uint_eq(fake_stats(pool).allocated.now, 12 * MIB);
    ck_assert_uint_eq(fake_stats(pool).requested.now, 11 * MIB);
    fake_alloc(pool, &compute, 13 * MIB - 512); /* of 14: cut */
    ck_assert_uint_eq(fake_stats(pool).allocated.now, 25 * MIB - 512);
}
END_TEST

START_TEST(fragmentation_is_what_the_largest_free_block_lacks_of_all_free)
{
    void *blocks[4];

    for (size_t i = 0; i < 4; i++) {
        blocks[i] = fake_alloc(pool, &compute, 5 * MIB);
    }
    ck_assert_double_eq(fake_stats(pool).fragmentation, 0.0);
    fake_free(pool, blocks[0]);
    fake_free(pool, blocks[2]);
    /* 5 and 5 of 10 free MiB */
    ck_assert_double_eq(fake_stats(pool).fragmentation, 0.5);
    fake_free(pool, blocks[1]);
    ck_assert_double_eq(fake_stats(pool).fragmentation, 0.0);
}
END_TEST

/* One step of a program: a seed's requests are the same each time. */
static void
repeat(uint64_t seed)
{
    void *live[40] = {NULL};
    uint64_t draw = seed;

    for (size_t i = 0; i < 400; i++) {
        static const uint64_t most[3] = {MIB, 10 * MIB, 60 * MIB};
        const size_t k = (draw = rps_mix64(draw)) % 40;

        if (live[k] != NULL) {
            fake_free(pool, live[k]);
            live[k] = NULL;
        } else {
            live[k] = fake_alloc(
                    pool, &compute, 1 + (draw >> 20) % most[(draw >> 10) % 3]);
        }
    }
    for (size_t k = 0; k < 40; k++) {
        if (live[k] != NULL) {
            fake_free(pool, live[k]);
        }
    }
}

START_TEST(a_program_that_repeats_itself_soon_reserves_nothing_more)
{
    device.capacity = UINT64_C(1) << 40;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        uint64_t reserved;

        repeat(seed);
        repeat(seed);
        repeat(seed);
        reserved = fake_stats(pool).reserved.now;
        for (int step = 3; step < 25; step++) {
            repeat(seed);
            ck_assert_uint_eq(fake_stats(pool).reserved.now, reserved);
        }
        ck_assert_uint_eq(rps_pool_trim(pool), reserved);
    }
}
END_TEST

/* --- streams -----------------------------------------------------------------
 */

START_TEST(a_freed_block_is_its_own_streams_at_once_and_no_others)
{
    void *address = fake_alloc(pool, &compute, 4096);

    fake_stream_give(&compute);
    fake_free(pool, address);
    ck_assert_ptr_ne(fake_alloc(pool, &comm, 4096), address);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 4096), address);
}
END_TEST

START_TEST(recording_its_own_stream_or_one_twice_changes_nothing)
{
    void *address = fake_alloc(pool, &compute, 4096);

    fake_record(pool, address, &compute);
    fake_record(pool, address, &comm);
    fake_record(pool, address, &comm);
    fake_free(pool, address);
    ck_assert_uint_eq(fake_stats(pool).active.now, 0);
}
END_TEST

START_TEST(a_block_waits_for_every_stream_that_was_recorded)
{
    rps_npu_stream copies = {.name = "copies"};
    void *address = fake_alloc(pool, &compute, 4096);

    fake_record(pool, address, &comm);
    fake_record(pool, address, &copies);
    fake_stream_give(&comm);
    fake_stream_give(&copies);
    fake_free(pool, address);
    fake_stream_finish(&copies);
    ck_assert_uint_eq(fake_stats(pool).active.now, 4096);
    fake_stream_finish(&comm);
    ck_assert_uint_eq(fake_stats(pool).active.now, 0);
}
END_TEST

START_TEST(work_that_a_stream_gets_after_the_free_is_not_waited_for)
{
    void *address = fake_alloc(pool, &compute, 4096);

    fake_record(pool, address, &comm);
    fake_stream_give(&comm);
    fake_free(pool, address);
    fake_stream_finish(&comm);
    fake_stream_give(&comm);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 4096), address);
}
END_TEST

START_TEST(what_a_destroyed_stream_had_is_anyones)
{
    rps_npu_stream gone = {.name = "gone"};
    void *kept = fake_alloc(pool, &gone, 4096);
    void *freed = fake_alloc(pool, &gone, 4096);
    void *used = fake_alloc(pool, &compute, 4096);

    fake_record(pool, used, &gone);
    fake_free(pool, freed);
    rps_pool_forget_stream(pool, &gone);
    ck_assert_ptr_eq(fake_alloc(pool, &comm, 4096), freed);
    fake_free(pool, kept);
    ck_assert_ptr_eq(fake_alloc(pool, &comm, 4096), kept);
    fake_free(pool, used);
    ck_assert_ptr_eq(fake_alloc(pool, &compute, 4096), used);
}
END_TEST

START_TEST(blocks_that_wait_for_a_stream_are_free_when_it_is_destroyed)
{
    rps_npu_stream gone = {.name = "gone"};
    void *used = fake_alloc(pool, &compute, 4096);

    fake_record(pool, used, &gone);
    fake_stream_give(&gone);
    fake_free(pool, used);
    ck_assert_uint_eq(fake_stats(pool).active.now, 4096);
    rps_pool_forget_stream(pool, &gone);
    ck_assert_uint_eq(fake_stats(pool).active.now, 0);
}
END_TEST

/* --- giving back, and failing -----------------------------------------------
 */

START_TEST(a_trim_gives_back_the_segments_that_are_wholly_free)
{
    void *kept = fake_alloc(pool, &compute, 4096);
    void *freed = fake_alloc(pool, &compute, 4096);
    void *large = fake_alloc(pool, &compute, 30 * MIB);

    fake_free(pool, freed);
    fake_free(pool, large);
    ck_assert_uint_eq(rps_pool_trim(pool), 30 * MIB);
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 2 * MIB);
    ck_assert_uint_eq(fake_stats(pool).trimmed, 1);
    ck_assert_uint_eq(device.taken, 2 * MIB);
    fake_free(pool, kept);
    ck_assert_uint_eq(rps_pool_trim(pool), 2 * MIB);
    ck_assert_uint_eq(rps_pool_trim(pool), 0);
}
END_TEST

START_TEST(before_a_request_fails_free_segments_go_back)
{
    for (size_t i = 0; i < 3; i++) {
        fake_free(pool, fake_alloc(pool, &compute, (40 + 300 * i) * MIB));
    }
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 1020 * MIB);
    fake_alloc(pool, &compute, 900 * MIB);
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 900 * MIB);
    ck_assert_uint_eq(fake_stats(pool).trimmed, 3);
    ck_assert_uint_eq(fake_stats(pool).out_of_memory, 0);
}
END_TEST

START_TEST(before_a_request_fails_other_streams_are_waited_for)
{
    void *address = fake_alloc(pool, &compute, 1000 * MIB);

    fake_record(pool, address, &comm);
    fake_stream_give(&comm);
    fake_free(pool, address);
    fake_alloc(pool, &compute, 1010 * MIB);
    ck_assert_uint_eq(device.waits, 1);
    ck_assert_uint_eq(fake_stats(pool).out_of_memory, 0);
}
END_TEST

START_TEST(a_segment_is_smaller_where_the_device_has_no_larger_range)
{
    fake_alloc(pool, &compute, 1012 * MIB); /* 12 MiB are left */
    fake_alloc(pool, &compute, 5 * MIB);    /* of 6, not of 20 */
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 1018 * MIB);
    fake_alloc(pool, &compute, 5 * MIB + 4096);
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 1024 * MIB);
    ck_assert_uint_eq(fake_stats(pool).out_of_memory, 0);
}
END_TEST

START_TEST(the_last_pages_of_a_device_serve_small_requests)
{
    void *address;
    struct rps_error error = {.text = ""};

    device.capacity = 21 * MIB;
    fake_alloc(pool, &compute, 20 * MIB);
    for (int i = 0; i < 16; i++) {
        fake_alloc(pool, &compute, 60000);
    }
    ck_assert_uint_eq(fake_stats(pool).reserved.now, 21 * MIB);
    ck_assert_int_eq(
            rps_pool_alloc(pool, &compute, NULL, 60000, &address, &error),
            RPS_E_NOMEM);
    device.capacity += 61440; /* pages, no 64 KiB */
    fake_alloc(pool, &compute, 60000);
}
END_TEST

START_TEST(a_request_that_fails_says_what_the_pool_has)
{
    struct rps_error error = {.text = ""};
    void *address = &error;

    fake_alloc(pool, &compute, 900 * MIB);
    fake_free(pool, fake_alloc(pool, &compute, 3 * MIB));
    fake_alloc(pool, &compute, 1000);
    ck_assert_int_eq(
            rps_pool_alloc(pool, &compute, NULL, 200 * MIB, &address, &error),
            RPS_E_NOMEM);
    ck_assert_ptr_null(address);
    ck_assert_str_eq(error.text,
            "no device memory for 200.0 MiB (209715200 bytes): the pool has "
            "allocated 900.0 MiB (2 blocks), active 900.0 MiB, held by "
            "compiled steps 0 B, reserved 902.0 MiB (2 segments), largest "
            "free block 2.0 MiB, fragmentation 0.0 %, peak allocated "
            "903.0 MiB; the device: capacity 1073741824, taken 945815552; ask "
            "for less, release tensors, or open the device with more memory");
    ck_assert_uint_eq(fake_stats(pool).out_of_memory, 1);
    fake_alloc(pool, &compute, 20 * MIB);
}
END_TEST

START_TEST(no_bytes_and_more_than_any_device_has_are_refused)
{
    struct rps_error error = {.text = ""};
    void *address;

    ck_assert_int_eq(rps_pool_alloc(pool, &compute, NULL, 0, &address, &error),
            RPS_E_INVAL);
    ck_assert_str_eq(error.text, "0 bytes of device memory");
    ck_assert_int_eq(
            rps_pool_alloc(pool, &compute, NULL, UINT64_MAX, &address, &error),
            RPS_E_NOMEM);
    ck_assert_str_eq(
            error.text, "no device has 18446744073709551615 bytes of memory");
}
END_TEST

START_TEST(only_the_start_of_a_live_block_can_be_freed_or_recorded)
{
    void *address = fake_alloc(pool, &compute, 4096);
    struct rps_error error = {.text = ""};

    ck_assert_int_eq(
            rps_pool_free(pool, (char *)address + 512, &error), RPS_E_INVAL);
    ck_assert_int_eq(rps_pool_free(pool, &error, &error), RPS_E_INVAL);
    fake_free(pool, address);
    ck_assert_int_eq(rps_pool_free(pool, address, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "freed already"));
    ck_assert_int_eq(rps_pool_record_stream(
                             pool, address, &comm, RPS_POOL_NO_PLACE, &error),
            RPS_E_INVAL);
}
END_TEST

/* --- what it says ------------------------------------------------------------
 */

START_TEST(peaks_begin_anew_when_they_are_reset)
{
    fake_free(pool, fake_alloc(pool, &compute, 30 * MIB));
    fake_alloc(pool, &compute, 4 * MIB);
    ck_assert_uint_eq(fake_stats(pool).allocated.peak, 30 * MIB);
    rps_pool_reset_peaks(pool);
    ck_assert_uint_eq(fake_stats(pool).allocated.peak, 4 * MIB);
    ck_assert_uint_eq(fake_stats(pool).reserved.peak, 30 * MIB);
    ck_assert_uint_eq(fake_stats(pool).allocated.total, 34 * MIB);
}
END_TEST

START_TEST(the_table_is_for_people)
{
    rps_npu_pool_stats stats;
    char *table;

    fake_free(pool, fake_alloc(pool, &compute, 100 * MIB));
    fake_alloc(pool, &compute, 20 * MIB);
    stats = fake_stats(pool);
    table = rps_pool_report(&stats, 3, RPS_NPU_TABLE);
    /* clang-format off */
    ck_assert_str_eq(table,
"npu 3                                      now        peak       total\n"
"requested                             20.0 MiB   100.0 MiB   120.0 MiB\n"
"allocated                             20.0 MiB   100.0 MiB   120.0 MiB\n"
"active                                20.0 MiB   100.0 MiB   120.0 MiB\n"
"reserved                             100.0 MiB   100.0 MiB   100.0 MiB\n"
"blocks                                       1           1           2\n"
"segments                                     1           1           1\n"
"held by compiled steps                     0 B\n"
"largest free block                    80.0 MiB\n"
"requests                                     2\n"
"of them, without a new segment               1\n"
"segments given back                          0\n"
"requests that failed                         0\n"
"fragmentation                            0.0 %\n");
    /* clang-format on */
    free(table);
}
END_TEST

START_TEST(the_json_has_every_figure)
{
    rps_npu_pool_stats stats;
    json_int_t device_id, now, peak, total, largest, requests;
    double fragmentation;
    json_t *object;
    char *text;

    fake_free(pool, fake_alloc(pool, &compute, 100 * MIB));
    fake_alloc(pool, &compute, 20 * MIB);
    stats = fake_stats(pool);
    text = rps_pool_report(&stats, 3, RPS_NPU_JSON);
    object = json_loads(text, 0, NULL);
    free(text);
    ck_assert_int_eq(
            json_unpack(object, "{sI s{sIsIsI} sI sI sF}", "device", &device_id,
                    "allocated", "now", &now, "peak", &peak, "total", &total,
                    "largest_free", &largest, "requests", &requests,
                    "fragmentation", &fragmentation),
            0);
    ck_assert_uint_eq(json_object_size(object), 14);
    json_decref(object);
    ck_assert_int_eq(device_id, 3);
    ck_assert_int_eq(now, 20 * (json_int_t)MIB);
    ck_assert_int_eq(peak, 100 * (json_int_t)MIB);
    ck_assert_int_eq(total, 120 * (json_int_t)MIB);
    ck_assert_int_eq(largest, 80 * (json_int_t)MIB);
    ck_assert_int_eq(requests, 2);
    ck_assert_double_eq(fragmentation, 0.0);
}
END_TEST

START_TEST(a_snapshot_has_every_segment_and_block)
{
    void *live = fake_alloc(pool, &compute, 1000);
    void *waits = fake_alloc(pool, &compute, 500);
    char *text;
    char wants[1024];

    fake_record(pool, waits, &comm);
    fake_stream_give(&comm);
    fake_free(pool, waits);
    ck_assert_uint_eq(number(live), FAKE_BASE);
    text = rps_pool_snapshot(pool, 2, 1024 * MIB);
    snprintf(wants, sizeof(wants), "%s",
            "\"segments\":[{\"address\":\"0x10000000000\",\"bytes\":2097152,"
            "\"pool\":\"small\",\"stream\":\"compute\",\"step\":0,\"blocks\":["
            "{\"address\":\"0x10000000000\",\"bytes\":1024,"
            "\"requested\":1000,\"state\":\"allocated\"},"
            "{\"address\":\"0x10000000400\",\"bytes\":512,\"requested\":500,"
            "\"state\":\"waiting\"},"
            "{\"address\":\"0x10000000600\",\"bytes\":2095616,"
            "\"requested\":0,\"state\":\"free\"}]}]}");
    ck_assert_ptr_nonnull(strstr(text, wants));
    ck_assert_ptr_nonnull(
            strstr(text, "{\"device\":2,\"capacity\":1073741824,"));
    free(text);
    fake_stream_finish(&comm);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("npu_pool");
    TCase *tcase = tcase_create("pool");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(
            tcase, of_100_mib_given_back_20_allocated_leave_100_reserved);
    tcase_add_test(tcase,
            allocated_falls_at_once_and_active_when_the_other_stream_is_done);
    tcase_add_test(
            tcase, segments_are_2_mib_20_mib_or_of_the_requests_own_size);
    tcase_add_test(
            tcase, small_requests_share_a_segment_and_large_ones_another);
    tcase_add_test(tcase, the_smallest_block_that_is_large_enough_is_taken);
    tcase_add_test(tcase, neighbours_merge_whatever_the_order_of_their_frees);
    tcase_add_test(tcase,
            a_rest_that_only_small_requests_could_use_stays_with_its_block);
    tcase_add_test(tcase,
            fragmentation_is_what_the_largest_free_block_lacks_of_all_free);
    tcase_add_test(
            tcase, a_program_that_repeats_itself_soon_reserves_nothing_more);
    tcase_add_test(
            tcase, a_freed_block_is_its_own_streams_at_once_and_no_others);
    tcase_add_test(
            tcase, recording_its_own_stream_or_one_twice_changes_nothing);
    tcase_add_test(tcase, a_block_waits_for_every_stream_that_was_recorded);
    tcase_add_test(
            tcase, work_that_a_stream_gets_after_the_free_is_not_waited_for);
    tcase_add_test(tcase, what_a_destroyed_stream_had_is_anyones);
    tcase_add_test(
            tcase, blocks_that_wait_for_a_stream_are_free_when_it_is_destroyed);
    tcase_add_test(tcase, a_trim_gives_back_the_segments_that_are_wholly_free);
    tcase_add_test(tcase, before_a_request_fails_free_segments_go_back);
    tcase_add_test(tcase, before_a_request_fails_other_streams_are_waited_for);
    tcase_add_test(
            tcase, a_segment_is_smaller_where_the_device_has_no_larger_range);
    tcase_add_test(tcase, the_last_pages_of_a_device_serve_small_requests);
    tcase_add_test(tcase, a_request_that_fails_says_what_the_pool_has);
    tcase_add_test(tcase, no_bytes_and_more_than_any_device_has_are_refused);
    tcase_add_test(
            tcase, only_the_start_of_a_live_block_can_be_freed_or_recorded);
    tcase_add_test(tcase, peaks_begin_anew_when_they_are_reset);
    tcase_add_test(tcase, the_table_is_for_people);
    tcase_add_test(tcase, the_json_has_every_figure);
    tcase_add_test(tcase, a_snapshot_has_every_segment_and_block);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
