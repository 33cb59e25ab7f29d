/* SPDX-License-Identifier: Apache-2.0 */
/* recps unarchive: a checkpoint of an archive again. */
#include "base/file.h"
#include "base/text.h"
#include "client/cli/archive_stream.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/tar.h"
#include "embedding/checkpoint/beside.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/rewrite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)1 << 20)

static const char usage[] =
        "usage: recps unarchive [--json] [--keep-bf16] --out DIR FILE\n"
        "                       [OPTION]...\n"
        "\n"
        "Make DIR/ckpt-STEP of an archive that `recps archive` (or tar) "
        "wrote.\n"
        "It is read again and its digests are recomputed before it gets its\n"
        "name. Rows that were rounded to bfloat16 become float32 again, with\n"
        "the values that they were rounded to.\n";

enum {
    FLAG_OUT,
    FLAG_KEEP_BF16
};

static struct rps_tool_flag flags[] = {
        {.name = "out",
                .argument = "DIR",
                .help = "the checkpoint_dir that gets it"},
        {.name = "keep-bf16",
                .help = "leave rounded rows as the bfloat16 that they are in "
                        "the archive"},
        {.name = NULL},
};

struct unarchiving {
    const struct rps_tool_call *call;
    const char *file;
    const char *out;
    struct rps_archive_reader *reader;
    struct rps_ckpt_beside beside;
    bool begun;
    uint64_t step;
    struct rps_checkpoint_progress progress;
    struct rps_digest digest;
    unsigned char *buffer;
    const json_t *archived; /* names of tables; of a chain's manifest */
};

static rps_status
damaged(const struct unarchiving *u, const char *why, struct rps_error *error)
{
    return rps_fail(error, RPS_E_CORRUPT, "%s: %s", u->file, why);
}

/* ---- files ---- */

/* "ckpt-<step>/<a file of a checkpoint>", of one step: nothing leads out. */
static rps_status
plain_name(struct unarchiving *u, const char *full, const char **name_out,
        struct rps_error *error)
{
    const char *slash = strchr(full, '/');
    char folder[32];
    uint64_t step;

    if (slash == NULL || (size_t)(slash - full) >= sizeof(folder)) {
        return damaged(u, "it holds a name that is no checkpoint's", error);
    }
    memcpy(folder, full, (size_t)(slash - full));
    folder[slash - full] = '\0';
    *name_out = slash + 1;
    if (!rps_ckpt_parse_step(folder, &step) || (u->begun && step != u->step) ||
            (**name_out != '\0' && !rps_ckpt_name_is_plain(*name_out))) {
        return damaged(u, "it holds a name that is no checkpoint's", error);
    }
    if (!u->begun) {
        u->begun = true;
        u->step = step;
        /* a name that no rewriting takes: its epoch is a manifest's */
        return rps_ckpt_beside_open(
                &u->beside, u->out, step, UINT32_MAX, error);
    }
    return RPS_OK;
}

static rps_status
copy_bytes(struct unarchiving *u, int fd, const char *path, uint64_t bytes,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    while (bytes > 0 && status == RPS_OK) {
        const size_t n = bytes < BUFFER_BYTES ? (size_t)bytes : BUFFER_BYTES;

        status = rps_archive_read(u->reader, u->buffer, n, error);
        if (status == RPS_OK) {
            status = rps_fd_write_all(fd, u->buffer, n, path, error);
        }
        rps_checkpoint_progress_show(&u->progress,
                rps_archive_reader_done(u->reader),
                rps_archive_reader_total(u->reader));
        bytes -= n;
    }
    return status;
}

static rps_status
make_parent(
        const struct unarchiving *u, const char *name, struct rps_error *error)
{
    const char *slash = strchr(name, '/');
    char *path;
    rps_status status;

    if (slash == NULL) {
        return RPS_OK;
    }
    path = rps_format("%s/%.*s", u->beside.path, (int)(slash - name), name);
    status = path == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory")
                          : rps_dir_make(path, error);
    free(path);
    return status;
}

static rps_status
extract_file(struct unarchiving *u, const char *name, uint64_t bytes,
        struct rps_error *error)
{
    char *path = rps_format("%s/%s", u->beside.path, name);
    rps_status status = make_parent(u, name, error);
    int fd = -1;

    if (path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    if (status == RPS_OK) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                0640);
        if (fd < 0) {
            status = rps_fail(error, RPS_E_IO, "%s: cannot create: %s", path,
                    strerror(errno));
        }
    }
    if (status == RPS_OK) {
        status = copy_bytes(u, fd, path, bytes, error);
    }
    if (status == RPS_OK && fsync(fd) != 0) {
        status = rps_fail(
                error, RPS_E_IO, "%s: fsync: %s", path, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
    free(path);
    return status == RPS_OK ? rps_archive_read(u->reader, u->buffer,
                                      rps_tar_padding(bytes), error)
                            : status;
}

static rps_status
extract(struct unarchiving *u, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (;;) {
        struct rps_tar_entry entry;
        char block[RPS_TAR_BLOCK_BYTES];
        const char *name = NULL;

        status = rps_archive_read(u->reader, block, sizeof(block), error);
        if (status == RPS_OK && !rps_tar_read(block, &entry)) {
            status = damaged(u, "no tar archive of files and folders", error);
        }
        if (status != RPS_OK || entry.is_end) {
            break;
        }
        if (entry.is_folder) {
            continue;
        }
        status = plain_name(u, entry.name, &name, error);
        if (status == RPS_OK && *name != '\0') {
            status = extract_file(u, name, entry.bytes, error);
        }
        if (status != RPS_OK) {
            break;
        }
    }
    return status == RPS_OK && !u->begun ? damaged(u, "it is empty", error)
                                         : status;
}

/* ---- what was extracted ---- */

static rps_status
sync_folders(const struct unarchiving *u, const struct rps_ckpt_chain *chain,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest = &chain->links[0].manifest;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < manifest->table_count && status == RPS_OK; i++) {
        char *path = rps_format(
                "%s/table-%s", u->beside.path, manifest->tables[i].spec.name);

        status = path == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory")
                              : rps_dir_sync(path, error);
        free(path);
    }
    return status == RPS_OK ? rps_dir_sync(u->beside.path, error) : status;
}

static bool
was_rounded(const struct unarchiving *u, const char *table)
{
    const json_t *name;
    size_t i;

    json_array_foreach(u->archived, i, name)
    {
        if (json_is_string(name) &&
                strcmp(json_string_value(name), table) == 0) {
            return true;
        }
    }
    return false;
}

static void
widen_table(void *context, rps_table_spec *spec)
{
    const struct unarchiving *u = context;

    if (spec->value_dtype == RPS_VALUE_BF16 && was_rounded(u, spec->name)) {
        spec->value_dtype = RPS_VALUE_F32;
    }
}

static rps_status
install(struct unarchiving *u, struct rps_ckpt_chain *chain,
        struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest = &chain->links[0].manifest;
    const struct rps_ckpt_rewrite how = {
            .chain = chain, .dir = u->out, .respec = widen_table, .context = u};

    u->archived = json_object_get(manifest->root, RPS_CKPT_ARCHIVED);
    if (json_array_size(u->archived) == 0 ||
            u->call->flags[FLAG_KEEP_BF16].value != NULL) {
        return rps_ckpt_beside_install(&u->beside, false, error);
    }
    return rps_ckpt_rewrite(&how, &u->digest, error);
}

/* What was wrong in the hidden folder is so in the archive. */
static void
name_archive(const struct unarchiving *u, struct rps_error *error)
{
    const struct rps_error words = *error;
    const char *path = u->beside.path;
    const char *at = words.text;
    size_t n = 0;

    error->text[0] = '\0';
    while (*at != '\0' && n < sizeof(error->text)) {
        const char *next = strstr(at, path);
        const size_t length = next == NULL ? strlen(at) : (size_t)(next - at);

        n += (size_t)snprintf(error->text + n, sizeof(error->text) - n,
                "%.*s%s", (int)length, at, next == NULL ? "" : u->file);
        at += length + (next == NULL ? 0 : strlen(path));
    }
}

static rps_status
check(struct unarchiving *u, struct rps_error *error)
{
    struct rps_checkpoint_report report;
    rps_status status = rps_checkpoint_verify(u->beside.path,
            rps_checkpoint_progress_show, &u->progress, &report, error);

    u->digest = report.digest;
    if (status == RPS_OK && report.step != u->step) {
        status = damaged(u, "its manifest is of another step", error);
    }
    rps_checkpoint_report_finish(&report);
    if (status != RPS_OK && status != RPS_E_IO && status != RPS_E_NOMEM) {
        name_archive(u, error);
    }
    return status;
}

static rps_status
finish(struct unarchiving *u, struct rps_error *error)
{
    struct rps_ckpt_chain chain = {.count = 0};
    rps_status status = check(u, error);

    if (status == RPS_OK) {
        status = rps_ckpt_chain_open_folder(&chain, u->beside.path, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_chain_read_parts(&chain, 0, 0, error);
    }
    if (status == RPS_OK && chain.count > 1) {
        status = damaged(u, "it holds a delta", error);
    }
    if (status == RPS_OK) {
        status = sync_folders(u, &chain, error);
    }
    if (status == RPS_OK) {
        status = install(u, &chain, error);
    }
    rps_ckpt_chain_close(&chain);
    return status;
}

static int
answer(const struct unarchiving *u)
{
    char *path = rps_checkpoint_path(u->out, u->step);
    char hex[RPS_DIGEST_HEX_BYTES];
    int code = RPS_TOOL_OK;

    if (path == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "unarchive", "no memory");
    }
    rps_digest_hex(u->digest, hex);
    if (u->call->options->json) {
        code = rps_tool_print_json(json_pack("{s:s, s:I, s:s}", "checkpoint",
                path, "step", (json_int_t)u->step, "digest", hex));
    } else {
        printf("%s: digest %s\n", path, hex);
    }
    free(path);
    return code;
}

static int
unarchive(struct unarchiving *u)
{
    struct rps_error error = {.text = ""};
    rps_status status = rps_archive_reader_open(&u->reader, u->file, &error);

    if (status == RPS_E_NOT_FOUND) {
        return rps_tool_fail(RPS_TOOL_NOINPUT, "unarchive", "%s", error.text);
    }
    u->buffer = malloc(BUFFER_BYTES);
    if (status == RPS_OK && u->buffer == NULL) {
        status = rps_fail(&error, RPS_E_NOMEM, "no memory");
    }
    rps_checkpoint_progress_begin(&u->progress);
    if (status == RPS_OK) {
        status = extract(u, &error);
    }
    if (status == RPS_OK) {
        status = finish(u, &error);
    }
    rps_checkpoint_progress_end(&u->progress);
    rps_ckpt_beside_close(&u->beside);
    rps_archive_reader_close(u->reader);
    free(u->buffer);
    return status == RPS_OK ? answer(u)
                            : rps_tool_fail_status(
                                      "unarchive", status, "%s", error.text);
}

static int
run(const struct rps_tool_call *call)
{
    struct unarchiving u = {.call = call,
            .out = call->flags[FLAG_OUT].value,
            .beside = {.fd = -1}};

    if (call->operand_count != 1 || u.out == NULL) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "unarchive", "give the archive, and --out DIR");
    }
    u.file = call->operands[0];
    return unarchive(&u);
}

const struct rps_tool rps_tool_unarchive = {
        .name = "unarchive",
        .usage = usage,
        .summary = "a checkpoint of an archive again",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
