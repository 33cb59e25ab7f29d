/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One row, step after step, against models in double that were written from
 * the optimizers' papers and the sources that docs/TABLE.md names, not from
 * our formulas: corrections as divisions, powers by pow().
 */
#include "base/draw.h"
#include "base/spec.h"
#include "embedding/optimizer.h"
#include "tests/unit/embedding/fixture.h"

#include <stdlib.h>

#define DIM_MAX   40u
#define ROW_BYTES (3 * DIM_MAX * sizeof(float))

/* The row in double; slots as the model likes them. */
struct model {
    const rps_table_spec *spec;
    size_t dim;
    uint64_t t;
    double lr;
    double w[DIM_MAX];
    double a[DIM_MAX];
    double b[DIM_MAX];
};

typedef void model_fn(struct model *m, size_t j, double g);

static void
sgd_model(struct model *m, size_t j, double g)
{
    m->w[j] -= m->lr * g;
}

static void
momentum_model(struct model *m, size_t j, double g)
{
    const double mu = (double)m->spec->momentum;

    m->a[j] = mu * m->a[j] + g;
    m->w[j] -= m->lr * (m->spec->nesterov != 0 ? g + mu * m->a[j] : m->a[j]);
}

static void
adagrad_model(struct model *m, size_t j, double g)
{
    m->a[j] += g * g;
    m->w[j] -= m->lr * g / sqrt(m->a[j]);
}

static void
adam_model(struct model *m, size_t j, double g)
{
    const double b1 = (double)m->spec->beta1;
    const double b2 = (double)m->spec->beta2;
    double mean = 0.0;
    double square = 0.0;

    m->a[j] = b1 * m->a[j] + (1 - b1) * g;
    m->b[j] = b2 * m->b[j] + (1 - b2) * g * g;
    mean = m->a[j] / (1 - pow(b1, (double)m->t));
    square = m->b[j] / (1 - pow(b2, (double)m->t));
    m->w[j] -= m->lr * mean / (sqrt(square) + (double)m->spec->epsilon);
}

static void
adamw_model(struct model *m, size_t j, double g)
{
    m->w[j] -= m->lr * (double)m->spec->weight_decay * m->w[j];
    adam_model(m, j, g);
}

/* a: the sum of squares, b: z; as McMahan et al. state it. */
static void
ftrl_model(struct model *m, size_t j, double g)
{
    const double p = -(double)m->spec->learning_rate_power;
    const double l1 = (double)m->spec->l1;
    const double now = m->a[j] + g * g;
    const double sigma = (pow(now, p) - pow(m->a[j], p)) / m->lr;

    m->b[j] +=
            g + 2 * (double)m->spec->l2_shrinkage * m->w[j] - sigma * m->w[j];
    m->a[j] = now;
    m->w[j] = 0.0;
    if (fabs(m->b[j]) > l1) {
        m->w[j] = -(m->b[j] - copysign(l1, m->b[j])) /
                  (pow(now, p) / m->lr + 2 * (double)m->spec->l2);
    }
}

static void
rmsprop_model(struct model *m, size_t j, double g)
{
    const double rho = (double)m->spec->rho;

    m->a[j] = rho * m->a[j] + (1 - rho) * g * g;
    m->b[j] = (double)m->spec->momentum * m->b[j] +
              m->lr * g / sqrt(m->a[j] + (double)m->spec->epsilon);
    m->w[j] -= m->b[j];
}

/* Its accumulator, one a row, is in every a[j]; called once an element. */
static void
rowwise_model(struct model *m, size_t j, double g)
{
    m->w[j] -= m->lr * g / (sqrt(m->a[0]) + (double)m->spec->epsilon);
}

static void
model_step(struct model *m, model_fn *step, const float *gradient)
{
    const bool coupled = step != adamw_model;
    double g[DIM_MAX];
    double squares = 0.0;

    m->t++;
    for (size_t j = 0; j < m->dim; j++) {
        g[j] = (double)gradient[j] +
               (coupled ? (double)m->spec->weight_decay * m->w[j] : 0.0);
        squares += g[j] * g[j];
    }
    if (step == rowwise_model) {
        m->a[0] += squares / (double)m->dim;
    }
    for (size_t j = 0; j < m->dim; j++) {
        step(m, j, g[j]);
    }
}

/* What a case sets beyond the defaults. */
struct settings {
    enum rps_optimizer optimizer;
    model_fn *model;
    float weight_decay;
    float momentum;
    uint32_t nesterov;
    float l1;
    float l2;
    float l2_shrinkage;
    float power;
};

static const struct settings settings[] = {
        {RPS_OPTIMIZER_SGD, sgd_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_SGD, sgd_model, 0.01f, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_MOMENTUM, momentum_model, 0, 0.9f, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_MOMENTUM, momentum_model, 0.01f, 0.8f, 1, 0, 0, 0,
                -0.5f},
        {RPS_OPTIMIZER_ADAGRAD, adagrad_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ADAGRAD, adagrad_model, 0.1f, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ROWWISE_ADAGRAD, rowwise_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ROWWISE_ADAGRAD, rowwise_model, 0.01f, 0, 0, 0, 0, 0,
                -0.5f},
        {RPS_OPTIMIZER_ADAM, adam_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ADAM, adam_model, 0.01f, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ADAMW, adamw_model, 0.1f, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ADAM_CATCHUP, adam_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_ADAMW_CATCHUP, adamw_model, 0.1f, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_FTRL, ftrl_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_FTRL, ftrl_model, 0, 0, 0, 0.05f, 0.1f, 0.01f, -0.5f},
        {RPS_OPTIMIZER_FTRL, ftrl_model, 0, 0, 0, 0.05f, 0, 0, -0.3f},
        {RPS_OPTIMIZER_FTRL, ftrl_model, 0, 0, 0, 0, 0.1f, 0, 0.0f},
        {RPS_OPTIMIZER_RMSPROP, rmsprop_model, 0, 0, 0, 0, 0, 0, -0.5f},
        {RPS_OPTIMIZER_RMSPROP, rmsprop_model, 0.01f, 0.9f, 0, 0, 0, 0, -0.5f},
};

#define SETTINGS ((int)(sizeof(settings) / sizeof(settings[0])))

static rps_table_spec
spec_with(const struct settings *from, uint32_t dim)
{
    rps_table_spec spec = spec_of(dim, from->optimizer);

    spec.weight_decay = from->weight_decay;
    spec.momentum = from->momentum;
    spec.nesterov = from->nesterov;
    spec.l1 = from->l1;
    spec.l2 = from->l2;
    spec.l2_shrinkage = from->l2_shrinkage;
    spec.learning_rate_power = from->power;
    ck_assert_int_eq(rps_table_spec_check(&spec, NULL, 0), RPS_OK);
    return spec;
}

/* One row of ours, in its value type. */
struct row {
    const rps_table_spec *spec;
    struct rps_kernels kernels;
    float *scratch;
    _Alignas(8) unsigned char bytes[ROW_BYTES];
};

static void
row_init(struct row *row, const rps_table_spec *spec, const float *first)
{
    row->spec = spec;
    rps_kernels_init(&row->kernels, rps_isa_detect());
    row->scratch = malloc(rps_step_scratch_floats(spec) * sizeof(float));
    ck_assert_ptr_nonnull(row->scratch);
    memset(row->bytes, 0, sizeof(row->bytes));
    (void)row->kernels.narrow[spec->value_dtype](row->bytes, first, spec->dim);
    rps_slots_fresh(
            spec, (float *)(void *)(row->bytes + rps_spec_value_bytes(spec)));
}

static void
row_values(const struct row *row, float *values)
{
    row->kernels.widen[row->spec->value_dtype](
            values, row->bytes, row->spec->dim);
}

static const float *
row_slot(const struct row *row, uint32_t slot)
{
    return (const float *)(const void *)(row->bytes +
                                         rps_spec_value_bytes(row->spec)) +
           slot * row->spec->dim;
}

static bool
row_step(struct row *row, float lr, uint64_t t, const float *gradient,
        uint32_t skipped, uint64_t draw)
{
    struct rps_step step;

    rps_step_init(&step, &row->kernels, row->spec, lr, t);
    return rps_step_row(&step, row->bytes, gradient, row->spec->dim, skipped,
            draw, row->scratch);
}

/* What the model holds is what the row holds, to begin with or again. */
static void
model_take(struct model *m, const struct row *row)
{
    const uint32_t count = rps_spec_slot_count(row->spec);
    const uint32_t width = rps_spec_slot_width(row->spec, 0);
    float values[DIM_MAX];

    row_values(row, values);
    m->spec = row->spec;
    m->dim = row->spec->dim;
    for (size_t j = 0; j < m->dim; j++) {
        m->w[j] = (double)values[j];
        m->a[j] = count > 0 && j < width ? (double)row_slot(row, 0)[j] : 0.0;
        m->b[j] = count > 1 ? (double)row_slot(row, 1)[j] : 0.0;
    }
}

static void
random_floats(uint64_t *random, float *out, size_t n, float size)
{
    for (size_t j = 0; j < n; j++) {
        out[j] = size * random_float(random);
    }
}

/* Float32 rounds each operation by 6e-8 of it; 300 steps of 0.02 a step. */
START_TEST(float32_row_follows_its_model_for_300_steps)
{
    static const uint32_t dims[] = {1, 5, 16, 33};
    uint64_t random = 0x243f6a8885a308d3u;

    for (size_t d = 0; d < 4; d++) {
        const rps_table_spec spec = spec_with(&settings[_i], dims[d]);
        struct model m = {.t = 0};
        struct row row;
        float values[DIM_MAX];
        float g[DIM_MAX];
        random_floats(&random, values, spec.dim, 0.05f);
        row_init(&row, &spec, values);
        model_take(&m, &row);
        for (uint64_t t = 1; t <= 300; t++) {
            const float lr = t % 3 == 0 ? 0.02f : 0.01f;
            random_floats(&random, g, spec.dim, 0.1f);
            m.lr = (double)lr;
            ck_assert(row_step(&row, lr, t, g, 0, 0));
            model_step(&m, settings[_i].model, g);
            row_values(&row, values);
            for (size_t j = 0; j < spec.dim; j++) {
                const double within = 2e-5 * (1.0 + fabs(m.w[j]));
                ck_assert_double_eq_tol((double)values[j], m.w[j], within);
            }
        }
        free(row.scratch);
    }
}
END_TEST

/* Each step from where the row is: off by half of a half's last bit. */
START_TEST(narrow_row_is_the_models_step_rounded)
{
    uint64_t random = 0x13198a2e03707344u;

    for (int v = RPS_VALUE_F16; v <= (int)RPS_VALUE_BF16; v++) {
        rps_table_spec spec = spec_with(&settings[_i], 21);
        const double half = v == RPS_VALUE_F16 ? 0x1.0p-11 : 0x1.0p-8;
        struct model m = {.t = 0};
        struct row row;
        float values[DIM_MAX];
        float g[DIM_MAX];
        spec.value_dtype = (enum rps_value)v;
        random_floats(&random, values, spec.dim, 0.5f);
        row_init(&row, &spec, values);
        for (uint64_t t = 1; t <= 60; t++) {
            random_floats(&random, g, spec.dim, 1.0f);
            model_take(&m, &row);
            m.t = t - 1;
            m.lr = 0.05;
            ck_assert(row_step(&row, 0.05f, t, g, 0, 0));
            model_step(&m, settings[_i].model, g);
            row_values(&row, values);
            for (size_t j = 0; j < spec.dim; j++) {
                ck_assert_double_eq_tol((double)values[j], m.w[j],
                        1.001 * half * fabs(m.w[j]) + 1e-6);
            }
        }
        free(row.scratch);
    }
}
END_TEST

/* Dense Adam: pushed at random, gradients of zero in between. */
static void
follow_dense(enum rps_optimizer optimizer, uint64_t odds, double within)
{
    const bool decays = optimizer == RPS_OPTIMIZER_ADAMW_CATCHUP;
    rps_table_spec spec = spec_of(8, optimizer);
    model_fn *const dense = decays ? adamw_model : adam_model;
    uint64_t random = 0xa4093822299f31d0u;
    const float zeros[8] = {0.0f};
    struct model m = {.t = 0};
    struct row row;
    float values[8];
    float g[8];
    double worst = 0.0;
    double moved = 0.0;
    uint64_t last = 0;

    spec.weight_decay = decays ? 0.05f : 0.0f;
    random_floats(&random, values, 8, 0.05f);
    row_init(&row, &spec, values);
    model_take(&m, &row);
    m.lr = (double)0.01f;
    for (uint64_t t = 1; t <= 3000; t++) {
        const bool pushed = t == 1 || random_next(&random) % odds == 0;
        const double before = m.w[0];
        random_floats(&random, g, 8, 0.1f);
        model_step(&m, dense, pushed ? g : zeros);
        moved += fabs(m.w[0] - before);
        if (!pushed) {
            continue;
        }
        ck_assert(row_step(&row, 0.01f, t, g,
                last == 0 ? 0 : (uint32_t)(t - last - 1), 0));
        last = t;
        row_values(&row, values);
        for (size_t j = 0; j < 8; j++) {
            worst = fmax(worst, fabs((double)values[j] - m.w[j]));
        }
    }
    ck_assert_double_gt(moved, 1.0);
    ck_assert_double_lt(worst, within);
    free(row.scratch);
}

START_TEST(catching_up_follows_dense_adam_with_zero_gradients)
{
    follow_dense(RPS_OPTIMIZER_ADAM_CATCHUP, 3, 1e-4);
    follow_dense(RPS_OPTIMIZER_ADAM_CATCHUP, 60, 5e-4);
    follow_dense(RPS_OPTIMIZER_ADAMW_CATCHUP, 3, 1e-4);
    follow_dense(RPS_OPTIMIZER_ADAMW_CATCHUP, 60, 5e-4);
}
END_TEST

/* The tail against the sum that it stands for, term by term. */
START_TEST(tail_of_skipped_steps_is_its_sum_to_a_third_of_a_percent)
{
    static const uint32_t ks[] = {1, 2, 7, 30, 200, 3000, UINT32_MAX};
    static const double keeps[] = {1.0, 0.99996, 0.99, 0.9};
    static const double within[] = {0.0033, 0.0033, 0.0033, 0.01};
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_ADAMW_CATCHUP);

    for (size_t i = 0; i < 7 * 4 * 4; i++) {
        const uint64_t t = (uint64_t[]){2, 40, 700, 100000}[i / 28];
        const uint64_t k = ks[i % 7] < t - 1 ? ks[i % 7] : t - 1;
        const double keep = keeps[i / 7 % 4];
        const double r = (double)spec.beta1 / sqrt((double)spec.beta2);
        struct rps_catchup catchup;
        struct rps_step_numbers c;
        double sum = 0.0;
        rps_catchup_init(&catchup, &spec, keep, 0.01f, t);
        rps_catchup_numbers(&catchup, ks[i % 7], &c);
        for (uint64_t n = 1; n <= k; n++) {
            const double at = (double)(t - 1 - k + n);
            sum = sum * keep + 0.01 * pow(r, (double)n) *
                                       sqrt(1 - pow((double)spec.beta2, at)) /
                                       (1 - pow((double)spec.beta1, at));
        }
        ck_assert_double_eq_tol(
                (double)c.tail, sum, within[i / 7 % 4] * fabs(sum) + 1e-9);
        ck_assert_double_eq_tol(
                (double)c.tail_keep, pow(keep, (double)k), 1e-6);
        ck_assert_double_eq_tol(
                (double)c.beta1, pow((double)spec.beta1, (double)k + 1), 1e-7);
        ck_assert_double_eq_tol(
                (double)c.beta2, pow((double)spec.beta2, (double)k + 1), 1e-7);
    }
}
END_TEST

START_TEST(tail_is_finite_at_every_rate_and_decay)
{
    static const double keeps[] = {
            1.0, 0.90045, 0.9, 0.5, 1e-9, 0.0, -0.5, -1.0};
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_ADAMW_CATCHUP);

    for (size_t i = 0; i < 8 * 32; i++) {
        struct rps_catchup catchup;
        struct rps_step_numbers c;
        spec.beta1 = i % 3 == 0 ? 0.9f : (i % 3 == 1 ? 0.0f : 0.9994f);
        rps_catchup_init(&catchup, &spec, keeps[i / 32], 0.01f, UINT64_MAX);
        rps_catchup_numbers(&catchup, (uint32_t)(UINT64_C(1) << i % 32), &c);
        ck_assert(isfinite(c.tail) && isfinite(c.tail_keep));
        ck_assert(isfinite(c.beta1) && isfinite(c.beta2));
    }
}
END_TEST

START_TEST(row_that_skipped_no_step_is_stepped_as_by_plain_adam)
{
    const rps_table_spec plain = spec_of(19, RPS_OPTIMIZER_ADAMW);
    const rps_table_spec catching = spec_of(19, RPS_OPTIMIZER_ADAMW_CATCHUP);
    uint64_t random = 3;
    struct row a;
    struct row b;
    float values[19];
    float g[19];

    random_floats(&random, values, 19, 0.05f);
    row_init(&a, &plain, values);
    row_init(&b, &catching, values);
    for (uint64_t t = 1; t < 20; t++) {
        random_floats(&random, g, 19, 1.0f);
        ck_assert(row_step(&a, 0.01f, t, g, 0, 0));
        ck_assert(row_step(&b, 0.01f, t, g, 0, 0));
        ck_assert_mem_eq(a.bytes, b.bytes, sizeof(a.bytes));
    }
    free(a.scratch);
    free(b.scratch);
}
END_TEST

/* Finite in float32, beyond the type: the step is taken back to the bit. */
START_TEST(step_beyond_the_value_type_is_taken_back)
{
    uint64_t random = 11;

    for (int v = RPS_VALUE_F16; v <= (int)RPS_VALUE_BF16; v++) {
        rps_table_spec spec = spec_with(&settings[_i], 9);
        const float most = v == RPS_VALUE_F16 ? 65504.0f : 0x1.fep+127f;
        float values[9] = {0.0f};
        float g[9] = {0.0f};
        struct row row;
        struct row before;
        spec.value_dtype = (enum rps_value)v;
        spec.weight_decay = 0.0f;
        if (spec.optimizer == RPS_OPTIMIZER_FTRL &&
                (spec.l2 > 0.0f || v == RPS_VALUE_BF16)) {
            continue; /* its weights do not grow with the rate */
        }
        random_floats(&random, values, 9, 0.5f);
        random_floats(&random, g, 9, 1.0f);
        values[4] = most;
        g[4] = -1.0f;
        row_init(&row, &spec, values);
        before = row;
        ck_assert(!row_step(&row, most > 1e6f ? 1e37f : 1e7f, 1, g, 0, 0));
        ck_assert_mem_eq(row.bytes, before.bytes, sizeof(row.bytes));
        free(row.scratch);
    }
}
END_TEST

START_TEST(largest_half_is_kept_and_what_rounds_to_it)
{
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_SGD);
    const float first = 65504.0f;
    const float below = -15.9f; /* 65519.9 */
    const float beyond = -16.0f;
    struct row row;
    float value = 0.0f;

    spec.value_dtype = RPS_VALUE_F16;
    row_init(&row, &spec, &first);
    ck_assert(row_step(&row, 1.0f, 1, &below, 0, 0));
    row_values(&row, &value);
    ck_assert_float_eq(value, 65504.0f);
    ck_assert(!row_step(&row, 1.0f, 2, &beyond, 0, 0));
    row_values(&row, &value);
    ck_assert_float_eq(value, 65504.0f);
    free(row.scratch);
}
END_TEST

/* 1 is 1 whole; bfloat16's next is 1 + 2^-7: an eighth of the way, 4096
 * draws, deviation 0.33 / 64 of the way; five of them. */
START_TEST(stochastic_rounding_moves_small_steps_in_the_mean)
{
    rps_table_spec spec = spec_of(16, RPS_OPTIMIZER_SGD);
    uint64_t ups = 0;

    spec.value_dtype = RPS_VALUE_BF16;
    spec.stochastic_rounding = 1;
    for (uint64_t draw = 0; draw < 256; draw++) {
        float ones[16];
        float g[16];
        float again[16];
        struct row row;
        struct row twin;
        for (size_t j = 0; j < 16; j++) {
            ones[j] = 1.0f;
            g[j] = -0x1.0p-10f;
        }
        row_init(&row, &spec, ones);
        row_init(&twin, &spec, ones);
        ck_assert(row_step(&row, 1.0f, 1, g, 0, rps_mix64(draw)));
        ck_assert(row_step(&twin, 1.0f, 1, g, 0, rps_mix64(draw)));
        ck_assert_mem_eq(row.bytes, twin.bytes, sizeof(row.bytes));
        row_values(&row, again);
        for (size_t j = 0; j < 16; j++) {
            ck_assert(again[j] == 1.0f || again[j] == 1.0f + 0x1.0p-7f);
            ups += again[j] != 1.0f;
        }
        free(row.scratch);
        free(twin.scratch);
    }
    ck_assert_uint_gt(ups, 512 - 5 * 22);
    ck_assert_uint_lt(ups, 512 + 5 * 22);
}
END_TEST

START_TEST(ftrl_at_a_rate_of_zero_changes_nothing)
{
    const rps_table_spec spec = spec_of(5, RPS_OPTIMIZER_FTRL);
    const float first[5] = {1, 2, 3, 4, 5};
    struct row row;
    struct row before;

    row_init(&row, &spec, first);
    before = row;
    ck_assert(row_step(&row, 0.0f, 1, first, 0, 0));
    ck_assert_mem_eq(row.bytes, before.bytes, sizeof(row.bytes));
    free(row.scratch);
}
END_TEST

/* A tail beyond a dense variable: only n elements move. */
START_TEST(elements_beyond_the_live_ones_stay)
{
    const rps_table_spec spec = spec_with(&settings[_i], 12);
    const float first[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint32_t count = rps_spec_slot_count(&spec);
    struct rps_step step;
    struct row before;
    struct row row;
    float values[12];

    row_init(&row, &spec, first);
    before = row;
    rps_step_init(&step, &row.kernels, &spec, 0.1f, 1);
    ck_assert(rps_step_row(&step, row.bytes, first, 5, 0, 0, row.scratch));
    row_values(&row, values);
    ck_assert_float_ne(values[4], 1.0f);
    for (size_t j = 5; j < 12; j++) {
        ck_assert_float_eq(values[j], 1.0f);
        for (uint32_t s = 0; s < count && rps_spec_slot_width(&spec, s) > 1;
                s++) {
            ck_assert_float_eq(row_slot(&row, s)[j], row_slot(&before, s)[j]);
        }
    }
    free(row.scratch);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("step");
    TCase *steps = tcase_create("steps");

    tcase_set_timeout(steps, 60);
    tcase_add_loop_test(
            steps, float32_row_follows_its_model_for_300_steps, 0, SETTINGS);
    tcase_add_loop_test(
            steps, narrow_row_is_the_models_step_rounded, 0, SETTINGS);
    tcase_add_loop_test(
            steps, step_beyond_the_value_type_is_taken_back, 0, SETTINGS);
    tcase_add_loop_test(steps, elements_beyond_the_live_ones_stay, 0, SETTINGS);
    tcase_add_test(steps, catching_up_follows_dense_adam_with_zero_gradients);
    tcase_add_test(
            steps, tail_of_skipped_steps_is_its_sum_to_a_third_of_a_percent);
    tcase_add_test(steps, tail_is_finite_at_every_rate_and_decay);
    tcase_add_test(steps, row_that_skipped_no_step_is_stepped_as_by_plain_adam);
    tcase_add_test(steps, largest_half_is_kept_and_what_rounds_to_it);
    tcase_add_test(steps, stochastic_rounding_moves_small_steps_in_the_mean);
    tcase_add_test(steps, ftrl_at_a_rate_of_zero_changes_nothing);
    suite_add_tcase(suite, steps);
    return run_suite(suite);
}
