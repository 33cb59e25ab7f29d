/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets of servers: where they lie, so that a client finds one by what
 * it knows of its server, and whom the two ends believe.
 *
 *   FOLDER/ps-INDEX-PORT-JOB.sock      JOB: 16 hex digits, XXH3_64 of job_id
 *
 * FOLDER is the option unix_dir, or the first of $XDG_RUNTIME_DIR/recps and
 * /tmp/recps-UID that can be used. It is ours alone: a folder, not a link,
 * owned by us, with no right for anybody else.
 */
#ifndef RPS_BASE_UNIX_SOCKET_H
#define RPS_BASE_UNIX_SOCKET_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#define RPS_UNIX_OFF "off" /* unix_dir: no socket, and none is looked for */

/** Is it turned off? NULL and "" are the default. */
bool rps_unix_is_off(const char *unix_dir);

/** The n-th folder to look in, from 0; new, free(). NULL: no more (or no
 * memory). */
char *rps_unix_folder(const char *unix_dir, unsigned n);

/** Fill *out. INVAL: the path is too long for a socket. */
rps_status rps_unix_address(struct sockaddr_un *out, const char *folder,
        const char *job_id, uint32_t ps, uint16_t port,
        struct rps_error *error);

/**
 * Is the folder ours alone? `make`: create it where it is not there.
 * NOT_FOUND, AUTH (somebody else's, a link, or open to others), IO.
 */
rps_status rps_unix_folder_check(
        const char *folder, bool make, struct rps_error *error);

/** Room for a large frame in what is sent; it only helps. */
void rps_unix_widen(int fd);

/** The process at the other end of a connected socket. */
struct rps_unix_peer {
    pid_t pid; /* 0: not in our namespace */
    uid_t uid;
};

/** Who is it, and is it our own user or root? AUTH: another; IO. */
rps_status rps_unix_peer_check(
        int fd, struct rps_unix_peer *peer, struct rps_error *error);

#endif /* RPS_BASE_UNIX_SOCKET_H */
