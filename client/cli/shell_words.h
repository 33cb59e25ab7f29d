/* SPDX-License-Identifier: Apache-2.0 */
/* A line that is typed at the prompt, as words: 'a b', "a b" and a\ b are one,
 * and a # at the beginning of a word ends the line. */
#ifndef RPS_CLIENT_CLI_SHELL_WORDS_H
#define RPS_CLIENT_CLI_SHELL_WORDS_H

#include <stdbool.h>
#include <stddef.h>

#define RPS_SHELL_WORDS_MAX 1024u

struct rps_shell_words {
    char **words; /* NULL-ended */
    size_t count;
    bool is_open;  /* the line ends in the last word, or in no word's quotes */
    bool unquoted; /* a quote or a backslash has no end */
    bool failed;   /* no memory, or more words than the most */
};

/** The first `length` bytes of a line. Owns: rps_shell_words_finish() releases
 * them. */
void rps_shell_words_split(
        const char *line, size_t length, struct rps_shell_words *words_out);
void rps_shell_words_finish(struct rps_shell_words *words);

/** How many words come before the command: the two of "recps precision", which
 * a line that was pasted has. */
size_t rps_shell_words_prefix(const struct rps_shell_words *words);

/** A word as it would be typed. free(); NULL: no memory. */
char *rps_shell_words_escape(const char *word);

#endif /* RPS_CLIENT_CLI_SHELL_WORDS_H */
