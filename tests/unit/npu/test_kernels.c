/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss, dots, bags, dropout and optimizers against models in double precision
 * and differences of them.
 */
#include "client/npu/kernels/bags.h"
#include "client/npu/kernels/dropout.h"
#include "client/npu/kernels/interact.h"
#include "client/npu/kernels/loss.h"
#include "client/npu/kernels/optimize.h"
#include "tests/unit/npu/models.h"

#include <stdio.h>

static struct rps_npu_arithmetic
how(bool mixed, bool precise)
{
    return (struct rps_npu_arithmetic){
            .set = rps_npu_elementwise(), .mixed = mixed, .precise = precise};
}

static void
run(void (*kernel)(const void *args, void *workspace), const void *args,
        size_t bytes)
{
    void *workspace = NULL;

    if (bytes > 0) {
        ck_assert_int_eq(posix_memalign(&workspace, 64, bytes), 0);
        memset(workspace, 0xff, bytes);
    }
    kernel(args, workspace);
    free(workspace);
}

/* --- loss --------------------------------------------------------------------
 */

#define LABELS 2u

static double
model_entropy(double x, double y)
{
    const double p = 1.0 / (1.0 + exp(-x));

    return -(y * log(p) + (1.0 - y) * log(1.0 - p));
}

struct loss {
    size_t rows;
    float *x, *y, *w, *dx;
    double scale[2], loss;
    struct rps_npu_bce_args args;
};

static struct loss
make_loss(size_t rows)
{
    uint64_t state = 3 + rows;
    struct loss l = {.rows = rows, .scale = {0.125, 0.5}};

    l.x = noise_floats(rows * LABELS, 4.0, &state);
    l.y = noise_floats(rows * LABELS, 1.0, &state);
    l.w = noise_floats(rows, 1.0, &state);
    l.dx = zero_floats(rows * LABELS);
    for (size_t i = 0; i < rows * LABELS; i++) {
        l.y[i] = l.y[i] > 0.0f ? 1.0f : 0.0f;
    }
    for (size_t r = 0; r < rows; r++) {
        l.w[r] = r % 5 == 4 ? 0.0f : 1.0f + l.w[r];
    }
    return l;
}

static void
aim_loss(struct loss *l)
{
    l->args = (struct rps_npu_bce_args){.rows = l->rows,
            .labels = LABELS,
            .x = l->x,
            .x_stride = LABELS,
            .y = l->y,
            .y_stride = LABELS,
            .weights = l->w,
            .scale = l->scale,
            .loss = &l->loss,
            .dx = l->dx,
            .dx_stride = LABELS};
}

static void
drop_loss(struct loss *l)
{
    free(l->x);
    free(l->y);
    free(l->w);
    free(l->dx);
}

static double
model_loss(const struct loss *l)
{
    double sum = 0.0;

    for (size_t i = 0; i < l->rows * LABELS; i++) {
        sum += (double)l->w[i / LABELS] *
               model_entropy((double)l->x[i], (double)l->y[i]);
    }
    return sum;
}

START_TEST(loss_is_the_weighted_entropy)
{
    const size_t rows[] = {0, 1, 63, 64, 65, 200};
    struct loss l = make_loss(rows[_i]);

    aim_loss(&l);
    run(rps_npu_bce_kernel, &l.args, 0);
    ck_assert_double_eq_tol(l.loss, l.scale[0] * model_loss(&l), 1e-10);
    for (size_t i = 0; i < l.rows * LABELS; i++) {
        const float old = l.x[i];
        double slope = 0.0;

        l.x[i] = old + 0x1p-8f;
        slope = model_loss(&l);
        l.x[i] = old - 0x1p-8f;
        slope = (slope - model_loss(&l)) / 0x1p-7;
        l.x[i] = old;
        ck_assert_double_eq_tol((double)l.dx[i], l.scale[1] * slope, 2e-6);
    }
    drop_loss(&l);
}
END_TEST

START_TEST(loss_of_huge_logits_is_finite)
{
    const float x[] = {1e30f, -1e30f, 200.0f, -200.0f}, y[] = {1, 0, 0, 1};
    float dx[4];
    double loss = 0.0;
    const struct rps_npu_bce_args args = {.rows = 4,
            .labels = 1,
            .x = x,
            .x_stride = 1,
            .y = y,
            .y_stride = 1,
            .loss = &loss,
            .dx = dx,
            .dx_stride = 1};

    run(rps_npu_bce_kernel, &args, 0);
    ck_assert_double_eq(loss, 400.0);
    ck_assert(dx[0] == 0.0f && dx[1] == 0.0f && dx[2] == 1.0f);
    ck_assert(dx[3] == -1.0f);
}
END_TEST

/* Padding may hold anything. */
START_TEST(rows_of_weight_zero_are_not_read)
{
    struct loss l = make_loss(10), with_nan = make_loss(10);

    aim_loss(&l);
    aim_loss(&with_nan);
    for (size_t i = 0; i < LABELS; i++) {
        with_nan.x[4 * LABELS + i] = NAN;
        with_nan.y[9 * LABELS + i] = INFINITY;
    }
    run(rps_npu_bce_kernel, &l.args, 0);
    run(rps_npu_bce_kernel, &with_nan.args, 0);
    ck_assert(l.loss == with_nan.loss);
    assert_same_bits("dx", l.dx, with_nan.dx, 10 * LABELS);
    ck_assert(l.dx[4 * LABELS] == 0.0f);
    drop_loss(&l);
    drop_loss(&with_nan);
}
END_TEST

START_TEST(loss_goes_on_over_parts_of_a_batch)
{
    struct loss l = make_loss(200);
    double whole = 0.0;

    aim_loss(&l);
    run(rps_npu_bce_kernel, &l.args, 0);
    whole = l.loss;
    l.args.rows = 128;
    run(rps_npu_bce_kernel, &l.args, 0);
    l.args.rows = 72;
    l.args.x += 128 * LABELS;
    l.args.y += 128 * LABELS;
    l.args.weights += 128;
    l.args.accumulate = true;
    run(rps_npu_bce_kernel, &l.args, 0);
    ck_assert(l.loss == whole);
    drop_loss(&l);
}
END_TEST

/* --- dots
 * --------------------------------------------------------------------- */

/* n, width, extra stride of vectors and rows */
static const uint32_t dot_shapes[][3] = {{1, 1, 0}, {1, 16, 0}, {2, 5, 0},
        {3, 16, 0}, {5, 16, 16}, {9, 33, 2}, {27, 16, 0}, {28, 64, 0}};
#define DOT_SHAPES 8
#define DOT_ROWS   3u

struct dots {
    uint32_t n, width, extra;
    bool first;
    size_t out;
    float *v, *dy;       /* contiguous */
    float *sv, *y, *sdv; /* strided vectors */
    struct rps_npu_interact_args args;
};

static struct dots
make_dots(const uint32_t *shape, bool first)
{
    struct dots d = {.n = shape[0],
            .width = shape[1],
            .extra = shape[2],
            .first = first};
    const size_t stride = d.width + d.extra;
    uint64_t state = 11;

    d.out = d.n * (d.n - 1) / 2 + (first ? d.width : 0);
    d.v = noise_floats(DOT_ROWS * d.n * d.width, 1.0, &state);
    d.dy = noise_floats(DOT_ROWS * d.out, 1.0, &state);
    d.sv = noise_floats(DOT_ROWS * d.n * stride, 1.0, &state);
    d.sdv = zero_floats(DOT_ROWS * d.n * stride);
    d.y = zero_floats(DOT_ROWS * d.out);
    for (size_t i = 0; i < DOT_ROWS * d.n; i++) {
        memcpy(d.sv + i * stride, d.v + i * d.width, d.width * sizeof(float));
    }
    d.args = (struct rps_npu_interact_args){.dots = rps_dots_best(),
            .rows = DOT_ROWS,
            .n = d.n,
            .width = d.width,
            .first = first,
            .v = d.sv,
            .v_row = d.n * stride,
            .v_vector = stride,
            .y = d.y,
            .y_stride = d.out,
            .dy = d.dy,
            .dy_stride = d.out,
            .dv = d.sdv,
            .dv_row = d.n * stride,
            .dv_vector = stride};
    return d;
}

static void
drop_dots(struct dots *d)
{
    free(d->v);
    free(d->dy);
    free(d->sv);
    free(d->y);
    free(d->sdv);
}

static void
run_dots(const struct dots *d)
{
    run(rps_npu_interact_kernel, &d->args,
            rps_npu_interact_workspace(&d->args));
    run(rps_npu_interact_back_kernel, &d->args,
            rps_npu_interact_back_workspace(&d->args));
}

static void
check_dots(const uint32_t *shape, bool first, struct rps_npu_arithmetic as,
        double bound)
{
    struct dots d = make_dots(shape, first);
    double *y = model_dots(DOT_ROWS, d.n, d.width, first, d.v);
    double *dv = model_dots_back(DOT_ROWS, d.n, d.width, first, d.v, d.dy);
    float *got = zero_floats(DOT_ROWS * d.n * d.width);

    d.args.how = as;
    run_dots(&d);
    for (size_t i = 0; i < DOT_ROWS * d.n; i++) {
        const float *row = d.sdv + i * (d.width + d.extra);

        memcpy(got + i * d.width, row, d.width * sizeof(float));
        for (uint32_t k = 0; d.width % 16 != 0 && k < d.extra; k++) {
            ck_assert(row[d.width + k] == 0.0f); /* not written */
        }
    }
    assert_near("y", d.y, y, DOT_ROWS * d.out, bound);
    assert_near("dv", got, dv, DOT_ROWS * d.n * d.width, bound);
    free(y);
    free(dv);
    free(got);
    drop_dots(&d);
}

START_TEST(dots_are_their_model)
{
    const uint32_t *shape = dot_shapes[_i];

    for (size_t first = 0; first < 2; first++) {
        check_dots(shape, first == 1, how(false, false), 3e-6);
        check_dots(shape, first == 1, how(false, true), 6e-8);
        check_dots(shape, first == 1, how(true, false), 4e-2);
        check_dots(shape, first == 1, how(true, true), 4e-2);
    }
}
END_TEST

/* Neither the strides nor where vectors lie change a bit. */
START_TEST(dots_do_not_depend_on_strides)
{
    const uint32_t near[] = {6, 16, 0}, far[] = {6, 16, 5};
    struct dots a = make_dots(near, true), b = make_dots(far, true);

    a.args.how = b.args.how = how(false, false);
    run_dots(&a);
    run_dots(&b);
    assert_same_bits("y", a.y, b.y, DOT_ROWS * a.out);
    for (size_t i = 0; i < DOT_ROWS * a.n; i++) {
        assert_same_bits("dv", a.sdv + i * 16, b.sdv + i * 21, 16);
    }
    drop_dots(&a);
    drop_dots(&b);
}
END_TEST

START_TEST(high_precision_dots_are_nearer)
{
    const uint32_t shape[] = {4, 4096, 0};
    double off[2];

    for (size_t k = 0; k < 2; k++) {
        struct dots d = make_dots(shape, false);
        double *y = model_dots(DOT_ROWS, d.n, d.width, false, d.v);

        d.args.how = how(false, k == 1);
        run_dots(&d);
        off[k] = distance(d.y, y, DOT_ROWS * d.out);
        free(y);
        drop_dots(&d);
    }
    ck_assert_double_gt(off[0], 2.0 * off[1]);
    ck_assert_double_le(off[1], 0x1p-24);
}
END_TEST

/* --- bags
 * ---------------------------------------------------------------------- */

#define BAG_ROWS 9u
#define BAGS     6u
#define TOKENS   12u

static const int32_t bag_slots[TOKENS] = {3, 3, 8, 0, 1, 2, 5, 5, 5, 4, 7, 6};
static const int32_t bag_starts[BAGS + 1] = {0, 1, 1, 4, 9, 10, 11};

struct bags {
    size_t dim;
    float *rows, *pooled, *tokens;
    struct rps_npu_bags_args args;
};

static struct bags
make_bags(size_t dim, struct rps_npu_arithmetic as, int pooling)
{
    uint64_t state = 5;
    struct bags b = {.dim = dim};

    b.rows = noise_floats(BAG_ROWS * dim, 1.0, &state);
    b.pooled = noise_floats(BAGS * (dim + 2), 1.0, &state);
    b.tokens = noise_floats(TOKENS * dim, 1.0, &state);
    b.args = (struct rps_npu_bags_args){.how = as,
            .mean = pooling == 1,
            .sqrtn = pooling == 2,
            .bags = BAGS,
            .tokens = TOKENS,
            .dim = dim,
            .slots = bag_slots,
            .starts = bag_starts,
            .rows = b.rows,
            .row_count = BAG_ROWS,
            .row_stride = dim,
            .pooled = b.pooled,
            .inner = 2,
            .inner_stride = dim,
            .outer_stride = 2 * dim + 4,
            .dtokens = b.tokens,
            .dtokens_stride = dim};
    return b;
}

static void
drop_bags(struct bags *b)
{
    free(b->rows);
    free(b->pooled);
    free(b->tokens);
}

static double
model_divisor(int pooling, size_t n)
{
    if (pooling == 0 || n < 2) {
        return 1.0;
    }
    return pooling == 1 ? (double)n : sqrt((double)n);
}

static void
check_pooled(const struct bags *b, int pooling, double bound)
{
    double want = 0.0;

    for (size_t bag = 0; bag < BAGS; bag++) {
        const float *got =
                b->pooled + bag / 2 * (2 * b->dim + 4) + bag % 2 * b->dim;
        const size_t n = (size_t)(bag_starts[bag + 1] - bag_starts[bag]);

        for (size_t k = 0; k < b->dim; k++) {
            want = 0.0;
            for (int32_t t = bag_starts[bag]; t < bag_starts[bag + 1]; t++) {
                want += (double)b->rows[(size_t)bag_slots[t] * b->dim + k];
            }
            want /= model_divisor(pooling, n);
            ck_assert_double_le(fabs((double)got[k] - want), bound);
        }
    }
}

static void
check_tokens(const struct bags *b, int pooling, double bound)
{
    for (size_t bag = 0; bag < BAGS; bag++) {
        const float *from =
                b->pooled + bag / 2 * (2 * b->dim + 4) + bag % 2 * b->dim;
        const size_t n = (size_t)(bag_starts[bag + 1] - bag_starts[bag]);

        for (int32_t t = bag_starts[bag]; t < bag_starts[bag + 1]; t++) {
            for (size_t k = 0; k < b->dim; k++) {
                ck_assert_double_le(
                        fabs((double)b->tokens[(size_t)t * b->dim + k] -
                                (double)from[k] / model_divisor(pooling, n)),
                        bound);
            }
        }
    }
}

START_TEST(bags_are_their_model)
{
    const size_t dims[] = {1, 7, 16, 40};

    for (size_t d = 0; d < 4; d++) {
        for (size_t precise = 0; precise < 2; precise++) {
            const double bound = precise == 1 ? 0x1p-22 : 1e-6;
            struct bags b = make_bags(dims[d], how(false, precise == 1), _i);
            float last = 0.0f;

            run(rps_npu_bags_kernel, &b.args, rps_npu_bags_workspace(&b.args));
            check_pooled(&b, _i, bound);
            last = b.tokens[(TOKENS - 1) * b.dim];
            run(rps_npu_bags_back_kernel, &b.args, 0);
            check_tokens(&b, _i, bound);
            /* a token of no bag is left as it was */
            ck_assert(b.tokens[(TOKENS - 1) * b.dim] == last);
            drop_bags(&b);
        }
    }
}
END_TEST

/* Indices that nobody checked. */
START_TEST(bad_indices_read_and_write_nothing)
{
    static const int32_t slots[TOKENS] = {
            -1, 9, INT32_MAX, INT32_MIN, 1, 2, 5, 5, 5, 4, 7, 6};
    static const int32_t starts[BAGS + 1] = {-5, 4, 2, 100, INT32_MAX, -7, 12};

    for (size_t precise = 0; precise < 2; precise++) {
        struct bags b = make_bags(3, how(false, precise == 1), 0);

        b.args.slots = slots;
        b.args.starts = starts;
        run(rps_npu_bags_kernel, &b.args, rps_npu_bags_workspace(&b.args));
        ck_assert(b.pooled[0] == 0.0f); /* four slots beyond the rows */
        run(rps_npu_bags_back_kernel, &b.args, 0);
        drop_bags(&b);
    }
}
END_TEST

/* --- dropout
 * ------------------------------------------------------------------- */

#define DROP_ROWS    200u
#define DROP_COLUMNS 251u
#define DROP_CELLS   (DROP_ROWS * DROP_COLUMNS)

static float drop_in[DROP_CELLS], drop_out[DROP_CELLS], drop_again[DROP_CELLS];
static double drop_step = 3.0;

static struct rps_npu_dropout_args
dropout(double rate, float *y)
{
    for (size_t i = 0; i < DROP_CELLS; i++) {
        drop_in[i] = 1.0f;
    }
    return (struct rps_npu_dropout_args){.rows = DROP_ROWS,
            .columns = DROP_COLUMNS,
            .x = drop_in,
            .x_stride = DROP_COLUMNS,
            .y = y,
            .y_stride = DROP_COLUMNS,
            .rate = rate,
            .seed = 42,
            .site = 7,
            .step = &drop_step};
}

static size_t
dropped(const float *y, size_t first, size_t n, size_t stride)
{
    size_t count = 0;

    for (size_t i = first; i < first + n * stride; i += stride) {
        count += y[i] == 0.0f;
    }
    return count;
}

START_TEST(dropout_drops_its_share_and_keeps_the_mean)
{
    const double rates[] = {0.1, 0.5, 0.9};
    const double rate = rates[_i];
    const struct rps_npu_dropout_args args = dropout(rate, drop_out);
    const double sigma = sqrt(rate * (1.0 - rate) * DROP_CELLS);
    double pairs = 0.0;

    run(rps_npu_dropout_kernel, &args, 0);
    ck_assert_double_le(fabs((double)dropped(drop_out, 0, DROP_CELLS, 1) -
                                rate * DROP_CELLS),
            4.0 * sigma);
    /* each column, and neighbours, as if they did not know of each other */
    for (size_t c = 0; c < DROP_COLUMNS; c++) {
        ck_assert_double_le(
                fabs((double)dropped(drop_out, c, DROP_ROWS, DROP_COLUMNS) -
                        rate * DROP_ROWS),
                5.0 * sqrt(rate * (1.0 - rate) * DROP_ROWS));
    }
    for (size_t i = 1; i < DROP_CELLS; i++) {
        const float kept = (float)(1.0 / (1.0 - rate));

        ck_assert(drop_out[i] == 0.0f || drop_out[i] == kept);
        pairs += drop_out[i] == 0.0f && drop_out[i - 1] == 0.0f;
    }
    ck_assert_double_le(fabs(pairs - rate * rate * DROP_CELLS), 6.0 * sigma);
}
END_TEST

START_TEST(dropout_is_a_function_of_its_numbers)
{
    struct rps_npu_dropout_args args = dropout(0.5, drop_out);
    size_t others = 0;

    run(rps_npu_dropout_kernel, &args, 0);
    args = dropout(0.5, drop_again);
    run(rps_npu_dropout_kernel, &args, 0);
    assert_same_bits("again", drop_again, drop_out, DROP_CELLS);
    for (int change = 0; change < 3; change++) {
        args = dropout(0.5, drop_again);
        args.seed += change == 0;
        args.site += change == 1;
        drop_step += change == 2;
        run(rps_npu_dropout_kernel, &args, 0);
        drop_step = 3.0;
        others = 0;
        for (size_t i = 0; i < DROP_CELLS; i++) {
            others += drop_again[i] != drop_out[i];
        }
        /* half of them, as of two that know nothing of each other */
        ck_assert_double_le(fabs((double)others - 0.5 * DROP_CELLS),
                4.0 * sqrt(0.25 * DROP_CELLS));
    }
}
END_TEST

/* Rows that are computed alone, strided, in place: the same fate. */
START_TEST(a_part_is_dropped_as_in_the_whole)
{
    struct rps_npu_dropout_args args = dropout(0.3, drop_out);
    float part[3 * (DROP_COLUMNS + 5)];

    run(rps_npu_dropout_kernel, &args, 0);
    for (size_t i = 0; i < sizeof(part) / sizeof(part[0]); i++) {
        part[i] = 1.0f;
    }
    args.rows = 3;
    args.x = part;
    args.y = part;
    args.x_stride = args.y_stride = DROP_COLUMNS + 5;
    args.first = 7 * DROP_COLUMNS; /* odd */
    run(rps_npu_dropout_kernel, &args, 0);
    for (size_t r = 0; r < 3; r++) {
        assert_same_bits("part", part + r * (DROP_COLUMNS + 5),
                drop_out + (7 + r) * DROP_COLUMNS, DROP_COLUMNS);
        ck_assert(part[r * (DROP_COLUMNS + 5) + DROP_COLUMNS] == 1.0f);
    }
}
END_TEST

/* --- optimizers
 * ------------------------------------------------------------------ */

#define CELLS 37u
#define STEPS 200

struct optimizer {
    float w[CELLS], g[CELLS], m[CELLS], v[CELLS];
    double rate, step;
    double dw[CELLS], dm[CELLS], dv[CELLS]; /* the model's */
    struct rps_npu_optimize_args args;
};

/* 0 sgd, 1 adam, 2 adamw */
static void
init_optimizer(struct optimizer *o, int kind, bool precise)
{
    uint64_t state = 8;

    memset(o, 0, sizeof(*o));
    for (size_t i = 0; i < CELLS; i++) {
        o->w[i] = (float)noise(&state);
        o->dw[i] = (double)o->w[i];
    }
    o->args = (struct rps_npu_optimize_args){.how = how(false, precise),
            .adam = kind > 0,
            .decoupled = kind == 2,
            .n = CELLS,
            .weight = o->w,
            .gradient = o->g,
            .m = o->m,
            .v = o->v,
            .learning_rate = &o->rate,
            .step = &o->step,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .epsilon = 1e-8,
            .decay = 0.01};
}

/* As PyTorch's documents write them. */
static void
model_step(struct optimizer *o, int kind)
{
    const double b1 = 0.9, b2 = 0.999, decay = 0.01, rate = o->rate;

    for (size_t i = 0; i < CELLS; i++) {
        double g = (double)o->g[i] + (kind == 2 ? 0.0 : decay * o->dw[i]);

        if (kind == 0) {
            o->dw[i] -= rate * g;
            continue;
        }
        if (kind == 2) {
            o->dw[i] -= rate * decay * o->dw[i];
        }
        o->dm[i] = b1 * o->dm[i] + (1.0 - b1) * g;
        o->dv[i] = b2 * o->dv[i] + (1.0 - b2) * g * g;
        o->dw[i] -= rate * (o->dm[i] / (1.0 - pow(b1, o->step))) /
                    (sqrt(o->dv[i] / (1.0 - pow(b2, o->step))) + 1e-8);
    }
}

static void
one_step(struct optimizer *o, int kind, uint64_t *state)
{
    const struct rps_npu_count_args count = {.counter = &o->step};

    run(rps_npu_count_kernel, &count, 0);
    o->rate = 0.01 / (1.0 + 0.01 * o->step); /* changes as it runs */
    for (size_t i = 0; i < CELLS; i++) {
        o->g[i] = (float)(noise(state) + 0.3 * (double)o->w[i]);
    }
    run(rps_npu_optimize_kernel, &o->args, 0);
    model_step(o, kind);
}

static double
off_after(int kind, bool precise)
{
    struct optimizer o;
    uint64_t state = 6;

    init_optimizer(&o, kind, precise);
    for (int s = 0; s < STEPS; s++) {
        one_step(&o, kind, &state);
    }
    return distance(o.w, o.dw, CELLS);
}

START_TEST(optimizers_are_their_models_over_many_steps)
{
    ck_assert_double_le(off_after(_i, false), 3e-6);
    ck_assert_double_le(off_after(_i, true), 3e-6);
}
END_TEST

START_TEST(a_step_that_is_not_finite_changes_nothing)
{
    struct optimizer o, old;
    uint64_t state = 6;
    int32_t finite = 0;
    const struct rps_npu_count_args count = {
            .counter = &o.step, .finite = &finite};

    init_optimizer(&o, 1, false);
    one_step(&o, 1, &state);
    o.args.finite = &finite;
    old = o;
    o.g[3] = NAN;
    run(rps_npu_count_kernel, &count, 0);
    run(rps_npu_optimize_kernel, &o.args, 0);
    ck_assert(o.step == old.step);
    assert_same_bits("w", o.w, old.w, CELLS);
    assert_same_bits("m", o.m, old.m, CELLS);
    finite = 1;
    o.g[3] = 1.0f;
    run(rps_npu_optimize_kernel, &o.args, 0);
    ck_assert(!same(o.w[0], old.w[0]));
}
END_TEST

START_TEST(a_loss_scale_is_taken_out_and_overflow_is_seen)
{
    float x[] = {1, 2, 3, 99, 4, 5, 6, 99};
    double factor = 0.25;
    int32_t finite = 0;
    struct rps_npu_unscale_args args = {.set = rps_npu_elementwise(),
            .rows = 2,
            .columns = 3,
            .stride = 4,
            .x = x,
            .factor = &factor,
            .finite = &finite};

    run(rps_npu_unscale_kernel, &args, 0);
    ck_assert_int_eq(finite, 1);
    ck_assert(x[0] == 0.25f && x[3] == 99.0f && x[6] == 1.5f);
    x[5] = INFINITY;
    args.factor = NULL;
    args.accumulate = true;
    run(rps_npu_unscale_kernel, &args, 0);
    ck_assert_int_eq(finite, 0);
    ck_assert(x[0] == 0.25f);
    x[5] = 1.0f;
    run(rps_npu_unscale_kernel, &args, 0);
    ck_assert_int_eq(finite, 0); /* stays, until it begins anew */
    args.accumulate = false;
    run(rps_npu_unscale_kernel, &args, 0);
    ck_assert_int_eq(finite, 1);
}
END_TEST

static Suite *
kernels_suite(void)
{
    Suite *suite = suite_create("kernels");
    TCase *tcase = tcase_create("kernels");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, loss_is_the_weighted_entropy, 0, 6);
    tcase_add_test(tcase, loss_of_huge_logits_is_finite);
    tcase_add_test(tcase, rows_of_weight_zero_are_not_read);
    tcase_add_test(tcase, loss_goes_on_over_parts_of_a_batch);
    tcase_add_loop_test(tcase, dots_are_their_model, 0, DOT_SHAPES);
    tcase_add_test(tcase, dots_do_not_depend_on_strides);
    tcase_add_test(tcase, high_precision_dots_are_nearer);
    tcase_add_loop_test(tcase, bags_are_their_model, 0, 3);
    tcase_add_test(tcase, bad_indices_read_and_write_nothing);
    tcase_add_loop_test(
            tcase, dropout_drops_its_share_and_keeps_the_mean, 0, 3);
    tcase_add_test(tcase, dropout_is_a_function_of_its_numbers);
    tcase_add_test(tcase, a_part_is_dropped_as_in_the_whole);
    tcase_add_loop_test(
            tcase, optimizers_are_their_models_over_many_steps, 0, 3);
    tcase_add_test(tcase, a_step_that_is_not_finite_changes_nothing);
    tcase_add_test(tcase, a_loss_scale_is_taken_out_and_overflow_is_seen);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    return run_suite(kernels_suite());
}
