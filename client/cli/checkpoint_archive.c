/* SPDX-License-Identifier: Apache-2.0 */
/* recps archive: a checkpoint as one file, smaller, to be kept. */
#include "base/file.h"
#include "base/text.h"
#include "client/cli/archive_stream.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/tar.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/pass.h"
#include "embedding/checkpoint/rewrite.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LEVEL_DEFAULT 3

static const char usage[] =
        "usage: recps archive [--json] [--bf16] [--level N] --out FILE CKPT\n"
        "                     [OPTION]...\n"
        "\n"
        "One file of a checkpoint: a tar archive, compressed with zstd where\n"
        "recps was built with it, that holds one full checkpoint (of a delta:\n"
        "with all that it stands on folded in). `recps unarchive` and\n"
        "`tar --zstd -xf` make a checkpoint of it again. With --bf16 float32\n"
        "rows are rounded to bfloat16, which halves them and loses 16 of 24\n"
        "bits of precision; slots stay as they are. What has to be folded or\n"
        "rounded is first written beside FILE, uncompressed.\n";

enum {
    FLAG_OUT,
    FLAG_LEVEL,
    FLAG_BF16,
    FLAG_MEMORY
};

static struct rps_tool_flag flags[] = {
        {.name = "out",
                .argument = "FILE",
                .help = "the archive; it must not exist"},
        {.name = "level",
                .argument = "N",
                .help = "0: uncompressed; 1 (fast) to 19 (small): zstd; 3 is "
                        "the default, 0 where zstd was not built in"},
        {.name = "bf16",
                .help = "round float32 rows to bfloat16; unarchive makes them "
                        "float32 again"},
        RPS_MEMORY_FLAG,
        {.name = NULL},
};

struct archiving {
    const struct rps_tool_call *call;
    const char *out;
    char *partial; /* the archive, while it is written */
    char *work;    /* a folder for what has to be written anew */
    int level;
    bool rounds;
    size_t memory_bytes;
    struct rps_ckpt_chain chain;
    struct rps_archive_writer *writer;
    struct rps_checkpoint_progress progress;
    uint64_t done;
    uint64_t total;
    uint64_t bytes; /* of the archive */
    struct rps_digest digest;
};

/* ---- what goes in: one full checkpoint ---- */

/* Dense variables are few and stay exact. */
static bool
is_rounded(const rps_table_spec *spec)
{
    return spec->value_dtype == RPS_VALUE_F32 && spec->dense_elements == 0;
}

static void
round_table(void *context, rps_table_spec *spec)
{
    (void)context;
    if (is_rounded(spec)) {
        spec->value_dtype = RPS_VALUE_BF16;
    }
}

/* {"archived": ["emb", …]}: what unarchive makes float32 again. */
static json_t *
rounded_tables(struct archiving *a)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&a->chain)->manifest;
    json_t *names = json_array();

    for (size_t i = 0; i < manifest->table_count; i++) {
        if (is_rounded(&manifest->tables[i].spec)) {
            json_array_append_new(
                    names, json_string(manifest->tables[i].spec.name));
        }
    }
    return json_pack("{s:o}", RPS_CKPT_ARCHIVED, names);
}

static rps_status
prepare(struct archiving *a, struct rps_error *error)
{
    const uint64_t step = rps_ckpt_chain_last(&a->chain)->manifest.step;
    json_t *fields = a->rounds ? rounded_tables(a) : NULL;
    const struct rps_ckpt_rewrite how = {.chain = &a->chain,
            .dir = a->work,
            .memory_bytes = a->memory_bytes,
            .respec = a->rounds ? round_table : NULL,
            .fields = fields,
            .progress = rps_checkpoint_progress_show,
            .context = &a->progress};
    rps_status status = rps_ckpt_rewrite(&how, &a->digest, error);

    json_decref(fields);
    if (status != RPS_OK) {
        return status;
    }
    rps_ckpt_chain_close(&a->chain);
    status = rps_ckpt_chain_open(&a->chain, a->work, step, error);
    return status == RPS_OK ? rps_ckpt_chain_read_parts(&a->chain, 0, 0, error)
                            : status;
}

/* ---- the archive ---- */

static rps_status
add_bytes(void *context, const void *bytes, size_t n, struct rps_error *error)
{
    struct archiving *a = context;

    a->done += n;
    rps_checkpoint_progress_show(
            &a->progress, a->done < a->total ? a->done : a->total, a->total);
    return rps_archive_write(a->writer, bytes, n, error);
}

static rps_status
add_file(struct archiving *a, const char *name,
        const struct rps_ckpt_listed *listed, struct rps_error *error)
{
    static const char zeros[RPS_TAR_BLOCK_BYTES];
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(&a->chain);
    char block[RPS_TAR_BLOCK_BYTES];
    char *full =
            rps_format("ckpt-%012" PRIu64 "/%s", link->manifest.step, name);
    rps_status status;

    if (full == NULL || !rps_tar_write(full, listed->bytes, block)) {
        status = rps_fail(error, full == NULL ? RPS_E_NOMEM : RPS_E_INVAL,
                "%s: its name is too long for a tar archive", name);
    } else {
        status = rps_archive_write(a->writer, block, sizeof(block), error);
    }
    free(full);
    if (status == RPS_OK) {
        status =
                rps_ckpt_pass(&link->folder, name, listed, add_bytes, a, error);
    }
    return status == RPS_OK ? rps_archive_write(a->writer, zeros,
                                      rps_tar_padding(listed->bytes), error)
                            : status;
}

static rps_status
add_part(struct archiving *a, uint32_t i, struct rps_error *error)
{
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(&a->chain);
    const char *file;
    json_t *value;
    char *name = rps_ckpt_part_name(i, link->manifest.part_count);
    rps_status status =
            name == NULL ? rps_fail(error, RPS_E_NOMEM, "no memory")
                         : add_file(a, name, &link->manifest.parts[i], error);

    free(name);
    json_object_foreach(link->parts[i].files, file, value)
    {
        struct rps_ckpt_listed listed;

        if (status == RPS_OK && rps_ckpt_listed_parse(value, &listed)) {
            status = add_file(a, file, &listed, error);
        }
    }
    return status;
}

static void
count_bytes(struct archiving *a)
{
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(&a->chain);

    for (uint32_t i = 0; i < link->manifest.part_count; i++) {
        const char *file;
        json_t *value;

        json_object_foreach(link->parts[i].files, file, value)
        {
            struct rps_ckpt_listed listed;

            a->total +=
                    rps_ckpt_listed_parse(value, &listed) ? listed.bytes : 0;
        }
    }
}

/* The manifest first: who lists the archive sees at once what it is. */
static rps_status
add_all(struct archiving *a, struct rps_error *error)
{
    static const char *const names[] = {
            RPS_CKPT_MANIFEST, RPS_CKPT_MANIFEST ".xxh3"};
    static const char end[2 * RPS_TAR_BLOCK_BYTES];
    const struct rps_ckpt_link *link = rps_ckpt_chain_last(&a->chain);
    rps_status status = RPS_OK;

    count_bytes(a);
    for (size_t i = 0; i < 2 && status == RPS_OK; i++) {
        struct rps_ckpt_listed listed;

        status = rps_ckpt_measure(&link->folder, names[i], &listed, error);
        if (status == RPS_OK) {
            status = add_file(a, names[i], &listed, error);
        }
    }
    for (uint32_t i = 0; i < link->manifest.part_count && status == RPS_OK;
            i++) {
        status = add_part(a, i, error);
    }
    return status == RPS_OK
                   ? rps_archive_write(a->writer, end, sizeof(end), error)
                   : status;
}

static rps_status
write_archive(struct archiving *a, struct rps_error *error)
{
    rps_status status =
            rps_archive_writer_open(&a->writer, a->partial, a->level, error);

    if (status != RPS_OK) {
        return status;
    }
    status = add_all(a, error);
    if (status != RPS_OK) {
        rps_archive_writer_discard(a->writer);
        return status;
    }
    status = rps_archive_writer_close(a->writer, &a->bytes, error);
    if (status == RPS_OK && renameat2(AT_FDCWD, a->partial, AT_FDCWD, a->out,
                                    RENAME_NOREPLACE) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot rename to %s: %s",
                a->partial, a->out, strerror(errno));
    }
    return status;
}

static int
answer(struct archiving *a)
{
    const uint64_t step = rps_ckpt_chain_last(&a->chain)->manifest.step;
    char hex[RPS_DIGEST_HEX_BYTES];
    char size[32];

    rps_digest_hex(a->digest, hex);
    if (a->call->options->json) {
        return rps_tool_print_json(json_pack("{s:s, s:I, s:I, s:I, s:b, s:s}",
                "archive", a->out, "step", (json_int_t)step, "bytes",
                (json_int_t)a->bytes, "level", (json_int_t)a->level, "bf16",
                (int)a->rounds, "digest", hex));
    }
    printf("%s: step %" PRIu64 ", %s, digest %s\n", a->out, step,
            rps_format_bytes(a->bytes, size), hex);
    return RPS_TOOL_OK;
}

/* The folder that prepare() made, with the checkpoint in it. */
static void
remove_work(const struct archiving *a, uint64_t step)
{
    char *path = rps_checkpoint_path(a->work, step);

    if (path != NULL) {
        (void)!rps_dir_remove(path, NULL);
    }
    free(path);
    rmdir(a->work);
}

static int
archive(struct archiving *a)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&a->chain)->manifest;
    const uint64_t step = manifest->step;
    const bool anew = a->rounds || a->chain.count > 1;
    struct rps_error error = {.text = ""};
    rps_status status = RPS_OK;

    a->digest = manifest->digest;
    a->partial = rps_format("%s.%ld.partial", a->out, (long)getpid());
    a->work = rps_format("%s.%ld.work", a->out, (long)getpid());
    if (a->partial == NULL || a->work == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "archive", "no memory");
    }
    rps_checkpoint_progress_begin(&a->progress);
    if (anew) {
        status = prepare(a, &error);
    }
    if (status == RPS_OK) {
        status = write_archive(a, &error);
    }
    rps_checkpoint_progress_end(&a->progress);
    if (anew) {
        remove_work(a, step);
    }
    if (status == RPS_OK) {
        return answer(a);
    }
    unlink(a->partial);
    return rps_checkpoint_fail("archive", status, &error);
}

static int
read_call(struct archiving *a)
{
    const char *text = a->call->flags[FLAG_LEVEL].value;
    uint64_t level = rps_archive_has_zstd() ? LEVEL_DEFAULT : 0;

    a->out = a->call->flags[FLAG_OUT].value;
    a->rounds = a->call->flags[FLAG_BF16].value != NULL;
    if (a->call->operand_count != 1 || a->out == NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, "archive",
                "give the checkpoint's folder, and --out FILE");
    }
    if (text != NULL &&
            (!rps_parse_u64(text, &level) || level > RPS_ARCHIVE_LEVEL_MAX)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "archive",
                "--level %s is not 0 to %d", text, RPS_ARCHIVE_LEVEL_MAX);
    }
    a->level = (int)level;
    if (access(a->out, F_OK) == 0) {
        return rps_tool_fail_status("archive", RPS_E_MISMATCH,
                "%s is there already: nothing was replaced", a->out);
    }
    return rps_checkpoint_memory(
            "archive", &a->call->flags[FLAG_MEMORY], &a->memory_bytes);
}

static int
run(const struct rps_tool_call *call)
{
    struct archiving a = {.call = call};
    int code = read_call(&a);

    if (code == RPS_TOOL_OK) {
        code = rps_checkpoint_open("archive", call->operands[0], &a.chain);
    }
    if (code == RPS_TOOL_OK) {
        code = archive(&a);
    }
    rps_ckpt_chain_close(&a.chain);
    free(a.partial);
    free(a.work);
    return code;
}

const struct rps_tool rps_tool_archive = {
        .name = "archive",
        .usage = usage,
        .summary = "a checkpoint as one compressed file",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
