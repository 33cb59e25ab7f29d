/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream's scratch memory: its kernels run one after the other, so they
 * share one block, as large as the largest of them asked for.
 *
 * Threads: the stream's user.
 */
#ifndef RPS_NPU_WORKSPACE_H
#define RPS_NPU_WORKSPACE_H

#include "client/npu/stream.h"

/**
 * *inside_out: at least `bytes`, for kernels (rps_npu_inside); NULL where
 * bytes is 0. Stays valid for work that is given before the next call.
 *
 * Errors: NOMEM, with words.
 */
rps_status rps_npu_workspace(
        rps_npu_stream *stream, uint64_t bytes, void **inside_out);

/** Give it back. */
void rps_npu_workspace_finish(rps_npu_stream *stream);

#endif /* RPS_NPU_WORKSPACE_H */
