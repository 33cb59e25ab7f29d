/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sorts a subcommand's arguments, in whatever order they come: its own
 * flags, its operands, what follows "--", and the rest, which are options.
 */
#ifndef RPS_CLIENT_CLI_ARGS_H
#define RPS_CLIENT_CLI_ARGS_H

#include "client/cli/tool.h"

/**
 * argv[0] is the program's name. What are options stays in argv (in order,
 * NULL-ended, *argc adjusted), the rest goes to `call` and `flags`. false:
 * what is wrong has been said.
 */
bool rps_args_sort(const struct rps_tool *tool, int *argc, char **argv,
        struct rps_tool_call *call);

/** Does this option ("--num-ps") take its value from the next argument? */
bool rps_args_takes_value(const char *argument);

#endif /* RPS_CLIENT_CLI_ARGS_H */
