/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/folder.h"

#include "embedding/checkpoint/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

rps_status
rps_ckpt_folder_open(struct rps_ckpt_folder *folder, const char *path,
        struct rps_error *error)
{
    folder->path = strdup(path);
    folder->fd = -1;
    if (folder->path == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", path);
    }
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd >= 0) {
        return RPS_OK;
    }
    rps_fail(error, RPS_E_IO, "%s: cannot open the folder: %s", path,
            strerror(errno));
    return errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO;
}

void
rps_ckpt_folder_close(struct rps_ckpt_folder *folder)
{
    if (folder->path != NULL && folder->fd >= 0) {
        close(folder->fd);
    }
    free(folder->path);
    folder->path = NULL;
    folder->fd = -1;
}

static rps_status
open_failed(const struct rps_ckpt_folder *folder, const char *name,
        struct rps_error *error)
{
    switch (errno) {
    case ENOENT:
        return rps_fail(
                error, RPS_E_NOT_FOUND, "%s/%s is missing", folder->path, name);
    case ELOOP:
    case ENOTDIR:
        return rps_fail(error, RPS_E_CORRUPT,
                "%s/%s is a symbolic link or no file: checkpoints have "
                "files and folders only",
                folder->path, name);
    default:
        return rps_fail(error, RPS_E_IO, "%s/%s: %s", folder->path, name,
                strerror(errno));
    }
}

/* The file of a plain name, without following a link on the way. */
static int
open_plain(int folder_fd, const char *name)
{
    const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    const char *slash = strchr(name, '/');
    char sub[RPS_CKPT_NAME_BYTES_MAX + 1];
    int sub_fd;
    int fd;

    if (slash == NULL) {
        return openat(folder_fd, name, flags);
    }
    memcpy(sub, name, (size_t)(slash - name));
    sub[slash - name] = '\0';
    sub_fd = openat(
            folder_fd, sub, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECTORY);
    if (sub_fd < 0) {
        return -1;
    }
    fd = openat(sub_fd, slash + 1, flags);
    int saved = errno;
    close(sub_fd);
    errno = saved;
    return fd;
}

rps_status
rps_ckpt_folder_file(const struct rps_ckpt_folder *folder, const char *name,
        int *fd_out, uint64_t *bytes_out, struct rps_error *error)
{
    struct stat info;
    int fd;

    *fd_out = -1;
    if (!rps_ckpt_name_is_plain(name)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: \"%.300s\" is not the name of a file in a checkpoint",
                folder->path, name);
    }
    fd = open_plain(folder->fd, name);
    if (fd < 0) {
        return open_failed(folder, name, error);
    }
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return rps_fail(error, RPS_E_CORRUPT, "%s/%s is not a regular file",
                folder->path, name);
    }
    *fd_out = fd;
    *bytes_out = (uint64_t)info.st_size;
    return RPS_OK;
}

rps_status
rps_ckpt_read_all(int fd, const char *path, void *bytes, size_t n,
        struct rps_error *error)
{
    unsigned char *to = bytes;
    size_t left = n;

    while (left > 0) {
        ssize_t got = read(fd, to, left);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return rps_fail(
                    error, RPS_E_IO, "%s: read: %s", path, strerror(errno));
        }
        if (got == 0) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: ends %zu bytes too early", path, left);
        }
        to += got;
        left -= (size_t)got;
    }
    return RPS_OK;
}

rps_status
rps_ckpt_folder_text(const struct rps_ckpt_folder *folder, const char *name,
        size_t bytes_max, char **text_out, size_t *n_out,
        struct rps_error *error)
{
    char *text = NULL;
    uint64_t bytes;
    rps_status status;
    int fd;

    *text_out = NULL;
    status = rps_ckpt_folder_file(folder, name, &fd, &bytes, error);
    if (status != RPS_OK) {
        return status;
    }
    if (bytes > bytes_max) {
        status = rps_fail(error, RPS_E_CORRUPT,
                "%s/%s: %" PRIu64 " bytes, at most %zu are read", folder->path,
                name, bytes, bytes_max);
        goto out;
    }
    text = malloc((size_t)bytes + 1);
    if (text == NULL) {
        status = rps_fail(
                error, RPS_E_NOMEM, "%s/%s: no memory", folder->path, name);
        goto out;
    }
    status = rps_ckpt_read_all(fd, name, text, (size_t)bytes, error);
    if (status != RPS_OK) {
        goto out;
    }
    text[bytes] = '\0';
    *n_out = (size_t)bytes;
    *text_out = text;
    text = NULL;
out:
    free(text);
    close(fd);
    return status;
}
