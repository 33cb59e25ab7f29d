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

/** From here on TERM and INT end the process at once with 128 + signal. */
void rps_signals_last_resort(void);

#endif /* RPS_SERVER_DAEMON_SIGNALS_H */
