/* SPDX-License-Identifier: Apache-2.0 */
/* What tables' rows go through: bags, dots, and rows to their places. */
#include "client/precision/replay_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- bags -------------------------------------------------------------------
 */

struct bags {
    const double *starts;
    uint64_t count;
    uint64_t tokens;
    uint64_t dim;
    bool mean, sqrtn;
};

struct span {
    uint64_t first, end;
    double by; /* what its sum is divided by */
};

static uint64_t
cut(double start, uint64_t tokens)
{
    if (start <= 0.0) {
        return 0;
    }
    return start < (double)tokens ? (uint64_t)start : tokens;
}

static struct span
span_of(const struct bags *bags, uint64_t bag)
{
    struct span span = {.first = cut(bags->starts[bag], bags->tokens),
            .end = cut(bags->starts[bag + 1], bags->tokens),
            .by = 1.0};
    uint64_t n = 0;

    span.end = span.end > span.first ? span.end : span.first;
    n = span.end - span.first;
    if (n > 1 && bags->mean) {
        span.by = (double)n;
    } else if (n > 1 && bags->sqrtn) {
        span.by = sqrt((double)n);
    }
    return span;
}

/* Bags of `pooled`, the tensor that has one row for each. */
static struct bags
bags_of(struct rps_replay_call *call, const struct rps_dumped_tensor *pooled,
        uint64_t count)
{
    struct bags bags = {.dim = rps_replay_columns(pooled),
            .mean = rps_replay_has_word(call, "pooling", "mean"),
            .sqrtn = rps_replay_has_word(call, "pooling", "sqrtn")};

    bags.count = bags.dim > 0 ? count / bags.dim : 0;
    bags.starts = rps_replay_need(call, "starts", bags.count + 1).n;
    if (!bags.mean && !bags.sqrtn &&
            !rps_replay_has_word(call, "pooling", "sum")) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its attribute \"pooling\" is not in the dump");
    }
    return bags;
}

/* One bag's row: its tokens' rows added, then divided. */
static void
pool(struct rps_replay_call *call, const struct bags *bags,
        const struct rps_operand *slots, const struct rps_operand *rows,
        uint64_t bag, struct rps_reference *pooled)
{
    const struct span span = span_of(bags, bag);
    const uint64_t row_count = rows->count / bags->dim;
    double *value = pooled->value + bag * bags->dim;
    double *tolerance = pooled->tolerance + bag * bags->dim;

    for (uint64_t t = span.first; t < span.end; t++) {
        const double slot = slots->count > 0 ? slots->n[t] : (double)t;

        if (!(slot >= 0.0 && slot < (double)row_count)) {
            continue;
        }
        for (uint64_t k = 0; k < bags->dim; k++) {
            const double term = rows->n[(uint64_t)slot * bags->dim + k];

            value[k] += term;
            tolerance[k] += fabs(term);
        }
    }
    for (uint64_t k = 0; k < bags->dim; k++) {
        const uint64_t terms = span.end - span.first;

        /* a lone row is moved; else it is divided, and sqrt(n) rounded */
        tolerance[k] = terms < 2 ? 0.0
                                 : rps_replay_sum_tolerance(call, terms + 3,
                                           tolerance[k], value[k]) /
                                           span.by;
        value[k] /= span.by;
    }
}

void
rps_replay_pooling(struct rps_replay_call *call)
{
    struct rps_reference *pooled =
            rps_replay_result(call, "pooled|y", UINT64_MAX);
    const struct rps_operand rows = rps_replay_need(call, "rows", UINT64_MAX);
    const struct rps_operand slots = rps_replay_input(call, "slots");
    struct bags bags = {0};

    if (rps_replay_stopped(call)) {
        return;
    }
    bags = bags_of(call, pooled->tensor, pooled->count);
    if (rps_replay_stopped(call) || bags.dim == 0) {
        return;
    }
    if (rps_replay_columns(rows.tensor) != bags.dim) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its rows and its output have other numbers of columns");
        return;
    }
    bags.tokens = slots.tensor != NULL ? slots.count : rows.count / bags.dim;
    for (uint64_t b = 0; b < bags.count; b++) {
        pool(call, &bags, &slots, &rows, b, pooled);
    }
}

/* Tokens that are in no bag keep what stood there. */
static void
keep_old(struct rps_replay_call *call, const char *label,
        struct rps_reference *reference)
{
    const struct rps_operand old = rps_replay_input(call, label);

    for (uint64_t i = 0; i < reference->count; i++) {
        if (old.count == reference->count) {
            reference->value[i] = old.n[i];
        } else {
            reference->tolerance[i] = INFINITY;
        }
    }
}

void
rps_replay_pooling_backward(struct rps_replay_call *call)
{
    const struct rps_operand dpooled =
            rps_replay_need(call, "dpooled|dy", UINT64_MAX);
    struct rps_reference *dtokens =
            rps_replay_result(call, "dtokens", UINT64_MAX);
    struct bags bags = {0};

    if (rps_replay_stopped(call)) {
        return;
    }
    bags = bags_of(call, dpooled.tensor, dpooled.count);
    if (rps_replay_stopped(call) || bags.dim == 0) {
        return;
    }
    if (rps_replay_columns(dtokens->tensor) != bags.dim) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "dpooled and dtokens have other numbers of columns");
        return;
    }
    bags.tokens = dtokens->count / bags.dim;
    keep_old(call, "dtokens", dtokens);
    for (uint64_t b = 0; b < bags.count; b++) {
        const struct span span = span_of(&bags, b);

        for (uint64_t i = span.first * bags.dim; i < span.end * bags.dim; i++) {
            const double dy = dpooled.n[b * bags.dim + i % bags.dim];

            dtokens->value[i] = dy / span.by;
            dtokens->tolerance[i] =
                    span.by == 1.0
                            ? 0.0
                            : 3.0 * RPS_REPLAY_F32 * fabs(dtokens->value[i]) +
                                      RPS_REPLAY_TINY;
        }
    }
}

/* --- rows to their places ---------------------------------------------------
 */

void
rps_replay_scatter(struct rps_replay_call *call)
{
    const struct rps_operand packed =
            rps_replay_need(call, "packed", UINT64_MAX);
    const struct rps_operand header = rps_replay_need(call, "header", 2);
    const struct rps_operand places =
            rps_replay_need(call, "places", UINT64_MAX);
    struct rps_reference *y = rps_replay_result(call, "y", UINT64_MAX);
    uint64_t dim = 0, first = 0, left = 0;

    if (rps_replay_stopped(call)) {
        return;
    }
    keep_old(call, "y", y);
    dim = rps_replay_columns(y->tensor);
    if (dim == 0 || !(header.n[0] >= 0.0 && header.n[1] >= 0.0 &&
                            header.n[0] <= (double)packed.count)) {
        return;
    }
    first = (uint64_t)header.n[0];
    left = (packed.count - first) / dim;
    for (uint64_t i = 0;
            i < left && i < places.count && (double)i < header.n[1]; i++) {
        const double place = places.n[i];

        if (!(place >= 0.0 && place < (double)(y->count / dim))) {
            continue;
        }
        for (uint64_t k = 0; k < dim; k++) {
            y->value[(uint64_t)place * dim + k] = packed.n[first + i * dim + k];
            y->tolerance[(uint64_t)place * dim + k] = 0.0;
        }
    }
}

/* --- dots -------------------------------------------------------------------
 */

struct vectors {
    const double *v; /* as given */
    double *factors; /* rounded where factors are */
    uint64_t rows, n, width;
    uint64_t pairs; /* n (n - 1) / 2 */
    uint64_t head;  /* columns of y before its dots: width, or 0 */
};

static uint64_t
pair_of(uint64_t i, uint64_t j)
{
    return i > j ? i * (i - 1) / 2 + j : j * (j - 1) / 2 + i;
}

/* The factors are the caller's to free. `columns`: of y, which say whether the
 * first vector stands before the dots. */
static struct vectors
vectors_of(struct rps_replay_call *call, uint64_t columns)
{
    const struct rps_operand v = rps_replay_need(call, "v", UINT64_MAX);
    struct vectors vectors = {.v = v.n};

    if (!rps_replay_stopped(call) && v.tensor->ndim != 3) {
        rps_replay_stop(
                call, RPS_REPLAY_NO_LAW, "its v is no [rows][vectors][width]");
    }
    if (rps_replay_stopped(call)) {
        return vectors;
    }
    vectors.rows = v.tensor->shape[0];
    vectors.n = v.tensor->shape[1];
    vectors.width = v.tensor->shape[2];
    vectors.pairs = vectors.n * (vectors.n - 1) / 2;
    vectors.head = columns > vectors.pairs ? vectors.width : 0;
    if (vectors.n == 0 || vectors.n > UINT32_MAX ||
            columns != vectors.head + vectors.pairs) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its v and its dots have other numbers of vectors");
        return vectors;
    }
    vectors.factors = rps_replay_array(call, v.count);
    if (vectors.factors != NULL) {
        memcpy(vectors.factors, v.n, v.count * sizeof(double));
        rps_replay_round(call, vectors.factors, NULL, v.count);
    }
    return vectors;
}

static void
dots_of_row(struct rps_replay_call *call, const struct vectors *vectors,
        uint64_t row, struct rps_reference *y)
{
    const uint64_t width = vectors->width;
    const double *factors = vectors->factors + row * vectors->n * width;
    uint64_t at = row * (vectors->head + vectors->pairs);

    for (uint64_t k = 0; k < vectors->head; k++) {
        y->value[at++] = vectors->v[row * vectors->n * width + k];
    }
    for (uint64_t i = 1; i < vectors->n; i++) {
        for (uint64_t j = 0; j < i; j++, at++) {
            double magnitude = 0.0;

            for (uint64_t k = 0; k < width; k++) {
                const double term =
                        factors[i * width + k] * factors[j * width + k];

                y->value[at] += term;
                magnitude += fabs(term);
            }
            y->tolerance[at] = rps_replay_sum_tolerance(
                    call, width, magnitude, y->value[at]);
        }
    }
}

void
rps_replay_dots(struct rps_replay_call *call)
{
    struct rps_reference *y = rps_replay_result(call, "y", UINT64_MAX);
    const struct vectors vectors =
            vectors_of(call, y != NULL ? rps_replay_columns(y->tensor) : 0);

    if (!rps_replay_stopped(call) &&
            y->count != vectors.rows * (vectors.head + vectors.pairs)) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its v and its dots have other numbers of rows");
    }
    for (uint64_t r = 0; !rps_replay_stopped(call) && r < vectors.rows; r++) {
        dots_of_row(call, &vectors, r, y);
    }
    free(vectors.factors);
}

/* dv i = sum over j != i of dy(i, j) v j, and the head for i = 0. */
static void
gradient_of_row(struct rps_replay_call *call, const struct vectors *vectors,
        const double *dy, const double *dz, uint64_t row,
        struct rps_reference *dv)
{
    const uint64_t width = vectors->width;
    const double *factors = vectors->factors + row * vectors->n * width;

    for (uint64_t i = 0; i < vectors->n; i++) {
        for (uint64_t k = 0; k < width; k++) {
            const uint64_t at = (row * vectors->n + i) * width + k;
            double sum = i == 0 && vectors->head > 0 ? dy[k] : 0.0;
            double magnitude = fabs(sum);

            for (uint64_t j = 0; j < vectors->n; j++) {
                if (j != i) {
                    const double term =
                            dz[pair_of(i, j)] * factors[j * width + k];

                    sum += term;
                    magnitude += fabs(term);
                }
            }
            dv->value[at] = sum;
            dv->tolerance[at] =
                    rps_replay_sum_tolerance(call, vectors->n, magnitude, sum);
        }
    }
}

void
rps_replay_dots_backward(struct rps_replay_call *call)
{
    const struct rps_operand dy = rps_replay_need(call, "dy", UINT64_MAX);
    const uint64_t columns =
            dy.tensor != NULL ? rps_replay_columns(dy.tensor) : 0;
    const struct vectors vectors = vectors_of(call, columns);
    struct rps_reference *dv = rps_replay_result(
            call, "dv", vectors.rows * vectors.n * vectors.width);
    double *dz = rps_replay_array(call, vectors.pairs);

    if (!rps_replay_stopped(call) && dy.count != vectors.rows * columns) {
        rps_replay_stop(call, RPS_REPLAY_NO_LAW,
                "its v and dy have other numbers of rows");
    }
    for (uint64_t r = 0; !rps_replay_stopped(call) && r < vectors.rows; r++) {
        const double *row = dy.n + r * columns;

        memcpy(dz, row + vectors.head, vectors.pairs * sizeof(double));
        rps_replay_round(call, dz, NULL, vectors.pairs);
        gradient_of_row(call, &vectors, row, dz, r, dv);
    }
    free(dz);
    free(vectors.factors);
}
