/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which tensors meet. Of two operators: those of the same label, else of the
 * same index. A fused one's meet those of the parts on the other side that
 * come in from outside, or are left at the end; of several of one shape that
 * which is the most alike.
 */
#include "client/precision/compare_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct rps_dumped_tensor *
tensors_of(const struct rps_dumped_operator *op, bool is_output,
        uint32_t *count_out)
{
    *count_out = is_output ? op->output_count : op->input_count;
    return is_output ? op->outputs : op->inputs;
}

static bool
is_taken(const struct rps_compared *compared,
        const struct rps_dumped_tensor *right)
{
    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        if (compared->tensors[i].right == right) {
            return true;
        }
    }
    return false;
}

/* The one of this label that no other has met, the same index first; else of
 * this index, unless labels say otherwise. */
static const struct rps_dumped_tensor *
find_tensor(const struct rps_compared *compared,
        const struct rps_dumped_operator *op, bool is_output, const char *label,
        uint32_t index)
{
    uint32_t count;
    const struct rps_dumped_tensor *tensors = tensors_of(op, is_output, &count);
    const struct rps_dumped_tensor *labelled = NULL;

    for (uint32_t i = 0; i < count; i++) {
        const bool same_label = label == NULL || tensors[i].label == NULL ||
                                strcmp(label, tensors[i].label) == 0;

        if (!same_label || is_taken(compared, &tensors[i])) {
            continue;
        }
        if (tensors[i].index == index) {
            return &tensors[i];
        }
        if (label != NULL && tensors[i].label != NULL && labelled == NULL) {
            labelled = &tensors[i];
        }
    }
    return labelled;
}

static void
pair_side(struct rps_compared *compared, const struct rps_compare_match *match,
        bool is_output)
{
    uint32_t count;
    const struct rps_dumped_tensor *left =
            tensors_of(match->left[0], is_output, &count);

    for (uint32_t i = 0; i < count; i++) {
        struct rps_compared_tensor *tensor =
                &compared->tensors[compared->tensor_count];

        *tensor = (struct rps_compared_tensor){.is_output = is_output,
                .index = left[i].index,
                .left = &left[i]};
        tensor->right =
                match->mapped == NULL
                        ? find_tensor(compared, match->right[0], is_output,
                                  left[i].label, left[i].index)
                        : find_tensor(compared, match->right[0], is_output,
                                  NULL,
                                  rps_compare_map_index(match->mapped,
                                          is_output, left[i].index));
        if (tensor->right == NULL) {
            rps_compare_problem(tensor, match->mapped == NULL,
                    "%s: the right side has no such %s",
                    left[i].file != NULL ? left[i].file : "(no elements)",
                    is_output ? "output" : "input");
        }
        compared->tensor_count++;
    }
}

/* Those of the right that no left one has met. */
static void
pair_rest(struct rps_compared *compared, const struct rps_compare_match *match,
        bool is_output)
{
    uint32_t count;
    const struct rps_dumped_tensor *right =
            tensors_of(match->right[0], is_output, &count);

    for (uint32_t i = 0; i < count; i++) {
        struct rps_compared_tensor *tensor =
                &compared->tensors[compared->tensor_count];

        if (is_taken(compared, &right[i])) {
            continue;
        }
        *tensor = (struct rps_compared_tensor){.is_output = is_output,
                .index = right[i].index,
                .right = &right[i]};
        rps_compare_problem(tensor, match->mapped == NULL,
                "%s: the left side has no such %s",
                right[i].file != NULL ? right[i].file : "(no elements)",
                is_output ? "output" : "input");
        compared->tensor_count++;
    }
}

bool
rps_compare_pair(
        struct rps_compared *compared, const struct rps_compare_match *match)
{
    const struct rps_dumped_operator *left = match->left[0];
    const struct rps_dumped_operator *right = match->right[0];
    const size_t most = (size_t)left->input_count + left->output_count +
                        right->input_count + right->output_count;

    compared->tensors = calloc(most + 1, sizeof(*compared->tensors));
    if (compared->tensors == NULL) {
        return false;
    }
    pair_side(compared, match, false);
    pair_rest(compared, match, false);
    pair_side(compared, match, true);
    pair_rest(compared, match, true);
    return true;
}

/* --- groups -------------------------------------------------------------- */

/* A fused one and the parts of the other side. */
struct group {
    const struct rps_dumped_operator *fused;
    const struct rps_dumped_operator *const *parts;
    uint32_t part_count;
    bool fused_left;
};

static bool
writes(const struct rps_dumped_operator *op, uint64_t place)
{
    for (uint32_t i = 0; i < op->output_count; i++) {
        if (op->outputs[i].place == place) {
            return true;
        }
    }
    return false;
}

/* Between the parts alone: an input that an earlier one wrote, an output that
 * a later one writes over. */
static bool
is_inner(const struct group *group, uint32_t part,
        const struct rps_dumped_tensor *tensor, bool is_output)
{
    const uint32_t first = is_output ? part + 1 : 0;
    const uint32_t end = is_output ? group->part_count : part;

    for (uint32_t i = first; i < end && tensor->place != 0; i++) {
        if (writes(group->parts[i], tensor->place)) {
            return true;
        }
    }
    return false;
}

static bool
same_shape(const struct rps_dumped_tensor *a, const struct rps_dumped_tensor *b)
{
    return a->shape_known && b->shape_known && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof(a->shape[0])) == 0;
}

/* Is `tensor` the more alike? What cannot be read is the least. */
static bool
is_better(const struct rps_compared_tensor *tensor,
        const struct rps_compared_tensor *best)
{
    if (best->left == NULL || best->right == NULL ||
            best->readable != tensor->readable) {
        return best->left == NULL || best->right == NULL || tensor->readable;
    }
    return isnan(best->cosine) ? !isnan(tensor->cosine)
                               : tensor->cosine > best->cosine;
}

static void
try_tensor(const struct group *group, const struct rps_dumped_tensor *fused,
        const struct rps_dumped_tensor *part, struct rps_compared_tensor *best,
        const struct rps_compare_options *options)
{
    struct rps_compared_tensor tensor = {.is_output = best->is_output,
            .index = best->index,
            .left = group->fused_left ? fused : part,
            .right = group->fused_left ? part : fused};

    rps_compare_tensor(&tensor, false, options);
    if (is_better(&tensor, best)) {
        free(best->problem);
        *best = tensor;
    } else {
        free(tensor.problem);
    }
}

static void
find_best(const struct group *group, const struct rps_dumped_tensor *fused,
        struct rps_compared_tensor *best,
        const struct rps_compare_options *options)
{
    for (int labelled = 1; labelled >= 0; labelled--) {
        for (uint32_t p = 0; p < group->part_count; p++) {
            uint32_t count;
            const struct rps_dumped_tensor *tensors =
                    tensors_of(group->parts[p], best->is_output, &count);

            for (uint32_t i = 0; i < count; i++) {
                const bool same_label =
                        fused->label != NULL && tensors[i].label != NULL &&
                        strcmp(fused->label, tensors[i].label) == 0;

                if (same_label == (labelled == 1) &&
                        same_shape(fused, &tensors[i]) &&
                        !is_inner(group, p, &tensors[i], best->is_output)) {
                    try_tensor(group, fused, &tensors[i], best, options);
                }
            }
        }
        if (best->left != NULL && best->right != NULL) {
            return;
        }
    }
    rps_compare_problem(best, false,
            "it stands in none of the parts that the other side has");
    best->agrees = true;
    best->cosine = (double)NAN;
}

bool
rps_compare_group(struct rps_compared *compared,
        const struct rps_compare_match *match,
        const struct rps_compare_options *options)
{
    const bool fused_left = match->left_count == 1;
    const struct group group = {
            .fused = fused_left ? match->left[0] : match->right[0],
            .parts = fused_left ? match->right : match->left,
            .part_count = fused_left ? match->right_count : match->left_count,
            .fused_left = fused_left};

    compared->tensors = calloc(
            (size_t)group.fused->input_count + group.fused->output_count + 1,
            sizeof(*compared->tensors));
    if (compared->tensors == NULL) {
        return false;
    }
    for (int is_output = 0; is_output < 2; is_output++) {
        uint32_t count;
        const struct rps_dumped_tensor *fused =
                tensors_of(group.fused, is_output != 0, &count);

        for (uint32_t i = 0; i < count; i++) {
            struct rps_compared_tensor *tensor =
                    &compared->tensors[compared->tensor_count++];

            *tensor = (struct rps_compared_tensor){.is_output = is_output != 0,
                    .index = fused[i].index,
                    .left = fused_left ? &fused[i] : NULL,
                    .right = fused_left ? NULL : &fused[i]};
            find_best(&group, &fused[i], tensor, options);
        }
    }
    return true;
}
