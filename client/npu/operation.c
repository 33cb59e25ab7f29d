/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/operation.h"

#include "base/text.h"
#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/spans.h"
#include "client/npu/tensor.h"
#include "client/npu/workspace.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* One block: the task, the kernel's arguments, the name. A kernel follows
 * addresses and no tensors, so what keeps its memory is the pool: behind the
 * stream's work a block is used anew only by work of the same stream, and
 * another stream that uses it is recorded on it. A step is done long after its
 * capture, and so keeps tensors, but for those whose memory is its own. */
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
    char *shapes;         /* NULL: nobody asked when it was given */
    rps_npu_tensor *kept; /* a step's */
    uint32_t kept_count;
    max_align_t args[];
};

static void
show(const rps_npu_stream *stream, const struct kernel_task *kernel,
        uint64_t start)
{
    rps_npu_span_end(
            start, (struct rps_profile_span){.class = RPS_PROFILE_OPERATOR,
                           .type = kernel->type,
                           .name = kernel->name,
                           .holds = kernel->holds,
                           .track = stream->track,
                           .shapes = kernel->shapes,
                           .bytes = kernel->bytes,
                           .flops = kernel->flops});
}

static rps_status
run_kernel(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct kernel_task *kernel = (struct kernel_task *)task;

    const uint64_t start = rps_npu_span_start();

    kernel->kernel(kernel->args, *kernel->workspace);
    rps_npu_tally_add(&stream->npu->tally, RPS_NPU_OPERATIONS, 1);
    if (start != 0) {
        show(stream, kernel, start);
    }
    return RPS_OK;
}

static void
finish_kernel(struct rps_npu_task *task)
{
    struct kernel_task *kernel = (struct kernel_task *)task;

    for (uint32_t i = 0; i < kernel->kept_count; i++) {
        rps_npu_tensor_release(&kernel->kept[i]);
    }
    free(kernel->kept);
    free(kernel->shapes);
}

static const struct rps_npu_task_kind running = {
        .run = run_kernel,
        .finish = finish_kernel,
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

/* --- its tensors ------------------------------------------------------------
 */

static void
add_shape(struct rps_text *text, const rps_npu_tensor *tensor)
{
    rps_text_add(text, text->length == 0 ? "[" : " [");
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        rps_text_add(text, d == 0 ? "%" PRIu64 : ",%" PRIu64, tensor->shape[d]);
    }
    rps_text_add(text, "]");
}

/* "[128,13] [512,13] -> [128,512]"; NULL where there is no memory for it:
 * a profile lacks it then. */
static char *
make_shapes(const struct rps_npu_operation *operation)
{
    struct rps_text text = {0};

    for (uint32_t i = 0; i < operation->input_count; i++) {
        add_shape(&text, &operation->inputs[i]);
    }
    rps_text_add(&text, text.length == 0 ? "->" : " ->");
    for (uint32_t i = 0; i < operation->output_count; i++) {
        add_shape(&text, &operation->outputs[i]);
    }
    if (text.failed) {
        rps_text_finish(&text);
        return NULL;
    }
    return text.bytes;
}

static rps_status
keep_one(rps_npu_stream *stream, struct kernel_task *task,
        const rps_npu_tensor *tensor)
{
    const uint64_t capture = rps_npu_capture_number(stream);

    if (tensor->storage == NULL) {
        return RPS_OK;
    }
    if (capture != 0 && rps_npu_storage_capture(tensor->storage) != capture) {
        task->kept[task->kept_count++] = rps_npu_tensor_retain(tensor);
    }
    return rps_npu_storage_stream(tensor->storage) == stream
                   ? RPS_OK
                   : rps_npu_tensor_record_stream(tensor, stream);
}

static rps_status
keep_tensors(rps_npu_stream *stream, struct kernel_task *task,
        const struct rps_npu_operation *operation)
{
    const uint32_t count = operation->input_count + operation->output_count;
    rps_status status = RPS_OK;

    if (rps_npu_stream_captures(stream) && count > 0) {
        task->kept = calloc(count, sizeof(*task->kept));
        if (task->kept == NULL) {
            return rps_npu_nomem(operation->type);
        }
    }
    for (uint32_t i = 0; i < operation->input_count && status == RPS_OK; i++) {
        status = keep_one(stream, task, &operation->inputs[i]);
    }
    for (uint32_t i = 0; i < operation->output_count && status == RPS_OK; i++) {
        status = keep_one(stream, task, &operation->outputs[i]);
    }
    return status;
}

/* --- giving it ---------------------------------------------------------------
 */

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
    status = keep_tensors(stream, task, operation);
    if (status == RPS_OK) {
        status = find_workspace(stream, operation->workspace_bytes, task);
    }
    if (status != RPS_OK) {
        rps_npu_task_free(&task->task);
        return status;
    }
    if (rps_npu_stream_captures(stream) || rps_profile_is_on()) {
        task->shapes = make_shapes(operation);
    }
    rps_npu_stream_give(stream, &task->task);
    return RPS_OK;
}
