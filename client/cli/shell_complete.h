/* SPDX-License-Identifier: Apache-2.0 */
/* What the word that is being typed at the prompt may become. */
#ifndef RPS_CLIENT_CLI_SHELL_COMPLETE_H
#define RPS_CLIENT_CLI_SHELL_COMPLETE_H

#include "client/cli/tool.h"

#include <stddef.h>

struct rps_shell_completion {
    char **words; /* sorted, whole, not escaped */
    size_t count;
    size_t capacity;
    /* what all of them go on with, escaped, and the blank behind a word that is
     * the only one; "": nothing. NULL: no memory */
    char *more;
};

/**
 * For the first `length` bytes of a line: commands, their flags, names of
 * operators (of precision_data/npu/debug_0, or where the line says that they
 * lie), tables of comparisons, paths.
 *
 * Owns: rps_shell_completion_finish() releases it.
 */
void rps_shell_complete(const struct rps_tool *const *commands,
        const char *line, size_t length,
        struct rps_shell_completion *completion_out);
void rps_shell_completion_finish(struct rps_shell_completion *completion);

/** Words of the prompt itself, NULL-ended: "help", "exit", "quit". */
extern const char *const rps_shell_own_words[];

#endif /* RPS_CLIENT_CLI_SHELL_COMPLETE_H */
