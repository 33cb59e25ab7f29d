/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/checkpoint_report.h"

#include "base/clock.h"
#include "base/text.h"
#include "client/cli/table_print.h"
#include "client/cli/tool.h"
#include "embedding/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_MS 200u

struct progress {
    uint64_t shown_ms;
    bool shown;
};

static void
on_progress(void *context, uint64_t done, uint64_t total)
{
    struct progress *progress = context;
    uint64_t now = rps_clock_ms();
    char a[32];
    char b[32];

    if (progress->shown && now - progress->shown_ms < PROGRESS_MS) {
        return;
    }
    progress->shown = true;
    progress->shown_ms = now;
    fprintf(stderr, "\r\033[K%s of %s (%.0f %%)", rps_format_bytes(done, a),
            rps_format_bytes(total, b),
            total > 0 ? 100.0 * (double)done / (double)total : 100.0);
    fflush(stderr);
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
    return json_pack("{s:I, s:I, s:s, s:b, s:o}", "step",
            (json_int_t)report->step, "bytes", (json_int_t)report->bytes,
            "digest", rps_digest_hex(report->digest, hex), "matches",
            (int)report->matches, "tables", tables);
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

int
rps_checkpoint_report_run(const char *tool, const char *path, bool json)
{
    bool terminal = isatty(STDERR_FILENO) != 0;
    struct rps_checkpoint_report report = {.step = 0};
    struct progress progress = {.shown = false};
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;
    int code = RPS_TOOL_OK;

    if (access(path, F_OK) != 0) {
        (void)rps_tool_fail_status(
                tool, RPS_E_NOT_FOUND, "%s: %s", path, strerror(errno));
        return RPS_TOOL_NOINPUT;
    }
    status = rps_checkpoint_verify(
            path, terminal ? on_progress : NULL, &progress, &report, &error);
    if (progress.shown) {
        fputs("\r\033[K", stderr);
    }
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
