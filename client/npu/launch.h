/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of a step: `count` iterations, one task in each lane's stream.
 *
 * Threads: as each says.
 */
#ifndef RPS_NPU_LAUNCH_H
#define RPS_NPU_LAUNCH_H

#include "client/npu/step.h"

/** Which iteration the running task is done for. On a stream's thread. */
uint64_t rps_npu_launch_iteration(void);

/**
 * rps_npu_launch(). *done_out (may be NULL) is set to the whole iterations
 * before the stream is done with it.
 *
 * Threads: the user of stream and step. Errors: as rps_npu_launch().
 */
rps_status rps_npu_launch_counted(rps_npu_stream *stream,
        struct rps_npu_step *step, uint64_t count, uint64_t *done_out);

#endif /* RPS_NPU_LAUNCH_H */
