/* SPDX-License-Identifier: Apache-2.0 */
#include "client/near.h"

#include "base/unix_socket.h"

#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Ports, scopes and flows do not matter. */
static bool
same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    const struct sockaddr_in *a4 = (const void *)a;
    const struct sockaddr_in *b4 = (const void *)b;
    const struct sockaddr_in6 *a6 = (const void *)a;
    const struct sockaddr_in6 *b6 = (const void *)b;

    if (a == NULL || b == NULL || a->sa_family != b->sa_family) {
        return false;
    }
    if (a->sa_family == AF_INET) {
        return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    }
    return a->sa_family == AF_INET6 &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0;
}

/* All of 127.0.0.0/8, and ::1. */
static bool
is_loopback(const struct sockaddr *address)
{
    const struct sockaddr_in *v4 = (const void *)address;
    const struct sockaddr_in6 *v6 = (const void *)address;

    return (address->sa_family == AF_INET &&
                   ntohl(v4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET) ||
           (address->sa_family == AF_INET6 &&
                   IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr));
}

bool
rps_near_is_own(const struct addrinfo *addresses)
{
    struct ifaddrs *own = NULL;
    const struct addrinfo *at;
    const struct ifaddrs *each;
    bool found = false;

    for (at = addresses; at != NULL; at = at->ai_next) {
        found |= is_loopback(at->ai_addr);
    }
    if (found || getifaddrs(&own) != 0) {
        return found;
    }
    for (at = addresses; at != NULL; at = at->ai_next) {
        for (each = own; each != NULL; each = each->ifa_next) {
            found |= same_host(each->ifa_addr, at->ai_addr);
        }
    }
    freeifaddrs(own);
    return found;
}

/* The socket of a server that is ours or root's, in a folder that nobody else
 * can write to. */
static rps_status
check_place(const char *folder, const struct sockaddr_un *address,
        bool *there_out, struct rps_error *why)
{
    struct stat info;

    if (lstat(address->sun_path, &info) != 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return rps_fail(why, RPS_E_NOT_FOUND,
                    "no Unix socket %s (named after PS, port and job id: is "
                    "that recpsd running on this host?)",
                    address->sun_path);
        }
        return rps_fail(
                why, RPS_E_IO, "%s: %s", address->sun_path, strerror(errno));
    }
    *there_out = true;
    if (!S_ISSOCK(info.st_mode) ||
            (info.st_uid != geteuid() && info.st_uid != 0)) {
        return rps_fail(why, RPS_E_AUTH,
                "%s is no socket, or neither ours nor root's",
                address->sun_path);
    }
    return rps_unix_folder_check(folder, false, why);
}

static int
connect_to(const struct sockaddr_un *address, struct rps_error *why)
{
    struct rps_unix_peer peer;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        (void)rps_fail(why, RPS_E_IO, "socket: %s", strerror(errno));
        return -1;
    }
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) != 0) {
        (void)rps_fail(why, RPS_E_UNREACHABLE, "%s: %s", address->sun_path,
                strerror(errno));
        (void)close(fd);
        return -1;
    }
    if (rps_unix_peer_check(fd, &peer, why) != RPS_OK) {
        (void)close(fd);
        return -1;
    }
    rps_unix_widen(fd);
    return fd;
}

int
rps_near_connect(const rps_client *client, uint32_t ps, uint16_t port,
        bool *there_out, struct rps_error *why)
{
    struct sockaddr_un address;
    char *folder;
    int fd = -1;

    *there_out = false;
    (void)rps_fail(why, RPS_E_NOT_FOUND,
            "unix_dir is off, so there is no Unix socket to look for");
    for (unsigned n = 0; fd < 0 && !*there_out; n++) {
        folder = rps_unix_folder(client->unix_dir, n);
        if (folder == NULL) {
            break;
        }
        if (rps_unix_address(&address, folder, client->job_id, ps, port, why) ==
                        RPS_OK &&
                check_place(folder, &address, there_out, why) == RPS_OK) {
            fd = connect_to(&address, why);
        }
        free(folder);
    }
    return fd;
}
