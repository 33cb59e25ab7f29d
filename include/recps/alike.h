/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the replicas of a job must have alike: said by each, compared when they
 * join (rps_job_join() of client.h).
 */
#ifndef RPS_ALIKE_H
#define RPS_ALIKE_H

#include <recps/client.h>

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Say what must be alike with each rps_job_join() from here on: a JSON object
 * of at most 32 strings of at most 1024 bytes, by the names that a user knows
 * them by. A field that a rank and the chief say otherwise fails the join of
 * all with RPS_E_MISMATCH, in words that name both; what either leaves out is
 * not compared. NULL: nothing, as at first.
 *
 * Owns:    copies fields.
 * Threads: the client's.
 * Errors:  RPS_E_INVAL (no JSON object); the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_job_alike(
        rps_client *client, const char *fields);

#ifdef __cplusplus
}
#endif

#endif /* RPS_ALIKE_H */
