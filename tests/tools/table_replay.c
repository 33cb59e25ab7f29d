/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table's life from files, so that a test in Python can compare what came
 * of it with a model of its own:
 *
 *   table_replay FOLDER
 *
 * reads   replay.json   {"spec": {...}, "job_seed": 0, "shard_log2": 6,
 *                        "operations": [...]}
 *         u8.npy f4.npy u4.npy      flat pools; an array of an operation is
 *                                   its place in one: keys u8, floats f4,
 *                                   counts and meta u4
 * writes  out.json      one object an operation, with its status
 *         <i>.rows.npy  of lookup i [n][dim]
 *         <i>.{keys,rows,slots,meta}.npy   of dump i, by ascending key; rows
 *                                   as they lie in memory (bf16 as <u2)
 *
 * Operations: {"do": "push", "step", "t", "now", "lr", "scale", "parts": [
 * {"n", "keys", "gradients", "counts"}]}, {"do": "assign", "n", "keys",
 * "rows", "slots", "meta"}, {"do": "lookup", "n", "keys", "counts",
 * "read_only"}, {"do": "dump"}, {"do": "policy", "spec",
 * "step", "now"}, {"do": "reload"}:
 * what a restore does, the rows, slots and meta into a new table.
 */
#include "base/file.h"
#include "base/json.h"
#include "base/npy.h"
#include "base/spec.h"
#include "embedding/table.h"
#include "embedding/table_impl.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pool {
    char *file; /* owned */
    const char *items;
    size_t count;
    size_t item_bytes;
};

struct replay {
    const char *folder;
    struct pool u8;
    struct pool f4;
    struct pool u4;
    rps_table_spec spec;
    uint64_t job_seed;
    uint32_t shard_log2;
    struct rps_table *table;
};

static void
give_up(const char *what, const char *why)
{
    fprintf(stderr, "table_replay: %s: %s\n", what, why);
    exit(2);
}

static void *
take(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);

    if (memory == NULL) {
        give_up("memory", "none left");
    }
    return memory;
}

static struct pool
pool_read(const char *folder, const char *name)
{
    struct rps_error error = {.text = ""};
    struct pool pool = {.count = 0};
    struct rps_npy npy;
    char path[4096];
    size_t bytes = 0;

    snprintf(path, sizeof(path), "%s/%s.npy", folder, name);
    if (rps_file_read(path, SIZE_MAX / 2, &pool.file, &bytes, &error) !=
                    RPS_OK ||
            rps_npy_parse(pool.file, bytes, bytes, &npy, &error) != RPS_OK) {
        give_up(path, error.text);
    }
    if (npy.ndim != 1 || npy.dtype[1] != name[0] || npy.dtype[2] != name[1]) {
        give_up(path, "not a flat array of its type");
    }
    pool.items = pool.file + npy.data_offset;
    pool.count = npy.shape[0];
    pool.item_bytes = npy.item_bytes;
    return pool;
}

/* `count` items from the place that `field` names; NULL if it is absent. */
static const void *
array_of(const struct pool *pool, const json_t *from, const char *field,
        size_t count)
{
    const json_t *value = json_object_get(from, field);
    uint64_t at = 0;

    if (value == NULL) {
        return NULL;
    }
    if (!rps_json_count(value, &at) || at > pool->count ||
            count > pool->count - at) {
        give_up(field, "not inside its pool");
    }
    return pool->items + at * pool->item_bytes;
}

static uint64_t
count_of(const json_t *from, const char *field, uint64_t otherwise)
{
    uint64_t value = otherwise;

    if (json_object_get(from, field) != NULL &&
            !rps_json_whole(json_object_get(from, field), &value)) {
        give_up(field, "not a count");
    }
    return value;
}

static float
float_of(const json_t *from, const char *field, float otherwise)
{
    const json_t *value = json_object_get(from, field);

    return value == NULL ? otherwise : (float)json_number_value(value);
}

static void
save(const struct replay *replay, size_t index, const char *name,
        struct rps_npy npy, const void *data, size_t bytes)
{
    char header[RPS_NPY_HEADER_BYTES];
    char path[4096];
    FILE *file = NULL;

    snprintf(path, sizeof(path), "%s/%zu.%s.npy", replay->folder, index, name);
    rps_npy_header(&npy, header);
    file = fopen(path, "wb");
    if (file == NULL || fwrite(header, sizeof(header), 1, file) != 1 ||
            (bytes > 0 && fwrite(data, bytes, 1, file) != 1) ||
            fclose(file) != 0) {
        give_up(path, "cannot be written");
    }
}

static json_t *
do_push(struct replay *replay, const json_t *operation)
{
    const json_t *list = json_object_get(operation, "parts");
    const size_t dim = replay->spec.dim;
    const size_t n = json_array_size(list);
    struct rps_contribution *parts = take(n, sizeof(*parts));
    struct rps_update update = {
            .step = count_of(operation, "step", 0),
            .now_s = count_of(operation, "now", 0),
            .t = count_of(operation, "t", 0),
            .learning_rate = float_of(operation, "lr", NAN),
            .scale = float_of(operation, "scale", 1.0f),
    };
    struct rps_apply_report report;
    rps_status status = RPS_OK;
    char key[24];

    for (size_t i = 0; i < n; i++) {
        const json_t *part = json_array_get(list, i);
        const size_t count = count_of(part, "n", 0);
        parts[i] = (struct rps_contribution){
                .count = count,
                .keys = array_of(&replay->u8, part, "keys", count),
                .counts = array_of(&replay->u4, part, "counts", count),
                .gradients =
                        array_of(&replay->f4, part, "gradients", count * dim),
        };
    }
    status = rps_table_apply(replay->table, &update, parts, n, &report);
    free(parts);
    snprintf(
            key, sizeof(key), "%llu", (unsigned long long)report.nonfinite_key);
    return json_pack("{s:i, s:I, s:I, s:s}", "status", (int)status, "applied",
            (json_int_t)report.applied, "nonfinite",
            (json_int_t)report.nonfinite, "nonfinite_key", key);
}

static json_t *
do_assign(struct replay *replay, const json_t *operation)
{
    const size_t n = count_of(operation, "n", 0);
    const size_t slots = rps_spec_slot_floats(&replay->spec);
    struct rps_error error = {.text = ""};
    const rps_status status = rps_table_assign(replay->table, n,
            array_of(&replay->u8, operation, "keys", n),
            array_of(&replay->f4, operation, "rows", n * replay->spec.dim),
            array_of(&replay->f4, operation, "slots", n * slots),
            array_of(&replay->u4, operation, "meta", n), &error);

    return json_pack("{s:i, s:s}", "status", (int)status, "text", error.text);
}

static json_t *
do_lookup(struct replay *replay, const json_t *operation, size_t index)
{
    const size_t n = count_of(operation, "n", 0);
    const size_t row_bytes = replay->spec.dim * sizeof(float);
    const struct rps_npy npy = {
            .dtype = "<f4", .ndim = 2, .shape = {n, replay->spec.dim}};
    const struct rps_read read = {
            .count = n,
            .keys = array_of(&replay->u8, operation, "keys", n),
            .counts = array_of(&replay->u4, operation, "counts", n),
            .read_only = json_is_true(json_object_get(operation, "read_only")),
    };
    float *rows = take(n, row_bytes);

    rps_table_lookup(replay->table, &read, rows, row_bytes);
    save(replay, index, "rows", npy, rows, n * row_bytes);
    free(rows);
    return json_pack("{s:i}", "status", 0);
}

/* All rows, by ascending key. */
struct copy {
    size_t count;
    size_t room;
    size_t value_bytes;
    size_t slot_floats;
    uint64_t *keys;
    char *values;
    float *slots;
    uint32_t *meta;
    size_t *order;
};

static rps_status
copy_row(void *context, const struct rps_row_view *row)
{
    struct copy *copy = context;
    const size_t at = copy->count++;

    if (at == copy->room) {
        give_up("dump", "more rows than the table counts");
    }
    copy->keys[at] = row->key;
    copy->meta[at] = row->meta;
    memcpy(copy->values + at * copy->value_bytes, row->value,
            copy->value_bytes);
    if (copy->slot_floats > 0) {
        memcpy(copy->slots + at * copy->slot_floats, row->slots,
                copy->slot_floats * sizeof(float));
    }
    return RPS_OK;
}

static int
by_key(const void *a, const void *b, void *context)
{
    const uint64_t *keys = context;
    const uint64_t left = keys[*(const size_t *)a];
    const uint64_t right = keys[*(const size_t *)b];

    return (left > right) - (left < right);
}

static struct copy
copy_of(const struct replay *replay)
{
    struct rps_table_stats stats;
    struct copy copy = {
            .value_bytes =
                    replay->spec.dim *
                    (replay->spec.value_dtype == RPS_VALUE_F32 ? 4u : 2u),
            .slot_floats = rps_spec_slot_floats(&replay->spec),
    };

    rps_table_stats_of(replay->table, &stats);
    copy.room = stats.rows;
    copy.keys = take(copy.room, sizeof(*copy.keys));
    copy.values = take(copy.room, copy.value_bytes);
    copy.slots = take(copy.room, copy.slot_floats * sizeof(float) + 1);
    copy.meta = take(copy.room, sizeof(*copy.meta));
    copy.order = take(copy.room, sizeof(*copy.order));
    if (rps_table_visit(replay->table, copy_row, &copy) != RPS_OK ||
            copy.count != copy.room) {
        give_up("dump", "fewer rows than the table counts");
    }
    for (size_t i = 0; i < copy.count; i++) {
        copy.order[i] = i;
    }
    qsort_r(copy.order, copy.count, sizeof(*copy.order), by_key, copy.keys);
    return copy;
}

static void
copy_free(struct copy *copy)
{
    free(copy->keys);
    free(copy->values);
    free(copy->slots);
    free(copy->meta);
    free(copy->order);
}

/* One array of the copy, in the order of keys. */
static void
save_sorted(const struct replay *replay, size_t index, const char *name,
        const struct copy *copy, struct rps_npy npy, const void *data,
        size_t bytes)
{
    char *sorted = take(copy->count, bytes + 1);

    for (size_t i = 0; i < copy->count && bytes > 0; i++) {
        memcpy(sorted + i * bytes, (const char *)data + copy->order[i] * bytes,
                bytes);
    }
    save(replay, index, name, npy, sorted, copy->count * bytes);
    free(sorted);
}

static json_t *
do_dump(struct replay *replay, size_t index)
{
    static const char dtypes[3][8] = {"<f4", "<f2", "<u2"};
    struct copy copy = copy_of(replay);
    struct rps_npy npy = {.dtype = "<u8", .ndim = 1, .shape = {copy.count}};
    struct rps_npy rows = {.ndim = 2, .shape = {copy.count, replay->spec.dim}};
    const size_t count = copy.count;

    save_sorted(replay, index, "keys", &copy, npy, copy.keys, 8);
    memcpy(npy.dtype, "<u4", 4);
    save_sorted(replay, index, "meta", &copy, npy, copy.meta, 4);
    memcpy(rows.dtype, dtypes[replay->spec.value_dtype], 4);
    save_sorted(
            replay, index, "rows", &copy, rows, copy.values, copy.value_bytes);
    memcpy(rows.dtype, "<f4", 4);
    rows.shape[1] = copy.slot_floats;
    save_sorted(replay, index, "slots", &copy, rows, copy.slots,
            copy.slot_floats * sizeof(float));
    copy_free(&copy);
    return json_pack("{s:i, s:I}", "status", 0, "rows", (json_int_t)count);
}

static void
make_table(struct replay *replay)
{
    struct rps_error error = {.text = ""};

    if (rps_table_create_sharded(&replay->table, &replay->spec,
                replay->job_seed, replay->shard_log2, &error) != RPS_OK) {
        give_up("create", error.text);
    }
}

/* Values go through a lookup: f16 and bf16 are exact in float32. */
static json_t *
do_reload(struct replay *replay)
{
    struct rps_table_stats stats;
    struct rps_error error = {.text = ""};
    struct copy copy = copy_of(replay);
    const size_t row_bytes = replay->spec.dim * sizeof(float);
    float *rows = take(copy.count, row_bytes);
    const struct rps_read read = {.count = copy.count, .keys = copy.keys};
    rps_status status = RPS_OK;

    rps_table_lookup(replay->table, &read, rows, row_bytes);
    rps_table_stats_of(replay->table, &stats);
    rps_table_destroy(replay->table);
    make_table(replay);
    status = rps_table_assign(replay->table, copy.count, copy.keys, rows,
            copy.slot_floats > 0 ? copy.slots : NULL, copy.meta, &error);
    rps_table_set_pushes(replay->table, stats.pushes);
    free(rows);
    copy_free(&copy);
    return json_pack("{s:i, s:s}", "status", (int)status, "text", error.text);
}

static json_t *
do_policy(struct replay *replay, const json_t *operation)
{
    const struct rps_now now = {.step = count_of(operation, "step", 0),
            .unix_s = count_of(operation, "now", 0)};
    struct rps_error error = {.text = ""};
    rps_table_spec spec;
    rps_status status = rps_spec_from_value(
            json_object_get(operation, "spec"), &spec, &error);

    if (status == RPS_OK) {
        status = rps_table_alter(replay->table, &spec, now, &error);
    }
    if (status == RPS_OK) {
        replay->spec = spec;
    }
    return json_pack("{s:i, s:s}", "status", (int)status, "text", error.text);
}

static json_t *
carry_out(struct replay *replay, const json_t *operation, size_t index)
{
    const char *what = json_string_value(json_object_get(operation, "do"));

    if (what == NULL) {
        give_up("operation", "has no \"do\"");
    } else if (strcmp(what, "push") == 0) {
        return do_push(replay, operation);
    } else if (strcmp(what, "assign") == 0) {
        return do_assign(replay, operation);
    } else if (strcmp(what, "lookup") == 0) {
        return do_lookup(replay, operation, index);
    } else if (strcmp(what, "dump") == 0) {
        return do_dump(replay, index);
    } else if (strcmp(what, "reload") == 0) {
        return do_reload(replay);
    } else if (strcmp(what, "policy") == 0) {
        return do_policy(replay, operation);
    } else {
        give_up(what, "no such operation");
    }
    return NULL;
}

/* {"scale", "fan", "distribution"}: the enums' numbers. */
static void
scale_variance(struct replay *replay, const json_t *words)
{
    if (words != NULL && rps_table_spec_variance_scaling(&replay->spec,
                                 float_of(words, "scale", 1.0f),
                                 (enum rps_fan)count_of(words, "fan", 0),
                                 (enum rps_distribution)count_of(
                                         words, "distribution", 0)) != RPS_OK) {
        give_up("variance_scaling", "refused");
    }
}

static json_t *
replay_open(struct replay *replay)
{
    struct rps_error error = {.text = ""};
    json_error_t where;
    json_t *root = NULL;
    char path[4096];

    snprintf(path, sizeof(path), "%s/replay.json", replay->folder);
    root = json_load_file(path, 0, &where);
    if (root == NULL) {
        give_up(path, where.text);
    }
    if (rps_spec_from_value(json_object_get(root, "spec"), &replay->spec,
                &error) != RPS_OK) {
        give_up(path, error.text);
    }
    scale_variance(replay, json_object_get(root, "variance_scaling"));
    replay->job_seed = count_of(root, "job_seed", 0);
    replay->shard_log2 = (uint32_t)count_of(root, "shard_log2", RPS_SHARD_LOG2);
    replay->u8 = pool_read(replay->folder, "u8");
    replay->f4 = pool_read(replay->folder, "f4");
    replay->u4 = pool_read(replay->folder, "u4");
    make_table(replay);
    return root;
}

int
main(int argc, char **argv)
{
    struct replay replay = {.folder = argc == 2 ? argv[1] : NULL};
    json_t *results = json_array();
    json_t *root = NULL;
    const json_t *list = NULL;
    char path[4096];

    if (replay.folder == NULL) {
        give_up("usage", "table_replay FOLDER");
    }
    root = replay_open(&replay);
    list = json_object_get(root, "operations");
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_array_append_new(
                results, carry_out(&replay, json_array_get(list, i), i));
    }
    snprintf(path, sizeof(path), "%s/out.json", replay.folder);
    if (json_dump_file(results, path, JSON_COMPACT) != 0) {
        give_up(path, "cannot be written");
    }
    json_decref(results);
    json_decref(root);
    rps_table_destroy(replay.table);
    free(replay.u8.file);
    free(replay.f4.file);
    free(replay.u4.file);
    return 0;
}
