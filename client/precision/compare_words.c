/* SPDX-License-Identifier: Apache-2.0 */
/* What each verdict says. */
#include "client/precision/compare_words.h"

#include "client/precision/compare_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ALONE_MAX 5u /* names that are told */

static const struct rps_compared *
first_of(const struct rps_compare_words *words)
{
    return &words->comparison->operators[words->comparison->first];
}

/* 'Step 6: linear "top.2/linear"' */
static void
add_first(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);

    rps_text_add(words->text, "Step %" PRIu64 ": %s \"%s\"", words->left->step,
            first->type, first->name);
}

/* --- verdicts ------------------------------------------------------------ */

static void
add_output_differs(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);

    add_first(words);
    rps_text_add(words->text, " is the first whose output differs: ");
    rps_compare_add_figures(words, rps_compare_worst(first, true));
    rps_text_add(
            words->text, ", while its inputs agree (their least cosine is ");
    rps_compare_add_cosine(words->text, first->input_cosine);
    rps_text_add(words->text, "). ");
}

static void
say_operator(const struct rps_compare_words *words)
{
    add_output_differs(words);
    rps_text_add(words->text, "The fault is in this operator.\n");
    rps_compare_add_look(words, "look at its numbers", first_of(words)->name);
}

static void
say_fused(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);
    const bool left = first->left->holds != NULL && first->left_count == 1;
    const bool right = first->right->holds != NULL && first->right_count == 1;

    add_output_differs(words);
    rps_text_add(words->text,
            "It is a fused operator: the fault is in one of its parts (%s), "
            "or in their fusion.\n"
            "Next, run again with --fusion off, and compare once more:\n",
            left ? first->left->holds : first->right->holds);
    rps_compare_add_runs(words, left, right, "--fusion off");
}

/* "3 keys' rows differ: 5, 9, 77" */
static void
add_keys(struct rps_text *text, const struct rps_compared *compared)
{
    rps_text_add(text,
            compared->keys_differ == 1 ? "%" PRIu64 " key's row differs: "
                                       : "%" PRIu64 " keys' rows differ: ",
            compared->keys_differ);
    for (uint64_t i = 0; i < compared->keys_differ && i < RPS_COMPARE_KEYS_MAX;
            i++) {
        rps_text_add(text, "%s%" PRIu64, i > 0 ? ", " : "", compared->keys[i]);
    }
    if (compared->keys_differ > RPS_COMPARE_KEYS_MAX) {
        rps_text_add(text, ", …");
    }
}

static void
add_rows_to_look_at(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);

    rps_text_add(words->text, "Look at these rows in both jobs' servers, or in "
                              "their checkpoints: recps lookup ");
    rps_compare_words_quote(words->text, first->name);
    for (uint64_t i = 0; i < first->keys_differ && i < RPS_COMPARE_KEYS_MAX;
            i++) {
        rps_text_add(words->text, " %" PRIu64, first->keys[i]);
    }
    rps_text_add(words->text, " --ps-hosts HOST:PORT,…\n");
}

static void
say_lookup(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);
    struct rps_text *text = words->text;

    if (first->has_keys) {
        rps_text_add(text,
                "Step %" PRIu64 ": the lookup of table \"%s\" is the first "
                "that differs: ",
                words->left->step, first->name);
        add_keys(text, first);
    } else {
        add_first(words);
        rps_text_add(text, " is the first that differs, as it came from the "
                           "servers: ");
        rps_compare_add_figures(words, rps_compare_worst(first, true));
    }
    rps_text_add(text, ". The fault is in the table lookup, or in what was "
                       "pushed before this step.\n");
    if (first->has_keys) {
        add_rows_to_look_at(words);
    }
    rps_compare_add_before(words,
            "Next, see that both began alike: the same --seed, the "
            "same --init-from or checkpoint.\n");
}

/* --- inputs that differ --------------------------------------------------- */

/* What the comparison says of an operator of one side; NULL: it is a part of
 * a group. */
static const struct rps_compared *
compared_of(const struct rps_comparison *comparison,
        const struct rps_compare_writer *writer)
{
    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        if ((writer->is_left ? compared->left : compared->right) ==
                writer->op) {
            return compared;
        }
    }
    return NULL;
}

static bool
is_readable(const struct rps_compared *compared)
{
    for (uint32_t i = 0; i < compared->tensor_count; i++) {
        if (compared->tensors[i].is_output && !compared->tensors[i].readable) {
            return false;
        }
    }
    return true;
}

static void
say_written(const struct rps_compare_words *words,
        const struct rps_compare_writer *writer)
{
    const struct rps_compared *compared =
            compared_of(words->comparison, writer);
    struct rps_text *text = words->text;

    rps_text_add(text,
            writer->by_contents ? "On the %s it is what %s \"%s\" gave"
                                : "On the %s it was written by %s \"%s\"",
            writer->is_left ? "left" : "right", writer->op->type,
            writer->op->name);
    if (compared != NULL &&
            (compared->left == NULL || compared->right == NULL)) {
        rps_text_add(text, ", which the other side has not: go on there.\n");
    } else if (compared != NULL && !is_readable(compared)) {
        rps_text_add(text, ", whose output cannot be read on both sides: it "
                           "may be there already.\n");
    } else {
        rps_text_add(text, ", whose output agrees on both sides: it was "
                           "lost, overwritten, or read too early, between "
                           "the two.\n");
    }
    rps_compare_add_look(words, "look at who wrote it", writer->op->name);
}

static void
say_unwritten(const struct rps_compare_words *words)
{
    rps_text_add(words->text,
            "No operator of this step wrote it: it came from the host, or "
            "from a step before.\n");
    rps_compare_add_before(words,
            "Next, see that both began alike: the same --seed, the "
            "same data in the same order, the same --init-from or "
            "checkpoint.\n");
}

static void
say_inputs(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);
    const struct rps_compared_tensor *tensor = rps_compare_worst(first, false);
    struct rps_compare_writer writer;

    add_first(words);
    rps_text_add(words->text, " is the first that differs, and it differs in "
                              "what it reads: ");
    if (first->has_keys && first->keys_left + first->keys_right > 0) {
        rps_text_add(words->text,
                "%" PRIu64 " of its keys are on the left alone, %" PRIu64
                " on the right alone. The two sides were fed with other "
                "data.\n"
                "Next, see that both read the same data in the same order: "
                "the same --seed, --data and --batch-size.\n",
                first->keys_left, first->keys_right);
        return;
    }
    rps_compare_add_figures(words, tensor);
    rps_text_add(words->text, ". ");
    if (first->has_keys && first->keys_differ > 0) {
        add_keys(words->text, first);
        rps_text_add(words->text, ". ");
    }
    writer = rps_compare_trace(words->left, words->right, tensor);
    if (writer.op != NULL) {
        say_written(words, &writer);
    } else {
        say_unwritten(words);
    }
}

/* --- all agree ----------------------------------------------------------- */

static void
say_same(const struct rps_compare_words *words)
{
    const struct rps_comparison *comparison = words->comparison;
    const struct rps_compared *least = NULL;

    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        if (compared->left != NULL && compared->right != NULL &&
                (least == NULL ||
                        compared->output_cosine < least->output_cosine)) {
            least = compared;
        }
    }
    rps_text_add(words->text, "Step %" PRIu64 ": every operator agrees",
            words->left->step);
    if (comparison->equal_files == comparison->compared_files) {
        rps_text_add(words->text, ", and all %" PRIu32 " files are the same.\n",
                comparison->compared_files);
        return;
    }
    rps_text_add(words->text, "; %" PRIu32 " of %" PRIu32 " files are the same",
            comparison->equal_files, comparison->compared_files);
    if (least != NULL) {
        rps_text_add(words->text, ". The least cosine of an output is ");
        rps_compare_add_cosine(words->text, least->output_cosine);
        rps_text_add(words->text, ", of %s \"%s\"", least->type, least->name);
    }
    rps_text_add(words->text, ".\n");
}

static void
say_incomparable(const struct rps_compare_words *words)
{
    rps_text_add(words->text,
            "Step %" PRIu64 ": nothing could be compared: no operator is on "
            "both sides, or no file of it can be read.\n"
            "Next, name the operators that belong together in a file "
            "(docs/PRECISION.md): --map FILE\n",
            words->left->step);
}

static void
add_alone(const struct rps_compare_words *words, bool left)
{
    const struct rps_comparison *comparison = words->comparison;
    const uint32_t count =
            left ? comparison->only_left : comparison->only_right;
    uint32_t told = 0;

    if (count == 0) {
        return;
    }
    rps_text_add(words->text,
            count == 1 ? "%" PRIu32 " operator is on the %s alone: "
                       : "%" PRIu32 " operators are on the %s alone: ",
            count, left ? "left" : "right");
    for (uint32_t i = 0; i < comparison->operator_count && told < ALONE_MAX;
            i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        if ((left ? compared->right : compared->left) == NULL) {
            rps_text_add(words->text, "%s%s \"%s\"", told > 0 ? ", " : "",
                    compared->type, compared->name);
            told++;
        }
    }
    rps_text_add(words->text, "%s.\n", count > told ? ", …" : "");
}

/* Where the first one has NaN or Inf on one side alone. */
static void
add_nan(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);
    const struct rps_compared_tensor *worst =
            rps_compare_worst(first, first->inputs_agree);

    if (worst != NULL) {
        rps_compare_add_nan(words, worst);
    }
}

/* Tensors that are not compared; the folders' own problems hide nothing. */
static void
add_damaged(const struct rps_compare_words *words)
{
    const uint32_t files = words->comparison->problems -
                           words->left->problem_count -
                           words->right->problem_count;

    if (files > 0) {
        rps_text_add(words->text,
                "%" PRIu32 " files are damaged, missing or of another shape, "
                "and are not compared: an earlier fault may be in them.\n",
                files);
    }
}

void
rps_compare_words(const struct rps_compare_words *words)
{
    switch (words->comparison->verdict) {
    case RPS_VERDICT_SAME:
        say_same(words);
        break;
    case RPS_VERDICT_OPERATOR:
        say_operator(words);
        break;
    case RPS_VERDICT_FUSED:
        say_fused(words);
        break;
    case RPS_VERDICT_LOOKUP:
        say_lookup(words);
        break;
    case RPS_VERDICT_INPUTS:
        say_inputs(words);
        break;
    case RPS_VERDICT_INCOMPARABLE:
        say_incomparable(words);
        break;
    }
    if (words->comparison->verdict != RPS_VERDICT_SAME &&
            words->comparison->verdict != RPS_VERDICT_INCOMPARABLE) {
        add_nan(words);
    }
    add_alone(words, true);
    add_alone(words, false);
    add_damaged(words);
    if (words->comparison->verdict != RPS_VERDICT_SAME) {
        rps_compare_words_run(words);
    }
}
