/* SPDX-License-Identifier: Apache-2.0 */
/* The profile of a run: --profile and --profile-steps. */
#ifndef RPS_WORKER_PROFILING_H
#define RPS_WORKER_PROFILING_H

#include "client/worker/run.h"

/**
 * Where it was asked for, make its folder and wait for its first step.
 *
 * Errors: INVAL (a run of `steps` steps does not come so far; files of another
 *         profile are there), IO, NOMEM.
 */
rps_status rps_profiling_begin(struct rps_run *run, uint64_t steps);

/** The run begins behind step `done` and ends with `last`: say it where none
 * of the steps asked for is among them. */
void rps_profiling_joined(struct rps_run *run, uint64_t done, uint64_t last);

/** A step begins, or with 0 none; from time to time with the memory that the
 * process and the device hold. Whoever has the loop. */
void rps_profiling_step(struct rps_run *run, uint64_t step);

/** Write it, and say where it is. Errors: IO, NOMEM. */
rps_status rps_profiling_end(struct rps_run *run, struct rps_error *error);

#endif /* RPS_WORKER_PROFILING_H */
