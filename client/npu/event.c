/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/event.h"

#include "base/clock.h"
#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/spans.h"
#include "client/npu/stream.h"

#include <inttypes.h>
#include <stdlib.h>

/* Behind a pointer: who has a const event may wait for it. */
struct slot {
    pthread_mutex_t lock;
    struct rps_npu_mark *mark; /* lock; NULL: never recorded */
};

struct rps_npu_event {
    rps_npu *npu;
    struct slot *slot;
};

struct mark_task {
    struct rps_npu_task task;
    struct rps_npu_mark *mark; /* holds it */
};

struct rps_npu_mark *
rps_npu_mark_create(const rps_npu_stream *stream)
{
    struct rps_npu_mark *mark = calloc(1, sizeof(*mark));

    if (mark != NULL) {
        mark->holders = 1;
        mark->stream = stream;
        rps_npu_gate_init(&mark->gate);
    }
    return mark;
}

struct rps_npu_mark *
rps_npu_mark_hold(struct rps_npu_mark *mark)
{
    mark->holders++;
    return mark;
}

void
rps_npu_mark_drop(struct rps_npu_mark *mark)
{
    if (mark != NULL && --mark->holders == 0) {
        rps_npu_gate_finish(&mark->gate);
        free(mark->captured);
        free(mark);
    }
}

/* --- its tasks ------------------------------------------------------------ */

static rps_status
reach(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct rps_npu_mark *mark = ((struct mark_task *)task)->mark;

    mark->ns = rps_clock_ns();
    rps_npu_gate_raise(&mark->gate, 1);
    return RPS_OK;
}

static rps_status
await(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const uint64_t start = rps_npu_span_start();

    rps_npu_gate_wait(&((struct mark_task *)task)->mark->gate, 1);
    if (start != 0) {
        rps_npu_span_end(start,
                (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                        .type = "wait_for_stream",
                        .track = stream->track});
    }
    return RPS_OK;
}

static void
finish_mark_task(struct rps_npu_task *task)
{
    rps_npu_mark_drop(((struct mark_task *)task)->mark);
}

static const struct rps_npu_task_kind reaching = {
        .run = reach, .finish = finish_mark_task, .failed = true};
static const struct rps_npu_task_kind awaiting = {
        .run = await,
        .finish = finish_mark_task,
        .use = RPS_NPU_USE_IDLE,
};

/* Takes a hold of the mark; false: no memory. */
static bool
give_mark_task(rps_npu_stream *stream, const struct rps_npu_task_kind *kind,
        struct rps_npu_mark *mark)
{
    struct mark_task *task = calloc(1, sizeof(*task));

    if (task == NULL) {
        return false;
    }
    task->task.kind = kind;
    task->mark = rps_npu_mark_hold(mark);
    rps_npu_stream_give(stream, &task->task);
    return true;
}

/* --- the event ------------------------------------------------------------ */

rps_status
rps_npu_event_create(rps_npu *npu, rps_npu_event **event_out)
{
    rps_npu_event *event = NULL;

    if (event_out == NULL) {
        return rps_npu_missing("create an event", "event_out");
    }
    *event_out = NULL;
    if (npu == NULL) {
        return rps_npu_missing("create an event", "device");
    }
    event = calloc(1, sizeof(*event));
    if (event != NULL) {
        event->npu = npu;
        event->slot = calloc(1, sizeof(*event->slot));
    }
    if (event == NULL || event->slot == NULL) {
        free(event);
        return rps_npu_nomem("create an event");
    }
    pthread_mutex_init(&event->slot->lock, NULL);
    *event_out = event;
    return RPS_OK;
}

void
rps_npu_event_destroy(rps_npu_event *event)
{
    if (event != NULL) {
        rps_npu_mark_drop(event->slot->mark);
        pthread_mutex_destroy(&event->slot->lock);
        free(event->slot);
        free(event);
    }
}

/* The caller's to drop; NULL: never recorded. */
static struct rps_npu_mark *
hold_mark(const rps_npu_event *event)
{
    struct rps_npu_mark *mark = NULL;

    pthread_mutex_lock(&event->slot->lock);
    mark = event->slot->mark;
    if (mark != NULL) {
        rps_npu_mark_hold(mark);
    }
    pthread_mutex_unlock(&event->slot->lock);
    return mark;
}

/* Takes the mark over. */
static void
set_mark(rps_npu_event *event, struct rps_npu_mark *mark)
{
    struct rps_npu_mark *before = NULL;

    pthread_mutex_lock(&event->slot->lock);
    before = event->slot->mark;
    event->slot->mark = mark;
    pthread_mutex_unlock(&event->slot->lock);
    rps_npu_mark_drop(before);
}

static rps_status
check_event(const rps_npu_event *event, const rps_npu_stream *stream,
        const char *operation)
{
    if (event == NULL) {
        return rps_npu_fail(RPS_E_INVAL, "%s: no event is given", operation);
    }
    if (stream != NULL && event->npu != stream->npu) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": %s: the event is npu%" PRIu32
                "'s",
                stream->npu->id, stream->name, operation, event->npu->id);
    }
    return RPS_OK;
}

/* May the stream be given something with the event? */
static rps_status
check_both(const rps_npu_event *event, rps_npu_stream *stream,
        const char *operation)
{
    rps_status status = rps_npu_stream_ready(stream, operation);

    return status == RPS_OK ? check_event(event, stream, operation) : status;
}

static rps_status
put_mark(rps_npu_stream *stream, struct rps_npu_mark *mark)
{
    if (rps_npu_stream_captures(stream)) {
        rps_npu_gate_raise(&mark->gate, 1);
        return rps_npu_capture_record(stream, mark);
    }
    return give_mark_task(stream, &reaching, mark)
                   ? RPS_OK
                   : rps_npu_nomem("record an event");
}

rps_status
rps_npu_event_record(rps_npu_event *event, rps_npu_stream *stream)
{
    const char *operation = "record an event";
    struct rps_npu_mark *mark = NULL;
    rps_status status = check_both(event, stream, operation);

    if (status != RPS_OK) {
        return status;
    }
    mark = rps_npu_mark_create(stream);
    if (mark == NULL) {
        return rps_npu_nomem(operation);
    }
    status = put_mark(stream, mark);
    if (status != RPS_OK) {
        rps_npu_mark_drop(mark);
        return status;
    }
    set_mark(event, mark);
    return RPS_OK;
}

/* Its own marks are behind a stream when it comes to what it is given now. */
static rps_status
wait_for_mark(rps_npu_stream *stream, struct rps_npu_mark *mark)
{
    if (mark->captured != NULL) {
        return rps_npu_capture_wait(stream, mark);
    }
    if (mark->stream == stream || rps_npu_gate_reached(&mark->gate, 1)) {
        return RPS_OK;
    }
    if (rps_npu_stream_captures(stream)) {
        (void)rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": wait for an event: it was "
                "recorded outside the capture, and is not done: wait for it "
                "before",
                stream->npu->id, stream->name);
        rps_npu_capture_break(stream->capture);
        return RPS_E_INVAL;
    }
    return give_mark_task(stream, &awaiting, mark)
                   ? RPS_OK
                   : rps_npu_nomem("wait for an event");
}

rps_status
rps_npu_stream_wait(rps_npu_stream *stream, rps_npu_event *event)
{
    const char *operation = "wait for an event";
    struct rps_npu_mark *mark = NULL;
    rps_status status = check_both(event, stream, operation);

    if (status != RPS_OK) {
        return status;
    }
    mark = hold_mark(event);
    if (mark != NULL) {
        status = wait_for_mark(stream, mark);
        rps_npu_mark_drop(mark);
    }
    return status;
}

bool
rps_npu_event_query(const rps_npu_event *event)
{
    struct rps_npu_mark *mark = hold_mark(event);
    const bool done = mark == NULL || rps_npu_gate_reached(&mark->gate, 1);

    rps_npu_mark_drop(mark);
    return done;
}

void
rps_npu_event_synchronize(const rps_npu_event *event)
{
    struct rps_npu_mark *mark = hold_mark(event);

    if (mark != NULL) {
        rps_npu_gate_wait(&mark->gate, 1);
        rps_npu_mark_drop(mark);
    }
}

/* false: it has no mark that is done. */
static bool
read_time(const rps_npu_event *event, uint64_t *ns_out)
{
    struct rps_npu_mark *mark = hold_mark(event);
    const bool done = mark != NULL && mark->captured == NULL &&
                      rps_npu_gate_reached(&mark->gate, 1);

    *ns_out = done ? mark->ns : 0;
    rps_npu_mark_drop(mark);
    return done;
}

rps_status
rps_npu_event_elapsed(
        const rps_npu_event *from, const rps_npu_event *to, uint64_t *ns_out)
{
    const char *operation = "time between events";
    uint64_t first = 0;
    uint64_t last = 0;
    rps_status status = check_event(from, NULL, operation);

    if (ns_out == NULL) {
        return rps_npu_missing(operation, "ns_out");
    }
    *ns_out = 0;
    if (status == RPS_OK) {
        status = check_event(to, NULL, operation);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (!read_time(from, &first) || !read_time(to, &last)) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": %s: one was not recorded, or is not done: "
                "wait for it first",
                from->npu->id, operation);
    }
    if (last < first) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": %s: the second is %" PRIu64
                " ns before the first",
                from->npu->id, operation, first - last);
    }
    *ns_out = last - first;
    return RPS_OK;
}
