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
compare(uint64_t left, uint64_t right)
{
    return (left > right) - (left < right);
}

static int
by_step(const void *a, const void *b)
{
    const struct rps_checkpoint_complete *left = a;
    const struct rps_checkpoint_complete *right = b;

    return compare(left->step, right->step);
}

static int
by_unusable_step(const void *a, const void *b)
{
    const struct rps_checkpoint_unusable *left = a;
    const struct rps_checkpoint_unusable *right = b;

    return compare(left->step, right->step);
}

static rps_status
add_complete(
        struct rps_checkpoint_survey *survey, uint64_t step, uint32_t epoch)
{
    struct rps_checkpoint_complete *grown =
            reallocarray(survey->complete, survey->count + 1, sizeof(*grown));

    if (grown == NULL) {
        return RPS_E_NOMEM;
    }
    grown[survey->count++] =
            (struct rps_checkpoint_complete){.step = step, .epoch = epoch};
    survey->complete = grown;
    return RPS_OK;
}

static rps_status
add_unusable(
        struct rps_checkpoint_survey *survey, uint64_t step, const char *why)
{
    struct rps_checkpoint_unusable *grown = reallocarray(
            survey->unusable, survey->unusable_count + 1, sizeof(*grown));

    if (grown == NULL) {
        return RPS_E_NOMEM;
    }
    survey->unusable = grown;
    grown += survey->unusable_count;
    *grown = (struct rps_checkpoint_unusable){.step = step, .why = strdup(why)};
    if (grown->why == NULL) {
        return RPS_E_NOMEM;
    }
    survey->unusable_count++;
    return RPS_OK;
}

static rps_status
survey_entry(const char *dir, const char *name, uint32_t part, uint32_t parts,
        struct rps_checkpoint_survey *survey)
{
    struct rps_error error = {.text = ""};
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
    status = rps_ckpt_inspect(path, step, part, parts, &epoch, &error);
    free(path);
    if (epoch > survey->epoch_max) {
        survey->epoch_max = epoch;
    }
    if (status == RPS_OK || status == RPS_E_UNSUPPORTED) {
        return add_complete(survey, step, epoch);
    }
    return status == RPS_E_NOMEM ? status
                                 : add_unusable(survey, step, error.text);
}

static void
sort(struct rps_checkpoint_survey *survey)
{
    if (survey->count > 0) {
        qsort(survey->complete, survey->count, sizeof(*survey->complete),
                by_step);
    }
    if (survey->unusable_count > 0) {
        qsort(survey->unusable, survey->unusable_count,
                sizeof(*survey->unusable), by_unusable_step);
    }
}

/* Epochs rise with steps, but where a job went back. */
static void
mark_abandoned(struct rps_checkpoint_survey *survey)
{
    uint32_t newest = 0;

    for (size_t i = 0; i < survey->count; i++) {
        struct rps_checkpoint_complete *entry = &survey->complete[i];
        entry->abandoned = entry->epoch < newest && entry->epoch != 0;
        newest = entry->epoch > newest ? entry->epoch : newest;
    }
}

rps_status
rps_checkpoint_survey(const char *dir, uint32_t part, uint32_t parts,
        struct rps_checkpoint_survey *survey, struct rps_error *error)
{
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    rps_status status = RPS_OK;

    *survey = (struct rps_checkpoint_survey){0};
    if (folder == NULL) {
        return errno == ENOENT ? RPS_OK
                               : rps_fail(error, RPS_E_IO,
                                         "%s: cannot read the folder: %s", dir,
                                         strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(folder)) != NULL) {
        status = survey_entry(dir, entry->d_name, part, parts, survey);
    }
    closedir(folder);
    if (status != RPS_OK) {
        rps_checkpoint_survey_finish(survey);
        return rps_fail(error, status, "%s: no memory to list it", dir);
    }
    sort(survey);
    mark_abandoned(survey);
    return RPS_OK;
}

void
rps_checkpoint_survey_finish(struct rps_checkpoint_survey *survey)
{
    for (size_t i = 0; i < survey->unusable_count; i++) {
        free(survey->unusable[i].why);
    }
    free(survey->unusable);
    free(survey->complete);
    *survey = (struct rps_checkpoint_survey){0};
}

rps_status
rps_checkpoint_list(const char *dir, uint32_t part, uint32_t parts,
        uint64_t **steps_out, size_t *count_out, struct rps_error *error)
{
    struct rps_checkpoint_survey survey;
    rps_status status = rps_checkpoint_survey(dir, part, parts, &survey, error);
    uint64_t *steps = NULL;

    *steps_out = NULL;
    *count_out = 0;
    if (status != RPS_OK) {
        return status;
    }
    if (survey.count > 0) {
        steps = calloc(survey.count, sizeof(*steps));
    }
    if (survey.count > 0 && steps == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory to list it", dir);
    } else {
        for (size_t i = 0; i < survey.count; i++) {
            steps[i] = survey.complete[i].step;
        }
        *steps_out = steps;
        *count_out = survey.count;
    }
    rps_checkpoint_survey_finish(&survey);
    return status;
}
