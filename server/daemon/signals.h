/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TERM, INT, HUP, QUIT and USR1 are blocked in every thread and read from a
 * descriptor in the main loop; nothing runs in a handler but the last resort.
 */
#ifndef RPS_SERVER_DAEMON_SIGNALS_H
#define RPS_SERVER_DAEMON_SIGNALS_H

#include "base/error.h"

#include <stdint.h>

/** Block them all, ignore PIPE. Before any thread starts. */
rps_status rps_signals_init(int *fd_out, struct rps_error *error);

/** The next signal of the descriptor; 0: none. */
int rps_signals_read(int fd);

/** Sleep; a TERM or INT that comes meanwhile ends it and is returned, else 0.
 */
int rps_signals_sleep(uint32_t ms);

/** A process group gets a terminal's signal, and its parent hands it on:
 * closer than this, two are one. */
#define RPS_SAME_SIGNAL_MS 250u

/**
 * From here on a TERM or INT that is not the first one ends the process at
 * once with 128 + signal. first_ms: clock of the first one, 0: none came yet.
 */
void rps_signals_last_resort(uint64_t first_ms);

#endif /* RPS_SERVER_DAEMON_SIGNALS_H */
