/* SPDX-License-Identifier: Apache-2.0 */
/* Bags of several fields: pooled and spread back, by hand. */
#include "client/worker/bags.h"
#include "tests/unit/suite.h"

#include <string.h>

/* Two rows of four fields, in tokens: 0: {1}, {}, {2, 2}, {3};
 * 1: {4}, {5, 6}, {}, {}. */
static uint64_t keys[] = {1, 2, 2, 3, 4, 5, 6};
static uint32_t offsets[] = {0, 1, 1, 3, 4, 5, 7, 7, 7};
static const struct rps_batch batch = {
        .rows = 2,
        .capacity = 2,
        .shape = {.labels = 1, .fields = 4},
        .keys = keys,
        .offsets = offsets,
        .key_count = 7,
};

/* Bag 0 has the fields 2 and 0, in this order, bag 1 field 1. */
static const uint32_t fields[] = {2, 0, 1}, starts[] = {0, 2, 3};

static struct rps_bags_work work;

static void
finish(struct rps_bags *bags)
{
    rps_bags_finish(bags);
    rps_bags_work_finish(&work);
}

static struct rps_bags
take(enum rps_pooling pooling)
{
    const struct rps_model_table table = {
            .name = "t",
            .dim = 2,
            .pooling = pooling,
            .bags = 2,
            .bag_starts = starts,
            .fields = fields,
    };
    struct rps_bags bags;

    rps_bags_init(&bags, &table, &work);
    ck_assert_int_eq(rps_bags_take(&bags, &batch, NULL), RPS_OK);
    ck_assert_int_eq(rps_bags_prepare(&bags, true, NULL), RPS_OK);
    ck_assert_uint_eq(bags.bag_count, 4);
    ck_assert_uint_eq(bags.key_count, 6);
    for (size_t i = 0; i < bags.key_count; i++) {
        bags.rows[2 * i] = (float)bags.keys[i];
        bags.rows[2 * i + 1] = -10.0f * (float)bags.keys[i];
    }
    return bags;
}

/* Bags: {2, 2, 1}, {}, {4}, {5, 6}. */
START_TEST(tokens_come_in_the_order_of_the_bags_fields)
{
    static const uint64_t want[] = {2, 2, 1, 4, 5, 6};
    static const uint32_t ends[] = {0, 3, 3, 4, 6};
    struct rps_bags bags = take(RPS_POOLING_SUM);

    ck_assert_mem_eq(bags.keys, want, sizeof(want));
    ck_assert_mem_eq(bags.offsets, ends, sizeof(ends));
    finish(&bags);
}
END_TEST

static const struct {
    enum rps_pooling pooling;
    float pooled[4]; /* column 0 of each bag */
    float shares[6]; /* of a bag's gradient, a token's */
} poolings[] = {
        {RPS_POOLING_SUM, {5, 0, 4, 11}, {1, 1, 1, 1, 1, 1}},
        {RPS_POOLING_MEAN, {5.0f / 3, 0, 4, 5.5f},
                {1.0f / 3, 1.0f / 3, 1.0f / 3, 1, 0.5f, 0.5f}},
        {RPS_POOLING_SQRTN, {5.0f / 1.7320508f, 0, 4, 11.0f / 1.4142135f},
                {1.0f / 1.7320508f, 1.0f / 1.7320508f, 1.0f / 1.7320508f, 1,
                        1.0f / 1.4142135f, 1.0f / 1.4142135f}},
};

START_TEST(a_bag_is_its_rows_sum_divided_as_the_pooling_says)
{
    struct rps_bags bags = take(poolings[_i].pooling);
    const float *pooled = rps_bags_pool(&bags);

    for (size_t b = 0; b < 4; b++) {
        ck_assert_float_eq_tol(pooled[2 * b], poolings[_i].pooled[b], 1e-6f);
        ck_assert_float_eq_tol(
                pooled[2 * b + 1], -10.0f * poolings[_i].pooled[b], 1e-5f);
    }
    finish(&bags);
}
END_TEST

START_TEST(each_token_gets_its_share_of_the_bags_gradient)
{
    static const size_t bag_of[] = {0, 0, 0, 2, 3, 3};
    struct rps_bags bags = take(poolings[_i].pooling);
    float *gradient = rps_bags_gradient(&bags);
    const float *spread;

    for (size_t i = 0; i < 8; i++) {
        gradient[i] = (float)(i + 1);
    }
    spread = rps_bags_spread(&bags, gradient);
    for (size_t i = 0; i < 12; i++) {
        const float whole = (float)(2 * bag_of[i / 2] + i % 2 + 1);

        ck_assert_float_eq_tol(
                spread[i], whole * poolings[_i].shares[i / 2], 1e-6f);
    }
    finish(&bags);
}
END_TEST

/* Bag 0 has the fields 1 and 2, bag 1 field 3: {2, 2}, {3}, {5, 6}, {}. */
START_TEST(fields_that_stand_side_by_side_are_taken_the_same)
{
    static const uint32_t side_by_side[] = {1, 2, 3};
    static const uint64_t want[] = {2, 2, 3, 5, 6};
    static const uint32_t ends[] = {0, 2, 3, 5, 5};
    const struct rps_model_table table = {
            .name = "t",
            .dim = 2,
            .pooling = poolings[_i].pooling,
            .bags = 2,
            .bag_starts = starts,
            .fields = side_by_side,
    };
    struct rps_bags bags;

    rps_bags_init(&bags, &table, &work);
    ck_assert_int_eq(rps_bags_take(&bags, &batch, NULL), RPS_OK);
    ck_assert_int_eq(rps_bags_prepare(&bags, true, NULL), RPS_OK);
    ck_assert(bags.in_order && !bags.one_each);
    ck_assert_int_eq(bags.divides, _i > 0);
    ck_assert_uint_eq(bags.key_count, 5);
    ck_assert_mem_eq(bags.keys, want, sizeof(want));
    ck_assert_mem_eq(bags.offsets, ends, sizeof(ends));
    finish(&bags);
}
END_TEST

START_TEST(a_batch_without_tokens_is_zeros)
{
    uint32_t none[9] = {0};
    struct rps_batch empty = batch;
    const struct rps_model_table table = {
            .name = "t",
            .dim = 3,
            .pooling = poolings[_i].pooling,
            .bags = 2,
            .bag_starts = starts,
            .fields = fields,
    };
    const float zeros[12] = {0};
    struct rps_bags bags;

    empty.offsets = none;
    empty.key_count = 0;
    rps_bags_init(&bags, &table, &work);
    ck_assert_int_eq(rps_bags_take(&bags, &empty, NULL), RPS_OK);
    ck_assert_int_eq(rps_bags_prepare(&bags, true, NULL), RPS_OK);
    ck_assert_uint_eq(bags.key_count, 0);
    ck_assert_mem_eq(rps_bags_pool(&bags), zeros, sizeof(zeros));
    ck_assert_ptr_nonnull(rps_bags_gradient(&bags));
    ck_assert_ptr_nonnull(rps_bags_spread(&bags, rps_bags_gradient(&bags)));
    finish(&bags);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("bags");
    TCase *tcase = tcase_create("bags");

    tcase_add_test(tcase, tokens_come_in_the_order_of_the_bags_fields);
    tcase_add_loop_test(
            tcase, a_bag_is_its_rows_sum_divided_as_the_pooling_says, 0, 3);
    tcase_add_loop_test(
            tcase, each_token_gets_its_share_of_the_bags_gradient, 0, 3);
    tcase_add_loop_test(
            tcase, fields_that_stand_side_by_side_are_taken_the_same, 0, 3);
    tcase_add_loop_test(tcase, a_batch_without_tokens_is_zeros, 0, 3);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
