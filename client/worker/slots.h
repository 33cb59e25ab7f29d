/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens of a table's batch by the row that each has: a device gets every
 * distinct row once, and pools by slot. Slots count from 0 in the order in
 * which their keys come first.
 */
#ifndef RPS_WORKER_SLOTS_H
#define RPS_WORKER_SLOTS_H

#include "client/worker/bags.h"

struct rps_slots {
    size_t count;    /* distinct keys */
    int32_t *slots;  /* [tokens]: of each token's row */
    uint32_t *first; /* [count]: the first token of each slot */
    size_t capacity; /* tokens */
    uint32_t *index; /* [mask + 1]: slot + 1, 0: free */
    size_t mask;
};

/** A zeroed one is fine. */
void rps_slots_finish(struct rps_slots *slots);

/** Of the bags' keys. NOMEM; LIMIT: more tokens than a slot can count. */
rps_status rps_slots_take(struct rps_slots *slots, const struct rps_bags *bags,
        struct rps_error *error);

/** The bags' fetched rows, each once: rows [count][dim]. */
void rps_slots_gather(const struct rps_slots *slots,
        const struct rps_bags *bags, float *rows);

#endif /* RPS_WORKER_SLOTS_H */
