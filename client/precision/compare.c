/* SPDX-License-Identifier: Apache-2.0 */
/* Two steps: operators that meet, their figures, and how many there are. */
#include "client/precision/compare.h"

#include "client/precision/compare_impl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const verdict_names[] = {
        [RPS_VERDICT_SAME] = "same",
        [RPS_VERDICT_OPERATOR] = "operator",
        [RPS_VERDICT_FUSED] = "fused",
        [RPS_VERDICT_LOOKUP] = "lookup",
        [RPS_VERDICT_INPUTS] = "inputs",
        [RPS_VERDICT_INCOMPARABLE] = "incomparable",
};

const char *
rps_compare_verdict_name(enum rps_compare_verdict verdict)
{
    return verdict_names[verdict];
}

/* The least; NaN is less than all. */
static void
take_least(double *least, double cosine)
{
    if (isnan(cosine) || cosine < *least) {
        *least = cosine;
    }
}

static void
sum_up(struct rps_compared *compared, struct rps_comparison *comparison)
{
    compared->input_cosine = compared->output_cosine = 1.0;
    compared->inputs_agree = compared->outputs_agree = true;
    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        const struct rps_compared_tensor *tensor = &compared->tensors[i];
        double *least = tensor->is_output ? &compared->output_cosine
                                          : &compared->input_cosine;

        if (tensor->readable && !isnan(*least)) {
            take_least(least, tensor->cosine);
        }
        comparison->compared_files += tensor->readable ? 1 : 0;
        comparison->equal_files += tensor->equal_bytes ? 1 : 0;
        if (tensor->damaged) {
            comparison->problems++;
            comparison->unread++;
            (*(tensor->is_output ? &compared->unread_outputs
                                 : &compared->unread_inputs))++;
        }
        if (!tensor->agrees) {
            *(tensor->is_output ? &compared->outputs_agree
                                : &compared->inputs_agree) = false;
        }
    }
}

static bool
compare_match(struct rps_compared *compared,
        const struct rps_compare_match *match,
        const struct rps_compare_options *options)
{
    if (match->left_count == 0 || match->right_count == 0) {
        return true;
    }
    if (match->left_count + match->right_count > 2) {
        return rps_compare_group(compared, match, options);
    }
    if (!rps_compare_pair(compared, match)) {
        return false;
    }
    if (rps_compare_has_keys(compared)) {
        rps_compare_rows(compared, options);
        return true;
    }
    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        rps_compare_tensor(
                &compared->tensors[i], match->mapped != NULL, options);
    }
    return true;
}

/* "a + b"; NULL: no memory. */
static char *
names_of(const struct rps_dumped_operator *const *list, uint32_t count)
{
    struct rps_text names = {.bytes = NULL};

    rps_text_add_bytes(&names, "", 0);
    for (uint32_t i = 0; i < count; i++) {
        rps_text_add(&names, "%s%s", i > 0 ? " + " : "", list[i]->name);
    }
    if (names.failed) {
        rps_text_finish(&names);
        return NULL;
    }
    return names.bytes != NULL ? names.bytes : strdup("");
}

/* As it is called: the fused one's name where parts stand on the other side.
 * false: no memory. */
static bool
begin(struct rps_compared *compared, const struct rps_compare_match *match)
{
    const struct rps_dumped_operator *names;

    *compared = (struct rps_compared){.left_count = match->left_count,
            .right_count = match->right_count,
            .left_names = names_of(match->left, match->left_count),
            .right_names = names_of(match->right, match->right_count)};
    if (match->left_count > 0) {
        compared->left = match->left[match->left_count - 1];
    }
    if (match->right_count > 0) {
        compared->right = match->right[match->right_count - 1];
    }
    names = match->left_count == 1 || match->right_count == 0 ? compared->left
                                                              : compared->right;
    compared->type = names->type;
    compared->name = names->name;
    return compared->left_names != NULL && compared->right_names != NULL;
}

static rps_status
fill(struct rps_comparison *comparison,
        const struct rps_compare_matches *matches,
        const struct rps_compare_options *options, struct rps_error *error)
{
    comparison->operators =
            calloc((size_t)matches->count + 1, sizeof(*comparison->operators));
    if (comparison->operators == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory to compare");
    }
    for (uint32_t i = 0; i < matches->count; i++) {
        const struct rps_compare_match *match = &matches->list[i];
        struct rps_compared *compared = &comparison->operators[i];

        comparison->operator_count++;
        if (!begin(compared, match) ||
                !compare_match(compared, match, options)) {
            return rps_fail(error, RPS_E_NOMEM, "no memory to compare");
        }
        sum_up(compared, comparison);
        comparison->only_left += match->right_count == 0 ? 1 : 0;
        comparison->only_right += match->left_count == 0 ? 1 : 0;
    }
    return RPS_OK;
}

rps_status
rps_compare(const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compare_options *options,
        struct rps_comparison **comparison_out, struct rps_error *error)
{
    struct rps_comparison *comparison = calloc(1, sizeof(*comparison));
    struct rps_compare_map map = {.json = NULL};
    struct rps_compare_matches matches = {.list = NULL};
    rps_status status = RPS_OK;

    *comparison_out = NULL;
    if (comparison == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory to compare");
    }
    comparison->threshold = options->threshold;
    comparison->mapped = options->mapping != NULL;
    comparison->problems = left->problem_count + right->problem_count;
    if (options->mapping != NULL) {
        status = rps_compare_map_load(&map, options->mapping, error);
    }
    if (status == RPS_OK) {
        status = rps_compare_match(left, right,
                options->mapping != NULL ? &map : NULL, &matches, error);
    }
    if (status == RPS_OK) {
        status = fill(comparison, &matches, options, error);
    }
    if (status == RPS_OK) {
        status = rps_compare_judge(comparison, left, right, options, error);
    }
    rps_compare_matches_finish(&matches);
    rps_compare_map_finish(&map);
    if (status != RPS_OK) {
        rps_comparison_free(comparison);
        return status;
    }
    *comparison_out = comparison;
    return RPS_OK;
}

void
rps_comparison_free(struct rps_comparison *comparison)
{
    if (comparison == NULL) {
        return;
    }
    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        struct rps_compared *compared = &comparison->operators[i];

        for (uint32_t k = 0; k < compared->tensor_count; k++) {
            free(compared->tensors[k].problem);
        }
        free(compared->tensors);
        free(compared->left_names);
        free(compared->right_names);
    }
    free(comparison->operators);
    free(comparison->words);
    free(comparison);
}
