/* SPDX-License-Identifier: Apache-2.0 */
/*
 * slot -> PS. At the start slot s belongs to PS floor(s n / 4096); a live
 * change moves slots one by one and raises the version.
 */
#ifndef RPS_PROTO_ROUTE_H
#define RPS_PROTO_ROUTE_H

#include "base/hash.h"

#include <stdint.h>

struct rps_route {
    uint32_t version;
    uint32_t ps_count;
    uint16_t owner[RPS_SLOT_COUNT];
};

#define RPS_PS_COUNT_MAX 4096u

/** The starting route of n parameter servers, version 1; 1 <= n <= 4096. */
void rps_route_init(struct rps_route *route, uint32_t ps_count);

static inline uint32_t
rps_route_owner(const struct rps_route *route, uint64_t hash)
{
    return route->owner[rps_hash_slot(hash)];
}

#endif /* RPS_PROTO_ROUTE_H */
