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
    char *where = rps_format("%s/%s", folder->path, RPS_CKPT_MANIFEST);
    char *text = NULL;
    size_t n = 0;
    rps_status status = rps_ckpt_folder_text(folder, RPS_CKPT_MANIFEST,
            RPS_CKPT_JSON_BYTES_MAX, &text, &n, error);

    if (status == RPS_OK) {
        status = rps_ckpt_manifest_parse(
                manifest, text, n, where != NULL ? where : folder->path, error);
    }
    free(where);
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
    rps_status first = RPS_OK;

    if (part_count == parts) {
        return part_is_there(folder, part, part_count, error);
    }
    for (uint32_t i = 0; i < part_count; i++) {
        struct rps_error why = {.text = ""};
        const rps_status status = part_is_there(folder, i, part_count, &why);

        if (status != RPS_OK && first != RPS_OK) {
            rps_ckpt_name_another(error, i, part_count);
        } else if (status != RPS_OK) {
            first = rps_fail(error, status, "%s", why.text);
        }
    }
    return first;
}

rps_status
rps_ckpt_inspect(const char *path, uint64_t step, uint32_t part, uint32_t parts,
        struct rps_ckpt_head *head_out, struct rps_error *error)
{
    struct rps_ckpt_folder folder;
    struct rps_ckpt_manifest manifest;
    rps_status status = rps_ckpt_folder_open(&folder, path, error);

    *head_out = (struct rps_ckpt_head){.step = step};
    if (status != RPS_OK) {
        rps_ckpt_folder_close(&folder);
        return status;
    }
    status = parse_manifest(&folder, &manifest, error);
    if (status == RPS_OK) {
        *head_out = rps_ckpt_head_of(&manifest);
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

/** One ckpt-<step> folder, while the others are looked for. */
struct found {
    uint64_t step;
    struct rps_ckpt_head head;
    rps_status status; /* OK or UNSUPPORTED: complete */
    char *why;         /* owned; NULL: complete */
    bool baseless;     /* as rps_checkpoint_unusable says it */
    uint32_t deltas;   /* from the full one up to this */
};

struct finds {
    struct found *list;
    size_t count;
};

static void
finds_finish(struct finds *finds)
{
    for (size_t i = 0; i < finds->count; i++) {
        free(finds->list[i].why);
    }
    free(finds->list);
}

static int
by_step(const void *a, const void *b)
{
    const struct found *left = a;
    const struct found *right = b;

    return (left->step > right->step) - (left->step < right->step);
}

/* RPS_E_NOMEM, or OK: what is wrong with the folder is said in it. */
static rps_status
look_at(const char *dir, uint32_t part, uint32_t parts, struct found *found)
{
    struct rps_error error = {.text = ""};
    char *path = rps_checkpoint_path(dir, found->step);

    if (path == NULL) {
        return RPS_E_NOMEM;
    }
    found->status = rps_ckpt_inspect(
            path, found->step, part, parts, &found->head, &error);
    free(path);
    if (found->status == RPS_OK || found->status == RPS_E_UNSUPPORTED) {
        return RPS_OK;
    }
    found->why = strdup(error.text);
    return found->status == RPS_E_NOMEM || found->why == NULL ? RPS_E_NOMEM
                                                              : RPS_OK;
}

static rps_status
find_all(const char *dir, uint32_t part, uint32_t parts, struct finds *finds,
        struct rps_error *error)
{
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    rps_status status = RPS_OK;

    if (folder == NULL) {
        return errno == ENOENT ? RPS_OK
                               : rps_fail(error, RPS_E_IO,
                                         "%s: cannot read the folder: %s", dir,
                                         strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(folder)) != NULL) {
        struct found found = {.why = NULL};
        struct found *grown;

        if (!rps_ckpt_parse_step(entry->d_name, &found.step)) {
            continue;
        }
        grown = reallocarray(finds->list, finds->count + 1, sizeof(*grown));
        if (grown == NULL) {
            status = RPS_E_NOMEM;
            break;
        }
        finds->list = grown;
        status = look_at(dir, part, parts, &found);
        grown[finds->count++] = found;
    }
    closedir(folder);
    if (finds->count > 0) {
        qsort(finds->list, finds->count, sizeof(*finds->list), by_step);
    }
    return status == RPS_OK
                   ? RPS_OK
                   : rps_fail(error, status, "%s: no memory to list it", dir);
}

/* A delta whose ancestors have been judged already: steps rise. */
static rps_status
judge_delta(const char *dir, const struct finds *finds, struct found *delta,
        struct rps_error *error)
{
    const struct found wanted = {.step = delta->head.parent_step};
    const struct found *parent = bsearch(
            &wanted, finds->list, finds->count, sizeof(wanted), by_step);

    if (parent == NULL) {
        delta->baseless = true;
        return rps_fail(error, RPS_E_NOT_FOUND,
                "%s/ckpt-%012" PRIu64 " stands on ckpt-%012" PRIu64
                ", which is missing",
                dir, delta->step, wanted.step);
    }
    if (parent->why != NULL || parent->status != RPS_OK) {
        delta->baseless = parent->baseless;
        return rps_fail(error,
                parent->why != NULL ? parent->status : RPS_E_CORRUPT,
                "%s/ckpt-%012" PRIu64 " stands on ckpt-%012" PRIu64
                ", which cannot be used: %.600s",
                dir, delta->step, wanted.step,
                parent->why != NULL ? parent->why : "it is of another format");
    }
    delta->deltas = parent->deltas + 1;
    if (delta->deltas > RPS_CKPT_DELTAS_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "%s/ckpt-%012" PRIu64 ": more than %u deltas stand behind "
                "their full checkpoint",
                dir, delta->step, RPS_CKPT_DELTAS_MAX);
    }
    delta->baseless = rps_ckpt_head_check(dir, &delta->head, &parent->head,
                              error) != RPS_OK;
    return delta->baseless ? RPS_E_MISMATCH : RPS_OK;
}

/* Half a chain never loads: a delta counts if all that it stands on does. */
static rps_status
judge_deltas(const char *dir, struct finds *finds, struct rps_error *error)
{
    for (size_t i = 0; i < finds->count; i++) {
        struct found *found = &finds->list[i];
        struct rps_error cause = {.text = ""};

        if (found->why != NULL || !found->head.is_delta) {
            continue;
        }
        found->status = judge_delta(dir, finds, found, &cause);
        if (found->status != RPS_OK) {
            found->why = strdup(cause.text);
        }
        if (found->status != RPS_OK && found->why == NULL) {
            return rps_fail(
                    error, RPS_E_NOMEM, "%s: no memory to list it", dir);
        }
    }
    return RPS_OK;
}

/* Epochs rise with steps, but where a job went back. */
static rps_status
tell(struct rps_checkpoint_survey *survey, struct finds *finds)
{
    uint32_t newest = 0; /* epoch of a complete one up to here */

    survey->complete = calloc(finds->count + 1, sizeof(*survey->complete));
    survey->unusable = calloc(finds->count + 1, sizeof(*survey->unusable));
    if (survey->complete == NULL || survey->unusable == NULL) {
        return RPS_E_NOMEM;
    }
    for (size_t i = 0; i < finds->count; i++) {
        struct found *found = &finds->list[i];
        const uint32_t epoch = found->head.epoch;
        const bool abandoned = epoch < newest && epoch != 0;

        survey->epoch_max =
                epoch > survey->epoch_max ? epoch : survey->epoch_max;
        if (found->why != NULL) {
            survey->unusable[survey->unusable_count++] =
                    (struct rps_checkpoint_unusable){.step = found->step,
                            .why = found->why,
                            .abandoned = abandoned,
                            .baseless = found->baseless};
            found->why = NULL;
            continue;
        }
        survey->complete[survey->count++] =
                (struct rps_checkpoint_complete){.step = found->step,
                        .epoch = epoch,
                        .abandoned = abandoned,
                        .is_delta = found->head.is_delta,
                        .parent = found->head.parent_step,
                        .digest = found->head.digest,
                        .is_folded = found->head.is_folded,
                        .folded = found->head.folded};
        newest = epoch > newest ? epoch : newest;
    }
    return RPS_OK;
}

rps_status
rps_checkpoint_survey(const char *dir, uint32_t part, uint32_t parts,
        struct rps_checkpoint_survey *survey, struct rps_error *error)
{
    struct finds finds = {.list = NULL};
    rps_status status = find_all(dir, part, parts, &finds, error);

    *survey = (struct rps_checkpoint_survey){0};
    if (status == RPS_OK) {
        status = judge_deltas(dir, &finds, error);
    }
    if (status == RPS_OK) {
        status = tell(survey, &finds);
        if (status != RPS_OK) {
            rps_fail(error, status, "%s: no memory to list it", dir);
            rps_checkpoint_survey_finish(survey);
        }
    }
    finds_finish(&finds);
    return status;
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
