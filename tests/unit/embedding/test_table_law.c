/* SPDX-License-Identifier: Apache-2.0 */
/* The gradient law: sums in order, refusals, scale, clips, dense tails. */
#include "tests/unit/embedding/fixture.h"

static struct rps_apply_report
apply_scaled(struct rps_table *table, float scale,
        const struct rps_contribution *contributions, size_t n)
{
    const struct rps_update update = {
            .step = 1, .t = 1, .learning_rate = 1.0f, .scale = scale};
    struct rps_apply_report report;

    ck_assert_int_eq(
            rps_table_apply(table, &update, contributions, n, &report), RPS_OK);
    return report;
}

/* sgd at rate 1 from zeros: a row is minus the gradient that was applied */
static struct rps_table *
mirror(uint32_t dim, float clip_value, float clip_norm)
{
    rps_table_spec spec = spec_of(dim, RPS_OPTIMIZER_SGD);

    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.learning_rate = 1.0f;
    spec.clip_value = clip_value;
    spec.clip_norm = clip_norm;
    return table_of(&spec);
}

static void
assert_applied(struct rps_table *table, uint64_t key, const float *gradient)
{
    const size_t dim = rps_table_spec_of(table)->dim;
    float row[8];

    read_row(table, key, row);
    for (size_t j = 0; j < dim; j++) {
        ck_assert_float_eq(row[j], -gradient[j]);
    }
}

/* In float32 (1e8 + 1) - 1e8 is 0 and (1e8 - 1e8) + 1 is 1. */
START_TEST(duplicates_are_summed_in_order_within_a_push)
{
    const uint64_t keys[6] = {5, 6, 5, 6, 5, 6};
    const float gradients[6] = {1e8f, 1e8f, 1.0f, -1e8f, -1e8f, 1.0f};
    struct rps_table *table = mirror(1, 0.0f, 0.0f);

    ck_assert_uint_eq(push(table, 1, 6, keys, gradients).applied, 2);
    assert_applied(table, 5, (const float[]){0.0f});
    assert_applied(table, 6, (const float[]){1.0f});
    rps_table_destroy(table);
}
END_TEST

START_TEST(duplicates_are_summed_in_order_across_contributions)
{
    const uint64_t key = 9;
    const float big = 1e8f;
    const float one = 1.0f;
    const float minus = -1e8f;
    struct rps_contribution parts[3] = {
            {.count = 1, .keys = &key, .gradients = &big},
            {.count = 1, .keys = &key, .gradients = &one},
            {.count = 1, .keys = &key, .gradients = &minus}};
    struct rps_table *table = mirror(1, 0.0f, 0.0f);

    ck_assert_uint_eq(apply_scaled(table, 1.0f, parts, 3).applied, 1);
    assert_applied(table, 9, (const float[]){0.0f});
    rps_table_destroy(table);

    table = mirror(1, 0.0f, 0.0f);
    parts[1].gradients = &minus;
    parts[2].gradients = &one;
    apply_scaled(table, 1.0f, parts, 3);
    assert_applied(table, 9, (const float[]){1.0f});
    rps_table_destroy(table);
}
END_TEST

START_TEST(duplicates_take_one_optimizer_step)
{
    const uint64_t keys[3] = {1, 1, 1};
    const float gradients[3] = {1.0f, 2.0f, 4.0f};
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_ADAGRAD);
    struct seen_row seen;

    push(table, 1, 3, keys, gradients);
    seen = see(table, 1, 1);
    ck_assert_float_eq(seen.content[1], 0.1f + 49.0f);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_gradient_that_is_not_finite_leaves_the_others)
{
    const uint64_t keys[4] = {1, 2, 1, 3};
    const float with[8] = {1, 2, INFINITY, 0, 10, NAN, 5, 6};
    const float second[2] = {100, 200};
    const struct rps_contribution parts[2] = {
            {.count = 4, .keys = keys, .gradients = with},
            {.count = 1, .keys = keys, .gradients = second}};
    struct rps_table *table = mirror(2, 0.0f, 0.0f);
    const struct rps_apply_report report = apply_scaled(table, 1.0f, parts, 2);
    struct rps_table_stats stats;

    ck_assert_uint_eq(report.applied, 2);
    ck_assert_uint_eq(report.nonfinite, 2);
    ck_assert_uint_eq(report.nonfinite_key, 2);
    assert_applied(table, 1, (const float[]){101, 202});
    assert_applied(table, 3, (const float[]){5, 6});
    ck_assert(!see(table, 2, 0).found);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.nonfinite, 2);
    ck_assert_uint_eq(stats.rows, 2);
    rps_table_destroy(table);
}
END_TEST

/* 1e30 squared is beyond float32: the accumulator, and with it every later
 * checkpoint, would be lost. */
START_TEST(a_step_whose_result_overflows_is_taken_back)
{
    rps_table_spec spec = spec_of(2, RPS_OPTIMIZER_ADAGRAD);
    const uint64_t keys[2] = {4, 5};
    const float small[4] = {1.0f, 1.0f, 1.0f, 1.0f};
    const float huge[4] = {1.0f, 1e30f, 1.0f, 1.0f};
    struct rps_table *table = table_of(&spec);
    struct rps_apply_report report;
    float before[2], after[2];

    push(table, 1, 2, keys, small);
    read_row(table, 4, before);
    report = push(table, 2, 2, keys, huge);
    ck_assert_uint_eq(report.applied, 1);
    ck_assert_uint_eq(report.nonfinite, 1);
    ck_assert_uint_eq(report.nonfinite_key, 4);
    read_row(table, 4, after);
    ck_assert_mem_eq(before, after, sizeof(before));
    /* the row learns on as if that push had not been */
    ck_assert_uint_eq(push(table, 3, 2, keys, small).nonfinite, 0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_sum_that_overflows_is_refused)
{
    const uint64_t keys[3] = {4, 4, 5};
    const float gradients[3] = {3e38f, 3e38f, 7.0f};
    struct rps_table *table = mirror(1, 1.0f, 0.0f);
    const struct rps_apply_report report = push(table, 1, 3, keys, gradients);

    ck_assert_uint_eq(report.applied, 1);
    ck_assert_uint_eq(report.nonfinite, 2);
    ck_assert_uint_eq(report.nonfinite_key, 4);
    ck_assert_uint_eq(rows_of(table), 1);
    /* what was reserved for key 4 must be there for others again */
    push(table, 2, 1, keys, gradients);
    ck_assert_uint_eq(rows_of(table), 2);
    rps_table_destroy(table);
}
END_TEST

/* Keys of a push that is too large for a shard to promise to any of them: some
 * have a row, some get one, some are refused. */
START_TEST(what_a_push_did_not_use_is_given_back)
{
    enum {
        ROWS = 200000,
        KEYS = 6000
    };
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_SGD);
    uint64_t *keys = malloc(ROWS * sizeof(*keys));
    float *gradients = calloc(ROWS, sizeof(*gradients));
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;
    struct rps_apply_report report;

    ck_assert(keys != NULL && gradients != NULL);
    ck_assert_int_eq(
            rps_table_create_sharded(&table, &spec, 0, 0, &error), RPS_OK);
    for (uint64_t i = 0; i < ROWS; i++) {
        keys[i] = i;
    }
    push(table, 1, ROWS, keys, gradients);
    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = ROWS - KEYS / 2 + i;
        gradients[i] = i % 3 == 0 ? NAN : 1.0f;
    }
    report = push(table, 2, KEYS, keys, gradients);
    ck_assert_uint_eq(report.applied, KEYS * 2 / 3);
    ck_assert_uint_eq(report.nonfinite, KEYS / 3);
    ck_assert_uint_eq(rows_of(table), ROWS + KEYS / 3);
    ck_assert_uint_eq(table->shards[0].reserved, 0);
    ck_assert_uint_eq(table->shards[0].anywhere, 0);
    for (size_t i = 0; i < RPS_INDEX_PARTS; i++) {
        ck_assert_uint_eq(table->shards[0].promised[i], 0);
    }
    rps_table_destroy(table);
    free(keys);
    free(gradients);
}
END_TEST

START_TEST(mean_scales_the_sum)
{
    const uint64_t key = 1;
    const float first = 3.0f;
    const float second = 5.0f;
    const struct rps_contribution parts[2] = {
            {.count = 1, .keys = &key, .gradients = &first},
            {.count = 1, .keys = &key, .gradients = &second}};
    struct rps_table *table = mirror(1, 0.0f, 0.0f);

    apply_scaled(table, 0.5f, parts, 2);
    assert_applied(table, 1, (const float[]){4.0f});
    rps_table_destroy(table);
}
END_TEST

START_TEST(values_are_clipped_after_the_sum_and_before_the_norm)
{
    const uint64_t keys[2] = {1, 1};
    const float gradients[4] = {6.0f, 1.0f, -3.0f, -9.0f};
    struct rps_table *table = mirror(2, 4.0f, 0.0f);

    push(table, 1, 2, keys, gradients); /* sum 3, -8 */
    assert_applied(table, 1, (const float[]){3.0f, -4.0f});
    rps_table_destroy(table);
    table = mirror(2, 4.0f, 2.5f); /* norm of 3, -4 is 5 */
    push(table, 1, 2, keys, gradients);
    assert_applied(table, 1, (const float[]){1.5f, -2.0f});
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_norm_within_the_limit_changes_nothing)
{
    const uint64_t key = 1;
    const float gradient[2] = {3.0f, -4.0f};
    struct rps_table *table = mirror(2, 0.0f, 5.0f);

    push(table, 1, 1, &key, gradient);
    assert_applied(table, 1, gradient);
    rps_table_destroy(table);
}
END_TEST

START_TEST(the_norm_of_huge_gradients_does_not_overflow)
{
    const uint64_t key = 1;
    const float gradient[2] = {3e38f, -3e38f};
    struct rps_table *table = mirror(2, 0.0f, 1.0f);
    float row[2];

    push(table, 1, 1, &key, gradient);
    read_row(table, key, row);
    ck_assert_double_eq_tol((double)row[0], -sqrt(0.5), 1e-6);
    ck_assert_double_eq_tol((double)row[1], sqrt(0.5), 1e-6);
    rps_table_destroy(table);
}
END_TEST

START_TEST(an_empty_push_only_counts)
{
    struct rps_table *table = mirror(1, 0.0f, 0.0f);
    struct rps_table_stats stats;
    const struct rps_contribution empty = {.count = 0};

    ck_assert_uint_eq(apply_scaled(table, 1.0f, NULL, 0).applied, 0);
    ck_assert_uint_eq(apply_scaled(table, 1.0f, &empty, 1).applied, 0);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.pushes, 2);
    ck_assert_uint_eq(stats.rows, 0);
    rps_table_destroy(table);
}
END_TEST

static struct rps_table *
dense_table(uint64_t elements, enum rps_optimizer optimizer)
{
    rps_table_spec spec = spec_of(RPS_DENSE_ROW_FLOATS, optimizer);

    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.dense_elements = elements;
    return table_of(&spec);
}

START_TEST(a_dense_table_has_its_keys_only)
{
    struct rps_table *table = dense_table(2049, RPS_OPTIMIZER_ADAM);
    struct rps_error error = {.text = ""};
    const uint64_t keys[4] = {0, 1, 2, 3};
    static const float rows[4 * RPS_DENSE_ROW_FLOATS];

    ck_assert_int_eq(rps_table_check_keys(table, 3, keys, &error), RPS_OK);
    ck_assert_int_eq(rps_table_check_keys(table, 4, keys, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "key 3"));
    ck_assert_int_eq(rps_table_assign(table, 4, keys, rows, NULL, NULL, &error),
            RPS_E_INVAL);
    ck_assert_uint_eq(rows_of(table), 0);
    rps_table_destroy(table);

    table = dense_table(2048, RPS_OPTIMIZER_ADAM);
    ck_assert_int_eq(rps_table_check_keys(table, 2, keys, NULL), RPS_OK);
    ck_assert_int_eq(rps_table_check_keys(table, 3, keys, NULL), RPS_E_INVAL);
    rps_table_destroy(table);
}
END_TEST

START_TEST(the_tail_of_a_dense_table_stays_zero)
{
    struct rps_table *table = dense_table(1024 + 3, RPS_OPTIMIZER_ADAM);
    float ones[RPS_DENSE_ROW_FLOATS];
    float slots[2 * RPS_DENSE_ROW_FLOATS];
    float row[RPS_DENSE_ROW_FLOATS];
    const uint64_t last = 1;

    for (size_t j = 0; j < RPS_DENSE_ROW_FLOATS; j++) {
        ones[j] = slots[j] = slots[RPS_DENSE_ROW_FLOATS + j] = 1.0f;
    }
    ck_assert_int_eq(
            rps_table_assign(table, 1, &last, ones, slots, NULL, NULL), RPS_OK);
    ones[10] = NAN; /* in the tail: not part of the variable */
    ck_assert_uint_eq(push(table, 1, 1, &last, ones).nonfinite, 0);
    read_row(table, last, row);
    for (size_t j = 0; j < RPS_DENSE_ROW_FLOATS; j++) {
        ck_assert((row[j] != 0.0f) == (j < 3));
    }
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_law");
    TCase *sums = tcase_create("sums");
    TCase *clips = tcase_create("clips");
    TCase *dense = tcase_create("dense");

    tcase_add_test(sums, duplicates_are_summed_in_order_within_a_push);
    tcase_add_test(sums, duplicates_are_summed_in_order_across_contributions);
    tcase_add_test(sums, duplicates_take_one_optimizer_step);
    tcase_add_test(sums, a_gradient_that_is_not_finite_leaves_the_others);
    tcase_add_test(sums, a_sum_that_overflows_is_refused);
    tcase_add_test(sums, a_step_whose_result_overflows_is_taken_back);
    tcase_add_test(sums, what_a_push_did_not_use_is_given_back);
    tcase_add_test(sums, mean_scales_the_sum);
    tcase_add_test(sums, an_empty_push_only_counts);
    suite_add_tcase(suite, sums);
    tcase_add_test(clips, values_are_clipped_after_the_sum_and_before_the_norm);
    tcase_add_test(clips, a_norm_within_the_limit_changes_nothing);
    tcase_add_test(clips, the_norm_of_huge_gradients_does_not_overflow);
    suite_add_tcase(suite, clips);
    tcase_add_test(dense, a_dense_table_has_its_keys_only);
    tcase_add_test(dense, the_tail_of_a_dense_table_stays_zero);
    suite_add_tcase(suite, dense);
    return run_suite(suite);
}
