/* SPDX-License-Identifier: Apache-2.0 */
/* recps precision WORD: the words, once. Each is a file of its own. */
#include "client/cli/precision.h"

#include "base/text.h"

#include <stdlib.h>

static const char usage[] =
        "usage: recps precision COMMAND [OPTION]...\n"
        "\n"
        "Find where two runs part. `recps precision COMMAND --help` lists a\n"
        "command's options; docs/PRECISION.md leads from what is wrong to the\n"
        "command that finds it.\n";

static const struct rps_tool *const parts[] = {
        &rps_tool_precision_check,
        &rps_tool_precision_compare,
        &rps_tool_precision_ckpt,
        &rps_tool_precision_runs,
        &rps_tool_precision_nan,
        &rps_tool_precision_replay,
        &rps_tool_precision_ac,
        &rps_tool_precision_vcs,
        &rps_tool_precision_vc,
        &rps_tool_precision_ni,
        &rps_tool_precision_shell,
        NULL,
};

static int
run(const struct rps_tool_call *call)
{
    struct rps_text names = {.bytes = NULL};
    int code;

    for (size_t i = 0; parts[i] != NULL; i++) {
        rps_text_add(
                &names, "%s%s", i > 0 ? ", " : "", rps_tool_word(parts[i]));
    }
    code = rps_tool_fail(RPS_TOOL_USAGE, "precision", "give a command: %s",
            names.failed ? "see --help" : names.bytes);
    rps_text_finish(&names);
    return code;
}

const struct rps_tool rps_tool_precision = {
        .name = "precision",
        .usage = usage,
        .summary = "find where two runs part",
        .scope = RPS_SCOPE_TOOL,
        .parts = parts,
        .run = run,
};
