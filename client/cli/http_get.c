/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.0: the answer ends with the connection, and comes in one piece. That
 * is all that a page of ours needs.
 */
#include "client/cli/http_get.h"

#include "base/clock.h"
#include "base/text.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST_BYTES 256u

/* --- addresses ----------------------------------------------------------- */

/* "host:port", "[v6]:port" */
static rps_status
split(const char *address, char host[HOST_BYTES], const char **port_out,
        struct rps_error *error)
{
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : 0;
    uint64_t port = 0;

    if (length > 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    if (length == 0 || length >= HOST_BYTES ||
            !rps_parse_u64(colon + 1, &port) || port == 0 || port > 65535) {
        return rps_fail(
                error, RPS_E_INVAL, "\"%s\": must be host:port", address);
    }
    memcpy(host, address, length);
    host[length] = '\0';
    *port_out = colon + 1;
    return RPS_OK;
}

static int
left_of(uint64_t give_up)
{
    const uint64_t now = rps_clock_ms();

    return now < give_up ? (int)(give_up - now) : 0;
}

/* Ready for `events`, or no more time. */
static rps_status
wait_for(int fd, short events, uint64_t give_up, struct rps_error *error)
{
    struct pollfd one = {.fd = fd, .events = events};
    int rc;

    do {
        rc = poll(&one, 1, left_of(give_up));
    } while (rc < 0 && errno == EINTR && left_of(give_up) > 0);
    return rc > 0 ? RPS_OK
                  : rps_fail(error, RPS_E_TIMEOUT, "no answer in time");
}

static rps_status
dial(const struct addrinfo *where, uint64_t give_up, int *fd_out,
        struct rps_error *error)
{
    int code = 0;
    socklen_t length = sizeof(code);
    const int fd = socket(where->ai_family,
            SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, where->ai_protocol);
    rps_status status = RPS_OK;

    *fd_out = -1;
    if (fd < 0) {
        return rps_fail(error, RPS_E_UNREACHABLE, "%s", strerror(errno));
    }
    if (connect(fd, where->ai_addr, where->ai_addrlen) != 0) {
        code = errno;
        if (code == EINPROGRESS) {
            status = wait_for(fd, POLLOUT, give_up, error);
            if (status == RPS_OK &&
                    getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length) != 0) {
                code = errno;
            }
        }
    }
    if (status == RPS_OK && code != 0) {
        status = rps_fail(error, RPS_E_UNREACHABLE, "%s", strerror(code));
    }
    if (status != RPS_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    return RPS_OK;
}

static rps_status
reach(const char *address, uint64_t give_up, int *fd_out,
        struct rps_error *error)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    char host[HOST_BYTES];
    const char *port = "";
    rps_status status = split(address, host, &port, error);
    int rc;

    *fd_out = -1;
    if (status != RPS_OK) {
        return status;
    }
    rc = getaddrinfo(host, port, &hints, &list);
    if (rc != 0) {
        return rps_fail(error, RPS_E_UNREACHABLE, "%s", gai_strerror(rc));
    }
    status = RPS_E_UNREACHABLE;
    for (const struct addrinfo *each = list; each != NULL && status != RPS_OK;
            each = each->ai_next) {
        status = dial(each, give_up, fd_out, error);
    }
    freeaddrinfo(list);
    return status;
}

/* --- the request --------------------------------------------------------- */

static rps_status
send_all(int fd, const char *bytes, size_t n, uint64_t give_up,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    while (status == RPS_OK && n > 0) {
        const ssize_t sent = send(fd, bytes, n, MSG_NOSIGNAL);

        if (sent > 0) {
            bytes += sent;
            n -= (size_t)sent;
        } else if (errno == EAGAIN) {
            status = wait_for(fd, POLLOUT, give_up, error);
        } else if (errno != EINTR) {
            status = rps_fail(error, RPS_E_UNREACHABLE, "%s", strerror(errno));
        }
    }
    return status;
}

static rps_status
receive_all(int fd, uint64_t give_up, struct rps_text *answer,
        struct rps_error *error)
{
    char block[16384];
    rps_status status = RPS_OK;

    for (;;) {
        const ssize_t n = recv(fd, block, sizeof(block), 0);

        if (n == 0) {
            break;
        }
        if (n > 0) {
            if (answer->length + (size_t)n > RPS_HTTP_GET_BYTES_MAX) {
                return rps_fail(error, RPS_E_LIMIT,
                        "its answer has more than %u bytes",
                        RPS_HTTP_GET_BYTES_MAX);
            }
            rps_text_add_bytes(answer, block, (size_t)n);
        } else if (errno == EAGAIN) {
            status = wait_for(fd, POLLIN, give_up, error);
            if (status != RPS_OK) {
                return status;
            }
        } else if (errno != EINTR) {
            return rps_fail(error, RPS_E_UNREACHABLE, "%s", strerror(errno));
        }
    }
    return answer->failed ? rps_fail(error, RPS_E_NOMEM, "no memory") : RPS_OK;
}

/* "HTTP/1.1 200 OK", a head, an empty line, the body. */
static rps_status
body_of(const struct rps_text *answer, char **body_out, struct rps_error *error)
{
    const char *text = answer->bytes != NULL ? answer->bytes : "";
    const char *body = strstr(text, "\r\n\r\n");

    if (strncmp(text, "HTTP/1.", 7) != 0 || strlen(text) < 12 ||
            text[8] != ' ' || body == NULL) {
        return rps_fail(error, RPS_E_CORRUPT, "its answer is no HTTP");
    }
    if (strncmp(text + 9, "200", 3) != 0) {
        return rps_fail(error, RPS_E_CORRUPT, "it answers \"%.3s\"", text + 9);
    }
    *body_out = strdup(body + 4);
    return *body_out != NULL ? RPS_OK
                             : rps_fail(error, RPS_E_NOMEM, "no memory");
}

rps_status
rps_http_get(const char *address, const char *path, uint32_t wait_ms,
        char **body_out, struct rps_error *error)
{
    const uint64_t give_up = rps_clock_ms() + wait_ms;
    struct rps_text request = {.bytes = NULL};
    struct rps_text answer = {.bytes = NULL};
    int fd;
    rps_status status = reach(address, give_up, &fd, error);

    *body_out = NULL;
    if (status != RPS_OK) {
        return status;
    }
    rps_text_add(
            &request, "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, address);
    status = request.failed ? rps_fail(error, RPS_E_NOMEM, "no memory")
                            : send_all(fd, request.bytes, request.length,
                                      give_up, error);
    if (status == RPS_OK) {
        status = receive_all(fd, give_up, &answer, error);
    }
    if (status == RPS_OK) {
        status = body_of(&answer, body_out, error);
    }
    close(fd);
    rps_text_finish(&request);
    rps_text_finish(&answer);
    return status;
}
