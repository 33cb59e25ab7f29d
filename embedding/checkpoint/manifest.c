/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/manifest.h"

#include "base/checksum.h"
#include "base/hash.h"
#include "base/text.h"
#include "embedding/checkpoint/fields.h"
#include "embedding/checkpoint/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static rps_status
parse_listed_parts(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const json_t *list = json_object_get(manifest->root, "parts");
    size_t n = json_array_size(list);

    if (n == 0 || n > RPS_SLOT_COUNT) {
        return rps_ckpt_bad_field(
                error, where, "parts", "a list of 1..4096 parts");
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
parse_folded(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    manifest->is_folded = json_object_get(manifest->root, "folded") != NULL;
    if (manifest->is_folded &&
            !rps_ckpt_get_digest(manifest->root, "folded", &manifest->folded)) {
        return rps_ckpt_bad_field(error, where, "folded", "32 hex digits");
    }
    return RPS_OK;
}

/* "parent": null, or of a delta {"name": "ckpt-<an earlier step>", "digest"}.
 * Steps fall from child to parent, so there is no circle. */
static rps_status
parse_parent(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const json_t *parent = json_object_get(manifest->root, "parent");
    const char *name = json_string_value(json_object_get(parent, "name"));

    if (!manifest->is_delta) {
        return parent == NULL || json_is_null(parent)
                       ? parse_folded(manifest, where, error)
                       : rps_ckpt_bad_field(error, where, "parent",
                                 "null, which it is of a full checkpoint");
    }
    if (name == NULL || !rps_ckpt_parse_step(name, &manifest->parent_step) ||
            manifest->parent_step >= manifest->step ||
            !rps_ckpt_get_digest(parent, "digest", &manifest->parent_digest)) {
        return rps_ckpt_bad_field(error, where, "parent",
                "{name: \"ckpt-<an earlier step>\", digest: 32 hex digits}, "
                "which it is of a delta");
    }
    return RPS_OK;
}

static rps_status
parse_kind(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const char *kind =
            json_string_value(json_object_get(manifest->root, "kind"));

    if (kind == NULL) {
        return rps_ckpt_bad_field(error, where, "kind", "a text");
    }
    manifest->is_delta = strcmp(kind, "delta") == 0;
    if (!manifest->is_delta && strcmp(kind, "full") != 0) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s: kind \"%.32s\"; this version reads full checkpoints and "
                "deltas",
                where, kind);
    }
    return RPS_OK;
}

static rps_status
parse_manifest_head(struct rps_ckpt_manifest *manifest, const char *where,
        struct rps_error *error)
{
    const json_t *root = manifest->root;
    const json_t *position = json_object_get(root, "data_position");
    uint64_t epoch;

    if (!rps_ckpt_get_u64(root, "step", INT64_MAX, &manifest->step)) {
        return rps_ckpt_bad_field(error, where, "step", "a number >= 0");
    }
    if (!rps_ckpt_get_u64(root, "epoch", UINT32_MAX, &epoch)) {
        return rps_ckpt_bad_field(error, where, "epoch", "a 32-bit number");
    }
    manifest->epoch = (uint32_t)epoch;
    if (!rps_ckpt_get_u64_text(root, "seed", &manifest->job_seed)) {
        return rps_ckpt_bad_field(error, where, "seed", "a decimal text");
    }
    if (!rps_ckpt_get_digest(root, "digest", &manifest->digest)) {
        return rps_ckpt_bad_field(error, where, "digest", "32 hex digits");
    }
    if (position != NULL && !json_is_object(position) &&
            !json_is_null(position)) {
        return rps_ckpt_bad_field(
                error, where, "data_position", "an object or null");
    }
    return RPS_OK;
}

rps_status
rps_ckpt_manifest_parse(struct rps_ckpt_manifest *manifest, const char *text,
        size_t n, const char *where, struct rps_error *error)
{
    struct rps_ckpt_place place = {.where = where};
    rps_status status;

    memset(manifest, 0, sizeof(*manifest));
    status = rps_ckpt_load_root(text, n, where, &manifest->root, error);
    if (status == RPS_OK) {
        status = parse_kind(manifest, where, error);
    }
    if (status == RPS_OK) {
        status = parse_manifest_head(manifest, where, error);
    }
    if (status == RPS_OK) {
        status = parse_parent(manifest, where, error);
    }
    if (status == RPS_OK) {
        status = parse_listed_parts(manifest, where, error);
    }
    if (status == RPS_OK) {
        place.in_delta = manifest->is_delta;
        status = rps_ckpt_parse_tables(manifest->root, &place,
                &manifest->tables, &manifest->table_count, error);
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
    rps_status status = rps_ckpt_load_root(text, n, where, &root, error);

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
