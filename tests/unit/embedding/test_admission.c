/* SPDX-License-Identifier: Apache-2.0 */
/* Who gets a row: min_used_times, in pushes and in lookups. */
#include "embedding/meta.h"
#include "tests/unit/embedding/policy.h"

static struct rps_table *
table_with(uint64_t min_used_times, enum rps_admission admission)
{
    rps_table_spec spec = spec_of(2, RPS_OPTIMIZER_SGD);

    spec.min_used_times = min_used_times;
    spec.admission = admission;
    spec.default_value = 7.0f;
    return table_of(&spec);
}

/* What a lookup of one key with a multiplicity answers: the default? */
static bool
answers_default(struct rps_table *table, uint64_t key, uint32_t count)
{
    const struct rps_read read = {.count = 1, .keys = &key, .counts = &count};
    float row[2];

    rps_table_lookup(table, &read, row, sizeof(row));
    return row[0] == 7.0f && row[1] == 7.0f;
}

START_TEST(a_key_gets_its_row_with_the_push_that_reaches_the_threshold)
{
    struct rps_table *table = table_with(3, (enum rps_admission)_i);
    const uint64_t key = 5;

    for (uint64_t step = 1; step <= 2; step++) {
        const struct rps_apply_report report =
                push_ok(table, step, 1, &key, NULL);
        ck_assert_uint_eq(report.applied, 0);
        ck_assert_uint_eq(report.unadmitted, 1);
        ck_assert(!has_row(table, key));
    }
    ck_assert_uint_eq(push_ok(table, 3, 1, &key, NULL).applied, 1);
    ck_assert(has_row(table, key));
    ck_assert_uint_eq(stats_of(table).unadmitted, 2);
    rps_table_destroy(table);
}
END_TEST

START_TEST(multiplicities_inside_one_push_count)
{
    struct rps_table *table = table_with(4, (enum rps_admission)_i);
    const uint64_t keys[] = {1, 2, 3};
    const uint32_t counts[] = {3, 4, 1};
    const uint64_t twice[] = {3, 3};

    ck_assert_uint_eq(push_ok(table, 1, 3, keys, counts).applied, 1);
    ck_assert(!has_row(table, 1));
    ck_assert(has_row(table, 2));
    /* 1 so far, then the same key three times in one push */
    ck_assert_uint_eq(push_ok(table, 2, 2, twice, NULL).unadmitted, 1);
    ck_assert_uint_eq(push_ok(table, 3, 1, &keys[2], NULL).applied, 1);
    ck_assert_uint_eq(push_ok(table, 4, 1, &keys[0], NULL).applied, 1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_lookup_adds_its_own_multiplicity_and_counts_nothing)
{
    struct rps_table *table = table_with(3, (enum rps_admission)_i);
    const uint64_t key = UINT64_MAX;

    ck_assert(answers_default(table, key, 2));
    ck_assert(!answers_default(table, key, 3));
    ck_assert(answers_default(table, key, 2));
    push_ok(table, 1, 1, &key, NULL);
    ck_assert(answers_default(table, key, 1));
    ck_assert(!answers_default(table, key, 2));
    push_ok(table, 2, 1, &key, NULL);
    ck_assert(!answers_default(table, key, 1));
    ck_assert(!has_row(table, key));
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_read_only_lookup_of_an_admitted_key_without_a_row_is_default)
{
    struct rps_table *table = table_with(1, RPS_ADMISSION_EXACT);
    const uint64_t key = 8;
    float row[2];

    look_up(table, 1, &key, true, row, sizeof(row));
    ck_assert(row[0] == 7.0f);
    ck_assert(!answers_default(table, key, 1));
    rps_table_destroy(table);
}
END_TEST

START_TEST(thresholds_of_0_and_1_admit_everyone)
{
    for (uint64_t threshold = 0; threshold <= 1; threshold++) {
        struct rps_table *table = table_with(threshold, (enum rps_admission)_i);
        ck_assert_uint_eq(
                push_ok(table, 1, SPECIAL_KEYS, special_keys, NULL).applied,
                SPECIAL_KEYS);
        ck_assert_uint_eq(stats_of(table).admission_bytes, 0);
        rps_table_destroy(table);
    }
}
END_TEST

START_TEST(every_key_is_counted)
{
    struct rps_table *table = table_with(2, (enum rps_admission)_i);

    ck_assert_uint_eq(
            push_ok(table, 1, SPECIAL_KEYS, special_keys, NULL).unadmitted,
            SPECIAL_KEYS);
    ck_assert_uint_eq(rows_of(table), 0);
    ck_assert_uint_eq(
            push_ok(table, 2, SPECIAL_KEYS, special_keys, NULL).applied,
            SPECIAL_KEYS);
    ck_assert_uint_eq(rows_of(table), SPECIAL_KEYS);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_gradient_that_is_not_finite_is_not_counted)
{
    struct rps_table *table = table_with(2, (enum rps_admission)_i);
    const struct rps_update update = {
            .step = 1, .t = 1, .learning_rate = NAN, .scale = 1.0f};
    const uint64_t keys[] = {4, 4};
    const float gradients[] = {1.0f, INFINITY, 1.0f, 1.0f};
    const struct rps_contribution contribution = {
            .count = 2, .keys = keys, .gradients = gradients};
    struct rps_apply_report report;

    ck_assert_int_eq(
            rps_table_apply(table, &update, &contribution, 1, &report), RPS_OK);
    ck_assert_uint_eq(report.nonfinite, 1);
    ck_assert_uint_eq(report.unadmitted, 1);
    ck_assert(!has_row(table, 4));
    ck_assert(answers_default(table, 4, 0));
    ck_assert(!answers_default(table, 4, 1));
    rps_table_destroy(table);
}
END_TEST

START_TEST(the_contributions_of_a_step_count_together)
{
    struct rps_table *table = table_with(3, RPS_ADMISSION_EXACT);
    const struct rps_update update = {
            .step = 1, .t = 1, .learning_rate = NAN, .scale = 1.0f};
    const uint64_t key = 6;
    const uint32_t count = 2;
    const float gradient[2] = {1.0f, 1.0f};
    const struct rps_contribution both[2] = {
            {.count = 1, .keys = &key, .gradients = gradient},
            {.count = 1,
                    .keys = &key,
                    .counts = &count,
                    .gradients = gradient}};
    struct rps_apply_report report;

    ck_assert_int_eq(rps_table_apply(table, &update, both, 2, &report), RPS_OK);
    ck_assert_uint_eq(report.applied, 1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(uses_start_from_what_was_counted)
{
    struct rps_table *table = table_with(1000, RPS_ADMISSION_EXACT);
    const uint32_t many = 999;
    double sum = 0.0;

    for (uint64_t key = 0; key < 500; key++) {
        push_ok(table, 1, 1, &key, &many);
        push_ok(table, 2, 1, &key, NULL);
        sum += rps_uses_estimate(RPS_META_USES(see(table, key, 0).meta));
    }
    ck_assert(sum / 500 > 940 && sum / 500 < 1060); /* 7 deviations */
    rps_table_destroy(table);
}
END_TEST

START_TEST(an_erased_key_has_to_be_admitted_again)
{
    struct rps_table *table = table_with(2, RPS_ADMISSION_EXACT);
    const uint64_t key = 9;

    push_ok(table, 1, 1, &key, NULL);
    ck_assert_uint_eq(rps_table_erase(table, 1, &key), 0); /* its count */
    ck_assert_uint_eq(push_ok(table, 2, 1, &key, NULL).unadmitted, 1);
    ck_assert_uint_eq(push_ok(table, 3, 1, &key, NULL).applied, 1);
    ck_assert_uint_eq(rps_table_erase(table, 1, &key), 1);
    ck_assert_uint_eq(push_ok(table, 4, 1, &key, NULL).unadmitted, 1);
    ck_assert_uint_eq(push_ok(table, 5, 1, &key, NULL).applied, 1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_large_push_makes_rows_of_admitted_keys_alone)
{
    enum {
        KEYS = 20000
    };
    static uint64_t keys[KEYS];
    static uint32_t counts[KEYS];
    struct rps_table *table = table_with(2, (enum rps_admission)_i);

    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        counts[i] = 1 + i % 2;
    }
    ck_assert_uint_eq(push_ok(table, 1, KEYS, keys, counts).applied, KEYS / 2);
    ck_assert_uint_eq(rows_of(table), KEYS / 2);
    ck_assert_uint_eq(push_ok(table, 2, KEYS, keys, counts).applied, KEYS);
    ck_assert_uint_eq(rows_of(table), KEYS);
    rps_table_destroy(table);
}
END_TEST

struct copy {
    struct rps_table *to;
    uint64_t count;
};

static rps_status
copy_count(void *context, const struct rps_admission_count *count)
{
    struct copy *copy = context;

    copy->count++;
    return rps_table_restore_admission(copy->to, 1, count, NULL);
}

START_TEST(counts_that_are_visited_and_restored_go_on)
{
    struct rps_table *table = table_with(5, (enum rps_admission)_i);
    struct copy copy = {.to = table_with(5, (enum rps_admission)_i)};

    for (uint64_t key = 0; key < 100; key++) {
        const uint32_t count = 1 + key % 4;
        push_ok(table, 1, 1, &key, &count);
    }
    ck_assert_int_eq(
            rps_table_visit_admission(table, copy_count, &copy), RPS_OK);
    ck_assert_uint_ge(copy.count, 100);
    for (uint64_t key = 0; key < 100; key++) {
        const uint32_t left = 5 - (1 + key % 4);
        ck_assert(answers_default(copy.to, key, left - 1));
        ck_assert(!answers_default(copy.to, key, left));
    }
    rps_table_destroy(table);
    rps_table_destroy(copy.to);
}
END_TEST

START_TEST(counts_that_cannot_be_are_refused_by_name)
{
    struct rps_table *table = table_with(5, RPS_ADMISSION_SKETCH);
    struct rps_admission_count count = {
            .id = (uint64_t)4096 * RPS_SKETCH_CELLS, .count = 1};
    struct rps_error error = {.text = ""};

    ck_assert_int_eq(
            rps_table_restore_admission(table, 1, &count, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "33554432"));
    count = (struct rps_admission_count){.id = 3, .count = 0};
    ck_assert_int_eq(
            rps_table_restore_admission(table, 1, &count, &error), RPS_E_INVAL);
    rps_table_destroy(table);
}
END_TEST

START_TEST(counts_fade_where_rows_get_cold)
{
    rps_table_spec spec = spec_of(2, RPS_OPTIMIZER_SGD);
    struct rps_table *table = NULL;
    const uint64_t key = 3;

    spec.min_used_times = 4;
    spec.max_cold_steps = 10;
    spec.admission = (enum rps_admission)_i;
    table = table_of(&spec);
    evict_at(table, (struct rps_now){.step = 1});
    push_ok(table, 1, 1, &key, (const uint32_t[]){3});
    evict_at(table, (struct rps_now){.step = 10});
    ck_assert(!answers_default(table, key, 1)); /* 3 still */
    evict_at(table, (struct rps_now){.step = 11});
    evict_at(table, (struct rps_now){.step = 12});
    push_ok(table, 12, 1, &key, (const uint32_t[]){2}); /* 1 + 2 < 4 */
    ck_assert(!has_row(table, key));
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("admission");
    TCase *tc = tcase_create("admission");

    tcase_set_timeout(tc, 120);
#define BOTH(name) tcase_add_loop_test(tc, name, 0, 2)
    BOTH(a_key_gets_its_row_with_the_push_that_reaches_the_threshold);
    BOTH(multiplicities_inside_one_push_count);
    BOTH(a_lookup_adds_its_own_multiplicity_and_counts_nothing);
    tcase_add_test(
            tc, a_read_only_lookup_of_an_admitted_key_without_a_row_is_default);
    BOTH(thresholds_of_0_and_1_admit_everyone);
    BOTH(every_key_is_counted);
    BOTH(a_gradient_that_is_not_finite_is_not_counted);
    tcase_add_test(tc, the_contributions_of_a_step_count_together);
    tcase_add_test(tc, uses_start_from_what_was_counted);
    tcase_add_test(tc, an_erased_key_has_to_be_admitted_again);
    BOTH(a_large_push_makes_rows_of_admitted_keys_alone);
    BOTH(counts_that_are_visited_and_restored_go_on);
    tcase_add_test(tc, counts_that_cannot_be_are_refused_by_name);
    BOTH(counts_fade_where_rows_get_cold);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
