/* SPDX-License-Identifier: Apache-2.0 */
/* recps inspect: what a checkpoint holds. */
#include "base/spec.h"
#include "base/text.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/table_print.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/replay.h"
#include "embedding/checkpoint/values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
        "usage: recps inspect [--json] [--fast] CKPT [OPTION]...\n"
        "\n"
        "Say what a checkpoint holds: its tables, their rows, dimensions and\n"
        "bytes, how long their rows are (2-norms: the least, the median, the\n"
        "99th percentile, the largest), and the links that it stands on. CKPT\n"
        "is a ckpt-STEP folder, or a checkpoint_dir: its newest step that was\n"
        "not abandoned.\n";

enum {
    FLAG_FAST,
    FLAG_MEMORY
};

static struct rps_tool_flag flags[] = {
        {.name = "fast",
                .help = "read no rows: there are no norms then, and of a delta "
                        "how many rows there are at most"},
        RPS_MEMORY_FLAG,
        {.name = NULL},
};

/* Norms by their logarithm: 16 buckets an octave, so 4.4 % wide. */
#define OCTAVE    16
#define LOG2_LOW  (-64)
#define LOG2_HIGH 64
#define BUCKETS   ((LOG2_HIGH - LOG2_LOW) * OCTAVE)

struct norms {
    uint64_t rows; /* those that are finite */
    uint64_t zeros;
    uint64_t nonfinite;
    double least;
    double largest;
    double sum;
    uint64_t buckets[BUCKETS];
};

/** One table. */
struct table_facts {
    const rps_table_spec *spec;
    uint64_t rows; /* at most, where is_bound() */
    uint64_t admission;
    uint64_t bytes; /* of all links */
    struct norms norms;
    float *floats; /* [dim] */
};

struct inspection {
    struct rps_ckpt_chain chain;
    struct rps_checkpoint_progress progress;
    bool fast;
    size_t memory_bytes;
    uint64_t done;
    uint64_t total;
    struct table_facts *tables;
    size_t count;
};

static double
norm_of(const float *row, uint32_t dim)
{
    double sum = 0;

    for (uint32_t i = 0; i < dim; i++) {
        sum += (double)row[i] * (double)row[i];
    }
    return sqrt(sum);
}

static void
add_norm(struct norms *norms, double norm)
{
    int bucket;

    if (!isfinite(norm)) {
        norms->nonfinite++;
        return;
    }
    norms->least =
            norms->rows == 0 || norm < norms->least ? norm : norms->least;
    norms->largest = norm > norms->largest ? norm : norms->largest;
    norms->sum += norm;
    norms->rows++;
    if (norm == 0) {
        norms->zeros++;
        return;
    }
    bucket = (int)floor((log2(norm) - LOG2_LOW) * OCTAVE);
    bucket = bucket < 0 ? 0 : bucket >= BUCKETS ? BUCKETS - 1 : bucket;
    norms->buckets[bucket]++;
}

/* The middle of the bucket in which so large a part of the rows ends. */
static double
percentile(const struct norms *norms, double part)
{
    const uint64_t wanted = (uint64_t)ceil(part * (double)norms->rows);
    uint64_t seen = norms->zeros;
    int bucket = 0;
    double middle;

    if (norms->rows == 0 || seen >= wanted) {
        return 0;
    }
    while (bucket < BUCKETS - 1 && seen + norms->buckets[bucket] < wanted) {
        seen += norms->buckets[bucket++];
    }
    middle = exp2((bucket + 0.5) / OCTAVE + LOG2_LOW);
    return middle < norms->least     ? norms->least
           : middle > norms->largest ? norms->largest
                                     : middle;
}

static rps_status
add_batch(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct table_facts *facts = context;
    const uint32_t dim = facts->spec->dim;

    (void)error;
    for (size_t i = 0; i < batch->n; i++) {
        rps_ckpt_values_floats(facts->spec->value_dtype,
                batch->values + i * batch->value_bytes, dim, facts->floats);
        add_norm(&facts->norms, norm_of(facts->floats, dim));
    }
    facts->rows += batch->n;
    return RPS_OK;
}

static void
advance(void *context, uint64_t bytes)
{
    struct inspection *in = context;

    in->done += bytes;
    rps_checkpoint_progress_show(&in->progress,
            in->done < in->total ? in->done : in->total, in->total);
}

static bool
is_of_table(const char *file, const char *table)
{
    const size_t n = strlen(table);

    return strncmp(file, "table-", 6) == 0 &&
           strncmp(file + 6, table, n) == 0 && file[6 + n] == '/';
}

/* Files of the table in one part. */
static uint64_t
file_bytes(const struct rps_ckpt_part *part, const char *table)
{
    uint64_t bytes = 0;
    const char *name;
    json_t *value;

    json_object_foreach(part->files, name, value)
    {
        struct rps_ckpt_listed listed;

        if (is_of_table(name, table) && rps_ckpt_listed_parse(value, &listed)) {
            bytes += listed.bytes;
        }
    }
    return bytes;
}

/* What the part files say. */
static void
add_listed(struct inspection *in, struct table_facts *facts)
{
    const uint32_t last = in->chain.count - 1;

    for (uint32_t i = 0; i < in->chain.count; i++) {
        const struct rps_ckpt_link *link = &in->chain.links[i];

        for (uint32_t k = 0; k < link->manifest.part_count; k++) {
            const struct rps_ckpt_part *part = &link->parts[k];
            const size_t at = rps_ckpt_table_find(
                    part->tables, part->table_count, facts->spec->name);

            facts->bytes += file_bytes(part, facts->spec->name);
            if (at < part->table_count) {
                facts->admission += i == last ? part->tables[at].admission : 0;
                facts->rows += in->fast ? part->tables[at].rows : 0;
            }
        }
    }
}

static struct rps_ckpt_replay
replay_of(struct inspection *in, const char *table)
{
    return (struct rps_ckpt_replay){.chain = &in->chain,
            .table = table,
            .slot_last = RPS_SLOT_COUNT - 1,
            .memory_bytes = in->memory_bytes,
            .advance = advance,
            .context = in};
}

static rps_status
inspect_table(struct inspection *in, struct table_facts *facts,
        struct rps_error *error)
{
    const struct rps_ckpt_replay replay = replay_of(in, facts->spec->name);

    add_listed(in, facts);
    if (in->fast) {
        return RPS_OK;
    }
    facts->floats = calloc(facts->spec->dim, sizeof(*facts->floats));
    if (facts->floats == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    return rps_ckpt_replay_rows(&replay, add_batch, facts, error);
}

static rps_status
inspect(struct inspection *in, struct rps_error *error)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&in->chain)->manifest;
    rps_status status = RPS_OK;

    in->tables = calloc(manifest->table_count + 1, sizeof(*in->tables));
    if (in->tables == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    for (size_t i = 0; i < manifest->table_count && !in->fast; i++) {
        const struct rps_ckpt_replay replay =
                replay_of(in, manifest->tables[i].spec.name);

        in->total += rps_ckpt_replay_bytes(&replay);
    }
    for (size_t i = 0; i < manifest->table_count && status == RPS_OK; i++) {
        in->tables[i].spec = &manifest->tables[i].spec;
        in->count++;
        status = inspect_table(in, &in->tables[i], error);
    }
    return status;
}

/* A row may be in several links, and erased in the last. */
static bool
is_bound(const struct inspection *in)
{
    return in->fast && in->chain.count > 1;
}

static const char *
type_of(const rps_table_spec *spec)
{
    static const char *const names[] = {"float32", "float16", "bfloat16", "i8"};

    return names[spec->value_dtype];
}

static json_t *
norms_to_json(const struct norms *norms)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I}", "least",
            norms->least, "mean",
            norms->rows == 0 ? 0.0 : norms->sum / (double)norms->rows, "p50",
            percentile(norms, 0.5), "p90", percentile(norms, 0.9), "p99",
            percentile(norms, 0.99), "largest", norms->largest, "zeros",
            (json_int_t)norms->zeros, "nonfinite",
            (json_int_t)norms->nonfinite);
}

static json_t *
table_to_json(const struct inspection *in, const struct table_facts *facts)
{
    const json_int_t rows = (json_int_t)facts->rows;
    json_t *object = json_pack("{s:s, s:o, s:o, s:I, s:I}", "name",
            facts->spec->name, "spec", rps_spec_to_value(facts->spec), "rows",
            is_bound(in) ? json_null() : json_integer(rows), "admission",
            (json_int_t)facts->admission, "bytes", (json_int_t)facts->bytes);

    if (is_bound(in)) {
        json_object_set_new(object, "rows_at_most", json_integer(rows));
    }
    if (!in->fast) {
        json_object_set_new(object, "norms", norms_to_json(&facts->norms));
    }
    return object;
}

static uint64_t
link_bytes(const struct rps_ckpt_link *link)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < link->manifest.part_count; i++) {
        const char *name;
        json_t *value;

        json_object_foreach(link->parts[i].files, name, value)
        {
            struct rps_ckpt_listed listed;

            bytes += rps_ckpt_listed_parse(value, &listed) ? listed.bytes : 0;
        }
        bytes += link->manifest.parts[i].bytes;
    }
    return bytes;
}

static void
count_link(const struct rps_ckpt_link *link, uint64_t *rows, uint64_t *erased)
{
    *rows = 0;
    *erased = 0;
    for (size_t i = 0; i < link->manifest.table_count; i++) {
        *rows += link->manifest.tables[i].rows;
        *erased += link->manifest.tables[i].erased;
    }
}

static json_t *
link_to_json(const struct rps_ckpt_link *link)
{
    uint64_t rows;
    uint64_t erased;

    count_link(link, &rows, &erased);
    return json_pack("{s:I, s:I, s:s, s:I, s:I, s:I, s:I}", "step",
            (json_int_t)link->manifest.step, "epoch",
            (json_int_t)link->manifest.epoch, "kind",
            link->manifest.is_delta ? "delta" : "full", "parts",
            (json_int_t)link->manifest.part_count, "rows", (json_int_t)rows,
            "erased", (json_int_t)erased, "bytes",
            (json_int_t)link_bytes(link));
}

static int
print_json(struct inspection *in)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&in->chain)->manifest;
    json_t *tables = json_array();
    json_t *links = json_array();
    json_t *position = json_object_get(manifest->root, "data_position");
    char seed[24];

    for (size_t i = 0; i < in->count; i++) {
        json_array_append_new(tables, table_to_json(in, &in->tables[i]));
    }
    for (uint32_t i = 0; i < in->chain.count; i++) {
        json_array_append_new(links, link_to_json(&in->chain.links[i]));
    }
    snprintf(seed, sizeof(seed), "%" PRIu64, manifest->job_seed);
    return rps_tool_print_json(json_pack(
            "{s:I, s:I, s:s, s:s, s:O?, s:O?, s:o, s:o}", "step",
            (json_int_t)manifest->step, "epoch", (json_int_t)manifest->epoch,
            "kind", manifest->is_delta ? "delta" : "full", "seed", seed,
            "job_id", json_object_get(manifest->root, "job_id"),
            "data_position", position, "tables", tables, "links", links));
}

static void
print_norms(struct rps_table_print *print, const struct inspection *in,
        const struct norms *norms)
{
    if (in->fast) {
        return;
    }
    rps_table_print_cell(print, "%.4g", norms->least);
    rps_table_print_cell(print, "%.4g", percentile(norms, 0.5));
    rps_table_print_cell(print, "%.4g", percentile(norms, 0.99));
    rps_table_print_cell(print, "%.4g", norms->largest);
}

static bool
print_tables(const struct inspection *in)
{
    struct rps_table_print print = {.columns = in->fast ? 7 : 11,
            .titles = {"table", "dim", "type", "optimizer", "rows", "counts",
                    "bytes", "norm", "p50", "p99", "most"},
            .right = {false, true, false, false, true, true, true, true, true,
                    true, true}};
    char bytes[32];

    for (size_t i = 0; i < in->count; i++) {
        const struct table_facts *facts = &in->tables[i];

        rps_table_print_cell(&print, "%s", facts->spec->name);
        rps_table_print_cell(&print, "%" PRIu32, facts->spec->dim);
        rps_table_print_cell(&print, "%s", type_of(facts->spec));
        rps_table_print_cell(
                &print, "%s", rps_optimizer_str(facts->spec->optimizer));
        rps_table_print_cell(
                &print, "%s%" PRIu64, is_bound(in) ? "<=" : "", facts->rows);
        rps_table_print_cell(&print, "%" PRIu64, facts->admission);
        rps_table_print_cell(
                &print, "%s", rps_format_bytes(facts->bytes, bytes));
        print_norms(&print, in, &facts->norms);
    }
    return rps_table_print_end(&print);
}

static bool
print_links(const struct inspection *in)
{
    struct rps_table_print print = {.columns = 6,
            .titles = {"link", "kind", "parts", "rows", "erased", "bytes"},
            .right = {false, false, true, true, true, true}};
    char bytes[32];

    for (uint32_t i = 0; i < in->chain.count; i++) {
        const struct rps_ckpt_link *link = &in->chain.links[i];
        uint64_t rows;
        uint64_t erased;

        count_link(link, &rows, &erased);
        rps_table_print_cell(&print, "ckpt-%012" PRIu64, link->manifest.step);
        rps_table_print_cell(
                &print, "%s", link->manifest.is_delta ? "delta" : "full");
        rps_table_print_cell(&print, "%" PRIu32, link->manifest.part_count);
        rps_table_print_cell(&print, "%" PRIu64, rows);
        rps_table_print_cell(&print, "%" PRIu64, erased);
        rps_table_print_cell(
                &print, "%s", rps_format_bytes(link_bytes(link), bytes));
    }
    return rps_table_print_end(&print);
}

static int
print_text(struct inspection *in)
{
    const struct rps_ckpt_manifest *manifest =
            &rps_ckpt_chain_last(&in->chain)->manifest;
    bool good;

    printf("step %" PRIu64 ", epoch %" PRIu32 ", job seed %" PRIu64 "\n\n",
            manifest->step, manifest->epoch, manifest->job_seed);
    good = print_tables(in);
    printf("\n");
    return print_links(in) && good ? RPS_TOOL_OK : RPS_TOOL_FAILED;
}

static int
run(const struct rps_tool_call *call)
{
    struct inspection in = {.fast = call->flags[FLAG_FAST].value != NULL};
    struct rps_error error = {.text = ""};
    rps_status status;
    int code = rps_checkpoint_memory(
            "inspect", &call->flags[FLAG_MEMORY], &in.memory_bytes);

    if (call->operand_count != 1) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "inspect", "give the checkpoint's folder");
    }
    if (code == RPS_TOOL_OK) {
        code = rps_checkpoint_open("inspect", call->operands[0], &in.chain);
    }
    if (code != RPS_TOOL_OK) {
        return code;
    }
    rps_checkpoint_progress_begin(&in.progress);
    status = inspect(&in, &error);
    rps_checkpoint_progress_end(&in.progress);
    if (status != RPS_OK) {
        code = rps_checkpoint_fail("inspect", status, &error);
    } else {
        code = call->options->json ? print_json(&in) : print_text(&in);
    }
    for (size_t i = 0; i < in.count; i++) {
        free(in.tables[i].floats);
    }
    free(in.tables);
    rps_ckpt_chain_close(&in.chain);
    return code;
}

const struct rps_tool rps_tool_inspect = {
        .name = "inspect",
        .usage = usage,
        .summary = "what a checkpoint holds",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 1,
        .takes_folder = true,
        .run = run,
};
