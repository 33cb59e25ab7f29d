/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a table from the command line, or from a file of any length. */
#ifndef RPS_CLIENT_CLI_KEYS_H
#define RPS_CLIENT_CLI_KEYS_H

#include "client/cli/tool.h"

/** The first flag of a subcommand that takes keys. */
#define RPS_KEYS_FLAG                                                   \
    {                                                                   \
        .name = "file", .argument = "FILE",                             \
        .help = "take the keys from this file, separated by blanks or " \
                "line ends; - is the standard input"                    \
    }

/** Zeroed it is empty. */
struct rps_keys {
    uint64_t *list; /* owned */
    size_t count;
    size_t room;
};

/**
 * The operands behind the table, or what --file (flags[0]) names. Returns an
 * exit code; what is wrong has been said.
 */
int rps_keys_collect(struct rps_keys *keys, const struct rps_tool_call *call,
        const char *tool);

void rps_keys_finish(struct rps_keys *keys);

#endif /* RPS_CLIENT_CLI_KEYS_H */
