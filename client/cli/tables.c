/* SPDX-License-Identifier: Apache-2.0 */
/* recps tables: every table of the job, summed over its servers. */
#include "base/text.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char usage[] =
        "usage: recps tables [--json] [OPTION]...\n"
        "\n"
        "List the tables of a running job, summed over all servers: rows and\n"
        "bytes; pending: keys that wait for their row (admission); evicted\n"
        "rows: cold, and over the memory limit; refused: keys without room.\n";

static void
add_number(json_t *table, const json_t *part, const char *field)
{
    json_int_t sum = json_integer_value(json_object_get(table, field)) +
                     json_integer_value(json_object_get(part, field));

    json_object_set_new(table, field, json_integer(sum));
}

static json_t *
find(json_t *tables, const char *name)
{
    json_t *table;
    size_t i;

    json_array_foreach(tables, i, table)
    {
        const char *other = json_string_value(json_object_get(table, "name"));

        if (other != NULL && strcmp(other, name) == 0) {
            return table;
        }
    }
    return NULL;
}

static void
merge_part(json_t *tables, json_t *part)
{
    const char *name = json_string_value(json_object_get(part, "name"));
    json_t *spec = json_object_get(part, "spec");
    json_t *table;

    if (name == NULL) {
        return;
    }
    table = find(tables, name);
    if (table == NULL) {
        table = json_object();
        json_object_set(table, "name", json_object_get(part, "name"));
        json_object_set(table, "dim", json_object_get(spec, "dimension"));
        json_object_set(table, "optimizer", json_object_get(spec, "optimizer"));
        json_array_append_new(tables, table);
    }
    add_number(table, part, "rows");
    add_number(table, part, "bytes");
    add_number(table, part, "lookups");
    add_number(table, part, "pushes");
    add_number(table, part, "inserted");
    add_number(table, part, "unadmitted");
    add_number(table, part, "admission_keys");
    add_number(table, part, "admission_bytes");
    add_number(table, part, "evicted_cold");
    add_number(table, part, "evicted_full");
    add_number(table, part, "disk_rows");
    add_number(table, part, "disk_bytes");
    add_number(table, part, "disk_hits");
    add_number(table, part, "erased");
    add_number(table, part, "dropped");
}

static json_t *
merge(const json_t *stats)
{
    json_t *tables = json_array();
    json_t *stat;
    json_t *part;
    size_t i;
    size_t k;

    json_array_foreach(stats, i, stat)
    {
        json_array_foreach(json_object_get(stat, "tables"), k, part)
        {
            merge_part(tables, part);
        }
    }
    return tables;
}

/* The last columns. */
static const char *const counts[] = {
        "admission_keys", "evicted_cold", "evicted_full", "dropped"};

static int
print_text(const json_t *tables)
{
    struct rps_table_print print = {.columns = 10,
            .titles = {"table", "dim", "optimizer", "rows", "bytes",
                    "bytes/row", "pending", "cold", "full", "refused"},
            .right = {false, true, false, true, true, true, true, true, true,
                    true}};
    json_t *table;
    size_t i;

    json_array_foreach(tables, i, table)
    {
        json_int_t rows = json_integer_value(json_object_get(table, "rows"));
        json_int_t bytes = json_integer_value(json_object_get(table, "bytes"));
        const char *optimizer =
                json_string_value(json_object_get(table, "optimizer"));
        char size[32];

        rps_table_print_cell(&print, "%s",
                json_string_value(json_object_get(table, "name")));
        rps_table_print_cell(&print, "%" JSON_INTEGER_FORMAT,
                json_integer_value(json_object_get(table, "dim")));
        rps_table_print_cell(&print, "%s", optimizer != NULL ? optimizer : "?");
        rps_table_print_cell(&print, "%" JSON_INTEGER_FORMAT, rows);
        rps_table_print_cell(
                &print, "%s", rps_format_bytes((uint64_t)bytes, size));
        if (rows > 0) {
            rps_table_print_cell(&print, "%.1f", (double)bytes / (double)rows);
        } else {
            rps_table_print_cell(&print, "-");
        }
        for (size_t k = 0; k < sizeof(counts) / sizeof(counts[0]); k++) {
            rps_table_print_cell(&print, "%" JSON_INTEGER_FORMAT,
                    json_integer_value(json_object_get(table, counts[k])));
        }
    }
    return rps_table_print_end(&print) ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

static int
run(const struct rps_tool_call *call)
{
    rps_client *client = NULL;
    json_t *stats = NULL;
    json_t *tables;
    int code = rps_tool_open(call, "tables", &client);

    if (code == RPS_TOOL_OK) {
        stats = rps_tool_stat_all(client, "tables",
                call->options->cluster.ps_count, false, &code);
    }
    if (stats != NULL) {
        tables = merge(stats);
        if (call->options->json) {
            code = rps_tool_print_json(json_pack("{s:o}", "tables", tables));
        } else {
            code = print_text(tables);
            json_decref(tables);
        }
        json_decref(stats);
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_tables = {
        .name = "tables",
        .usage = usage,
        .summary = "tables of a running job: rows, bytes",
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
