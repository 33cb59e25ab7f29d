/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/operation.h"

#include "base/text.h"
#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/keep.h"
#include "client/npu/spans.h"
#include "client/npu/watch.h"
#include "client/npu/workspace.h"

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* One block: the task, the kernel's arguments, the name. What keeps the memory
 * of its tensors is not the task (keep.h). */
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
    char *shapes;                  /* NULL: nobody asked when it was given */
    struct rps_npu_record *record; /* likewise */
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
    const bool watched =
            rps_npu_is_watched(stream->npu) && kernel->record != NULL;
    void *token = NULL;
    uint64_t start;

    if (watched) {
        token = rps_npu_record_before(stream->npu, kernel->record);
    }
    start = rps_npu_span_start();
    kernel->kernel(kernel->args, *kernel->workspace);
    rps_npu_tally_add(&stream->npu->tally, RPS_NPU_OPERATIONS, 1);
    if (start != 0) {
        show(stream, kernel, start);
    }
    if (watched) {
        rps_npu_record_after(stream->npu, kernel->record, token);
    }
    return RPS_OK;
}

static void
finish_kernel(struct rps_npu_task *task)
{
    struct kernel_task *kernel = (struct kernel_task *)task;

    free(kernel->shapes);
    rps_npu_record_free(kernel->record);
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
    status = rps_npu_keep(
            stream, operation->type, operation->inputs, operation->input_count);
    if (status == RPS_OK) {
        status = rps_npu_keep(stream, operation->type, operation->outputs,
                operation->output_count);
    }
    if (status != RPS_OK) {
        return status;
    }
    task = make_task(operation);
    if (task == NULL) {
        return rps_npu_nomem(operation->type);
    }
    status = find_workspace(stream, operation->workspace_bytes, task);
    if (status != RPS_OK) {
        rps_npu_task_free(&task->task);
        return status;
    }
    if (rps_npu_stream_captures(stream) || rps_profile_is_on()) {
        task->shapes = make_shapes(operation);
    }
    if (rps_npu_stream_captures(stream) || rps_npu_is_watched(stream->npu)) {
        task->record = rps_npu_record_make(stream, operation, task->name);
        if (task->record == NULL) {
            rps_npu_task_free(&task->task);
            return rps_npu_nomem(operation->type);
        }
    }
    rps_npu_stream_give(stream, &task->task);
    return RPS_OK;
}

/* --- in a step
 * ----------------------------------------------------------------- */

rps_status
rps_npu_step_watched(
        const rps_npu_step *step, uint64_t *operations_out, uint64_t *bytes_out)
{
    if (operations_out == NULL || bytes_out == NULL) {
        return rps_npu_missing("step_watched",
                operations_out == NULL ? "operations_out" : "bytes_out");
    }
    *operations_out = 0;
    *bytes_out = 0;
    if (step == NULL) {
        return rps_npu_missing("step_watched", "step");
    }
    for (uint32_t l = 0; l < step->lane_count; l++) {
        const struct rps_npu_task *task = step->lanes[l].first;

        for (; task != NULL; task = task->next) {
            if (task->kind == &running) {
                const struct kernel_task *kernel =
                        (const struct kernel_task *)task;

                *operations_out += 1;
                *bytes_out += rps_npu_record_bytes(kernel->record);
            }
        }
    }
    return RPS_OK;
}
