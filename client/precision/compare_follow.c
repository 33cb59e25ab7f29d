/* SPDX-License-Identifier: Apache-2.0 */
#include "client/precision/compare_follow.h"

#include "client/precision/compare_impl.h"
#include "client/precision/compare_trace.h"
#include "client/precision/graph.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOPS_MAX 10000u /* writers; time runs backwards, so there is an end */

/* A tensor's rows, by its last dimension. */
struct rows {
    uint64_t count, differ;
    double cosine; /* the least */
    uint64_t at;   /* element of that row that is the farthest apart */
};

struct following {
    const struct rps_comparison *comparison;
    const struct rps_dumped *dumped[2];
    struct rps_graph *graphs[2];
    const struct rps_compare_options *options;
};

/* --- judging rows --------------------------------------------------------- */

static uint64_t
farthest(const double *left, const double *right, uint64_t n)
{
    uint64_t at = 0;
    double most = -1.0;

    for (uint64_t i = 0; i < n; i++) {
        const double apart = fabs(left[i] - right[i]);

        if (apart > most || isnan(apart)) {
            at = i;
            most = isnan(apart) ? (double)INFINITY : apart;
        }
    }
    return at;
}

static void
judge_row(struct rows *rows, const double *left, const double *right,
        uint64_t width, const struct rps_compare_options *options)
{
    struct rps_compare_sums sums = {.equal = true};
    double cosine;

    rps_compare_sums_add(&sums, left, right, width);
    cosine = rps_compare_sums_cosine(&sums);
    if (!rps_compare_row_agrees(&sums, options)) {
        if (rows->differ++ == 0 || isnan(cosine) || cosine < rows->cosine) {
            rows->cosine = cosine;
            rows->at = rows->count * width + farthest(left, right, width);
        }
    }
    rows->count++;
}

/* One of a single dimension is one row. False: they cannot be compared. */
static bool
judge(const struct rps_compared_tensor *tensor, struct rows *rows,
        const struct rps_compare_options *options)
{
    struct rps_dumped_values values[2] = {{.count = 0}, {.count = 0}};
    bool good = tensor->readable && tensor->left != NULL &&
                tensor->right != NULL &&
                rps_dumped_load(tensor->left, &values[0], NULL) == RPS_OK &&
                rps_dumped_load(tensor->right, &values[1], NULL) == RPS_OK &&
                values[0].count == values[1].count && values[0].count > 0;
    const uint64_t last = good && tensor->left->ndim > 1
                                  ? tensor->left->shape[tensor->left->ndim - 1]
                                  : 0;
    const uint64_t width =
            last > 0 && values[0].count % last == 0 ? last : values[0].count;

    *rows = (struct rows){.cosine = 1.0};
    for (uint64_t at = 0; good && at < values[0].count; at += width) {
        judge_row(rows, values[0].numbers + at, values[1].numbers + at, width,
                options);
    }
    rps_dumped_values_free(&values[0]);
    rps_dumped_values_free(&values[1]);
    return good;
}

/* --- writers -------------------------------------------------------------- */

static const struct rps_compared *
compared_of(const struct following *following, int side,
        const struct rps_dumped_operator *op)
{
    for (uint32_t i = 0; i < following->comparison->operator_count; i++) {
        const struct rps_compared *one = &following->comparison->operators[i];

        if ((side == 0 ? one->left : one->right) == op) {
            return one;
        }
    }
    return NULL;
}

/* What a side's input was written by, at one of its elements; false: nobody.
 * *same_out: all of the input has the bytes of who wrote it. */
static bool
find_writer(const struct following *following, int side,
        const struct rps_dumped_tensor *tensor, uint64_t element,
        const struct rps_dumped_operator **op_out, bool *same_out)
{
    const struct rps_dumped *dumped = following->dumped[side];
    struct rps_graph_break broken;
    uint32_t op, input, from, output;
    uint64_t there;

    *same_out = false;
    if (!rps_compare_find_input(dumped, tensor, &op, &input) ||
            !rps_graph_writer(following->graphs[side], op, input, element,
                    &from, &output, &there)) {
        return false;
    }
    *op_out = &dumped->operators[from];
    *same_out = rps_graph_check(following->graphs[side], op, input, &broken,
                        NULL) == RPS_OK &&
                broken.elements == 0;
    return true;
}

/* The worst input or output, row by row; NULL: all agree. */
static const struct rps_compared_tensor *
worst_of(const struct following *following, const struct rps_compared *compared,
        bool is_output, struct rows *worst)
{
    const struct rps_compared_tensor *found = NULL;

    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        const struct rps_compared_tensor *tensor = &compared->tensors[i];
        struct rows rows;

        if (tensor->is_output == is_output && !tensor->equal_bytes &&
                judge(tensor, &rows, following->options) && rows.differ > 0 &&
                (found == NULL || isnan(rows.cosine) ||
                        rows.cosine < worst->cosine)) {
            found = tensor;
            *worst = rows;
        }
    }
    return found;
}

static void
give(struct rps_compare_followed *followed,
        const struct rps_compared_tensor *tensor, const struct rows *rows)
{
    followed->tensor = tensor;
    followed->rows = rows->count;
    followed->rows_differ = rows->differ;
    followed->cosine = rows->cosine;
}

/* One step upstream; true: there is another one, from *tensor on. aligned: a
 * row of one side is that of the other. */
static bool
follow_one(const struct following *following, bool aligned,
        const struct rps_compared_tensor **tensor, uint64_t *element,
        struct rps_compare_followed *followed)
{
    const struct rps_dumped_operator *ops[2] = {NULL, NULL};
    const struct rps_compared *writer;
    bool same[2];
    const bool left = find_writer(
            following, 0, (*tensor)->left, *element, &ops[0], &same[0]);
    const bool right = find_writer(
            following, 1, (*tensor)->right, *element, &ops[1], &same[1]);
    struct rows inputs, outputs;
    const struct rps_compared_tensor *output, *input;

    if (!left && !right) {
        followed->end = RPS_FOLLOWED_OUTSIDE;
        return false;
    }
    if (!left || !right || !same[0] || !same[1]) {
        followed->end = RPS_FOLLOWED_LOST;
        return false;
    }
    writer = compared_of(following, 0, ops[0]);
    if (!aligned || writer == NULL ||
            writer != compared_of(following, 1, ops[1])) {
        followed->end = RPS_FOLLOWED_PARTED;
        return false;
    }
    followed->first = followed->writers++ == 0 ? writer : followed->first;
    followed->last = writer;
    output = worst_of(following, writer, true, &outputs);
    if (output == NULL) { /* its rows lie in another order there */
        followed->end = RPS_FOLLOWED_PARTED;
        return false;
    }
    give(followed, output, &outputs);
    input = worst_of(following, writer, false, &inputs);
    if (input == NULL) {
        followed->end = RPS_FOLLOWED_OPERATOR;
        return false;
    }
    give(followed, input, &inputs);
    *tensor = input;
    *element = inputs.at;
    return true;
}

void
rps_compare_follow(const struct rps_comparison *comparison,
        const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compared *reader,
        const struct rps_compared_tensor *tensor,
        const struct rps_compare_options *options,
        struct rps_compare_followed *followed)
{
    struct following following = {.comparison = comparison,
            .dumped = {left, right},
            .options = options};
    /* rows of other keys side by side say nothing of who wrote them */
    const bool aligned = !reader->has_keys || reader->tensors[0].equal_bytes;
    struct rows rows = {.at = 0};

    *followed = (struct rps_compare_followed){.end = RPS_FOLLOWED_LOST};
    if (tensor->left == NULL || tensor->right == NULL ||
            (aligned && (!judge(tensor, &rows, options) || rows.differ == 0))) {
        return;
    }
    if (rps_graph_make(left, &following.graphs[0], NULL) == RPS_OK &&
            rps_graph_make(right, &following.graphs[1], NULL) == RPS_OK) {
        uint64_t element = rows.at;

        for (uint32_t hop = 0;
                hop < HOPS_MAX &&
                follow_one(&following, aligned, &tensor, &element, followed);
                hop++) {
        }
    }
    rps_graph_free(following.graphs[0]);
    rps_graph_free(following.graphs[1]);
}
