/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a RESTORE takes of a checkpoint: some of its tables, under other names
 * and into other specs, weights alone; and where it is: in the own
 * checkpoint_dir, or, for a job that begins from another one's, in a folder
 * that the operator allowed (--warm-start-dirs).
 */
#ifndef RPS_SERVER_WARM_H
#define RPS_SERVER_WARM_H

#include "embedding/checkpoint/checkpoint.h"
#include "server/state.h"

/** Of one RESTORE; NULL: all of a step of the own checkpoint_dir. */
struct rps_warm;

/**
 * "from", "tables" and "weights_only" of a RESTORE's text; *warm_out is NULL
 * where there is none of them. Errors: INVAL naming the field.
 */
rps_status rps_warm_read(const json_t *object, uint64_t step,
        struct rps_warm **warm_out, struct rps_error *error);
void rps_warm_destroy(struct rps_warm *warm);

/** Whether it begins a job from a checkpoint that is not the job's. */
bool rps_warm_begins(const struct rps_warm *warm);

/**
 * Before the restore, on the writer's thread: the folder, looked up and
 * allowed, its newest step where none was named, and the tables. Errors:
 * INVAL (not allowed), NOT_FOUND (no complete checkpoint), as the survey.
 */
rps_status rps_warm_prepare(const struct rps_service *service,
        struct rps_warm *warm, struct rps_restore *restore,
        struct rps_error *error);

/** Of a restore's `told`: what became of a table. */
void rps_warm_told(struct rps_warm *warm, const char *table, bool slots);

/** "warm_start" of the answer (new reference): from which step, which tables
 * have fresh slots, which were not there. NULL: no memory. */
json_t *rps_warm_answer(const struct rps_warm *warm);

#endif /* RPS_SERVER_WARM_H */
