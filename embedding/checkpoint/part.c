/* SPDX-License-Identifier: Apache-2.0 */
/* A part file against the manifest that lists it. */
#include "base/checksum.h"
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/manifest.h"
#include "embedding/checkpoint/slots.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* "kind": "delta"; a full one's has none. */
static rps_status
check_kind(const struct rps_ckpt_part *part,
        const struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const json_t *value = json_object_get(part->root, "kind");
    const char *kind = value == NULL ? "full" : json_string_value(value);

    if (kind == NULL ||
            strcmp(kind, manifest->is_delta ? "delta" : "full") != 0) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: kind is not the manifest's, \"%s\"", where,
                manifest->is_delta ? "delta" : "full");
    }
    return RPS_OK;
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

    if (!rps_ckpt_get_u64(part->root, "part", UINT32_MAX, &number) ||
            !rps_ckpt_get_u64(part->root, "parts", UINT32_MAX, &parts) ||
            !rps_ckpt_get_u64(part->root, "step", INT64_MAX, &step) ||
            !rps_ckpt_get_u64(part->root, "epoch", UINT32_MAX, &epoch) ||
            number != i || parts != manifest->part_count ||
            step != manifest->step || epoch != manifest->epoch) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: part, parts, step or epoch are not the manifest's", where);
    }
    part->part = i;
    part->parts = (uint32_t)parts;
    if (json_array_size(slots) != 2 || !json_is_integer(first) ||
            !json_is_integer(last) || json_integer_value(first) < 0 ||
            json_integer_value(last) >= RPS_SLOT_COUNT ||
            json_integer_value(first) > json_integer_value(last)) {
        return rps_ckpt_bad_field(
                error, where, "slots", "[first, last] below 4096");
    }
    part->slot_first = (uint32_t)json_integer_value(first);
    part->slot_last = (uint32_t)json_integer_value(last);
    part->files = json_object_get(part->root, "files");
    if (!json_is_object(part->files)) {
        return rps_ckpt_bad_field(error, where, "files", "an object");
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
        known += part->tables[i].admission > 0 ? 2 : 0;
        known += part->tables[i].erased > 0 ? 2 : 0;
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
    const struct rps_ckpt_place place = {
            .where = where, .in_part = true, .in_delta = manifest->is_delta};
    rps_status status = rps_ckpt_load_root(text, n, where, &part->root, error);

    if (status == RPS_OK) {
        status = check_kind(part, manifest, where, error);
    }
    if (status == RPS_OK) {
        status = parse_part_head(part, manifest, i, where, error);
    }
    if (status == RPS_OK) {
        status = rps_ckpt_parse_tables(
                part->root, &place, &part->tables, &part->table_count, error);
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

/* A slot of no part would be empty, one of two parts would be a mixture. */
static rps_status
check_slots(const struct rps_ckpt_manifest *manifest,
        const struct rps_ckpt_part *parts, const struct rps_ckpt_folder *folder,
        struct rps_error *error)
{
    struct rps_ckpt_slots seen = {{0}};

    for (uint32_t i = 0; i < manifest->part_count; i++) {
        for (uint32_t s = parts[i].slot_first; s <= parts[i].slot_last; s++) {
            if (rps_ckpt_slots_has(&seen, s)) {
                return rps_fail(error, RPS_E_CORRUPT,
                        "%s: slot %" PRIu32 " is in two parts", folder->path,
                        s);
            }
            rps_ckpt_slots_add(&seen, s, s);
        }
    }
    for (uint32_t s = 0; s < RPS_SLOT_COUNT; s++) {
        if (!rps_ckpt_slots_has(&seen, s)) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: slot %" PRIu32 " is in no part", folder->path, s);
        }
    }
    return RPS_OK;
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
        uint64_t erased = 0;

        for (uint32_t i = 0; i < manifest->part_count; i++) {
            size_t at = rps_ckpt_table_find(
                    parts[i].tables, parts[i].table_count, table->spec.name);

            if (at < parts[i].table_count) {
                rows += parts[i].tables[at].rows;
                erased += parts[i].tables[at].erased;
                rps_digest_add(&digest, parts[i].tables[at].digest);
            }
        }
        if (rows != table->rows || erased != table->erased ||
                !rps_digest_equal(digest, table->digest)) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s/%s: table %s: the parts have %" PRIu64
                    " rows and %" PRIu64
                    " erased keys, with another digest than the manifest's "
                    "%" PRIu64 " and %" PRIu64,
                    folder->path, RPS_CKPT_MANIFEST, table->spec.name, rows,
                    erased, table->rows, table->erased);
        }
    }
    return check_slots(manifest, parts, folder, error);
}
