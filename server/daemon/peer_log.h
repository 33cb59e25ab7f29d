/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every log line that a peer can cause goes through here: of one event the
 * first ten within ten seconds are written, the others are counted, and the
 * count is written at the end of the ten seconds. So a peer cannot fill a
 * disk, and no line is lost without a trace.
 */
#ifndef RPS_SERVER_DAEMON_PEER_LOG_H
#define RPS_SERVER_DAEMON_PEER_LOG_H

#include "base/log.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RPS_PEER_LOG_LINES     10u
#define RPS_PEER_LOG_WINDOW_MS 10000u
#define RPS_PEER_LOG_EVENTS    32u /* kinds; more of them share the last */

/** Lines of one event since its window began. */
struct rps_peer_window {
    char event[40]; /* empty: unused */
    enum rps_log_level level;
    bool open;
    uint64_t begun_ms;
    uint64_t count;
};

struct rps_peer_limit {
    struct rps_peer_window windows[RPS_PEER_LOG_EVENTS];
};

/** What a window that ended has left out. */
struct rps_peer_rest {
    char event[40];
    enum rps_log_level level;
    uint64_t count;
    uint64_t ms;
};

/** Count a line; true: write it. Its window must not be over. */
bool rps_peer_limit_take(struct rps_peer_limit *limit, enum rps_log_level level,
        const char *event, uint64_t now_ms);

/**
 * Close one window that is over, or any if `all`; call until false. Only a
 * window that has left something out is told; the others close silently.
 */
bool rps_peer_limit_end(struct rps_peer_limit *limit, uint64_t now_ms, bool all,
        struct rps_peer_rest *rest_out);

/** rps_log within the limit. Threads: any. */
void rps_peer_log(enum rps_log_level level, const char *event,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/** Write the counts that are due; of all windows if `all`. Threads: any. */
void rps_peer_log_rest(bool all);

/** The same with the field peer, which its words begin with. */
void rps_peer_log_of(const char *peer, enum rps_log_level level,
        const char *event, const char *format, ...)
        __attribute__((format(printf, 4, 5)));

#endif /* RPS_SERVER_DAEMON_PEER_LOG_H */
