/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/route.h"

#include <assert.h>

void
rps_route_init(struct rps_route *route, uint32_t ps_count)
{
    assert(ps_count >= 1 && ps_count <= RPS_PS_COUNT_MAX);
    route->version = 1;
    route->ps_count = ps_count;
    for (uint32_t slot = 0; slot < RPS_SLOT_COUNT; slot++) {
        route->owner[slot] = (uint16_t)(slot * ps_count / RPS_SLOT_COUNT);
    }
}
