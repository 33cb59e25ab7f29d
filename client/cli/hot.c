/* SPDX-License-Identifier: Apache-2.0 */
/* recps hot: the keys of a table that are pushed most. */
#include "base/text.h"
#include "client/cli/key.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define KEYS_DEFAULT 16u

static const char usage[] =
        "usage: recps hot [--json] [--max N] TABLE [OPTION]...\n"
        "\n"
        "The keys of a table that are pushed most often, over all servers,\n"
        "from a sample of one key in 64; older pushes fade.\n";

static struct rps_tool_flag flags[] = {
        {.name = "max",
                .argument = "N",
                .help = "so many keys at most, 1 to 512 (16)"},
        {.name = NULL},
};

static int
print_json(const char *table, const rps_hot *keys, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++) {
        json_array_append_new(list,
                json_pack("{s:o, s:I, s:I}", "key", rps_key_json(keys[i].key),
                        "count", (json_int_t)keys[i].count, "error",
                        (json_int_t)keys[i].error));
    }
    return rps_tool_print_json(
            json_pack("{s:s, s:o}", "table", table, "keys", list));
}

static int
print_text(const rps_hot *keys, size_t count)
{
    struct rps_table_print print = {.columns = 3,
            .titles = {"key", "count", "error"},
            .right = {true, true, true}};

    for (size_t i = 0; i < count; i++) {
        rps_table_print_cell(&print, "%" PRIu64, keys[i].key);
        rps_table_print_cell(&print, "%" PRIu64, keys[i].count);
        rps_table_print_cell(&print, "%" PRIu64, keys[i].error);
    }
    return rps_table_print_end(&print) ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

static int
hot(const struct rps_tool_call *call, rps_client *client, size_t max)
{
    const char *table = call->operands[0];
    rps_hot keys[RPS_HOT_MAX];
    size_t count = 0;
    const rps_status status = rps_hot_keys(client, table, max, keys, &count);

    if (status != RPS_OK) {
        return rps_tool_client_failed(client, "hot", status);
    }
    return call->options->json ? print_json(table, keys, count)
                               : print_text(keys, count);
}

static int
run(const struct rps_tool_call *call)
{
    const char *text = call->flags[0].value;
    rps_client *client = NULL;
    uint64_t max = KEYS_DEFAULT;
    int code;

    if (text != NULL &&
            (!rps_parse_u64(text, &max) || max == 0 || max > RPS_HOT_MAX)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "hot",
                "--max is \"%s\"; 1 to %u is allowed", text, RPS_HOT_MAX);
    }
    if (call->operand_count != 1) {
        return rps_tool_fail(RPS_TOOL_USAGE, "hot", "give the table");
    }
    code = rps_tool_open(call, "hot", &client);
    if (code == RPS_TOOL_OK) {
        code = hot(call, client, max);
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_hot = {
        .name = "hot",
        .usage = usage,
        .summary = "keys of a table that are pushed most",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .run = run,
};
