/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mark: one recording of an event, kept by the event, by the task that
 * reaches it and by those that wait for it. An event is whichever mark it got
 * last; so it may be recorded anew, or go, while others wait. One of a capture
 * is an edge of the step, and nothing outside: there it is reached.
 */
#ifndef RPS_NPU_EVENT_H
#define RPS_NPU_EVENT_H

#include "client/npu/gate.h"
#include "client/npu/task.h"

struct rps_npu_mark {
    _Atomic uint32_t holders;
    struct rps_npu_gate gate;     /* 1: reached */
    uint64_t ns;                  /* when; set before the gate rises */
    const rps_npu_stream *stream; /* whose; never followed */
    struct rps_npu_captured_mark *captured; /* NULL: of no capture */
};

/** NULL: no memory. */
struct rps_npu_mark *rps_npu_mark_create(const rps_npu_stream *stream);
struct rps_npu_mark *rps_npu_mark_hold(struct rps_npu_mark *mark);

/** NULL is allowed. */
void rps_npu_mark_drop(struct rps_npu_mark *mark);

#endif /* RPS_NPU_EVENT_H */
