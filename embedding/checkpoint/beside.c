/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/beside.h"

#include "base/file.h"
#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/checkpoint/layout.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The folder, locked; -1: it is not there, or another's. */
static int
lock_folder(const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Of tools that were stopped: nobody holds the lock. */
static void
remove_leftovers(const char *dir)
{
    DIR *folder = opendir(dir);
    const struct dirent *entry;

    if (folder == NULL) {
        return;
    }
    while ((entry = readdir(folder)) != NULL) {
        uint64_t step;
        uint32_t epoch;
        char *path;
        int fd;

        if (!rps_ckpt_parse_hidden(
                    entry->d_name, RPS_CKPT_NEW_PREFIX, &step, &epoch)) {
            continue;
        }
        path = rps_format("%s/%s", dir, entry->d_name);
        fd = path == NULL ? -1 : lock_folder(path);
        if (fd >= 0) {
            (void)!rps_dir_remove(path, NULL);
            close(fd);
        }
        free(path);
    }
    closedir(folder);
}

/* Is the locked folder still the one at the path? Another tool may have taken
 * it for a leftover before it was locked. */
static bool
is_at(int fd, const char *path)
{
    struct stat own;
    struct stat there;

    return fstat(fd, &own) == 0 && lstat(path, &there) == 0 &&
           own.st_dev == there.st_dev && own.st_ino == there.st_ino;
}

static rps_status
make_folder(struct rps_ckpt_beside *beside, struct rps_error *error)
{
    if (mkdir(beside->path, 0750) != 0) {
        return errno == EEXIST
                       ? rps_fail(error, RPS_E_RETRY_LATER,
                                 "%s: another recps writes it now",
                                 beside->path)
                       : rps_fail(error, RPS_E_IO, "cannot make folder %s: %s",
                                 beside->path, strerror(errno));
    }
    beside->fd = lock_folder(beside->path);
    if (beside->fd < 0 || !is_at(beside->fd, beside->path)) {
        return rps_fail(error, RPS_E_RETRY_LATER,
                "%s: another recps took it: try again", beside->path);
    }
    return RPS_OK;
}

/* Bytes of the path of its deepest folder that is there; 0: none of them. */
static size_t
length_there(const char *dir)
{
    char *path = strdup(dir);
    char *slash = path;
    size_t n = 0;

    while (path != NULL && slash != NULL && n == 0) {
        if (access(path, F_OK) == 0) {
            n = strlen(path);
        } else {
            slash = strrchr(path, '/');
            if (slash != NULL) {
                *slash = '\0';
            }
        }
    }
    free(path);
    return n;
}

/* Those that were made for nothing: one that holds anything stays. */
static void
remove_made(const struct rps_ckpt_beside *beside)
{
    char *path = strdup(beside->dir);
    char *slash = path;

    while (path != NULL && slash != NULL && strlen(path) > beside->kept &&
            rmdir(path) == 0) {
        slash = strrchr(path, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    free(path);
}

rps_status
rps_ckpt_beside_open(struct rps_ckpt_beside *beside, const char *dir,
        uint64_t step, uint32_t epoch, struct rps_error *error)
{
    const size_t kept = length_there(dir);
    rps_status status = rps_dir_make(dir, error);

    *beside = (struct rps_ckpt_beside){.fd = -1, .kept = kept};
    if (status != RPS_OK) {
        return status;
    }
    remove_leftovers(dir);
    beside->dir = strdup(dir);
    beside->final = rps_checkpoint_path(dir, step);
    beside->path =
            rps_format("%s/" RPS_CKPT_NEW_PREFIX "%012" PRIu64 "-%" PRIu32, dir,
                    step, epoch);
    if (beside->dir == NULL || beside->final == NULL || beside->path == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "%s: no memory", dir);
    } else {
        status = make_folder(beside, error);
    }
    if (status != RPS_OK) {
        beside->installed = beside->fd < 0; /* what is there is another's */
        rps_ckpt_beside_close(beside);
    }
    return status;
}

static rps_status
swap(const struct rps_ckpt_beside *beside, struct rps_error *error)
{
    if (renameat2(AT_FDCWD, beside->path, AT_FDCWD, beside->final,
                RENAME_EXCHANGE) == 0) {
        return RPS_OK;
    }
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s: this file system cannot swap two folders in one call, "
                "and nothing less is safe: write into another folder (--out)",
                beside->final);
    }
    return rps_fail(error, RPS_E_IO, "%s: cannot replace: %s", beside->final,
            strerror(errno));
}

static rps_status
take_name(const struct rps_ckpt_beside *beside, struct rps_error *error)
{
    if (renameat2(AT_FDCWD, beside->path, AT_FDCWD, beside->final,
                RENAME_NOREPLACE) == 0) {
        return RPS_OK;
    }
    /* a folder with files in it is not replaced by rename() either */
    if ((errno == EINVAL || errno == ENOSYS) &&
            rename(beside->path, beside->final) == 0) {
        return RPS_OK;
    }
    if (errno == EEXIST || errno == ENOTEMPTY) {
        return rps_fail(error, RPS_E_MISMATCH,
                "%s is there already: nothing was replaced", beside->final);
    }
    return rps_fail(error, RPS_E_IO, "%s: cannot rename to %s: %s",
            beside->path, beside->final, strerror(errno));
}

rps_status
rps_ckpt_beside_install(
        struct rps_ckpt_beside *beside, bool replace, struct rps_error *error)
{
    const bool swaps = replace && access(beside->final, F_OK) == 0;
    rps_status status = swaps ? swap(beside, error) : take_name(beside, error);

    if (status != RPS_OK) {
        return status;
    }
    beside->installed = true;
    status = rps_dir_sync(beside->dir, error);
    if (status == RPS_OK && swaps) {
        (void)!rps_dir_remove(beside->path, error);
    }
    return status;
}

void
rps_ckpt_beside_close(struct rps_ckpt_beside *beside)
{
    if (beside->path != NULL && !beside->installed) {
        (void)!rps_dir_remove(beside->path, NULL);
        if (beside->dir != NULL) {
            remove_made(beside);
        }
    }
    if (beside->path != NULL && beside->fd >= 0) {
        close(beside->fd);
    }
    free(beside->dir);
    free(beside->path);
    free(beside->final);
    *beside = (struct rps_ckpt_beside){.fd = -1};
}
