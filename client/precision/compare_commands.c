/* SPDX-License-Identifier: Apache-2.0 */
/* What to type next. */
#include "client/precision/compare_words.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void
rps_compare_words_quote(struct rps_text *text, const char *word)
{
    static const char plain[] =
            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
            "_-+=./:,@%";

    if (word[0] != '\0' && word[strspn(word, plain)] == '\0') {
        rps_text_add(text, "%s", word);
        return;
    }
    rps_text_add(text, "'");
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            rps_text_add(text, "'\\''");
        } else {
            rps_text_add_bytes(text, word, 1);
        }
    }
    rps_text_add(text, "'");
}

/* "Next: WHY: recps precision compare LEFT RIGHT --operator NAME" */
void
rps_compare_add_look(const struct rps_compare_words *words, const char *why,
        const char *name)
{
    struct rps_text *text = words->text;

    rps_text_add(text, "Next, %s: recps precision compare ", why);
    rps_compare_words_quote(text, words->left->folder);
    rps_text_add(text, " ");
    rps_compare_words_quote(text, words->right->folder);
    if (words->options->mapping != NULL) {
        rps_text_add(text, " --map ");
        rps_compare_words_quote(text, words->options->mapping);
    }
    rps_text_add(text, " --operator ");
    rps_compare_words_quote(text, name);
    rps_text_add(text, "\n");
}

void
rps_compare_add_nan(const struct rps_compare_words *words,
        const struct rps_compared_tensor *tensor)
{
    const bool left = tensor->left_nan + tensor->left_inf > 0;
    const bool right = tensor->right_nan + tensor->right_inf > 0;

    if (tensor->readable && left != right) {
        rps_text_add(words->text,
                "Next, follow what is not finite to its source: recps "
                "precision nan ");
        rps_compare_words_quote(
                words->text, left ? words->left->folder : words->right->folder);
        rps_text_add(words->text, "\n");
    }
}

/* Rows and variables are made by the steps before; `begun`: what to look at
 * where there is none. */
void
rps_compare_add_before(const struct rps_compare_words *words, const char *begun)
{
    const uint64_t step = words->left->step;
    char *steps;

    if (step == 0) {
        rps_text_add(words->text, "%s", begun);
        return;
    }
    rps_text_add(words->text, "Next, dump the steps before, too, whose pushes "
                              "made what is read here:\n");
    steps = rps_format("0-%" PRIu64, step);
    words->text->failed = words->text->failed || steps == NULL;
    rps_compare_add_runs(words, true, true,
            &(const struct rps_compare_again){.steps = steps});
    free(steps);
}
