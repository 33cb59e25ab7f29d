/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/loop_stats.h"
#include "tests/unit/suite.h"

/* The upper bound of a bucket, as the header has it. */
static uint64_t
bound(uint32_t bucket)
{
    const uint32_t octave = (bucket - 1) / 4;
    const uint32_t part = (bucket - 1) % 4;

    return (uint64_t)(5 + part) << (8 + octave);
}

START_TEST(times_fall_into_the_bucket_whose_bounds_hold_them)
{
    ck_assert_uint_eq(rps_time_bucket(0), 0);
    ck_assert_uint_eq(rps_time_bucket(1023), 0);
    ck_assert_uint_eq(rps_time_bucket(1024), 1);
    for (uint32_t i = 1; i + 1 < RPS_TIME_BUCKETS; i++) {
        ck_assert_uint_eq(rps_time_bucket(bound(i) - 1), i);
        ck_assert_uint_eq(rps_time_bucket(bound(i)), i + 1);
        ck_assert_uint_eq(rps_time_bucket_begin(i + 1), bound(i));
    }
    ck_assert_uint_eq(rps_time_bucket(UINT64_MAX), RPS_TIME_BUCKETS - 1);
}
END_TEST

START_TEST(the_last_time_bucket_begins_at_68_7_s)
{
    ck_assert_uint_eq(
            rps_time_bucket(((uint64_t)1 << 36) - 1), RPS_TIME_BUCKETS - 2);
    ck_assert_uint_eq(rps_time_bucket((uint64_t)1 << 36), RPS_TIME_BUCKETS - 1);
}
END_TEST

START_TEST(sizes_fall_at_or_below_powers_of_four)
{
    uint64_t most = 1;

    ck_assert_uint_eq(rps_size_bucket(0), 0);
    for (uint32_t i = 0; i + 1 < RPS_SIZE_BUCKETS; i++, most *= 4) {
        ck_assert_uint_eq(rps_size_bucket(most), i);
        ck_assert_uint_eq(rps_size_bucket(most + 1), i + 1);
    }
    ck_assert_uint_eq(rps_size_bucket(UINT64_MAX), RPS_SIZE_BUCKETS - 1);
}
END_TEST

START_TEST(a_reply_is_counted_by_opcode_and_status)
{
    struct rps_loop_stats *stats = rps_loop_stats_create();

    ck_assert_ptr_nonnull(stats);
    ck_assert_uint_eq((uintptr_t)stats % 64, 0);
    rps_loop_stats_reply(stats, RPS_OP_PING, RPS_OK, 5000);
    rps_loop_stats_reply(stats, RPS_OP_PING, RPS_E_LIMIT, 7000);
    rps_loop_stats_reply(stats, 999, RPS_E_UNSUPPORTED, 1);
    rps_loop_stats_reply(stats, RPS_OP_PING, RPS_STATUS_LAST - 1, 0);
    ck_assert_uint_eq(rps_stat_get(&stats->replies[RPS_OP_PING][0]), 2);
    ck_assert_uint_eq(rps_stat_get(&stats->replies[RPS_OP_PING][3]), 1);
    ck_assert_uint_eq(rps_stat_get(&stats->replies[0][12]), 1);
    ck_assert_uint_eq(rps_stat_get(&stats->times[RPS_OP_PING].ns), 12000);
    free(stats);
}
END_TEST

START_TEST(a_gauge_goes_up_and_down)
{
    _Atomic uint64_t gauge = 0;

    rps_stat_add(&gauge, 7);
    rps_stat_add(&gauge, UINT64_MAX);
    rps_stat_add(&gauge, 0 - (uint64_t)6);
    ck_assert_uint_eq(rps_stat_get(&gauge), 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("loop_stats");
    TCase *tcase = tcase_create("counts");

    tcase_add_test(tcase, times_fall_into_the_bucket_whose_bounds_hold_them);
    tcase_add_test(tcase, the_last_time_bucket_begins_at_68_7_s);
    tcase_add_test(tcase, sizes_fall_at_or_below_powers_of_four);
    tcase_add_test(tcase, a_reply_is_counted_by_opcode_and_status);
    tcase_add_test(tcase, a_gauge_goes_up_and_down);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
