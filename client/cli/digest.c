/* SPDX-License-Identifier: Apache-2.0 */
/* recps digest [DIR]: the content digest of a checkpoint or a running job. */
#include "base/digest.h"

#include "base/spec.h"
#include "client/cli/checkpoint_report.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
        "usage: recps digest [--json] [DIR] [OPTION]...\n"
        "\n"
        "The content digest, which depends on no order, part or file: of the\n"
        "checkpoint below DIR, or without DIR of the running job's tables.\n";

struct table {
    char *name;
    char *spec_json;
    uint64_t rows;
    struct rps_digest digest;
};

struct tables {
    struct table *list;
    size_t count;
};

static void
release(struct tables *tables)
{
    for (size_t i = 0; i < tables->count; i++) {
        free(tables->list[i].name);
        free(tables->list[i].spec_json);
    }
    free(tables->list);
}

/* The entry of this name, made from `part` if it is new; NULL: said why. */
static struct table *
entry(struct tables *tables, const char *name, const json_t *part)
{
    struct rps_error error = {.text = "no memory"};
    struct table *list;
    struct table *table;
    rps_table_spec spec;

    for (size_t i = 0; i < tables->count; i++) {
        if (strcmp(tables->list[i].name, name) == 0) {
            return &tables->list[i];
        }
    }
    list = realloc(tables->list, (tables->count + 1) * sizeof(*list));
    if (list == NULL) {
        rps_tool_fail(0, "digest", "no memory");
        return NULL;
    }
    tables->list = list;
    table = &list[tables->count];
    memset(table, 0, sizeof(*table));
    if (rps_spec_from_value(json_object_get(part, "spec"), &spec, &error) ==
            RPS_OK) {
        table->name = strdup(name);
        table->spec_json = rps_spec_to_json(&spec);
    }
    if (table->name == NULL || table->spec_json == NULL) {
        rps_tool_fail(0, "digest", "table %s: %s", name, error.text);
        free(table->name);
        free(table->spec_json);
        return NULL;
    }
    tables->count++;
    return table;
}

static bool
add_part(struct tables *tables, const json_t *part)
{
    const char *name = json_string_value(json_object_get(part, "name"));
    const char *hex = json_string_value(json_object_get(part, "digest"));
    struct rps_digest digest;
    struct table *table;

    if (name == NULL || hex == NULL || !rps_digest_parse(hex, &digest)) {
        rps_tool_fail(0, "digest", "a server's answer has no digest of %s",
                name != NULL ? name : "a table");
        return false;
    }
    table = entry(tables, name, part);
    if (table == NULL) {
        return false;
    }
    rps_digest_add(&table->digest, digest);
    table->rows += (uint64_t)json_integer_value(json_object_get(part, "rows"));
    return true;
}

static bool
add_stats(struct tables *tables, const json_t *stats)
{
    json_t *stat;
    json_t *part;
    size_t i;
    size_t k;

    json_array_foreach(stats, i, stat)
    {
        json_array_foreach(json_object_get(stat, "tables"), k, part)
        {
            if (!add_part(tables, part)) {
                return false;
            }
        }
    }
    return true;
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(
            ((const struct table *)a)->name, ((const struct table *)b)->name);
}

static bool
total(const struct tables *tables, struct rps_digest *digest_out)
{
    struct rps_digest_entry *entries =
            calloc(tables->count + 1, sizeof(*entries));

    if (entries == NULL) {
        rps_tool_fail(0, "digest", "no memory");
        return false;
    }
    for (size_t i = 0; i < tables->count; i++) {
        entries[i].name = tables->list[i].name;
        entries[i].spec_json = tables->list[i].spec_json;
        entries[i].digest = tables->list[i].digest;
    }
    *digest_out = rps_digest_checkpoint(entries, tables->count);
    free(entries);
    return true;
}

static int
print_json(const struct tables *tables, struct rps_digest digest)
{
    char hex[RPS_DIGEST_HEX_BYTES];
    json_t *list = json_array();

    for (size_t i = 0; i < tables->count; i++) {
        json_array_append_new(list,
                json_pack("{s:s, s:I, s:s}", "name", tables->list[i].name,
                        "rows", (json_int_t)tables->list[i].rows, "digest",
                        rps_digest_hex(tables->list[i].digest, hex)));
    }
    return rps_tool_print_json(json_pack("{s:s, s:o}", "digest",
            rps_digest_hex(digest, hex), "tables", list));
}

static int
print_text(const struct tables *tables, struct rps_digest digest)
{
    struct rps_table_print print = {.columns = 3,
            .titles = {"table", "rows", "digest"},
            .right = {false, true, false}};
    char hex[RPS_DIGEST_HEX_BYTES];

    for (size_t i = 0; i < tables->count; i++) {
        rps_table_print_cell(&print, "%s", tables->list[i].name);
        rps_table_print_cell(&print, "%" PRIu64, tables->list[i].rows);
        rps_table_print_cell(
                &print, "%s", rps_digest_hex(tables->list[i].digest, hex));
    }
    printf("digest %s\n", rps_digest_hex(digest, hex));
    return rps_table_print_end(&print) ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

static int
digest_of_job(const struct rps_tool_call *call)
{
    struct tables tables = {.count = 0};
    struct rps_digest digest;
    rps_client *client = NULL;
    json_t *stats = NULL;
    int code = rps_tool_open(call, "digest", &client);

    if (code == RPS_TOOL_OK) {
        stats = rps_tool_stat_all(
                client, "digest", call->options->cluster.ps_count, true, &code);
    }
    if (stats != NULL) {
        code = RPS_TOOL_FAILED;
        if (add_stats(&tables, stats) && total(&tables, &digest)) {
            qsort(tables.list, tables.count, sizeof(*tables.list), by_name);
            code = call->options->json ? print_json(&tables, digest)
                                       : print_text(&tables, digest);
        }
        json_decref(stats);
    }
    release(&tables);
    rps_client_close(client);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    if (call->operand_count == 1) {
        return rps_checkpoint_report_run(
                "digest", call->operands[0], call->options->json);
    }
    return digest_of_job(call);
}

const struct rps_tool rps_tool_digest = {
        .name = "digest",
        .usage = usage,
        .summary = "content digest of a checkpoint or a running job",
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
