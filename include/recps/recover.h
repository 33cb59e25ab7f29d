/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job that goes back after a loss, and its end as who is no replica sees it.
 * rps_job_join() (client.h) is what every replica does then.
 */
#ifndef RPS_RECOVER_H
#define RPS_RECOVER_H

#include <recps/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * rps_job_begin() of a job that goes back: `reason` (plain text, NULL: none;
 * cut after RPS_REASON_BYTES - 1) is told to every replica that joins. Every
 * server goes to `step`, also one that lost nothing. What still comes of an
 * epoch before is RPS_E_ROLLED_BACK and changes nothing.
 *
 * Owns:    borrows terms and reason; fills *start_out; free its data_position.
 * Threads: the client's.
 * Errors:  as rps_job_begin().
 */
RPS_API RPS_NODISCARD rps_status rps_job_begin_again(rps_client *client,
        uint64_t step, const rps_terms *terms, const char *reason,
        rps_start *start_out);

/**
 * An evaluator: wait for the job's end (SHUTDOWN), which it cannot tell else
 * from a server that is started again. A replica that has left joins again
 * instead: RPS_E_CANCELED is the end.
 *
 * Units:   timeout_ms 0 = look once.
 * Threads: the client's.
 * Errors:  RPS_E_TIMEOUT (it has not ended so far); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_job_await_end(
        rps_client *client, uint32_t timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* RPS_RECOVER_H */
