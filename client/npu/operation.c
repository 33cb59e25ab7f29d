/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/operation.h"

#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/workspace.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* One block: the task, the kernel's arguments, the name. */
struct kernel_task {
    struct rps_npu_task task;
    rps_npu_kernel_fn kernel;
    void *const *workspace; /* its own, or where its step has it */
    void *own_workspace;
    const char *type;
    const char *name;
    const char *holds;
    uint64_t flops;
    uint64_t bytes;
    max_align_t args[];
};

static rps_status
run_kernel(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct kernel_task *kernel = (struct kernel_task *)task;

    kernel->kernel(kernel->args, *kernel->workspace);
    rps_npu_tally_add(&stream->npu->tally, RPS_NPU_OPERATIONS, 1);
    return RPS_OK;
}

static const struct rps_npu_task_kind running = {
        .run = run_kernel,
        .use = RPS_NPU_USE_BUSY,
        .sort = RPS_NPU_SORT_OPERATION,
        .launch = true,
};

static struct kernel_task *
make_task(const struct rps_npu_operation *operation)
{
    const size_t name_bytes =
            operation->name == NULL ? 0 : strlen(operation->name) + 1;
    struct kernel_task *task =
            calloc(1, sizeof(*task) + operation->args_bytes + name_bytes);
    char *tail = NULL;

    if (task == NULL) {
        return NULL;
    }
    task->task.kind = &running;
    task->kernel = operation->kernel;
    task->type = operation->type;
    task->name = operation->type;
    task->holds = operation->holds;
    task->flops = operation->flops;
    task->bytes = operation->bytes;
    tail = (char *)task->args;
    if (operation->args_bytes > 0) {
        memcpy(tail, operation->args, operation->args_bytes);
        tail += operation->args_bytes;
    }
    if (name_bytes > 0) {
        memcpy(tail, operation->name, name_bytes);
        task->name = tail;
    }
    return task;
}

/* A step has one a lane, made when the capture ends. */
static rps_status
find_workspace(rps_npu_stream *stream, uint64_t bytes, struct kernel_task *task)
{
    task->workspace = &task->own_workspace;
    if (rps_npu_stream_captures(stream)) {
        struct rps_npu_lane *lane = rps_npu_capture_lane(stream);

        if (bytes > lane->workspace_bytes) {
            lane->workspace_bytes = bytes;
        }
        task->workspace = &lane->workspace;
        return RPS_OK;
    }
    return rps_npu_workspace(stream, bytes, &task->own_workspace);
}

rps_status
rps_npu_enqueue(
        rps_npu_stream *stream, const struct rps_npu_operation *operation)
{
    struct kernel_task *task = NULL;
    rps_status status = rps_npu_stream_ready(stream, operation->type);

    assert(operation->args_bytes <= RPS_NPU_OPERATION_ARGS_BYTES);
    assert(operation->input_count <= RPS_NPU_OPERATION_TENSORS_MAX);
    assert(operation->output_count <= RPS_NPU_OPERATION_TENSORS_MAX);
    if (status != RPS_OK) {
        return status;
    }
    task = make_task(operation);
    if (task == NULL) {
        return rps_npu_nomem(operation->type);
    }
    status = find_workspace(stream, operation->workspace_bytes, task);
    if (status != RPS_OK) {
        free(task);
        return status;
    }
    rps_npu_stream_give(stream, &task->task);
    return RPS_OK;
}
