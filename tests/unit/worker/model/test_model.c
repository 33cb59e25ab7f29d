/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models against a second, plain computation in double precision, and
 * their gradients against central differences of it.
 */
#include "client/npu/kernels/dots.h"
#include "client/worker/stage.h"
#include "tests/unit/suite.h"

#include <recps/types.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 200u

/* A number in (-1, 1) that looks random: the tests' own, not base/hash.h. */
static double
noise(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(int64_t)*state / 9.3e18;
}

#define TABLES 3u /* at most */

struct fixture {
    struct rps_model *model;
    struct rps_model_input input;
    float *dense, *labels, *probabilities;
    float *pooled[TABLES], *gradients[TABLES];
    size_t pooled_floats[TABLES];
};

static float *
noise_floats(size_t n, double scale, uint64_t *state)
{
    float *floats = malloc((n + 1) * sizeof(float));

    ck_assert_ptr_nonnull(floats);
    for (size_t i = 0; i < n; i++) {
        floats[i] = (float)(scale * noise(state));
    }
    return floats;
}

static void
fixture_fill(struct fixture *fixture, size_t rows, uint64_t seed)
{
    struct rps_model *model = fixture->model;
    uint64_t state = seed;

    fixture->dense = noise_floats(rows * model->shape.dense, 2.0, &state);
    fixture->labels = noise_floats(rows * model->labels, 1.0, &state);
    for (size_t i = 0; i < rows * model->labels; i++) {
        fixture->labels[i] = fixture->labels[i] > 0.2f ? 1.0f : 0.0f;
    }
    fixture->probabilities = calloc(rows * model->labels, sizeof(float));
    for (uint32_t t = 0; t < model->table_count; t++) {
        fixture->pooled_floats[t] =
                rows * rps_model_pooled_floats(&model->tables[t]);
        fixture->pooled[t] =
                noise_floats(fixture->pooled_floats[t], 0.7, &state);
        fixture->gradients[t] =
                calloc(fixture->pooled_floats[t], sizeof(float));
        fixture->input.pooled[t] = fixture->pooled[t];
        fixture->input.pooled_gradients[t] = fixture->gradients[t];
    }
    fixture->input.rows = rows;
    fixture->input.dense = fixture->dense;
    fixture->input.labels = fixture->labels;
    fixture->input.loss_scale = 1.0 / (double)rows;
}

static void
fixture_drop(struct fixture *fixture)
{
    for (uint32_t t = 0; t < TABLES; t++) {
        free(fixture->pooled[t]);
        free(fixture->gradients[t]);
    }
    free(fixture->dense);
    free(fixture->labels);
    free(fixture->probabilities);
    rps_model_destroy(fixture->model);
    memset(fixture, 0, sizeof(*fixture));
}

/* A model looks at bags and dims alone: which fields a bag has is layout.c's.
 */
static struct rps_model *
dlrm_of(uint32_t dense, const struct rps_model_table *tables, uint32_t count)
{
    struct rps_model_shape shape = {.dense = dense,
            .bottom = {.count = 2, .widths = {7, 5}},
            .top = {.count = 3, .widths = {9, 6, 1}},
            .table_count = count,
            .tables = tables};
    struct rps_model *model = NULL;
    struct rps_error error;

    ck_assert_int_eq(rps_dlrm_create(&model, &shape, &error), RPS_OK);
    rps_model_start_values(model, 11);
    return model;
}

static struct rps_model *
dlrm_make(uint32_t dense, uint32_t fields)
{
    const struct rps_model_table emb = {
            .name = "emb", .dim = 5, .bags = fields};

    return dlrm_of(dense, &emb, 1);
}

static struct rps_model *
demo_make(void)
{
    static const struct rps_model_table tables[] = {
            {.name = "user_table", .dim = 32, .bags = 1},
            {.name = "item_table", .dim = 8, .bags = 1}};
    const struct rps_model_shape shape = {
            .trunk = {.count = 4, .widths = {1024, 512, 256, 128}},
            .table_count = 2,
            .tables = tables};
    struct rps_model *model = NULL;

    ck_assert_int_eq(rps_little_demo_create(&model, &shape, NULL), RPS_OK);
    rps_model_start_values(model, 3);
    return model;
}

static const struct rps_variable *
variable(const struct rps_model *model, const char *name)
{
    for (uint32_t v = 0; v < model->variable_count; v++) {
        if (strcmp(model->variables[v].name, name) == 0) {
            return &model->variables[v];
        }
    }
    return NULL;
}

/* y = W x + b by the book; in place of a missing W: b alone. */
static void
linear(const struct rps_model *model, const char *prefix, int index, double *x,
        uint32_t *width, int relu)
{
    char name[64];
    const struct rps_variable *weight, *bias;
    double *y;

    snprintf(name, sizeof(name), "%s.%d.weight", prefix, index);
    weight = variable(model, name);
    snprintf(name, sizeof(name), "%s.%d.bias", prefix, index);
    bias = variable(model, name);
    ck_assert_ptr_nonnull(bias);
    y = calloc((size_t)bias->shape[0], sizeof(double));
    for (uint64_t o = 0; o < bias->shape[0]; o++) {
        y[o] = (double)bias->values[o];
        for (uint64_t i = 0; weight != NULL && i < *width; i++) {
            y[o] += (double)weight->values[o * *width + i] * x[i];
        }
        if (relu && y[o] < 0.0) {
            y[o] = 0.0;
        }
    }
    *width = (uint32_t)bias->shape[0];
    memcpy(x, y, *width * sizeof(double));
    free(y);
}

static double
bce(double logit, double label)
{
    return -label * log(1.0 / (1.0 + exp(-logit))) -
           (1.0 - label) * log(1.0 / (1.0 + exp(logit)));
}

/* The vectors of one table's bags: its rows, or its matrix times them. */
static uint32_t
table_vectors(const struct fixture *fixture, uint32_t t, size_t row,
        double (*vectors)[5])
{
    const struct rps_model_table *table = &fixture->model->tables[t];
    const float *at = fixture->pooled[t] + row * rps_model_pooled_floats(table);
    const struct rps_variable *matrix;
    char name[64];

    snprintf(name, sizeof(name), "proj.%s.weight", table->name);
    matrix = variable(fixture->model, name);
    ck_assert_int_eq(matrix != NULL, table->dim != 5);
    for (uint32_t b = 0; b < table->bags; b++, at += table->dim) {
        for (uint32_t o = 0; o < 5; o++) {
            vectors[b][o] = matrix == NULL ? (double)at[o] : 0.0;
            for (uint32_t k = 0; matrix != NULL && k < table->dim; k++) {
                vectors[b][o] += (double)matrix->values[o * table->dim + k] *
                                 (double)at[k];
            }
        }
    }
    return table->bags;
}

static double
dlrm_row(const struct fixture *fixture, size_t row, double *logit_out)
{
    const struct rps_model *model = fixture->model;
    const uint32_t dim = 5;
    double vectors[16][5], x[256];
    uint32_t width = model->shape.dense, at = dim, n = 1;

    for (uint32_t d = 0; d < width; d++) {
        x[d] = (double)fixture->dense[row * width + d];
    }
    linear(model, "bot", 0, x, &width, 1);
    linear(model, "bot", 2, x, &width, 1);
    memcpy(vectors[0], x, sizeof(vectors[0]));
    for (uint32_t t = 0; t < model->table_count; t++) {
        n += table_vectors(fixture, t, row, vectors + n);
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            x[at] = 0.0;
            for (uint32_t k = 0; k < dim; k++) {
                x[at] += vectors[i][k] * vectors[j][k];
            }
            at++;
        }
    }
    width = at;
    linear(model, "top", 0, x, &width, 1);
    linear(model, "top", 2, x, &width, 1);
    linear(model, "top", 4, x, &width, 0);
    *logit_out = x[0];
    return bce(x[0], (double)fixture->labels[row]);
}

static double
demo_row(const struct fixture *fixture, size_t row, double *logits)
{
    double x[1024], hidden[1024], loss = 0.0;
    uint32_t width = 40;

    for (uint32_t k = 0; k < 32; k++) {
        x[k] = (double)fixture->pooled[0][row * 32 + k];
    }
    for (uint32_t k = 0; k < 8; k++) {
        x[32 + k] = (double)fixture->pooled[1][row * 8 + k];
    }
    for (uint32_t k = 0; k < 40; k++) {
        x[k] = x[k] > 0.0 ? x[k] : 0.0;
    }
    for (int layer = 0; layer < 8; layer += 2) {
        linear(fixture->model, "mlp", layer, x, &width, 1);
    }
    memcpy(hidden, x, sizeof(hidden));
    for (uint32_t h = 0; h < 2; h++) {
        memcpy(x, hidden, sizeof(x));
        width = 128;
        linear(fixture->model, h == 0 ? "head_0" : "head_1", 0, x, &width, 0);
        logits[h] = x[0];
        loss += bce(x[0], (double)fixture->labels[row * 2 + h]);
    }
    return loss;
}

static double
loss_by_the_book(const struct fixture *fixture)
{
    double loss = 0.0, logits[2];

    for (size_t r = 0; r < fixture->input.rows; r++) {
        loss += fixture->model->labels == 1 ? dlrm_row(fixture, r, logits)
                                            : demo_row(fixture, r, logits);
    }
    return loss * fixture->input.loss_scale;
}

/*
 * dL/dw lies between the differences to both sides of the loss here; where no
 * ReLU's edge is inside the step they are nearly one.
 */
static void
check_gradient(struct fixture *fixture, double here, float *cell, float got)
{
    const float kept = *cell, step = 1.0f / 8192.0f;
    double above, below, slack;

    *cell = kept + step;
    above = (loss_by_the_book(fixture) - here) / (double)(*cell - kept);
    *cell = kept - step;
    below = (here - loss_by_the_book(fixture)) / (double)(kept - *cell);
    *cell = kept;
    slack = 2e-4 + 0.01 * fmax(fabs(above), fabs(below));
    ck_assert_double_ge((double)got, fmin(above, below) - slack);
    ck_assert_double_le((double)got, fmax(above, below) + slack);
}

static void
check_all(struct fixture *fixture, size_t cells)
{
    struct rps_model *model = fixture->model;
    const double here = loss_by_the_book(fixture);
    double loss;

    rps_model_run(model, &fixture->input, fixture->probabilities, &loss);
    ck_assert_double_le(fabs(loss - here), 1e-6);
    for (uint32_t v = 0; v < model->variable_count; v++) {
        struct rps_variable *each = &model->variables[v];
        size_t stride = (size_t)each->elements / cells + 1;

        for (size_t i = 0; i < each->elements; i += stride) {
            check_gradient(fixture, here, &each->values[i], each->gradients[i]);
        }
        for (size_t i = (size_t)each->elements;
                i < each->rows * RPS_DENSE_ROW_FLOATS; i++) {
            ck_assert(each->gradients[i] == 0.0f && each->values[i] == 0.0f);
        }
    }
    for (uint32_t t = 0; t < model->table_count; t++) {
        size_t stride = fixture->pooled_floats[t] / cells + 1;

        for (size_t i = 0; i < fixture->pooled_floats[t]; i += stride) {
            check_gradient(fixture, here, &fixture->pooled[t][i],
                    fixture->gradients[t][i]);
        }
    }
}

START_TEST(dlrm_equals_the_book_in_loss_and_slopes)
{
    static const size_t rows[] = {1, 63, 64, 65, 130};
    struct fixture fixture = {.model = dlrm_make(3, 4)};

    fixture_fill(&fixture, rows[_i], 5 + (uint64_t)_i);
    check_all(&fixture, 20);
    fixture_drop(&fixture);
}
END_TEST

START_TEST(dlrm_without_dense_features_learns_a_constant_vector)
{
    struct fixture fixture = {.model = dlrm_make(0, 3)};

    ck_assert_ptr_null(variable(fixture.model, "bot.0.weight"));
    fixture_fill(&fixture, 70, 9);
    check_all(&fixture, 20);
    fixture_drop(&fixture);
}
END_TEST

START_TEST(tables_of_other_dims_are_projected_and_equal_the_book)
{
    static const size_t rows[] = {1, 64, 130};
    static const struct rps_model_table tables[] = {
            {.name = "narrow", .dim = 2, .bags = 3},
            {.name = "same", .dim = 5, .bags = 1},
            {.name = "wide", .dim = 9, .bags = 2}};
    struct fixture fixture = {.model = dlrm_of(3, tables, 3)};
    const struct rps_variable *matrix =
            variable(fixture.model, "proj.wide.weight");

    ck_assert_uint_eq(matrix->shape[0], 5);
    ck_assert_uint_eq(matrix->shape[1], 9);
    fixture_fill(&fixture, rows[_i], 15 + (uint64_t)_i);
    check_all(&fixture, 20);
    fixture_drop(&fixture);
}
END_TEST

/* The sums of dots.h as they stand there. */
static void
dots_by_the_book(const struct rps_dots_shape *shape, const float *v, float *z)
{
    for (uint32_t i = 1; i < shape->n; i++) {
        for (uint32_t j = 0; j < i; j++) {
            float sum = 0.0f;

            for (uint32_t k = 0; k < shape->width; k++) {
                sum += v[i * shape->stride + k] * v[j * shape->stride + k];
            }
            *z++ = sum;
        }
    }
}

static void
back_by_the_book(const struct rps_dots_shape *shape, const float *v,
        const float *dz, float *g)
{
    for (uint32_t i = 0; i < shape->n; i++) {
        for (uint32_t k = 0; k < shape->stride; k++) {
            float sum = 0.0f;

            for (uint32_t j = 0; j < shape->n; j++) {
                const uint32_t high = i > j ? i : j, low = i > j ? j : i;

                if (i != j) {
                    sum += dz[high * (high - 1) / 2 + low] *
                           v[j * shape->stride + k];
                }
            }
            g[i * shape->stride + k] = sum;
        }
    }
}

START_TEST(dots_have_the_same_bits_in_every_set)
{
    static const uint32_t sizes[][2] = {
            {1, 1}, {2, 16}, {7, 3}, {16, 16}, {17, 15}, {27, 16}, {40, 33}};
    const struct rps_dots_shape shape =
            rps_dots_shape_of(sizes[_i][0], sizes[_i][1]);
    const size_t cells = (size_t)shape.n * shape.stride;
    const size_t pairs = (size_t)shape.n * (shape.n - 1) / 2;
    uint64_t state = 3;
    float *v = noise_floats(cells, 1.0, &state);
    float *dz = noise_floats(pairs, 1.0, &state);
    float *z = calloc(pairs + 1, sizeof(float));
    float *g = calloc(cells, sizeof(float));
    float *columns = calloc((size_t)shape.stride * shape.room, sizeof(float));
    float *want = calloc(pairs + 1, sizeof(float));
    float *back = calloc(cells, sizeof(float));
    struct rps_dots sets[3];
    const size_t count = rps_dots_sets(sets);

    for (size_t i = 0; i < cells; i++) {
        v[i] = i % shape.stride < shape.width ? v[i] : 0.0f;
    }
    dots_by_the_book(&shape, v, want);
    back_by_the_book(&shape, v, dz, back);
    for (size_t s = 0; s < count; s++) {
        z[pairs] = 7.0f;
        sets[s].forward(&shape, v, columns, z);
        sets[s].backward(&shape, v, dz, g);
        ck_assert_msg(
                memcmp(z, want, pairs * sizeof(float)) == 0, "%s", sets[s].isa);
        ck_assert_msg(
                memcmp(g, back, cells * sizeof(float)) == 0, "%s", sets[s].isa);
        ck_assert_float_eq(z[pairs], 7.0f);
    }
    free(v);
    free(dz);
    free(z);
    free(g);
    free(columns);
    free(want);
    free(back);
}
END_TEST

START_TEST(a_table_may_not_be_named_as_a_variable)
{
    const struct rps_model_table table = {
            .name = "top.0.bias", .dim = 5, .bags = 2};
    const struct rps_model_shape shape = {.bottom = {.count = 1, .widths = {5}},
            .top = {.count = 1, .widths = {1}},
            .table_count = 1,
            .tables = &table};
    struct rps_model *model;
    struct rps_error error;

    ck_assert_int_eq(rps_dlrm_create(&model, &shape, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "(top.0.bias)"));
    ck_assert_ptr_null(model);
}
END_TEST

START_TEST(little_demo_equals_the_book_in_loss_and_slopes)
{
    struct fixture fixture = {.model = demo_make()};

    fixture_fill(&fixture, 3, 21);
    check_all(&fixture, 4);
    fixture_drop(&fixture);
}
END_TEST

/* Rows [first, end) of the fixture. */
static struct rps_model_input
rows_of(const struct fixture *fixture, size_t first, size_t end)
{
    const struct rps_model *model = fixture->model;
    struct rps_model_input part = {
            .rows = end - first,
            .dense = fixture->dense + first * model->shape.dense,
            .labels = fixture->labels + first * model->labels,
    };

    for (uint32_t t = 0; t < model->table_count; t++) {
        part.pooled[t] = fixture->pooled[t] +
                         first * rps_model_pooled_floats(&model->tables[t]);
    }
    return part;
}

/* All rows at once, then in batches of `batch` rows: the same bits. */
static void
check_bits(struct fixture *fixture, size_t batch)
{
    const size_t rows = fixture->input.rows;
    const size_t bytes = rows * fixture->model->labels * sizeof(float);
    struct rps_stage stage;

    fixture->input.pooled_gradients[0] = NULL;
    rps_model_run(
            fixture->model, &fixture->input, fixture->probabilities, NULL);
    ck_assert_int_eq(
            rps_stage_init(&stage, fixture->model, NULL, NULL), RPS_OK);
    for (size_t first = 0; first < rows; first += batch) {
        size_t end = first + batch < rows ? first + batch : rows;
        struct rps_model_input part = rows_of(fixture, first, end);

        ck_assert_int_eq(rps_stage_add(&stage, &part, NULL), RPS_OK);
    }
    ck_assert_int_eq(rps_stage_flush(&stage, NULL), RPS_OK);
    ck_assert_uint_eq(stage.count, rows);
    ck_assert_mem_eq(stage.probabilities, fixture->probabilities, bytes);
    ck_assert_mem_eq(stage.labels, fixture->labels, bytes);
    rps_stage_finish(&stage);
}

START_TEST(probabilities_have_the_same_bits_in_any_batch_size)
{
    static const size_t sizes[] = {1, 7, 64, 100, 128};
    static const struct rps_model_table tables[] = {
            {.name = "wide", .dim = 24, .bags = 7},
            {.name = "same", .dim = 5, .bags = 2}};
    struct fixture fixture = {.model = dlrm_make(13, 9)};

    fixture_fill(&fixture, ROWS_MAX, 17);
    check_bits(&fixture, sizes[_i]);
    fixture_drop(&fixture);
    fixture.model = dlrm_of(13, tables, 2);
    fixture_fill(&fixture, ROWS_MAX, 19);
    check_bits(&fixture, sizes[_i]);
    fixture_drop(&fixture);
    fixture.model = demo_make();
    fixture_fill(&fixture, ROWS_MAX, 18);
    check_bits(&fixture, sizes[_i]);
    fixture_drop(&fixture);
}
END_TEST

/* Uniform in ±bound: none is beyond, some are near it, their mean is 0. */
static void
check_start_values(
        const struct rps_model *model, const char *name, double square)
{
    const struct rps_variable *of = variable(model, name);
    const double bound = sqrt(square), n = (double)of->elements;
    double sum = 0.0, largest = 0.0;

    for (uint64_t i = 0; i < of->elements; i++) {
        sum += (double)of->values[i];
        largest = fmax(largest, fabs((double)of->values[i]));
    }
    ck_assert_double_le(largest, bound * (1.0 + 1e-7)); /* float's own */
    ck_assert_double_ge(largest, (n < 50.0 ? 0.5 : 0.9) * bound);
    ck_assert_double_le(fabs(sum / n), 3.0 * bound / sqrt(3.0 * n));
}

START_TEST(start_values_are_those_of_nn_linear)
{
    static const struct rps_model_table tables[] = {
            {.name = "emb", .dim = 5, .bags = 13},
            {.name = "wide", .dim = 19, .bags = 13}};
    struct rps_model *model = dlrm_of(13, tables, 2), *demo = demo_make();
    struct rps_model *without = dlrm_make(0, 3);

    check_start_values(model, "bot.0.weight", 1.0 / 13);
    check_start_values(model, "bot.0.bias", 1.0 / 13);
    check_start_values(model, "top.0.weight", 1.0 / (5 + 27 * 26 / 2));
    check_start_values(model, "top.0.bias", 1.0 / (5 + 27 * 26 / 2));
    check_start_values(model, "proj.wide.weight", 6.0 / (5 + 19));
    check_start_values(demo, "mlp.0.bias", 1.0 / 40);
    check_start_values(demo, "mlp.6.weight", 1.0 / 256);
    check_start_values(without, "bot.0.bias", 1.0);
    rps_model_destroy(without);
    rps_model_destroy(demo);
    rps_model_destroy(model);
}
END_TEST

START_TEST(start_values_depend_on_seed_and_name)
{
    struct rps_model *model = dlrm_make(13, 26), *other = dlrm_make(13, 26);
    const struct rps_variable *weight = variable(model, "top.0.weight");

    ck_assert_mem_eq(weight->values, variable(other, weight->name)->values,
            weight->elements * sizeof(float));
    rps_model_start_values(other, 12);
    ck_assert_mem_ne(weight->values, variable(other, weight->name)->values,
            weight->elements * sizeof(float));
    ck_assert_mem_ne(variable(model, "top.2.weight")->values,
            variable(model, "bot.2.weight")->values, 20 * sizeof(float));
    rps_model_destroy(model);
    rps_model_destroy(other);
}
END_TEST

START_TEST(more_pairs_than_the_top_mlp_takes_are_refused)
{
    const struct rps_model_table table = {
            .name = "emb", .dim = 1, .bags = 4000};
    const struct rps_model_shape shape = {.dense = 3,
            .bottom = {.count = 1, .widths = {1}},
            .top = {.count = 1, .widths = {1}},
            .table_count = 1,
            .tables = &table};
    struct rps_model *model;
    struct rps_error error;

    ck_assert_int_eq(rps_dlrm_create(&model, &shape, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "4000 bags"));
}
END_TEST

/* Any one NaN of the input reaches the loss, whatever ReLU is between. */
START_TEST(a_nan_in_the_input_makes_the_loss_nan)
{
    struct fixture fixture = {.model = _i == 0 ? dlrm_make(3, 4) : demo_make()};
    double loss = 0.0;

    fixture_fill(&fixture, 70, 5);
    fixture.pooled[0][fixture.pooled_floats[0] / 2] = NAN;
    rps_model_run(fixture.model, &fixture.input, fixture.probabilities, &loss);
    ck_assert(isnan(loss));
    fixture_drop(&fixture);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("model");
    TCase *tcase = tcase_create("model");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, dlrm_equals_the_book_in_loss_and_slopes, 0, 5);
    tcase_add_test(tcase, dlrm_without_dense_features_learns_a_constant_vector);
    tcase_add_test(tcase, little_demo_equals_the_book_in_loss_and_slopes);
    tcase_add_loop_test(
            tcase, probabilities_have_the_same_bits_in_any_batch_size, 0, 5);
    tcase_add_test(tcase, start_values_are_those_of_nn_linear);
    tcase_add_test(tcase, start_values_depend_on_seed_and_name);
    tcase_add_loop_test(
            tcase, tables_of_other_dims_are_projected_and_equal_the_book, 0, 3);
    tcase_add_loop_test(tcase, dots_have_the_same_bits_in_every_set, 0, 7);
    tcase_add_test(tcase, a_table_may_not_be_named_as_a_variable);
    tcase_add_test(tcase, more_pairs_than_the_top_mlp_takes_are_refused);
    tcase_add_loop_test(tcase, a_nan_in_the_input_makes_the_loss_nan, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
