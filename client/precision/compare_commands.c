/* SPDX-License-Identifier: Apache-2.0 */
/* What to type next. */
#include "client/precision/compare_words.h"
#include "client/precision/read_impl.h"

#include <inttypes.h>
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

static void
add_word(struct rps_text *text, const char *word)
{
    rps_compare_words_quote(
            text, word != NULL && rps_dumped_is_plain(word) ? word : "?");
}

/* The command of a run, with more behind it. */
static void
add_run(struct rps_text *text, const struct rps_dumped *dumped,
        const char *more)
{
    const json_t *command = json_object_get(dumped->run, "command");
    const char *line = json_string_value(command);
    size_t index;
    json_t *word;

    if (json_is_array(command)) {
        json_array_foreach(command, index, word)
        {
            add_word(text, json_string_value(word));
            rps_text_add(text, " ");
        }
    } else {
        rps_text_add(text, "%s ",
                line != NULL && line[0] != '\0' && rps_dumped_is_plain(line)
                        ? line
                        : "recps-train … --dump");
    }
    /* the dump that is compared here stays, as debug_1 */
    rps_text_add(text, "%s --rotate\n", more);
}

void
rps_compare_add_runs(const struct rps_compare_words *words, bool left,
        bool right, const char *more)
{
    if (left) {
        rps_text_add(words->text, "  left:  ");
        add_run(words->text, words->left, more);
    }
    if (right) {
        rps_text_add(words->text, "  right: ");
        add_run(words->text, words->right, more);
    }
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
    struct rps_text more = {.bytes = NULL};

    if (step == 0) {
        rps_text_add(words->text, "%s", begun);
        return;
    }
    rps_text_add(words->text, "Next, dump the steps before, too, whose pushes "
                              "made what is read here:\n");
    rps_text_add(&more, "--dump-step '0-%" PRIu64 "'", step);
    rps_compare_add_runs(
            words, true, true, more.bytes != NULL ? more.bytes : "");
    rps_text_finish(&more);
}
