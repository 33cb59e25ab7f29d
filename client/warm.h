/* SPDX-License-Identifier: Apache-2.0 */
/* rps_warm_start (recps/warm.h) as fields of a RESTORE. */
#ifndef RPS_CLIENT_WARM_H
#define RPS_CLIENT_WARM_H

#include <recps/warm.h>

#include <jansson.h>
#include <stdbool.h>

/** INVAL: what the servers could not tell from a request without it. */
rps_status rps_warm_check(uint64_t step, const rps_warm_start *warm);

/** Adds its fields; false: no memory. */
bool rps_warm_add(json_t *object, const rps_warm_start *warm);

#endif /* RPS_CLIENT_WARM_H */
