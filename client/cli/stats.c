/* SPDX-License-Identifier: Apache-2.0 */
/* recps stats: what each server of the job is doing. */
#include "base/text.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>

#define OVER_BYTES 128

static const char usage[] =
        "usage: recps stats [--json] [OPTION]...\n"
        "\n"
        "Show each server of a running job: epoch, step, mode, members,\n"
        "requests, connections and what its tables take; where rows lie on "
        "the\n"
        "disk (recpsd --disk-tier), what each tier has. --json prints each\n"
        "server's STAT whole.\n";

/* Requests served, all opcodes; those with an error in *errors_out. */
static json_int_t
count_requests(const json_t *stat, json_int_t *errors_out)
{
    json_t *requests = json_object_get(stat, "requests");
    json_int_t count = 0;
    const char *name;
    json_t *entry;

    *errors_out = 0;
    json_object_foreach(requests, name, entry)
    {
        count += json_integer_value(json_object_get(entry, "count"));
        *errors_out += json_integer_value(json_object_get(entry, "errors"));
    }
    return count;
}

static size_t
connected(const json_t *members)
{
    size_t count = 0;
    json_t *member;
    size_t i;

    json_array_foreach(members, i, member)
    {
        count += json_is_true(json_object_get(member, "connected"));
    }
    return count;
}

/* "shm 2, tcp 1": how its connections reach it. Returns `out`. */
static char *
over(json_t *transports, char out[OVER_BYTES])
{
    const char *name;
    json_t *count;
    size_t used = 0;

    (void)snprintf(out, OVER_BYTES, "-");
    json_object_foreach(transports, name, count)
    {
        if (json_integer_value(count) > 0 && used < OVER_BYTES) {
            used += (size_t)snprintf(out + used, OVER_BYTES - used,
                    "%s%s %" JSON_INTEGER_FORMAT, used > 0 ? ", " : "", name,
                    json_integer_value(count));
        }
    }
    return out;
}

/* What its steps wait for; or that it has none of its own. */
static const char *
mode_of(const json_t *stat)
{
    const json_t *serving = json_object_get(stat, "serving");

    if (serving != NULL) {
        return json_is_true(json_object_get(serving, "holds")) ? "serving"
                                                               : "waiting";
    }
    return json_string_value(json_object_get(stat, "mode"));
}

static void
add_row(struct rps_table_print *print, const rps_cluster *cluster, uint32_t ps,
        const json_t *stat)
{
    json_t *members = json_object_get(stat, "members");
    const char *mode = mode_of(stat);
    char words[OVER_BYTES];
    char size[32];
    json_int_t errors = 0;
    json_int_t requests = count_requests(stat, &errors);

    rps_table_print_cell(print, "%" PRIu32, ps);
    rps_table_print_cell(print, "%s",
            cluster->ps[ps].address != NULL ? cluster->ps[ps].address : "?");
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT,
            json_integer_value(json_object_get(stat, "epoch")));
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT,
            json_integer_value(json_object_get(stat, "step")));
    rps_table_print_cell(print, "%s", mode != NULL ? mode : "?");
    if (members != NULL) {
        rps_table_print_cell(
                print, "%zu/%zu", connected(members), json_array_size(members));
    } else {
        rps_table_print_cell(print, "-");
    }
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT, requests);
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT, errors);
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT,
            json_integer_value(json_object_get(stat, "connections")));
    rps_table_print_cell(
            print, "%s", over(json_object_get(stat, "transports"), words));
    rps_table_print_cell(print, "%s",
            rps_format_bytes((uint64_t)json_integer_value(
                                     json_object_get(stat, "memory_used")),
                    size));
    rps_table_print_cell(print, "%s",
            json_is_true(json_object_get(stat, "unsaved")) ? "yes" : "no");
}

static json_int_t
sum_of_tables(const json_t *stat, const char *field)
{
    json_int_t sum = 0;
    json_t *table;
    size_t i;

    json_array_foreach(json_object_get(stat, "tables"), i, table)
    {
        sum += json_integer_value(json_object_get(table, field));
    }
    return sum;
}

static void
add_tier(struct rps_table_print *print, size_t ps, const char *tier,
        json_int_t rows, json_int_t bytes, json_int_t hits)
{
    char size[32];

    rps_table_print_cell(print, "%zu", ps);
    rps_table_print_cell(print, "%s", tier);
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT, rows);
    rps_table_print_cell(print, "%s", rps_format_bytes((uint64_t)bytes, size));
    rps_table_print_cell(print, "%" JSON_INTEGER_FORMAT, hits);
}

/* Where a server has rows on the disk. */
static bool
print_tiers(const json_t *stats)
{
    struct rps_table_print print = {.columns = 5,
            .titles = {"ps", "tier", "rows", "bytes", "keys found"},
            .right = {true, false, true, true, true}};
    bool some = false;
    json_t *stat;
    size_t i;

    json_array_foreach(stats, i, stat)
    {
        const json_int_t disk_rows = sum_of_tables(stat, "disk_rows");
        const json_int_t disk_hits = sum_of_tables(stat, "disk_hits");
        if (disk_rows > 0 || disk_hits > 0) {
            some = true;
            add_tier(&print, i, "memory",
                    sum_of_tables(stat, "rows") - disk_rows,
                    sum_of_tables(stat, "bytes"),
                    sum_of_tables(stat, "lookups") -
                            sum_of_tables(stat, "missing") - disk_hits);
            add_tier(&print, i, "disk", disk_rows,
                    sum_of_tables(stat, "disk_bytes"), disk_hits);
        }
    }
    if (some) {
        printf("\n");
    }
    return !some || rps_table_print_end(&print);
}

static int
print_text(const rps_cluster *cluster, const json_t *stats)
{
    struct rps_table_print print = {.columns = 12,
            .titles = {"ps", "address", "epoch", "step", "mode", "members",
                    "requests", "errors", "connections", "over", "memory",
                    "unsaved"},
            .right = {true, false, true, true, false, true, true, true, true,
                    false, true, false}};
    json_t *stat;
    size_t i;

    json_array_foreach(stats, i, stat)
    {
        add_row(&print, cluster, (uint32_t)i, stat);
    }
    return rps_table_print_end(&print) && print_tiers(stats) ? RPS_TOOL_OK
                                                             : RPS_TOOL_FAILED;
}

static int
run(const struct rps_tool_call *call)
{
    const rps_cluster *cluster = &call->options->cluster;
    rps_client *client = NULL;
    json_t *stats = NULL;
    int code = rps_tool_open(call, "stats", &client);

    if (code == RPS_TOOL_OK) {
        stats = rps_tool_stat_all(
                client, "stats", cluster->ps_count, false, &code);
    }
    if (stats != NULL && call->options->json) {
        code = rps_tool_print_json(json_pack("{s:o}", "ps", stats));
    } else if (stats != NULL) {
        code = print_text(cluster, stats);
        json_decref(stats);
    }
    rps_client_close(client);
    return code;
}

const struct rps_tool rps_tool_stats = {
        .name = "stats",
        .usage = usage,
        .summary = "servers of a running job: step, members, requests",
        .scope = RPS_SCOPE_TOOL,
        .run = run,
};
