/* SPDX-License-Identifier: Apache-2.0 */
/* Host functions: what a stream calls between two parts of a step. */
#include "client/npu/error.h"
#include "client/npu/spans.h"
#include "client/npu/stream.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct call_task {
    struct rps_npu_task task;
    rps_npu_host_fn function;
    void *context;
    char name[RPS_NPU_NAME_BYTES];
};

rps_status
rps_npu_host_failed(rps_status status, const char *words)
{
    return rps_npu_fail(status, "%s", words == NULL ? "" : words);
}

static rps_status
run_call(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct call_task *call = (struct call_task *)task;
    const uint64_t start = rps_npu_span_start();
    rps_status status = RPS_OK;

    (void)rps_npu_fail(RPS_OK, "it gave no words");
    status = call->function(call->context);
    if (start != 0) {
        /* what it says over the network is told by who does it */
        rps_npu_span_end(start,
                (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                        .type = "host_function",
                        .name = call->name,
                        .track = stream->track});
    }
    if (status != RPS_OK) {
        return rps_npu_fail(
                status, "call \"%s\": %s", call->name, rps_npu_error());
    }
    return RPS_OK;
}

static const struct rps_npu_task_kind calling = {
        .run = run_call,
        .use = RPS_NPU_USE_IDLE,
        .sort = RPS_NPU_SORT_CALL,
};

rps_status
rps_npu_call_async(rps_npu_stream *stream, const char *name,
        rps_npu_host_fn function, void *context)
{
    const char *operation = "call a host function";
    struct call_task *call = NULL;
    rps_status status = rps_npu_stream_ready(stream, operation);

    if (status != RPS_OK) {
        return status;
    }
    if (function == NULL) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": %s: there is none",
                stream->npu->id, stream->name, operation);
    }
    call = calloc(1, sizeof(*call));
    if (call == NULL) {
        return rps_npu_nomem(operation);
    }
    call->task.kind = &calling;
    call->function = function;
    call->context = context;
    (void)snprintf(call->name, sizeof(call->name), "%s",
            name == NULL ? "function" : name);
    rps_npu_stream_give(stream, &call->task);
    return RPS_OK;
}
