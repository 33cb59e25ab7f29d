/* SPDX-License-Identifier: Apache-2.0 */
/* recps shutdown: a wish that the job's chief fulfils. */
#include "client/cli/tool.h"

#include <stdio.h>

static const char shutdown_usage[] =
        "usage: recps shutdown [--now] [--json] [OPTION]...\n"
        "\n"
        "Ask the job's chief to save and end the job.\n";

static struct rps_tool_flag shutdown_flags[] = {
        {.name = "now",
                .help = "stop the servers without a chief; what no checkpoint "
                        "holds is lost; refused while a chief is connected"},
        {.name = NULL},
};

static int
say(const struct rps_tool_call *call, const char *done, const char *words)
{
    if (call->options->json) {
        return rps_tool_print_json(json_pack("{s:s}", "done", done));
    }
    printf("%s\n", words);
    return RPS_TOOL_OK;
}

static int
wish(const struct rps_tool_call *call, const char *tool, uint32_t wishes,
        const char *words)
{
    rps_client *client = NULL;
    int code = rps_tool_open(call, tool, &client);
    rps_status status;

    if (code == RPS_TOOL_OK) {
        status = rps_wish(client, wishes);
        code = status == RPS_OK ? say(call, tool, words)
                                : rps_tool_client_failed(client, tool, status);
    }
    rps_client_close(client);
    return code;
}

static int
shutdown_now(const struct rps_tool_call *call)
{
    rps_client *client = NULL;
    int code = rps_tool_open(call, "shutdown", &client);
    rps_status status;

    if (code == RPS_TOOL_OK) {
        status = rps_shutdown(client);
        code = status == RPS_OK
                       ? say(call, "shutdown", "every server stops")
                       : rps_tool_client_failed(client, "shutdown", status);
    }
    rps_client_close(client);
    return code;
}

static int
run_shutdown(const struct rps_tool_call *call)
{
    if (call->flags[0].value != NULL) {
        return shutdown_now(call);
    }
    return wish(call, "shutdown", RPS_WISH_STOP,
            "the chief was asked to save and to end the job");
}

const struct rps_tool rps_tool_shutdown = {
        .name = "shutdown",
        .usage = shutdown_usage,
        .summary = "ask the chief to save and end the job",
        .flags = shutdown_flags,
        .scope = RPS_SCOPE_TOOL,
        .run = run_shutdown,
};
