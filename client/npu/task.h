/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stream is given: one block of memory each, made by the caller's
 * thread, done and freed by the stream's; or kept by a compiled step, which
 * has it done many times.
 */
#ifndef RPS_NPU_TASK_H
#define RPS_NPU_TASK_H

#include "client/npu/operation.h"

#include <stdbool.h>

struct rps_npu_mark;
struct rps_npu_task;

/** What the device does meanwhile. */
enum rps_npu_use {
    RPS_NPU_USE_AS_BEFORE = 0, /* it takes no time */
    RPS_NPU_USE_BUSY,          /* a kernel or a copy */
    RPS_NPU_USE_IDLE           /* the stream waits, or the host works */
};

/** As what rps_npu_step_describe() counts it. */
enum rps_npu_sort {
    RPS_NPU_SORT_NONE = 0,
    RPS_NPU_SORT_OPERATION,
    RPS_NPU_SORT_COPY,
    RPS_NPU_SORT_CALL,
    RPS_NPU_SORTS
};

/** What is done with a task, by kind. */
struct rps_npu_task_kind {
    /**
     * On the stream's thread. Errors: what fails the stream; words are the
     * thread's (rps_npu_error).
     */
    rps_status (*run)(rps_npu_stream *stream, struct rps_npu_task *task);
    /** NULL: nothing but the block. Also of tasks that were never run. */
    void (*finish)(struct rps_npu_task *task);
    enum rps_npu_use use;
    enum rps_npu_sort sort;
    bool launch; /* giving it is a launch: counted, and takes its latency */
    bool failed; /* run on a failed stream, too */
    bool kept;   /* frees itself, at the end of its run */
};

struct rps_npu_task {
    struct rps_npu_task *next; /* in its stream, or in its step */
    const struct rps_npu_task_kind *kind;
};

/** With its block. NULL is allowed. */
void rps_npu_task_free(struct rps_npu_task *task);

#endif /* RPS_NPU_TASK_H */
