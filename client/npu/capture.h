/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A capture: streams whose tasks are noted in a step, between begin and end.
 *
 * For each lane it knows how much of every other lane's work is behind it:
 * known[l] counts work of lane l, rises with the lane's own work and with what
 * each mark that it waits for knew. The origin must know all of all at the end.
 *
 * Threads: the streams' user; rps_npu_stream_captures() any.
 */
#ifndef RPS_NPU_CAPTURE_H
#define RPS_NPU_CAPTURE_H

#include "client/npu/event.h"
#include "client/npu/step.h"

struct rps_npu_capture {
    uint64_t number;              /* of the process's captures */
    struct rps_npu_capture *next; /* npu->lock */
    struct rps_npu_step *step;
    uint64_t works[RPS_NPU_STEP_STREAMS_MAX]; /* a lane's, without marks */
    uint64_t known[RPS_NPU_STEP_STREAMS_MAX][RPS_NPU_STEP_STREAMS_MAX];
    bool broken;            /* it cannot end well */
    struct rps_error words; /* of it: why */
};

/** What a mark is in a capture. */
struct rps_npu_captured_mark {
    uint64_t number; /* of the capture */
    struct rps_npu_edge *edge;
    uint64_t known[RPS_NPU_STEP_STREAMS_MAX]; /* by the lane, there */
};

/** Does it capture, by whichever stream? Threads: any. */
bool rps_npu_stream_captures(const rps_npu_stream *stream);

/** The capture is void: words of this thread say why. */
void rps_npu_capture_break(struct rps_npu_capture *capture);

/** In a capture: the place that the stream's next task will have. */
uint64_t rps_npu_capture_place(const rps_npu_stream *stream);

/** `owner` captures: is `stream` part of the same capture, and does what
 * `owner` has until now wait for that place of it? */
bool rps_npu_capture_follows(const rps_npu_stream *owner,
        const rps_npu_stream *stream, uint64_t place);

/** The stream's part of the step. */
struct rps_npu_lane *rps_npu_capture_lane(rps_npu_stream *stream);

/** Note a task. */
void rps_npu_capture_note(rps_npu_stream *stream, struct rps_npu_task *task);

/** A mark behind what the stream's lane has. Errors: NOMEM, with words. */
rps_status rps_npu_capture_record(
        rps_npu_stream *stream, struct rps_npu_mark *mark);

/** A stream waits for a mark that was recorded in a capture, and becomes part
 * of it. Errors: INVAL, NOMEM, with words. */
rps_status rps_npu_capture_wait(
        rps_npu_stream *stream, const struct rps_npu_mark *mark);

/** The stream is destroyed. */
void rps_npu_capture_leave(rps_npu_stream *stream);

#endif /* RPS_NPU_CAPTURE_H */
