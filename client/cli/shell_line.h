/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lines of a prompt. At a terminal, where libedit is in the build, with
 * editing, history and completion; else as they come.
 *
 * Threads: one.
 */
#ifndef RPS_CLIENT_CLI_SHELL_LINE_H
#define RPS_CLIENT_CLI_SHELL_LINE_H

#include "client/cli/tool.h"

struct rps_shell_line;

/** commands: what completion knows. NULL: no memory. */
struct rps_shell_line *rps_shell_line_create(
        const char *prompt, const struct rps_tool *const *commands);
/** NULL is allowed. */
void rps_shell_line_destroy(struct rps_shell_line *line);

/** Is it a terminal? Then it has a prompt. */
bool rps_shell_line_is_terminal(const struct rps_shell_line *line);
/** Has it history and completion? */
bool rps_shell_line_is_edited(const struct rps_shell_line *line);

/** The next one, borrowed until the next call. NULL: no more comes, Ctrl+C or
 * Ctrl+D. */
const char *rps_shell_line_read(struct rps_shell_line *line);

#endif /* RPS_CLIENT_CLI_SHELL_LINE_H */
