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
    uint32_t epoch;

    if (path == NULL || !is_folder(path) ||
            rps_ckpt_inspect(path, step, id->part, id->parts, &epoch, NULL) !=
                    RPS_OK) {
        goto out; /* another format, a link, or gone: not ours to remove */
    }
    aside = rps_ckpt_old_path(id->dir, step, epoch);
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

void
rps_ckpt_prune(const struct rps_checkpoint_id *id, uint32_t keep,
        struct rps_error *error)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    size_t upto = 0;

    remove_leftovers(id, error);
    if (keep == 0 || rps_checkpoint_list(id->dir, id->part, id->parts, &steps,
                             &count, error) != RPS_OK) {
        return;
    }
    while (upto < count && steps[upto] <= id->step) {
        upto++;
    }
    for (size_t i = 0; i + keep < upto; i++) {
        remove_step(id, steps[i], error);
    }
    free(steps);
}
