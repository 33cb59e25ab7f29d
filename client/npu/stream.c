/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/stream.h"

#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/pause.h"
#include "client/npu/pool.h"
#include "client/npu/spans.h"
#include "client/npu/workspace.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t streams; /* made in this process */

/* --- the thread ----------------------------------------------------------- */

void
rps_npu_stream_use(rps_npu_stream *stream, enum rps_npu_use use)
{
    const bool busy = use == RPS_NPU_USE_BUSY;

    if (use == RPS_NPU_USE_AS_BEFORE || stream->busy == busy) {
        return;
    }
    stream->busy = busy;
    if (busy) {
        rps_npu_tally_busy(&stream->npu->tally);
    } else {
        rps_npu_tally_idle(&stream->npu->tally);
    }
}

rps_status
rps_npu_stream_do(rps_npu_stream *stream, struct rps_npu_task *task)
{
    rps_npu_stream_use(stream, task->kind->use);
    return task->kind->run(stream, task);
}

static void
keep_failure(rps_npu_stream *stream, rps_status status)
{
    pthread_mutex_lock(&stream->lock);
    (void)rps_fail(&stream->words, status, "%s", rps_npu_error());
    pthread_mutex_unlock(&stream->lock);
    stream->failure = status;
}

/* What follows a failure is not done, but for marks: others wait for them. */
static void
do_one(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct rps_npu_task_kind *kind = task->kind;

    if (stream->failure == RPS_OK || kind->failed) {
        const rps_status status = rps_npu_stream_do(stream, task);

        if (status != RPS_OK && stream->failure == RPS_OK) {
            keep_failure(stream, status);
        }
        if (kind->kept) {
            return;
        }
    }
    rps_npu_task_free(task);
}

static void
do_all(rps_npu_stream *stream, struct rps_npu_task *task)
{
    uint64_t done = stream->done.value;

    while (task != NULL) {
        struct rps_npu_task *next = task->next;

        do_one(stream, task);
        if (next == NULL) {
            rps_npu_stream_use(stream, RPS_NPU_USE_IDLE);
        }
        rps_npu_gate_raise(&stream->done, ++done);
        task = next;
    }
}

static bool
has_more(void *context)
{
    const rps_npu_stream *stream = context;

    rps_npu_relax();
    return stream->given > stream->done.value;
}

/* The whole list; NULL: the stream ends. */
static struct rps_npu_task *
take_all(rps_npu_stream *stream)
{
    struct rps_npu_task *first = NULL;

    if (!has_more(stream)) {
        (void)rps_spin(&stream->spin, has_more, stream);
    }
    pthread_mutex_lock(&stream->lock);
    while (stream->first == NULL && !stream->ends) {
        stream->sleeps = true;
        pthread_cond_wait(&stream->given_more, &stream->lock);
        stream->sleeps = false;
    }
    first = stream->first;
    stream->first = NULL;
    stream->last = NULL;
    pthread_mutex_unlock(&stream->lock);
    return first;
}

static void *
run_stream(void *context)
{
    rps_npu_stream *stream = context;
    struct rps_npu_task *list = NULL;

    while ((list = take_all(stream)) != NULL) {
        do_all(stream, list);
    }
    return NULL;
}

/* --- giving it work ------------------------------------------------------- */

void
rps_npu_task_free(struct rps_npu_task *task)
{
    if (task != NULL && task->kind->finish != NULL) {
        task->kind->finish(task);
    }
    free(task);
}

void
rps_npu_stream_post(rps_npu_stream *stream, struct rps_npu_task *task)
{
    bool wake = false;

    task->next = NULL;
    pthread_mutex_lock(&stream->lock);
    if (stream->last == NULL) {
        stream->first = task;
    } else {
        stream->last->next = task;
    }
    stream->last = task;
    stream->given++;
    wake = stream->sleeps;
    pthread_mutex_unlock(&stream->lock);
    if (wake) {
        pthread_cond_signal(&stream->given_more);
    }
}

void
rps_npu_stream_make_room(rps_npu_stream *stream)
{
    const uint64_t given = stream->given;

    if (given >= RPS_NPU_STREAM_TASKS_MAX) {
        rps_npu_gate_wait(&stream->done, given - RPS_NPU_STREAM_TASKS_MAX + 1);
    }
}

void
rps_npu_stream_give(rps_npu_stream *stream, struct rps_npu_task *task)
{
    if (rps_npu_stream_captures(stream)) {
        rps_npu_capture_note(stream, task);
        return;
    }
    if (task->kind->launch) {
        rps_npu_launch_pause(stream->npu, "launch");
    }
    rps_npu_stream_make_room(stream);
    rps_npu_stream_post(stream, task);
}

/* --- what its user sees --------------------------------------------------- */

static rps_status
failure_of(rps_npu_stream *stream, const char *operation)
{
    const rps_status status = (rps_status)stream->failure;
    struct rps_error words;

    if (status == RPS_OK) {
        return RPS_OK;
    }
    pthread_mutex_lock(&stream->lock);
    words = stream->words;
    pthread_mutex_unlock(&stream->lock);
    return rps_npu_fail(status,
            "npu%" PRIu32 " stream \"%s\": %s: the stream failed (%s): %s",
            stream->npu->id, stream->name, operation, rps_status_str(status),
            words.text);
}

rps_status
rps_npu_stream_ready(rps_npu_stream *stream, const char *operation)
{
    if (stream == NULL) {
        return rps_npu_fail(RPS_E_INVAL, "%s: no stream is given", operation);
    }
    return failure_of(stream, operation);
}

rps_status
rps_npu_stream_may_wait(rps_npu_stream *stream, const char *operation)
{
    rps_status status = rps_npu_stream_ready(stream, operation);

    if (status == RPS_OK && rps_npu_stream_captures(stream)) {
        status = rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": %s: it captures, and no step "
                "can do that",
                stream->npu->id, stream->name, operation);
        rps_npu_capture_break(stream->capture);
    }
    return status;
}

static rps_status
start_thread(rps_npu_stream *stream)
{
    char name[16]; /* the system's limit */
    sigset_t all;
    sigset_t before;
    int error = 0;

    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&stream->thread, NULL, run_stream, stream);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return rps_npu_fail(RPS_E_NOMEM,
                "npu%" PRIu32 " stream \"%s\": no thread: %s", stream->npu->id,
                stream->name, strerror(error));
    }
    (void)snprintf(name, sizeof(name), "npu%" PRIu32 " %.9s", stream->npu->id,
            stream->name);
    (void)pthread_setname_np(stream->thread, name);
    return RPS_OK;
}

static void
free_stream(rps_npu_stream *stream)
{
    rps_npu_gate_finish(&stream->done);
    pthread_cond_destroy(&stream->given_more);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

static void
link_stream(rps_npu_stream *stream)
{
    rps_npu *npu = stream->npu;

    pthread_mutex_lock(&npu->lock);
    stream->index = npu->streams_made++;
    stream->next = npu->streams;
    npu->streams = stream;
    pthread_mutex_unlock(&npu->lock);
}

static void
unlink_stream(rps_npu_stream *stream)
{
    rps_npu *npu = stream->npu;
    rps_npu_stream **at = &npu->streams;

    pthread_mutex_lock(&npu->lock);
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
    pthread_mutex_unlock(&npu->lock);
}

rps_status
rps_npu_stream_create(
        rps_npu *npu, const char *name, rps_npu_stream **stream_out)
{
    rps_npu_stream *stream = NULL;
    rps_status status = RPS_OK;

    if (stream_out == NULL) {
        return rps_npu_missing("create a stream", "stream_out");
    }
    *stream_out = NULL;
    if (npu == NULL) {
        return rps_npu_missing("create a stream", "device");
    }
    if (name == NULL || name[0] == '\0') {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": create a stream: it has no name", npu->id);
    }
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL) {
        return rps_npu_nomem("create a stream");
    }
    stream->npu = npu;
    stream->number = ++streams;
    (void)snprintf(stream->name, sizeof(stream->name), "%s", name);
    (void)snprintf(stream->track, sizeof(stream->track),
            "npu%" PRIu32 " stream %s", npu->id, stream->name);
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->given_more, NULL);
    rps_npu_gate_init(&stream->done);
    rps_spin_init(&stream->spin);
    status = start_thread(stream);
    if (status != RPS_OK) {
        free_stream(stream);
        return status;
    }
    link_stream(stream);
    *stream_out = stream;
    return RPS_OK;
}

void
rps_npu_stream_destroy(rps_npu_stream *stream)
{
    if (stream == NULL) {
        return;
    }
    rps_npu_capture_leave(stream);
    rps_npu_stream_drain(stream);
    unlink_stream(stream);
    pthread_mutex_lock(&stream->lock);
    stream->ends = true;
    pthread_mutex_unlock(&stream->lock);
    pthread_cond_signal(&stream->given_more);
    pthread_join(stream->thread, NULL);
    rps_npu_workspace_finish(stream);
    rps_pool_forget_stream(stream->npu->pool, stream);
    free_stream(stream);
}

rps_npu *
rps_npu_stream_device(const rps_npu_stream *stream)
{
    return stream->npu;
}

uint64_t
rps_npu_stream_position(const rps_npu_stream *stream)
{
    return stream->given;
}

bool
rps_npu_stream_passed(const rps_npu_stream *stream, uint64_t position)
{
    return rps_npu_gate_reached(&stream->done, position);
}

void
rps_npu_stream_drain(rps_npu_stream *stream)
{
    rps_npu_gate_wait(&stream->done, stream->given);
}

rps_status
rps_npu_stream_synchronize(rps_npu_stream *stream)
{
    const char *operation = "synchronize";
    uint64_t start = 0;
    rps_status status = rps_npu_stream_may_wait(stream, operation);

    if (status != RPS_OK) {
        return status;
    }
    start = rps_npu_span_start();
    rps_npu_stream_drain(stream);
    if (start != 0) {
        rps_npu_span_end(start,
                (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                        .type = "synchronize",
                        .name = stream->name,
                        .track = RPS_NPU_HOST_TRACK});
    }
    return failure_of(stream, operation);
}

rps_status
rps_npu_stream_query(rps_npu_stream *stream, bool *done_out)
{
    rps_status status = RPS_OK;

    if (done_out == NULL) {
        return rps_npu_missing("query", "done_out");
    }
    *done_out = false;
    status = rps_npu_stream_may_wait(stream, "query");
    if (status != RPS_OK) {
        return status;
    }
    *done_out = rps_npu_stream_passed(stream, stream->given);
    return failure_of(stream, "query");
}

void
rps_npu_stream_reset(rps_npu_stream *stream)
{
    rps_npu_stream_drain(stream);
    stream->failure = RPS_OK;
}

void
rps_npu_wait_idle(rps_npu *npu)
{
    pthread_mutex_lock(&npu->lock);
    for (rps_npu_stream *s = npu->streams; s != NULL; s = s->next) {
        rps_npu_stream_drain(s);
    }
    pthread_mutex_unlock(&npu->lock);
}

rps_status
rps_npu_synchronize(rps_npu *npu)
{
    rps_status status = RPS_OK;

    if (npu == NULL) {
        return rps_npu_missing("synchronize the device", "device");
    }
    pthread_mutex_lock(&npu->lock);
    for (rps_npu_stream *s = npu->streams; s != NULL; s = s->next) {
        rps_npu_stream_drain(s);
    }
    for (rps_npu_stream *s = npu->streams; s != NULL && status == RPS_OK;
            s = s->next) {
        status = failure_of(s, "synchronize the device");
    }
    pthread_mutex_unlock(&npu->lock);
    return status;
}
