/* SPDX-License-Identifier: Apache-2.0 */
/* Of a turn and a table: which rows the device has already (device_rows.h). */
#ifndef RPS_WORKER_HELD_H
#define RPS_WORKER_HELD_H

#include "client/worker/row_cache.h"

struct rps_held {
    size_t capacity;              /* tokens */
    struct rps_row_place *places; /* [tokens] */
    uint64_t *keys;   /* the bags', `padding` where nothing is fetched */
    uint64_t padding; /* none of the bags' keys */
    bool padded;      /* one at least */
};

/** A zeroed one is fine. */
void rps_held_finish(struct rps_held *held);

/** Room for so many tokens; what was there is lost. False: no memory. */
bool rps_held_reserve(struct rps_held *held, size_t tokens);

#endif /* RPS_WORKER_HELD_H */
