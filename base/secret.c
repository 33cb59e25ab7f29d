/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links are followed: a mounted Secret of Kubernetes is a link to a file of
 * the current version. So what is checked is the open file, not its name.
 */
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* For nobody: whoever else could read or change it, and what no secret is. */
#define MODE_REFUSED (S_IXUSR | S_IWGRP | S_IXGRP | S_IRWXO)
/* What every secret's memory has: with line ends, and one byte too many. */
#define ROOM_BYTES ((size_t)RPS_SECRET_BYTES_MAX + 3)

/** Where a secret is, for its failures. */
struct source {
    const char *option;
    const char *path;
};

static rps_status
check_mode(const struct source *source, const struct stat *info,
        struct rps_error *error)
{
    const bool group = (info->st_mode & S_IRGRP) != 0;

    if ((info->st_mode & MODE_REFUSED) == 0 && (!group || info->st_uid == 0)) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_AUTH,
            "%s %s has mode %04o: its owner alone may read it; chmod 600 it%s",
            source->option, source->path, (unsigned)(info->st_mode & 07777),
            group ? " (the group may read a file of root's: 0640)" : "");
}

static rps_status
check_open(int fd, const struct source *source, struct rps_error *error)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return rps_fail(error, RPS_E_AUTH, "%s %s: %s", source->option,
                source->path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return rps_fail(error, RPS_E_AUTH, "%s %s is not a file",
                source->option, source->path);
    }
    if (info.st_uid != 0 && info.st_uid != geteuid()) {
        return rps_fail(error, RPS_E_AUTH,
                "%s %s belongs to user %u, who could change it: it must belong "
                "to this process's user (%u) or to root",
                source->option, source->path, (unsigned)info.st_uid,
                (unsigned)geteuid());
    }
    return check_mode(source, &info, error);
}

/* Not blocking: a FIFO has no end to wait for. */
static rps_status
open_checked(const struct source *source, int *fd_out, struct rps_error *error)
{
    const int fd = open(source->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    rps_status status;

    *fd_out = -1;
    if (fd < 0) {
        return rps_fail(error, RPS_E_AUTH, "%s: cannot open %s: %s",
                source->option, source->path, strerror(errno));
    }
    status = check_open(fd, source, error);
    if (status != RPS_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return RPS_OK;
}

rps_status
rps_secret_check(const char *option, const char *path, struct rps_error *error)
{
    const struct source source = {.option = option, .path = path};
    int fd = -1;
    rps_status status = open_checked(&source, &fd, error);

    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static rps_status
read_bytes(int fd, const struct source *source, struct rps_secret *secret,
        struct rps_error *error)
{
    secret->bytes = malloc(ROOM_BYTES);
    if (secret->bytes == NULL) {
        return rps_fail(
                error, RPS_E_NOMEM, "%s: out of memory", source->option);
    }
    while (secret->length < ROOM_BYTES) {
        const ssize_t n = read(fd, secret->bytes + secret->length,
                ROOM_BYTES - secret->length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rps_fail(error, RPS_E_AUTH, "%s: cannot read %s: %s",
                    source->option, source->path, strerror(errno));
        }
        if (n == 0) {
            break;
        }
        secret->length += (size_t)n;
    }
    while (secret->length > 0 &&
            (secret->bytes[secret->length - 1] == '\n' ||
                    secret->bytes[secret->length - 1] == '\r')) {
        secret->length--;
    }
    return RPS_OK;
}

rps_status
rps_secret_read(struct rps_secret *secret, const char *option, const char *path,
        struct rps_error *error)
{
    const struct source source = {.option = option, .path = path};
    int fd = -1;
    rps_status status = open_checked(&source, &fd, error);

    *secret = (struct rps_secret){0};
    if (status != RPS_OK) {
        return status;
    }
    status = read_bytes(fd, &source, secret, error);
    close(fd);
    if (status == RPS_OK && secret->length < RPS_SECRET_BYTES_MIN) {
        status = rps_fail(error, RPS_E_AUTH,
                "%s %s: a token of %zu bytes; it must have %u at least "
                "(openssl rand -hex 32 makes a good one)",
                option, path, secret->length, RPS_SECRET_BYTES_MIN);
    }
    if (status == RPS_OK && secret->length > RPS_SECRET_BYTES_MAX) {
        status = rps_fail(error, RPS_E_AUTH,
                "%s %s: a token of more than %u bytes (is it the right file?)",
                option, path, RPS_SECRET_BYTES_MAX);
    }
    if (status != RPS_OK) {
        rps_secret_finish(secret);
    }
    return status;
}

rps_status
rps_secret_copy(struct rps_secret *copy, const struct rps_secret *secret,
        struct rps_error *error)
{
    *copy = (struct rps_secret){.bytes = malloc(ROOM_BYTES)};
    if (copy->bytes == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    memcpy(copy->bytes, secret->bytes, secret->length);
    copy->length = secret->length;
    return RPS_OK;
}

void
rps_secret_finish(struct rps_secret *secret)
{
    if (secret->bytes != NULL) {
        explicit_bzero(secret->bytes, ROOM_BYTES);
    }
    free(secret->bytes);
    *secret = (struct rps_secret){0};
}
