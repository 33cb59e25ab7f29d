/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock is fcntl()'s: of the process, told with its number. It would be
 * lost if this process closed any other descriptor of the file, so a claimed
 * file is never opened again.
 */
#include "client/npu/claim.h"

#include "client/npu/error.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 128u
#define HOST_BYTES 64u

static struct {
    pthread_mutex_t lock;
    int files[RPS_NPU_DEVICES_MAX];    /* lock; where owners[id] is us */
    pid_t owners[RPS_NPU_DEVICES_MAX]; /* lock; 0: not claimed. A child has its
                                        * parent's, and claims none of them */
    char paths[RPS_NPU_DEVICES_MAX][PATH_BYTES]; /* lock */
} claims = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool
is_name(const char *text)
{
    size_t n = 0;

    for (; text[n] != '\0'; n++) {
        const unsigned char c = (unsigned char)text[n];

        if (n + 1 >= HOST_BYTES ||
                (!isalnum(c) && c != '.' && c != '_' && c != '-')) {
            return false;
        }
    }
    return n > 0;
}

static rps_status
make_path(char *path, uint32_t id)
{
    const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    const char *host = getenv("RPS_NPU_HOST");

    if (host == NULL || host[0] == '\0') {
        host = "0";
    } else if (!is_name(host)) {
        return rps_npu_fail(RPS_E_INVAL,
                "RPS_NPU_HOST is no name of a host: at most %u letters, "
                "digits, '.', '_' and '-'",
                HOST_BYTES - 1);
    }
    (void)snprintf(
            path, PATH_BYTES, "%s/recps-npu-%s-%" PRIu32, folder, host, id);
    return RPS_OK;
}

/* Another user's file may be opened, but not by O_CREAT where the folder is
 * sticky (fs.protected_regular). */
static int
open_file(const char *path)
{
    const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(path, flags);

    if (fd < 0 && errno == ENOENT) {
        fd = open(path, flags | O_CREAT, 0666);
        if (fd >= 0) {
            (void)fchmod(fd, 0666); /* whatever the umask is */
        }
    }
    return fd;
}

static rps_status
refuse_taken(uint32_t id, int fd)
{
    struct flock held = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_GETLK, &held) == 0 && held.l_type != F_UNLCK &&
            held.l_pid > 0) {
        return rps_npu_fail(RPS_E_MISMATCH,
                "npu%" PRIu32 " is taken by process %ld: one process has a "
                "device at a time; take another one, or end that process",
                id, (long)held.l_pid);
    }
    return rps_npu_fail(RPS_E_MISMATCH,
            "npu%" PRIu32 " is taken by a process that is not seen from here: "
            "one process has a device at a time; take another one",
            id);
}

static rps_status
lock_file(uint32_t id, int fd, const char *path)
{
    struct flock want = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

    if (fcntl(fd, F_SETLK, &want) == 0) {
        return RPS_OK;
    }
    if (errno == EACCES || errno == EAGAIN) {
        return refuse_taken(id, fd);
    }
    return rps_npu_fail(RPS_E_IO, "npu%" PRIu32 ": %s: lock: %s", id, path,
            strerror(errno));
}

/* Who gives a device back removes the file: a lock on one that has no name
 * any more claims nothing. */
static bool
is_still(int fd, const char *path)
{
    struct stat mine;
    struct stat now;

    return fstat(fd, &mine) == 0 && lstat(path, &now) == 0 &&
           mine.st_dev == now.st_dev && mine.st_ino == now.st_ino;
}

static rps_status
claim_locked(uint32_t id, const char *path)
{
    for (;;) {
        const int fd = open_file(path);
        rps_status status = RPS_OK;

        if (fd < 0) {
            return rps_npu_fail(RPS_E_IO,
                    "npu%" PRIu32 ": %s, the file whose lock says who has the "
                    "device, cannot be opened: %s",
                    id, path, strerror(errno));
        }
        status = lock_file(id, fd, path);
        if (status == RPS_OK && is_still(fd, path)) {
            claims.files[id] = fd;
            claims.owners[id] = getpid();
            (void)snprintf(claims.paths[id], PATH_BYTES, "%s", path);
            return RPS_OK;
        }
        (void)close(fd);
        if (status != RPS_OK) {
            return status;
        }
    }
}

rps_status
rps_npu_claim(uint32_t id)
{
    char path[PATH_BYTES];
    rps_status status = make_path(path, id);

    if (status != RPS_OK) {
        return status;
    }
    pthread_mutex_lock(&claims.lock);
    if (claims.owners[id] == getpid()) {
        status = rps_npu_fail(RPS_E_MISMATCH,
                "npu%" PRIu32 " is open already, in this process (%ld)", id,
                (long)getpid());
    } else {
        status = claim_locked(id, path);
    }
    pthread_mutex_unlock(&claims.lock);
    return status;
}

void
rps_npu_disclaim(uint32_t id)
{
    pthread_mutex_lock(&claims.lock);
    if (claims.owners[id] == getpid()) {
        (void)unlink(claims.paths[id]); /* while it is locked */
        (void)close(claims.files[id]);
        claims.owners[id] = 0;
    }
    pthread_mutex_unlock(&claims.lock);
}
