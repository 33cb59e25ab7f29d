/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Links are followed: a mounted Secret of Kubernetes is a link to a file of
 * the current version. So what is checked is the open file, not its name.
 */
#include "base/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The group may read (a Secret volume with fsGroup), nobody else anything. */
#define MODE_REFUSED (S_IWGRP | S_IXGRP | S_IRWXO)
/* What every secret's memory has: with line ends, and one byte too many. */
#define ROOM_BYTES ((size_t)RPS_SECRET_BYTES_MAX + 3)

static rps_status
check_open(int fd, const char *path, struct rps_error *error)
{
    struct stat info;

    if (fstat(fd, &info) != 0) {
        return rps_fail(
                error, RPS_E_AUTH, "cannot stat %s: %s", path, strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) {
        return rps_fail(error, RPS_E_AUTH, "%s is not a file", path);
    }
    if ((info.st_mode & MODE_REFUSED) != 0) {
        return rps_fail(error, RPS_E_AUTH,
                "%s has mode %04o: others can read it, or others than its "
                "owner write it; chmod 600 it (0640 is fine, too)",
                path, (unsigned)(info.st_mode & 07777));
    }
    if (info.st_uid != 0 && info.st_uid != geteuid()) {
        return rps_fail(error, RPS_E_AUTH,
                "%s belongs to user %u, who could change it: it must belong "
                "to this process's user (%u) or to root",
                path, (unsigned)info.st_uid, (unsigned)geteuid());
    }
    return RPS_OK;
}

/* Not blocking: a FIFO has no end to wait for. */
static rps_status
open_checked(const char *path, int *fd_out, struct rps_error *error)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    rps_status status;

    *fd_out = -1;
    if (fd < 0) {
        return rps_fail(
                error, RPS_E_AUTH, "cannot open %s: %s", path, strerror(errno));
    }
    status = check_open(fd, path, error);
    if (status != RPS_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return RPS_OK;
}

rps_status
rps_secret_check(const char *path, struct rps_error *error)
{
    int fd = -1;
    rps_status status = open_checked(path, &fd, error);

    if (fd >= 0) {
        close(fd);
    }
    return status;
}

static rps_status
read_bytes(int fd, const char *path, struct rps_secret *secret,
        struct rps_error *error)
{
    secret->bytes = malloc(ROOM_BYTES);
    if (secret->bytes == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: out of memory", path);
    }
    while (secret->length < ROOM_BYTES) {
        const ssize_t n = read(fd, secret->bytes + secret->length,
                ROOM_BYTES - secret->length);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return rps_fail(error, RPS_E_AUTH, "cannot read %s: %s", path,
                    strerror(errno));
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
rps_secret_read(
        struct rps_secret *secret, const char *path, struct rps_error *error)
{
    int fd = -1;
    rps_status status = open_checked(path, &fd, error);

    *secret = (struct rps_secret){0};
    if (status != RPS_OK) {
        return status;
    }
    status = read_bytes(fd, path, secret, error);
    close(fd);
    if (status == RPS_OK && secret->length < RPS_SECRET_BYTES_MIN) {
        status = rps_fail(error, RPS_E_AUTH,
                "%s: a token of %zu bytes; it must have %u at least "
                "(openssl rand -hex 32 makes a good one)",
                path, secret->length, RPS_SECRET_BYTES_MIN);
    }
    if (status == RPS_OK && secret->length > RPS_SECRET_BYTES_MAX) {
        status = rps_fail(error, RPS_E_AUTH,
                "%s: a token of more than %u bytes (is it the right file?)",
                path, RPS_SECRET_BYTES_MAX);
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
