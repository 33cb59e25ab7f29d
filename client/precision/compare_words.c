/* SPDX-License-Identifier: Apache-2.0 */
/* What each verdict says. */
#include "client/precision/compare_words.h"

#include "client/precision/compare_follow.h"
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

static bool
is_one_step(const struct rps_compare_words *words)
{
    return words->left->step == words->right->step;
}

/* "Step 6: " */
static void
add_step(const struct rps_compare_words *words)
{
    rps_text_add(words->text, "Step %" PRIu64, words->left->step);
    if (!is_one_step(words)) {
        rps_text_add(words->text,
                " of the left with step %" PRIu64 " of the right",
                words->right->step);
    }
    rps_text_add(words->text, ": ");
}

/* 'Step 6: linear "top.2/linear"' */
static void
add_first(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);

    add_step(words);
    rps_text_add(words->text, "%s \"%s\"", first->type, first->name);
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
    rps_compare_add_runs(words, left, right,
            &(const struct rps_compare_again){.unfused = true});
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
        add_step(words);
        rps_text_add(text,
                "the lookup of table \"%s\" is the first that differs: ",
                first->name);
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

static bool
is_alone(const struct rps_compared *compared)
{
    return compared != NULL &&
           (compared->left == NULL || compared->right == NULL);
}

/* One that the other side has not says the most; NULL: nobody wrote it. */
static const struct rps_compare_writer *
pick_writer(const struct rps_compare_words *words,
        const struct rps_compare_writer writers[2])
{
    for (int side = 0; side < 2; side++) {
        if (writers[side].op != NULL &&
                is_alone(compared_of(words->comparison, &writers[side]))) {
            return &writers[side];
        }
    }
    for (int side = 0; side < 2; side++) {
        if (writers[side].op != NULL) {
            return &writers[side];
        }
    }
    return NULL;
}

/* same: what was read is known to be what was written, on both sides. */
static void
say_written(const struct rps_compare_words *words,
        const struct rps_compare_writer *writer, bool same)
{
    const struct rps_compared *compared =
            compared_of(words->comparison, writer);
    struct rps_text *text = words->text;

    rps_text_add(text,
            writer->by_contents ? "On the %s it is what %s \"%s\" gave"
                                : "On the %s it was written by %s \"%s\"",
            writer->is_left ? "left" : "right", writer->op->type,
            writer->op->name);
    if (is_alone(compared)) {
        rps_text_add(text, ", which the other side has not.\n"
                           "Next, run both with the same options, or name its "
                           "counterpart (docs/PRECISION.md): --map FILE\n");
        return;
    }
    if (compared != NULL && !is_readable(compared)) {
        rps_text_add(text, ", whose output cannot be read on both sides: it "
                           "may be there already.\n");
    } else if (same) {
        rps_text_add(text, ", byte for byte: it differs there already.\n");
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

/* 'output 0 (y) of linear "top.2/linear": 5 of 64 rows differ, …' */
static void
add_rows(const struct rps_compare_words *words,
        const struct rps_compare_followed *followed)
{
    rps_compare_add_tensor(words->text, followed->tensor);
    rps_text_add(words->text,
            " of %s \"%s\": %" PRIu64 " of %" PRIu64
            " rows differ, the least cosine of one is ",
            followed->last->type, followed->last->name, followed->rows_differ,
            followed->rows);
    rps_compare_add_cosine(words->text, followed->cosine);
}

static void
say_began(
        const struct rps_compare_words *words, const struct rps_compared *last)
{
    const bool left = last->left->holds != NULL;
    const bool right = last->right->holds != NULL;

    rps_text_add(words->text, ", while its inputs agree. ");
    if (!left && !right) {
        rps_text_add(words->text, "The fault is in this operator.\n");
        rps_compare_add_look(words, "look at its numbers", last->name);
        return;
    }
    rps_text_add(words->text,
            "It is a fused operator: the fault is in one of its parts (%s), "
            "or in their fusion.\n"
            "Next, run again with --fusion off, and compare once more:\n",
            left ? last->left->holds : last->right->holds);
    rps_compare_add_runs(words, left, right,
            &(const struct rps_compare_again){.unfused = true});
}

/* What was read is what was written, and differs there already. */
static void
say_followed(const struct rps_compare_words *words,
        const struct rps_compare_followed *followed)
{
    rps_text_add(words->text,
            "On both sides it is what %s \"%s\" gave, byte for byte: its rows "
            "differ there already. Judged row by row, it %s ",
            followed->first->type, followed->first->name,
            followed->end == RPS_FOLLOWED_OPERATOR ? "began in"
                                                   : "goes back to");
    add_rows(words, followed);
    switch (followed->end) {
    case RPS_FOLLOWED_OPERATOR:
        say_began(words, followed->last);
        break;
    case RPS_FOLLOWED_OUTSIDE:
        rps_text_add(words->text, ". ");
        say_unwritten(words);
        break;
    case RPS_FOLLOWED_LOST:
        rps_text_add(words->text,
                ". That is not what was written before it: it was lost, "
                "overwritten, or read too early, between the two.\n");
        rps_compare_add_look(
                words, "look at its numbers", followed->last->name);
        break;
    case RPS_FOLLOWED_PARTED:
        rps_text_add(words->text,
                ". Who wrote that is not one operator on both sides.\n");
        rps_compare_add_look(
                words, "look at its numbers", followed->last->name);
        break;
    }
}

static void
say_inputs(const struct rps_compare_words *words)
{
    const struct rps_compared *first = first_of(words);
    const struct rps_compared_tensor *tensor = rps_compare_worst(first, false);
    struct rps_compare_writer writers[2];
    const struct rps_compare_writer *writer;
    struct rps_compare_followed followed;

    add_first(words);
    rps_text_add(words->text, " is the first that differs, and it differs in "
                              "what it reads: ");
    if (first->has_keys && first->keys_left + first->keys_right > 0) {
        rps_text_add(words->text,
                "%" PRIu64 " of its keys are on the left alone, %" PRIu64
                " on the right alone. The two sides were fed with other "
                "data%s",
                first->keys_left, first->keys_right,
                is_one_step(words) ? ".\n" : ": they are different steps.\n");
        rps_text_add(words->text, "%s",
                !is_one_step(words)
                        ? ""
                        : "Next, see that both read the same data in the same "
                          "order: "
                          "the same --seed, --data and --batch-size.\n");
        return;
    }
    rps_compare_add_figures(words, tensor);
    rps_text_add(words->text, ". ");
    if (first->has_keys && first->keys_differ > 0) {
        add_keys(words->text, first);
        rps_text_add(words->text, ". ");
    }
    rps_compare_trace(words->left, words->right, tensor, writers);
    writer = pick_writer(words, writers);
    rps_compare_follow(words->comparison, words->left, words->right, first,
            tensor, words->options, &followed);
    if (followed.writers > 0) {
        say_followed(words, &followed);
    } else if (writer != NULL) {
        say_written(words, writer, followed.end == RPS_FOLLOWED_PARTED);
    } else {
        say_unwritten(words);
    }
}

/* --- all agree ----------------------------------------------------------- */

static const struct rps_compared *
least_of(const struct rps_comparison *comparison)
{
    const struct rps_compared *least = NULL;

    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        if (compared->left != NULL && compared->right != NULL &&
                (least == NULL ||
                        compared->output_cosine < least->output_cosine)) {
            least = compared;
        }
    }
    return least;
}

/* The row that is the least alike, where a table is the first to have one: it
 * does not show in the cosine of all. */
static void
add_least_row(const struct rps_compare_words *words)
{
    const struct rps_comparison *comparison = words->comparison;
    const struct rps_compared_tensor *least = NULL;
    const struct rps_compared *of = NULL;

    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        for (uint32_t k = 0; k < compared->tensor_count; k++) {
            const struct rps_compared_tensor *tensor = &compared->tensors[k];

            if (tensor->has_rows && tensor->row_cosine < 1.0 &&
                    (least == NULL || tensor->row_cosine < least->row_cosine)) {
                least = tensor;
                of = compared;
            }
        }
    }
    if (least != NULL) {
        rps_text_add(words->text, ", of a row ");
        rps_compare_add_cosine(words->text, least->row_cosine);
        rps_text_add(words->text, ", of key %" PRIu64 " in %s \"%s\"",
                least->row_key, of->type, of->name);
    }
}

static void
say_same(const struct rps_compare_words *words)
{
    const struct rps_comparison *comparison = words->comparison;
    const struct rps_compared *least = least_of(comparison);

    add_step(words);
    rps_text_add(words->text, "%s",
            comparison->unread > 0 ? "all that could be read agrees"
                                   : "every operator agrees");
    if (comparison->equal_files == comparison->compared_files) {
        rps_text_add(words->text,
                ", and all %" PRIu32 " files that %s compared are the same.\n",
                comparison->compared_files,
                comparison->unread > 0 ? "could be" : "were");
        return;
    }
    rps_text_add(words->text,
            "; %" PRIu32 " of the %" PRIu32 " files that were compared are "
            "the same",
            comparison->equal_files, comparison->compared_files);
    if (least != NULL) {
        rps_text_add(words->text, ". The least cosine of an output is ");
        rps_compare_add_cosine(words->text, least->output_cosine);
        rps_text_add(words->text, ", of %s \"%s\"", least->type, least->name);
        add_least_row(words);
    }
    rps_text_add(words->text,
            ".\nA higher --threshold than %.15g finds what is smaller.\n",
            words->options->threshold);
}

static void
say_incomparable(const struct rps_compare_words *words)
{
    add_step(words);
    rps_text_add(words->text,
            "nothing could be compared: no operator is on "
            "both sides, or no file of it can be read.\n"
            "Next, name the operators that belong together in a file "
            "(docs/PRECISION.md): --map FILE\n");
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
    const struct rps_comparison *comparison = words->comparison;
    const uint32_t files = comparison->unread;
    uint32_t told = 0;

    if (files == 0) {
        return;
    }
    rps_text_add(words->text,
            files == 1 ? "%" PRIu32 " tensor is not compared, since its file "
                         "is damaged, missing or of another shape: "
                       : "%" PRIu32 " tensors are not compared, since their "
                         "files are damaged, missing or of another shape: ",
            files);
    for (uint32_t i = 0; i < comparison->operator_count; i++) {
        const struct rps_compared *compared = &comparison->operators[i];

        for (uint32_t k = 0; k < compared->tensor_count && told < ALONE_MAX;
                k++) {
            if (compared->tensors[k].damaged) {
                rps_text_add(words->text, "%s%s \"%s\" ",
                        told++ > 0 ? ", " : "", compared->type, compared->name);
                rps_compare_add_tensor(words->text, &compared->tensors[k]);
            }
        }
    }
    rps_text_add(words->text, "%s. A fault may be there.\n",
            files > told ? ", …" : "");
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
    rps_compare_words_run(words);
    if (!is_one_step(words)) {
        rps_text_add(words->text,
                "These are different steps, and have other data: step %" PRIu64
                " is all that the left has, step %" PRIu64
                " all that the right has. "
                "Dump the same ones of both (--dump-step).\n",
                words->left->step, words->right->step);
    }
}
