/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/embedding/checkpoint/forge.h"

#include "base/checksum.h"
#include "base/file.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kept
keep_file(const char *step_path, const char *name)
{
    struct kept kept;
    char *bytes = NULL;

    snprintf(kept.path, sizeof(kept.path), "%s/%s", step_path, name);
    ck_assert_int_eq(
            rps_file_read(kept.path, 1u << 26, &bytes, &kept.n, NULL), RPS_OK);
    kept.bytes = bytes;
    return kept;
}

void
write_file(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(bytes, 1, n, file), n);
    ck_assert_int_eq(fclose(file), 0);
}

void
put_back(struct kept *kept)
{
    unlink(kept->path);
    write_file(kept->path, kept->bytes, kept->n);
    free(kept->bytes);
}

json_t *
forge_load(const char *step_path, const char *name)
{
    struct kept kept = keep_file(step_path, name);
    json_t *value = json_loadb(kept.bytes, kept.n, 0, NULL);

    free(kept.bytes);
    ck_assert_ptr_nonnull(value);
    return value;
}

void
forge_manifest(const char *step_path, json_t *manifest)
{
    char *text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    uint64_t sum = rps_checksum(text, strlen(text));
    char path[700];

    snprintf(path, sizeof(path), "%s/manifest.json", step_path);
    write_file(path, text, strlen(text));
    snprintf(path, sizeof(path), "%s/manifest.json.xxh3", step_path);
    write_file(path, &sum, sizeof(sum));
    free(text);
}

static void
list(json_t *entry, const void *bytes, size_t n)
{
    char hex[17];

    snprintf(hex, sizeof(hex), "%016" PRIx64, rps_checksum(bytes, n));
    json_object_set_new(entry, "xxh3", json_string(hex));
    json_object_set_new(entry, "bytes", json_integer((json_int_t)n));
}

void
forge_part(const char *step_path, uint32_t i, json_t *part)
{
    char *text = json_dumps(part, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_t *manifest = forge_load(step_path, "manifest.json");
    char path[700];

    list(json_array_get(json_object_get(manifest, "parts"), i), text,
            strlen(text));
    forge_manifest(step_path, manifest);
    snprintf(path, sizeof(path), "%s/part-%" PRIu32 "-of-2.json", step_path, i);
    write_file(path, text, strlen(text));
    json_decref(manifest);
    free(text);
}

void
forge_file(const char *step_path, uint32_t i, const char *name,
        const void *bytes, size_t n)
{
    const uint64_t sum = rps_checksum(bytes, n);
    char path[700];
    char part_name[40];
    json_t *part;
    json_t *files;

    ck_assert_uint_lt(n, 1u << 20); /* one block: one checksum */
    snprintf(part_name, sizeof(part_name), "part-%" PRIu32 "-of-2.json", i);
    part = forge_load(step_path, part_name);
    files = json_object_get(part, "files");
    snprintf(path, sizeof(path), "%s/%s", step_path, name);
    write_file(path, bytes, n);
    list(json_object_get(files, name), bytes, n);
    snprintf(path, sizeof(path), "%s/%s.xxh3", step_path, name);
    write_file(path, &sum, sizeof(sum));
    snprintf(path, sizeof(path), "%s.xxh3", name);
    list(json_object_get(files, path), &sum, sizeof(sum));
    forge_part(step_path, i, part);
    json_decref(part);
}
