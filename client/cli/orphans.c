/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/orphans.h"

#include "base/checksum.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"
#include "embedding/checkpoint/orphan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ABOUT_BYTES_MAX (64u << 10)
#define PART_BYTES_MAX  (64u << 20)
#define COPY_BYTES      (1u << 20)
#define PARTS_MAX       65536u

static rps_status
no_memory(struct rps_error *error)
{
    return rps_fail(error, RPS_E_NOMEM, "out of memory");
}

static const char *
text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL ? text : "";
}

/* --- find ---------------------------------------------------------------- */

static rps_status
read_json(const char *path, size_t bytes_max, json_t **out, uint64_t *sum_out,
        struct rps_error *error)
{
    json_error_t where;
    char *text = NULL;
    size_t length = 0;
    rps_status status = rps_file_read(path, bytes_max, &text, &length, error);

    *out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    *sum_out = rps_checksum(text, length);
    *out = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    free(text);
    return json_is_object(*out)
                   ? RPS_OK
                   : rps_fail(error, RPS_E_CORRUPT, "%s: no JSON object", path);
}

static bool
take_number(const json_t *about, const char *key, uint64_t max, uint64_t *out)
{
    return rps_json_whole(json_object_get(about, key), out) && *out <= max;
}

/* Keep the newer of two that one server wrote. */
static rps_status
take_part(struct rps_orphans *orphans, const char *dir, const char *path,
        json_t *about, struct rps_error *error)
{
    uint64_t step = 0, epoch = 0, part = 0, parts = 0;
    struct rps_orphan *orphan;

    if (!take_number(about, "step", 999999999999u, &step) ||
            !take_number(about, "epoch", UINT32_MAX - 1, &epoch) ||
            !take_number(about, "parts", PARTS_MAX, &parts) ||
            !take_number(about, "part", PARTS_MAX, &part) || part >= parts) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/" RPS_ORPHAN_FILE " has no legal step, epoch, part or"
                " parts",
                path);
    }
    if (orphans->parts == 0) {
        orphans->at = calloc(parts, sizeof(*orphans->at));
        orphans->parts = orphans->at != NULL ? (uint32_t)parts : 0;
    }
    if (orphans->at == NULL) {
        return no_memory(error);
    }
    if (parts != orphans->parts) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s is of %" PRIu64 " servers, another part of %" PRIu32
                ": remove those that are not meant",
                path, parts, orphans->parts);
    }
    orphan = &orphans->at[part];
    if (orphan->path != NULL &&
            (orphan->epoch > epoch ||
                    (orphan->epoch == epoch && orphan->step >= step))) {
        return RPS_OK;
    }
    free(orphan->path);
    json_decref(orphan->about);
    *orphan = (struct rps_orphan){.dir = dir,
            .path = strdup(path),
            .about = json_incref(about),
            .step = step,
            .epoch = (uint32_t)epoch};
    return orphan->path != NULL ? RPS_OK : no_memory(error);
}

static rps_status
look_at_part(struct rps_orphans *orphans, const char *dir, const char *folder,
        const char *name, struct rps_error *error)
{
    char *path = rps_format("%s/%s", folder, name);
    char *file = path != NULL ? rps_format("%s/" RPS_ORPHAN_FILE, path) : NULL;
    json_t *about = NULL;
    uint64_t sum = 0;
    rps_status status = RPS_OK;

    if (file == NULL) {
        status = no_memory(error);
    } else if (access(file, F_OK) == 0) {
        status = read_json(file, ABOUT_BYTES_MAX, &about, &sum, error);
        if (status == RPS_OK) {
            status = take_part(orphans, dir, path, about, error);
        }
    }
    json_decref(about);
    free(file);
    free(path);
    return status;
}

/* Calls look() for each name in a folder that starts with `prefix`. */
static rps_status
look_below(struct rps_orphans *orphans, const char *dir, const char *folder,
        const char *prefix,
        rps_status (*look)(struct rps_orphans *orphans, const char *dir,
                const char *folder, const char *name, struct rps_error *error),
        struct rps_error *error)
{
    DIR *names = opendir(folder);
    const struct dirent *entry;
    rps_status status = RPS_OK;

    if (names == NULL) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "%s: %s", folder, strerror(errno));
    }
    while (status == RPS_OK && (entry = readdir(names)) != NULL) {
        if (entry->d_name[0] != '.' &&
                strncmp(entry->d_name, prefix, strlen(prefix)) == 0) {
            status = look(orphans, dir, folder, entry->d_name, error);
        }
    }
    closedir(names);
    return status;
}

static rps_status
look_at_step(struct rps_orphans *orphans, const char *dir, const char *folder,
        const char *name, struct rps_error *error)
{
    char *path = rps_format("%s/%s", folder, name);
    rps_status status = path != NULL ? look_below(orphans, dir, path, "",
                                               look_at_part, error)
                                     : no_memory(error);

    free(path);
    return status;
}

/* What must be equal of all parts. */
static rps_status
check_alike(const struct rps_orphans *orphans, const struct rps_orphan *orphan,
        struct rps_error *error)
{
    static const char *const keys[] = {"job_id", "seed", "mode", "begun_by"};
    const struct rps_orphan *first = &orphans->at[0];

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        if (strcmp(text_of(first->about, keys[i]),
                    text_of(orphan->about, keys[i])) != 0) {
            return rps_fail(error, RPS_E_MISMATCH,
                    "%s and %s are not of one run: %s is \"%.128s\" and "
                    "\"%.128s\"; remove those that are not meant",
                    first->path, orphan->path, keys[i],
                    text_of(first->about, keys[i]),
                    text_of(orphan->about, keys[i]));
        }
    }
    if (first->epoch != orphan->epoch) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s is of epoch %" PRIu32 ", %s of epoch %" PRIu32, first->path,
                first->epoch, orphan->path, orphan->epoch);
    }
    if (orphans->is_sync && first->step != orphan->step) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s is of step %" PRIu64 ", %s of step %" PRIu64
                ": a sync job has no state of both; restore its newest "
                "checkpoint",
                first->path, first->step, orphan->path, orphan->step);
    }
    return RPS_OK;
}

static rps_status
check_all(struct rps_orphans *orphans, struct rps_error *error)
{
    const struct rps_orphan *first = &orphans->at[0];
    rps_status status = RPS_OK;

    for (uint32_t i = 0; i < orphans->parts; i++) {
        if (orphans->at[i].path == NULL) {
            return rps_fail(error, RPS_E_NOT_FOUND,
                    "part %" PRIu32 " of %" PRIu32 " is not here: PS %" PRIu32
                    " wrote no orphan-STEP into these folders",
                    i, orphans->parts, i);
        }
    }
    orphans->job_id = text_of(first->about, "job_id");
    orphans->is_sync = strcmp(text_of(first->about, "mode"), "sync") == 0;
    orphans->epoch = first->epoch + 1;
    (void)rps_parse_u64(text_of(first->about, "seed"), &orphans->job_seed);
    for (uint32_t i = 0; status == RPS_OK && i < orphans->parts; i++) {
        const struct rps_orphan *orphan = &orphans->at[i];

        status = check_alike(orphans, orphan, error);
        if (orphan->step > orphans->step) {
            orphans->step = orphan->step;
        }
    }
    return status;
}

/* Parts of an older run must not make what came later count no more. */
static rps_status
check_newest(const struct rps_orphans *orphans, const struct rps_orphan *orphan,
        uint32_t part, struct rps_error *error)
{
    struct rps_checkpoint_survey survey = {0};
    rps_status status = rps_checkpoint_survey(
            orphan->dir, part, orphans->parts, &survey, error);

    for (size_t i = 0; status == RPS_OK && i < survey.count; i++) {
        const struct rps_checkpoint_complete *entry = &survey.complete[i];

        if (entry->epoch > orphan->epoch ||
                (entry->epoch == orphan->epoch &&
                        entry->step > orphans->step)) {
            status = rps_fail(error, RPS_E_MISMATCH,
                    "%s: ckpt-%012" PRIu64 " is newer than %s: it is to be "
                    "restored; remove the orphans",
                    orphan->dir, entry->step, orphan->path);
        }
    }
    rps_checkpoint_survey_finish(&survey);
    return status;
}

rps_status
rps_orphans_find(struct rps_orphans *orphans, const char *const *dirs,
        size_t count, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (size_t i = 0; status == RPS_OK && i < count; i++) {
        status = look_below(orphans, dirs[i], dirs[i], RPS_ORPHAN_PREFIX,
                look_at_step, error);
    }
    if (status == RPS_OK && orphans->parts == 0) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "%s: there is no orphan-STEP that a server wrote", dirs[0]);
    }
    if (status == RPS_OK) {
        status = check_all(orphans, error);
    }
    for (uint32_t i = 0; status == RPS_OK && i < orphans->parts; i++) {
        status = check_newest(orphans, &orphans->at[i], i, error);
    }
    return status;
}

/* --- stage --------------------------------------------------------------- */

static rps_status
copy_bytes(int from, int to, const char *path, struct rps_error *error)
{
    char *buffer = malloc(COPY_BYTES);
    rps_status status = buffer != NULL ? RPS_OK : no_memory(error);

    while (status == RPS_OK) {
        const ssize_t n = read(from, buffer, COPY_BYTES);

        if (n == 0) {
            break;
        }
        status = n > 0 ? rps_fd_write_all(to, buffer, (size_t)n, path, error)
                       : rps_fail(error, RPS_E_IO, "%s: %s", path,
                                 strerror(errno));
    }
    free(buffer);
    return status == RPS_OK && fsync(to) != 0
                   ? rps_fail(error, RPS_E_IO, "%s: %s", path, strerror(errno))
                   : status;
}

/* Where a file system has no links. */
static rps_status
copy_file(const char *from, const char *to, struct rps_error *error)
{
    const int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const int out =
            in < 0 ? -1
                   : open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    rps_status status = out >= 0 ? copy_bytes(in, out, to, error)
                                 : rps_fail(error, RPS_E_IO, "%s: %s",
                                           in < 0 ? from : to, strerror(errno));

    if (in >= 0) {
        close(in);
    }
    if (out >= 0) {
        close(out);
    }
    return status;
}

static rps_status
bring_file(const char *from, const char *to, struct rps_error *error)
{
    if (link(from, to) == 0) {
        return RPS_OK;
    }
    if (errno == EEXIST) { /* of an attempt that was ended */
        unlink(to);
        if (link(from, to) == 0) {
            return RPS_OK;
        }
    }
    return errno == ENOENT
                   ? rps_fail(error, RPS_E_NOT_FOUND, "%s is missing", from)
                   : copy_file(from, to, error);
}

/* "table-emb/0-of-2.keys.npy": its folder is made where it is not there. */
static rps_status
bring_named(const struct rps_orphan *orphan, const char *folder,
        const char *name, struct rps_error *error)
{
    char *from = rps_format("%s/%s", orphan->path, name);
    char *to = rps_format("%s/%s", folder, name);
    rps_status status = from != NULL && to != NULL ? RPS_OK : no_memory(error);
    char *slash = to != NULL ? strrchr(to, '/') : NULL;

    if (status == RPS_OK && !rps_ckpt_name_is_plain(name)) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s: its part file names \"%.128s\"", orphan->path, name);
    }
    if (status == RPS_OK && slash != NULL) {
        *slash = '\0';
        status = rps_dir_make(to, error);
        *slash = '/';
    }
    if (status == RPS_OK) {
        status = bring_file(from, to, error);
    }
    if (status == RPS_OK && slash != NULL) {
        *slash = '\0';
        status = rps_dir_sync(to, error);
    }
    free(from);
    free(to);
    return status;
}

/* The part file as it was written, against orphan.json. */
static rps_status
read_part(struct rps_orphan *orphan, struct rps_error *error)
{
    const char *name = text_of(orphan->about, "file");
    char *path = rps_ckpt_name_is_plain(name)
                         ? rps_format("%s/%s", orphan->path, name)
                         : NULL;
    char hex[17];
    uint64_t sum = 0;
    rps_status status;

    if (path == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/" RPS_ORPHAN_FILE " names no part file", orphan->path);
    }
    status = read_json(path, PART_BYTES_MAX, &orphan->part, &sum, error);
    snprintf(hex, sizeof(hex), "%016" PRIx64, sum);
    if (status == RPS_OK && strcmp(hex, text_of(orphan->about, "xxh3")) != 0) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s is not what was written (its checksum is %s)", path, hex);
    }
    free(path);
    return status;
}

/* It says the checkpoint's step and epoch, and goes last. */
static rps_status
write_part(const struct rps_orphans *orphans, struct rps_orphan *orphan,
        const char *folder, struct rps_error *error)
{
    const char *name = text_of(orphan->about, "file");
    char *path = rps_format("%s/%s", folder, name);
    char *text = NULL;
    char hex[17];
    rps_status status;

    (void)json_object_set_new(
            orphan->part, "step", json_integer((json_int_t)orphans->step));
    (void)json_object_set_new(
            orphan->part, "epoch", json_integer((json_int_t)orphans->epoch));
    text = json_dumps(orphan->part, JSON_INDENT(1) | JSON_SORT_KEYS);
    status = text != NULL && path != NULL
                     ? rps_file_write(path, text, strlen(text), true, error)
                     : no_memory(error);
    if (status == RPS_OK) {
        snprintf(hex, sizeof(hex), "%016" PRIx64,
                rps_checksum(text, strlen(text)));
        orphan->answer = json_pack("{s:s, s:I, s:s, s:O}", "file", name,
                "bytes", (json_int_t)strlen(text), "xxh3", hex, "part",
                orphan->part);
        status = orphan->answer != NULL ? rps_dir_sync(folder, error)
                                        : no_memory(error);
    }
    free(text);
    free(path);
    return status;
}

static rps_status
stage_one(const struct rps_orphans *orphans, struct rps_orphan *orphan,
        struct rps_error *error)
{
    char *folder =
            rps_ckpt_tmp_path(orphan->dir, orphans->step, orphans->epoch);
    rps_status status =
            folder != NULL ? rps_dir_make(folder, error) : no_memory(error);
    const char *name;
    json_t *file;

    if (status == RPS_OK) {
        status = read_part(orphan, error);
    }
    json_object_foreach(json_object_get(orphan->part, "files"), name, file)
    {
        if (status == RPS_OK) {
            status = bring_named(orphan, folder, name, error);
        }
    }
    if (status == RPS_OK) {
        status = write_part(orphans, orphan, folder, error);
    }
    free(folder);
    return status;
}

rps_status
rps_orphans_stage(struct rps_orphans *orphans, struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; status == RPS_OK && i < orphans->parts; i++) {
        status = stage_one(orphans, &orphans->at[i], error);
    }
    return status;
}

/* --- commit -------------------------------------------------------------- */

/* The last part of it takes DIR/orphan-STEP with it. */
static void
remove_orphan(struct rps_orphan *orphan)
{
    char *slash;

    (void)!rps_dir_remove(orphan->path, NULL);
    slash = strrchr(orphan->path, '/');
    if (slash != NULL) {
        *slash = '\0';
        rmdir(orphan->path);
    }
}

rps_status
rps_orphans_commit(struct rps_orphans *orphans, const char *manifest,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    for (uint32_t i = 0; status == RPS_OK && i < orphans->parts; i++) {
        const struct rps_checkpoint_id id = {.dir = orphans->at[i].dir,
                .step = orphans->step,
                .epoch = orphans->epoch,
                .part = i,
                .parts = orphans->parts};

        status = rps_checkpoint_commit(
                &id, manifest, strlen(manifest), 0, error);
    }
    for (uint32_t i = 0; status == RPS_OK && i < orphans->parts; i++) {
        remove_orphan(&orphans->at[i]);
    }
    return status;
}

void
rps_orphans_finish(struct rps_orphans *orphans)
{
    for (uint32_t i = 0; i < orphans->parts; i++) {
        free(orphans->at[i].path);
        json_decref(orphans->at[i].about);
        json_decref(orphans->at[i].part);
        json_decref(orphans->at[i].answer);
    }
    free(orphans->at);
    *orphans = (struct rps_orphans){.at = NULL};
}
