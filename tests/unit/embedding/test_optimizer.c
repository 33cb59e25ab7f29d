/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each optimizer against a model in double that applies the formulas of
 * docs/TABLE.md to one number at a time, over many steps with duplicates.
 */
#include "base/spec.h"
#include "tests/unit/embedding/fixture.h"

#define DIM    5u
#define KEYS   7u
#define BATCH  12u /* more than KEYS: each batch has duplicates */
#define STEPS  300u
#define FLOATS (KEYS * DIM)
#define WITHIN 2e-6 /* of weights near 0.05 after 300 float32 steps */

/* The model of one table: weights and slots of every key, in double. */
struct model {
    double w[FLOATS];
    double s0[FLOATS];
    double s1[FLOATS];
};

typedef void step_fn(struct model *model, size_t at, double g, uint64_t t);

static void
sgd_model(struct model *model, size_t at, double g, uint64_t t)
{
    model->w[at] -= 0.01 * g;
}

static void
adagrad_model(struct model *model, size_t at, double g, uint64_t t)
{
    model->s0[at] += g * g;
    model->w[at] -= 0.02 * g / sqrt(model->s0[at]);
}

static void
adam_model(struct model *model, size_t at, double g, uint64_t t)
{
    const double c1 = 1.0 - pow(0.9, (double)t);
    const double c2 = 1.0 - pow(0.999, (double)t);

    model->s0[at] = 0.9 * model->s0[at] + 0.1 * g;
    model->s1[at] = 0.999 * model->s1[at] + 0.001 * g * g;
    model->w[at] -=
            0.001 * (model->s0[at] / c1) / (sqrt(model->s1[at] / c2) + 1e-8);
}

static void
momentum_model(struct model *model, size_t at, double g, uint64_t t)
{
    model->s0[at] = 0.9 * model->s0[at] + g;
    model->w[at] -= 0.001 * model->s0[at];
}

static void
adamw_model(struct model *model, size_t at, double g, uint64_t t)
{
    model->w[at] *= 1.0 - 0.001 * 0.004;
    adam_model(model, at, g, t);
}

static void
ftrl_model(struct model *model, size_t at, double g, uint64_t t)
{
    const double n = model->s0[at] + g * g;

    model->s1[at] += g - (sqrt(n) - sqrt(model->s0[at])) / 0.001 * model->w[at];
    model->s0[at] = n;
    model->w[at] = -model->s1[at] * 0.001 / sqrt(n);
}

static void
rmsprop_model(struct model *model, size_t at, double g, uint64_t t)
{
    model->s0[at] = 0.9 * model->s0[at] + 0.1 * g * g;
    model->w[at] -= 0.001 * g / sqrt(model->s0[at] + 1e-10);
}

/* The accumulator is the row's: the mean of the squares of its elements. */
static void
rowwise_model(struct model *model, size_t at, double g, uint64_t t)
{
    model->w[at] -= 0.001 * g / (sqrt(model->s0[at]) + 1e-8);
}

static void
rowwise_accumulate(struct model *model, const double *sums, const bool *occurs)
{
    for (size_t key = 0; key < KEYS; key++) {
        double squares = 0.0;
        for (size_t j = 0; occurs[key] && j < DIM; j++) {
            squares += sums[key * DIM + j] * sums[key * DIM + j];
        }
        for (size_t j = 0; j < DIM; j++) {
            model->s0[key * DIM + j] += squares / DIM;
        }
    }
}

/* Sum the duplicates in double, step each key that occurs once. */
static void
model_push(struct model *model, step_fn *step, uint64_t t, const uint64_t *keys,
        const float *gradients)
{
    double sums[FLOATS] = {0.0};
    bool occurs[KEYS] = {false};

    for (size_t i = 0; i < BATCH; i++) {
        occurs[keys[i]] = true;
        for (size_t j = 0; j < DIM; j++) {
            sums[keys[i] * DIM + j] += (double)gradients[i * DIM + j];
        }
    }
    if (step == rowwise_model) {
        rowwise_accumulate(model, sums, occurs);
    }
    for (size_t at = 0; at < FLOATS; at++) {
        if (occurs[at / DIM]) {
            step(model, at, sums[at], t);
        }
    }
}

static void
model_init(struct model *model, struct rps_table *table, double accumulator)
{
    memset(model, 0, sizeof(*model));
    for (uint64_t key = 0; key < KEYS; key++) {
        float row[DIM];
        rps_table_first_value(table, key, row);
        for (size_t j = 0; j < DIM; j++) {
            model->w[key * DIM + j] = (double)row[j];
            model->s0[key * DIM + j] = accumulator;
        }
    }
}

static void
assert_follows(const struct model *model, struct rps_table *table)
{
    for (uint64_t key = 0; key < KEYS; key++) {
        float row[DIM];
        read_row(table, key, row);
        for (size_t j = 0; j < DIM; j++) {
            ck_assert_double_eq_tol(
                    (double)row[j], model->w[key * DIM + j], WITHIN);
        }
    }
}

static void
run_model(struct rps_table *table, step_fn *step, double accumulator)
{
    uint64_t random = 88172645463325252u;
    struct model model;

    model_init(&model, table, accumulator);
    for (uint64_t t = 1; t <= STEPS; t++) {
        uint64_t keys[BATCH];
        float gradients[BATCH * DIM];
        for (size_t i = 0; i < BATCH; i++) {
            keys[i] = random_next(&random) % KEYS;
        }
        for (size_t i = 0; i < BATCH * DIM; i++) {
            gradients[i] = 0.1f * random_float(&random);
        }
        push(table, t, BATCH, keys, gradients);
        model_push(&model, step, t, keys, gradients);
        assert_follows(&model, table);
    }
}

START_TEST(sgd_follows_its_model)
{
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_SGD);

    run_model(table, sgd_model, 0.0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(adagrad_follows_its_model)
{
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_ADAGRAD);
    struct rps_table *table = NULL;

    spec.learning_rate = 0.02f;
    table = table_of(&spec);
    run_model(table, adagrad_model, 0.1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(lazy_adam_follows_its_model)
{
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_ADAM);

    run_model(table, adam_model, 0.0);
    rps_table_destroy(table);
}
END_TEST

static const struct {
    enum rps_optimizer optimizer;
    step_fn *step;
    double accumulator;
} others[] = {
        {RPS_OPTIMIZER_MOMENTUM, momentum_model, 0.0},
        {RPS_OPTIMIZER_ROWWISE_ADAGRAD, rowwise_model, 0.1},
        {RPS_OPTIMIZER_ADAMW, adamw_model, 0.0},
        {RPS_OPTIMIZER_FTRL, ftrl_model, 0.1},
        {RPS_OPTIMIZER_RMSPROP, rmsprop_model, 0.0},
};

START_TEST(the_other_optimizers_follow_their_models)
{
    struct rps_table *table = table_new(DIM, others[_i].optimizer);

    run_model(table, others[_i].step, others[_i].accumulator);
    rps_table_destroy(table);
}
END_TEST

/* Key 1 rests from step 20 to step 60 while key 2 is pushed. */
START_TEST(catching_up_counts_from_the_rows_own_last_push)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_ADAM_CATCHUP);
    struct rps_table *lazy = table_new(1, RPS_OPTIMIZER_ADAM);
    const uint64_t keys[2] = {1, 2};
    struct model model = {.w = {0.0}};
    float row = 0.0f;

    rps_table_first_value(table, 1, &row);
    model.w[DIM] = (double)row;
    for (uint64_t t = 1; t <= 60; t++) {
        const bool rests = t > 20 && t < 60;
        const float gradients[2] = {t % 2 == 0 ? 0.5f : 0.25f, 1.0f};
        push(table, t, rests ? 1 : 2, keys + rests, gradients + rests);
        push(lazy, t, rests ? 1 : 2, keys + rests, gradients + rests);
        adam_model(&model, DIM, rests ? 0.0 : (double)gradients[0], t);
    }
    read_row(table, 1, &row);
    ck_assert_double_eq_tol((double)row, model.w[DIM], 2e-6);
    read_row(lazy, 1, &row);
    ck_assert_double_gt(fabs((double)row - model.w[DIM]), 1e-3);
    rps_table_destroy(table);
    rps_table_destroy(lazy);
}
END_TEST

/* Slots that are read out and assigned again go on as if nothing was. */
START_TEST(assigned_slots_go_on_where_they_were)
{
    rps_table_spec spec = spec_of(3, (enum rps_optimizer)_i);
    struct rps_table *one = table_of(&spec);
    struct rps_table *two = table_of(&spec);
    const uint64_t key = 9;
    struct rps_error error;
    struct seen_row seen;
    float rows[2][3];

    for (uint64_t t = 1; t <= 20; t++) {
        const float g[3] = {0.1f * (float)t, -0.3f, 0.01f};
        push(one, t, 1, &key, g);
        if (t == 10) {
            seen = see(one, key, rps_spec_slot_floats(&spec));
            ck_assert_int_eq(
                    rps_table_assign(two, 1, &key, seen.content,
                            rps_spec_slot_floats(&spec) == 0 ? NULL
                                                             : seen.content + 3,
                            &seen.meta, &error),
                    RPS_OK);
        } else if (t > 10) {
            push(two, t, 1, &key, g);
        }
    }
    read_row(one, key, rows[0]);
    read_row(two, key, rows[1]);
    ck_assert_mem_eq(rows[0], rows[1], sizeof(rows[0]));
    rps_table_destroy(one);
    rps_table_destroy(two);
}
END_TEST

START_TEST(slots_of_a_new_row_are_fresh)
{
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_ADAGRAD);
    const uint64_t key = 3;
    const float gradient[2] = {0.0f, 2.0f};
    struct seen_row seen;

    push(table, 1, 1, &key, gradient);
    seen = see(table, key, 2);
    ck_assert_float_eq(seen.content[2], 0.1f);
    ck_assert_float_eq(seen.content[3], 0.1f + 4.0f);
    rps_table_destroy(table);
    table = table_new(1, RPS_OPTIMIZER_ADAM);
    push(table, 1, 1, &key, gradient + 1);
    seen = see(table, key, 2);
    ck_assert_double_eq_tol((double)seen.content[1], 0.2, 1e-7);
    ck_assert_double_eq_tol((double)seen.content[2], 0.004, 1e-7);
    rps_table_destroy(table);
}
END_TEST

/* A first Adam step is the learning rate, whatever the gradient's size. */
START_TEST(adam_counts_this_servers_pushes_where_no_step_is_given)
{
    const struct rps_update async = {
            .step = 900, .t = 0, .learning_rate = 0.5f, .scale = 1.0f};
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_ADAM);
    struct rps_table *restored = table_new(1, RPS_OPTIMIZER_ADAM);
    struct rps_apply_report report;
    const uint64_t key = 1;
    const float gradient = 3.0f;
    const struct rps_contribution one = {
            .count = 1, .keys = &key, .gradients = &gradient};
    float first = 0.0f;
    float row = 0.0f;

    rps_table_first_value(table, key, &first);
    ck_assert_int_eq(rps_table_apply(table, &async, &one, 1, &report), RPS_OK);
    read_row(table, key, &row);
    ck_assert_double_eq_tol((double)first - (double)row, 0.5, 1e-5);

    /* with t = 1001 the correction is sqrt(1 - 0.999^1001) / 1 */
    rps_table_set_pushes(restored, 1000);
    ck_assert_int_eq(
            rps_table_apply(restored, &async, &one, 1, &report), RPS_OK);
    read_row(restored, key, &row);
    ck_assert_double_eq_tol((double)first - (double)row,
            0.5 * sqrt(1.0 - pow(0.999, 1001)) * 0.3 / (sqrt(0.009)), 1e-5);
    rps_table_destroy(table);
    rps_table_destroy(restored);
}
END_TEST

/* m / c1 and sqrt(v / c2) of a first step are the gradient and its size. */
START_TEST(adams_epsilon_is_added_to_the_corrected_root)
{
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_ADAM);
    const float gradient[4] = {1e-7f, -1e-8f, 1e-9f, 0.0f};
    struct rps_table *table = NULL;
    const uint64_t key = 1;
    float row[4];

    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.learning_rate = 1.0f;
    table = table_of(&spec);
    push(table, 1, 1, &key, gradient);
    read_row(table, key, row);
    ck_assert_double_eq_tol((double)row[0], -1.0 / 1.1, 1e-5);
    ck_assert_double_eq_tol((double)row[1], 1.0 / 2.0, 1e-5);
    ck_assert_double_eq_tol((double)row[2], -1.0 / 11.0, 1e-5);
    ck_assert_float_eq(row[3], 0.0f);
    rps_table_destroy(table);

    spec.epsilon = 1e-45f;
    table = table_of(&spec);
    push(table, 1, 1, &key, gradient);
    read_row(table, key, row);
    ck_assert_double_eq_tol((double)row[0], -1.0, 1e-5);
    ck_assert_float_eq(row[3], 0.0f);
    rps_table_destroy(table);
}
END_TEST

START_TEST(the_pushs_learning_rate_goes_before_the_tables)
{
    struct rps_update update = {
            .step = 1, .t = 1, .learning_rate = 2.0f, .scale = 1.0f};
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    struct rps_apply_report report;
    const uint64_t key = 1;
    const float gradient = 1.0f;
    const struct rps_contribution one = {
            .count = 1, .keys = &key, .gradients = &gradient};
    float first = 0.0f;
    float row = 0.0f;

    rps_table_first_value(table, key, &first);
    ck_assert_int_eq(rps_table_apply(table, &update, &one, 1, &report), RPS_OK);
    read_row(table, key, &row);
    ck_assert_float_eq(row, first - 2.0f);
    update.learning_rate = NAN;
    ck_assert_int_eq(rps_table_apply(table, &update, &one, 1, &report), RPS_OK);
    read_row(table, key, &row);
    ck_assert_float_eq(row, first - 2.0f - 0.01f);
    rps_table_destroy(table);
}
END_TEST

START_TEST(adagrad_without_a_start_value_survives_a_zero_gradient)
{
    rps_table_spec spec = spec_of(2, RPS_OPTIMIZER_ADAGRAD);
    const uint64_t key = 1;
    const float gradient[2] = {0.0f, 1e-30f};
    struct rps_table *table = NULL;
    float first[2];
    float row[2];

    spec.initial_accumulator = 0.0f;
    table = table_of(&spec);
    read_row(table, key, first);
    push(table, 1, 1, &key, gradient);
    read_row(table, key, row);
    ck_assert_mem_eq(row, first, sizeof(row));
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("optimizer");
    TCase *models = tcase_create("models");
    TCase *rules = tcase_create("rules");

    tcase_add_test(models, sgd_follows_its_model);
    tcase_add_test(models, adagrad_follows_its_model);
    tcase_add_test(models, lazy_adam_follows_its_model);
    tcase_add_loop_test(models, the_other_optimizers_follow_their_models, 0,
            (int)(sizeof(others) / sizeof(others[0])));
    tcase_add_test(models, catching_up_counts_from_the_rows_own_last_push);
    tcase_add_loop_test(models, assigned_slots_go_on_where_they_were, 0,
            RPS_OPTIMIZER_COUNT);
    suite_add_tcase(suite, models);
    tcase_add_test(rules, slots_of_a_new_row_are_fresh);
    tcase_add_test(
            rules, adam_counts_this_servers_pushes_where_no_step_is_given);
    tcase_add_test(rules, adams_epsilon_is_added_to_the_corrected_root);
    tcase_add_test(rules, the_pushs_learning_rate_goes_before_the_tables);
    tcase_add_test(
            rules, adagrad_without_a_start_value_survives_a_zero_gradient);
    suite_add_tcase(suite, rules);
    return run_suite(suite);
}
