/* SPDX-License-Identifier: Apache-2.0 */
/* recps scan: every key of a table that has a row. */
#include "base/text.h"
#include "client/cli/tool.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 16384u /* keys of a request */

static const char usage[] =
        "usage: recps scan [--json] [--limit N] TABLE [OPTION]...\n"
        "\n"
        "Print a line for each key of a table that has a row: the key, about\n"
        "how often it was pushed, and the low 24 bits of the tick (step) of\n"
        "its last push. --json prints one object, with [key, uses, last].\n";

static struct rps_tool_flag flags[] = {
        {.name = "limit",
                .argument = "N",
                .help = "stop after so many keys; 0: all (0)"},
        {.name = NULL},
};

/** What is printed so far. */
struct output {
    bool json;
    uint64_t limit; /* 0: none */
    uint64_t count;
};

/* An answer is printed as it comes: a table may be larger than memory. */
static void
print_rows(struct output *output, const rps_scanned *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (output->json) {
            printf("%s[\"%" PRIu64 "\",%" PRIu32 ",%" PRIu32 "]",
                    output->count > 0 ? "," : "", rows[i].key, rows[i].uses,
                    rows[i].last);
        } else {
            printf("%" PRIu64 "\t%" PRIu32 "\t%" PRIu32 "\n", rows[i].key,
                    rows[i].uses, rows[i].last);
        }
        output->count++;
    }
}

static size_t
piece_of(const struct output *output)
{
    const uint64_t left = output->limit - output->count;

    return output->limit == 0 || left > PIECE ? PIECE : (size_t)left;
}

static bool
wants_more(const struct output *output, const rps_scan *scan)
{
    return scan->done == 0 && ferror(stdout) == 0 &&
           (output->limit == 0 || output->count < output->limit);
}

static rps_status
scan_all(rps_client *client, const char *table, rps_scanned *rows,
        struct output *output)
{
    rps_scan scan;
    rps_status status = RPS_OK;
    bool begun = false;

    memset(&scan, 0, sizeof(scan));
    while (status == RPS_OK && wants_more(output, &scan)) {
        size_t n = 0;

        status =
                rps_scan_rows(client, table, &scan, piece_of(output), rows, &n);
        if (status == RPS_OK && output->json && !begun) {
            printf("{\"rows\":["); /* not before the table is known */
            begun = true;
        }
        print_rows(output, rows, n);
    }
    if (begun) {
        printf("],\"table\":\"%s\",\"whole\":%s}\n", table,
                status == RPS_OK && scan.done != 0 ? "true" : "false");
        rps_tool_answered();
    }
    return status;
}

static int
scan_table(const struct rps_tool_call *call, uint64_t limit)
{
    struct output output = {.json = call->options->json, .limit = limit};
    rps_scanned *rows = malloc(PIECE * sizeof(*rows));
    rps_client *client = NULL;
    int code = rows != NULL
                       ? rps_tool_open(call, "scan", &client)
                       : rps_tool_fail(RPS_TOOL_FAILED, "scan", "no memory");

    if (code == RPS_TOOL_OK) {
        const rps_status status =
                scan_all(client, call->operands[0], rows, &output);

        if (status != RPS_OK) {
            code = rps_tool_client_failed(client, "scan", status);
        }
    }
    free(rows);
    rps_client_close(client);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    const char *text = call->flags[0].value;
    uint64_t limit = 0;

    if (text != NULL && !rps_parse_u64(text, &limit)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "scan",
                "--limit is \"%s\"; a number of keys is allowed", text);
    }
    if (call->operand_count != 1) {
        return rps_tool_fail(RPS_TOOL_USAGE, "scan", "give the table");
    }
    return scan_table(call, limit);
}

const struct rps_tool rps_tool_scan = {
        .name = "scan",
        .usage = usage,
        .summary = "every key of a table, with its uses",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .run = run,
};
