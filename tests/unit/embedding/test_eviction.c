/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that leave: erased, cold, over a budget; and their memory. */
#include "base/spec.h"
#include "embedding/evict.h"
#include "tests/unit/embedding/policy.h"

static bool
same_digest(struct rps_digest a, struct rps_digest b)
{
    return a.low == b.low && a.high == b.high;
}

static struct rps_now
at_step(uint64_t step)
{
    return (struct rps_now){.step = step};
}

static struct rps_table *
cold_table(uint64_t steps, uint64_t secs, uint64_t keep_min_rows)
{
    rps_table_spec spec = spec_of(2, RPS_OPTIMIZER_SGD);

    spec.max_cold_steps = steps;
    spec.max_cold_secs = secs;
    spec.keep_min_rows = keep_min_rows;
    return table_of(&spec);
}

START_TEST(special_keys_are_erased_and_come_back_fresh)
{
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_ADAGRAD);
    struct seen_row first[SPECIAL_KEYS];

    for (size_t i = 0; i < SPECIAL_KEYS; i++) {
        push_ok(table, 1, 1, &special_keys[i], NULL);
        first[i] = see(table, special_keys[i], 2);
    }
    for (size_t round = 0; round < 3; round++) {
        push_ok(table, 2 + round, SPECIAL_KEYS, special_keys, NULL);
        for (size_t i = 0; i < SPECIAL_KEYS; i++) { /* first, last and only */
            const size_t at = round == 1 ? SPECIAL_KEYS - 1 - i : i;
            ck_assert_uint_eq(rps_table_erase(table, 1, &special_keys[at]), 1);
            ck_assert_uint_eq(rps_table_erase(table, 1, &special_keys[at]), 0);
            ck_assert(!has_row(table, special_keys[at]));
        }
        ck_assert_uint_eq(rows_of(table), 0);
        for (size_t i = 0; i < SPECIAL_KEYS; i++) {
            struct seen_row again;
            push_ok(table, 1, 1, &special_keys[i], NULL);
            again = see(table, special_keys[i], 2);
            ck_assert_mem_eq(
                    again.content, first[i].content, 4 * sizeof(float));
            ck_assert_uint_eq(
                    RPS_META_USES(again.meta), RPS_META_USES(first[i].meta));
            /* a late step has the newest stamp */
            ck_assert_uint_eq(RPS_META_LAST(again.meta), 2 + round);
        }
    }
    ck_assert_uint_eq(stats_of(table).erased, 3 * SPECIAL_KEYS);
    rps_table_destroy(table);
}
END_TEST

START_TEST(an_erase_takes_absent_keys_and_duplicates)
{
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_SGD);
    const uint64_t keys[] = {1, 1, 2, 3};

    push_range(table, 1, 2, 5);
    ck_assert_uint_eq(rps_table_erase(table, 0, NULL), 0);
    ck_assert_uint_eq(rps_table_erase(table, 4, keys), 2);
    ck_assert_uint_eq(rows_of(table), 3);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_row_is_cold_one_step_after_max_cold_steps)
{
    struct rps_table *table = cold_table(10, 0, 0);

    push_range(table, 5, 0, 100);
    ck_assert_uint_eq(evict_at(table, at_step(15)).cold, 0);
    push_range(table, 15, 50, 50);
    ck_assert_uint_eq(evict_at(table, at_step(16)).cold, 50);
    ck_assert_uint_eq(rows_of(table), 50);
    ck_assert(!has_row(table, 0));
    ck_assert(has_row(table, 50));
    ck_assert_uint_eq(stats_of(table).evicted_cold, 50);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_row_is_cold_one_second_after_max_cold_secs)
{
    const uint64_t now = 1800000000;
    struct rps_table *table = cold_table(0, 3600, 0);
    struct rps_apply_report report;

    ck_assert_int_eq(push_at(table, (struct rps_now){.step = 1, .unix_s = now},
                             SPECIAL_KEYS, special_keys, NULL, &report),
            RPS_OK);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.step = 9, .unix_s = now + 3600})
                    .cold,
            0);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.step = 9, .unix_s = now + 3601})
                    .cold,
            SPECIAL_KEYS);
    rps_table_destroy(table);
}
END_TEST

/* max_cold_secs of 2^24: a tick is 4 seconds, and 2^22 of them are cold. */
START_TEST(long_times_are_counted_in_ticks_of_several_seconds)
{
    const uint64_t secs = (uint64_t)1 << 24;
    const uint64_t now = 1800000000;
    struct rps_table *table = cold_table(0, secs, 0);
    struct rps_apply_report report;

    ck_assert_uint_eq(rps_tick_secs(rps_table_spec_of(table)), 4);
    ck_assert_int_eq(push_at(table, (struct rps_now){.unix_s = now}, 1,
                             special_keys, NULL, &report),
            RPS_OK);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.unix_s = now + secs}).cold, 0);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.unix_s = now + secs + 4}).cold,
            1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_clock_that_goes_back_makes_no_row_cold)
{
    const uint64_t now = 1800000000;
    struct rps_table *table = cold_table(0, 60, 0);
    struct rps_apply_report report;

    ck_assert_int_eq(push_at(table, (struct rps_now){.step = 1, .unix_s = now},
                             1, special_keys, NULL, &report),
            RPS_OK);
    ck_assert_int_eq(
            push_at(table, (struct rps_now){.step = 2, .unix_s = now - 5000}, 1,
                    special_keys + 1, NULL, &report),
            RPS_OK);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.unix_s = now - 5000}).cold, 0);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.unix_s = now + 60}).cold, 0);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.unix_s = now + 61}).cold, 2);
    rps_table_destroy(table);
}
END_TEST

START_TEST(keep_min_rows_stay_however_cold)
{
    struct rps_table *table = cold_table(1, 0, 30);

    push_range(table, 1, 0, 100);
    ck_assert_uint_eq(evict_at(table, at_step(1000)).cold, 70);
    ck_assert_uint_eq(rows_of(table), 30);
    ck_assert_uint_eq(evict_at(table, at_step(2000)).cold, 0);
    rps_table_destroy(table);
}
END_TEST

/* A stamp has 24 bits; passes in between keep an old row old. */
START_TEST(a_stamp_does_not_wrap_unseen)
{
    const uint64_t wrap = (uint64_t)1 << 24;
    struct rps_table *table = cold_table(8388608, 0, 1);
    const uint64_t old = 1;

    push_ok(table, 1, 1, &old, NULL);
    for (uint64_t step = 1; step <= wrap + 2; step += wrap / 16) {
        evict_at(table, at_step(step)); /* kept: keep_min_rows */
    }
    ck_assert(has_row(table, old));
    push_range(table, wrap + 2, 100, 1);
    ck_assert_uint_eq(evict_at(table, at_step(wrap + 2)).cold, 1);
    ck_assert(!has_row(table, old));
    rps_table_destroy(table);
}
END_TEST

START_TEST(slices_do_what_a_pass_does)
{
    struct rps_table *table = cold_table(10, 0, 0);
    struct rps_evict_report report = {.cold = 0};
    size_t slices = 1;

    push_range(table, 1, 0, 5000);
    push_range(table, 20, 0, 1000);
    while (rps_table_maintain(table, at_step(20), 16, &report)) {
        slices++;
    }
    ck_assert_uint_eq(report.cold, 4000);
    ck_assert_uint_eq(rows_of(table), 1000);
    ck_assert_uint_gt(slices, 5000 / 4 / 16);
    for (uint64_t key = 0; key < 1000; key += 97) {
        ck_assert(has_row(table, key));
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(an_evicted_row_is_sent_by_refresh)
{
    struct rps_table *table = cold_table(5, 0, 0);
    const uint64_t keys[] = {1, 2};
    uint32_t positions[2];
    float rows[4];
    float first[2];

    push_ok(table, 1, 2, keys, NULL);
    push_ok(table, 6, 1, &keys[1], NULL);
    ck_assert_uint_eq(rps_table_changed(table, 2, keys, 6, positions, rows), 0);
    ck_assert_uint_eq(evict_at(table, at_step(7)).cold, 1);
    ck_assert_uint_eq(rps_table_changed(table, 2, keys, 6, positions, rows), 1);
    ck_assert_uint_eq(positions[0], 0);
    rps_table_first_value(table, 1, first);
    ck_assert_mem_eq(rows, first, sizeof(first));
    rps_table_destroy(table);
}
END_TEST

START_TEST(refresh_by_step_works_where_ticks_are_seconds)
{
    struct rps_table *table = cold_table(0, 3600, 0);
    const uint64_t keys[] = {1, 2};
    uint32_t positions[2];
    float rows[4];
    struct rps_apply_report report;

    for (uint64_t step = 1; step <= 200; step++) {
        const struct rps_now now = {
                .step = step, .unix_s = 1800000000 + step * 10};
        const size_t n = step == 1 ? 2 : 1; /* key 2: in step 1 alone */
        ck_assert_int_eq(push_at(table, now, n, keys, NULL, &report), RPS_OK);
    }
    ck_assert_uint_eq(
            rps_table_changed(table, 2, keys, 190, positions, rows), 1);
    ck_assert_uint_eq(positions[0], 0);
    /* longer ago than the marks reach: everything */
    ck_assert_uint_eq(rps_table_changed(table, 2, keys, 3, positions, rows), 2);
    rps_table_destroy(table);
}
END_TEST

START_TEST(scores_order_by_age_or_by_uses)
{
    const uint32_t old_hot = rps_meta_make(10, 200);
    const uint32_t new_cold = rps_meta_make(100, 1);
    const uint32_t new_hot = rps_meta_make(100, 200);
    const uint32_t before_wrap = rps_meta_make(0xfffffe, 200);
    const uint64_t wrapped = ((uint64_t)1 << 24) + 100;

#define LRU(meta, at) rps_evict_score(RPS_ON_FULL_EVICT_LRU, meta, at)
#define LFU(meta, at) rps_evict_score(RPS_ON_FULL_EVICT_LFU, meta, at)
    ck_assert_uint_gt(LRU(old_hot, 100), LRU(new_cold, 100));
    ck_assert_uint_gt(LRU(new_cold, 100), LRU(new_hot, 100));
    ck_assert_uint_gt(LFU(new_cold, 100), LFU(old_hot, 100));
    ck_assert_uint_gt(LFU(old_hot, 100), LFU(new_hot, 100));
    ck_assert_uint_gt(LRU(before_wrap, wrapped), LRU(old_hot, wrapped));
}
END_TEST

START_TEST(alter_changes_policy_and_nothing_else)
{
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_SGD);
    rps_table_spec spec = *rps_table_spec_of(table);
    struct rps_error error = {.text = ""};
    struct rps_digest before;

    push_range(table, 1, 0, 500);
    before = rps_table_digest(table);
    spec.max_cold_steps = 5;
    spec.min_used_times = 3;
    ck_assert_int_eq(rps_table_alter(table, &spec, at_step(4), &error), RPS_OK);
    ck_assert(same_digest(before, rps_table_digest(table)));
    ck_assert_uint_eq(push_ok(table, 5, 1, &(uint64_t){900}, NULL).applied, 0);
    ck_assert_uint_eq(evict_at(table, at_step(7)).cold, 500);
    spec.dim = 3;
    ck_assert_int_eq(
            rps_table_alter(table, &spec, at_step(4), &error), RPS_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "dim"));
    spec.dim = 2;
    spec.max_cold_secs = 7;
    ck_assert_int_eq(
            rps_table_alter(table, &spec, at_step(4), &error), RPS_E_INVAL);
    ck_assert_uint_eq(rps_table_spec_of(table)->max_cold_secs, 0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(another_tick_makes_all_rows_as_old_as_now)
{
    const uint64_t now = 1800000000;
    struct rps_table *table = cold_table(10, 0, 0);
    rps_table_spec spec = *rps_table_spec_of(table);

    push_range(table, 1, 0, 100);
    spec.max_cold_steps = 0;
    spec.max_cold_secs = 100;
    ck_assert_int_eq(rps_table_alter(table, &spec,
                             (struct rps_now){.step = 50, .unix_s = now}, NULL),
            RPS_OK);
    ck_assert_uint_eq(
            evict_at(table, (struct rps_now){.unix_s = now + 100}).cold, 0);
    spec.max_cold_secs = 0;
    spec.max_cold_steps = 10;
    ck_assert_int_eq(
            rps_table_alter(table, &spec,
                    (struct rps_now){.step = 60, .unix_s = now + 100}, NULL),
            RPS_OK);
    ck_assert_uint_eq(evict_at(table, at_step(70)).cold, 0);
    ck_assert_uint_eq(evict_at(table, at_step(71)).cold, 100);
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("eviction");
    TCase *tc = tcase_create("eviction");

    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, special_keys_are_erased_and_come_back_fresh);
    tcase_add_test(tc, an_erase_takes_absent_keys_and_duplicates);
    tcase_add_test(tc, a_row_is_cold_one_step_after_max_cold_steps);
    tcase_add_test(tc, a_row_is_cold_one_second_after_max_cold_secs);
    tcase_add_test(tc, long_times_are_counted_in_ticks_of_several_seconds);
    tcase_add_test(tc, a_clock_that_goes_back_makes_no_row_cold);
    tcase_add_test(tc, keep_min_rows_stay_however_cold);
    tcase_add_test(tc, a_stamp_does_not_wrap_unseen);
    tcase_add_test(tc, slices_do_what_a_pass_does);
    tcase_add_test(tc, an_evicted_row_is_sent_by_refresh);
    tcase_add_test(tc, refresh_by_step_works_where_ticks_are_seconds);
    tcase_add_test(tc, scores_order_by_age_or_by_uses);
    tcase_add_test(tc, alter_changes_policy_and_nothing_else);
    tcase_add_test(tc, another_tick_makes_all_rows_as_old_as_now);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
