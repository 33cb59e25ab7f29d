/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose fault it is. Operators are walked through in order of execution: the
 * first whose inputs or outputs do not agree decides, for all before it do.
 */
#include "client/precision/compare_impl.h"
#include "client/precision/compare_words.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Of a table's rows, or of a dense variable: both come from the servers. */
static bool
is_lookup(const struct rps_compared *compared)
{
    static const char *const types[] = {"lookup", "variables"};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(compared->left->type, types[i]) == 0 ||
                strcmp(compared->right->type, types[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool
is_fused(const struct rps_compared *compared)
{
    return compared->left->holds != NULL || compared->right->holds != NULL ||
           compared->left_count + compared->right_count > 2;
}

static enum rps_compare_verdict
verdict_of(const struct rps_compared *compared)
{
    if (!compared->inputs_agree) {
        return RPS_VERDICT_INPUTS;
    }
    if (is_lookup(compared)) {
        return RPS_VERDICT_LOOKUP;
    }
    return is_fused(compared) ? RPS_VERDICT_FUSED : RPS_VERDICT_OPERATOR;
}

rps_status
rps_compare_judge(struct rps_comparison *comparison,
        const struct rps_dumped *left, const struct rps_dumped *right,
        const struct rps_compare_options *options, struct rps_error *error)
{
    struct rps_text text = {.bytes = NULL};
    struct rps_compare_words words = {.text = &text,
            .comparison = comparison,
            .left = left,
            .right = right,
            .options = options};
    bool met = false;

    comparison->verdict = RPS_VERDICT_SAME;
    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        met = met || (compared->left != NULL && compared->right != NULL);
        if (!compared->inputs_agree || !compared->outputs_agree) {
            comparison->verdict = verdict_of(compared);
            comparison->first = i;
            break;
        }
    }
    if (comparison->verdict == RPS_VERDICT_SAME &&
            (!met || comparison->compared_files == 0)) {
        comparison->verdict = RPS_VERDICT_INCOMPARABLE;
    }
    rps_compare_words(&words);
    if (text.failed || text.bytes == NULL) {
        rps_text_finish(&text);
        return rps_fail(error, RPS_E_NOMEM, "no memory for words");
    }
    comparison->words = text.bytes;
    return RPS_OK;
}
