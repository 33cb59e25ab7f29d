/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/edge.h"

#include "client/npu/launch.h"
#include "client/npu/spans.h"

#include <stdlib.h>

struct edge_task {
    struct rps_npu_task task;
    struct rps_npu_edge *edge;
};

static rps_status
reach(rps_npu_stream *stream, struct rps_npu_task *task)
{
    rps_npu_gate_raise(&((struct edge_task *)task)->edge->gate,
            rps_npu_launch_iteration());
    return RPS_OK;
}

static rps_status
await(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct rps_npu_gate *gate = &((struct edge_task *)task)->edge->gate;
    const uint64_t iteration = rps_npu_launch_iteration();

    if (!rps_npu_gate_reached(gate, iteration)) {
        const uint64_t start = rps_npu_span_start();

        rps_npu_stream_use(stream, RPS_NPU_USE_IDLE);
        rps_npu_gate_wait(gate, iteration);
        if (start != 0) {
            rps_npu_span_end(start,
                    (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                            .type = "wait_for_stream",
                            .track = stream->track});
        }
    }
    return RPS_OK;
}

static const struct rps_npu_task_kind reaching = {.run = reach, .failed = true};
static const struct rps_npu_task_kind awaiting = {.run = await, .failed = true};

static struct rps_npu_task *
make(struct rps_npu_edge *edge, const struct rps_npu_task_kind *kind)
{
    struct edge_task *task = calloc(1, sizeof(*task));

    if (task == NULL) {
        return NULL;
    }
    task->task.kind = kind;
    task->edge = edge;
    return &task->task;
}

struct rps_npu_task *
rps_npu_edge_reach(struct rps_npu_edge *edge)
{
    return make(edge, &reaching);
}

struct rps_npu_task *
rps_npu_edge_await(struct rps_npu_edge *edge)
{
    return make(edge, &awaiting);
}
