/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/capture.h"

#include "client/npu/edge.h"
#include "client/npu/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t captures; /* begun in this process */

bool
rps_npu_stream_captures(const rps_npu_stream *stream)
{
    return stream->capture != NULL;
}

void
rps_npu_capture_break(struct rps_npu_capture *capture)
{
    if (!capture->broken) {
        capture->broken = true;
        (void)rps_fail(&capture->words, RPS_E_INVAL, "%s", rps_npu_error());
    }
}

/* Which lane of its capture the stream is; lane_count: none. */
static uint32_t
lane_of(const struct rps_npu_capture *capture, const rps_npu_stream *stream)
{
    uint32_t l = 0;

    while (l < capture->step->lane_count &&
            capture->step->lanes[l].stream != stream) {
        l++;
    }
    return l;
}

uint64_t
rps_npu_capture_place(const rps_npu_stream *stream)
{
    const struct rps_npu_capture *capture = stream->capture;

    return capture->works[lane_of(capture, stream)] + 1;
}

bool
rps_npu_capture_follows(const rps_npu_stream *owner,
        const rps_npu_stream *stream, uint64_t place)
{
    const struct rps_npu_capture *capture = owner->capture;
    uint32_t lane;

    if (capture == NULL) {
        return false;
    }
    lane = lane_of(capture, stream);
    return lane < capture->step->lane_count &&
           capture->known[lane_of(capture, owner)][lane] >= place;
}

struct rps_npu_lane *
rps_npu_capture_lane(rps_npu_stream *stream)
{
    struct rps_npu_capture *capture = stream->capture;

    return &capture->step->lanes[lane_of(capture, stream)];
}

static void
count_task(struct rps_npu_step *step, enum rps_npu_sort sort)
{
    step->info.operations += sort == RPS_NPU_SORT_OPERATION;
    step->info.copies += sort == RPS_NPU_SORT_COPY;
    step->info.calls += sort == RPS_NPU_SORT_CALL;
}

void
rps_npu_capture_note(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct rps_npu_capture *capture = stream->capture;
    const uint32_t lane = lane_of(capture, stream);

    rps_npu_lane_add(&capture->step->lanes[lane], task);
    count_task(capture->step, task->kind->sort);
    capture->known[lane][lane] = ++capture->works[lane];
}

/* --- marks ------------------------------------------------------------------
 */

rps_status
rps_npu_capture_record(rps_npu_stream *stream, struct rps_npu_mark *mark)
{
    struct rps_npu_capture *capture = stream->capture;
    const uint32_t lane = lane_of(capture, stream);
    struct rps_npu_captured_mark *captured = calloc(1, sizeof(*captured));
    struct rps_npu_task *task = NULL;

    if (captured == NULL) {
        return rps_npu_nomem("record an event");
    }
    captured->number = capture->number;
    captured->edge = rps_npu_step_add_edge(capture->step);
    memcpy(captured->known, capture->known[lane], sizeof(captured->known));
    if (captured->edge != NULL) {
        task = rps_npu_edge_reach(captured->edge);
    }
    if (task == NULL) {
        free(captured);
        return rps_npu_nomem("record an event");
    }
    rps_npu_lane_add(&capture->step->lanes[lane], task);
    mark->captured = captured;
    return RPS_OK;
}

/* Of the device's open captures; NULL: it has ended. */
static struct rps_npu_capture *
find_capture(rps_npu *npu, uint64_t number)
{
    struct rps_npu_capture *capture = NULL;

    pthread_mutex_lock(&npu->lock);
    capture = npu->captures;
    while (capture != NULL && capture->number != number) {
        capture = capture->next;
    }
    pthread_mutex_unlock(&npu->lock);
    return capture;
}

static rps_status
join(rps_npu_stream *stream, struct rps_npu_capture *capture,
        struct rps_npu_edge *start)
{
    struct rps_npu_step *step = capture->step;
    struct rps_npu_lane *lane = &step->lanes[step->lane_count];

    if (step->lane_count == RPS_NPU_STEP_STREAMS_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": wait for an event: a capture "
                "has %u streams at most",
                stream->npu->id, stream->name, RPS_NPU_STEP_STREAMS_MAX);
    }
    lane->stream = stream;
    lane->start = start;
    step->lane_count++;
    stream->capture = capture;
    return RPS_OK;
}

static rps_status
refuse_foreign(rps_npu_stream *stream, const char *why)
{
    return rps_npu_fail(RPS_E_INVAL,
            "npu%" PRIu32 " stream \"%s\": wait for an event: %s",
            stream->npu->id, stream->name, why);
}

rps_status
rps_npu_capture_wait(rps_npu_stream *stream, const struct rps_npu_mark *mark)
{
    const struct rps_npu_captured_mark *captured = mark->captured;
    struct rps_npu_capture *capture =
            find_capture(stream->npu, captured->number);
    struct rps_npu_capture *own = stream->capture;
    struct rps_npu_task *task = NULL;
    rps_status status = RPS_OK;
    uint32_t lane = 0;

    if (capture == NULL) {
        return refuse_foreign(stream,
                "it was recorded in a capture that has ended: record it again");
    }
    if (own != NULL && own != capture) {
        return refuse_foreign(
                stream, "it was recorded in another stream's capture");
    }
    task = rps_npu_edge_await(captured->edge);
    if (task == NULL) {
        return rps_npu_nomem("wait for an event");
    }
    if (own == NULL) {
        status = join(stream, capture, captured->edge);
        if (status != RPS_OK) {
            free(task);
            return status;
        }
    }
    lane = lane_of(capture, stream);
    rps_npu_lane_add(&capture->step->lanes[lane], task);
    for (uint32_t l = 0; l < RPS_NPU_STEP_STREAMS_MAX; l++) {
        if (captured->known[l] > capture->known[lane][l]) {
            capture->known[lane][l] = captured->known[l];
        }
    }
    return RPS_OK;
}

/* --- begin and end
 * ------------------------------------------------------------ */

static void
enter(rps_npu *npu, struct rps_npu_capture *capture)
{
    pthread_mutex_lock(&npu->lock);
    capture->next = npu->captures;
    npu->captures = capture;
    pthread_mutex_unlock(&npu->lock);
}

static void
leave(rps_npu *npu, struct rps_npu_capture *capture)
{
    struct rps_npu_capture **at = &npu->captures;

    pthread_mutex_lock(&npu->lock);
    while (*at != capture) {
        at = &(*at)->next;
    }
    *at = capture->next;
    pthread_mutex_unlock(&npu->lock);
}

rps_status
rps_npu_capture_begin(rps_npu_stream *stream)
{
    const char *operation = "begin a capture";
    struct rps_npu_capture *capture = NULL;
    rps_status status = rps_npu_stream_ready(stream, operation);

    if (status != RPS_OK) {
        return status;
    }
    if (stream->capture != NULL) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": %s: it captures already",
                stream->npu->id, stream->name, operation);
    }
    capture = calloc(1, sizeof(*capture));
    if (capture != NULL) {
        capture->step = rps_npu_step_create(stream);
    }
    if (capture == NULL || capture->step == NULL) {
        free(capture);
        return rps_npu_nomem(operation);
    }
    capture->number = ++captures;
    enter(stream->npu, capture);
    stream->capture = capture;
    return RPS_OK;
}

/* The capture ends; its step is the caller's. */
static struct rps_npu_step *
take_step(struct rps_npu_capture *capture)
{
    struct rps_npu_step *step = capture->step;

    for (uint32_t l = 0; l < step->lane_count; l++) {
        if (step->lanes[l].stream != NULL) {
            step->lanes[l].stream->capture = NULL;
        }
    }
    leave(step->npu, capture);
    free(capture);
    rps_pool_private_close(step->npu->pool, step->memory);
    step->info.memory_bytes =
            rps_pool_private_bytes(step->npu->pool, step->memory);
    return step;
}

static rps_status
check_joined(const struct rps_npu_capture *capture)
{
    const struct rps_npu_step *step = capture->step;

    if (capture->broken) {
        return rps_npu_fail(RPS_E_INVAL, "end a capture: it is void, since: %s",
                capture->words.text);
    }
    for (uint32_t l = 1; l < step->lane_count; l++) {
        if (capture->known[0][l] < capture->works[l]) {
            return rps_npu_fail(RPS_E_INVAL,
                    "npu%" PRIu32 " stream \"%s\": end a capture: it does not "
                    "wait for all of stream \"%s\": record an event there and "
                    "wait for it before the end",
                    step->npu->id, step->lanes[0].stream->name,
                    step->lanes[l].stream->name);
        }
    }
    return RPS_OK;
}

/* One block for all lanes: their kernels may run at the same time. Not of the
 * step's own memory: what was freed there is used by a part of its kernels,
 * this by all of them. What the block was before is over when they begin, on
 * whichever stream. */
static rps_status
make_workspaces(struct rps_npu_step *step)
{
    const uint64_t align = 512;
    uint64_t bytes = 0;
    uint64_t offset = 0;
    rps_status status = RPS_OK;

    for (uint32_t l = 0; l < step->lane_count; l++) {
        const uint64_t want = step->lanes[l].workspace_bytes;

        bytes += (want + align - 1) / align * align;
    }
    step->info.workspace_bytes = bytes;
    if (bytes == 0) {
        return RPS_OK;
    }
    status = rps_npu_pool_alloc(step->lanes[0].stream, bytes, &step->workspace);
    if (status != RPS_OK) {
        return status;
    }
    rps_npu_stream_drain(step->lanes[0].stream);
    for (uint32_t l = 0; l < step->lane_count; l++) {
        struct rps_npu_lane *lane = &step->lanes[l];

        lane->workspace =
                (char *)rps_npu_inside(step->npu, step->workspace) + offset;
        offset += (lane->workspace_bytes + align - 1) / align * align;
    }
    return RPS_OK;
}

rps_status
rps_npu_capture_end(rps_npu_stream *stream, rps_npu_step **step_out)
{
    struct rps_npu_capture *capture = NULL;
    struct rps_npu_step *step = NULL;
    rps_status status = RPS_OK;

    if (step_out == NULL) {
        return rps_npu_missing("end a capture", "step_out");
    }
    *step_out = NULL;
    if (stream == NULL) {
        return rps_npu_missing("end a capture", "stream");
    }
    capture = stream->capture;
    if (capture == NULL || capture->step->lanes[0].stream != stream) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": end a capture: it began none",
                stream->npu->id, stream->name);
    }
    status = check_joined(capture);
    step = take_step(capture);
    if (status == RPS_OK) {
        status = make_workspaces(step);
    }
    if (status != RPS_OK) {
        rps_npu_step_destroy(step);
        return status;
    }
    rps_npu_tally_add(&step->npu->tally, RPS_NPU_CAPTURES, 1);
    *step_out = step;
    return RPS_OK;
}

void
rps_npu_capture_leave(rps_npu_stream *stream)
{
    struct rps_npu_capture *capture = stream->capture;

    if (capture == NULL) {
        return;
    }
    if (capture->step->lanes[0].stream == stream) {
        rps_npu_step_destroy(take_step(capture));
        return;
    }
    (void)rps_npu_fail(RPS_E_INVAL,
            "npu%" PRIu32 " stream \"%s\" was destroyed", stream->npu->id,
            stream->name);
    rps_npu_capture_break(capture);
    rps_npu_capture_lane(stream)->stream = NULL;
}
