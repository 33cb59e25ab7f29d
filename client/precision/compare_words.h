/* SPDX-License-Identifier: Apache-2.0 */
/* A verdict in sentences: who, by what figures, and the command to type next.
 */
#ifndef RPS_PRECISION_COMPARE_WORDS_H
#define RPS_PRECISION_COMPARE_WORDS_H

#include "base/text.h"
#include "client/precision/compare.h"

struct rps_compare_words {
    struct rps_text *text;
    const struct rps_comparison *comparison; /* verdict and first are given */
    const struct rps_dumped *left, *right;
    const struct rps_compare_options *options;
};

/** Add them to words->text. */
void rps_compare_words(const struct rps_compare_words *words);

/* --- figures (compare_figures.c) ------------------------------------------ */

/** Add what differs in how the two were run, as their manifests say; nothing
 * where that is nothing. */
void rps_compare_words_run(const struct rps_compare_words *words);

/** The worst input or output that does not agree; NULL: all do. */
const struct rps_compared_tensor *rps_compare_worst(
        const struct rps_compared *compared, bool is_output);

/** Of a cosine that is nearly 1 how far it is away: "1 - 2.4e-15". */
void rps_compare_add_cosine(struct rps_text *text, double cosine);

/** "output 0 (y)" */
void rps_compare_add_tensor(
        struct rps_text *text, const struct rps_compared_tensor *tensor);

/** Add which one it is, and why it does not agree. */
void rps_compare_add_figures(const struct rps_compare_words *words,
        const struct rps_compared_tensor *tensor);

/* --- commands (compare_commands.c) ---------------------------------------- */

/** A word of a command: in quotes where the shell needs them. */
void rps_compare_words_quote(struct rps_text *text, const char *word);

/** "Next, WHY: recps precision compare LEFT RIGHT --operator NAME" */
void rps_compare_add_look(const struct rps_compare_words *words,
        const char *why, const char *name);

/** Where one side alone is not finite: what follows that. */
void rps_compare_add_nan(const struct rps_compare_words *words,
        const struct rps_compared_tensor *tensor);

/* How a run is to be dumped once more. */
struct rps_compare_again {
    bool unfused;      /* with --fusion off */
    const char *steps; /* of --dump-step; NULL: as it was */
};

/** The commands of the two runs, or of one, and of the comparison after them
 * (compare_runs.c). */
void rps_compare_add_runs(const struct rps_compare_words *words, bool left,
        bool right, const struct rps_compare_again *again);

/** To dump the steps before, too; `begun`: what to look at where there is none.
 */
void rps_compare_add_before(
        const struct rps_compare_words *words, const char *begun);

#endif /* RPS_PRECISION_COMPARE_WORDS_H */
