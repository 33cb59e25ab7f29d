/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/find.h"

#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool
looks_like_step(const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t step;

    return rps_ckpt_parse_step(slash == NULL ? path : slash + 1, &step);
}

static rps_status
found_none(const char *path, struct rps_error *error)
{
    return looks_like_step(path)
                   ? rps_fail(error, RPS_E_CORRUPT,
                             "%s: manifest.json is missing", path)
                   : rps_fail(error, RPS_E_NOT_FOUND,
                             "%s: neither a checkpoint (manifest.json) nor a "
                             "folder with one (ckpt-<step>)",
                             path);
}

static rps_status
find_newest(const char *path, char **folder_out, struct rps_error *error)
{
    struct rps_checkpoint_survey survey;
    rps_status status = rps_checkpoint_survey(path, 0, 0, &survey, error);
    size_t left;
    size_t bad;

    if (status != RPS_OK) {
        return status;
    }
    left = survey.count;
    bad = survey.unusable_count;
    while (left > 0 && survey.complete[left - 1].abandoned) {
        left--;
    }
    while (bad > 0 && survey.unusable[bad - 1].abandoned) {
        bad--;
    }
    if (left == 0 && bad == 0) {
        status = found_none(path, error);
    } else if (bad > 0 &&
               (left == 0 || survey.unusable[bad - 1].step >
                                     survey.complete[left - 1].step)) {
        status = rps_fail(
                error, RPS_E_CORRUPT, "%s", survey.unusable[bad - 1].why);
    } else {
        *folder_out = rps_checkpoint_path(path, survey.complete[left - 1].step);
        status = *folder_out == NULL ? RPS_E_NOMEM : RPS_OK;
    }
    rps_checkpoint_survey_finish(&survey);
    return status;
}

rps_status
rps_ckpt_find(const char *path, char **folder_out, struct rps_error *error)
{
    char *manifest = rps_format("%s/%s", path, RPS_CKPT_MANIFEST);
    rps_status status = RPS_E_NOMEM;

    *folder_out = NULL;
    if (manifest != NULL && access(manifest, F_OK) == 0) {
        *folder_out = strdup(path);
        status = *folder_out == NULL ? RPS_E_NOMEM : RPS_OK;
    } else if (manifest != NULL) {
        status = find_newest(path, folder_out, error);
    }
    free(manifest);
    return status == RPS_E_NOMEM
                   ? rps_fail(error, status, "%s: no memory", path)
                   : status;
}
