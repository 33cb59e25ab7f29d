/* SPDX-License-Identifier: Apache-2.0 */
/* --ring-order: what `recps ranktable plan --json` printed. */
#ifndef RPS_WORKER_RING_ORDER_H
#define RPS_WORKER_RING_ORDER_H

#include "base/error.h"

#include <stdint.h>

/**
 * order[place] is a rank: {"order": [{"rank": place, "was": rank}, …]}, as
 * the tool prints it. `count` ranks are expected.
 *
 * Owns:   *order_out is the caller's; free().
 * Errors: NOT_FOUND, IO (the file), INVAL (no such object, another number of
 *         ranks, a rank twice), NOMEM; with words that name the file.
 */
rps_status rps_ring_order_read(const char *path, uint32_t count,
        uint32_t **order_out, struct rps_error *error);

#endif /* RPS_WORKER_RING_ORDER_H */
