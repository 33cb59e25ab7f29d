/* SPDX-License-Identifier: Apache-2.0 */
#include "base/unix_socket.h"

#include "base/checksum.h"
#include "base/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FOLDER_MODE 0700u
#define SEND_BYTES  (2 << 20) /* the default holds 200 KB: many wakes */

bool
rps_unix_is_off(const char *unix_dir)
{
    return unix_dir != NULL && strcmp(unix_dir, RPS_UNIX_OFF) == 0;
}

char *
rps_unix_folder(const char *unix_dir, unsigned n)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");

    if (rps_unix_is_off(unix_dir)) {
        return NULL;
    }
    if (unix_dir != NULL && unix_dir[0] != '\0') {
        return n == 0 ? strdup(unix_dir) : NULL;
    }
    if (runtime != NULL && runtime[0] == '/') {
        if (n == 0) {
            return rps_format("%s/recps", runtime);
        }
        n--;
    }
    return n == 0 ? rps_format("/tmp/recps-%ju", (uintmax_t)geteuid()) : NULL;
}

rps_status
rps_unix_address(struct sockaddr_un *out, const char *folder,
        const char *job_id, uint32_t ps, uint16_t port, struct rps_error *error)
{
    const uint64_t job = rps_checksum(job_id, strlen(job_id));
    int length;

    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    length = snprintf(out->sun_path, sizeof(out->sun_path),
            "%s/ps-%" PRIu32 "-%u-%016" PRIx64 ".sock", folder, ps, port, job);
    if (length < 0 || (size_t)length >= sizeof(out->sun_path)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: a path of %d bytes, and a socket's has %zu at most: give "
                "a shorter unix_dir",
                folder, length, sizeof(out->sun_path) - 1);
    }
    return RPS_OK;
}

rps_status
rps_unix_folder_check(const char *folder, bool make, struct rps_error *error)
{
    struct stat info;

    if (make && mkdir(folder, FOLDER_MODE) != 0 && errno != EEXIST) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "cannot make %s: %s", folder, strerror(errno));
    }
    if (lstat(folder, &info) != 0) {
        return rps_fail(error, errno == ENOENT ? RPS_E_NOT_FOUND : RPS_E_IO,
                "%s: %s", folder, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return rps_fail(error, RPS_E_AUTH, "%s is not a folder", folder);
    }
    if (info.st_uid != geteuid()) {
        return rps_fail(error, RPS_E_AUTH,
                "%s belongs to user %ju: sockets lie in a folder of our own",
                folder, (uintmax_t)info.st_uid);
    }
    if ((info.st_mode & 0077u) != 0) {
        return rps_fail(error, RPS_E_AUTH,
                "%s is open to others (mode %03o): chmod 700 it", folder,
                info.st_mode & 0777u);
    }
    return RPS_OK;
}

void
rps_unix_widen(int fd)
{
    const int bytes = SEND_BYTES;

    /* beyond net.core.wmem_max where we may */
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) !=
            0) {
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    }
}

rps_status
rps_unix_peer_check(int fd, struct rps_unix_peer *peer, struct rps_error *error)
{
    struct ucred who = {0};
    socklen_t bytes = sizeof(who);

    *peer = (struct rps_unix_peer){0};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0) {
        return rps_fail(error, RPS_E_IO, "SO_PEERCRED: %s", strerror(errno));
    }
    peer->pid = who.pid;
    peer->uid = who.uid;
    if (who.uid != geteuid() && who.uid != 0) {
        return rps_fail(error, RPS_E_AUTH,
                "process %ld of user %ju is neither ours nor root's",
                (long)who.pid, (uintmax_t)who.uid);
    }
    return RPS_OK;
}
