/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/shell_words.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

static const char blanks[] = " \t\r\n";

static bool
is_blank(char c)
{
    return c != '\0' && strchr(blanks, c) != NULL;
}

/* The word that begins at `at`, without its quotes. Returns where it ends. */
static size_t
take_word(const char *line, size_t length, size_t at, struct rps_text *word,
        bool *unquoted)
{
    char quote = '\0';

    for (; at < length && (quote != '\0' || !is_blank(line[at])); at++) {
        const char c = line[at];

        if (quote == '\0' && (c == '\'' || c == '"')) {
            quote = c;
        } else if (quote != '\0' && c == quote) {
            quote = '\0';
        } else if (c == '\\' && quote != '\'' && at + 1 < length) {
            rps_text_add_bytes(word, &line[++at], 1);
        } else if (c == '\\' && quote != '\'') {
            *unquoted = true;
        } else {
            rps_text_add_bytes(word, &c, 1);
        }
    }
    *unquoted = *unquoted || quote != '\0';
    return at;
}

/* Takes its bytes. */
static bool
add_word(struct rps_shell_words *words, struct rps_text *word)
{
    /* nothing was added to an empty one */
    char *text = word->bytes != NULL ? word->bytes : strdup("");
    char **grown = NULL;

    if (text != NULL && !word->failed && words->count < RPS_SHELL_WORDS_MAX) {
        grown = realloc(
                words->words, (words->count + 2) * sizeof(*words->words));
    }
    if (grown == NULL) {
        free(text);
        words->failed = true;
        return false;
    }
    words->words = grown;
    words->words[words->count++] = text;
    words->words[words->count] = NULL;
    return true;
}

void
rps_shell_words_split(
        const char *line, size_t length, struct rps_shell_words *words_out)
{
    size_t at = 0;

    *words_out = (struct rps_shell_words){.words = NULL};
    while (!words_out->failed) {
        struct rps_text word = {.bytes = NULL};

        while (at < length && is_blank(line[at])) {
            at++;
        }
        if (at == length || line[at] == '#') {
            return;
        }
        at = take_word(line, length, at, &word, &words_out->unquoted);
        words_out->is_open = at == length;
        (void)add_word(words_out, &word);
    }
}

void
rps_shell_words_finish(struct rps_shell_words *words)
{
    for (size_t i = 0; i < words->count; i++) {
        free(words->words[i]);
    }
    free(words->words);
    *words = (struct rps_shell_words){.words = NULL};
}

size_t
rps_shell_words_prefix(const struct rps_shell_words *words)
{
    return words->count >= 2 && strcmp(words->words[0], "recps") == 0 &&
                           strcmp(words->words[1], "precision") == 0
                   ? 2
                   : 0;
}

char *
rps_shell_words_escape(const char *word)
{
    struct rps_text text = {.bytes = NULL};

    rps_text_add(&text, "%s", "");
    for (const char *at = word; *at != '\0'; at++) {
        if (is_blank(*at) || strchr("'\"\\", *at) != NULL ||
                (*at == '#' && at == word)) {
            rps_text_add_bytes(&text, "\\", 1);
        }
        rps_text_add_bytes(&text, at, 1);
    }
    if (text.failed) {
        rps_text_finish(&text);
    }
    return text.bytes;
}
