/* SPDX-License-Identifier: Apache-2.0 */
/* recps log-level: how much the servers of a running job log. */
#include "base/log.h"
#include "base/text.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdlib.h>

static const char usage[] =
        "usage: recps log-level [--json] [--ps N] [LEVEL] [OPTION]...\n"
        "\n"
        "Show the least level of each server's log, or set it: debug, info,\n"
        "warn or error. It holds until the server reads its options again\n"
        "(SIGHUP) or ends.\n";

static struct rps_tool_flag flags[] = {
        {.name = "ps",
                .argument = "N",
                .help = "this server alone, by its index"},
        {.name = NULL},
};

struct range {
    uint32_t first;
    uint32_t end;
};

static int
read_range(const struct rps_tool_call *call, struct range *range)
{
    const uint32_t count = call->options->cluster.ps_count;
    const char *text = call->flags[0].value;
    uint64_t ps = 0;

    *range = (struct range){.end = count};
    if (text == NULL || count == 0) {
        return RPS_TOOL_OK;
    }
    if (!rps_parse_u64(text, &ps) || ps >= count) {
        return rps_tool_fail(RPS_TOOL_USAGE, "log-level",
                "--ps is \"%s\"; the job has %" PRIu32
                " server%s: 0 to %" PRIu32 " is allowed",
                text, count, count == 1 ? "" : "s", count - 1);
    }
    *range = (struct range){.first = (uint32_t)ps, .end = (uint32_t)ps + 1};
    return RPS_TOOL_OK;
}

/* What one server answers, as an entry of the list. */
static int
ask(const struct rps_tool_call *call, rps_client *client, uint32_t ps,
        json_t *list)
{
    const char *level = call->operand_count > 0 ? call->operands[0] : NULL;
    const char *address = call->options->cluster.ps[ps].address;
    char *text = NULL;
    const rps_status status = rps_server_log_level(client, ps, level, &text);
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;

    free(text);
    if (status != RPS_OK) {
        json_decref(object);
        return rps_tool_fail_status("log-level", status, "%s (%s)%s",
                rps_client_error(client), rps_status_str(status),
                level != NULL && json_array_size(list) > 0
                        ? "; the servers before it have the new level"
                        : "");
    }
    if (!json_is_string(json_object_get(object, "level"))) {
        json_decref(object);
        return rps_tool_fail(RPS_TOOL_FAILED, "log-level",
                "ps %" PRIu32 ": its answer has no level", ps);
    }
    json_object_set_new(object, "index", json_integer(ps));
    json_object_set_new(object, "address",
            address != NULL ? json_string(address) : json_null());
    json_array_append_new(list, object);
    return RPS_TOOL_OK;
}

static int
print_text(const json_t *list, bool is_set)
{
    struct rps_table_print print = {.columns = is_set ? 4 : 3,
            .titles = {"ps", "address", "level", "was"},
            .right = {true, false, false, false}};
    const json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        const char *address =
                json_string_value(json_object_get(entry, "address"));
        const char *was = json_string_value(json_object_get(entry, "was"));

        rps_table_print_cell(&print, "%" JSON_INTEGER_FORMAT,
                json_integer_value(json_object_get(entry, "index")));
        rps_table_print_cell(&print, "%s", address != NULL ? address : "?");
        rps_table_print_cell(&print, "%s",
                json_string_value(json_object_get(entry, "level")));
        if (is_set) {
            rps_table_print_cell(&print, "%s", was != NULL ? was : "?");
        }
    }
    return rps_table_print_end(&print) ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

static int
run(const struct rps_tool_call *call)
{
    enum rps_log_level level;
    rps_client *client = NULL;
    struct range range;
    json_t *list;
    int code;

    if (call->operand_count > 0 &&
            !rps_log_level_parse(call->operands[0], &level)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "log-level",
                "\"%s\" is no level: debug, info, warn or error is allowed",
                call->operands[0]);
    }
    code = read_range(call, &range);
    if (code == RPS_TOOL_OK) {
        code = rps_tool_open(call, "log-level", &client);
    }
    list = json_array();
    for (uint32_t ps = range.first; code == RPS_TOOL_OK && ps < range.end;
            ps++) {
        code = ask(call, client, ps, list);
    }
    if (code == RPS_TOOL_OK) {
        code = call->options->json
                       ? rps_tool_print_json(json_pack("{s:O}", "ps", list))
                       : print_text(list, call->operand_count > 0);
    }
    json_decref(list);
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_log_level = {
        .name = "log-level",
        .usage = usage,
        .summary = "show or set how much the servers log",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .words = "debug|info|warn|error",
        .run = run,
};
