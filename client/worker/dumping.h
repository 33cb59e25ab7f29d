/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dump of a run: --dump and its kin. A dumped step has, in this order,
 *
 * - variables: each dense variable as the step begins with it,
 * - lookup: each sparse table's distinct keys and their rows,
 * - the model operator by operator: a device's as they run (device_watch.c),
 *   the host's joined behind the last tile (tape.h),
 * - scale: of gradients, where there is a loss scale,
 * - pooling_backward, push: what goes to the servers, keys and gradients of
 *   each sparse table, the gradients of each dense variable.
 *
 * Threads: whoever has the loop.
 */
#ifndef RPS_WORKER_DUMPING_H
#define RPS_WORKER_DUMPING_H

#include "client/worker/loop.h"

struct rps_dumping;

/** Rows of a table as the model gets them. */
struct rps_dumping_rows {
    const float *rows; /* [count][dim]; NULL: those of the turn's bags */
    bool moved;        /* they are those that the device did not have */
};

/** Where it was asked for, make its folder. Errors: INVAL, IO, NOMEM. */
rps_status rps_dumping_begin(struct rps_run *run);

/** The loop joined: what there is to do, or that nothing is. */
void rps_dumping_joined(struct rps_loop *loop);

/**
 * What the steps to come will write, before the first of them: said once, and
 * refused where it is too much. `operations` of the model, with so many bytes;
 * a turn like this one.
 *
 * Errors: INVAL names the option.
 */
rps_status rps_dumping_expect(struct rps_loop *loop,
        const struct rps_turn *turn, uint64_t operations, uint64_t bytes);

/** A step has its rows: rows [tables]. Errors: NOMEM. */
rps_status rps_dumping_fetched(struct rps_loop *loop,
        const struct rps_loop_step *step, const struct rps_dumping_rows *rows);

/** rps_model_run() of a step, on the host. Errors: NOMEM. */
rps_status rps_dumping_model_run(
        struct rps_loop *loop, struct rps_loop_step *step);

/** The loss scale goes out of the gradients: before that, and when it is done.
 */
void rps_dumping_unscale(
        struct rps_loop *loop, const struct rps_loop_step *step, bool done);

/** The push is over, and so is the step. */
void rps_dumping_pushed(
        struct rps_loop *loop, const struct rps_loop_step *step);

/** End it, and say where it is. Errors: the first failure of writing. */
rps_status rps_dumping_end(struct rps_run *run, struct rps_error *error);

#endif /* RPS_WORKER_DUMPING_H */
