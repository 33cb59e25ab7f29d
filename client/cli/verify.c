/* SPDX-License-Identifier: Apache-2.0 */
/* recps verify DIR: read a checkpoint whole and recompute what it claims. */
#include "client/cli/checkpoint_report.h"
#include "client/cli/tool.h"

static const char usage[] =
        "usage: recps verify [--json] DIR\n"
        "\n"
        "Read a checkpoint (a ckpt-STEP folder, or a checkpoint_dir: its\n"
        "newest complete step) and recompute every checksum and digest.\n"
        "Exit code 0: all agree; 65: damaged, and the part is named.\n";

static int
run(const struct rps_tool_call *call)
{
    if (call->operand_count != 1) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "verify", "give the checkpoint's folder");
    }
    return rps_checkpoint_report_run(
            "verify", call->operands[0], call->options->json);
}

const struct rps_tool rps_tool_verify = {
        .name = "verify",
        .usage = usage,
        .summary = "recompute a checkpoint's checksums and digests",
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
