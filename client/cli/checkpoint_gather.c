/* SPDX-License-Identifier: Apache-2.0 */
/* recps gather: the parts of servers' own disks, in one folder. */
#include "base/file.h"
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "embedding/checkpoint/beside.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/pass.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char usage[] =
        "usage: recps gather [--json] [--step N] --out DIR FOLDER... "
        "[OPTION]...\n"
        "\n"
        "Where each server has a disk of its own, its checkpoint_dir holds "
        "one\n"
        "part of every checkpoint. Join the parts: FOLDER... are the servers'\n"
        "checkpoint_dirs (or ckpt-STEP folders), DIR gets the newest step "
        "that\n"
        "all of them have, or --step, with all that it stands on. Every file\n"
        "is copied as it is and checked on the way; the manifest must be the\n"
        "same in all. What DIR has already is left as it is.\n";

enum {
    FLAG_OUT,
    FLAG_STEP
};

static struct rps_tool_flag flags[] = {
        {.name = "out",
                .argument = "DIR",
                .help = "the folder that gets the whole checkpoint"},
        {.name = "step",
                .argument = "N",
                .help = "this step, not the newest that all folders have"},
        {.name = NULL},
};

#define SOURCES_MAX 4096u

struct gathering {
    const struct rps_tool_call *call;
    const char *out;
    char *dirs[SOURCES_MAX];
    size_t count;
    uint64_t step;
    struct rps_ckpt_chain chain; /* as the first folder has it */
    struct rps_ckpt_beside beside;
    struct rps_checkpoint_progress progress;
    uint64_t done;
    uint64_t total;
    size_t copied; /* links */
};

static int
fail(rps_status status, const struct rps_error *error)
{
    return rps_checkpoint_fail("gather", status, error);
}

/* ---- which step ---- */

static bool
has_manifest(const char *dir, uint64_t step)
{
    char *path =
            rps_format("%s/ckpt-%012" PRIu64 "/" RPS_CKPT_MANIFEST, dir, step);
    const bool there = path != NULL && access(path, F_OK) == 0;

    free(path);
    return there;
}

static bool
all_have(const struct gathering *g, uint64_t step)
{
    for (size_t i = 0; i < g->count; i++) {
        if (!has_manifest(g->dirs[i], step)) {
            return false;
        }
    }
    return true;
}

static int
find_step(struct gathering *g)
{
    DIR *dir = opendir(g->dirs[0]);
    const struct dirent *entry;
    bool found = false;

    if (dir == NULL) {
        return rps_tool_fail(RPS_TOOL_NOINPUT, "gather", "%s: %s", g->dirs[0],
                strerror(errno));
    }
    while ((entry = readdir(dir)) != NULL) {
        uint64_t step;

        if (rps_ckpt_parse_step(entry->d_name, &step) &&
                (!found || step > g->step) && all_have(g, step)) {
            g->step = step;
            found = true;
        }
    }
    closedir(dir);
    if (found) {
        return RPS_TOOL_OK;
    }
    (void)rps_tool_fail_status("gather", RPS_E_NOT_FOUND,
            "there is no step that all of the folders have");
    return RPS_TOOL_NOINPUT;
}

/* A ckpt-STEP folder is its parent, and says the step. */
static int
add_source(struct gathering *g, const char *path, bool *has_step)
{
    char *real = realpath(path, NULL);
    const char *slash = real == NULL ? NULL : strrchr(real, '/');
    uint64_t step;

    if (slash == NULL) {
        free(real);
        return rps_tool_fail(
                RPS_TOOL_NOINPUT, "gather", "%s: %s", path, strerror(errno));
    }
    if (rps_ckpt_parse_step(slash + 1, &step)) {
        if (*has_step && step != g->step) {
            free(real);
            return rps_tool_fail(RPS_TOOL_USAGE, "gather",
                    "%s is another step than %" PRIu64, path, g->step);
        }
        g->step = step;
        *has_step = true;
        (void)dirname(real);
    }
    g->dirs[g->count++] = real;
    return RPS_TOOL_OK;
}

static int
read_call(struct gathering *g)
{
    const struct rps_tool_call *call = g->call;
    const char *text = call->flags[FLAG_STEP].value;
    bool has_step = text != NULL;
    int code = RPS_TOOL_OK;

    g->out = call->flags[FLAG_OUT].value;
    if (call->operand_count == 0 || g->out == NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, "gather",
                "give the servers' folders, and --out DIR");
    }
    if (has_step && (!rps_parse_u64(text, &g->step) || g->step > INT64_MAX)) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "gather", "--step %s is no step", text);
    }
    for (int i = 0; i < call->operand_count && code == RPS_TOOL_OK; i++) {
        code = add_source(g, call->operands[i], &has_step);
    }
    return code == RPS_TOOL_OK && !has_step ? find_step(g) : code;
}

/* ---- one link ---- */

/* The link of folder i, if it is there; its manifest must be the first one's.
 */
static rps_status
open_source(const struct gathering *g, const struct rps_ckpt_link *link,
        size_t i, struct rps_ckpt_folder *folder, struct rps_error *error)
{
    char *path = rps_checkpoint_path(g->dirs[i], link->manifest.step);
    struct rps_ckpt_manifest manifest;
    rps_status status = path == NULL
                                ? rps_fail(error, RPS_E_NOMEM, "no memory")
                                : rps_ckpt_folder_open(folder, path, error);

    free(path);
    if (status == RPS_OK) {
        status = rps_ckpt_manifest_read(&manifest, folder, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (!json_equal(manifest.root, link->manifest.root)) {
        status = rps_fail(error, RPS_E_MISMATCH,
                "%s has another manifest than %s: the folders are of two "
                "jobs, or of two runs of one",
                folder->path, link->folder.path);
    }
    rps_ckpt_manifest_finish(&manifest);
    return status;
}

/* Make the folders of all tables, or sync them. */
static rps_status
do_table_folders(const struct gathering *g, const struct rps_ckpt_link *link,
        rps_status (*act)(const char *path, struct rps_error *error),
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < link->manifest.table_count && status == RPS_OK;
            i++) {
        char *path = rps_format("%s/table-%s", g->beside.path,
                link->manifest.tables[i].spec.name);

        status = path == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory")
                              : act(path, error);
        free(path);
    }
    return status;
}

static rps_status
copy_one(struct gathering *g, const struct rps_ckpt_folder *folder,
        const char *name, const struct rps_ckpt_listed *listed,
        struct rps_error *error)
{
    rps_status status =
            rps_ckpt_copy(folder, name, listed, g->beside.path, error);

    g->done += listed->bytes;
    rps_checkpoint_progress_show(&g->progress, g->done, g->total);
    return status;
}

/* The files of a part first, then the part file, which says that they are
 * whole. */
static rps_status
copy_part(struct gathering *g, const struct rps_ckpt_link *link,
        const struct rps_ckpt_folder *folder, uint32_t i,
        struct rps_error *error)
{
    struct rps_ckpt_part part;
    const char *file;
    json_t *value;
    char *name = rps_ckpt_part_name(i, link->manifest.part_count);
    rps_status status =
            rps_ckpt_part_read(&part, folder, &link->manifest, i, error);

    if (status != RPS_OK || name == NULL) {
        free(name);
        return status == RPS_OK ? rps_fail(error, RPS_E_NOMEM, "no memory")
                                : status;
    }
    json_object_foreach(part.files, file, value)
    {
        struct rps_ckpt_listed listed;

        (void)rps_ckpt_listed_parse(value, &listed);
        status = copy_one(g, folder, file, &listed, error);
        if (status != RPS_OK) {
            break;
        }
    }
    if (status == RPS_OK) {
        status = copy_one(g, folder, name, &link->manifest.parts[i], error);
    }
    rps_ckpt_part_finish(&part);
    free(name);
    return status;
}

static bool
has_file(const struct rps_ckpt_folder *folder, uint32_t i, uint32_t parts)
{
    char *name = rps_ckpt_part_name(i, parts);
    uint64_t bytes;
    int fd = -1;
    const bool there = name != NULL && rps_ckpt_folder_file(folder, name, &fd,
                                               &bytes, NULL) == RPS_OK;

    if (fd >= 0) {
        close(fd);
    }
    free(name);
    return there;
}

/* Each part from the first folder that has it. */
static rps_status
copy_parts(struct gathering *g, const struct rps_ckpt_link *link,
        struct rps_error *error)
{
    const uint32_t n = link->manifest.part_count;
    bool *copied = calloc(n, sizeof(*copied));
    rps_status status =
            copied == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory") : RPS_OK;

    for (size_t k = 0; k < g->count && status == RPS_OK; k++) {
        struct rps_ckpt_folder folder = {.fd = -1};

        status = open_source(g, link, k, &folder, error);
        for (uint32_t i = 0; i < n && status == RPS_OK; i++) {
            if (!copied[i] && has_file(&folder, i, n)) {
                status = copy_part(g, link, &folder, i, error);
                copied[i] = true;
            }
        }
        rps_ckpt_folder_close(&folder);
    }
    for (uint32_t i = 0; i < n && status == RPS_OK; i++) {
        if (!copied[i]) {
            status = rps_fail(error, RPS_E_NOT_FOUND,
                    "part-%" PRIu32 "-of-%" PRIu32 ".json of ckpt-%012" PRIu64
                    " is in none of the folders",
                    i, n, link->manifest.step);
        }
    }
    free(copied);
    return status;
}

/* Last: then the link is whole. */
static rps_status
copy_manifest(struct gathering *g, const struct rps_ckpt_link *link,
        struct rps_error *error)
{
    static const char *const names[] = {
            RPS_CKPT_MANIFEST ".xxh3", RPS_CKPT_MANIFEST};
    rps_status status = RPS_OK;

    for (size_t i = 0; i < 2 && status == RPS_OK; i++) {
        struct rps_ckpt_listed listed;

        status = rps_ckpt_measure(&link->folder, names[i], &listed, error);
        if (status == RPS_OK) {
            status = rps_ckpt_copy(
                    &link->folder, names[i], &listed, g->beside.path, error);
        }
    }
    return status == RPS_OK ? rps_dir_sync(g->beside.path, error) : status;
}

/* What is there already must be the same. */
static rps_status
is_there(const struct gathering *g, const struct rps_ckpt_link *link,
        bool *there, struct rps_error *error)
{
    char *path = rps_checkpoint_path(g->out, link->manifest.step);
    struct rps_ckpt_folder folder = {.fd = -1};
    struct rps_ckpt_manifest manifest;
    rps_status status = RPS_OK;

    *there = path != NULL && access(path, F_OK) == 0;
    if (*there) {
        status = rps_ckpt_folder_open(&folder, path, error);
        if (status == RPS_OK) {
            status = rps_ckpt_manifest_read(&manifest, &folder, error);
        }
        if (status == RPS_OK) {
            status = json_equal(manifest.root, link->manifest.root)
                             ? RPS_OK
                             : rps_fail(error, RPS_E_MISMATCH,
                                       "%s is there already, and another: "
                                       "nothing was replaced",
                                       path);
            rps_ckpt_manifest_finish(&manifest);
        }
        rps_ckpt_folder_close(&folder);
    }
    free(path);
    return status;
}

static rps_status
gather_link(struct gathering *g, const struct rps_ckpt_link *link,
        struct rps_error *error)
{
    bool there = false;
    rps_status status = is_there(g, link, &there, error);

    if (status != RPS_OK || there) {
        return status;
    }
    status = rps_ckpt_beside_open(&g->beside, g->out, link->manifest.step,
            link->manifest.epoch, error);
    if (status == RPS_OK) {
        status = do_table_folders(g, link, rps_dir_make, error);
    }
    if (status == RPS_OK) {
        status = copy_parts(g, link, error);
    }
    if (status == RPS_OK) {
        status = do_table_folders(g, link, rps_dir_sync, error);
    }
    if (status == RPS_OK) {
        status = copy_manifest(g, link, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_beside_install(&g->beside, false, error);
    }
    rps_ckpt_beside_close(&g->beside);
    g->copied += status == RPS_OK ? 1 : 0;
    return status;
}

static int
answer(const struct gathering *g)
{
    char *path = rps_checkpoint_path(g->out, g->step);
    int code = RPS_TOOL_OK;

    if (path == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "gather", "no memory");
    }
    if (g->call->options->json) {
        code = rps_tool_print_json(json_pack("{s:s, s:I, s:I, s:I}",
                "checkpoint", path, "step", (json_int_t)g->step, "links",
                (json_int_t)g->chain.count, "copied", (json_int_t)g->copied));
    } else {
        printf("%s: %" PRIu32 " links, %zu of them copied now\n", path,
                g->chain.count, g->copied);
    }
    free(path);
    return code;
}

/* Rows are most of it: what their parts list is not known before. */
static void
guess_total(struct gathering *g)
{
    for (uint32_t i = 0; i < g->chain.count; i++) {
        const struct rps_ckpt_manifest *manifest = &g->chain.links[i].manifest;

        for (size_t k = 0; k < manifest->table_count; k++) {
            g->total += manifest->tables[k].rows *
                        (manifest->tables[k].spec.dim + 4) * sizeof(float);
        }
    }
}

/* The oldest link first: whoever is stopped leaves complete ones. */
static int
gather(struct gathering *g)
{
    struct rps_error error = {.text = ""};
    rps_status status =
            rps_ckpt_chain_open(&g->chain, g->dirs[0], g->step, &error);

    if (status == RPS_OK) {
        guess_total(g);
        rps_checkpoint_progress_begin(&g->progress);
        for (uint32_t i = 0; i < g->chain.count && status == RPS_OK; i++) {
            status = gather_link(g, &g->chain.links[i], &error);
        }
        rps_checkpoint_progress_end(&g->progress);
    }
    return status == RPS_OK ? answer(g) : fail(status, &error);
}

static int
run(const struct rps_tool_call *call)
{
    struct gathering *g = calloc(1, sizeof(*g));
    int code;

    if (g == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "gather", "no memory");
    }
    g->call = call;
    g->beside.fd = -1;
    code = read_call(g);
    if (code == RPS_TOOL_OK) {
        code = gather(g);
    }
    rps_ckpt_chain_close(&g->chain);
    for (size_t i = 0; i < g->count; i++) {
        free(g->dirs[i]);
    }
    free(g);
    return code;
}

const struct rps_tool rps_tool_gather = {
        .name = "gather",
        .usage = usage,
        .summary = "join the parts of servers' own disks",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .takes_folder = true,
        .run = run,
};
