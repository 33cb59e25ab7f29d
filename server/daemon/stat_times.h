/* SPDX-License-Identifier: Apache-2.0 */
/* The loops' counts of bytes and times, for STAT: `recps top` reads them. */
#ifndef RPS_SERVER_DAEMON_STAT_TIMES_H
#define RPS_SERVER_DAEMON_STAT_TIMES_H

#include "server/daemon/view.h"

#include <jansson.h>

/** Add received_bytes, sent_bytes and times to a STAT. Threads: any. */
void rps_stat_times_add(const struct rps_view *view, json_t *stat);

#endif /* RPS_SERVER_DAEMON_STAT_TIMES_H */
