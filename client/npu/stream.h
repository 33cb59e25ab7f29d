/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: a list of tasks and the thread that does them, in order.
 *
 *   given - done = tasks that wait or run
 *
 * The thread takes the whole list under the lock and does it without; `done`
 * rises after each task. Idle, it looks for a moment (base/spin.h) and sleeps.
 */
#ifndef RPS_NPU_STREAM_H
#define RPS_NPU_STREAM_H

#include "base/error.h"
#include "base/spin.h"
#include "client/npu/device.h"
#include "client/npu/gate.h"
#include "client/npu/task.h"

#define RPS_NPU_STREAM_TASKS_MAX 4096u /* given and not done: callers wait */

struct rps_npu_capture;

struct rps_npu_stream {
    rps_npu *npu;
    uint64_t number; /* of the process's streams, from 1 */
    uint32_t index;  /* of the device's, from 0 */
    char name[RPS_NPU_NAME_BYTES];
    char track[RPS_NPU_NAME_BYTES + 16]; /* "npu0 stream compute" */
    struct rps_npu_stream *next;         /* npu->lock */

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t given_more;
    struct rps_npu_task *first; /* lock */
    struct rps_npu_task *last;  /* lock */
    bool sleeps;                /* lock */
    bool ends;                  /* lock */
    _Atomic uint64_t given;     /* written under lock */
    struct rps_npu_gate done;   /* raised by the thread */
    struct rps_spin spin;       /* the thread's */
    bool busy;                  /* the thread's: the device counts it */

    _Atomic int failure;    /* rps_status; set by the thread */
    struct rps_error words; /* lock; of the failure */

    /* NULL: none. Its user's; others only look whether there is one */
    struct rps_npu_capture *_Atomic capture;
    void *workspace;          /* its user's: device memory */
    uint64_t workspace_bytes; /* its user's */
};

/**
 * Does this stream take work? `operation` begins the words.
 *
 * Errors: the first failure of its work.
 */
rps_status rps_npu_stream_ready(rps_npu_stream *stream, const char *operation);

/** Ready, and not captured: `operation` waits, which no step can.
 * Errors: INVAL; the capture is void. */
rps_status rps_npu_stream_may_wait(
        rps_npu_stream *stream, const char *operation);

/** Give it a task, which is the stream's from then on: noted, where it is
 * captured. Waits where it has too many, and as long as a launch takes. */
void rps_npu_stream_give(rps_npu_stream *stream, struct rps_npu_task *task);

/** Wait until it has not too many tasks. */
void rps_npu_stream_make_room(rps_npu_stream *stream);

/** At once, and not noted. Threads: any. */
void rps_npu_stream_post(rps_npu_stream *stream, struct rps_npu_task *task);

/** On the stream's thread: what the device does from now on. */
void rps_npu_stream_use(rps_npu_stream *stream, enum rps_npu_use use);

/** Do one task on the stream's thread. Errors: its own. */
rps_status rps_npu_stream_do(rps_npu_stream *stream, struct rps_npu_task *task);

/**
 * A place in a stream, without a task: all that it was given until now. For
 * who only asks, now and then, whether that is done.
 *
 * Threads: any. What is captured does not count.
 */
uint64_t rps_npu_stream_position(const rps_npu_stream *stream);
bool rps_npu_stream_passed(const rps_npu_stream *stream, uint64_t position);

/** Wait until it has done what it was given until now. */
void rps_npu_stream_drain(rps_npu_stream *stream);

/** The same of all streams of a device. */
void rps_npu_wait_idle(rps_npu *npu);

#endif /* RPS_NPU_STREAM_H */
