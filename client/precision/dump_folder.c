/* SPDX-License-Identifier: Apache-2.0 */
/* Where a dump lies, and who lay there before. */
#include "base/clock.h"
#include "base/file.h"
#include "client/precision/clean.h"
#include "client/precision/dump_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#define ROTATIONS_MAX   1000u
#define MODEL_BYTES_MAX RPS_DUMP_NAME_BYTES_MAX

static bool
is_there(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

/* --- rotation --------------------------------------------------------------
 *
 * debug_0 becomes debug_1; where that is taken, debug_1 becomes debug_2 before,
 * and so on: debug_1 is always the dump before this one.
 */

/* The number at its end, 0 without one, and where it begins. */
static uint64_t
number_of(const char *path, size_t *prefix_out)
{
    size_t at = strlen(path);
    uint64_t number = 0;

    while (at > 0 && path[at - 1] >= '0' && path[at - 1] <= '9') {
        at--;
    }
    *prefix_out = at;
    if (!rps_parse_u64(path + at, &number) || number > UINT32_MAX) {
        *prefix_out = strlen(path);
        return 0;
    }
    return number;
}

char *
rps_dump_rotated_name(const char *path, uint32_t rank)
{
    size_t prefix = 0;
    const uint64_t number = number_of(path, &prefix);

    if (rank == 0) {
        return rps_format("%s", path);
    }
    return path[prefix] == '\0' ? rps_format("%s.%" PRIu32, path, rank)
                                : rps_format("%.*s%" PRIu64, (int)prefix, path,
                                          number + rank);
}

static rps_status
move(const char *path, uint32_t from, uint32_t to, struct rps_error *error)
{
    char *old = rps_dump_rotated_name(path, from);
    char *new = rps_dump_rotated_name(path, to);
    rps_status status = RPS_OK;

    if (old == NULL || new == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "dump: no memory");
    } else if (rename(old, new) != 0) {
        status = rps_fail(error, RPS_E_IO, "dump: cannot move %s to %s: %s",
                old, new, strerror(errno));
    }
    free(old);
    free(new);
    return status;
}

/* How many lie there, one behind the other: the first free rank. */
static rps_status
find_free(const char *path, uint32_t *rank_out, struct rps_error *error)
{
    for (uint32_t rank = 1; rank <= ROTATIONS_MAX; rank++) {
        char *name = rps_dump_rotated_name(path, rank);
        const bool taken = name != NULL && is_there(name);

        free(name);
        if (name == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "dump: no memory");
        }
        if (!taken) {
            *rank_out = rank;
            return RPS_OK;
        }
    }
    return rps_fail(error, RPS_E_LIMIT,
            "dump: %s and %u dumps behind it are there: remove some", path,
            ROTATIONS_MAX);
}

static rps_status
rotate(struct rps_dump *dump, struct rps_error *error)
{
    uint32_t rank = 0;
    rps_status status = find_free(dump->path, &rank, error);

    for (; status == RPS_OK && rank > 0; rank--) {
        status = move(dump->path, rank - 1, rank, error);
    }
    if (status == RPS_OK) {
        dump->rotated = rps_dump_rotated_name(dump->path, 1);
    }
    return status;
}

/* --- making ------------------------------------------------------------------
 */

static rps_status
make_free(struct rps_dump *dump, bool may_rotate, struct rps_error *error)
{
    char *folder = rps_format("%s/dump", dump->path);
    const bool taken = folder != NULL && is_there(folder);

    free(folder);
    if (folder == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "dump: no memory");
    }
    if (taken && may_rotate) {
        return rotate(dump, error);
    }
    return !taken ? RPS_OK
                  : rps_fail(error, RPS_E_INVAL,
                            "dump: %s has one already: remove it, give "
                            "another path, or --rotate to move it aside",
                            dump->path);
}

/* Without slashes at its end. */
static rps_status
take_path(struct rps_dump *dump, const char *path, struct rps_error *error)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    /* "/dump/" and a time are behind it */
    if (n == 0 || n + 32 >= sizeof(dump->result.folder)) {
        return rps_fail(error, RPS_E_INVAL,
                "dump: its path has %zu bytes: must be 1 to %zu", n,
                sizeof(dump->result.folder) - 33);
    }
    dump->path = rps_format("%.*s", (int)n, path);
    return dump->path != NULL ? RPS_OK
                              : rps_fail(error, RPS_E_NOMEM, "dump: no memory");
}

static rps_status
name_folders(struct rps_dump *dump, const struct rps_dump_options *options,
        struct rps_error *error)
{
    char model[MODEL_BYTES_MAX + 1];
    char when[32];
    const time_t now = (time_t)(dump->start_us / 1000000u);
    struct tm local;

    (void)snprintf(model, sizeof(model), "%s",
            options->model[0] == '\0' ? "model" : options->model);
    rps_dump_clean(model);
    localtime_r(&now, &local);
    (void)strftime(when, sizeof(when), "%Y%m%d%H%M%S", &local);
    (void)snprintf(dump->result.folder, sizeof(dump->result.folder),
            "%s/dump/%s", dump->path, when);
    dump->base = rps_format("%s/%" PRIu32 "/%s/%" PRIu32, dump->result.folder,
            options->device, model, options->model_id);
    return dump->base != NULL ? RPS_OK
                              : rps_fail(error, RPS_E_NOMEM, "dump: no memory");
}

rps_status
rps_dump_folder_make(struct rps_dump *dump,
        const struct rps_dump_options *options, struct rps_error *error)
{
    rps_status status = take_path(dump, options->path, error);

    if (status == RPS_OK) {
        status = make_free(dump, options->rotate, error);
    }
    if (status == RPS_OK) {
        status = name_folders(dump, options, error);
    }
    if (status == RPS_OK) {
        dump->made_path = !is_there(dump->path);
        status = rps_dir_make(dump->result.folder, error);
    }
    return status;
}

void
rps_dump_folder_unmake(struct rps_dump *dump)
{
    char *folder = NULL;

    if (dump->path == NULL) {
        return;
    }
    folder = rps_format("%s/dump", dump->path);
    if (folder == NULL) {
        return;
    }
    (void)rmdir(dump->result.folder);
    (void)rmdir(folder);
    if (dump->made_path && rmdir(dump->path) == 0 && dump->rotated != NULL) {
        dump->result.moved_back = rename(dump->rotated, dump->path) == 0;
    }
    free(folder);
}

uint64_t
rps_dump_free_bytes(const char *path)
{
    struct statvfs info;

    if (statvfs(path, &info) != 0) {
        return UINT64_MAX;
    }
    return (uint64_t)info.f_bavail * info.f_frsize;
}
