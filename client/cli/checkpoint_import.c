/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recps import: rows that others have trained, as a table of a checkpoint or
 * of a running job.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/fields.h"
#include "client/cli/trained_rows.h"
#include "embedding/checkpoint/compose.h"
#include "embedding/checkpoint/rewrite.h"
#include "embedding/checkpoint/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MEMORY_BYTES ((size_t)256 << 20)
#define BATCH_ROWS   4096u
#define BATCH_BYTES  ((size_t)4 << 20) /* of rows and slots, about */

static const char usage[] =
        "usage: recps import TABLE [FROM] [FIELD=VALUE]... --checkpoint DIR\n"
        "                    [--step N] [--parts N] [--json] [OPTION]...\n"
        "       recps import TABLE [FROM] [FIELD=VALUE]... [--json] "
        "[OPTION]...\n"
        "\n"
        "Rows that were trained elsewhere become a table: of the checkpoint\n"
        "DIR/ckpt-N, which is made, or gets one table more; or, without\n"
        "--checkpoint, of the running job, where a table that is not there is\n"
        "made. FROM is a folder with keys.npy, rows.npy and, where there are\n"
        "such, slot-NAME.npy, uses.npy and last.npy, or a .safetensors file\n"
        "with such tensors (or TABLE.keys, ...): what `recps export` writes.\n"
        "FIELD=VALUE is of the table's spec: optimizer=adagrad, "
        "learning_rate=0.01,\n"
        "value_dtype=bfloat16, ... Before anything is written all of it is\n"
        "checked: types, shapes, that keys are unique and values finite.\n";

enum {
    FLAG_CHECKPOINT,
    FLAG_STEP,
    FLAG_PARTS,
    FLAG_KEYS,
    FLAG_ROWS,
    FLAG_WEIGHTS_ONLY,
    FLAG_MEMORY
};

static struct rps_tool_flag flags[] = {
        {.name = "checkpoint",
                .argument = "DIR",
                .help = "write a checkpoint of this checkpoint_dir"},
        {.name = "step",
                .argument = "N",
                .help = "the checkpoint's step, 1 or more (1)"},
        {.name = "parts",
                .argument = "N",
                .help = "a new checkpoint's parts (1): any number of servers "
                        "restores any number of parts"},
        {.name = "keys",
                .argument = "FILE",
                .help = "where the keys are: an .npy file, or the name of a "
                        "tensor in FROM; range: row i has key i"},
        {.name = "rows",
                .argument = "FILE",
                .help = "the same of the rows, as a matrix of float32, float16 "
                        "or BF16"},
        {.name = "weights-only",
                .help = "leave slots, uses and last: they begin afresh"},
        RPS_MEMORY_FLAG,
        {.name = NULL},
};

struct importing {
    const struct rps_tool_call *call;
    const char *table;
    struct rps_trained_rows trained;
    rps_table_spec spec;
    json_t *fields; /* of the spec, as given */
    size_t memory_bytes;
    uint64_t job_seed;
    uint64_t step;
    uint32_t parts;
    struct rps_checkpoint_progress progress;
    /* of a batch */
    struct rps_ckpt_batch batch;
    struct rps_ckpt_keys keys;
    float *row; /* [dim] */
    size_t slot_floats;
    size_t room; /* rows of a batch */
};

static int
fail(rps_status status, const struct rps_error *error)
{
    return rps_tool_fail_status("import", status, "%s", error->text);
}

/* ---- rows as a source of a checkpoint ---- */

static rps_status
make_batch(struct importing *in, struct rps_error *error)
{
    struct rps_ckpt_batch *batch = &in->batch;

    in->slot_floats = rps_spec_slot_floats(&in->spec);
    batch->value_bytes = rps_ckpt_value_bytes(&in->spec);
    in->room = BATCH_BYTES / ((in->spec.dim + in->slot_floats) * sizeof(float));
    in->room = in->room > BATCH_ROWS ? BATCH_ROWS : in->room;
    batch->keys = calloc(in->room, sizeof(*batch->keys));
    batch->hashes = calloc(in->room, sizeof(*batch->hashes));
    batch->meta = calloc(in->room, sizeof(*batch->meta));
    batch->values = calloc(in->room, batch->value_bytes);
    batch->slots = calloc(in->room * (in->slot_floats + 1), sizeof(float));
    in->row = calloc(in->spec.dim, sizeof(*in->row));
    in->keys.keys = batch->keys;
    in->keys.hashes = batch->hashes;
    return batch->keys != NULL && batch->hashes != NULL &&
                           batch->meta != NULL && batch->values != NULL &&
                           batch->slots != NULL && in->row != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "no memory");
}

static void
free_batch(struct importing *in)
{
    free(in->batch.keys);
    free(in->batch.hashes);
    free(in->batch.meta);
    free(in->batch.values);
    free(in->batch.slots);
    free(in->row);
}

static bool
is_of(uint64_t hash, uint32_t first, uint32_t last)
{
    const uint32_t slot = rps_hash_slot(hash);

    return slot >= first && slot <= last;
}

static rps_status
pass_keys(void *context, uint32_t first, uint32_t last,
        rps_status (*take)(void *taker, struct rps_ckpt_keys *keys,
                struct rps_error *error),
        void *taker, struct rps_error *error)
{
    struct importing *in = context;
    rps_status status = RPS_OK;

    in->keys.n = 0;
    for (uint64_t i = 0; i < in->trained.count && status == RPS_OK; i++) {
        const uint64_t key = rps_trained_key(&in->trained, i);
        const uint64_t hash = rps_key_hash(key, in->job_seed);

        if (!is_of(hash, first, last)) {
            continue;
        }
        in->keys.keys[in->keys.n] = key;
        in->keys.hashes[in->keys.n++] = hash;
        if (in->keys.n == in->room) {
            status = take(taker, &in->keys, error);
            in->keys.n = 0;
        }
    }
    return status == RPS_OK && in->keys.n > 0 ? take(taker, &in->keys, error)
                                              : status;
}

static void
add_row(struct importing *in, uint64_t i, uint64_t key, uint64_t hash)
{
    struct rps_ckpt_batch *batch = &in->batch;
    const size_t at = batch->n++;
    float *slots = batch->slots + at * in->slot_floats;

    batch->keys[at] = key;
    batch->hashes[at] = hash;
    batch->meta[at] = rps_trained_meta(&in->trained, i);
    rps_trained_row(&in->trained, i, in->row);
    rps_ckpt_values_of_floats(in->spec.value_dtype, in->row, in->spec.dim,
            batch->values + at * batch->value_bytes);
    if (!rps_trained_slots(&in->trained, &in->spec, i, slots)) {
        rps_ckpt_slots_fresh(&in->spec, slots);
    }
}

static rps_status
pass_rows(void *context, uint32_t first, uint32_t last,
        rps_status (*take)(void *taker, struct rps_ckpt_batch *batch,
                struct rps_error *error),
        void *taker, struct rps_error *error)
{
    struct importing *in = context;
    rps_status status = RPS_OK;

    in->batch.n = 0;
    for (uint64_t i = 0; i < in->trained.count && status == RPS_OK; i++) {
        const uint64_t key = rps_trained_key(&in->trained, i);
        const uint64_t hash = rps_key_hash(key, in->job_seed);

        if (!is_of(hash, first, last)) {
            continue;
        }
        add_row(in, i, key, hash);
        if (in->batch.n == in->room) {
            rps_checkpoint_progress_show(&in->progress, i, in->trained.count);
            status = take(taker, &in->batch, error);
            in->batch.n = 0;
        }
    }
    return status == RPS_OK && in->batch.n > 0 ? take(taker, &in->batch, error)
                                               : status;
}

static rps_status
write_table(void *context, struct rps_ckpt_compose *compose,
        struct rps_error *error)
{
    struct importing *in = context;
    const struct rps_ckpt_source source = {
            .context = in, .keys = pass_keys, .rows = pass_rows};

    return rps_ckpt_compose_table(compose, &in->spec, &source, error);
}

/* ---- into a checkpoint ---- */

static int
answer(const struct importing *in, const char *path, const char *digest)
{
    if (in->call->options->json) {
        json_t *object = json_pack("{s:s, s:I, s:I}", "table", in->table,
                "rows", (json_int_t)in->trained.count, "dim",
                (json_int_t)in->trained.dim);

        json_object_set_new(object, "checkpoint",
                path == NULL ? json_null() : json_string(path));
        if (digest != NULL) {
            json_object_set_new(object, "digest", json_string(digest));
        }
        return rps_tool_print_json(object);
    }
    printf("table %s: %" PRIu64 " rows of dim %" PRIu32 "%s%s\n", in->table,
            in->trained.count, in->trained.dim, path == NULL ? "" : " in ",
            path == NULL ? "" : path);
    return RPS_TOOL_OK;
}

static rps_status
create_new(struct importing *in, const char *dir, struct rps_digest *digest,
        struct rps_error *error)
{
    json_t *like = json_pack("{s:s}", "job_id", in->call->options->job_id);
    const struct rps_ckpt_new what = {.dir = dir,
            .step = in->step,
            .epoch = 1,
            .parts = in->parts == 0 ? 1 : in->parts,
            .job_seed = in->job_seed,
            .like = like,
            .memory_bytes = in->memory_bytes};
    struct rps_ckpt_compose *compose = NULL;
    rps_status status = rps_ckpt_compose_create(&compose, &what, error);

    json_decref(like);
    if (status == RPS_OK) {
        status = write_table(in, compose, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_compose_seal(compose, NULL, error);
    }
    if (status == RPS_OK) {
        *digest = rps_ckpt_compose_digest(compose);
        status = rps_ckpt_compose_install(compose, false, error);
    }
    rps_ckpt_compose_destroy(compose);
    return status;
}

static void
show(void *context, uint64_t done, uint64_t total)
{
    struct importing *in = context;

    rps_checkpoint_progress_show(&in->progress, done, total);
}

/* What stands there is written anew, with one table more. */
static rps_status
extend(struct importing *in, const char *dir, struct rps_ckpt_chain *chain,
        struct rps_digest *digest, struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(chain)->manifest;
    const struct rps_ckpt_rewrite how = {.chain = chain,
            .dir = dir,
            .parts = in->parts,
            .replace = true,
            .memory_bytes = in->memory_bytes,
            .more = write_table,
            .progress = show,
            .context = in};

    if (rps_ckpt_table_find(manifest->tables, manifest->table_count,
                in->table) < manifest->table_count) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s has a table %s already: nothing was changed",
                rps_ckpt_chain_last(chain)->folder.path, in->table);
    }
    if (rps_option_given(in->call->options, "job_seed") &&
            manifest->job_seed != in->job_seed) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s has job seed %" PRIu64 ", --job-seed is %" PRIu64,
                rps_ckpt_chain_last(chain)->folder.path, manifest->job_seed,
                in->job_seed);
    }
    in->job_seed = manifest->job_seed;
    return rps_ckpt_rewrite(&how, digest, error);
}

static int
write_checkpoint(struct importing *in, const char *dir, const char *path)
{
    struct rps_ckpt_chain chain = {.count = 0};
    struct rps_digest digest = {0, 0};
    struct rps_error error = {.text = ""};
    char hex[RPS_DIGEST_HEX_BYTES];
    const bool is_there = access(path, F_OK) == 0;
    rps_status status = make_batch(in, &error);

    if (status == RPS_OK && is_there) {
        const int code = rps_checkpoint_open("import", path, &chain);

        if (code != RPS_TOOL_OK) {
            return code;
        }
    }
    rps_checkpoint_progress_begin(&in->progress);
    if (status == RPS_OK) {
        status = is_there ? extend(in, dir, &chain, &digest, &error)
                          : create_new(in, dir, &digest, &error);
    }
    rps_checkpoint_progress_end(&in->progress);
    rps_ckpt_chain_close(&chain);
    return status == RPS_OK ? answer(in, path, rps_digest_hex(digest, hex))
                            : fail(status, &error);
}

static int
import_into_checkpoint(struct importing *in)
{
    const char *dir = in->call->flags[FLAG_CHECKPOINT].value;
    char *path = rps_checkpoint_path(dir, in->step);
    int code;

    if (path == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "import", "no memory");
    }
    code = write_checkpoint(in, dir, path);
    free_batch(in);
    free(path);
    return code;
}

/* ---- into a running job ---- */

static rps_status
assign_batch(rps_client *client, rps_embedding_table *table,
        struct importing *in, uint64_t from, size_t n, float *rows)
{
    struct rps_ckpt_batch *batch = &in->batch;
    const bool has_slots = in->trained.slot_count > 0;
    const bool has_meta = in->trained.uses != NULL || in->trained.last != NULL;
    const rps_assign assign = {.table = table,
            .keys = batch->keys,
            .key_count = n,
            .rows = rows,
            .slots = has_slots ? batch->slots : NULL,
            .meta = has_meta ? batch->meta : NULL};

    for (size_t i = 0; i < n; i++) {
        batch->keys[i] = rps_trained_key(&in->trained, from + i);
        batch->meta[i] = rps_trained_meta(&in->trained, from + i);
        rps_trained_row(&in->trained, from + i, rows + i * in->spec.dim);
        (void)rps_trained_slots(&in->trained, &in->spec, from + i,
                batch->slots + i * in->slot_floats);
    }
    return rps_assign_rows(client, &assign);
}

static int
assign_all(struct importing *in, rps_client *client, rps_embedding_table *table)
{
    float *rows = calloc(in->room * in->spec.dim, sizeof(*rows));
    rps_status status = rows != NULL ? RPS_OK : RPS_E_NOMEM;
    uint64_t done = 0;

    rps_checkpoint_progress_begin(&in->progress);
    while (status == RPS_OK && done < in->trained.count) {
        const uint64_t left = in->trained.count - done;
        const size_t n = left < in->room ? (size_t)left : in->room;

        status = assign_batch(client, table, in, done, n, rows);
        done += status == RPS_OK ? n : 0;
        rps_checkpoint_progress_show(&in->progress, done, in->trained.count);
    }
    rps_checkpoint_progress_end(&in->progress);
    free(rows);
    if (status == RPS_OK) {
        return answer(in, NULL, NULL);
    }
    return rps_tool_fail_status("import", status,
            "%s (%s); of %" PRIu64 " rows the first %" PRIu64
            " are written, of those behind them some may be: repeating it is "
            "safe",
            rps_client_error(client), rps_status_str(status), in->trained.count,
            done);
}

/* Before anything is said of the rows: servers of checkpoints take none. */
static int
check_writable(rps_client *client)
{
    char *text = NULL;
    json_t *stat;
    const char *dir;
    int code = RPS_TOOL_OK;
    const rps_status status = rps_stat(client, 0, &text);

    if (status != RPS_OK) {
        return rps_tool_client_failed(client, "import", status);
    }
    stat = json_loads(text, 0, NULL);
    free(text);
    dir = json_string_value(
            json_object_get(json_object_get(stat, "serving"), "dir"));
    if (dir != NULL) {
        code = rps_tool_fail_status("import", RPS_E_READ_ONLY,
                "PS 0 serves the checkpoints of %s and changes nothing (recpsd "
                "--serve): import into the servers of the job that trains, or "
                "with --checkpoint (%s)",
                dir, rps_status_str(RPS_E_READ_ONLY));
    }
    json_decref(stat);
    return code;
}

/* The table of the job: it is there, or it is made as the fields say. */
static int
open_table(struct importing *in, rps_client *client,
        rps_embedding_table **table_out)
{
    rps_status status = rps_find_embedding_table(client, in->table, table_out);

    if (status == RPS_E_NOT_FOUND && json_object_size(in->fields) > 0) {
        status = rps_get_embedding_table(client, &in->spec, table_out);
    }
    if (status != RPS_OK) {
        const int code = rps_tool_client_failed(client, "import", status);

        if (status == RPS_E_NOT_FOUND) {
            fprintf(stderr, "recps import: to make the table, say what it is: "
                            "optimizer=adagrad, …\n");
        }
        return code;
    }
    in->spec = *rps_embedding_table_spec(*table_out);
    if (in->spec.dim != in->trained.dim) {
        return rps_tool_fail_status("import", RPS_E_MISMATCH,
                "table %s has dim %" PRIu32 ", the rows have %" PRIu32,
                in->table, in->spec.dim, in->trained.dim);
    }
    return RPS_TOOL_OK;
}

static int
check_all(struct importing *in)
{
    struct rps_error error = {.text = ""};
    rps_status status =
            rps_trained_check_slots(&in->trained, &in->spec, &error);

    if (status == RPS_OK) {
        status = rps_trained_check(
                &in->trained, &in->spec, in->memory_bytes, &error);
    }
    return status == RPS_OK ? RPS_TOOL_OK : fail(status, &error);
}

static int
import_into_job(struct importing *in)
{
    rps_embedding_table *table = NULL;
    rps_client *client = NULL;
    struct rps_error error = {.text = ""};
    int code = rps_tool_open(in->call, "import", &client);

    if (code == RPS_TOOL_OK) {
        code = check_writable(client);
    }
    if (code == RPS_TOOL_OK) {
        code = open_table(in, client, &table);
    }
    if (code == RPS_TOOL_OK) {
        code = check_all(in);
    }
    if (code == RPS_TOOL_OK) {
        code = make_batch(in, &error) == RPS_OK ? assign_all(in, client, table)
                                                : fail(RPS_E_NOMEM, &error);
    }
    free_batch(in);
    rps_client_close(client);
    return code;
}

/* ---- what is asked for ---- */

static int
read_number(const struct rps_tool_call *call, int flag, uint64_t max,
        uint64_t *number)
{
    const char *text = call->flags[flag].value;

    if (text != NULL && (!rps_parse_u64(text, number) || *number > max)) {
        return rps_tool_fail(RPS_TOOL_USAGE, "import",
                "--%s %s is no number up to %" PRIu64, call->flags[flag].name,
                text, max);
    }
    return RPS_TOOL_OK;
}

static int
read_flags(struct importing *in)
{
    const struct rps_tool_call *call = in->call;
    uint64_t parts = 0;
    int code;

    in->step = 1;
    code = read_number(call, FLAG_STEP, INT64_MAX, &in->step);
    if (code == RPS_TOOL_OK && in->step == 0) {
        code = rps_tool_fail(RPS_TOOL_USAGE, "import",
                "--step 0 is the state before any row: give 1 or more");
    }
    if (code == RPS_TOOL_OK) {
        code = read_number(call, FLAG_PARTS, RPS_SLOT_COUNT, &parts);
    }
    if (code == RPS_TOOL_OK && call->flags[FLAG_PARTS].value != NULL &&
            parts == 0) {
        code = rps_tool_fail(
                RPS_TOOL_USAGE, "import", "--parts 0: give 1 or more");
    }
    in->parts = (uint32_t)parts;
    if (code == RPS_TOOL_OK) {
        code = rps_checkpoint_memory(
                "import", &call->flags[FLAG_MEMORY], &in->memory_bytes);
    }
    in->memory_bytes = in->memory_bytes == 0 ? MEMORY_BYTES : in->memory_bytes;
    in->job_seed = call->options->job_seed;
    return code;
}

/* The table, FROM (the first word without "="), and the fields. */
static int
read_operands(struct importing *in, struct rps_trained_from *where)
{
    const struct rps_tool_call *call = in->call;
    int code = RPS_TOOL_OK;
    int at = 1;

    if (call->operand_count < 1) {
        return rps_tool_fail(RPS_TOOL_USAGE, "import", "give the table");
    }
    in->table = call->operands[0];
    *where = (struct rps_trained_from){.table = in->table,
            .keys = call->flags[FLAG_KEYS].value,
            .rows = call->flags[FLAG_ROWS].value};
    if (call->operand_count > 1 && strchr(call->operands[1], '=') == NULL) {
        where->from = call->operands[at++];
    }
    in->fields = json_object();
    for (; at < call->operand_count && code == RPS_TOOL_OK; at++) {
        code = rps_fields_add("import", in->fields, call->operands[at]);
    }
    return code;
}

/* What the fields and the rows say together. */
static int
make_spec(struct importing *in)
{
    json_t *value = json_copy(in->fields);
    struct rps_error error = {.text = ""};
    char why[RPS_ERROR_BYTES] = "";
    rps_status status;

    json_object_set_new(value, "name", json_string(in->table));
    json_object_set_new(
            value, "dimension", json_integer((json_int_t)in->trained.dim));
    status = rps_spec_from_value(value, &in->spec, &error);
    json_decref(value);
    if (status == RPS_OK) {
        status = rps_table_spec_check(&in->spec, why, sizeof(why));
    }
    return status == RPS_OK
                   ? RPS_TOOL_OK
                   : rps_tool_fail(RPS_TOOL_USAGE, "import", "table %s: %s",
                             in->table, why[0] != '\0' ? why : error.text);
}

static int
open_rows(struct importing *in, const struct rps_trained_from *where)
{
    struct rps_error error = {.text = ""};
    rps_status status = rps_trained_open(&in->trained, where, &error);

    if (status == RPS_E_NOT_FOUND) {
        return rps_tool_fail(RPS_TOOL_NOINPUT, "import", "%s", error.text);
    }
    if (status != RPS_OK) {
        return fail(status, &error);
    }
    if (in->call->flags[FLAG_WEIGHTS_ONLY].value != NULL) {
        in->trained.slot_count = 0;
        in->trained.uses = NULL;
        in->trained.last = NULL;
    }
    return make_spec(in);
}

static int
run(const struct rps_tool_call *call)
{
    struct importing in = {.call = call};
    struct rps_trained_from where;
    int code = read_flags(&in);

    if (code == RPS_TOOL_OK) {
        code = read_operands(&in, &where);
    }
    if (code == RPS_TOOL_OK) {
        code = open_rows(&in, &where);
    }
    if (code == RPS_TOOL_OK && call->flags[FLAG_CHECKPOINT].value == NULL) {
        code = import_into_job(&in);
    } else if (code == RPS_TOOL_OK) {
        code = check_all(&in);
        code = code == RPS_TOOL_OK ? import_into_checkpoint(&in) : code;
    }
    rps_trained_close(&in.trained);
    json_decref(in.fields);
    return code;
}

const struct rps_tool rps_tool_import = {
        .name = "import",
        .usage = usage,
        .summary = "rows trained elsewhere, into a checkpoint or a job",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = RPS_TOOL_OPERANDS_MAX,
        .run = run,
};
