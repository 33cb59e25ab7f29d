/* SPDX-License-Identifier: Apache-2.0 */
/* recps erase: rows of a running job's table, by key. */
#include "client/cli/keys.h"

#include <inttypes.h>
#include <stdio.h>

static const char usage[] =
        "usage: recps erase [--json] TABLE KEY... [OPTION]...\n"
        "       recps erase [--json] TABLE --file FILE [OPTION]...\n"
        "\n"
        "Erase the rows of these keys. A key is an unsigned or a negative\n"
        "decimal number, or 0x and hex digits. Absent keys are no error.\n";

static struct rps_tool_flag flags[] = {
        RPS_KEYS_FLAG,
        {.name = NULL},
};

static int
erase(const struct rps_tool_call *call, const struct rps_keys *keys)
{
    const char *table = call->operands[0];
    rps_client *client = NULL;
    uint64_t erased = 0;
    int code = rps_tool_open(call, "erase", &client);

    if (code == RPS_TOOL_OK) {
        const rps_status status =
                rps_erase_rows(client, table, keys->count, keys->list, &erased);

        if (status != RPS_OK) {
            code = rps_tool_client_failed(client, "erase", status);
        } else if (call->options->json) {
            code = rps_tool_print_json(json_pack("{s:s, s:I, s:I}", "table",
                    table, "keys", (json_int_t)keys->count, "erased",
                    (json_int_t)erased));
        } else {
            printf("table %s: %" PRIu64 " rows erased (%zu keys)\n", table,
                    erased, keys->count);
        }
    }
    rps_client_close(client);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_keys keys = {.count = 0};
    int code = rps_keys_collect(&keys, call, "erase");

    if (code == RPS_TOOL_OK) {
        code = erase(call, &keys);
    }
    rps_keys_finish(&keys);
    return code;
}

const struct rps_tool rps_tool_erase = {
        .name = "erase",
        .usage = usage,
        .summary = "erase rows of a table by key",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_keys = true,
        .run = run,
};
