/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --dense allreduce: the workers as a group. Dense variables live in each of
 * them, begin as rank 0's, get the gradients of all and take the same step,
 * with the engine's own tables and law. What the servers have of them is
 * written by the chief before it saves.
 *
 * Every rank makes the same calls in the same order. Built without MPI,
 * rps_group_open() says what to install.
 */
#ifndef RPS_WORKER_GROUP_H
#define RPS_WORKER_GROUP_H

#include "client/worker/tables.h"

#include <stdbool.h>

struct rps_group;

/**
 * Before anything is opened: can there be a group here? Where nothing started
 * this process beside others, MPI would make it a group of its own, and end
 * that with words of its own.
 *
 * Errors: UNSUPPORTED (no MPI in this build), INVAL (alone, or another number
 *         of ranks than the cluster's).
 */
rps_status rps_group_check(
        const struct rps_settings *settings, struct rps_error *error);

/**
 * Join, and see that MPI and the cluster count alike.
 *
 * Owns:   *group_out is ended by rps_group_end(), also after an error where
 *         it is not NULL.
 * Errors: UNSUPPORTED (no MPI in this build), INVAL (another rank or number
 *         of ranks than the cluster's, an order that is none), the
 *         collective's own.
 */
rps_status rps_group_open(struct rps_group **group_out,
        const struct rps_settings *settings, struct rps_error *error);

/**
 * Leave: code 0 waits for all, another ends all of them at once with that
 * code and does not return. NULL is allowed.
 */
rps_status rps_group_end(
        struct rps_group *group, int code, struct rps_error *error);

/**
 * Dense variables from rank 0 to all: its start values, or what the servers
 * restored, with slots. The tables are open. `combine` is the job's.
 */
rps_status rps_group_begin(struct rps_group *group, struct rps_tables *tables,
        bool restored, enum rps_combine combine, struct rps_error *error);

/**
 * One step of every dense variable: the model's gradients, summed over all
 * ranks, at `rate`. skip: this rank has none to add. Non-finite rows of a
 * rank are left out, as at a server.
 */
rps_status rps_group_step(struct rps_group *group, uint64_t step, double rate,
        bool skip, struct rps_error *error);

/** Chief: values, slots and meta to the servers. */
rps_status rps_group_publish(struct rps_group *group, struct rps_tables *tables,
        struct rps_error *error);

/** MISMATCH if a rank's variables or slots are not rank 0's, bit for bit. */
rps_status rps_group_compare(struct rps_group *group, struct rps_error *error);

/** "4 ranks, ring allreduce, 12 dense variables of 45 KiB". Returns `out`. */
char *rps_group_describe(const struct rps_group *group, char out[128]);

#endif /* RPS_WORKER_GROUP_H */
