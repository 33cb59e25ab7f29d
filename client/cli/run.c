/* SPDX-License-Identifier: Apache-2.0 */
/* One subcommand from its arguments to its exit code. */
#include "base/log.h"
#include "client/cli/args.h"
#include "client/cli/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Asked before the options are read: they may be what is wrong. */
bool
rps_tool_wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--json") == 0 ||
                strcmp(argv[i], "--json=true") == 0 ||
                strcmp(argv[i], "--json=1") == 0) {
            return true;
        }
    }
    return false;
}

int
rps_tool_run(const struct rps_tool *tool, int argc, char **argv)
{
    char program[64];
    struct rps_options options;
    struct rps_tool_call call = {.options = &options, .flags = tool->flags};
    const bool json = rps_tool_wants_json(argc, argv);
    int code = RPS_TOOL_USAGE;

    rps_tool_begin(tool);
    memset(&options, 0, sizeof(options));
    snprintf(program, sizeof(program), "recps %s", tool->name);
    if (tool->makes_cluster) {
        unsetenv("TF_CONFIG");
        unsetenv("TF_CONFIG_FILE");
    }
    if (rps_args_sort(tool, &argc, argv, &call)) {
        char *usage = rps_tool_usage(tool);

        code = rps_options_read(
                &options, tool->scope, program, usage, true, argc, argv);
        free(usage);
    }
    if (code < 0) {
        rps_log_init(RPS_LOG_WARN, RPS_LOG_TEXT);
        code = tool->run(&call);
    }
    if (json && code != RPS_TOOL_OK) {
        rps_tool_print_failure(code, options.refusal);
    }
    rps_options_finish(&options);
    return code;
}
