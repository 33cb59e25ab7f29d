/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns a look-up until both the caller and the thread have let go of it.
 */
#include "client/resolve.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define STACK_BYTES (1u << 20) /* libc's modules keep buffers on it */

struct rps_resolve {
    atomic_uint users; /* the caller, the thread */
    atomic_bool done;  /* what follows is written before it */
    struct addrinfo *addresses;
    int code;        /* of getaddrinfo() */
    int system_code; /* errno, where code is EAI_SYSTEM */
    int done_fd;     /* eventfd; -1: no thread was needed */
    char *port;      /* into host's bytes */
    char host[];
};

static void
look_up(struct rps_resolve *resolve, int flags)
{
    const struct addrinfo hints = {
            .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};

    resolve->code = getaddrinfo(
            resolve->host, resolve->port, &hints, &resolve->addresses);
    resolve->system_code = errno;
    if (resolve->code != 0) {
        resolve->addresses = NULL;
    }
}

static void
let_go(struct rps_resolve *resolve)
{
    if (atomic_fetch_sub(&resolve->users, 1) != 1) {
        return;
    }
    if (resolve->addresses != NULL) {
        freeaddrinfo(resolve->addresses);
    }
    if (resolve->done_fd >= 0) {
        (void)close(resolve->done_fd);
    }
    free(resolve);
}

static void *
run(void *context)
{
    struct rps_resolve *resolve = context;
    uint64_t one = 1;
    ssize_t n;

    look_up(resolve, 0);
    atomic_store(&resolve->done, true);
    n = write(resolve->done_fd, &one, sizeof(one));
    (void)n; /* a counter of 0 has room for 1 */
    let_go(resolve);
    return NULL;
}

/* The program's signals are for its own threads. */
static bool
start_thread(struct rps_resolve *resolve)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    bool good;

    resolve->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolve->done_fd < 0 || pthread_attr_init(&attributes) != 0) {
        return false;
    }
    (void)sigfillset(&all);
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    atomic_store(&resolve->users, 2);
    good = pthread_create(&thread, &attributes, run, resolve) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (!good) {
        atomic_store(&resolve->users, 1);
    }
    return good;
}

static void
begin(struct rps_resolve *resolve)
{
    look_up(resolve, AI_NUMERICHOST);
    if (resolve->code == EAI_NONAME) {
        if (start_thread(resolve)) {
            return;
        }
        look_up(resolve, 0); /* no thread: then it may block */
    }
    if (resolve->done_fd >= 0) {
        (void)close(resolve->done_fd);
        resolve->done_fd = -1;
    }
    atomic_store(&resolve->done, true);
}

rps_status
rps_resolve_begin(struct rps_resolve **resolve_out, const char *address,
        struct rps_error *error)
{
    const char *colon = strrchr(address, ':');
    const char *host = address;
    struct rps_resolve *resolve;
    size_t length;

    *resolve_out = NULL;
    if (colon == NULL) {
        return rps_fail(error, RPS_E_INVAL, "no port in its address");
    }
    length = (size_t)(colon - host);
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    resolve = calloc(1, sizeof(*resolve) + length + 1 + strlen(colon));
    if (resolve == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "out of memory");
    }
    memcpy(resolve->host, host, length);
    resolve->port = resolve->host + length + 1;
    strcpy(resolve->port, colon + 1); /* calloc: strlen(colon) has its end */
    resolve->done_fd = -1;
    atomic_init(&resolve->users, 1);
    atomic_init(&resolve->done, false);
    begin(resolve);
    *resolve_out = resolve;
    return RPS_OK;
}

int
rps_resolve_fd(const struct rps_resolve *resolve)
{
    return resolve->done_fd;
}

bool
rps_resolve_take(struct rps_resolve *resolve, struct addrinfo **addresses_out,
        struct rps_error *error)
{
    *addresses_out = NULL;
    if (!atomic_load(&resolve->done)) {
        return false;
    }
    *addresses_out = resolve->addresses;
    resolve->addresses = NULL;
    if (*addresses_out == NULL) {
        (void)rps_fail(error, RPS_E_UNREACHABLE, "cannot resolve %.255s: %s",
                resolve->host,
                resolve->code == EAI_SYSTEM ? strerror(resolve->system_code)
                                            : gai_strerror(resolve->code));
    }
    return true;
}

void
rps_resolve_drop(struct rps_resolve *resolve)
{
    if (resolve != NULL) {
        let_go(resolve);
    }
}
