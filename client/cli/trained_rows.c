/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/trained_rows.h"

#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/keyset.h"
#include "embedding/checkpoint/values.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LAST_MAX  0xffffffu
#define FILES_MAX (5u + RPS_TRAINED_SLOTS_MAX)

void
rps_trained_close(struct rps_trained_rows *trained)
{
    for (size_t i = 0; i < trained->file_count; i++) {
        rps_tensor_file_close(&trained->files[i]);
    }
    memset(trained, 0, sizeof(*trained));
}

static rps_status
open_file(struct rps_trained_rows *trained, const char *path,
        const struct rps_tensor **tensor_out, struct rps_error *error)
{
    struct rps_tensor_file *file = &trained->files[trained->file_count];
    rps_status status;

    assert(trained->file_count < FILES_MAX);
    status = rps_tensor_file_open(file, path, error);
    if (status != RPS_OK) {
        return status;
    }
    trained->file_count++;
    *tensor_out = rps_tensor_find(file, "");
    return *tensor_out != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_INVAL, "%s is no .npy file", path);
}

/* "<folder>/<name>.npy"; NOT_FOUND is the caller's to judge. */
static rps_status
open_in_folder(struct rps_trained_rows *trained, const char *folder,
        const char *name, const struct rps_tensor **tensor_out,
        struct rps_error *error)
{
    char *path = rps_format("%s/%s.npy", folder, name);
    rps_status status = path == NULL
                                ? rps_fail(error, RPS_E_NOMEM, "no memory")
                                : open_file(trained, path, tensor_out, error);

    free(path);
    return status;
}

static const char *const slot_names[] = {
        "momentum", "accumulator", "m", "v", "accum", "linear", "ms", "mom"};

static rps_status
add_slot(struct rps_trained_rows *trained, const char *name,
        const struct rps_tensor *tensor, struct rps_error *error)
{
    if (trained->slot_count == RPS_TRAINED_SLOTS_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "more than %u slots: no optimizer has slot-%s besides",
                RPS_TRAINED_SLOTS_MAX, name);
    }
    trained->slots[trained->slot_count].name = name;
    trained->slots[trained->slot_count++].tensor = tensor;
    return RPS_OK;
}

/* What may be there and need not. */
static rps_status
optional(rps_status status, const struct rps_tensor **tensor,
        struct rps_error *error)
{
    if (status == RPS_E_NOT_FOUND) {
        *tensor = NULL;
        error->text[0] = '\0';
        return RPS_OK;
    }
    return status;
}

static rps_status
open_folder(struct rps_trained_rows *trained,
        const struct rps_trained_from *where, struct rps_error *error)
{
    const char *folder = where->from;
    const char *keys = where->keys == NULL ? "keys" : where->keys;
    rps_status status = RPS_OK;

    if (strcmp(keys, "range") != 0) {
        status = open_in_folder(trained, folder, keys, &trained->keys, error);
    }
    if (status == RPS_OK) {
        status = open_in_folder(trained, folder,
                where->rows == NULL ? "rows" : where->rows, &trained->rows,
                error);
    }
    if (status == RPS_OK) {
        status = optional(
                open_in_folder(trained, folder, "uses", &trained->uses, error),
                &trained->uses, error);
    }
    if (status == RPS_OK) {
        status = optional(
                open_in_folder(trained, folder, "last", &trained->last, error),
                &trained->last, error);
    }
    for (size_t i = 0;
            i < sizeof(slot_names) / sizeof(slot_names[0]) && status == RPS_OK;
            i++) {
        const struct rps_tensor *tensor = NULL;
        char name[32];

        snprintf(name, sizeof(name), "slot-%s", slot_names[i]);
        status = optional(open_in_folder(trained, folder, name, &tensor, error),
                &tensor, error);
        if (status == RPS_OK && tensor != NULL) {
            status = add_slot(trained, slot_names[i], tensor, error);
        }
    }
    return status;
}

/* "keys", or "TABLE.keys". */
static const struct rps_tensor *
find_named(const struct rps_trained_rows *trained, const char *table,
        const char *name)
{
    const struct rps_tensor_file *file = &trained->files[0];
    const struct rps_tensor *tensor = rps_tensor_find(file, name);
    char *full = tensor == NULL ? rps_format("%s.%s", table, name) : NULL;

    if (full != NULL) {
        tensor = rps_tensor_find(file, full);
    }
    free(full);
    return tensor;
}

static rps_status
missing(const struct rps_trained_rows *trained, const char *what,
        struct rps_error *error)
{
    char names[400] = "";
    size_t used = 0;

    for (size_t i = 0; i < trained->files[0].count; i++) {
        used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
                i == 0 ? "" : ", ", trained->files[0].tensors[i].name);
        if (used >= sizeof(names)) {
            break;
        }
    }
    return rps_fail(error, RPS_E_INVAL,
            "%s: there is no tensor \"%s\"; it has: %s (name them with --keys "
            "and --rows; --keys range: the keys are 0, 1, 2, …)",
            trained->files[0].path, what, names);
}

static rps_status
open_tensors(struct rps_trained_rows *trained,
        const struct rps_trained_from *where, struct rps_error *error)
{
    const char *keys = where->keys == NULL ? "keys" : where->keys;
    const char *rows = where->rows == NULL ? "rows" : where->rows;
    rps_status status =
            rps_tensor_file_open(&trained->files[0], where->from, error);

    if (status != RPS_OK) {
        return status;
    }
    trained->file_count = 1;
    if (strcmp(keys, "range") != 0) {
        trained->keys = find_named(trained, where->table, keys);
        if (trained->keys == NULL) {
            return missing(trained, keys, error);
        }
    }
    trained->rows = find_named(trained, where->table, rows);
    if (trained->rows == NULL) {
        return missing(trained, rows, error);
    }
    trained->uses = find_named(trained, where->table, "uses");
    trained->last = find_named(trained, where->table, "last");
    for (size_t i = 0;
            i < sizeof(slot_names) / sizeof(slot_names[0]) && status == RPS_OK;
            i++) {
        const struct rps_tensor *tensor;
        char name[32];

        snprintf(name, sizeof(name), "slot-%s", slot_names[i]);
        tensor = find_named(trained, where->table, name);
        if (tensor != NULL) {
            status = add_slot(trained, slot_names[i], tensor, error);
        }
    }
    return status;
}

static rps_status
open_two(struct rps_trained_rows *trained, const struct rps_trained_from *where,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (where->keys == NULL || where->rows == NULL) {
        return rps_fail(error, RPS_E_INVAL,
                "say where the rows are: a folder or a .safetensors file, or "
                "--keys FILE and --rows FILE");
    }
    if (strcmp(where->keys, "range") != 0) {
        status = open_file(trained, where->keys, &trained->keys, error);
    }
    return status == RPS_OK
                   ? open_file(trained, where->rows, &trained->rows, error)
                   : status;
}

static bool
has_dtype(const struct rps_tensor *tensor, const char *list)
{
    const size_t n = strlen(tensor->dtype);
    const char *at = strstr(list, tensor->dtype);

    return at != NULL && (at[n] == ' ' || at[n] == '\0');
}

/* `width` 0: one-dimensional. */
static rps_status
check_tensor(const struct rps_trained_rows *trained, const char *what,
        const struct rps_tensor *tensor, const char *dtypes, uint64_t width,
        struct rps_error *error)
{
    const bool flat = width == 0;

    if (tensor == NULL) {
        return RPS_OK;
    }
    if (!has_dtype(tensor, dtypes)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s are of type %s, must be one of: %s%s", what, tensor->dtype,
                dtypes,
                strcmp(tensor->dtype, "<f8") == 0
                        ? " (convert them: x.astype('<f4'))"
                        : "");
    }
    if (tensor->ndim != (flat ? 1u : 2u) ||
            tensor->shape[0] != trained->count ||
            (!flat && tensor->shape[1] != width)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s have %" PRIu32 " dimensions (%" PRIu64 ", %" PRIu64
                "), must have shape (%" PRIu64 "%s",
                what, tensor->ndim, tensor->ndim > 0 ? tensor->shape[0] : 0,
                tensor->ndim > 1 ? tensor->shape[1] : 0, trained->count,
                flat ? ")" : ", width)");
    }
    return RPS_OK;
}

static rps_status
check_shapes(struct rps_trained_rows *trained, struct rps_error *error)
{
    const struct rps_tensor *rows = trained->rows;
    rps_status status;

    if (rows->ndim != 2 || rows->shape[1] == 0 ||
            rows->shape[1] > RPS_DIM_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "rows have %" PRIu32 " dimensions (%" PRIu64 ", %" PRIu64
                "), must have shape (rows, dim) with dim 1 to %u",
                rows->ndim, rows->ndim > 0 ? rows->shape[0] : 0,
                rows->ndim > 1 ? rows->shape[1] : 0, RPS_DIM_MAX);
    }
    trained->count = rows->shape[0];
    trained->dim = (uint32_t)rows->shape[1];
    status = check_tensor(
            trained, "rows", rows, "<f4 <f2 bf16", trained->dim, error);
    if (status == RPS_OK) {
        status = check_tensor(
                trained, "keys", trained->keys, "<u8 <i8 <u4 <i4", 0, error);
    }
    if (status == RPS_OK) {
        status = check_tensor(trained, "uses", trained->uses, "|u1", 0, error);
    }
    if (status == RPS_OK) {
        status = check_tensor(
                trained, "last", trained->last, "<u4 <i8", 0, error);
    }
    return status;
}

rps_status
rps_trained_open(struct rps_trained_rows *trained,
        const struct rps_trained_from *where, struct rps_error *error)
{
    struct stat info;
    rps_status status;

    memset(trained, 0, sizeof(*trained));
    if (where->from == NULL) {
        status = open_two(trained, where, error);
    } else if (stat(where->from, &info) == 0 && S_ISDIR(info.st_mode)) {
        status = open_folder(trained, where, error);
    } else {
        status = open_tensors(trained, where, error);
    }
    if (status == RPS_OK) {
        status = check_shapes(trained, error);
    }
    if (status != RPS_OK) {
        rps_trained_close(trained);
    }
    return status;
}

static const struct rps_tensor *
slot_of(const struct rps_trained_rows *trained, const char *name)
{
    for (size_t i = 0; i < trained->slot_count; i++) {
        if (strcmp(trained->slots[i].name, name) == 0) {
            return trained->slots[i].tensor;
        }
    }
    return NULL;
}

rps_status
rps_trained_check_slots(const struct rps_trained_rows *trained,
        const rps_table_spec *spec, struct rps_error *error)
{
    const uint32_t n = rps_spec_slot_count(spec);
    rps_status status = RPS_OK;

    if (trained->slot_count == 0) {
        return RPS_OK;
    }
    if (trained->slot_count != n) {
        status = rps_fail(error, RPS_E_INVAL,
                "%zu slots are there, %s has %" PRIu32
                ": --weights-only leaves them out, and they begin afresh",
                trained->slot_count, rps_optimizer_str(spec->optimizer), n);
    }
    for (uint32_t i = 0; i < n && status == RPS_OK; i++) {
        const struct rps_tensor *tensor =
                slot_of(trained, rps_spec_slot_name(spec, i));

        status = tensor == NULL ? rps_fail(error, RPS_E_INVAL,
                                          "slot-%s of %s is not there: "
                                          "--weights-only leaves slots out, "
                                          "and they begin afresh",
                                          rps_spec_slot_name(spec, i),
                                          rps_optimizer_str(spec->optimizer))
                                : check_tensor(trained, "slots", tensor, "<f4",
                                          rps_spec_slot_width(spec, i), error);
    }
    return status;
}

uint64_t
rps_trained_key(const struct rps_trained_rows *trained, uint64_t i)
{
    const struct rps_tensor *keys = trained->keys;
    const char *data = keys == NULL ? NULL : keys->data;
    uint64_t key;
    int32_t narrow;

    if (keys == NULL) {
        return i;
    }
    if (keys->dtype[2] == '8') {
        memcpy(&key, data + i * sizeof(key), sizeof(key));
        return key;
    }
    memcpy(&narrow, data + i * sizeof(narrow), sizeof(narrow));
    /* an int32 id is widened with its sign, as the client does */
    return keys->dtype[1] == 'i' ? (uint64_t)(int64_t)narrow
                                 : (uint64_t)(uint32_t)narrow;
}

void
rps_trained_row(const struct rps_trained_rows *trained, uint64_t i, float *row)
{
    const struct rps_tensor *rows = trained->rows;
    const enum rps_value type = strcmp(rows->dtype, "<f4") == 0 ? RPS_VALUE_F32
                                : strcmp(rows->dtype, "<f2") == 0
                                        ? RPS_VALUE_F16
                                        : RPS_VALUE_BF16;
    const size_t bytes = trained->dim * (type == RPS_VALUE_F32 ? 4u : 2u);

    rps_ckpt_values_floats(
            type, (const char *)rows->data + i * bytes, trained->dim, row);
}

bool
rps_trained_slots(const struct rps_trained_rows *trained,
        const rps_table_spec *spec, uint64_t i, float *slots)
{
    if (trained->slot_count == 0) {
        return false;
    }
    for (uint32_t k = 0; k < rps_spec_slot_count(spec); k++) {
        const struct rps_tensor *tensor =
                slot_of(trained, rps_spec_slot_name(spec, k));
        const size_t bytes = rps_spec_slot_width(spec, k) * sizeof(*slots);

        memcpy(slots, (const char *)tensor->data + i * bytes, bytes);
        slots += rps_spec_slot_width(spec, k);
    }
    return true;
}

static uint64_t
last_of(const struct rps_trained_rows *trained, uint64_t i)
{
    uint64_t last = 0;

    if (trained->last != NULL) {
        const size_t bytes = trained->last->dtype[2] == '8' ? 8 : 4;

        memcpy(&last, (const char *)trained->last->data + i * bytes, bytes);
    }
    return last;
}

uint32_t
rps_trained_meta(const struct rps_trained_rows *trained, uint64_t i)
{
    uint8_t uses = 0;

    if (trained->uses != NULL) {
        memcpy(&uses, (const char *)trained->uses->data + i, sizeof(uses));
    }
    return (uint32_t)uses << 24 | (uint32_t)(last_of(trained, i) & LAST_MAX);
}

static rps_status
check_row(const struct rps_trained_rows *trained, const rps_table_spec *spec,
        uint64_t i, float *row, void *stored, struct rps_error *error)
{
    rps_trained_row(trained, i, row);
    for (uint32_t k = 0; k < trained->dim; k++) {
        if (!isfinite(row[k])) {
            return rps_fail(error, RPS_E_NONFINITE,
                    "row %" PRIu64 ", key %" PRIu64 ": column %" PRIu32
                    " is not finite",
                    i, rps_trained_key(trained, i), k);
        }
    }
    rps_ckpt_values_of_floats(spec->value_dtype, row, trained->dim, stored);
    if (!rps_ckpt_values_finite(spec->value_dtype, stored, trained->dim)) {
        return rps_fail(error, RPS_E_NONFINITE,
                "row %" PRIu64 ", key %" PRIu64
                ": a value is too large for the table's value_dtype",
                i, rps_trained_key(trained, i));
    }
    if (last_of(trained, i) > LAST_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "row %" PRIu64 ", key %" PRIu64 ": last is %" PRIu64
                ", must be below 2^24",
                i, rps_trained_key(trained, i), last_of(trained, i));
    }
    return RPS_OK;
}

static rps_status
check_slots(const struct rps_trained_rows *trained, const rps_table_spec *spec,
        uint64_t i, float *slots, struct rps_error *error)
{
    const uint32_t n = rps_spec_slot_floats(spec);

    if (rps_trained_slots(trained, spec, i, slots) &&
            !rps_ckpt_values_finite(RPS_VALUE_F32, slots, n)) {
        return rps_fail(error, RPS_E_NONFINITE,
                "row %" PRIu64 ", key %" PRIu64 ": a slot is not finite", i,
                rps_trained_key(trained, i));
    }
    return RPS_OK;
}

static rps_status
check_rows(const struct rps_trained_rows *trained, const rps_table_spec *spec,
        struct rps_error *error)
{
    float *row = calloc(trained->dim, sizeof(*row));
    float *stored = calloc(trained->dim, sizeof(*stored));
    float *slots = calloc(rps_spec_slot_floats(spec) + 1, sizeof(*slots));
    rps_status status = RPS_OK;

    if (row == NULL || stored == NULL || slots == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory");
    }
    for (uint64_t i = 0; i < trained->count && status == RPS_OK; i++) {
        status = check_row(trained, spec, i, row, stored, error);
        if (status == RPS_OK) {
            status = check_slots(trained, spec, i, slots, error);
        }
    }
    free(row);
    free(stored);
    free(slots);
    return status;
}

/* Those whose mixed bits are of this range, so that one key is of one range. */
static rps_status
check_range(const struct rps_trained_rows *trained, uint64_t range,
        uint64_t ranges, struct rps_keyset *set, struct rps_error *error)
{
    rps_keyset_clear(set);
    for (uint64_t i = 0; i < trained->count; i++) {
        const uint64_t key = rps_trained_key(trained, i);
        uint8_t *mark;

        if ((rps_mix64(key) >> 32) % ranges != range) {
            continue;
        }
        mark = rps_keyset_add(set, key);
        if (mark == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for the keys");
        }
        if (*mark != 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "key %" PRIu64 " is there twice (the second time in row "
                    "%" PRIu64 ")",
                    key, i);
        }
        *mark = 1;
    }
    return RPS_OK;
}

static rps_status
check_keys(const struct rps_trained_rows *trained, size_t bytes,
        struct rps_error *error)
{
    struct rps_keyset set = {.count = 0};
    uint64_t ranges = 1;
    rps_status status = RPS_OK;

    if (trained->keys == NULL) {
        return RPS_OK;
    }
    bytes = bytes < rps_keyset_bytes(0) ? rps_keyset_bytes(0) : bytes;
    while (rps_keyset_bytes(trained->count / ranges) > bytes) {
        ranges++;
    }
    for (uint64_t i = 0; i < ranges && status == RPS_OK; i++) {
        status = check_range(trained, i, ranges, &set, error);
    }
    rps_keyset_finish(&set);
    return status;
}

rps_status
rps_trained_check(const struct rps_trained_rows *trained,
        const rps_table_spec *spec, size_t bytes, struct rps_error *error)
{
    rps_status status = check_keys(trained, bytes, error);

    return status == RPS_OK ? check_rows(trained, spec, error) : status;
}
