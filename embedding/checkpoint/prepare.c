/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PREPARE and ABORT: this PS's files in the temporary folder. Other PS may
 * write beside it, so only files named "<i>-of-<n>" are ever touched.
 */
#include "base/checksum.h"
#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/aside.h"
#include "embedding/checkpoint/background.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/save.h"
#include "embedding/checkpoint/writer.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rps_status
save_lanes(const struct rps_checkpoint_id *id, const char *folder,
        const struct rps_lane_record *lanes, size_t lane_count, json_t *files,
        struct rps_error *error)
{
    struct rps_npy npy = {"<u8", 2, {lane_count, RPS_CKPT_LANE_WORDS}, 0, 0};
    struct rps_ckpt_writer writer;
    char *name = rps_ckpt_lanes_name(id->part, id->parts);
    rps_status status;

    if (name == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
    }
    status = rps_ckpt_writer_open(&writer, folder, name, &npy, error);
    free(name);
    for (size_t i = 0; i < lane_count && status == RPS_OK; i++) {
        const uint64_t words[RPS_CKPT_LANE_WORDS] = {lanes[i].client,
                lanes[i].lane, lanes[i].number,
                (uint64_t)(int64_t)lanes[i].status};

        status = rps_ckpt_writer_add(&writer, words, sizeof(words), error);
    }
    if (status == RPS_OK) {
        return rps_ckpt_writer_close(&writer, files, error);
    }
    rps_ckpt_writer_discard(&writer);
    return status;
}

static json_t *
new_part(const struct rps_checkpoint_id *id, bool is_delta)
{
    uint32_t first;
    uint32_t last;
    json_t *part;

    rps_ckpt_part_slots(id->part, id->parts, &first, &last);
    part = json_pack("{s:i, s:I, s:I, s:I, s:I, s:[I, I], s:{}, s:{}}",
            "format", (int)RPS_CKPT_FORMAT, "part", (json_int_t)id->part,
            "parts", (json_int_t)id->parts, "step", (json_int_t)id->step,
            "epoch", (json_int_t)id->epoch, "slots", (json_int_t)first,
            (json_int_t)last, "tables", "files");
    if (is_delta &&
            json_object_set_new(part, "kind", json_string("delta")) != 0) {
        json_decref(part);
        return NULL;
    }
    return part;
}

/* The part file, last, when all that it lists is on the disk. */
static rps_status
write_part(const struct rps_checkpoint_id *id, const char *folder, json_t *part,
        json_t **answer_out, struct rps_error *error)
{
    char *text = json_dumps(part, JSON_INDENT(1) | JSON_SORT_KEYS);
    char *name = rps_ckpt_part_name(id->part, id->parts);
    char *path = name == NULL ? NULL : rps_format("%s/%s", folder, name);
    char hex[17];
    rps_status status = RPS_E_NOMEM;

    if (text == NULL || path == NULL) {
        rps_fail(error, RPS_E_NOMEM, "%s: no memory", folder);
        goto out;
    }
    status = rps_dir_sync(folder, error);
    if (status == RPS_OK) {
        status = rps_file_write(path, text, strlen(text), false, error);
    }
    if (status == RPS_OK) {
        status = rps_dir_sync(folder, error);
    }
    if (status != RPS_OK) {
        goto out;
    }
    snprintf(hex, sizeof(hex), "%016" PRIx64, rps_checksum(text, strlen(text)));
    *answer_out = json_pack("{s:s, s:I, s:s, s:O}", "file", name, "bytes",
            (json_int_t)strlen(text), "xxh3", hex, "part", part);
    if (*answer_out == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
out:
    free(text);
    free(name);
    free(path);
    return status;
}

/* Files in one folder whose names start with `prefix`. */
static void
remove_prefixed(const char *path, const char *prefix)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;

    if (dir == NULL) {
        return;
    }
    while ((entry = readdir(dir)) != NULL) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    closedir(dir);
}

/* This PS's files; also the table folders and the folder, if `folders` and
 * nobody else has a file there. */
static void
remove_own(const struct rps_checkpoint_id *id, const char *folder, bool folders)
{
    char *part = rps_ckpt_part_name(id->part, id->parts);
    char *lanes = rps_ckpt_lanes_name(id->part, id->parts);
    char *prefix =
            rps_format("%" PRIu32 "-of-%" PRIu32 ".", id->part, id->parts);
    DIR *dir = opendir(folder);
    const struct dirent *entry;

    if (part == NULL || lanes == NULL || prefix == NULL || dir == NULL) {
        goto out;
    }
    /* first what says that the rest is whole */
    unlinkat(dirfd(dir), part, 0);
    unlinkat(dirfd(dir), RPS_CKPT_MANIFEST, 0);
    unlinkat(dirfd(dir), RPS_CKPT_MANIFEST ".xxh3", 0);
    remove_prefixed(folder, lanes);
    while ((entry = readdir(dir)) != NULL) {
        char *path = NULL;

        if (strncmp(entry->d_name, "table-", 6) != 0) {
            continue;
        }
        path = rps_format("%s/%s", folder, entry->d_name);
        if (path != NULL) {
            remove_prefixed(path, prefix);
            if (folders) {
                rmdir(path);
            }
        }
        free(path);
    }
    if (folders) {
        rmdir(folder);
    }
out:
    if (dir != NULL) {
        closedir(dir);
    }
    free(part);
    free(lanes);
    free(prefix);
}

void
rps_checkpoint_abort(const struct rps_checkpoint_id *id)
{
    char *folder = NULL;

    if (rps_ckpt_id_check(id, NULL) != RPS_OK) {
        return;
    }
    folder = rps_ckpt_tmp_path(id->dir, id->step, id->epoch);
    if (folder != NULL) {
        remove_own(id, folder, true);
    }
    free(folder);
}

/* Which rows are written is settled for all tables first: rows that are not
 * need not be kept. */
static rps_status
save_tables(const struct rps_ckpt_save *save)
{
    const size_t count = rps_cut_count(save->cut);
    struct rps_ckpt_saved *saved = calloc(count + 1, sizeof(*saved));
    rps_status status = RPS_OK;

    if (saved == NULL) {
        return rps_fail(
                save->error, RPS_E_NOMEM, "%s: no memory", save->folder);
    }
    rps_cut_begin(save->cut);
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        status = rps_ckpt_save_begin(save, i, &saved[i]);
    }
    for (size_t i = 0; i < count && status == RPS_OK; i++) {
        status = rps_ckpt_save_table(save, i, &saved[i]);
    }
    free(saved);
    return status;
}

/** What is written while requests are answered. */
struct writing {
    struct rps_ckpt_save *save;
    const struct rps_lane_record *lanes;
    size_t lane_count;
    json_t **part_out;
    rps_status status;
};

static rps_status
save_all_tables(struct rps_ckpt_save *save)
{
    struct rps_ckpt_aside aside;
    struct rps_cut_aside hooks;
    rps_status status;

    rps_ckpt_aside_init(&aside, save->folder, save->error);
    hooks = rps_ckpt_aside_of(&aside);
    save->aside = &hooks;
    status = save_tables(save);
    rps_ckpt_aside_finish(&aside);
    return status;
}

static void
write_all(void *context)
{
    struct writing *writing = context;
    struct rps_ckpt_save *save = writing->save;
    rps_status status = rps_dir_make(save->folder, save->error);

    if (status == RPS_OK) {
        remove_own(save->id, save->folder, false); /* of one that failed */
        status = save_all_tables(save);
    }
    if (status == RPS_OK) {
        status = save_lanes(save->id, save->folder, writing->lanes,
                writing->lane_count, json_object_get(save->part, "files"),
                save->error);
    }
    if (status == RPS_OK) {
        status = write_part(save->id, save->folder, save->part,
                writing->part_out, save->error);
    }
    writing->status = status;
}

rps_status
rps_checkpoint_prepare(const struct rps_checkpoint_id *id, bool is_delta,
        struct rps_cut *cut, const struct rps_lane_record *lanes,
        size_t lane_count, json_t **part_out, struct rps_error *error)
{
    rps_status status = rps_ckpt_id_check(id, error);
    struct rps_ckpt_save save = {
            .id = id, .cut = cut, .is_delta = is_delta, .error = error};
    struct writing writing = {.save = &save,
            .lanes = lanes,
            .lane_count = lane_count,
            .part_out = part_out};
    char *folder = NULL;

    *part_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    folder = rps_ckpt_tmp_path(id->dir, id->step, id->epoch);
    save.folder = folder;
    save.part = new_part(id, is_delta);
    if (folder == NULL || save.part == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory to save", id->dir);
        goto out;
    }
    rps_ckpt_run_in_background(write_all, &writing);
    status = writing.status;
    if (status != RPS_OK) {
        remove_own(id, folder, true); /* gives a full disk its room back */
    }
out:
    json_decref(save.part);
    free(folder);
    return status;
}
