/* SPDX-License-Identifier: Apache-2.0 */
/* recps alter: change policy fields of a table of a running job. */
#include "base/text.h"
#include "client/cli/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
        "usage: recps alter [--json] TABLE FIELD=VALUE... [OPTION]...\n"
        "\n"
        "Change policy fields of a table at every server: learning_rate and\n"
        "the optimizer's other numbers, clip_value, clip_norm,\n"
        "min_used_times, max_cold_secs, max_cold_steps, keep_min_rows,\n"
        "memory_limit (64m, 2g), on_full (refuse, evict-lru, evict-lfu),\n"
        "default_value, ... What the table is (dimension, optimizer, seed,\n"
        "...) cannot be changed.\n";

/* A number where it is one, else text: the server knows the field's type. */
static json_t *
value_of(const char *field, const char *text)
{
    uint64_t whole = 0;
    double real = 0;

    if ((rps_parse_u64(text, &whole) ||
                (strcmp(field, "memory_limit") == 0 &&
                        rps_parse_bytes(text, &whole))) &&
            whole <= INT64_MAX) {
        return json_integer((json_int_t)whole);
    }
    if (rps_parse_double(text, &real)) {
        return json_real(real);
    }
    return json_string(text);
}

static int
add_field(json_t *fields, const char *word)
{
    const char *equals = strchr(word, '=');
    char name[64];

    if (equals == NULL || equals == word ||
            (size_t)(equals - word) >= sizeof(name)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "alter",
                "\"%s\" is not FIELD=VALUE, such as learning_rate=0.01", word);
    }
    memcpy(name, word, (size_t)(equals - word));
    name[equals - word] = '\0';
    if (json_object_get(fields, name) != NULL) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "alter", "%s is given twice", name);
    }
    if (json_object_set_new(fields, name, value_of(name, equals + 1)) != 0) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "alter", "\"%s\" is not UTF-8 text", word);
    }
    return RPS_TOOL_OK;
}

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
        code = add_field(fields, call->operands[i]);
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
