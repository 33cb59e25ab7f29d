/* SPDX-License-Identifier: Apache-2.0 */
/* recps alter: change policy fields of a table of a running job. */
#include "client/cli/fields.h"

#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
        "usage: recps alter [--json] TABLE FIELD=VALUE... [OPTION]...\n"
        "\n"
        "Change policy fields of a table at every server: learning_rate and\n"
        "the optimizer's other numbers, clip_value, clip_norm,\n"
        "min_used_times, max_cold_secs, max_cold_steps, keep_min_rows,\n"
        "memory_limit (64m, 2g), on_full (refuse, evict-lru, evict-lfu),\n"
        "default_value, ... What the table is (dimension, optimizer, seed,\n"
        "...) cannot be changed.\n";

static int
answer(const struct rps_tool_call *call, json_t *fields)
{
    const char *table = call->operands[0];
    const char *separator = "";
    const char *name;
    json_t *value;

    if (call->options->json) {
        return rps_tool_print_json(
                json_pack("{s:s, s:O}", "table", table, "set", fields));
    }
    printf("table %s: ", table);
    json_object_foreach(fields, name, value)
    {
        char *text = json_dumps(
                value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));

        printf("%s%s = %s", separator, name, text != NULL ? text : "?");
        free(text);
        separator = ", ";
    }
    printf("\n");
    return RPS_TOOL_OK;
}

static int
alter(const struct rps_tool_call *call, json_t *fields)
{
    char *text = json_dumps(fields, JSON_COMPACT | JSON_REAL_PRECISION(9));
    rps_client *client = NULL;
    int code = text != NULL
                       ? rps_tool_open(call, "alter", &client)
                       : rps_tool_fail(RPS_TOOL_FAILED, "alter", "no memory");

    if (code == RPS_TOOL_OK) {
        const rps_status status =
                rps_alter_table(client, call->operands[0], text);

        code = status == RPS_OK
                       ? answer(call, fields)
                       : rps_tool_client_failed(client, "alter", status);
    }
    free(text);
    rps_client_close(client);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    json_t *fields = json_object();
    int code = RPS_TOOL_OK;

    if (call->operand_count < 2) {
        code = rps_tool_fail(RPS_TOOL_USAGE, "alter",
                "give the table and at least one FIELD=VALUE");
    }
    for (int i = 1; code == RPS_TOOL_OK && i < call->operand_count; i++) {
        code = rps_fields_add("alter", fields, call->operands[i]);
    }
    if (code == RPS_TOOL_OK) {
        code = alter(call, fields);
    }
    json_decref(fields);
    return code;
}

const struct rps_tool rps_tool_alter = {
        .name = "alter",
        .usage = usage,
        .summary = "change policy fields of a table",
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .run = run,
};
