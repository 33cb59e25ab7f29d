/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps compact: a delta and all that it stands on as one full checkpoint.
 * recps reshard: the same with another number of parts.
 */
#include "base/digest.h"
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "embedding/checkpoint/rewrite.h"

#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char compact_usage[] =
        "usage: recps compact [--json] [--out DIR] CKPT [OPTION]...\n"
        "\n"
        "Fold a delta and all that it stands on into one full checkpoint of\n"
        "the same step and the same content digest. It takes the delta's\n"
        "place when all of it is on the disk and has been read again, unless\n"
        "--out names another folder; deltas that stand on it go on doing so.\n"
        "What it stood on stays: `recps prune` removes what nobody needs.\n"
        "CKPT is a ckpt-STEP folder, or a checkpoint_dir: its newest step\n"
        "that was not abandoned.\n";

static const char reshard_usage[] =
        "usage: recps reshard [--json] --parts N [--out DIR] CKPT "
        "[OPTION]...\n"
        "\n"
        "Write a checkpoint anew, as a full one of N parts, with the same\n"
        "content digest. A restore does not need it: any number of servers\n"
        "reads any number of parts; each reads less where they are the same.\n"
        "It takes the place of what was there, unless --out names another\n"
        "folder. CKPT is a ckpt-STEP folder, or a checkpoint_dir: its newest\n"
        "step that was not abandoned.\n";

enum {
    FLAG_OUT,
    FLAG_MEMORY,
    FLAG_PARTS
};

#define OUT_FLAG                                                       \
    {                                                                  \
        .name = "out", .argument = "DIR",                              \
        .help = "write DIR/ckpt-STEP and leave what is there as it is" \
    }

static struct rps_tool_flag compact_flags[] = {
        OUT_FLAG,
        RPS_MEMORY_FLAG,
        {.name = NULL},
};

static struct rps_tool_flag reshard_flags[] = {
        OUT_FLAG,
        RPS_MEMORY_FLAG,
        {.name = "parts",
                .argument = "N",
                .help = "so many parts, 1 to 4096: as the job has servers"},
        {.name = NULL},
};

struct rewriting {
    const char *tool;
    const char *path;
    const char *out; /* NULL: in its place */
    bool json;
    uint32_t parts;
    struct rps_ckpt_chain chain;
    struct rps_ckpt_rewrite how;
};

/* Where the folder stands, under the name that its step has. */
static int
own_place(const struct rewriting *r, char **dir_out)
{
    const struct rps_ckpt_link *last = &r->chain.links[r->chain.count - 1];
    char *real = realpath(last->folder.path, NULL);
    const char *slash = real == NULL ? NULL : strrchr(real, '/');
    uint64_t step = 0;

    *dir_out = real;
    if (slash == NULL || !rps_ckpt_parse_step(slash + 1, &step) ||
            step != last->manifest.step) {
        return rps_tool_fail(RPS_TOOL_USAGE, r->tool,
                "%s is not named ckpt-%012" PRIu64
                ": give --out, nothing can take its place",
                last->folder.path, last->manifest.step);
    }
    *dir_out = dirname(real);
    return RPS_TOOL_OK;
}

static int
answer(const struct rewriting *r, const char *dir, bool written,
        struct rps_digest digest)
{
    const struct rps_ckpt_manifest *manifest =
            &r->chain.links[r->chain.count - 1].manifest;
    char hex[RPS_DIGEST_HEX_BYTES];
    char *path = rps_format("%s/ckpt-%012" PRIu64, dir, manifest->step);
    int code = RPS_TOOL_OK;

    rps_digest_hex(digest, hex);
    if (path == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, r->tool, "no memory");
    }
    if (r->json) {
        code = rps_tool_print_json(json_pack("{s:s, s:b, s:I, s:I, s:s, s:I}",
                "checkpoint", path, "written", (int)written, "step",
                (json_int_t)manifest->step, "parts",
                (json_int_t)(r->parts == 0 ? manifest->part_count : r->parts),
                "digest", hex, "links", (json_int_t)r->chain.count));
    } else if (written) {
        printf("%s: full, %" PRIu32 " parts, of %" PRIu32 " links, digest %s\n",
                path, r->parts == 0 ? manifest->part_count : r->parts,
                r->chain.count, hex);
    } else {
        printf("%s is that already: nothing was written\n", path);
    }
    free(path);
    return code;
}

static int
rewrite(struct rewriting *r, const char *dir)
{
    const struct rps_ckpt_manifest *manifest =
            &r->chain.links[r->chain.count - 1].manifest;
    struct rps_checkpoint_progress progress;
    struct rps_error error = {.text = ""};
    struct rps_digest digest = manifest->digest;
    rps_status status;

    if (r->out == NULL && r->chain.count == 1 &&
            (r->parts == 0 || r->parts == manifest->part_count)) {
        return answer(r, dir, false, digest);
    }
    rps_checkpoint_progress_begin(&progress);
    r->how.chain = &r->chain;
    r->how.dir = dir;
    r->how.parts = r->parts;
    r->how.replace = r->out == NULL;
    r->how.progress = rps_checkpoint_progress_show;
    r->how.context = &progress;
    status = rps_ckpt_rewrite(&r->how, &digest, &error);
    rps_checkpoint_progress_end(&progress);
    if (status != RPS_OK) {
        return rps_tool_fail_status(r->tool, status, "%s", error.text);
    }
    if (error.text[0] != '\0') {
        fprintf(stderr, "recps %s: done, but: %s\n", r->tool, error.text);
    }
    return answer(r, dir, true, digest);
}

static int
run_rewrite(struct rewriting *r)
{
    char *dir = NULL;
    int code = rps_checkpoint_open(r->tool, r->path, &r->chain);

    if (code != RPS_TOOL_OK) {
        return code;
    }
    if (r->out == NULL) {
        code = own_place(r, &dir);
    }
    if (code == RPS_TOOL_OK) {
        code = rewrite(r, r->out == NULL ? dir : r->out);
    }
    free(dir);
    rps_ckpt_chain_close(&r->chain);
    return code;
}

static int
begin(struct rewriting *r, const char *tool, const struct rps_tool_call *call)
{
    if (call->operand_count != 1) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, tool, "give the checkpoint's folder");
    }
    r->tool = tool;
    r->path = call->operands[0];
    r->out = call->flags[FLAG_OUT].value;
    r->json = call->options->json;
    return rps_checkpoint_memory(
            tool, &call->flags[FLAG_MEMORY], &r->how.memory_bytes);
}

static int
run_compact(const struct rps_tool_call *call)
{
    struct rewriting r = {.parts = 0};
    int code = begin(&r, "compact", call);

    return code == RPS_TOOL_OK ? run_rewrite(&r) : code;
}

static int
run_reshard(const struct rps_tool_call *call)
{
    const char *text = call->flags[FLAG_PARTS].value;
    struct rewriting r = {.parts = 0};
    uint64_t parts = 0;
    int code = begin(&r, "reshard", call);

    if (code == RPS_TOOL_OK && (text == NULL || !rps_parse_u64(text, &parts) ||
                                       parts < 1 || parts > RPS_SLOT_COUNT)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "reshard",
                "give --parts N, 1 to %u", RPS_SLOT_COUNT);
    }
    r.parts = (uint32_t)parts;
    return code == RPS_TOOL_OK ? run_rewrite(&r) : code;
}

const struct rps_tool rps_tool_compact = {
        .name = "compact",
        .usage = compact_usage,
        .summary = "fold a delta and what it stands on into a full checkpoint",
        .flags = compact_flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run_compact,
};

const struct rps_tool rps_tool_reshard = {
        .name = "reshard",
        .usage = reshard_usage,
        .summary = "write a checkpoint with another number of parts",
        .flags = reshard_flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run_reshard,
};
