/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recpsd from its options to its exit code: service, loops, listener, and
 * the end of them in the other order.
 */
#ifndef RPS_SERVER_DAEMON_DAEMON_H
#define RPS_SERVER_DAEMON_DAEMON_H

#include "conf/options.h"

/** Exit codes (docs/OPERATIONS.md). */
enum rps_exit {
    RPS_EXIT_OK = 0,
    RPS_EXIT_USAGE = 64,
    RPS_EXIT_CORRUPT = 65, /* checkpoints, and none of them is usable */
    RPS_EXIT_INTERNAL = 70,
    RPS_EXIT_CHECKPOINT_DIR = 74,
    RPS_EXIT_OPEN = 77, /* would listen to strangers; no token or key */
    RPS_EXIT_CONFIG = 78,
    RPS_EXIT_AGAIN = 138, /* transient: start me again */
    RPS_EXIT_SIGNAL = 128 /* + the signal's number */
};

#define RPS_LOOPS_MAX      64u
#define RPS_LOOPS_AUTO_MAX 8u /* of --loops 0 */

/** Read the options anew, as rps_options_read() does; finish them. */
typedef int rps_reread_fn(struct rps_options *fresh);

/** --check-config: print how the options are understood, and whether a server
 * could begin with them; an exit code. Nothing is bound. */
int rps_daemon_check(const struct rps_options *options);

/** Serve until told to stop. */
int rps_daemon_run(const struct rps_options *options, rps_reread_fn *reread);

#endif /* RPS_SERVER_DAEMON_DAEMON_H */
