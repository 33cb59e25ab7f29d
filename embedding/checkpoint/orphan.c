/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns how an orphan part is written: in a hidden folder of its own, since
 * other PS may be at it in the same folder, then renamed as a whole.
 */
#include "embedding/checkpoint/orphan.h"

#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/** Paths of one part; finish it. */
struct places {
    char *tmp;    /* DIR/.tmp-orphan-<i>-of-<n> */
    char *inner;  /* that one's .tmp-ckpt-<step>-<epoch> */
    char *folder; /* DIR/orphan-<step> */
    char *target; /* that one's <i>-of-<n> */
};

static void
places_finish(struct places *places)
{
    free(places->tmp);
    free(places->inner);
    free(places->folder);
    free(places->target);
}

static rps_status
places_init(struct places *places, const struct rps_checkpoint_id *id,
        struct rps_error *error)
{
    *places = (struct places){.tmp = NULL};
    places->tmp = rps_format("%s/.tmp-orphan-%" PRIu32 "-of-%" PRIu32, id->dir,
            id->part, id->parts);
    places->folder = rps_format(
            "%s/" RPS_ORPHAN_PREFIX "%012" PRIu64, id->dir, id->step);
    if (places->tmp != NULL && places->folder != NULL) {
        places->inner = rps_ckpt_tmp_path(places->tmp, id->step, id->epoch);
        places->target = rps_format("%s/%" PRIu32 "-of-%" PRIu32,
                places->folder, id->part, id->parts);
    }
    return places->inner != NULL && places->target != NULL
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM, "%s: no memory", id->dir);
}

/* What an earlier attempt left, and the folder itself. */
static void
remove_tmp(const char *path)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;

    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        char *inner = NULL;

        if (strcmp(entry->d_name, ".") == 0 ||
                strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        inner = rps_format("%s/%s", path, entry->d_name);
        if (inner != NULL) {
            (void)!rps_dir_remove(inner, NULL);
        }
        free(inner);
    }
    closedir(dir);
    rmdir(path);
}

static rps_status
write_about(const struct places *places, const struct rps_checkpoint_id *id,
        const struct rps_orphan_about *about, const json_t *answer,
        struct rps_error *error)
{
    char seed[24];
    char begun_by[24];
    char *text;
    char *path = rps_format("%s/" RPS_ORPHAN_FILE, places->inner);
    json_t *object;
    rps_status status;

    snprintf(seed, sizeof(seed), "%" PRIu64, about->job_seed);
    snprintf(begun_by, sizeof(begun_by), "%016" PRIx64, about->begun_by);
    object = json_pack("{s:i, s:I, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:O, s:O,"
                       " s:O}",
            "format", (int)RPS_CKPT_FORMAT, "step", (json_int_t)id->step,
            "epoch", (json_int_t)id->epoch, "part", (json_int_t)id->part,
            "parts", (json_int_t)id->parts, "job_id", about->job_id, "seed",
            seed, "mode", about->mode, "begun_by", begun_by, "file",
            json_object_get(answer, "file"), "bytes",
            json_object_get(answer, "bytes"), "xxh3",
            json_object_get(answer, "xxh3"));
    text = json_dumps(object, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(object);
    status = text != NULL && path != NULL
                     ? rps_file_write(path, text, strlen(text), false, error)
                     : rps_fail(error, RPS_E_NOMEM, "%s: no memory", id->dir);
    free(text);
    free(path);
    return status == RPS_OK ? rps_dir_sync(places->inner, error) : status;
}

static rps_status
put_in_place(const struct places *places, const struct rps_checkpoint_id *id,
        struct rps_error *error)
{
    rps_status status = rps_dir_make(places->folder, error);

    if (status == RPS_OK && access(places->target, F_OK) == 0) {
        status = rps_dir_remove(places->target, error);
    }
    if (status == RPS_OK && rename(places->inner, places->target) != 0) {
        status = rps_fail(error, RPS_E_IO, "%s: cannot rename to %s: %s",
                places->inner, places->target, strerror(errno));
    }
    if (status == RPS_OK) {
        status = rps_dir_sync(places->folder, error);
    }
    return status == RPS_OK ? rps_dir_sync(id->dir, error) : status;
}

rps_status
rps_orphan_write(const struct rps_checkpoint_id *id,
        const struct rps_orphan_about *about, struct rps_cut *cut,
        const struct rps_lane_record *lanes, size_t lane_count, char **path_out,
        struct rps_error *error)
{
    struct rps_checkpoint_id inner = *id;
    struct places places;
    json_t *answer = NULL;
    rps_status status = places_init(&places, id, error);

    *path_out = NULL;
    if (status == RPS_OK) {
        remove_tmp(places.tmp);
        inner.dir = places.tmp;
        status = rps_dir_make(places.tmp, error);
    }
    if (status == RPS_OK) {
        status = rps_checkpoint_prepare(
                &inner, false, cut, lanes, lane_count, &answer, error);
    }
    if (status == RPS_OK) {
        status = write_about(&places, id, about, answer, error);
    }
    if (status == RPS_OK) {
        status = put_in_place(&places, id, error);
    }
    if (places.tmp != NULL) {
        remove_tmp(places.tmp);
    }
    json_decref(answer);
    if (status == RPS_OK) {
        *path_out = places.target;
        places.target = NULL;
    }
    places_finish(&places);
    return status;
}

void
rps_orphan_tidy(const struct rps_checkpoint_id *id)
{
    struct places places;

    if (places_init(&places, id, NULL) == RPS_OK) {
        remove_tmp(places.tmp);
    }
    places_finish(&places);
}
