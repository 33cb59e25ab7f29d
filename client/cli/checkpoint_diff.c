/* SPDX-License-Identifier: Apache-2.0 */
/* recps diff: what differs between two checkpoints, row by row of each key. */
#include "base/hash.h"
#include "base/spec.h"
#include "client/cli/checkpoint_tool.h"
#include "client/cli/table_print.h"
#include "embedding/checkpoint/replay.h"
#include "embedding/checkpoint/rowset.h"
#include "embedding/checkpoint/values.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_BYTES ((size_t)512 << 20)

static const char usage[] =
        "usage: recps diff [--json] [--table TABLE] A B [OPTION]...\n"
        "\n"
        "Compare two checkpoints, aligned by key: for each table the rows of\n"
        "B alone (added) and of A alone (erased), those whose values or\n"
        "optimizer slots changed, the largest change and where it is, and how\n"
        "near the rows of both point (cosine: of the changed ones the mean\n"
        "and the least). A and B are ckpt-STEP folders, or checkpoint_dirs:\n"
        "their newest step that was not abandoned. Exit code 0: they are the\n"
        "same; 1: they differ.\n";

enum {
    FLAG_TABLE,
    FLAG_MEMORY
};

static struct rps_tool_flag flags[] = {
        {.name = "table", .argument = "TABLE", .help = "this one only"},
        RPS_MEMORY_FLAG,
        {.name = NULL},
};

/** The largest change of one kind, and where. */
struct change {
    double most;
    uint64_t key;
    uint32_t column;
    uint64_t rows; /* that have one */
};

/** One table. */
struct difference {
    const char *name;
    const rps_table_spec *a; /* NULL: A does not have it */
    const rps_table_spec *b;
    const char *field; /* in which the specs differ; NULL: none */
    bool comparable;   /* rows have as many columns */
    bool same_slots;   /* and slots of the same meaning */
    uint64_t rows_a;
    uint64_t rows_b;
    uint64_t added;
    uint64_t erased;
    uint64_t changed; /* value or slots */
    uint64_t stamped; /* uses or last alone */
    struct change value;
    struct change slots;
    double cosine_sum;
    double cosine_least;
    uint64_t cosines;
};

struct comparing {
    struct rps_ckpt_chain chains[2];
    struct rps_checkpoint_progress progress;
    size_t memory_bytes;
    uint64_t done;
    uint64_t total;
    struct difference *list;
    size_t count;
    /* of the table at hand */
    struct difference *d;
    struct rps_rowset rows; /* of A, in the slots at hand */
    float *row_a;           /* [dim] */
    float *row_b;
};

static void
note_change(struct change *change, double by, uint64_t key, uint32_t column)
{
    if (by > change->most) {
        change->most = by;
        change->key = key;
        change->column = column;
    }
}

/* 1 for two rows of zeros, 0 where one alone is. */
static double
cosine_of(const float *a, const float *b, uint32_t dim)
{
    double dot = 0;
    double aa = 0;
    double bb = 0;

    for (uint32_t i = 0; i < dim; i++) {
        dot += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    if (aa == 0 || bb == 0) {
        return aa == bb ? 1 : 0;
    }
    return dot / sqrt(aa) / sqrt(bb);
}

/* By their bits: -0 and 0 are two values, as they are for the digest. */
static bool
compare_floats(struct change *change, const float *a, const float *b,
        uint32_t n, uint64_t key)
{
    if (memcmp(a, b, n * sizeof(*a)) == 0) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        note_change(change, fabs((double)a[i] - (double)b[i]), key, i);
    }
    change->rows++;
    return true;
}

static void
note_cosine(struct difference *d, double cosine)
{
    d->cosine_least = d->cosines == 0 || cosine < d->cosine_least
                              ? cosine
                              : d->cosine_least;
    d->cosine_sum += cosine;
    d->cosines++;
}

static void
compare_row(struct comparing *c, size_t at, const struct rps_ckpt_batch *batch,
        size_t row)
{
    struct difference *d = c->d;
    const size_t floats = c->rows.slot_floats;
    const uint64_t key = batch->keys[row];
    bool value;
    bool slots = false;

    rps_ckpt_values_floats(d->a->value_dtype,
            c->rows.values + at * c->rows.value_bytes, d->a->dim, c->row_a);
    rps_ckpt_values_floats(d->b->value_dtype,
            batch->values + row * batch->value_bytes, d->b->dim, c->row_b);
    value = compare_floats(&d->value, c->row_a, c->row_b, d->a->dim, key);
    if (d->same_slots && floats > 0) {
        slots = compare_floats(&d->slots, c->rows.slots + at * floats,
                batch->slots + row * floats, (uint32_t)floats, key);
    }
    if (value) {
        note_cosine(d, cosine_of(c->row_a, c->row_b, d->a->dim));
    }
    d->changed += value || slots ? 1 : 0;
    d->stamped += !value && !slots && c->rows.meta[at] != batch->meta[row];
}

static rps_status
keep_a(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct comparing *c = context;

    c->d->rows_a += batch->n;
    return rps_rowset_add(&c->rows, batch)
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM,
                             "no memory for the rows of table %s: give a "
                             "smaller --memory, which makes more passes",
                             c->d->name);
}

static rps_status
meet_b(void *context, struct rps_ckpt_batch *batch, struct rps_error *error)
{
    struct comparing *c = context;

    (void)error;
    c->d->rows_b += batch->n;
    for (size_t i = 0; i < batch->n; i++) {
        const size_t at = rps_rowset_find(&c->rows, batch->keys[i]);

        if (at == SIZE_MAX) {
            c->d->added++;
        } else {
            c->rows.seen[at] = true;
            compare_row(c, at, batch, i);
        }
    }
    return RPS_OK;
}

static void
advance(void *context, uint64_t bytes)
{
    struct comparing *c = context;

    c->done += bytes;
    rps_checkpoint_progress_show(
            &c->progress, c->done < c->total ? c->done : c->total, c->total);
}

static struct rps_ckpt_replay
replay_of(struct comparing *c, int side, const char *table)
{
    return (struct rps_ckpt_replay){.chain = &c->chains[side],
            .table = table,
            .slot_last = RPS_SLOT_COUNT - 1,
            .memory_bytes = c->memory_bytes / 2,
            .advance = advance,
            .context = c};
}

/* Ranges of slots whose rows of A fit into the memory. */
static uint32_t
count_ranges(const struct comparing *c)
{
    const struct rps_ckpt_chain *chain = &c->chains[0];
    const size_t row =
            rps_rowset_bytes(c->rows.value_bytes, c->rows.slot_floats);
    const uint64_t fit = c->memory_bytes / 2 / row + 1;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < chain->count; i++) {
        const struct rps_ckpt_manifest *manifest = &chain->links[i].manifest;
        const size_t at = rps_ckpt_table_find(
                manifest->tables, manifest->table_count, c->d->name);

        rows += at < manifest->table_count ? manifest->tables[at].rows : 0;
    }
    return rows / fit + 1 < RPS_SLOT_COUNT ? (uint32_t)(rows / fit + 1)
                                           : RPS_SLOT_COUNT;
}

static rps_status
compare_range(struct comparing *c, uint32_t first, uint32_t last,
        struct rps_error *error)
{
    struct rps_ckpt_replay a = replay_of(c, 0, c->d->name);
    struct rps_ckpt_replay b = replay_of(c, 1, c->d->name);
    rps_status status;

    a.slot_first = b.slot_first = first;
    a.slot_last = b.slot_last = last;
    rps_rowset_clear(&c->rows);
    status = rps_ckpt_replay_rows(&a, keep_a, c, error);
    if (status == RPS_OK) {
        status = rps_ckpt_replay_rows(&b, meet_b, c, error);
    }
    for (size_t i = 0; i < c->rows.count && status == RPS_OK; i++) {
        c->d->erased += c->rows.seen[i] ? 0 : 1;
    }
    return status;
}

static rps_status
compare_rows(struct comparing *c, struct rps_error *error)
{
    const uint32_t dim = c->d->a->dim;
    rps_status status = RPS_OK;
    uint32_t ranges;

    c->rows.value_bytes = rps_ckpt_value_bytes(c->d->a);
    c->rows.slot_floats = rps_spec_slot_floats(c->d->a);
    c->row_a = calloc(dim, sizeof(*c->row_a));
    c->row_b = calloc(dim, sizeof(*c->row_b));
    if (c->row_a == NULL || c->row_b == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    ranges = count_ranges(c);
    for (uint32_t i = 0; i < ranges && status == RPS_OK; i++) {
        status = compare_range(c, RPS_SLOT_COUNT * i / ranges,
                RPS_SLOT_COUNT * (i + 1) / ranges - 1, error);
    }
    rps_rowset_finish(&c->rows);
    free(c->row_a);
    free(c->row_b);
    return status;
}

static rps_status
count_keys(void *context, struct rps_ckpt_keys *keys, struct rps_error *error)
{
    uint64_t *count = context;

    (void)error;
    *count += keys->n;
    return RPS_OK;
}

/* A table of one side, or rows of other dimensions: how many there are. */
static rps_status
count_rows(struct comparing *c, struct rps_error *error)
{
    struct difference *d = c->d;
    rps_status status = RPS_OK;

    if (d->a != NULL) {
        const struct rps_ckpt_replay replay = replay_of(c, 0, d->name);

        status = rps_ckpt_replay_keys(&replay, count_keys, &d->rows_a, error);
        d->erased = d->rows_a;
    }
    if (d->b != NULL && status == RPS_OK) {
        const struct rps_ckpt_replay replay = replay_of(c, 1, d->name);

        status = rps_ckpt_replay_keys(&replay, count_keys, &d->rows_b, error);
        d->added = d->rows_b;
    }
    return status;
}

static const rps_table_spec *
spec_of(const struct comparing *c, int side, const char *name)
{
    const struct rps_ckpt_chain *chain = &c->chains[side];
    const struct rps_ckpt_manifest *manifest =
            &chain->links[chain->count - 1].manifest;
    const size_t at =
            rps_ckpt_table_find(manifest->tables, manifest->table_count, name);

    return at < manifest->table_count ? &manifest->tables[at].spec : NULL;
}

static void
add_table(struct comparing *c, const char *name)
{
    struct difference *d = &c->list[c->count++];

    d->name = name;
    d->a = spec_of(c, 0, name);
    d->b = spec_of(c, 1, name);
    if (d->a == NULL || d->b == NULL) {
        return;
    }
    d->comparable = d->a->dim == d->b->dim;
    d->same_slots = d->comparable && d->a->optimizer == d->b->optimizer;
    d->field = rps_spec_identity_differs(d->a, d->b);
    if (d->field == NULL) {
        d->field = rps_spec_policy_differs(d->a, d->b);
    }
}

static int
by_name(const void *a, const void *b)
{
    return strcmp(((const struct difference *)a)->name,
            ((const struct difference *)b)->name);
}

/* The tables of both, or the one that is asked for. */
static int
list_tables(struct comparing *c, const char *only)
{
    size_t room = 1;

    for (int side = 0; side < 2; side++) {
        room += rps_ckpt_chain_last(&c->chains[side])->manifest.table_count;
    }
    c->list = calloc(room, sizeof(*c->list));
    if (c->list == NULL) {
        return rps_tool_fail(RPS_TOOL_FAILED, "diff", "no memory");
    }
    if (only != NULL) {
        add_table(c, only);
        return c->list[0].a != NULL || c->list[0].b != NULL
                       ? RPS_TOOL_OK
                       : rps_tool_fail_status("diff", RPS_E_NOT_FOUND,
                                 "neither has a table %s", only);
    }
    for (int side = 0; side < 2; side++) {
        const struct rps_ckpt_manifest *manifest =
                &rps_ckpt_chain_last(&c->chains[side])->manifest;

        for (size_t i = 0; i < manifest->table_count; i++) {
            const char *name = manifest->tables[i].spec.name;

            if (side == 0 || spec_of(c, 0, name) == NULL) {
                add_table(c, name);
            }
        }
    }
    qsort(c->list, c->count, sizeof(*c->list), by_name);
    return RPS_TOOL_OK;
}

static rps_status
compare(struct comparing *c, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; i < c->count; i++) {
        for (int side = 0; side < 2; side++) {
            const struct rps_ckpt_replay replay =
                    replay_of(c, side, c->list[i].name);

            c->total += rps_ckpt_replay_bytes(&replay);
        }
    }
    for (size_t i = 0; i < c->count && status == RPS_OK; i++) {
        c->d = &c->list[i];
        status = c->d->comparable ? compare_rows(c, error)
                                  : count_rows(c, error);
    }
    return status;
}

static bool
is_same(const struct difference *d)
{
    return d->a != NULL && d->b != NULL && d->field == NULL && d->added == 0 &&
           d->erased == 0 && d->changed == 0 && d->stamped == 0;
}

static json_t *
change_to_json(const struct change *change)
{
    char key[24];

    if (change->rows == 0) {
        return json_null();
    }
    snprintf(key, sizeof(key), "%" PRIu64, change->key);
    return json_pack("{s:I, s:f, s:s, s:I}", "rows", (json_int_t)change->rows,
            "largest", isfinite(change->most) ? change->most : -1.0, "key", key,
            "column", (json_int_t)change->column);
}

static json_t *
to_json(const struct difference *d)
{
    json_t *object = json_pack("{s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:I}",
            "name", d->name, "same", (int)is_same(d), "rows_a",
            (json_int_t)d->rows_a, "rows_b", (json_int_t)d->rows_b, "added",
            (json_int_t)d->added, "erased", (json_int_t)d->erased, "changed",
            (json_int_t)d->changed, "stamped", (json_int_t)d->stamped);

    json_object_set_new(object, "in_a", json_boolean(d->a != NULL));
    json_object_set_new(object, "in_b", json_boolean(d->b != NULL));
    json_object_set_new(object, "spec_differs",
            d->field == NULL ? json_null() : json_string(d->field));
    json_object_set_new(object, "value", change_to_json(&d->value));
    json_object_set_new(object, "slots", change_to_json(&d->slots));
    if (d->cosines > 0) {
        json_object_set_new(object, "cosine",
                json_pack("{s:f, s:f}", "mean",
                        d->cosine_sum / (double)d->cosines, "least",
                        d->cosine_least));
    }
    return object;
}

static void
print_change(struct rps_table_print *print, const struct change *change)
{
    if (change->rows == 0) {
        rps_table_print_cell(print, "-");
    } else {
        rps_table_print_cell(
                print, "%.4g (key %" PRIu64 ")", change->most, change->key);
    }
}

static bool
print_text(const struct comparing *c)
{
    struct rps_table_print print = {.columns = 9,
            .titles = {"table", "rows", "added", "erased", "changed",
                    "largest change", "in slots", "cosine", "least"},
            .right = {false, true, true, true, true, false, false, true, true}};

    for (size_t i = 0; i < c->count; i++) {
        const struct difference *d = &c->list[i];

        rps_table_print_cell(&print, "%s", d->name);
        rps_table_print_cell(&print, "%" PRIu64, d->rows_b);
        rps_table_print_cell(&print, "%" PRIu64, d->added);
        rps_table_print_cell(&print, "%" PRIu64, d->erased);
        rps_table_print_cell(&print, "%" PRIu64, d->changed);
        print_change(&print, &d->value);
        print_change(&print, &d->slots);
        if (d->cosines > 0) {
            rps_table_print_cell(
                    &print, "%.6f", d->cosine_sum / (double)d->cosines);
            rps_table_print_cell(&print, "%.6f", d->cosine_least);
        } else {
            rps_table_print_cell(&print, "-");
            rps_table_print_cell(&print, "-");
        }
    }
    return rps_table_print_end(&print);
}

/* What no number of the table says. */
static void
print_notes(const struct comparing *c)
{
    for (size_t i = 0; i < c->count; i++) {
        const struct difference *d = &c->list[i];

        if (d->a == NULL || d->b == NULL) {
            printf("table %s: only in %s\n", d->name, d->a == NULL ? "B" : "A");
        } else if (!d->comparable) {
            printf("table %s: rows of %" PRIu32 " and of %" PRIu32
                   " columns cannot be compared\n",
                    d->name, d->a->dim, d->b->dim);
        } else if (d->field != NULL) {
            printf("table %s: another %s%s\n", d->name, d->field,
                    d->same_slots ? "" : "; slots are not compared");
        }
        if (d->stamped > 0) {
            printf("table %s: %" PRIu64 " more rows differ in uses or last "
                   "alone\n",
                    d->name, d->stamped);
        }
    }
}

static int
answer(const struct comparing *c, bool json)
{
    bool same = true;
    int code = RPS_TOOL_OK;

    for (size_t i = 0; i < c->count; i++) {
        same = same && is_same(&c->list[i]);
    }
    if (json) {
        json_t *tables = json_array();

        for (size_t i = 0; i < c->count; i++) {
            json_array_append_new(tables, to_json(&c->list[i]));
        }
        code = rps_tool_print_json(
                json_pack("{s:b, s:o}", "same", (int)same, "tables", tables));
    } else {
        code = print_text(c) ? RPS_TOOL_OK : RPS_TOOL_FAILED;
        print_notes(c);
    }
    return code == RPS_TOOL_OK && !same ? RPS_TOOL_DIFFERS : code;
}

static int
run_diff(struct comparing *c, const struct rps_tool_call *call)
{
    struct rps_error error = {.text = ""};
    rps_status status;
    int code = list_tables(c, call->flags[FLAG_TABLE].value);

    if (code != RPS_TOOL_OK) {
        return code;
    }
    rps_checkpoint_progress_begin(&c->progress);
    status = compare(c, &error);
    rps_checkpoint_progress_end(&c->progress);
    return status == RPS_OK ? answer(c, call->options->json)
                            : rps_checkpoint_fail("diff", status, &error);
}

static int
run(const struct rps_tool_call *call)
{
    struct comparing c = {.count = 0};
    int code = rps_checkpoint_memory(
            "diff", &call->flags[FLAG_MEMORY], &c.memory_bytes);

    if (call->operand_count != 2) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, "diff", "give two checkpoints' folders");
    }
    c.memory_bytes = c.memory_bytes == 0 ? MEMORY_BYTES : c.memory_bytes;
    for (int side = 0; side < 2 && code == RPS_TOOL_OK; side++) {
        code = rps_checkpoint_open(
                "diff", call->operands[side], &c.chains[side]);
    }
    if (code == RPS_TOOL_OK &&
            rps_ckpt_chain_last(&c.chains[0])->manifest.job_seed !=
                    rps_ckpt_chain_last(&c.chains[1])->manifest.job_seed) {
        /* ranges of slots of the two would hold other keys */
        code = rps_tool_fail_status("diff", RPS_E_UNSUPPORTED,
                "the two have another job seed: their slots hold other keys");
    }
    if (code == RPS_TOOL_OK) {
        code = run_diff(&c, call);
    }
    free(c.list);
    for (int side = 0; side < 2; side++) {
        rps_ckpt_chain_close(&c.chains[side]);
    }
    return code;
}

const struct rps_tool rps_tool_diff = {
        .name = "diff",
        .usage = usage,
        .summary = "what differs between two checkpoints",
        .flags = flags,
        .scope = RPS_SCOPE_TOOL,
        .operands_max = 2,
        .takes_folder = true,
        .run = run,
};
