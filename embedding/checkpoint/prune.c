/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/prune.h"

#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/list.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool
is_folder(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* Renamed first, so that nobody lists what is half removed. ENOENT: another
 * PS of a shared folder was faster. */
static void
remove_step(const struct rps_checkpoint_id *id, uint64_t step,
        struct rps_error *error)
{
    char *path = rps_checkpoint_path(id->dir, step);
    char *aside = NULL;
    struct rps_ckpt_head head;

    if (path == NULL || !is_folder(path) ||
            rps_ckpt_inspect(path, step, id->part, id->parts, &head, NULL) !=
                    RPS_OK) {
        goto out; /* another format, a link, or gone: not ours to remove */
    }
    aside = rps_ckpt_old_path(id->dir, step, head.epoch);
    if (aside == NULL || rps_dir_remove(aside, error) != RPS_OK) {
        goto out;
    }
    if (rename(path, aside) == 0) {
        (void)!rps_dir_remove(aside, error);
    } else if (errno != ENOENT) {
        rps_fail(error, RPS_E_IO, "%s: cannot remove: %s", path,
                strerror(errno));
    }
out:
    free(path);
    free(aside);
}

static bool
is_before(uint64_t step, uint32_t epoch, const struct rps_checkpoint_id *id)
{
    return epoch < id->epoch || (epoch == id->epoch && step < id->step);
}

/* Leftovers of saves that never ended, and of removals cut short. */
static void
remove_leftovers(const struct rps_checkpoint_id *id, struct rps_error *error)
{
    DIR *dir = opendir(id->dir);
    const struct dirent *entry;

    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        const char *name = entry->d_name;
        uint64_t step;
        uint32_t epoch;
        char *path = NULL;

        if (!(rps_ckpt_parse_hidden(name, RPS_CKPT_TMP_PREFIX, &step, &epoch) &&
                    is_before(step, epoch, id)) &&
                !(rps_ckpt_parse_hidden(
                          name, RPS_CKPT_OLD_PREFIX, &step, &epoch) &&
                        is_before(step, epoch, id))) {
            continue;
        }
        path = rps_format("%s/%s", id->dir, name);
        if (path != NULL && is_folder(path)) {
            (void)!rps_dir_remove(path, error);
        }
        free(path);
    }
    closedir(dir);
}

static size_t
index_of(const struct rps_checkpoint_survey *survey, uint64_t step)
{
    size_t i = 0;

    while (i < survey->count && survey->complete[i].step != step) {
        i++;
    }
    return i;
}

/* What a kept one stands on is kept: parents are earlier, so one pass from
 * the newest on reaches all of them. */
static void
keep_ancestors(const struct rps_checkpoint_survey *survey, bool *kept)
{
    for (size_t i = survey->count; i-- > 0;) {
        const struct rps_checkpoint_complete *entry = &survey->complete[i];

        if (kept[i] && entry->is_delta) {
            kept[index_of(survey, entry->parent)] = true;
        }
    }
}

bool *
rps_ckpt_prune_kept(const struct rps_checkpoint_survey *survey, uint64_t step,
        uint32_t keep)
{
    bool *kept = calloc(survey->count + 1, sizeof(*kept));
    size_t upto = 0;

    while (upto < survey->count && survey->complete[upto].step <= step) {
        upto++;
    }
    for (size_t i = 0; kept != NULL && i < survey->count; i++) {
        kept[i] = i + keep >= upto;
    }
    if (kept != NULL) {
        keep_ancestors(survey, kept);
    }
    return kept;
}

/* A child before its parent: a removal that is cut short leaves no delta
 * without what it stands on. */
static void
remove_others(const struct rps_checkpoint_id *id,
        const struct rps_checkpoint_survey *survey, uint32_t keep,
        struct rps_error *error)
{
    bool *kept = rps_ckpt_prune_kept(survey, id->step, keep);

    if (kept == NULL) {
        rps_fail(error, RPS_E_NOMEM, "%s: no memory to prune it", id->dir);
        return;
    }
    for (size_t i = survey->count; i-- > 0;) {
        if (!kept[i]) {
            remove_step(id, survey->complete[i].step, error);
        }
    }
    free(kept);
}

/* Deltas of a run that went back, which another has overtaken: what they stand
 * on is no more, so nothing can be read of them ever again. */
static void
remove_baseless(const struct rps_checkpoint_id *id,
        const struct rps_checkpoint_survey *survey, struct rps_error *error)
{
    for (size_t i = survey->unusable_count; i-- > 0;) {
        const struct rps_checkpoint_unusable *entry = &survey->unusable[i];

        if (entry->abandoned && entry->baseless && entry->step <= id->step) {
            remove_step(id, entry->step, error);
        }
    }
}

void
rps_ckpt_prune(const struct rps_checkpoint_id *id, uint32_t keep,
        struct rps_error *error)
{
    struct rps_checkpoint_survey survey;

    remove_leftovers(id, error);
    if (keep == 0 || rps_checkpoint_survey(id->dir, id->part, id->parts,
                             &survey, error) != RPS_OK) {
        return;
    }
    remove_baseless(id, &survey, error);
    remove_others(id, &survey, keep, error);
    rps_checkpoint_survey_finish(&survey);
}
