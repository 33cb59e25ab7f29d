/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_CLIENT_CLUSTER_COPY_H
#define RPS_CLIENT_CLUSTER_COPY_H

#include <recps/cluster.h>

#include <stdbool.h>

/**
 * A deep copy, to be released by rps_cluster_finish(), also after a failure
 * (no memory), which answers false.
 */
bool rps_cluster_copy(rps_cluster *copy, const rps_cluster *from);

#endif /* RPS_CLIENT_CLUSTER_COPY_H */
