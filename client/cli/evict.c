/* SPDX-License-Identifier: Apache-2.0 */
/* recps evict: a pass of eviction now, and what it did. */
#include "base/text.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdlib.h>

static const char usage[] =
        "usage: recps evict [--json] [TABLE] [OPTION]...\n"
        "\n"
        "Make one pass over every row of a table, or of all tables: rows that\n"
        "are cold and rows beyond the memory limit go, and their memory is\n"
        "given back. Shows what each server did.\n";

static json_t *
to_json(const rps_eviction *one)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "examined",
            (json_int_t)one->examined, "cold", (json_int_t)one->cold, "full",
            (json_int_t)one->full, "bytes_before",
            (json_int_t)one->bytes_before, "bytes_after",
            (json_int_t)one->bytes_after);
}

static int
print_json(const struct rps_tool_call *call, uint32_t count,
        const rps_eviction *each, const rps_eviction *sum)
{
    json_t *list = json_array();

    for (uint32_t ps = 0; ps < count; ps++) {
        json_t *one = to_json(&each[ps]);

        json_object_set_new(one, "index", json_integer(ps));
        json_array_append_new(list, one);
    }
    return rps_tool_print_json(json_pack("{s:s?, s:o, s:o}", "table",
            call->operand_count > 0 ? call->operands[0] : NULL, "ps", list,
            "sum", to_json(sum)));
}

static void
add_row(struct rps_table_print *print, const char *address,
        const rps_eviction *one)
{
    char size[32];

    rps_table_print_cell(print, "%s", address != NULL ? address : "?");
    rps_table_print_cell(print, "%" PRIu64, one->examined);
    rps_table_print_cell(print, "%" PRIu64, one->cold);
    rps_table_print_cell(print, "%" PRIu64, one->full);
    rps_table_print_cell(
            print, "%s", rps_format_bytes(one->bytes_before, size));
    rps_table_print_cell(print, "%s", rps_format_bytes(one->bytes_after, size));
}

static int
print_text(const rps_cluster *cluster, uint32_t count, const rps_eviction *each,
        const rps_eviction *sum)
{
    struct rps_table_print print = {.columns = 7,
            .titles = {"ps", "address", "examined", "cold", "full", "before",
                    "after"},
            .right = {true, false, true, true, true, true, true}};

    for (uint32_t ps = 0; ps < count; ps++) {
        rps_table_print_cell(&print, "%" PRIu32, ps);
        add_row(&print, cluster->ps[ps].address, &each[ps]);
    }
    rps_table_print_cell(&print, "all");
    add_row(&print, "", sum);
    return rps_table_print_end(&print) ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

static int
evict(const struct rps_tool_call *call, rps_client *client)
{
    const uint32_t count = rps_server_count(client);
    rps_eviction *each = calloc(count, sizeof(*each));
    rps_eviction sum;
    rps_status status;
    int code;

    if (each == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "evict", "no memory");
    }
    status = rps_evict_rows(client,
            call->operand_count > 0 ? call->operands[0] : NULL, &sum, each);
    if (status != RPS_OK) {
        code = rps_tool_client_failed(client, "evict", status);
    } else if (call->options->json) {
        code = print_json(call, count, each, &sum);
    } else {
        code = print_text(&call->options->cluster, count, each, &sum);
    }
    free(each);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    rps_client *client = NULL;
    int code = rps_tool_open(call, "evict", &client);

    if (code == RPS_TOOL_OK) {
        code = evict(call, client);
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_evict = {
        .name = "evict",
        .usage = usage,
        .summary = "evict cold rows now, and say what went",
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .run = run,
};
