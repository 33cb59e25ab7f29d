/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What recpsd asks of its peers, and whether it may listen where it is told
 * to: docs/SECURITY.md.
 */
#ifndef RPS_SERVER_DAEMON_ACCESS_H
#define RPS_SERVER_DAEMON_ACCESS_H

#include "base/secret.h"
#include "conf/options.h"
#include "server/daemon/address.h"

/** Zeroed: nothing is asked of anybody. */
struct rps_access {
    struct rps_secret token; /* length 0: none */
};

/**
 * Read the files that the options name, and check them against where the
 * server will listen. RPS_EXIT_OK, or an exit code (daemon.h) after the log
 * said what is wrong and what to do.
 */
int rps_access_init(struct rps_access *access,
        const struct rps_options *options, const struct rps_listen_plan *plan);

/** What is asked, in a word for the log: "none", "token". */
const char *rps_access_str(const struct rps_access *access);

/** Wipes the token; a zeroed one is fine. */
void rps_access_finish(struct rps_access *access);

#endif /* RPS_SERVER_DAEMON_ACCESS_H */
