/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recpsd asks of its peers, and whether it may listen where it is told
 * to: docs/SECURITY.md.
 */
#ifndef RPS_SERVER_DAEMON_ACCESS_H
#define RPS_SERVER_DAEMON_ACCESS_H

#include "admin/address.h"
#include "base/secret.h"
#include "base/tls.h"
#include "conf/options.h"
#include "server/service.h"

#include <pthread.h>

struct rps_access {
    const struct rps_options *options; /* set before start */
    struct rps_secret token;           /* main thread; length 0: none */
    bool wants_certificates;           /* set before start */
    pthread_mutex_t lock;
    struct rps_tls_context *tls; /* lock; NULL: plain */
};

/**
 * Read the files that the options name, and check them against where the
 * server will listen. RPS_EXIT_OK, or an exit code (daemon.h) after the log
 * said what is wrong and what to do. Finish it in either case.
 */
int rps_access_init(struct rps_access *access,
        const struct rps_options *options, const struct rps_listen_plan *plan);

/**
 * Read the files again, for connections from now on; who is connected stays.
 * false: the log said why not, and all is as before. Threads: main.
 */
bool rps_access_reload(struct rps_access *access, struct rps_service *service);

/**
 * TLS for an accepted socket: *tls_out is NULL where the server is plain.
 * false: no memory. Threads: any.
 */
bool rps_access_open_tls(
        struct rps_access *access, int fd, struct rps_tls **tls_out);

/** What is asked, for the log: "none", "token", "tls", "mtls", "token+mtls". */
const char *rps_access_str(const struct rps_access *access);

/** No connection may be open. */
void rps_access_finish(struct rps_access *access);

#endif /* RPS_SERVER_DAEMON_ACCESS_H */
