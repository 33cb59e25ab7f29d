/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static rps_status
fail_errno(struct rps_error *error, const char *verb, const char *path)
{
    return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
            "cannot %s %s: %s", verb, path, strerror(errno));
}

static rps_status
read_whole(int fd, const char *path, size_t length, char *bytes,
        struct rps_error *error)
{
    size_t done = 0;

    while (done < length) {
        const ssize_t n = read(fd, bytes + done, length - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return fail_errno(error, "read", path);
        }
        if (n == 0) {
            return rps_fail(error, RPS_E_CORRUPT,
                    "%s: ends after %zu of %zu bytes", path, done, length);
        }
        done += (size_t)n;
    }
    bytes[length] = '\0';
    return RPS_OK;
}

/* Of a pipe, whose end is known when it is there. */
static rps_status
read_stream(int fd, const char *path, size_t bytes_max, char **bytes_out,
        size_t *length_out, struct rps_error *error)
{
    struct rps_text text = {0};
    char block[16384];

    for (;;) {
        const ssize_t n = read(fd, block, sizeof(block));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            rps_text_finish(&text);
            return fail_errno(error, "read", path);
        }
        if (n == 0) {
            break;
        }
        if ((size_t)n > bytes_max - text.length) {
            rps_text_finish(&text);
            return rps_fail(error, RPS_E_LIMIT,
                    "%s has more than the %zu bytes allowed", path, bytes_max);
        }
        rps_text_add_bytes(&text, block, (size_t)n);
    }
    if (text.failed ||
            (text.bytes == NULL && (text.bytes = calloc(1, 1)) == NULL)) {
        rps_text_finish(&text);
        return rps_fail(error, RPS_E_NOMEM, "%s: out of memory", path);
    }
    *bytes_out = text.bytes;
    *length_out = text.length;
    return RPS_OK;
}

rps_status
rps_pipe_read(const char *path, size_t bytes_max, char **bytes_out,
        size_t *length_out, struct rps_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    rps_status status;

    *bytes_out = NULL;
    if (fd < 0) {
        return fail_errno(error, "open", path);
    }
    if (fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode)) {
        status = read_stream(fd, path, bytes_max, bytes_out, length_out, error);
    } else {
        status = rps_file_read(path, bytes_max, bytes_out, length_out, error);
    }
    close(fd);
    return status;
}

rps_status
rps_file_read(const char *path, size_t bytes_max, char **bytes_out,
        size_t *length_out, struct rps_error *error)
{
    rps_status status = RPS_OK;
    struct stat info;
    char *bytes = NULL;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    *bytes_out = NULL;
    if (fd < 0) {
        return fail_errno(error, "open", path);
    }
    if (fstat(fd, &info) != 0) {
        status = fail_errno(error, "stat", path);
        goto done;
    }
    if (!S_ISREG(info.st_mode)) {
        status = rps_fail(error, RPS_E_INVAL, "%s is not a file", path);
        goto done;
    }
    if ((uint64_t)info.st_size > bytes_max) {
        status = rps_fail(error, RPS_E_LIMIT,
                "%s has %lld bytes, more than the %zu allowed", path,
                (long long)info.st_size, bytes_max);
        goto done;
    }
    bytes = malloc((size_t)info.st_size + 1);
    status = bytes == NULL
                     ? rps_fail(error, RPS_E_NOMEM, "%s: out of memory", path)
                     : read_whole(fd, path, (size_t)info.st_size, bytes, error);
    if (status == RPS_OK) {
        *bytes_out = bytes;
        *length_out = (size_t)info.st_size;
        bytes = NULL;
    }
done:
    free(bytes);
    close(fd);
    return status;
}

rps_status
rps_fd_write_all(int fd, const void *bytes, size_t length, const char *path,
        struct rps_error *error)
{
    const char *at = bytes;

    while (length > 0) {
        const ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rps_fail(error, RPS_E_IO, "cannot write %s: %s", path,
                    strerror(errno));
        }
        at += n;
        length -= (size_t)n;
    }
    return RPS_OK;
}

rps_status
rps_file_write(const char *path, const void *bytes, size_t length, bool replace,
        struct rps_error *error)
{
    const int flags =
            O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL);
    const int fd = open(path, flags, 0640);
    rps_status status = RPS_OK;

    if (fd < 0) {
        return rps_fail(
                error, RPS_E_IO, "cannot create %s: %s", path, strerror(errno));
    }
    status = rps_fd_write_all(fd, bytes, length, path, error);
    if (status == RPS_OK && fsync(fd) != 0) {
        status = rps_fail(
                error, RPS_E_IO, "cannot sync %s: %s", path, strerror(errno));
    }
    if (close(fd) != 0 && status == RPS_OK) {
        status = rps_fail(
                error, RPS_E_IO, "cannot close %s: %s", path, strerror(errno));
    }
    return status;
}

rps_status
rps_file_replace(const char *path, const void *bytes, size_t length,
        struct rps_error *error)
{
    char *beside = rps_format("%s.tmp", path);
    rps_status status;

    if (beside == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory to write %s", path);
    }
    status = rps_file_write(beside, bytes, length, true, error);
    if (status == RPS_OK && rename(beside, path) != 0) {
        status = rps_fail(
                error, RPS_E_IO, "cannot write %s: %s", path, strerror(errno));
        remove(beside);
    }
    free(beside);
    return status;
}

static rps_status
make_one(const char *path, struct rps_error *error)
{
    struct stat info;

    if (mkdir(path, 0750) == 0) {
        return RPS_OK;
    }
    if (errno == EEXIST && stat(path, &info) == 0) {
        return S_ISDIR(info.st_mode)
                       ? RPS_OK
                       : rps_fail(error, RPS_E_IO, "%s is no folder", path);
    }
    return rps_fail(error, RPS_E_IO, "cannot make folder %s: %s", path,
            strerror(errno));
}

rps_status
rps_dir_make(const char *path, struct rps_error *error)
{
    char *copy = strdup(path);
    rps_status status = RPS_OK;

    if (copy == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: out of memory", path);
    }
    for (char *at = copy + 1; *at != '\0' && status == RPS_OK; at++) {
        if (*at == '/') {
            *at = '\0';
            status = make_one(copy, error);
            *at = '/';
        }
    }
    if (status == RPS_OK) {
        status = make_one(copy, error);
    }
    free(copy);
    return status;
}

rps_status
rps_dir_sync(const char *path, struct rps_error *error)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    rps_status status = RPS_OK;

    if (fd < 0) {
        return fail_errno(error, "open folder", path);
    }
    if (fsync(fd) != 0) {
        status = fail_errno(error, "sync folder", path);
    }
    close(fd);
    return status;
}

/* depth: levels of folders below this one that are removed, too */
static rps_status
remove_tree(const char *path, int depth, struct rps_error *error)
{
    rps_status status = RPS_OK;
    DIR *dir = opendir(path);
    struct dirent *entry = NULL;

    if (dir == NULL) {
        return errno == ENOENT ? RPS_OK : fail_errno(error, "open", path);
    }
    while (status == RPS_OK && (entry = readdir(dir)) != NULL) {
        char *name = NULL;
        if (strcmp(entry->d_name, ".") == 0 ||
                strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        name = rps_format("%s/%s", path, entry->d_name);
        if (name == NULL) {
            status = rps_fail(error, RPS_E_NOMEM, "%s: out of memory", path);
        } else if (unlink(name) != 0 && errno != ENOENT) {
            /* a folder: EISDIR here, EPERM elsewhere */
            status = depth > 0 ? remove_tree(name, depth - 1, error)
                               : fail_errno(error, "remove", name);
        }
        free(name);
    }
    closedir(dir);
    if (status == RPS_OK && rmdir(path) != 0 && errno != ENOENT) {
        status = fail_errno(error, "remove folder", path);
    }
    return status;
}

rps_status
rps_dir_remove(const char *path, struct rps_error *error)
{
    return remove_tree(path, 1, error);
}
