/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a service says to systemd (sd_notify(3)): one datagram to the socket
 * that $NOTIFY_SOCKET names. The protocol is documented for use without
 * systemd's library. Without the variable everything here does nothing.
 */
#ifndef RPS_SERVER_DAEMON_NOTIFY_H
#define RPS_SERVER_DAEMON_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

/**
 * Send assignments, one a line: "READY=1\nSTATUS=serving". False: nobody
 * listens, or it could not be sent.
 *
 * Threads: any.
 */
bool rps_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** What systemd waits for WATCHDOG=1 at most, in microseconds; 0: it does not
 * ask this process. */
uint64_t rps_notify_watchdog_us(void);

#endif /* RPS_SERVER_DAEMON_NOTIFY_H */
