/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a PS writes at its stop when no chief had it saved: its part alone.
 *
 *   DIR/orphan-<step, 12 digits>/<i>-of-<n>/    as in ckpt-<step>:
 *     part-<i>-of-<n>.json  lanes-…  table-<name>/…
 *     orphan.json           who wrote it, and the checksum of the part file
 *
 * It is no checkpoint: nothing lists, restores or prunes it. `recps restore
 * --orphans` makes one of the parts of all PS.
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_ORPHAN_H
#define RPS_EMBEDDING_CHECKPOINT_ORPHAN_H

#include "embedding/checkpoint/checkpoint.h"

#define RPS_ORPHAN_PREFIX "orphan-"
#define RPS_ORPHAN_FILE   "orphan.json"

/** Of the server that writes it. Parts belong together where these are equal,
 * the step too in sync. */
struct rps_orphan_about {
    const char *job_id;
    uint64_t job_seed;
    const char *mode;  /* "sync", "async", "bounded:2" */
    uint64_t begun_by; /* the client whose RESTORE began the epoch; 0: none */
};

/**
 * Write this PS's part of the cut; what it wrote at an earlier stop at this
 * step is replaced. *path_out (free()) is where. The cut stays the caller's.
 * Errors: as rps_checkpoint_prepare; nothing is left behind.
 */
rps_status rps_orphan_write(const struct rps_checkpoint_id *id,
        const struct rps_orphan_about *about, struct rps_cut *cut,
        const struct rps_lane_record *lanes, size_t lane_count, char **path_out,
        struct rps_error *error);

/** Remove what an attempt that was ended left behind: of this PS, and no part
 * that is whole. */
void rps_orphan_tidy(const struct rps_checkpoint_id *id);

#endif /* RPS_EMBEDDING_CHECKPOINT_ORPHAN_H */
