/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/peer_log.h"
#include "tests/unit/suite.h"

#include <string.h>

static struct rps_peer_limit limit;
static struct rps_peer_rest rest;

static unsigned
take(const char *event, unsigned lines, uint64_t now_ms)
{
    unsigned written = 0;

    for (unsigned i = 0; i < lines; i++) {
        written += rps_peer_limit_take(&limit, RPS_LOG_WARN, event, now_ms);
    }
    return written;
}

START_TEST(ten_lines_of_an_event_are_written_and_the_rest_is_counted)
{
    memset(&limit, 0, sizeof(limit));
    ck_assert_uint_eq(take("bad_frame", 7, 1000), 7);
    ck_assert_uint_eq(take("bad_frame", 100, 5000), 3);
    ck_assert(!rps_peer_limit_end(&limit, 10999, false, &rest));
    ck_assert(rps_peer_limit_end(&limit, 11000, false, &rest));
    ck_assert_str_eq(rest.event, "bad_frame");
    ck_assert_int_eq(rest.level, RPS_LOG_WARN);
    ck_assert_uint_eq(rest.count, 97);
    ck_assert_uint_eq(rest.ms, 10000);
    ck_assert(!rps_peer_limit_end(&limit, 11000, true, &rest));
    ck_assert_uint_eq(take("bad_frame", 11, 11000), 10);
}
END_TEST

START_TEST(each_event_has_a_limit_of_its_own)
{
    memset(&limit, 0, sizeof(limit));
    ck_assert_uint_eq(take("bad_frame", 20, 0), 10);
    ck_assert_uint_eq(take("no_hello", 12, 9000), 10);
    ck_assert(rps_peer_limit_end(&limit, 10000, false, &rest));
    ck_assert_uint_eq(rest.count, 10);
    ck_assert(!rps_peer_limit_end(&limit, 10000, false, &rest));
    ck_assert(rps_peer_limit_end(&limit, 10000, true, &rest));
    ck_assert_str_eq(rest.event, "no_hello");
    ck_assert_uint_eq(rest.count, 2);
}
END_TEST

START_TEST(a_window_without_a_rest_ends_silently)
{
    memset(&limit, 0, sizeof(limit));
    ck_assert_uint_eq(take("bad_frame", 10, 0), 10);
    ck_assert(!rps_peer_limit_end(&limit, 10000, false, &rest));
    ck_assert_uint_eq(take("bad_frame", 10, 10000), 10);
}
END_TEST

START_TEST(more_kinds_than_expected_lose_no_count)
{
    char event[] = "event_000";
    uint64_t written = 0;
    uint64_t more = 0;

    memset(&limit, 0, sizeof(limit));
    for (unsigned i = 0; i < 100; i++) {
        event[7] = (char)('0' + i / 10);
        event[8] = (char)('0' + i % 10);
        written += take(event, 3, 0);
    }
    while (rps_peer_limit_end(&limit, 0, true, &rest)) {
        more += rest.count;
    }
    ck_assert_uint_eq(written + more, 300);
    ck_assert_uint_gt(more, 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("peer_log");
    TCase *tc = tcase_create("peer_log");

    tcase_add_test(
            tc, ten_lines_of_an_event_are_written_and_the_rest_is_counted);
    tcase_add_test(tc, each_event_has_a_limit_of_its_own);
    tcase_add_test(tc, a_window_without_a_rest_ends_silently);
    tcase_add_test(tc, more_kinds_than_expected_lose_no_count);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
