/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/kernels/bags.h"

#include <math.h>
#include <string.h>

/* A bag's tokens. */
struct span {
    size_t first, end;
};

static size_t
cut(int32_t start, size_t tokens)
{
    if (start < 0) {
        return 0;
    }
    return (size_t)start < tokens ? (size_t)start : tokens;
}

static struct span
span_of(const struct rps_npu_bags_args *args, size_t bag)
{
    const size_t first = cut(args->starts[bag], args->tokens);
    const size_t end = cut(args->starts[bag + 1], args->tokens);

    return (struct span){.first = first, .end = end > first ? end : first};
}

static float *
pooled_of(const struct rps_npu_bags_args *args, size_t bag)
{
    return args->pooled + bag / args->inner * args->outer_stride +
           bag % args->inner * args->inner_stride;
}

/* A token's row; NULL: there is none. */
static const float *
row_of(const struct rps_npu_bags_args *args, size_t token)
{
    const int32_t slot =
            args->slots != NULL ? args->slots[token] : (int32_t)token;

    if (slot < 0 || (size_t)slot >= args->row_count) {
        return NULL;
    }
    return args->rows + (size_t)slot * args->row_stride;
}

/* What n tokens are divided by; 1: nothing. */
static double
divisor(const struct rps_npu_bags_args *args, size_t n)
{
    if (n < 2 || (!args->mean && !args->sqrtn)) {
        return 1.0;
    }
    if (args->mean) {
        return (double)n;
    }
    return args->how.precise ? sqrt((double)n) : (double)sqrtf((float)n);
}

static void
pool(const struct rps_npu_bags_args *args, struct span span, float *to)
{
    const struct rps_npu_elementwise *set = args->how.set;
    const double by = divisor(args, span.end - span.first);
    const size_t dim = args->dim;
    bool begun = false;

    for (size_t t = span.first; t < span.end; t++) {
        const float *row = row_of(args, t);

        if (row == NULL) {
            continue;
        }
        if (begun) {
            set->add(to, row, to, dim);
        } else {
            memcpy(to, row, dim * sizeof(float));
        }
        begun = true;
    }
    if (!begun) {
        memset(to, 0, dim * sizeof(float));
    } else if (by != 1.0) {
        set->divide(to, (float)by, to, dim);
    }
}

static void
pool_precisely(const struct rps_npu_bags_args *args, struct span span,
        double *sums, float *to)
{
    const double by = divisor(args, span.end - span.first);

    memset(sums, 0, args->dim * sizeof(double));
    for (size_t t = span.first; t < span.end; t++) {
        const float *row = row_of(args, t);

        if (row != NULL) {
            args->how.set->add_f64(row, sums, args->dim);
        }
    }
    for (size_t k = 0; k < args->dim; k++) {
        sums[k] /= by;
    }
    args->how.set->from_f64(sums, to, args->dim);
}

size_t
rps_npu_bags_workspace(const struct rps_npu_bags_args *args)
{
    return args->how.precise ? args->dim * sizeof(double) : 0;
}

void
rps_npu_bags_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_bags_args *args = arguments;

    for (size_t b = 0; b < args->bags; b++) {
        const struct span span = span_of(args, b);

        if (args->how.precise) {
            pool_precisely(args, span, workspace, pooled_of(args, b));
        } else {
            pool(args, span, pooled_of(args, b));
        }
    }
}

static void
divide(const struct rps_npu_bags_args *args, const float *from, double by,
        float *to)
{
    if (by == 1.0) {
        memcpy(to, from, args->dim * sizeof(float));
    } else if (!args->how.precise) {
        args->how.set->divide(from, (float)by, to, args->dim);
    } else {
        for (size_t k = 0; k < args->dim; k++) {
            to[k] = (float)((double)from[k] / by);
        }
    }
}

void
rps_npu_bags_back_kernel(const void *arguments, void *workspace)
{
    const struct rps_npu_bags_args *args = arguments;

    (void)workspace;
    for (size_t b = 0; b < args->bags; b++) {
        const struct span span = span_of(args, b);
        const double by = divisor(args, span.end - span.first);
        float *to = args->dtokens + span.first * args->dtokens_stride;
        const float *first = to;

        for (size_t t = span.first; t < span.end; t++) {
            if (t == span.first) {
                divide(args, pooled_of(args, b), by, to);
            } else {
                memcpy(to, first, args->dim * sizeof(float));
            }
            to += args->dtokens_stride;
        }
    }
}
