/* SPDX-License-Identifier: Apache-2.0 */
#include "admin/sockets.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

static rps_status
bind_failure(const struct sockaddr_storage *address, socklen_t length, int code,
        struct rps_error *error)
{
    char text[RPS_ADDRESS_TEXT_BYTES];

    rps_address_text((const struct sockaddr *)address, length, text);
    return rps_fail(error, code == EADDRINUSE ? RPS_E_RETRY_LATER : RPS_E_INVAL,
            "cannot listen on %s: %s", text, strerror(code));
}

/* Binds one socket; *fd_out is -1 where an optional family is missing. */
static rps_status
open_one(const struct rps_listen_address *where, uint16_t port, int *fd_out,
        struct rps_error *error)
{
    struct sockaddr_storage storage = where->storage;
    int one = 1;
    int code;
    int fd;

    *fd_out = -1;
    rps_address_set_port(&storage, port);
    fd = socket(
            storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        code = errno;
        return where->optional
                       ? RPS_OK
                       : bind_failure(&storage, where->length, code, error);
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (storage.ss_family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one));
    }
    if (bind(fd, (const struct sockaddr *)&storage, where->length) == 0) {
        *fd_out = fd;
        return RPS_OK;
    }
    code = errno;
    close(fd);
    if (where->optional && (code == EADDRNOTAVAIL || code == EAFNOSUPPORT)) {
        return RPS_OK;
    }
    return bind_failure(&storage, where->length, code, error);
}

void
rps_sockets_close(struct rps_sockets *sockets)
{
    for (uint32_t i = 0; i < sockets->count; i++) {
        close(sockets->fds[i]);
    }
    sockets->count = 0;
}

/* The first socket settles the port, the others follow it. */
rps_status
rps_sockets_bind(struct rps_sockets *sockets,
        const struct rps_listen_plan *plan, struct rps_error *error)
{
    sockets->port = plan->port;
    for (uint32_t i = 0; i < plan->count; i++) {
        struct sockaddr_storage bound;
        socklen_t length = sizeof(bound);
        int fd = -1;
        rps_status status =
                open_one(&plan->addresses[i], sockets->port, &fd, error);

        if (status != RPS_OK) {
            rps_sockets_close(sockets);
            return status;
        }
        if (fd < 0) {
            continue;
        }
        sockets->fds[sockets->count++] = fd;
        if (sockets->count == 1 &&
                getsockname(fd, (struct sockaddr *)&bound, &length) == 0) {
            sockets->port = rps_address_port(&bound);
            rps_address_text((struct sockaddr *)&bound, length, sockets->text);
        }
    }
    if (sockets->count == 0) {
        return rps_fail(error, RPS_E_INVAL, "no address to listen on");
    }
    return RPS_OK;
}

rps_status
rps_sockets_listen(
        const struct rps_sockets *sockets, int backlog, struct rps_error *error)
{
    for (uint32_t i = 0; i < sockets->count; i++) {
        if (listen(sockets->fds[i], backlog) != 0) {
            return rps_fail(error,
                    errno == EADDRINUSE ? RPS_E_RETRY_LATER : RPS_E_INVAL,
                    "cannot listen on %s: %s", sockets->text, strerror(errno));
        }
    }
    return RPS_OK;
}

rps_status
rps_sockets_open(struct rps_sockets *sockets,
        const struct rps_listen_plan *plan, int backlog,
        struct rps_error *error)
{
    rps_status status = RPS_E_RETRY_LATER;
    int tries = plan->port == 0 ? RPS_ANY_PORT_TRIES : 1;

    while (status == RPS_E_RETRY_LATER && tries-- > 0) {
        status = rps_sockets_bind(sockets, plan, error);
        if (status == RPS_OK) {
            status = rps_sockets_listen(sockets, backlog, error);
        }
        if (status != RPS_OK) {
            rps_sockets_close(sockets);
        }
    }
    return status;
}
