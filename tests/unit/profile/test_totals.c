/* SPDX-License-Identifier: Apache-2.0 */
#include "client/profile/totals.h"
#include "tests/unit/suite.h"

#include <stdio.h>

static struct rps_profile_span
span_of(const char *name, const char *track, uint64_t start, uint64_t end)
{
    return (struct rps_profile_span){
            .class = RPS_PROFILE_OPERATOR,
            .type = "linear",
            .name = name,
            .track = track,
            .start_ns = start,
            .end_ns = end,
            .bytes = 10,
            .flops = 3,
    };
}

static void
add(struct rps_totals *totals, const char *name, const char *track,
        uint64_t start, uint64_t end)
{
    const struct rps_profile_span span = span_of(name, track, start, end);

    ck_assert_int_eq(rps_totals_add(totals, &span), RPS_OK);
}

static const struct rps_total *
find(const struct rps_totals *totals, const char *name)
{
    size_t count;
    const struct rps_total *list = rps_totals_list(totals, &count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(list[i].name, name) == 0) {
            return &list[i];
        }
    }
    ck_abort_msg("no total of %s", name);
}

START_TEST(spans_that_agree_are_added_up)
{
    struct rps_totals *totals = rps_totals_create();
    const struct rps_total *total;
    char name[] = "a"; /* another pointer each time is the same text */
    size_t count;

    add(totals, "a", "s", 10, 20);
    add(totals, name, "s", 30, 60);
    add(totals, "a", "t", 0, 5);
    rps_totals_work_out(totals);
    total = rps_totals_list(totals, &count);
    ck_assert_uint_eq(count, 2);
    ck_assert_str_eq(total[0].track, "s");
    ck_assert_uint_eq(total[0].count, 2);
    ck_assert_uint_eq(total[0].ns, 40);
    ck_assert_uint_eq(total[0].self_ns, 40);
    ck_assert_uint_eq(total[0].min_ns, 10);
    ck_assert_uint_eq(total[0].max_ns, 30);
    ck_assert_uint_eq(total[0].bytes, 20);
    ck_assert_uint_eq(total[0].flops, 6);
    ck_assert_str_eq(total[0].holds, "");
    ck_assert_uint_eq(total[1].count, 1);
    ck_assert_uint_eq(rps_totals_wall_ns(totals), 60);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(time_of_spans_inside_is_not_counted_twice)
{
    struct rps_totals *totals = rps_totals_create();

    /* in no order, as threads' buffers come */
    add(totals, "inner", "s", 20, 30);
    add(totals, "outer", "s", 0, 100);
    add(totals, "innermost", "s", 22, 25);
    add(totals, "inner", "s", 50, 100);
    add(totals, "elsewhere", "t", 10, 90);
    rps_totals_work_out(totals);
    ck_assert_uint_eq(find(totals, "outer")->ns, 100);
    ck_assert_uint_eq(find(totals, "outer")->self_ns, 40);
    ck_assert_uint_eq(find(totals, "inner")->self_ns, 57);
    ck_assert_uint_eq(find(totals, "innermost")->self_ns, 3);
    ck_assert_uint_eq(find(totals, "elsewhere")->self_ns, 80);
    ck_assert_uint_eq(
            rps_totals_class_ns(totals, RPS_PROFILE_OPERATOR), 100 + 80);
    ck_assert_uint_eq(rps_totals_class_count(totals, RPS_PROFILE_OPERATOR), 5);
    ck_assert_uint_eq(rps_totals_class_ns(totals, RPS_PROFILE_COPY), 0);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(spans_that_cross_take_only_what_both_have)
{
    struct rps_totals *totals = rps_totals_create();

    add(totals, "first", "s", 0, 50);
    add(totals, "second", "s", 40, 90);
    rps_totals_work_out(totals);
    ck_assert_uint_eq(find(totals, "first")->self_ns, 40);
    ck_assert_uint_eq(find(totals, "second")->self_ns, 50);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(spans_of_the_same_time_lie_in_one_another)
{
    struct rps_totals *totals = rps_totals_create();

    add(totals, "a", "s", 0, 50);
    add(totals, "b", "s", 0, 50);
    add(totals, "nothing", "s", 50, 50);
    rps_totals_work_out(totals);
    ck_assert_uint_eq(rps_totals_class_ns(totals, RPS_PROFILE_OPERATOR), 50);
    ck_assert_uint_eq(find(totals, "nothing")->ns, 0);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(deep_nests_are_no_harm)
{
    struct rps_totals *totals = rps_totals_create();
    char name[16];

    for (uint64_t i = 0; i < 1000; i++) {
        (void)snprintf(name, sizeof(name), "%u", (unsigned)i);
        add(totals, name, "s", i, 3000 - i);
    }
    rps_totals_work_out(totals);
    ck_assert_uint_eq(find(totals, "0")->self_ns, 2);
    ck_assert_uint_eq(find(totals, "254")->self_ns, 2);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(steps_have_their_median)
{
    struct rps_totals *totals = rps_totals_create();
    const uint64_t ns[] = {9, 1, 5, 7, 3};
    struct rps_totals_steps steps;

    for (size_t i = 0; i < 5; i++) {
        ck_assert_int_eq(rps_totals_step(totals, ns[i]), RPS_OK);
    }
    rps_totals_work_out(totals);
    steps = rps_totals_steps(totals);
    ck_assert_uint_eq(steps.count, 5);
    ck_assert_uint_eq(steps.ns, 25);
    ck_assert_uint_eq(steps.min_ns, 1);
    ck_assert_uint_eq(steps.median_ns, 5);
    ck_assert_uint_eq(steps.max_ns, 9);
    rps_totals_destroy(totals);
}
END_TEST

START_TEST(nothing_at_all_is_worked_out_too)
{
    struct rps_totals *totals = rps_totals_create();
    size_t count = 1;

    rps_totals_work_out(totals);
    (void)rps_totals_list(totals, &count);
    ck_assert_uint_eq(count, 0);
    ck_assert_uint_eq(rps_totals_steps(totals).count, 0);
    ck_assert_uint_eq(rps_totals_wall_ns(totals), 0);
    rps_totals_destroy(totals);
    rps_totals_destroy(NULL);
}
END_TEST

START_TEST(too_many_kinds_of_spans_are_refused)
{
    struct rps_totals *totals = rps_totals_create();
    struct rps_profile_span span;
    rps_status status = RPS_OK;
    uint32_t added = 0;
    char name[16];

    while (status == RPS_OK && added <= RPS_TOTALS_KINDS_MAX) {
        (void)snprintf(name, sizeof(name), "%u", (unsigned)added);
        span = span_of(name, "s", added, added + 1);
        status = rps_totals_add(totals, &span);
        added++;
    }
    ck_assert_int_eq(status, RPS_E_LIMIT);
    ck_assert_uint_eq(added, RPS_TOTALS_KINDS_MAX + 1);
    rps_totals_destroy(totals);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("profile_totals");
    TCase *tcase = tcase_create("totals");

    tcase_add_test(tcase, spans_that_agree_are_added_up);
    tcase_add_test(tcase, time_of_spans_inside_is_not_counted_twice);
    tcase_add_test(tcase, spans_that_cross_take_only_what_both_have);
    tcase_add_test(tcase, spans_of_the_same_time_lie_in_one_another);
    tcase_add_test(tcase, deep_nests_are_no_harm);
    tcase_add_test(tcase, steps_have_their_median);
    tcase_add_test(tcase, nothing_at_all_is_worked_out_too);
    tcase_add_test(tcase, too_many_kinds_of_spans_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
