/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint read into a store: what a RESTORE and a start have in common. */
#ifndef RPS_SERVER_LOAD_H
#define RPS_SERVER_LOAD_H

#include "server/warm.h"

/**
 * ckpt-<step> of the own checkpoint_dir, or what `warm` (may be NULL) says,
 * into an empty store that nobody else has. Errors: NOT_FOUND (no
 * checkpoint_dir, too), INVAL, as rps_checkpoint_restore; the store is empty
 * then. Threads: the writer's, or before the first session.
 */
rps_status rps_load(struct rps_service *service, uint64_t step,
        struct rps_warm *warm, struct rps_store *store, json_t **manifest_out,
        struct rps_lane_record **lanes_out, size_t *lane_count_out,
        struct rps_error *error);

/** What STAT and metrics show of it. */
void rps_load_progress(
        struct rps_service *service, uint64_t rows, uint64_t rows_total);

#endif /* RPS_SERVER_LOAD_H */
