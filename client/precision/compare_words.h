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

/** Add what differs in how the two were run, as their manifests say; nothing
 * where that is nothing. */
void rps_compare_words_run(const struct rps_compare_words *words);

/** A word of a command: in quotes where the shell needs them. */
void rps_compare_words_quote(struct rps_text *text, const char *word);

#endif /* RPS_PRECISION_COMPARE_WORDS_H */
