/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saving beside training: a checkpoint is begun, and written while steps go on.
 */
#ifndef RPS_SAVE_H
#define RPS_SAVE_H

#include <recps/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What is to be saved, and how. */
typedef struct rps_save_plan {
    uint64_t step;             /**< of the checkpoint's name: ckpt-<step> */
    const char *data_position; /**< a JSON text, or NULL */
    uint32_t keep;             /**< complete checkpoints that stay */
    /** How many deltas may follow a full checkpoint, at most
     * RPS_SAVE_DELTAS_MAX; 0: each is full. */
    uint32_t deltas_max;
    /** Not 0: the servers take their cuts now, also where a sync decision has
     * had them taken: rows were assigned since. */
    int now;
} rps_save_plan;
#define RPS_SAVE_DELTAS_MAX 16u

/** A checkpoint that is complete. */
typedef struct rps_saved {
    uint64_t step;
    int delta;            /**< not 0: of what changed since parent_step */
    uint64_t parent_step; /**< of a delta */
    uint64_t rows;        /**< in it, of all servers and tables */
    uint64_t erased;      /**< keys, in a delta */
    uint64_t bytes;       /**< of its files, of all servers */
    uint64_t pause_us;    /**< longest stop of a server, for its cut */
    uint64_t ms;          /**< from the beginning to the last COMMIT */
} rps_saved;

/**
 * Chief only: begin to write ckpt-<plan->step> on every PS. Returns when each
 * PS has taken its cut (milliseconds): what is changed from then on is not in
 * the checkpoint, and training may go on. The rest happens inside
 * rps_save_poll() and rps_save_wait(). One save at a time.
 *
 * It is a delta where plan->deltas_max allows one more and all PS name the
 * same complete checkpoint as their last; else full.
 *
 * Owns:    borrows *plan for the call.
 * Threads: the client's.
 * Errors:  RPS_E_RETRY_LATER (a save runs, this client's or another's);
 *          RPS_E_LIMIT (no memory for a cut); as rps_save. Nothing is begun.
 */
RPS_API RPS_NODISCARD rps_status rps_save_begin(
        rps_client *client, const rps_save_plan *plan);

/**
 * Move the save that was begun, without waiting. *done_out says if it is over:
 * its status is the result, *saved_out (may be NULL) has what was saved, and
 * another one may begin. Until then *done_out is 0 and RPS_OK is returned.
 *
 * Threads: the client's.
 * Errors:  RPS_E_NOT_FOUND (no save was begun); as rps_save.
 */
RPS_API RPS_NODISCARD rps_status rps_save_poll(
        rps_client *client, int *done_out, rps_saved *saved_out);

/**
 * The same, and wait until it is over.
 *
 * Units:   timeout_ms in milliseconds, 0 = no limit.
 * Threads: the client's.
 * Errors:  RPS_E_TIMEOUT (not over yet: wait again); as rps_save_poll.
 */
RPS_API RPS_NODISCARD rps_status rps_save_wait(
        rps_client *client, uint32_t timeout_ms, rps_saved *saved_out);

#ifdef __cplusplus
}
#endif

#endif /* RPS_SAVE_H */
