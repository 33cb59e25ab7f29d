/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/manifest.h"

#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rps_status
bad_field(struct rps_error *error, const char *where, const char *field,
        const char *wanted)
{
    return rps_fail(
            error, RPS_E_CORRUPT, "%s: \"%s\" is not %s", where, field, wanted);
}

static bool
get_u64(const json_t *object, const char *field, uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(object, field);

    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(value);
    return *out <= max;
}

static bool
get_u64_text(const json_t *object, const char *field, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, field));

    return text != NULL && rps_parse_u64(text, out);
}

static bool
get_digest(const json_t *object, struct rps_digest *out)
{
    const char *text = json_string_value(json_object_get(object, "digest"));

    return text != NULL && rps_digest_parse(text, out);
}

bool
rps_ckpt_listed_parse(const json_t *value, struct rps_ckpt_listed *listed)
{
    const char *hex = json_string_value(json_object_get(value, "xxh3"));

    return get_u64(value, "bytes", INT64_MAX, &listed->bytes) && hex != NULL &&
           strlen(hex) == 16 && rps_parse_hex64(hex, &listed->sum);
}

static rps_status
load_root(const char *text, size_t n, const char *where, json_t **root_out,
        struct rps_error *error)
{
    json_error_t at;
    uint64_t format;

    *root_out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (*root_out == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: not JSON at line %d column %d: %s", where, at.line,
                at.column, at.text);
    }
    if (!get_u64(*root_out, "format", INT64_MAX, &format)) {
        return bad_field(error, where, "format", "a number");
    }
    if (format != RPS_CKPT_FORMAT) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s: format %" PRIu64 "; this version reads format %u", where,
                format, RPS_CKPT_FORMAT);
    }
    return RPS_OK;
}

/* One table's "spec", named as the object's key says. */
static rps_status
parse_spec(const json_t *value, const char *name, const char *where,
        rps_table_spec *spec, struct rps_error *error)
{
    struct rps_error cause = {""};
    char why[512] = "";
    rps_status status;

    if (!json_is_object(value)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: table \"%.130s\" has no "
                "\"spec\"",
                where, name);
    }
    status = rps_spec_from_value(value, spec, &cause);
    if (status == RPS_OK) {
        status = rps_table_spec_check(spec, why, sizeof(why));
        rps_fail(&cause, status, "%s", why);
    }
    if (status == RPS_OK && strcmp(spec->name, name) != 0) {
        status = rps_fail(
                &cause, RPS_E_CORRUPT, "its spec names \"%s\"", spec->name);
    }
    if (status == RPS_OK) {
        return RPS_OK;
    }
    /* what is legal but not built stays UNSUPPORTED: the file is whole */
    return rps_fail(error, status == RPS_E_INVAL ? RPS_E_CORRUPT : status,
            "%s: table \"%.130s\": %s", where, name, cause.text);
}

static rps_status
parse_table(const char *name, const json_t *value, bool in_part,
        const char *where, struct rps_ckpt_table *table,
        struct rps_error *error)
{
    rps_status status = parse_spec(
            json_object_get(value, "spec"), name, where, &table->spec, error);

    if (status != RPS_OK) {
        return status;
    }
    table->pushes = 0;
    if (!get_u64(value, "rows", INT64_MAX, &table->rows) ||
            !get_digest(value, &table->digest) ||
            (in_part && !get_u64_text(value, "pushes", &table->pushes))) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: table %s: rows, digest or pushes are missing or not "
                "such values",
                where, name);
    }
    return RPS_OK;
}

static rps_status
parse_tables(const json_t *root, bool in_part, const char *where,
        struct rps_ckpt_table **tables_out, size_t *count_out,
        struct rps_error *error)
{
    json_t *object = json_object_get(root, "tables");
    struct rps_ckpt_table *tables;
    const char *name;
    json_t *value;

    *count_out = 0;
    *tables_out = NULL;
    if (!json_is_object(object)) {
        return bad_field(error, where, "tables", "an object");
    }
    tables = calloc(json_object_size(object) + 1, sizeof(*tables));
    if (tables == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", where);
    }
    *tables_out = tables;
    json_object_foreach(object, name, value)
    {
        rps_status status = parse_table(
                name, value, in_part, where, &tables[*count_out], error);

        if (status != RPS_OK) {
            return status;
        }
        (*count_out)++;
    }
    return RPS_OK;
}

static rps_status
parse_listed_parts(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const json_t *list = json_object_get(manifest->root, "parts");
    size_t n = json_array_size(list);

    if (n == 0 || n > RPS_SLOT_COUNT) {
        return bad_field(error, where, "parts", "a list of 1..4096 parts");
    }
    manifest->parts = calloc(n, sizeof(*manifest->parts));
    if (manifest->parts == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", where);
    }
    manifest->part_count = (uint32_t)n;
    for (uint32_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(list, i);
        const char *file = json_string_value(json_object_get(item, "file"));
        char *name = rps_ckpt_part_name(i, (uint32_t)n);
        bool good = name != NULL && file != NULL && strcmp(file, name) == 0 &&
                    rps_ckpt_listed_parse(item, &manifest->parts[i]);

        free(name);
        if (!good) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: \"parts\" entry %" PRIu32
                    " is not {file: \"part-%" PRIu32
                    "-of-%zu.json\", bytes, xxh3}",
                    where, i, i, n);
        }
    }
    return RPS_OK;
}

static rps_status
parse_manifest_head(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const json_t *root = manifest->root;
    const char *kind = json_string_value(json_object_get(root, "kind"));
    const json_t *position = json_object_get(root, "data_position");
    uint64_t epoch;

    if (kind == NULL) {
        return bad_field(error, where, "kind", "a text");
    }
    if (strcmp(kind, "full") != 0) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s: kind \"%.32s\"; this version reads full checkpoints",
                where, kind);
    }
    if (!get_u64(root, "step", INT64_MAX, &manifest->step)) {
        return bad_field(error, where, "step", "a number >= 0");
    }
    if (!get_u64(root, "epoch", UINT32_MAX, &epoch)) {
        return bad_field(error, where, "epoch", "a 32-bit number");
    }
    manifest->epoch = (uint32_t)epoch;
    if (!get_u64_text(root, "seed", &manifest->job_seed)) {
        return bad_field(error, where, "seed", "a decimal text");
    }
    if (!get_digest(root, &manifest->digest)) {
        return bad_field(error, where, "digest", "32 hex digits");
    }
    if (position != NULL && !json_is_object(position) &&
            !json_is_null(position)) {
        return bad_field(error, where, "data_position", "an object or null");
    }
    return RPS_OK;
}

rps_status
rps_ckpt_manifest_parse(struct rps_ckpt_manifest *manifest, const char *text,
        size_t n, const char *where, struct rps_error *error)
{
    rps_status status;

    memset(manifest, 0, sizeof(*manifest));
    status = load_root(text, n, where, &manifest->root, error);
    if (status == RPS_OK) {
        status = parse_manifest_head(manifest, where, error);
    }
    if (status == RPS_OK) {
        status = parse_listed_parts(manifest, where, error);
    }
    if (status == RPS_OK) {
        status = parse_tables(manifest->root, false, where, &manifest->tables,
                &manifest->table_count, error);
    }
    if (status != RPS_OK) {
        rps_ckpt_manifest_finish(manifest);
    }
    return status;
}

void
rps_ckpt_manifest_finish(struct rps_ckpt_manifest *manifest)
{
    json_decref(manifest->root);
    free(manifest->parts);
    free(manifest->tables);
    memset(manifest, 0, sizeof(*manifest));
}

/* Before the checksum: another format may keep that elsewhere. */
static rps_status
check_format(
        const char *text, size_t n, const char *where, struct rps_error *error)
{
    json_t *root = NULL;
    rps_status status = load_root(text, n, where, &root, error);

    json_decref(root);
    return status;
}

static rps_status
check_manifest_sum(const struct rps_ckpt_folder *folder, const char *text,
        size_t n, struct rps_error *error)
{
    char *stored = NULL;
    size_t stored_bytes = 0;
    uint64_t sum = rps_checksum(text, n);
    rps_status status = rps_ckpt_folder_text(folder, RPS_CKPT_MANIFEST ".xxh3",
            sizeof(sum), &stored, &stored_bytes, error);

    if (status == RPS_E_NOT_FOUND) {
        return RPS_E_CORRUPT;
    }
    if (status != RPS_OK) {
        return status;
    }
    if (stored_bytes != sizeof(sum) || memcmp(stored, &sum, sizeof(sum)) != 0) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s/%s does not have the checksum in %s.xxh3", folder->path,
                RPS_CKPT_MANIFEST, RPS_CKPT_MANIFEST);
    }
    free(stored);
    return status;
}

rps_status
rps_ckpt_manifest_read(struct rps_ckpt_manifest *manifest,
        const struct rps_ckpt_folder *folder, struct rps_error *error)
{
    char *where = rps_format("%s/%s", folder->path, RPS_CKPT_MANIFEST);
    char *text = NULL;
    size_t n = 0;
    rps_status status;

    memset(manifest, 0, sizeof(*manifest));
    if (where == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder->path);
    }
    status = rps_ckpt_folder_text(folder, RPS_CKPT_MANIFEST,
            RPS_CKPT_JSON_BYTES_MAX, &text, &n, error);
    if (status == RPS_OK) {
        status = check_format(text, n, where, error);
    }
    if (status == RPS_OK) {
        status = check_manifest_sum(folder, text, n, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_manifest_parse(manifest, text, n, where, error);
    }
    free(text);
    free(where);
    return status;
}

size_t
rps_ckpt_table_find(const struct rps_ckpt_table *tables, size_t table_count,
        const char *name)
{
    size_t i = 0;

    while (i < table_count && strcmp(tables[i].spec.name, name) != 0) {
        i++;
    }
    return i;
}

/* What a part says of itself must be what the manifest says of it. */
static rps_status
parse_part_head(struct rps_ckpt_part *part,
        const struct rps_ckpt_manifest *manifest, uint32_t i, const char *where,
        struct rps_error *error)
{
    const json_t *slots = json_object_get(part->root, "slots");
    const json_t *first = json_array_get(slots, 0);
    const json_t *last = json_array_get(slots, 1);
    uint64_t number;
    uint64_t parts;
    uint64_t step;
    uint64_t epoch;

    if (!get_u64(part->root, "part", UINT32_MAX, &number) ||
            !get_u64(part->root, "parts", UINT32_MAX, &parts) ||
            !get_u64(part->root, "step", INT64_MAX, &step) ||
            !get_u64(part->root, "epoch", UINT32_MAX, &epoch) || number != i ||
            parts != manifest->part_count || step != manifest->step ||
            epoch != manifest->epoch) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: part, parts, step or epoch are not the manifest's", where);
    }
    part->part = i;
    part->parts = (uint32_t)parts;
    if (json_array_size(slots) != 2 || !json_is_integer(first) ||
            !json_is_integer(last) || json_integer_value(first) < 0 ||
            json_integer_value(last) >= RPS_SLOT_COUNT ||
            json_integer_value(first) > json_integer_value(last)) {
        return bad_field(error, where, "slots", "[first, last] below 4096");
    }
    part->slot_first = (uint32_t)json_integer_value(first);
    part->slot_last = (uint32_t)json_integer_value(last);
    part->files = json_object_get(part->root, "files");
    if (!json_is_object(part->files)) {
        return bad_field(error, where, "files", "an object");
    }
    return RPS_OK;
}

/* Tables that the manifest does not have, or has otherwise. */
static rps_status
check_part_tables(const struct rps_ckpt_part *part,
        const struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    for (size_t i = 0; i < part->table_count; i++) {
        const struct rps_ckpt_table *table = &part->tables[i];
        size_t at = rps_ckpt_table_find(
                manifest->tables, manifest->table_count, table->spec.name);
        const char *field = NULL;

        if (at == manifest->table_count) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: table %s is not in the manifest", where,
                    table->spec.name);
        }
        field = rps_spec_identity_differs(
                &table->spec, &manifest->tables[at].spec);
        if (field != NULL) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: table %s has another %s than in the manifest", where,
                    table->spec.name, field);
        }
    }
    return RPS_OK;
}

/* Names that lead out of the folder, and files that this version would pass
 * over in silence, are refused before one is opened. */
static rps_status
check_files(const struct rps_ckpt_part *part, const char *where,
        struct rps_error *error)
{
    struct rps_ckpt_column columns[RPS_CKPT_COLUMNS_MAX];
    size_t known = 2; /* lanes and its checksums */
    const char *name;
    json_t *value;

    json_object_foreach(part->files, name, value)
    {
        struct rps_ckpt_listed listed;

        if (!rps_ckpt_name_is_plain(name) ||
                !rps_ckpt_listed_parse(value, &listed)) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: \"%.300s\" is not a file below the folder with "
                    "bytes and xxh3",
                    where, name);
        }
    }
    for (size_t i = 0; i < part->table_count; i++) {
        known += 2 * rps_ckpt_columns(&part->tables[i].spec, columns);
    }
    if (json_object_size(part->files) > known) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s: lists %zu files, this version knows %zu of them", where,
                json_object_size(part->files), known);
    }
    return RPS_OK;
}

static rps_status
parse_part(struct rps_ckpt_part *part, const char *text, size_t n,
        const struct rps_ckpt_manifest *manifest, uint32_t i, const char *where,
        struct rps_error *error)
{
    rps_status status = load_root(text, n, where, &part->root, error);

    if (status == RPS_OK) {
        status = parse_part_head(part, manifest, i, where, error);
    }
    if (status == RPS_OK) {
        status = parse_tables(part->root, true, where, &part->tables,
                &part->table_count, error);
    }
    if (status == RPS_OK) {
        status = check_part_tables(part, manifest, where, error);
    }
    return status == RPS_OK ? check_files(part, where, error) : status;
}

rps_status
rps_ckpt_part_read(struct rps_ckpt_part *part,
        const struct rps_ckpt_folder *folder,
        const struct rps_ckpt_manifest *manifest, uint32_t i,
        struct rps_error *error)
{
    const struct rps_ckpt_listed *listed = &manifest->parts[i];
    char *name = rps_ckpt_part_name(i, manifest->part_count);
    char *where = name == NULL ? NULL : rps_format("%s/%s", folder->path, name);
    char *text = NULL;
    size_t n = 0;
    rps_status status;

    memset(part, 0, sizeof(*part));
    if (where == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder->path);
        goto out;
    }
    status = rps_ckpt_folder_text(
            folder, name, RPS_CKPT_JSON_BYTES_MAX, &text, &n, error);
    if (status == RPS_OK &&
            (n != listed->bytes || rps_checksum(text, n) != listed->sum)) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s: damaged: %zu bytes with another checksum than the "
                "%" PRIu64 " bytes that the manifest lists",
                where, n, listed->bytes);
    }
    if (status == RPS_OK) {
        status = parse_part(part, text, n, manifest, i, where, error);
    }
out:
    if (status != RPS_OK) {
        rps_ckpt_part_finish(part);
    }
    free(text);
    free(where);
    free(name);
    return status;
}

void
rps_ckpt_part_finish(struct rps_ckpt_part *part)
{
    json_decref(part->root);
    free(part->tables);
    memset(part, 0, sizeof(*part));
}

rps_status
rps_ckpt_parts_check(const struct rps_ckpt_manifest *manifest,
        const struct rps_ckpt_part *parts, const struct rps_ckpt_folder *folder,
        struct rps_error *error)
{
    for (size_t t = 0; t < manifest->table_count; t++) {
        const struct rps_ckpt_table *table = &manifest->tables[t];
        struct rps_digest digest = {0, 0};
        uint64_t rows = 0;

        for (uint32_t i = 0; i < manifest->part_count; i++) {
            size_t at = rps_ckpt_table_find(
                    parts[i].tables, parts[i].table_count, table->spec.name);

            if (at < parts[i].table_count) {
                rows += parts[i].tables[at].rows;
                rps_digest_add(&digest, parts[i].tables[at].digest);
            }
        }
        if (rows != table->rows || digest.low != table->digest.low ||
                digest.high != table->digest.high) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s/%s: table %s: the parts have %" PRIu64
                    " rows with another digest than the manifest's %" PRIu64
                    " rows",
                    folder->path, RPS_CKPT_MANIFEST, table->spec.name, rows,
                    table->rows);
        }
    }
    return RPS_OK;
}
