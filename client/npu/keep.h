/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory stays a task's until the task is done, without views that the task
 * would hold: a pool's block is its stream's to use again, in that stream's
 * order, so only other streams must be known to it. A compiled step is done
 * many times: it holds what is not of its own memory.
 *
 * Threads: the stream's user.
 */
#ifndef RPS_NPU_KEEP_H
#define RPS_NPU_KEEP_H

#include "client/npu/operation.h"

struct rps_npu_step;

/** A task that uses these is given to the stream next. Errors: NOMEM, with
 * words; INVAL (another device's). */
rps_status rps_npu_keep(rps_npu_stream *stream, const char *operation,
        const rps_npu_tensor *tensors, uint32_t count);

/** What the step holds goes. */
void rps_npu_keep_nothing(struct rps_npu_step *step);

#endif /* RPS_NPU_KEEP_H */
