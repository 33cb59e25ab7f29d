/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/list.h"

#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/manifest.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The manifest as it parses: its checksum is restore's to judge, so that
 * damage is named there and not passed over here. */
static rps_status
parse_manifest(const struct rps_ckpt_folder *folder,
        struct rps_ckpt_manifest *manifest, struct rps_error *error)
{
    char *text = NULL;
    size_t n = 0;
    rps_status status = rps_ckpt_folder_text(folder, RPS_CKPT_MANIFEST,
            RPS_CKPT_JSON_BYTES_MAX, &text, &n, error);

    if (status == RPS_OK) {
        status =
                rps_ckpt_manifest_parse(manifest, text, n, folder->path, error);
    }
    free(text);
    return status;
}

static rps_status
part_is_there(const struct rps_ckpt_folder *folder, uint32_t i, uint32_t parts,
        struct rps_error *error)
{
    char *name = rps_ckpt_part_name(i, parts);
    uint64_t bytes;
    rps_status status;
    int fd = -1;

    if (name == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder->path);
    }
    status = rps_ckpt_folder_file(folder, name, &fd, &bytes, error);
    if (status == RPS_OK) {
        close(fd);
    }
    free(name);
    return status;
}

static rps_status
parts_are_there(const struct rps_ckpt_folder *folder, uint32_t part_count,
        uint32_t part, uint32_t parts, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (part_count == parts) {
        return part_is_there(folder, part, part_count, error);
    }
    for (uint32_t i = 0; i < part_count && status == RPS_OK; i++) {
        status = part_is_there(folder, i, part_count, error);
    }
    return status;
}

rps_status
rps_ckpt_inspect(const char *path, uint64_t step, uint32_t part, uint32_t parts,
        uint32_t *epoch_out, struct rps_error *error)
{
    struct rps_ckpt_folder folder;
    struct rps_ckpt_manifest manifest;
    rps_status status = rps_ckpt_folder_open(&folder, path, error);

    *epoch_out = 0;
    if (status != RPS_OK) {
        rps_ckpt_folder_close(&folder);
        return status;
    }
    status = parse_manifest(&folder, &manifest, error);
    if (status == RPS_OK) {
        *epoch_out = manifest.epoch;
        if (manifest.step != step) {
            status = rps_fail(error, RPS_E_CORRUPT,
                    "%s: its manifest is of step %" PRIu64, path,
                    manifest.step);
        } else {
            status = parts_are_there(
                    &folder, manifest.part_count, part, parts, error);
        }
        rps_ckpt_manifest_finish(&manifest);
    }
    rps_ckpt_folder_close(&folder);
    return status;
}

static int
by_step(const void *a, const void *b)
{
    const uint64_t *left = a;
    const uint64_t *right = b;

    return (*left > *right) - (*left < *right);
}

static rps_status
add_step(uint64_t **steps, size_t *count, uint64_t step)
{
    uint64_t *grown = reallocarray(*steps, *count + 1, sizeof(*grown));

    if (grown == NULL) {
        return RPS_E_NOMEM;
    }
    grown[(*count)++] = step;
    *steps = grown;
    return RPS_OK;
}

static rps_status
list_entry(const char *dir, const char *name, uint32_t part, uint32_t parts,
        uint64_t **steps, size_t *count)
{
    uint64_t step;
    uint32_t epoch;
    char *path;
    rps_status status;

    if (!rps_ckpt_parse_step(name, &step)) {
        return RPS_OK;
    }
    path = rps_checkpoint_path(dir, step);
    if (path == NULL) {
        return RPS_E_NOMEM;
    }
    status = rps_ckpt_inspect(path, step, part, parts, &epoch, NULL);
    free(path);
    if (status == RPS_OK || status == RPS_E_UNSUPPORTED) {
        return add_step(steps, count, step);
    }
    return status == RPS_E_NOMEM ? status : RPS_OK;
}

rps_status
rps_checkpoint_list(const char *dir, uint32_t part, uint32_t parts,
        uint64_t **steps_out, size_t *count_out, struct rps_error *error)
{
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    rps_status status = RPS_OK;

    *steps_out = NULL;
    *count_out = 0;
    if (folder == NULL) {
        return errno == ENOENT ? RPS_OK
                               : rps_fail(error, RPS_E_IO,
                                         "%s: cannot read the folder: %s", dir,
                                         strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(folder)) != NULL) {
        status = list_entry(
                dir, entry->d_name, part, parts, steps_out, count_out);
    }
    closedir(folder);
    if (status != RPS_OK) {
        free(*steps_out);
        *steps_out = NULL;
        *count_out = 0;
        return rps_fail(error, status, "%s: no memory to list it", dir);
    }
    if (*count_out > 0) {
        qsort(*steps_out, *count_out, sizeof(**steps_out), by_step);
    }
    return RPS_OK;
}

uint32_t
rps_checkpoint_epoch(const char *dir, uint32_t part, uint32_t parts)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    uint32_t newest = 0;

    if (rps_checkpoint_list(dir, part, parts, &steps, &count, NULL) != RPS_OK) {
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        char *path = rps_checkpoint_path(dir, steps[i]);
        uint32_t epoch = 0;

        if (path != NULL && rps_ckpt_inspect(path, steps[i], part, parts,
                                    &epoch, NULL) == RPS_OK) {
            newest = epoch > newest ? epoch : newest;
        }
        free(path);
    }
    free(steps);
    return newest;
}
