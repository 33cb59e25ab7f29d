/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The terminal of recps top: an alternate screen without a cursor, keys that
 * come at once. Whatever ends the process but SIGKILL leaves the terminal as
 * it was; ^Z does, too, and what goes on then takes it again.
 */
#ifndef RPS_CLIENT_CLI_TOP_TERMINAL_H
#define RPS_CLIENT_CLI_TOP_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>

/** Is stdout a terminal that can be drawn on? */
bool rps_terminal_is_there(void);

/** Take it. Once; false: errno says why not. */
bool rps_terminal_begin(void);

/** Give it back; more than once is fine. */
void rps_terminal_end(void);

struct rps_terminal_size {
    uint32_t columns;
    uint32_t lines;
};

struct rps_terminal_size rps_terminal_size(void);

/**
 * Wait for a key, at most so long. Its character; 0: none came, or the size
 * has changed, or the process went on after ^Z; -1: no more can come.
 */
int rps_terminal_key(uint32_t wait_ms);

#endif /* RPS_CLIENT_CLI_TOP_TERMINAL_H */
