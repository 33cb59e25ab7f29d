/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --warm-start, --restore-tables, --restore-weights-only: what the chief has
 * the servers take of which checkpoint when the job begins.
 */
#ifndef RPS_WORKER_WARM_H
#define RPS_WORKER_WARM_H

#include "client/worker/run.h"

/**
 * Whether beginning at `step` takes a part of a checkpoint: 0 of a job that
 * begins from another one's, or the step that --restore began with.
 */
bool rps_warm_applies(const struct rps_run *run, uint64_t step);

/**
 * rps_job_begin() of it. What is fresh is said; variables that have no start
 * value yet are those that rps_run_init_from() assigns then. Errors: in
 * run->error, as rps_job_begin_from(); INVAL (a name that is no table of the
 * model).
 */
rps_status rps_warm_begin(struct rps_run *run, uint64_t step, rps_start *start);

#endif /* RPS_WORKER_WARM_H */
