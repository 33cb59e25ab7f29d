/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/workspace.h"

#include "client/npu/pool_device.h"

#define GRAIN_BYTES (UINT64_C(64) << 10) /* few sizes, so few growths */

static rps_status
grow(rps_npu_stream *stream, uint64_t bytes)
{
    const uint64_t twice = 2 * stream->workspace_bytes;
    const uint64_t want = bytes > twice ? bytes : twice;
    const uint64_t whole = (want + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
    void *larger = NULL;
    const rps_status status = rps_npu_pool_take(stream, NULL, whole, &larger);

    if (status != RPS_OK) {
        return status;
    }
    rps_npu_workspace_finish(stream); /* queued kernels go on using it */
    stream->workspace = larger;
    stream->workspace_bytes = whole;
    return RPS_OK;
}

rps_status
rps_npu_workspace(rps_npu_stream *stream, uint64_t bytes, void **inside_out)
{
    rps_status status = RPS_OK;

    *inside_out = NULL;
    if (bytes > stream->workspace_bytes) {
        status = grow(stream, bytes);
    }
    if (status == RPS_OK && bytes > 0) {
        *inside_out = rps_npu_inside(stream->npu, stream->workspace);
    }
    return status;
}

void
rps_npu_workspace_finish(rps_npu_stream *stream)
{
    /* what is queued may use it still: so may only the same stream */
    (void)rps_npu_pool_free(stream->npu, stream->workspace);
    stream->workspace = NULL;
    stream->workspace_bytes = 0;
}
