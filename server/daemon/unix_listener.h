/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening Unix socket: one file that only our user can open. A file of
 * a server that is gone is removed; one that somebody answers at is not.
 */
#ifndef RPS_SERVER_DAEMON_UNIX_LISTENER_H
#define RPS_SERVER_DAEMON_UNIX_LISTENER_H

#include "base/unix_socket.h"

#include <sys/stat.h>

/** What its name is made of. */
struct rps_unix_plan {
    const char *unix_dir; /* the option */
    const char *job_id;
    uint32_t ps;
};

struct rps_unix_listener {
    int fd; /* -1: none */
    struct sockaddr_un address;
    dev_t device; /* of the file that we made */
    ino_t inode;
};

/**
 * Bind and listen; *listener has fd -1 if it fails. RETRY_LATER: a server
 * answers there; AUTH, IO, LIMIT: the folder or the file cannot be ours.
 */
rps_status rps_unix_listen(struct rps_unix_listener *listener,
        const struct rps_unix_plan *plan, uint16_t port, int backlog,
        struct rps_error *error);

/** Close, and remove the file if it is the one that we made. */
void rps_unix_listener_close(struct rps_unix_listener *listener);

#endif /* RPS_SERVER_DAEMON_UNIX_LISTENER_H */
