/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table's keys of a batch that is looked up ahead, in two: those whose rows
 * no unfinished step can change are fetched early, the late ones with the
 * batch's own step, from what all steps before have left. All occurrences of
 * a key are on one side, so that each lookup has its whole multiplicity.
 *
 * This is what REFRESH(keys, c) is for, with less on the way between two
 * steps: REFRESH sends every key again and has the server look at each row;
 * this sends the late keys alone, in the frame of the dense variables.
 */
#ifndef RPS_WORKER_LATE_H
#define RPS_WORKER_LATE_H

#include "client/worker/bags.h"
#include "client/worker/recent.h"

struct rps_late {
    size_t count;         /* late positions of the bags' keys */
    size_t capacity;      /* of them; of early_keys, too */
    uint32_t *positions;  /* [count], ascending */
    uint64_t *keys;       /* [count] */
    uint64_t *early_keys; /* the bags' keys, `padding` in late places */
    uint64_t padding;     /* none of the bags' keys */
};

/** A zeroed one is fine. */
void rps_late_finish(struct rps_late *late);

/** A key that the bags have not: `padding`, or another one. */
uint64_t rps_late_padding(const struct rps_bags *bags, uint64_t padding);

/**
 * Split the bags' keys, which are those of step `step`: late is what a step
 * of [since, step) may have had. NOMEM.
 */
rps_status rps_late_split(struct rps_late *late, const struct rps_bags *bags,
        const struct rps_recent *recent, uint64_t since, uint64_t step,
        struct rps_error *error);

/** The late rows are in the bags' work memory: to their places. */
void rps_late_place(const struct rps_late *late, struct rps_bags *bags);

#endif /* RPS_WORKER_LATE_H */
