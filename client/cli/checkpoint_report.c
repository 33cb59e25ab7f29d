/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/checkpoint_report.h"

#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/table_print.h"
#include "embedding/checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *
links_to_json(const struct rps_checkpoint_report *report)
{
    char hex[RPS_DIGEST_HEX_BYTES];
    json_t *links = json_array();

    for (size_t i = 0; i < report->link_count; i++) {
        const struct rps_checkpoint_link_report *link = &report->links[i];

        json_array_append_new(
                links, json_pack("{s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:s}",
                               "step", (json_int_t)link->step, "epoch",
                               (json_int_t)link->epoch, "parts",
                               (json_int_t)link->parts, "kind",
                               link->is_delta ? "delta" : "full", "rows",
                               (json_int_t)link->rows, "erased",
                               (json_int_t)link->erased, "bytes",
                               (json_int_t)link->bytes, "digest",
                               rps_digest_hex(link->digest, hex)));
    }
    return links;
}

static json_t *
to_json(const struct rps_checkpoint_report *report)
{
    char hex[RPS_DIGEST_HEX_BYTES];
    json_t *tables = json_array();

    for (size_t i = 0; i < report->table_count; i++) {
        const struct rps_checkpoint_table_report *table = &report->tables[i];

        json_array_append_new(
                tables, json_pack("{s:s, s:I, s:I, s:s, s:b}", "name",
                                table->name, "rows", (json_int_t)table->rows,
                                "admission", (json_int_t)table->admission,
                                "digest", rps_digest_hex(table->digest, hex),
                                "matches", (int)table->matches));
    }
    return json_pack("{s:I, s:I, s:s, s:b, s:o, s:o}", "step",
            (json_int_t)report->step, "bytes", (json_int_t)report->bytes,
            "digest", rps_digest_hex(report->digest, hex), "matches",
            (int)report->matches, "tables", tables, "links",
            links_to_json(report));
}

static void
print_links(const struct rps_checkpoint_report *report)
{
    if (report->link_count > 1) {
        printf("it stands on ckpt-%012" PRIu64 " (full)",
                report->links[0].step);
        for (size_t i = 1; i + 1 < report->link_count; i++) {
            printf(", ckpt-%012" PRIu64, report->links[i].step);
        }
        printf("\n");
    }
}

static bool
print_text(const struct rps_checkpoint_report *report)
{
    struct rps_table_print print = {.columns = 5,
            .titles = {"table", "rows", "counts", "digest", ""},
            .right = {false, true, true, false, false}};
    char hex[RPS_DIGEST_HEX_BYTES];
    char size[32];

    for (size_t i = 0; i < report->table_count; i++) {
        const struct rps_checkpoint_table_report *table = &report->tables[i];

        rps_table_print_cell(&print, "%s", table->name);
        rps_table_print_cell(&print, "%" PRIu64, table->rows);
        rps_table_print_cell(&print, "%" PRIu64, table->admission);
        rps_table_print_cell(&print, "%s", rps_digest_hex(table->digest, hex));
        rps_table_print_cell(&print, "%s",
                table->matches ? "ok" : "DIFFERS from the manifest");
    }
    printf("step %" PRIu64 ", %s, digest %s\n", report->step,
            rps_format_bytes(report->bytes, size),
            rps_digest_hex(report->digest, hex));
    print_links(report);
    return rps_table_print_end(&print);
}

static bool
all_match(const struct rps_checkpoint_report *report)
{
    bool match = report->matches;

    for (size_t i = 0; i < report->table_count; i++) {
        match &= report->tables[i].matches;
    }
    return match;
}

/* Are all parts here? Where they are not, the words are those of all tools. */
static int
check_parts(const char *tool, const char *path)
{
    struct rps_ckpt_chain chain;
    const int code = rps_checkpoint_open(tool, path, &chain);

    rps_ckpt_chain_close(&chain);
    return code;
}

int
rps_checkpoint_report_run(const char *tool, const char *path, bool json)
{
    struct rps_checkpoint_report report = {.step = 0};
    struct rps_checkpoint_progress progress;
    struct rps_error error = {.text = ""};
    char *folder = NULL;
    rps_status status;
    int code = check_parts(tool, path);

    if (code == RPS_TOOL_OK) {
        code = rps_checkpoint_find(tool, path, &folder);
    }
    if (code != RPS_TOOL_OK) {
        return code;
    }
    rps_checkpoint_progress_begin(&progress);
    status = rps_checkpoint_verify(
            folder, rps_checkpoint_progress_show, &progress, &report, &error);
    rps_checkpoint_progress_end(&progress);
    free(folder);
    if (status != RPS_OK) {
        code = rps_tool_fail_status(tool, status, "%s", error.text);
    } else if (json) {
        code = rps_tool_print_json(to_json(&report));
    } else if (!print_text(&report)) {
        code = RPS_TOOL_FAILED;
    }
    if (status == RPS_OK && code == RPS_TOOL_OK && !all_match(&report)) {
        code = rps_tool_fail_status(tool, RPS_E_CORRUPT,
                "%s: the content is not what the manifest says", path);
    }
    rps_checkpoint_report_finish(&report);
    return code;
}
