/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of a batch without their duplicates, routed. Distinct keys keep the
 * order of their first occurrence, also inside each PS's run, so that the
 * order of sums does not depend on the number of servers.
 */
#ifndef RPS_CLIENT_DEDUP_H
#define RPS_CLIENT_DEDUP_H

#include "base/error.h"
#include "proto/route.h"

#include <stddef.h>
#include <stdint.h>

#define RPS_DEDUP_PADDING  UINT32_MAX
#define RPS_DEDUP_KEYS_MAX (1u << 30) /* of one table in one call */

struct rps_dedup {
    size_t key_count; /* occurrences, padding included */
    uint32_t count;   /* distinct keys, padding left out */
    uint64_t *keys;   /* [count] */
    uint32_t *counts; /* [count]: occurrences */
    uint32_t *first;  /* [count]: position of the first occurrence */
    uint32_t *index;  /* [key_count]: into keys; RPS_DEDUP_PADDING */
    uint32_t *order;  /* [count]: indexes grouped by PS */
    uint32_t *starts; /* [ps_count + 1]: a PS's run in order */
};

/** padding: key to leave out, or NULL. LIMIT, NOMEM. */
rps_status rps_dedup_init(struct rps_dedup *dedup, const uint64_t *keys,
        size_t key_count, const uint64_t *padding,
        const struct rps_route *route, uint64_t job_seed);

/** A zeroed one is fine. */
void rps_dedup_finish(struct rps_dedup *dedup);

static inline uint32_t
rps_dedup_run(const struct rps_dedup *dedup, uint32_t ps)
{
    return dedup->starts[ps + 1] - dedup->starts[ps];
}

#endif /* RPS_CLIENT_DEDUP_H */
