/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A compiled step: tasks that are done once an iteration, in lanes, one a
 * stream that the capture came to; lane 0 is that of the stream which
 * captured. Lanes meet at edges: gates whose value is the last iteration that
 * has passed them. Iterations are counted over all launches, so that a gate
 * never falls.
 *
 *   lane 0  k1  reach E1  k2  k3        await E2  k4
 *   lane 1      await E1  copy reach E2
 *
 * A launch takes its place in every lane's stream when the host gives it, so
 * that what a stream is given later comes behind it. The origin's thread counts
 * the iterations; another lane begins one when its first edge is passed.
 *
 * Owns: tasks, edges, memory. Held by whoever made it and by each launch, since
 * a thread may still be in a gate when the launch is done for all others.
 */
#ifndef RPS_NPU_STEP_H
#define RPS_NPU_STEP_H

#include "client/npu/gate.h"
#include "client/npu/pool.h"
#include "client/npu/queue.h"
#include "client/npu/stream.h"

#define RPS_NPU_STEP_STREAMS_MAX 16u
#define RPS_NPU_STEP_QUEUES_MAX  16u

struct rps_npu_edge {
    struct rps_npu_gate gate; /* the last iteration that passed it */
    struct rps_npu_edge *next;
};

struct rps_npu_lane {
    rps_npu_stream *stream;
    struct rps_npu_task *first;
    struct rps_npu_task *last;
    struct rps_npu_edge *start; /* not of lane 0: what it joined by */
    struct rps_npu_gate done;   /* not of lane 0: its last iteration */
    void *workspace;            /* inside; NULL: none of its kernels asks */
    uint64_t workspace_bytes;
    uint64_t iteration; /* not of lane 0: its thread's */
};

struct rps_npu_step_queue {
    rps_npu_queue *queue;
    uint64_t takes; /* an iteration */
};

/* All but the last part is set before the first launch. */
struct rps_npu_step {
    _Atomic uint32_t holders;
    rps_npu *npu;
    struct rps_npu_lane lanes[RPS_NPU_STEP_STREAMS_MAX];
    uint32_t lane_count;
    struct rps_npu_edge *edges;
    struct rps_npu_step_queue queues[RPS_NPU_STEP_QUEUES_MAX];
    uint32_t queue_count;
    rps_npu_step_info info;
    struct rps_pool_private *memory; /* what it asked the pool for */
    struct rps_npu_kept *kept;       /* views of other memory (keep.h) */
    void *workspace;                 /* a block of the pool: all lanes' */

    uint64_t iteration;         /* the running launch's: the last begun */
    uint64_t given;             /* the user's: launches */
    const rps_npu_stream *last; /* the user's: the last launch's stream */
    struct rps_npu_gate done;   /* launches */
};

/** NULL: no memory. Its lane 0 is the stream's. */
struct rps_npu_step *rps_npu_step_create(rps_npu_stream *origin);

void rps_npu_step_hold(struct rps_npu_step *step);
void rps_npu_step_drop(struct rps_npu_step *step);

/** An edge more. NULL: no memory. */
struct rps_npu_edge *rps_npu_step_add_edge(struct rps_npu_step *step);

/** Behind the lane's last task. */
void rps_npu_lane_add(struct rps_npu_lane *lane, struct rps_npu_task *task);

/** Every iteration takes one more set of it. Errors: INVAL (too many queues).
 */
rps_status rps_npu_step_add_take(
        struct rps_npu_step *step, rps_npu_queue *queue);

#endif /* RPS_NPU_STEP_H */
