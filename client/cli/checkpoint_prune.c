/* SPDX-License-Identifier: Apache-2.0 */
/* recps prune: remove old checkpoints of a folder, without a job. */
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "embedding/checkpoint/prune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
        "usage: recps prune [--json] --keep N [--dry-run] DIR [OPTION]...\n"
        "\n"
        "Remove all but the newest N complete checkpoints of a "
        "checkpoint_dir,\n"
        "as a save does: what a kept one stands on stays, and so do steps\n"
        "beyond the newest that was not abandoned, what is not complete, and\n"
        "other names. A job may go on saving there meanwhile.\n";

enum {
    FLAG_KEEP,
    FLAG_DRY_RUN,
    FLAG_PART
};

static struct rps_tool_flag flags[] = {
        {.name = "keep", .argument = "N", .help = "so many stay: 1 or more"},
        {.name = "dry-run", .help = "say what would go, and remove nothing"},
        {.name = "part",
                .argument = "I/N",
                .help = "the folder is on a server's own disk and has part I "
                        "of N of each checkpoint (0/2: the first of two)"},
        {.name = NULL},
};

static int
read_part(struct rps_checkpoint_id *id, const char *text)
{
    const char *slash = strchr(text, '/');
    char first[16];
    uint64_t part = 0;
    uint64_t parts = 0;

    if (slash != NULL && (size_t)(slash - text) < sizeof(first)) {
        memcpy(first, text, (size_t)(slash - text));
        first[slash - text] = '\0';
        if (rps_parse_u64(first, &part) && rps_parse_u64(slash + 1, &parts) &&
                part < parts && parts <= RPS_SLOT_COUNT) {
            id->part = (uint32_t)part;
            id->parts = (uint32_t)parts;
            return RPS_TOOL_OK;
        }
    }
    return rps_tool_fail(RPS_TOOL_USAGE, "prune",
            "--part %s is no part of so many, such as 0/2", text);
}

static int
read_call(const struct rps_tool_call *call, struct rps_checkpoint_id *id,
        uint32_t *keep_out)
{
    const char *part = call->flags[FLAG_PART].value;
    const char *text = call->flags[FLAG_KEEP].value;
    uint64_t keep = 0;

    if (call->operand_count != 1) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "prune", "give the folder of the checkpoints");
    }
    if (text == NULL || !rps_parse_u64(text, &keep) || keep < 1 ||
            keep > UINT32_MAX) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "prune", "give --keep N, 1 or more");
    }
    *keep_out = (uint32_t)keep;
    *id = (struct rps_checkpoint_id){.dir = call->operands[0]};
    return part == NULL ? RPS_TOOL_OK : read_part(id, part);
}

/* As if the newest of what is there had just been saved: what a live job
 * writes is of a later step, and is left alone. */
static bool
find_newest(const struct rps_checkpoint_survey *survey,
        struct rps_checkpoint_id *id)
{
    for (size_t i = survey->count; i-- > 0;) {
        if (!survey->complete[i].abandoned) {
            id->step = survey->complete[i].step;
            id->epoch = survey->complete[i].epoch;
            return true;
        }
    }
    return false;
}

static bool
is_gone(const struct rps_checkpoint_id *id, uint64_t step)
{
    char *path = rps_checkpoint_path(id->dir, step);
    const bool gone = path != NULL && access(path, F_OK) != 0;

    free(path);
    return gone;
}

/* What went, or would go; what stays. */
static int
answer(const struct rps_tool_call *call, const struct rps_checkpoint_id *id,
        const struct rps_checkpoint_survey *survey, const bool *kept)
{
    const bool dry = call->flags[FLAG_DRY_RUN].value != NULL;
    json_t *removed = json_array();
    json_t *left = json_array();
    int code = RPS_TOOL_OK;

    for (size_t i = 0; i < survey->count; i++) {
        const uint64_t step = survey->complete[i].step;
        const bool goes = dry ? !kept[i] : is_gone(id, step);

        json_array_append_new(
                goes ? removed : left, json_integer((json_int_t)step));
        if (goes && !call->options->json) {
            printf("ckpt-%012" PRIu64 "%s\n", step,
                    dry ? " would be removed" : " removed");
        }
    }
    if (call->options->json) {
        code = rps_tool_print_json(json_pack("{s:o, s:o, s:b}", "removed",
                removed, "kept", left, "dry_run", (int)dry));
    } else {
        printf("%zu removed, %zu kept\n", json_array_size(removed),
                json_array_size(left));
        json_decref(removed);
        json_decref(left);
    }
    return code;
}

static int
prune(const struct rps_tool_call *call, struct rps_checkpoint_id *id,
        uint32_t keep, const struct rps_checkpoint_survey *survey)
{
    struct rps_error error = {.text = ""};
    bool *kept;
    int code;

    if (!find_newest(survey, id)) {
        return rps_tool_fail(
                survey->unusable_count > 0 ? RPS_TOOL_FAILED : RPS_TOOL_NOINPUT,
                "prune", "%s: no checkpoint that is complete%s", id->dir,
                id->parts == 0 && survey->unusable_count > 0
                        ? "; where a server has a disk of its own, give --part"
                        : "");
    }
    kept = rps_ckpt_prune_kept(survey, id->step, keep);
    if (kept == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "prune", "no memory");
    }
    if (call->flags[FLAG_DRY_RUN].value == NULL) {
        rps_ckpt_prune(id, keep, &error);
    }
    code = error.text[0] == '\0'
                   ? answer(call, id, survey, kept)
                   : rps_tool_fail_status("prune", RPS_E_IO, "%s", error.text);
    free(kept);
    return code;
}

static int
run(const struct rps_tool_call *call)
{
    struct rps_checkpoint_survey survey;
    struct rps_checkpoint_id id;
    struct rps_error error = {.text = ""};
    uint32_t keep = 0;
    rps_status status;
    int code = read_call(call, &id, &keep);

    if (code != RPS_TOOL_OK) {
        return code;
    }
    if (access(id.dir, F_OK) != 0) {
        return rps_tool_fail(
                RPS_TOOL_NOINPUT, "prune", "%s: %s", id.dir, strerror(errno));
    }
    status = rps_checkpoint_survey(id.dir, id.part, id.parts, &survey, &error);
    if (status != RPS_OK) {
        return rps_tool_fail_status("prune", status, "%s", error.text);
    }
    code = prune(call, &id, keep, &survey);
    rps_checkpoint_survey_finish(&survey);
    return code;
}

const struct rps_tool rps_tool_prune = {
        .name = "prune",
        .usage = usage,
        .summary = "remove old checkpoints of a folder",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
