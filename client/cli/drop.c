/* SPDX-License-Identifier: Apache-2.0 */
/* recps drop: a table of a running job, with all its rows. */
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>

static const char usage[] =
        "usage: recps drop [--json] TABLE [OPTION]...\n"
        "\n"
        "Drop a table at every server: its rows are gone, and programs that\n"
        "have it open fail with RPS_E_NOT_FOUND until they open it again. A\n"
        "dense variable of a running job is refused.\n";

static int
run(const struct rps_tool_call *call)
{
    rps_client *client = NULL;
    uint64_t rows = 0;
    rps_status status;
    int code;

    if (call->operand_count != 1) {
        return rps_tool_fail(RPS_TOOL_USAGE, "drop", "give the table");
    }
    code = rps_tool_open(call, "drop", &client);
    if (code == RPS_TOOL_OK) {
        status = rps_drop_table(client, call->operands[0], &rows);
        if (status != RPS_OK) {
            code = rps_tool_client_failed(client, "drop", status);
        } else if (call->options->json) {
            code = rps_tool_print_json(json_pack("{s:s, s:I}", "table",
                    call->operands[0], "rows", (json_int_t)rows));
        } else {
            printf("table %s: dropped, with %" PRIu64 " rows\n",
                    call->operands[0], rows);
        }
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_drop = {
        .name = "drop",
        .usage = usage,
        .summary = "drop a table with all its rows",
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .run = run,
};
