/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reaching the servers of a cluster that may not be there yet.
 */
#ifndef RPS_CLIENT_CONNECT_H
#define RPS_CLIENT_CONNECT_H

#include "client/handle.h"

/**
 * Fill client->channels[channel_count] with greeted connections. Waits for
 * servers up to connect_timeout_ms; says why every 10 s. Words are set.
 */
rps_status rps_connect_all(rps_client *client);

/** The same in process. */
rps_status rps_connect_local(rps_client *client);

#endif /* RPS_CLIENT_CONNECT_H */
