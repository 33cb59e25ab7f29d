/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"

#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BESIDE_MAX 100u /* left by processes of the same number */
#define LINKS_MAX  40

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

static rps_status
close_written(int fd, rps_status status, const char *path, bool sync,
        struct rps_error *error)
{
    if (status == RPS_OK && sync && fsync(fd) != 0) {
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
rps_file_write(const char *path, const void *bytes, size_t length, bool replace,
        struct rps_error *error)
{
    const int flags =
            O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL);
    const int fd = open(path, flags, 0640);

    if (fd < 0) {
        return rps_fail(
                error, RPS_E_IO, "cannot create %s: %s", path, strerror(errno));
    }
    return close_written(fd, rps_fd_write_all(fd, bytes, length, path, error),
            path, true, error);
}

/* A name of its own: who else writes this path now has another one. */
static int
open_beside(const char *path, char **beside_out)
{
    int fd = -1;

    *beside_out = NULL;
    for (unsigned i = 0; i < BESIDE_MAX && fd < 0; i++) {
        free(*beside_out);
        *beside_out = rps_format("%s.%ld-%u.tmp", path, (long)getpid(), i);
        if (*beside_out == NULL) {
            errno = ENOMEM;
            return -1;
        }
        fd = open(*beside_out, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
        if (fd < 0 && errno != EEXIST) {
            return -1;
        }
    }
    return fd;
}

/* before: the file that is there, whose permissions stay; NULL: none is. */
static rps_status
replace_file(const char *path, const struct stat *before, const void *bytes,
        size_t length, struct rps_error *error)
{
    char *beside;
    const int fd = open_beside(path, &beside);
    rps_status status;

    if (fd < 0) {
        status = rps_fail(error, errno == ENOMEM ? RPS_E_NOMEM : RPS_E_IO,
                "cannot create %s: %s", path, strerror(errno));
        free(beside);
        return status;
    }
    if (before != NULL) {
        (void)fchmod(fd, before->st_mode & 0777);
    }
    status = close_written(fd, rps_fd_write_all(fd, bytes, length, path, error),
            path, true, error);
    if (status == RPS_OK && rename(beside, path) != 0) {
        status = rps_fail(
                error, RPS_E_IO, "cannot write %s: %s", path, strerror(errno));
    }
    if (status != RPS_OK) {
        (void)remove(beside);
    }
    free(beside);
    return status;
}

/* A device or a pipe: nothing can take its place. */
static rps_status
write_through(const char *path, const void *bytes, size_t length,
        struct rps_error *error)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);

    if (fd < 0) {
        return rps_fail(
                error, RPS_E_IO, "cannot open %s: %s", path, strerror(errno));
    }
    return close_written(fd, rps_fd_write_all(fd, bytes, length, path, error),
            path, false, error);
}

/* /dev/stdout where it is a file: whoever opened it goes on writing there. */
static bool
is_standard(const struct stat *info, int fd)
{
    struct stat own;

    return fstat(fd, &own) == 0 && own.st_dev == info->st_dev &&
           own.st_ino == info->st_ino;
}

/* Behind a chain of links that ends in no file: its name. NULL: a loop, or no
 * memory. free() */
static char *
end_of_links(const char *path)
{
    char *at = strdup(path);
    char target[PATH_MAX];

    for (int i = 0; at != NULL && i < LINKS_MAX; i++) {
        const ssize_t n = readlink(at, target, sizeof(target) - 1);
        const char *slash = strrchr(at, '/');
        char *next;

        if (n < 0) {
            return at;
        }
        target[n] = '\0';
        next = target[0] == '/' || slash == NULL
                       ? strdup(target)
                       : rps_format("%.*s/%s", (int)(slash - at), at, target);
        free(at);
        at = next;
    }
    free(at);
    return NULL;
}

rps_status
rps_file_replace(const char *path, const void *bytes, size_t length,
        struct rps_error *error)
{
    struct stat info;
    const bool exists = stat(path, &info) == 0;
    char *target;
    rps_status status;

    if (exists && S_ISDIR(info.st_mode)) {
        return rps_fail(error, RPS_E_IO,
                "cannot write %s: it is a folder, give a file's name", path);
    }
    for (int fd = STDOUT_FILENO; exists && fd <= STDERR_FILENO; fd++) {
        if (is_standard(&info, fd)) {
            return rps_fd_write_all(fd, bytes, length, path, error);
        }
    }
    if (exists && !S_ISREG(info.st_mode)) {
        return write_through(path, bytes, length, error);
    }
    target = exists ? realpath(path, NULL) : end_of_links(path);
    if (target == NULL) {
        return rps_fail(
                error, RPS_E_IO, "cannot write %s: %s", path, strerror(errno));
    }
    status = replace_file(target, exists ? &info : NULL, bytes, length, error);
    free(target);
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
