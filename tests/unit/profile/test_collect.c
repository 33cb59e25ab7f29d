/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "client/profile/collect.h"
#include "tests/unit/suite.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define THREADS     4u
#define SPANS       5000u
#define PLENTY      (64ull << 20)
#define LITTLE      (256u << 10)
#define NAMES_EVERY 100u

static void
add_one(const char *name, uint64_t start_ns)
{
    const struct rps_profile_span span = {
            .class = RPS_PROFILE_OPERATOR,
            .type = "linear",
            .name = name,
            .track = "host",
            .start_ns = start_ns,
            .end_ns = start_ns + 5,
            .bytes = 7,
    };

    rps_profile_add(&span);
}

static struct rps_profile_collected
take(void)
{
    struct rps_profile_collected collected;

    rps_profile_disarm();
    rps_profile_await();
    ck_assert(rps_profile_take(&collected));
    return collected;
}

START_TEST(nothing_is_collected_before_it_is_asked_for)
{
    struct rps_profile_collected collected;

    ck_assert(!rps_profile_is_on());
    rps_profile_step(1);
    add_one("early", 1);
    rps_profile_arm(1, 1, PLENTY);
    ck_assert(!rps_profile_is_on());
    add_one("before the step", 2);
    collected = take();
    ck_assert_uint_eq(collected.count, 0);
    ck_assert_uint_eq(collected.step_count, 0);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(the_steps_asked_for_are_collected_and_no_others)
{
    struct rps_profile_collected collected;

    rps_profile_arm(3, 4, PLENTY);
    for (uint64_t step = 1; step <= 6; step++) {
        rps_profile_step(step);
        ck_assert_int_eq(rps_profile_is_on(), step == 3 || step == 4);
        add_one("span", 100 * step);
    }
    collected = take();
    ck_assert_uint_eq(collected.count, 2);
    ck_assert_uint_eq(collected.records[0]->span.step, 3);
    ck_assert_uint_eq(collected.records[1]->span.step, 4);
    ck_assert_uint_eq(collected.step_count, 2);
    ck_assert_uint_eq(collected.steps[0].step, 3);
    ck_assert_uint_eq(collected.steps[1].step, 4);
    ck_assert_uint_le(collected.steps[0].end_ns, collected.steps[1].start_ns);
    ck_assert_uint_eq(collected.dropped, 0);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(between_two_steps_no_step_is_open)
{
    struct rps_profile_collected collected;

    rps_profile_arm(1, 2, PLENTY);
    rps_profile_step(1);
    rps_profile_step(0);
    rps_profile_step(2);
    rps_profile_step(0);
    ck_assert(rps_profile_is_on()); /* what ends the last step is said later */
    rps_profile_step(3);
    ck_assert(!rps_profile_is_on());
    collected = take();
    ck_assert_uint_eq(collected.step_count, 2);
    ck_assert_uint_le(collected.steps[0].end_ns, collected.steps[1].start_ns);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(what_a_span_points_to_may_change_afterwards)
{
    struct rps_profile_collected collected;
    char name[16];

    rps_profile_arm(1, 1, PLENTY);
    rps_profile_step(1);
    (void)snprintf(name, sizeof(name), "first");
    add_one(name, 10);
    (void)snprintf(name, sizeof(name), "second");
    add_one(name, 20);
    add_one("second", 30);
    add_one(NULL, 40);
    collected = take();
    (void)snprintf(name, sizeof(name), "third");
    ck_assert_uint_eq(collected.count, 4);
    ck_assert_str_eq(collected.records[0]->span.name, "first");
    ck_assert_str_eq(collected.records[1]->span.name, "second");
    ck_assert_ptr_eq(
            collected.records[2]->span.name, collected.records[1]->span.name);
    ck_assert_ptr_null(collected.records[3]->span.name);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(spans_come_by_their_start_and_the_outer_one_first)
{
    struct rps_profile_collected collected;
    struct rps_profile_span span = {.type = "x", .track = "host"};

    rps_profile_arm(1, 1, PLENTY);
    rps_profile_step(1);
    span.start_ns = 50;
    span.end_ns = 60;
    rps_profile_add(&span);
    span.end_ns = 90;
    rps_profile_add(&span);
    span.start_ns = 40;
    rps_profile_add(&span);
    collected = take();
    ck_assert_uint_eq(collected.records[0]->span.start_ns, 40);
    ck_assert_uint_eq(collected.records[1]->span.end_ns, 90);
    ck_assert_uint_eq(collected.records[2]->span.end_ns, 60);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(what_finds_no_room_is_counted)
{
    struct rps_profile_collected collected;

    rps_profile_arm(1, 1, LITTLE);
    rps_profile_step(1);
    for (uint64_t i = 0; i < SPANS; i++) {
        add_one("span", i);
    }
    rps_profile_figure("memory", 1, 2.0);
    collected = take();
    ck_assert_uint_gt(collected.count, 0);
    ck_assert_uint_gt(collected.dropped, 0);
    ck_assert_uint_eq(collected.count + collected.dropped, SPANS + 1);
    ck_assert_uint_le(
            collected.count * sizeof(struct rps_profile_record), LITTLE);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(names_without_end_find_an_end_too)
{
    struct rps_profile_collected collected;
    char name[1024];

    memset(name, 'x', sizeof(name));
    rps_profile_arm(1, 1, LITTLE);
    rps_profile_step(1);
    for (uint64_t i = 0; i < SPANS; i++) {
        (void)snprintf(name + 512, sizeof(name) - 512, "%d", (int)i);
        add_one(name, i);
    }
    collected = take();
    ck_assert_uint_gt(collected.dropped, 0);
    ck_assert_uint_lt(collected.count, 1000);
    rps_profile_collected_finish(&collected);
}
END_TEST

START_TEST(figures_keep_their_value_and_moment)
{
    struct rps_profile_collected collected;

    rps_profile_arm(2, 2, PLENTY);
    rps_profile_step(2);
    rps_profile_figure("memory", 17, 2.5);
    collected = take();
    ck_assert_uint_eq(collected.count, 1);
    ck_assert(collected.records[0]->is_figure);
    ck_assert_str_eq(collected.records[0]->span.name, "memory");
    ck_assert_uint_eq(collected.records[0]->span.start_ns, 17);
    ck_assert_uint_eq(collected.records[0]->span.step, 2);
    ck_assert_double_eq(collected.records[0]->value, 2.5);
    rps_profile_collected_finish(&collected);
}
END_TEST

static void *
add_many(void *context)
{
    const uint64_t base = *(const uint64_t *)context;
    char name[32];

    for (uint64_t i = 0; i < SPANS; i++) {
        (void)snprintf(name, sizeof(name), "span %d", (int)(i % NAMES_EVERY));
        add_one(name, base + i);
    }
    return NULL;
}

static void
add_by_threads(uint64_t bases[THREADS])
{
    pthread_t threads[THREADS];

    for (uint64_t i = 0; i < THREADS; i++) {
        bases[i] = 1000000 * (i + 1);
        ck_assert_int_eq(
                pthread_create(&threads[i], NULL, add_many, &bases[i]), 0);
    }
    for (uint64_t i = 0; i < THREADS; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
}

START_TEST(threads_lose_nothing_and_their_successors_neither)
{
    struct rps_profile_collected collected;
    uint64_t bases[THREADS];

    for (int round = 0; round < 2; round++) {
        rps_profile_arm(1, 1, PLENTY);
        rps_profile_step(1);
        add_by_threads(bases);
        add_by_threads(bases); /* in the buffers of those that ended */
        collected = take();
        ck_assert_uint_eq(collected.count, 2 * THREADS * SPANS);
        ck_assert_uint_eq(collected.dropped, 0);
        for (size_t i = 0; i < collected.count; i++) {
            const struct rps_profile_span *span = &collected.records[i]->span;
            char name[32];

            (void)snprintf(name, sizeof(name), "span %d",
                    (int)(span->start_ns % 1000000 % NAMES_EVERY));
            ck_assert_str_eq(span->name, name);
        }
        rps_profile_collected_finish(&collected);
    }
}
END_TEST

START_TEST(a_session_may_end_while_others_add)
{
    struct rps_profile_collected collected;
    pthread_t thread;
    uint64_t base = 1;

    for (int round = 0; round < 5; round++) {
        rps_profile_arm(1, 1, PLENTY);
        rps_profile_step(1);
        ck_assert_int_eq(pthread_create(&thread, NULL, add_many, &base), 0);
        while (!rps_profile_is_on()) {
        }
        collected = take();
        ck_assert_uint_le(collected.count, SPANS);
        rps_profile_collected_finish(&collected);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("profile_collect");
    TCase *tcase = tcase_create("collect");

    tcase_add_test(tcase, nothing_is_collected_before_it_is_asked_for);
    tcase_add_test(tcase, the_steps_asked_for_are_collected_and_no_others);
    tcase_add_test(tcase, between_two_steps_no_step_is_open);
    tcase_add_test(tcase, what_a_span_points_to_may_change_afterwards);
    tcase_add_test(tcase, spans_come_by_their_start_and_the_outer_one_first);
    tcase_add_test(tcase, what_finds_no_room_is_counted);
    tcase_add_test(tcase, names_without_end_find_an_end_too);
    tcase_add_test(tcase, figures_keep_their_value_and_moment);
    tcase_add_test(tcase, threads_lose_nothing_and_their_successors_neither);
    tcase_add_test(tcase, a_session_may_end_while_others_add);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
