/* SPDX-License-Identifier: Apache-2.0 */
#include "server/daemon/unix_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#define SOCKET_MODE 0600u

static rps_status
file_failed(const struct rps_unix_listener *listener, const char *doing,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_IO, "%s %s: %s", doing,
            listener->address.sun_path, strerror(errno));
}

static int
new_socket(void)
{
    return socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/* Who left this file? OK: nobody listens there any more, and it is gone. */
static rps_status
remove_stale(const struct rps_unix_listener *listener, struct rps_error *error)
{
    const char *path = listener->address.sun_path;
    struct stat info;
    int fd;
    int code;

    if (lstat(path, &info) != 0) {
        return errno == ENOENT ? RPS_OK
                               : file_failed(listener, "looking at", error);
    }
    if (!S_ISSOCK(info.st_mode)) {
        return rps_fail(error, RPS_E_AUTH,
                "%s is in the way, and it is no socket: remove it", path);
    }
    fd = new_socket();
    if (fd < 0) {
        return file_failed(listener, "a socket for", error);
    }
    code = connect(fd, (const struct sockaddr *)&listener->address,
                   sizeof(listener->address)) == 0
                   ? 0
                   : errno;
    (void)close(fd);
    if (code != ECONNREFUSED && code != ENOENT) {
        return rps_fail(
                error, RPS_E_RETRY_LATER, "a server listens on %s", path);
    }
    if (unlink(path) != 0 && errno != ENOENT) {
        return file_failed(listener, "removing", error);
    }
    return RPS_OK;
}

/* The file's rights are the socket's before it has a name. */
static rps_status
bind_new(struct rps_unix_listener *listener, int backlog,
        struct rps_error *error)
{
    struct stat info;

    listener->fd = new_socket();
    if (listener->fd < 0 || fchmod(listener->fd, SOCKET_MODE) != 0) {
        return file_failed(listener, "a socket for", error);
    }
    if (bind(listener->fd, (const struct sockaddr *)&listener->address,
                sizeof(listener->address)) != 0) {
        return file_failed(listener, "binding", error);
    }
    if (lstat(listener->address.sun_path, &info) != 0 ||
            chmod(listener->address.sun_path, SOCKET_MODE) != 0) {
        return file_failed(listener, "looking at", error);
    }
    listener->device = info.st_dev;
    listener->inode = info.st_ino;
    return listen(listener->fd, backlog) == 0
                   ? RPS_OK
                   : file_failed(listener, "listening on", error);
}

/* One server at a time looks at what lies in the folder and takes its name:
 * between bind and listen a socket looks like one that nobody listens at. */
static rps_status
listen_in(struct rps_unix_listener *listener, const char *folder, int backlog,
        struct rps_error *error)
{
    int lock = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    rps_status status;

    if (lock < 0 || flock(lock, LOCK_EX) != 0) {
        status = file_failed(listener, "locking the folder of", error);
    } else {
        status = remove_stale(listener, error);
    }
    if (status == RPS_OK) {
        status = bind_new(listener, backlog, error);
    }
    if (lock >= 0) {
        (void)close(lock);
    }
    if (status != RPS_OK) {
        rps_unix_listener_close(listener);
    }
    return status;
}

rps_status
rps_unix_listen(struct rps_unix_listener *listener,
        const struct rps_unix_plan *plan, uint16_t port, int backlog,
        struct rps_error *error)
{
    rps_status status = RPS_E_NOMEM;
    char *folder;

    *listener = (struct rps_unix_listener){.fd = -1};
    (void)rps_fail(error, status, "no memory for the folder of sockets");
    for (unsigned n = 0; (folder = rps_unix_folder(plan->unix_dir, n)) != NULL;
            n++) {
        /* before the folder is made: it would be for nothing */
        status = rps_unix_address(&listener->address, folder, plan->job_id,
                plan->ps, port, error);
        if (status == RPS_E_INVAL) {
            status = RPS_E_LIMIT; /* INVAL is the address to listen on */
        }
        if (status == RPS_OK) {
            status = rps_unix_folder_check(folder, true, error);
        }
        if (status == RPS_OK) {
            status = listen_in(listener, folder, backlog, error);
        }
        free(folder);
        if (status == RPS_OK || status == RPS_E_RETRY_LATER) {
            return status;
        }
    }
    return status;
}

void
rps_unix_listener_close(struct rps_unix_listener *listener)
{
    struct stat info;

    if (listener->fd < 0) {
        return;
    }
    if (listener->inode != 0 && lstat(listener->address.sun_path, &info) == 0 &&
            info.st_dev == listener->device && info.st_ino == listener->inode) {
        (void)unlink(listener->address.sun_path);
    }
    (void)close(listener->fd);
    listener->fd = -1;
}
