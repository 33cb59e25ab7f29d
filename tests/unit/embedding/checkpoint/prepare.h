/* SPDX-License-Identifier: Apache-2.0 */
/* PREPARE of a store at rest: the cut is its state. */
#ifndef RPS_TESTS_UNIT_CHECKPOINT_PREPARE_H
#define RPS_TESTS_UNIT_CHECKPOINT_PREPARE_H

#include "embedding/checkpoint/checkpoint.h"

static inline rps_status
prepare_store(const struct rps_checkpoint_id *id, struct rps_store *store,
        const struct rps_lane_record *lanes, size_t lane_count,
        json_t **part_out, struct rps_error *error)
{
    struct rps_cut *cut = NULL;
    rps_status status =
            rps_cut_take(store, (struct rps_now){0}, 0, &cut, error);

    *part_out = NULL;
    if (status == RPS_OK) {
        status = rps_checkpoint_prepare(
                id, false, cut, lanes, lane_count, part_out, error);
        rps_cut_abort(cut);
    }
    return status;
}

#endif /* RPS_TESTS_UNIT_CHECKPOINT_PREPARE_H */
