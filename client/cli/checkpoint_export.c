/* SPDX-License-Identifier: Apache-2.0 */
/* recps export: a table of a checkpoint as files of others. */
#include "base/file.h"
#include "base/npy.h"
#include "base/spec.h"
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "embedding/checkpoint/replay.h"
#include "embedding/checkpoint/values.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
        "usage: recps export [--json] --out PATH [--weights-only] CKPT TABLE\n"
        "                    [OPTION]...\n"
        "\n"
        "Write a table's rows as arrays: into a new folder keys.npy, "
        "rows.npy,\n"
        "slot-NAME.npy, uses.npy and last.npy; or, where PATH ends with\n"
        ".safetensors, tensors of these names in one file. Entry k of each is\n"
        "the same row; the order is not specified. Rows are float32 or\n"
        "float16, as they are kept; bfloat16 is BF16 in a .safetensors file,\n"
        "and float32 in an .npy file, which has no such type. `recps import`\n"
        "reads both. PATH gets its name when all of it is written.\n";

enum {
    FLAG_OUT,
    FLAG_WEIGHTS_ONLY,
    FLAG_MEMORY
};

static struct rps_tool_flag flags[] = {
        {.name = "out",
                .argument = "FILE",
                .help = "a folder, or a file whose name ends with "
                        ".safetensors; "
                        "it must not exist"},
        {.name = "weights-only", .help = "keys and rows, nothing else"},
        RPS_MEMORY_FLAG,
        {.name = NULL},
};

#define COLUMNS_MAX  10u
#define BUFFER_BYTES ((size_t)1 << 20)

enum column_kind {
    COLUMN_KEYS,
    COLUMN_ROWS,
    COLUMN_SLOT,
    COLUMN_USES,
    COLUMN_LAST
};

/** One array on its way out. */
struct column {
    enum column_kind kind;
    char name[64];
    const char *npy;    /* type of the items, in an .npy file */
    const char *tensor; /* and in a .safetensors file */
    uint32_t width;     /* 0: one-dimensional */
    uint32_t slot_offset;
    size_t row_bytes;
    FILE *file; /* at its place */
};

struct exporting {
    const struct rps_tool_call *call;
    const char *table;
    const char *out;
    char *beside; /* where it is written */
    bool is_tensors;
    const rps_table_spec *spec;
    struct rps_ckpt_chain chain;
    size_t memory_bytes;
    uint64_t rows;
    uint64_t written;
    struct column columns[COLUMNS_MAX];
    size_t count;
    bool widens; /* bfloat16 as float32 */
    float *floats;
    struct rps_checkpoint_progress progress;
    uint64_t done;
    uint64_t total;
};

static struct column *
add_column(struct exporting *e, enum column_kind kind, const char *name,
        const char *npy, const char *tensor, uint32_t width, size_t item_bytes)
{
    struct column *column = &e->columns[e->count++];

    *column = (struct column){.kind = kind,
            .npy = npy,
            .tensor = tensor,
            .width = width,
            .row_bytes = item_bytes * (width == 0 ? 1 : width)};
    snprintf(column->name, sizeof(column->name), "%s", name);
    return column;
}

/* Keys are signed in a .safetensors file: fewer readers know unsigned ones. */
static void
list_columns(struct exporting *e)
{
    static const char *const npy[] = {"<f4", "<f2", "<f4"};
    static const char *const tensor[] = {"F32", "F16", "BF16"};
    const enum rps_value type = e->spec->value_dtype;
    const bool two =
            type == RPS_VALUE_F16 || (type == RPS_VALUE_BF16 && e->is_tensors);
    uint32_t offset = 0;

    e->widens = type == RPS_VALUE_BF16 && !e->is_tensors;
    add_column(e, COLUMN_KEYS, "keys", "<u8", "I64", 0, 8);
    add_column(e, COLUMN_ROWS, "rows", npy[type], tensor[type], e->spec->dim,
            two ? 2 : 4);
    if (e->call->flags[FLAG_WEIGHTS_ONLY].value != NULL) {
        return;
    }
    for (uint32_t i = 0; i < rps_spec_slot_count(e->spec); i++) {
        const uint32_t width = rps_spec_slot_width(e->spec, i);
        char name[64];

        snprintf(name, sizeof(name), "slot-%s", rps_spec_slot_name(e->spec, i));
        add_column(e, COLUMN_SLOT, name, "<f4", "F32", width, 4)->slot_offset =
                offset;
        offset += width;
    }
    add_column(e, COLUMN_USES, "uses", "|u1", "U8", 0, 1);
    add_column(e, COLUMN_LAST, "last", "<u4", "U32", 0, 4);
}

static rps_status
io_failed(const struct exporting *e, const char *what, struct rps_error *error)
{
    return rps_fail(
            error, RPS_E_IO, "%s: %s: %s", e->beside, what, strerror(errno));
}

/* ---- a folder of .npy files ---- */

static rps_status
open_npy(struct exporting *e, struct column *column, struct rps_error *error)
{
    struct rps_npy npy = {.ndim = column->width == 0 ? 1 : 2,
            .shape = {e->rows, column->width}};
    char header[RPS_NPY_HEADER_BYTES];
    char *path = rps_format("%s/%s.npy", e->beside, column->name);

    snprintf(npy.dtype, sizeof(npy.dtype), "%s", column->npy);
    rps_npy_header(&npy, header);
    column->file = path == NULL ? NULL : fopen(path, "wxe");
    free(path);
    if (column->file == NULL ||
            fwrite(header, sizeof(header), 1, column->file) != 1) {
        return io_failed(e, "cannot write", error);
    }
    return RPS_OK;
}

static rps_status
open_folder(struct exporting *e, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (mkdir(e->beside, 0750) != 0) {
        return io_failed(e, "cannot make the folder", error);
    }
    for (size_t i = 0; i < e->count && status == RPS_OK; i++) {
        status = open_npy(e, &e->columns[i], error);
    }
    return status;
}

/* ---- one .safetensors file ---- */

/* {"keys": {"dtype": "I64", "shape": [n], "data_offsets": [0, 8 n]}, …} */
static char *
tensors_header(const struct exporting *e)
{
    json_t *root = json_pack("{s:{s:s, s:s}}", "__metadata__", "format", "pt",
            "table", e->table);
    uint64_t at = 0;
    char *text;

    for (size_t i = 0; i < e->count; i++) {
        const struct column *column = &e->columns[i];
        const uint64_t end = at + e->rows * column->row_bytes;
        json_t *shape = json_pack("[I]", (json_int_t)e->rows);

        if (column->width != 0) {
            json_array_append_new(
                    shape, json_integer((json_int_t)column->width));
        }
        json_object_set_new(root, column->name,
                json_pack("{s:s, s:o, s:[I, I]}", "dtype", column->tensor,
                        "shape", shape, "data_offsets", (json_int_t)at,
                        (json_int_t)end));
        at = end;
    }
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

/* Each column writes at its own place of the file. */
static rps_status
open_tensors(struct exporting *e, struct rps_error *error)
{
    char *text = tensors_header(e);
    const uint64_t length = text == NULL ? 0 : (strlen(text) + 7) / 8 * 8;
    uint64_t at = sizeof(length) + length;
    rps_status status = RPS_OK;

    for (size_t i = 0; i < e->count && status == RPS_OK; i++) {
        struct column *column = &e->columns[i];

        column->file = fopen(e->beside, i == 0 ? "wxe" : "r+e");
        if (column->file == NULL || text == NULL) {
            status = io_failed(e, "cannot write", error);
        } else if (i == 0 &&
                   (fwrite(&length, sizeof(length), 1, column->file) != 1 ||
                           fprintf(column->file, "%-*s", (int)length, text) <
                                   0 ||
                           fflush(column->file) != 0)) {
            status = io_failed(e, "cannot write", error);
        } else if (fseeko(column->file, (off_t)at, SEEK_SET) != 0) {
            status = io_failed(e, "cannot seek", error);
        }
        at += e->rows * column->row_bytes;
    }
    free(text);
    return status;
}

/* ---- rows ---- */

static const void *
cell_of(struct exporting *e, const struct column *column,
        const struct rps_ckpt_batch *batch, size_t i, uint32_t *number)
{
    const char *value = batch->values + i * batch->value_bytes;
    const size_t floats = rps_spec_slot_floats(e->spec);

    switch (column->kind) {
    case COLUMN_KEYS:
        return &batch->keys[i];
    case COLUMN_ROWS:
        if (!e->widens) {
            return value;
        }
        rps_ckpt_values_floats(RPS_VALUE_BF16, value, e->spec->dim, e->floats);
        return e->floats;
    case COLUMN_SLOT:
        return batch->slots + i * floats + column->slot_offset;
    case COLUMN_USES:
        *number = batch->meta[i] >> 24; /* its low byte comes first */
        return number;
    case COLUMN_LAST:
        break;
    }
    *number = batch->meta[i] & 0xffffffu;
    return number;
}

static rps_status
write_rows(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct exporting *e = context;

    if (batch->n > e->rows - e->written) {
        return rps_fail(error, RPS_E_CORRUPT,
                "table %s changed while it was read", e->table);
    }
    e->written += batch->n;
    for (size_t k = 0; k < e->count; k++) {
        const struct column *column = &e->columns[k];

        for (size_t i = 0; i < batch->n; i++) {
            uint32_t number = 0;

            if (fwrite(cell_of(e, column, batch, i, &number), column->row_bytes,
                        1, column->file) != 1) {
                return io_failed(e, "cannot write", error);
            }
        }
    }
    return RPS_OK;
}

static rps_status
count_rows(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    struct exporting *e = context;

    (void)error;
    e->rows += keys->n;
    return RPS_OK;
}

static void
advance(void *context, uint64_t bytes)
{
    struct exporting *e = context;

    e->done += bytes;
    rps_checkpoint_progress_show(
            &e->progress, e->done < e->total ? e->done : e->total, e->total);
}

static rps_status
close_columns(struct exporting *e, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < e->count; i++) {
        FILE *file = e->columns[i].file;
        bool good;

        if (file == NULL) {
            continue;
        }
        good = fflush(file) == 0 && fsync(fileno(file)) == 0;
        good = fclose(file) == 0 && good;
        e->columns[i].file = NULL;
        if (!good && status == RPS_OK) {
            status = io_failed(e, "cannot write", error);
        }
    }
    return status;
}

static rps_status
write_all(struct exporting *e, struct rps_error *error)
{
    const struct rps_ckpt_replay replay = {.chain = &e->chain,
            .table = e->table,
            .slot_last = RPS_SLOT_COUNT - 1,
            .memory_bytes = e->memory_bytes,
            .advance = advance,
            .context = e};
    struct rps_error ignored = {.text = ""};
    rps_status status;

    e->total = rps_ckpt_replay_bytes(&replay);
    status = rps_ckpt_replay_keys(&replay, count_rows, e, error);
    if (status == RPS_OK) {
        status = e->is_tensors ? open_tensors(e, error) : open_folder(e, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_replay_rows(&replay, write_rows, e, error);
    }
    if (status == RPS_OK && e->written != e->rows) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "table %s changed while it was read", e->table);
    }
    return status == RPS_OK ? close_columns(e, error)
                            : (close_columns(e, &ignored), status);
}

/* The name, when all of it is on the disk. */
static rps_status
install(const struct exporting *e, struct rps_error *error)
{
    char *dir;
    char *slash;
    rps_status status;

    if (!e->is_tensors) {
        status = rps_dir_sync(e->beside, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    if (renameat2(AT_FDCWD, e->beside, AT_FDCWD, e->out, RENAME_NOREPLACE) !=
            0) {
        return rps_fail(error, RPS_E_IO, "%s: cannot rename to %s: %s",
                e->beside, e->out, strerror(errno));
    }
    dir = strdup(e->out);
    slash = dir == NULL ? NULL : strrchr(dir, '/');
    if (slash != NULL) {
        slash[slash == dir] = '\0';
    }
    status = rps_dir_sync(slash == NULL ? "." : dir, error);
    free(dir);
    return status;
}

static int
answer(const struct exporting *e)
{
    json_t *names = json_array();

    for (size_t i = 0; i < e->count; i++) {
        json_array_append_new(names, json_string(e->columns[i].name));
    }
    if (e->call->options->json) {
        return rps_tool_print_json(json_pack("{s:s, s:s, s:I, s:I, s:o}", "out",
                e->out, "table", e->table, "rows", (json_int_t)e->rows, "dim",
                (json_int_t)e->spec->dim, "arrays", names));
    }
    printf("%s: %" PRIu64 " rows of dim %" PRIu32 ", %zu arrays\n", e->out,
            e->rows, e->spec->dim, json_array_size(names));
    json_decref(names);
    return RPS_TOOL_OK;
}

static int
write_out(struct exporting *e)
{
    struct rps_error error = {.text = ""};
    rps_status status;

    list_columns(e);
    e->floats = calloc(e->spec->dim, sizeof(*e->floats));
    e->beside = rps_format("%s.%ld.partial", e->out, (long)getpid());
    if (e->floats == NULL || e->beside == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "export", "no memory");
    }
    rps_checkpoint_progress_begin(&e->progress);
    status = write_all(e, &error);
    if (status == RPS_OK) {
        status = install(e, &error);
    }
    rps_checkpoint_progress_end(&e->progress);
    if (status == RPS_OK) {
        return answer(e);
    }
    if (e->is_tensors) {
        unlink(e->beside);
    } else {
        (void)!rps_dir_remove(e->beside, NULL);
    }
    return rps_checkpoint_fail("export", status, &error);
}

static bool
ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text);
    const size_t n = strlen(end);

    return length > n && strcmp(text + length - n, end) == 0;
}

static int
export_table(struct exporting *e)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&e->chain)->manifest;
    const size_t at = rps_ckpt_table_find(
            manifest->tables, manifest->table_count, e->table);

    if (at == manifest->table_count) {
        return rps_tool_fail_status("export", RPS_E_NOT_FOUND,
                "%s: there is no table %s",
                rps_ckpt_chain_last(&e->chain)->folder.path, e->table);
    }
    e->spec = &manifest->tables[at].spec;
    return write_out(e);
}

static int
run(const struct rps_tool_call *call)
{
    struct exporting e = {.call = call, .out = call->flags[FLAG_OUT].value};
    int code = rps_checkpoint_memory(
            "export", &call->flags[FLAG_MEMORY], &e.memory_bytes);

    if (call->operand_count != 2 || e.out == NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, "export",
                "give the checkpoint's folder, the table and --out");
    }
    e.table = call->operands[1];
    e.is_tensors = ends_with(e.out, ".safetensors");
    if (code == RPS_TOOL_OK && access(e.out, F_OK) == 0) {
        code = rps_tool_fail_status("export", RPS_E_MISMATCH,
                "%s is there already: nothing was replaced", e.out);
    }
    if (code == RPS_TOOL_OK) {
        code = rps_checkpoint_open("export", call->operands[0], &e.chain);
    }
    if (code == RPS_TOOL_OK) {
        code = export_table(&e);
    }
    free(e.floats);
    free(e.beside);
    rps_ckpt_chain_close(&e.chain);
    return code;
}

const struct rps_tool rps_tool_export = {
        .name = "export",
        .usage = usage,
        .summary = "a table of a checkpoint as .npy or .safetensors",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 2,
        .takes_folder = true,
        .run = run,
};
