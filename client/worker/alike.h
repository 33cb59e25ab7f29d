/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every replica of a job must have alike, or they would train another
 * model or other rows together in silence: PS 0 compares it when they join.
 */
#ifndef RPS_WORKER_ALIKE_H
#define RPS_WORKER_ALIKE_H

#include "client/worker/run.h"

/** To be said with rps_job_join(); reads the first rows of the data. */
rps_status rps_run_say_alike(struct rps_run *run);

#endif /* RPS_WORKER_ALIKE_H */
