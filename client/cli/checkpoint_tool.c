/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/checkpoint_tool.h"

#include "base/clock.h"
#include "base/text.h"
#include "embedding/checkpoint/find.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROGRESS_MS 200u

void
rps_checkpoint_progress_begin(struct rps_checkpoint_progress *progress)
{
    *progress = (struct rps_checkpoint_progress){
            .is_terminal = isatty(STDERR_FILENO) != 0};
}

void
rps_checkpoint_progress_show(void *context, uint64_t done, uint64_t total)
{
    struct rps_checkpoint_progress *progress = context;
    const uint64_t now = progress->is_terminal ? rps_clock_ms() : 0;
    char a[32];
    char b[32];

    if (!progress->is_terminal ||
            (progress->shown && now - progress->shown_ms < PROGRESS_MS)) {
        return;
    }
    progress->shown = true;
    progress->shown_ms = now;
    fprintf(stderr, "\r\033[K%s of %s (%.0f %%)", rps_format_bytes(done, a),
            rps_format_bytes(total, b),
            total > 0 ? 100.0 * (double)done / (double)total : 100.0);
    fflush(stderr);
}

void
rps_checkpoint_progress_end(struct rps_checkpoint_progress *progress)
{
    if (progress->shown) {
        fputs("\r\033[K", stderr);
        progress->shown = false;
    }
}

int
rps_checkpoint_fail(
        const char *tool, rps_status status, const struct rps_error *error)
{
    if (status == RPS_E_NOT_FOUND || status == RPS_E_MISMATCH) {
        status = RPS_E_CORRUPT;
    }
    return rps_tool_fail_status(tool, status, "%s", error->text);
}

/* A part file that is not here: is it the folder of a server's own? */
static void
hint(struct rps_error *error)
{
    const size_t n = strlen(error->text);

    snprintf(error->text + n, sizeof(error->text) - n,
            " (where servers have disks of their own, join their parts with "
            "recps gather)");
}

int
rps_checkpoint_find(const char *tool, const char *path, char **folder_out)
{
    struct rps_error error = {.text = ""};
    rps_status status;

    *folder_out = NULL;
    if (access(path, F_OK) != 0) {
        (void)rps_tool_fail_status(
                tool, RPS_E_NOT_FOUND, "%s: %s", path, strerror(errno));
        return RPS_TOOL_NOINPUT;
    }
    status = rps_ckpt_find(path, folder_out, &error);
    if (status == RPS_OK) {
        return RPS_TOOL_OK;
    }
    if (strstr(error.text, "/part-") != NULL &&
            strstr(error.text, ".json is missing") != NULL) {
        hint(&error);
    }
    (void)rps_tool_fail_status(tool, status, "%s", error.text);
    return status == RPS_E_NOT_FOUND ? RPS_TOOL_NOINPUT
                                     : rps_tool_exit_of(status);
}

int
rps_checkpoint_open(
        const char *tool, const char *path, struct rps_ckpt_chain *chain)
{
    struct rps_error error = {.text = ""};
    char *folder = NULL;
    rps_status status;
    int code = rps_checkpoint_find(tool, path, &folder);

    memset(chain, 0, sizeof(*chain));
    if (code != RPS_TOOL_OK) {
        return code;
    }
    status = rps_ckpt_chain_open_folder(chain, folder, &error);
    if (status == RPS_OK) {
        status = rps_ckpt_chain_read_parts(chain, 0, 0, &error);
        if (status == RPS_E_NOT_FOUND) {
            hint(&error);
        }
    }
    if (status != RPS_OK) {
        rps_ckpt_chain_close(chain);
        code = rps_checkpoint_fail(tool, status, &error);
    }
    free(folder);
    return code;
}

int
rps_checkpoint_memory(
        const char *tool, const struct rps_tool_flag *flag, size_t *bytes_out)
{
    uint64_t bytes = 0;

    *bytes_out = 0;
    if (flag->value == NULL) {
        return RPS_TOOL_OK;
    }
    if (!rps_parse_bytes(flag->value, &bytes) || bytes == 0 ||
            bytes > SIZE_MAX / 2) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool,
                "--memory %s is no size, such as 256m or 2g", flag->value);
    }
    *bytes_out = (size_t)bytes;
    return RPS_TOOL_OK;
}
