/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/embedding/checkpoint/fixture.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "tests/unit/embedding/checkpoint/prepare.h"

#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DENSE_ELEMENTS 3000u

static const uint64_t special_keys[] = {0, 1, UINT64_MAX, UINT64_MAX - 1,
        (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1, 0x00ff00ff00ff00ffu};
#define SPECIAL_COUNT (sizeof(special_keys) / sizeof(special_keys[0]))

/** Tables, and how many rows and counts job_fill() gives them. */
static const struct {
    const char *name;
    uint32_t dim;
    enum rps_optimizer optimizer;
    enum rps_value type;
    uint64_t rows;
    uint64_t counted; /* keys without a row, or cells of a sketch */
    enum rps_admission admission;
} tables[] = {
        {"emb", 5, RPS_OPTIMIZER_ADAGRAD, .rows = 1500, .counted = 5000},
        {"lazy", 3, RPS_OPTIMIZER_ADAM, .rows = 700},
        {"plain", 1, RPS_OPTIMIZER_SGD, .rows = 300, .counted = 400,
                .admission = RPS_ADMISSION_SKETCH},
        {"empty", 4, RPS_OPTIMIZER_ADAGRAD},
        {"counted", 2, RPS_OPTIMIZER_ADAGRAD, .counted = 90},
        {"half", 7, RPS_OPTIMIZER_MOMENTUM, RPS_VALUE_F16, .rows = 900},
        {"brain", 3, RPS_OPTIMIZER_ROWWISE_ADAGRAD, RPS_VALUE_BF16, .rows = 800,
                .counted = 100},
        {"follow", 2, RPS_OPTIMIZER_FTRL, .rows = 50},
        {"nothing", 5, RPS_OPTIMIZER_ADAMW_CATCHUP, RPS_VALUE_F16},
        {"wide", 512, RPS_OPTIMIZER_SGD, .rows = 2300},
        {"w", RPS_DENSE_ROW_FLOATS, RPS_OPTIMIZER_ADAM, .rows = 3},
};
#define TABLE_COUNT (sizeof(tables) / sizeof(tables[0]))
#define CELLS_ALL   ((uint64_t)RPS_SLOT_COUNT * RPS_SKETCH_CELLS)

void
job_make(struct job *job, const char *dir, uint32_t parts)
{
    job_make_seeded(job, dir, parts, JOB_SEED);
}

void
job_make_seeded(struct job *job, const char *dir, uint32_t parts, uint64_t seed)
{
    memset(job, 0, sizeof(*job));
    job->parts = parts;
    job->epoch = 1;
    job->seed = seed;
    for (uint32_t i = 0; i < parts; i++) {
        snprintf(job->dir[i], sizeof(job->dir[i]), "%s", dir);
        ck_assert_int_eq(rps_store_create(&job->stores[i], seed), RPS_OK);
    }
}

void
job_finish(struct job *job)
{
    for (uint32_t i = 0; i < job->parts; i++) {
        rps_store_destroy(job->stores[i]);
    }
}

bool
owns(const struct job *job, uint32_t part, uint64_t hash)
{
    return (uint64_t)rps_hash_slot(hash) * job->parts / RPS_SLOT_COUNT == part;
}

struct rps_checkpoint_id
job_id(const struct job *job, uint64_t step, uint32_t part)
{
    struct rps_checkpoint_id id = {
            job->dir[part], step, job->epoch, part, job->parts};

    return id;
}

/* Row i of a table: its key, and from that everything else. */
static uint64_t
key_of(size_t table, uint64_t i)
{
    if (strcmp(tables[table].name, "w") == 0) {
        return i;
    }
    return i < SPECIAL_COUNT ? special_keys[i] : rps_mix64(i * 31 + table);
}

static float
value_of(size_t table, uint64_t key, uint32_t column)
{
    double unit = rps_unit_double(rps_mix64(key ^ (column * 7919u + table)));

    if (strcmp(tables[table].name, "w") == 0 &&
            key * RPS_DENSE_ROW_FLOATS + column % RPS_DENSE_ROW_FLOATS >=
                    DENSE_ELEMENTS) {
        return 0; /* the tail of the last row, and of its slots */
    }
    return (float)(2.0 * unit - 1.0);
}

static uint32_t
meta_of(uint64_t key)
{
    return (uint32_t)rps_mix64(key + 5);
}

/* Element `column` of a row as it lies in memory, 4 or 2 bytes: any finite
 * bits of the shorter types, so subnormals and -0 too. */
static uint32_t
value_bits(size_t table, uint64_t key, uint32_t column)
{
    const float value = value_of(table, key, column);
    const uint32_t exponent =
            tables[table].type == RPS_VALUE_F16 ? 0x7c00u : 0x7f80u;
    uint32_t bits;

    if (tables[table].type == RPS_VALUE_F32) {
        memcpy(&bits, &value, sizeof(bits));
        return bits;
    }
    bits = (uint32_t)rps_mix64(key ^ (column * 6007u + table)) & 0xffffu;
    return (bits & exponent) == exponent ? bits ^ 0x4000u : bits;
}

static size_t
item_bytes(size_t table)
{
    return tables[table].type == RPS_VALUE_F32 ? 4 : 2;
}

/* The number that element 0 is, by the definition of its type. */
static float
first_number(size_t table, uint64_t key)
{
    uint32_t bits = value_bits(table, key, 0);
    const int exponent = (int)(bits >> 10 & 31);
    const float fraction = (float)(bits & 1023) / 1024;
    float number;

    if (tables[table].type == RPS_VALUE_F16) {
        number = exponent == 0 ? ldexpf(fraction, -14)
                               : ldexpf(1 + fraction, exponent - 15);
        return bits >> 15 == 1 ? -number : number;
    }
    bits <<= tables[table].type == RPS_VALUE_BF16 ? 16 : 0;
    memcpy(&number, &bits, sizeof(number));
    return number;
}

/* Count i of a table. */
static struct rps_admission_count
count_of(size_t table, uint64_t i)
{
    const uint64_t mixed = rps_mix64(~(i * 17 + table));
    const bool cell = tables[table].admission == RPS_ADMISSION_SKETCH;
    const uint32_t max = cell ? 255 : 65535;
    struct rps_admission_count entry = {.id = mixed, .count = max};

    if (!cell && i < SPECIAL_COUNT && tables[table].rows == 0) {
        entry.id = special_keys[i];
    } else if (cell) {
        entry.id = i == 0 ? CELLS_ALL - 1 : mixed % CELLS_ALL;
    }
    if (i > 0) {
        entry.count = 1 + (uint32_t)rps_mix64(entry.id) % max;
    }
    return entry;
}

static rps_table_spec
spec_of(size_t table)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, tables[table].name, tables[table].dim,
            tables[table].optimizer);
    spec.seed = UINT64_MAX - table;
    spec.value_dtype = tables[table].type;
    spec.admission = tables[table].admission;
    spec.min_used_times = tables[table].counted > 0 ? 3 : 0;
    if (strcmp(tables[table].name, "w") == 0) {
        spec.dense_elements = DENSE_ELEMENTS;
        spec.initializer = RPS_INITIALIZER_ZEROS;
    }
    return spec;
}

static void
fill_row(struct rps_table *table, size_t t, uint64_t key)
{
    const rps_table_spec *spec = rps_table_spec_of(table);
    const size_t bytes = item_bytes(t);
    uint32_t slot_floats = rps_spec_slot_floats(spec);
    char *row = calloc(spec->dim, bytes);
    float *slots = calloc(slot_floats + 1, sizeof(*slots));
    uint32_t meta = meta_of(key);

    for (uint32_t i = 0; i < spec->dim; i++) {
        const uint32_t bits = value_bits(t, key, i);
        memcpy(row + i * bytes, &bits, bytes);
    }
    for (uint32_t i = 0; i < slot_floats; i++) {
        slots[i] = value_of(t, key, spec->dim + i);
    }
    ck_assert_int_eq(rps_table_restore_rows(table, 1, &key, row,
                             slot_floats == 0 ? NULL : slots, &meta, NULL),
            RPS_OK);
    free(row);
    free(slots);
}

static void
fill_counts(
        const struct job *job, uint32_t part, struct rps_table *table, size_t t)
{
    for (uint64_t i = 0; i < tables[t].counted; i++) {
        const struct rps_admission_count entry = count_of(t, i);
        const uint64_t slot =
                rps_admission_slot(tables[t].admission, entry.id, job->seed);

        if (owns(job, part, slot << 52)) {
            ck_assert_int_eq(
                    rps_table_restore_admission(table, 1, &entry, NULL),
                    RPS_OK);
        }
    }
}

void
job_fill(struct job *job)
{
    for (uint32_t part = 0; part < job->parts; part++) {
        for (size_t t = 0; t < TABLE_COUNT; t++) {
            rps_table_spec spec = spec_of(t);
            struct rps_table *table = NULL;

            ck_assert_int_eq(rps_store_open_table(
                                     job->stores[part], &spec, &table, NULL),
                    RPS_OK);
            for (uint64_t i = 0; i < tables[t].rows; i++) {
                uint64_t key = key_of(t, i);

                if (owns(job, part, rps_key_hash(key, JOB_SEED))) {
                    fill_row(table, t, key);
                }
            }
            fill_counts(job, part, table, t);
            rps_table_set_pushes(table, 100 + part);
        }
    }
}

struct seen {
    size_t table;
    const rps_table_spec *spec;
    uint64_t rows;
};

/* One assert only where something is wrong: each is a write to a pipe. */
static rps_status
check_row(void *context, const struct rps_row_view *row)
{
    struct seen *seen = context;
    const size_t t = seen->table;
    const size_t bytes = item_bytes(t);
    uint32_t dim = seen->spec->dim;
    bool same = row->meta == meta_of(row->key);

    for (uint32_t i = 0; i < dim; i++) {
        const uint32_t wanted = value_bits(t, row->key, i);

        same = same && memcmp(&wanted, (const char *)row->value + i * bytes,
                               bytes) == 0;
    }
    for (uint32_t i = 0; i < rps_spec_slot_floats(seen->spec); i++) {
        const float wanted = value_of(t, row->key, dim + i);

        same = same && memcmp(&wanted, &row->slots[i], sizeof(wanted)) == 0;
    }
    if (!same) {
        ck_abort_msg("table %s: key %" PRIu64 " came back otherwise",
                seen->spec->name, row->key);
    }
    seen->rows++;
    return RPS_OK;
}

/* Each key is where it belongs; read-only, so an absent one would be 0. */
static void
check_places(const struct job *job, size_t t)
{
    float row[1024];

    for (uint64_t i = 0; i < tables[t].rows; i++) {
        uint64_t key = key_of(t, i);
        uint64_t slot = rps_hash_slot(rps_key_hash(key, JOB_SEED));
        float first = first_number(t, key);

        const struct rps_read read = {
                .count = 1, .keys = &key, .read_only = true};

        rps_table_lookup(rps_store_find(job->stores[slot * job->parts / 4096],
                                 rps_table_id(tables[t].name)),
                &read, row, sizeof(row));
        if (memcmp(&first, row, sizeof(first)) != 0) {
            ck_abort_msg("table %s: key %" PRIu64 " is not where it belongs",
                    tables[t].name, key);
        }
    }
}

/* What a table's parts have of their counts: a sum that no order matters
 * to, and which every entry's id and count are in. */
struct counted {
    uint64_t entries;
    uint64_t sum;
};

static rps_status
add_count(void *context, const struct rps_admission_count *entry)
{
    struct counted *counted = context;

    counted->entries++;
    counted->sum += rps_mix64(entry->id ^ rps_mix64(entry->count));
    return RPS_OK;
}

static void
check_counts(const struct job *job)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        for (uint32_t part = 0; part < job->parts; part++) {
            struct counted wanted = {0, 0};
            struct counted got = {0, 0};

            for (uint64_t i = 0; i < tables[t].counted; i++) {
                const struct rps_admission_count entry = count_of(t, i);
                const uint64_t slot = rps_admission_slot(
                        tables[t].admission, entry.id, job->seed);

                if (owns(job, part, slot << 52)) {
                    add_count(&wanted, &entry);
                }
            }
            rps_table_visit_admission(rps_store_find(job->stores[part],
                                              rps_table_id(tables[t].name)),
                    add_count, &got);
            ck_assert_uint_eq(got.entries, wanted.entries);
            ck_assert_uint_eq(got.sum, wanted.sum);
        }
    }
}

void
job_check_rows(const struct job *job)
{
    for (size_t t = 0; t < TABLE_COUNT; t++) {
        uint64_t rows = 0;

        for (uint32_t part = 0; part < job->parts; part++) {
            struct rps_table *table = rps_store_find(
                    job->stores[part], rps_table_id(tables[t].name));
            struct seen seen = {t, NULL, 0};

            ck_assert_ptr_nonnull(table);
            seen.spec = rps_table_spec_of(table);
            ck_assert_uint_eq(seen.spec->dim, tables[t].dim);
            ck_assert_uint_eq(seen.spec->seed, UINT64_MAX - t);
            ck_assert_int_eq(rps_table_visit(table, check_row, &seen), RPS_OK);
            rows += seen.rows;
        }
        ck_assert_uint_eq(rows, tables[t].rows);
        check_places(job, t);
    }
    check_counts(job);
}

struct rps_digest
job_digest(const struct job *job, const char *table)
{
    struct rps_digest sum = {0, 0};

    for (uint32_t i = 0; i < job->parts; i++) {
        rps_digest_add(&sum, rps_table_digest(rps_store_find(
                                     job->stores[i], rps_table_id(table))));
    }
    return sum;
}

/* The tables of all parts: rows and digests added up. */
static json_t *
sum_tables(json_t *const *answers, uint32_t parts)
{
    json_t *sums = json_object();

    for (uint32_t i = 0; i < parts; i++) {
        json_t *part = json_object_get(answers[i], "part");
        const char *name;
        json_t *value;

        json_object_foreach(json_object_get(part, "tables"), name, value)
        {
            json_t *sum = json_object_get(sums, name);
            json_int_t rows = json_integer_value(json_object_get(sum, "rows"));
            struct rps_digest digest = {0, 0};
            struct rps_digest term = {0, 0};
            char hex[RPS_DIGEST_HEX_BYTES];

            if (sum != NULL) {
                ck_assert(rps_digest_parse(
                        json_string_value(json_object_get(sum, "digest")),
                        &digest));
            }
            ck_assert(rps_digest_parse(
                    json_string_value(json_object_get(value, "digest")),
                    &term));
            rps_digest_add(&digest, term);
            rows += json_integer_value(json_object_get(value, "rows"));
            json_object_set_new(sums, name,
                    json_pack("{s:O, s:I, s:s}", "spec",
                            json_object_get(value, "spec"), "rows", rows,
                            "digest", rps_digest_hex(digest, hex)));
        }
    }
    return sums;
}

static char *
digest_of(json_t *sums, char hex[RPS_DIGEST_HEX_BYTES])
{
    struct rps_digest_entry entries[TABLE_COUNT];
    char *texts[TABLE_COUNT];
    size_t n = 0;
    const char *name;
    json_t *value;

    json_object_foreach(sums, name, value)
    {
        rps_table_spec spec;

        ck_assert_int_eq(rps_spec_from_value(
                                 json_object_get(value, "spec"), &spec, NULL),
                RPS_OK);
        texts[n] = rps_spec_to_json(&spec);
        entries[n].name = name;
        entries[n].spec_json = texts[n];
        ck_assert(rps_digest_parse(
                json_string_value(json_object_get(value, "digest")),
                &entries[n].digest));
        n++;
    }
    rps_digest_hex(rps_digest_checkpoint(entries, n), hex);
    for (size_t i = 0; i < n; i++) {
        free(texts[i]);
    }
    return hex;
}

struct rps_lane_record job_first_lane = {
        UINT64_MAX, 3, RPS_E_WRONG_ROUTE, UINT64_MAX - 1};

static rps_status
prepare_part(const struct job *job, uint64_t step, uint32_t part,
        json_t **answer_out, struct rps_error *error)
{
    const struct rps_lane_record lanes[] = {
            job_first_lane, {part, 0, RPS_OK, 12}};
    struct rps_checkpoint_id id = job_id(job, step, part);

    return prepare_store(&id, job->stores[part], lanes, 2, answer_out, error);
}

/* What a chief makes of the answers. */
static char *
manifest_of(const struct job *job, uint64_t step, json_t *const *answers)
{
    json_t *parts = json_array();
    char seed[24];
    char hex[RPS_DIGEST_HEX_BYTES];
    json_t *sums;
    json_t *manifest;
    char *text;

    for (uint32_t i = 0; i < job->parts; i++) {
        json_array_append_new(
                parts, json_pack("{s:O, s:O, s:O}", "file",
                               json_object_get(answers[i], "file"), "bytes",
                               json_object_get(answers[i], "bytes"), "xxh3",
                               json_object_get(answers[i], "xxh3")));
    }
    sums = sum_tables(answers, job->parts);
    snprintf(seed, sizeof(seed), "%" PRIu64, job->seed);
    manifest = json_pack(
            "{s:i, s:s, s:n, s:I, s:i, s:s, s:s, s:o, s:O, s:{s:i}, s:s}",
            "format", 1, "kind", "full", "parent", "step", (json_int_t)step,
            "epoch", (int)job->epoch, "job_id", "recps", "seed", seed, "parts",
            parts, "tables", sums, "data_position", "row", 4711, "digest",
            digest_of(sums, hex));
    ck_assert_ptr_nonnull(manifest);
    text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(manifest);
    json_decref(sums);
    return text;
}

static rps_status
try_prepare(const struct job *job, uint64_t step, char **manifest_out,
        struct rps_error *error)
{
    json_t *answers[PARTS_MAX] = {NULL};
    rps_status status = RPS_OK;

    *manifest_out = NULL;
    for (uint32_t i = 0; i < job->parts && status == RPS_OK; i++) {
        status = prepare_part(job, step, i, &answers[i], error);
    }
    if (status == RPS_OK) {
        *manifest_out = manifest_of(job, step, answers);
    }
    for (uint32_t i = 0; i < job->parts; i++) {
        json_decref(answers[i]);
    }
    return status;
}

char *
job_prepare(const struct job *job, uint64_t step)
{
    struct rps_error error = {""};
    char *manifest;
    const rps_status status = try_prepare(job, step, &manifest, &error);

    ck_assert_msg(status == RPS_OK, "%s", error.text);
    return manifest;
}

rps_status
job_try_save(const struct job *job, uint64_t step, uint32_t keep,
        struct rps_error *error)
{
    char *manifest;
    rps_status status = try_prepare(job, step, &manifest, error);

    if (status == RPS_OK) {
        status = job_commit(job, step, keep, manifest, error);
    }
    for (uint32_t i = 0; i < job->parts && status != RPS_OK; i++) {
        const struct rps_checkpoint_id id = job_id(job, step, i);

        rps_checkpoint_abort(&id);
    }
    free(manifest);
    return status;
}

rps_status
job_commit(const struct job *job, uint64_t step, uint32_t keep,
        const char *manifest, struct rps_error *error)
{
    for (uint32_t i = 0; i < job->parts; i++) {
        struct rps_checkpoint_id id = job_id(job, step, i);
        rps_status status = rps_checkpoint_commit(
                &id, manifest, strlen(manifest), keep, error);

        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

void
job_save(const struct job *job, uint64_t step, uint32_t keep)
{
    struct rps_error error = {""};
    char *manifest = job_prepare(job, step);

    ck_assert_msg(job_commit(job, step, keep, manifest, &error) == RPS_OK, "%s",
            error.text);
    ck_assert_str_eq(error.text, "");
    free(manifest);
}

struct owner {
    const struct job *job;
    uint32_t part;
};

static bool
owner_owns(void *context, uint64_t hash)
{
    const struct owner *owner = context;

    return owns(owner->job, owner->part, hash);
}

rps_status
job_restore_part(
        struct job *job, uint64_t step, uint32_t part, struct rps_error *error)
{
    struct owner owner = {job, part};
    const struct rps_restore restore = {
            job->dir[part], step, part, job->parts, owner_owns, &owner};
    struct rps_lane_record *lanes = NULL;
    size_t lane_count = 0;
    json_t *manifest = NULL;
    rps_status status = rps_checkpoint_restore(
            &restore, job->stores[part], &manifest, &lanes, &lane_count, error);

    if (status == RPS_OK) {
        ck_assert_int_eq(
                json_integer_value(json_object_get(
                        json_object_get(manifest, "data_position"), "row")),
                4711);
        if (lane_count > 0 && job->seed == JOB_SEED) {
            ck_assert_uint_eq(lane_count, 2);
            ck_assert_uint_eq(lanes[0].client, UINT64_MAX);
            ck_assert_uint_eq(lanes[0].lane, 3);
            ck_assert_int_eq(lanes[0].status, RPS_E_WRONG_ROUTE);
            ck_assert_uint_eq(lanes[0].number, UINT64_MAX - 1);
            ck_assert_uint_eq(lanes[1].client, part);
        }
    } else {
        ck_assert_ptr_null(manifest);
        ck_assert_ptr_null(lanes);
    }
    json_decref(manifest);
    free(lanes);
    return status;
}

void
job_restore(struct job *job, uint64_t step)
{
    for (uint32_t i = 0; i < job->parts; i++) {
        struct rps_error error = {""};
        rps_status status = job_restore_part(job, step, i, &error);

        ck_assert_msg(status == RPS_OK, "%s", error.text);
    }
}
