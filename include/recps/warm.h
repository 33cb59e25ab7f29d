/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Beginning a job with a part of a checkpoint, or with another job's
 * (docs/CHECKPOINT.md, Warm start).
 */
#ifndef RPS_WARM_H
#define RPS_WARM_H

#include <recps/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One table that a job takes of a checkpoint. */
typedef struct rps_warm_table {
    const char *name; /**< that it gets; not looked at with a spec */
    const char *from; /**< its name there; NULL: the same */
    /** As what: dim and dense_elements must be the checkpoint's; where the
     * optimizer is not, slots are fresh. NULL: as it is there. */
    const rps_table_spec *spec;
    int optional; /**< not 0: where it is not there, it is left out */
} rps_warm_table;

/** What a job takes of which checkpoint: zeroed, then field by field. */
typedef struct rps_warm_start {
    const char *dir;   /**< another job's checkpoint_dir, as the servers see it;
                            NULL: ckpt-<step> of this one's */
    uint64_t dir_step; /**< which of dir's; 0: the newest complete one */
    const rps_warm_table *tables; /**< [table_count]; NULL: all, as they are */
    size_t table_count;
    int weights_only; /**< not 0: fresh slots */
} rps_warm_start;

/**
 * Chief only: rps_job_begin() of some tables of a checkpoint, into other
 * tables, or from another job's folder (docs/CHECKPOINT.md, Warm start). With
 * `dir` step is 0: the job begins at 0 with those rows. *outcome_out is JSON,
 * to be free()d:
 * {"step": of the checkpoint, "fresh_slots": [names], "absent": [names]}.
 *
 * Owns:    borrows *warm for the call; fills *start_out and *outcome_out.
 * Threads: the client's.
 * Errors:  RPS_E_INVAL (a server may not read the folder: --warm-start-dirs),
 *          RPS_E_NOT_FOUND (no checkpoint, no such table), RPS_E_MISMATCH (a
 *          table's shape; servers found different steps); as rps_job_begin.
 */
RPS_API RPS_NODISCARD rps_status rps_job_begin_from(rps_client *client,
        uint64_t step, const rps_warm_start *warm, const rps_terms *terms,
        rps_start *start_out, char **outcome_out);

#ifdef __cplusplus
}
#endif

#endif /* RPS_WARM_H */
