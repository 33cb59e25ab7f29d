/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps restore --orphans: a checkpoint of the parts that servers wrote by
 * themselves at a stop. Offline: it makes files, and asks no server.
 *
 * Files are linked (or copied) first and the orphans removed last, so that
 * whatever ends it on the way, the parts are still there.
 */
#include "base/text.h"
#include "client/cli/orphans.h"
#include "client/cli/tool.h"
#include "client/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char usage[] =
        "usage: recps restore --orphans [--json] DIR...\n"
        "\n"
        "Make a checkpoint of the parts that servers wrote by themselves when\n"
        "they were stopped and no chief saved (DIR/orphan-STEP). DIR is the\n"
        "checkpoint_dir; where each server has a disk of its own, all of\n"
        "them. The job then begins from it with --restore.\n";

static struct rps_tool_flag flags[] = {
        {.name = "orphans", .help = "what is restored; there is nothing else"},
        {.name = NULL},
};

/* What PREPARE would have answered, by part; NULL: no memory. */
static json_t **
answers_of(const struct rps_orphans *orphans)
{
    json_t **answers = calloc(orphans->parts, sizeof(json_t *));

    for (uint32_t i = 0; answers != NULL && i < orphans->parts; i++) {
        answers[i] = orphans->at[i].answer;
    }
    return answers;
}

static rps_status
make_manifest(const struct rps_orphans *orphans, char **manifest_out,
        struct rps_manifest_sums *sums, struct rps_error *error)
{
    json_t **answers = answers_of(orphans);
    struct rps_manifest_plan plan = {.step = orphans->step,
            .epoch = orphans->epoch,
            .job_id = orphans->job_id,
            .job_seed = orphans->job_seed,
            .answers = answers,
            .parts = orphans->parts,
            .sums = sums};
    rps_status status =
            answers == NULL ? rps_fail(error, RPS_E_NOMEM, "out of memory")
                            : rps_manifest_build(&plan, manifest_out, error);

    free(answers);
    return status;
}

static int
print(const struct rps_tool_call *call, const struct rps_orphans *orphans,
        const struct rps_manifest_sums *sums)
{
    char size[32];

    if (call->options->json) {
        return rps_tool_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:b}",
                "done", "restore", "step", (json_int_t)orphans->step, "parts",
                (json_int_t)orphans->parts, "rows", (json_int_t)sums->rows,
                "bytes", (json_int_t)sums->bytes, "one_instant",
                orphans->is_sync));
    }
    printf("ckpt-%012" PRIu64 ": %" PRIu64 " rows, %s, of %" PRIu32
           " parts%s\n",
            orphans->step, sums->rows, rps_format_bytes(sums->bytes, size),
            orphans->parts,
            orphans->is_sync ? ""
                             : ", each of its own moment (the job was not "
                               "sync)");
    return RPS_TOOL_OK;
}

static int
restore(const struct rps_tool_call *call)
{
    struct rps_orphans orphans = {.parts = 0};
    struct rps_manifest_sums sums = {0};
    struct rps_error error = {.text = ""};
    char *manifest = NULL;
    int code = RPS_TOOL_OK;
    rps_status status = rps_orphans_find(
            &orphans, call->operands, (size_t)call->operand_count, &error);

    if (status == RPS_OK) {
        status = rps_orphans_stage(&orphans, &error);
    }
    if (status == RPS_OK) {
        status = make_manifest(&orphans, &manifest, &sums, &error);
    }
    if (status == RPS_OK) {
        status = rps_orphans_commit(&orphans, manifest, &error);
    }
    if (status == RPS_OK) {
        code = print(call, &orphans, &sums);
    } else if (status == RPS_E_NOT_FOUND) {
        (void)rps_tool_fail_status("restore", status, "%s", error.text);
        code = RPS_TOOL_NOINPUT;
    } else {
        code = rps_tool_fail_status("restore", status, "%s", error.text);
    }
    free(manifest);
    rps_orphans_finish(&orphans);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    if (call->flags[0].value == NULL || call->operand_count == 0) {
        return rps_tool_fail(RPS_TOOL_USAGE, "restore",
                "give --orphans and the folder of checkpoints; a checkpoint "
                "is restored by the job itself (recps-train --restore)");
    }
    return restore(call);
}

const struct rps_tool rps_tool_restore = {
        .name = "restore",
        .usage = usage,
        .summary = "make a checkpoint of what servers wrote at a stop",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_folder = true,
        .run = run,
};
