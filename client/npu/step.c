/* SPDX-License-Identifier: Apache-2.0 */
/* A step's life; it is made by capture.c and run by launch.c. */
#include "client/npu/step.h"

#include "client/npu/error.h"
#include "client/npu/keep.h"

#include <inttypes.h>
#include <stdlib.h>

struct rps_npu_step *
rps_npu_step_create(rps_npu_stream *origin)
{
    struct rps_npu_step *step = calloc(1, sizeof(*step));

    if (step == NULL) {
        return NULL;
    }
    step->memory = rps_pool_private_create(origin->npu->pool);
    if (step->memory == NULL) {
        free(step);
        return NULL;
    }
    step->holders = 1;
    step->npu = origin->npu;
    step->lane_count = 1;
    step->lanes[0].stream = origin;
    rps_npu_gate_init(&step->done);
    for (uint32_t l = 0; l < RPS_NPU_STEP_STREAMS_MAX; l++) {
        rps_npu_gate_init(&step->lanes[l].done);
    }
    return step;
}

void
rps_npu_step_hold(struct rps_npu_step *step)
{
    step->holders++;
}

static void
free_edges(struct rps_npu_step *step)
{
    while (step->edges != NULL) {
        struct rps_npu_edge *edge = step->edges;

        step->edges = edge->next;
        rps_npu_gate_finish(&edge->gate);
        free(edge);
    }
}

void
rps_npu_step_drop(struct rps_npu_step *step)
{
    if (--step->holders > 0) {
        return;
    }
    free_edges(step);
    for (uint32_t l = 0; l < RPS_NPU_STEP_STREAMS_MAX; l++) {
        rps_npu_gate_finish(&step->lanes[l].done);
    }
    rps_npu_gate_finish(&step->done);
    free(step);
}

struct rps_npu_edge *
rps_npu_step_add_edge(struct rps_npu_step *step)
{
    struct rps_npu_edge *edge = calloc(1, sizeof(*edge));

    if (edge != NULL) {
        rps_npu_gate_init(&edge->gate);
        edge->next = step->edges;
        step->edges = edge;
    }
    return edge;
}

void
rps_npu_lane_add(struct rps_npu_lane *lane, struct rps_npu_task *task)
{
    task->next = NULL;
    if (lane->last == NULL) {
        lane->first = task;
    } else {
        lane->last->next = task;
    }
    lane->last = task;
}

rps_status
rps_npu_step_add_take(struct rps_npu_step *step, rps_npu_queue *queue)
{
    uint32_t q = 0;

    while (q < step->queue_count && step->queues[q].queue != queue) {
        q++;
    }
    if (q == RPS_NPU_STEP_QUEUES_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": take: a step takes from %u queues at most",
                step->npu->id, RPS_NPU_STEP_QUEUES_MAX);
    }
    step->queues[q].queue = queue;
    step->queues[q].takes++;
    step->queue_count += q == step->queue_count;
    return RPS_OK;
}

static void
free_tasks(struct rps_npu_lane *lane)
{
    while (lane->first != NULL) {
        struct rps_npu_task *task = lane->first;

        lane->first = task->next;
        rps_npu_task_free(task);
    }
}

/* Memory and what tasks hold go at once; gates when no thread is in one. */
void
rps_npu_step_destroy(rps_npu_step *step)
{
    if (step == NULL) {
        return;
    }
    rps_npu_gate_wait(&step->done, step->given);
    for (uint32_t l = 0; l < step->lane_count; l++) {
        free_tasks(&step->lanes[l]);
    }
    rps_npu_keep_nothing(step);
    (void)rps_npu_pool_free(step->npu, step->workspace);
    rps_pool_private_destroy(step->npu->pool, step->memory);
    rps_npu_step_drop(step);
}

void
rps_npu_step_describe(const rps_npu_step *step, rps_npu_step_info *info)
{
    *info = step->info;
}
