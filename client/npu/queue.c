/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/queue.h"

#include "client/npu/capture.h"
#include "client/npu/copy.h"
#include "client/npu/error.h"
#include "client/npu/pause.h"
#include "client/npu/spans.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PART_ALIGN UINT64_C(512)

struct place {
    struct rps_npu_task task; /* copies the set; given for each put */
    rps_npu_queue *queue;
    char *staging; /* the host's */
    char *inside;  /* the device's */
};

struct rps_npu_queue {
    rps_npu *npu;
    char name[RPS_NPU_NAME_BYTES];
    char figure[RPS_NPU_NAME_BYTES + 32]; /* "npu0 queue input ready" */
    uint32_t depth;
    uint32_t parts;
    uint64_t bytes[RPS_NPU_QUEUE_PARTS_MAX];
    uint64_t offsets[RPS_NPU_QUEUE_PARTS_MAX]; /* in a place */
    uint64_t set_bytes;                        /* the sum of bytes */
    rps_npu_stream *stream;
    void *memory; /* the device's: all places */
    char *staging;
    struct place *places;

    pthread_mutex_t take_lock; /* takes go one after the other */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t put;      /* lock */
    uint64_t ready;    /* lock */
    uint64_t claimed;  /* lock */
    uint64_t taken;    /* lock */
    uint64_t reserved; /* lock; of launches, ever */
    uint64_t expected; /* lock; ever; UINT64_MAX: not said */
    bool ended;        /* lock */
    bool canceled;     /* lock */
};

struct take_task {
    struct rps_npu_task task;
    rps_npu_queue *queue;
    bool in_step;  /* its sets are claimed when the iteration begins */
    bool reserved; /* not in a step: a set is, and was not claimed */
    char *to[];    /* inside; parts of them */
};

/* --- making one -------------------------------------------------------------
 */

static rps_status
check_shape(rps_npu *npu, uint32_t depth, const uint64_t *bytes, uint32_t parts)
{
    if (depth == 0 || depth > RPS_NPU_QUEUE_DEPTH_MAX || parts == 0 ||
            parts > RPS_NPU_QUEUE_PARTS_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 ": create a queue: depth is %" PRIu32
                ", parts %" PRIu32 "; 1 to %u and 1 to %u are allowed",
                npu->id, depth, parts, RPS_NPU_QUEUE_DEPTH_MAX,
                RPS_NPU_QUEUE_PARTS_MAX);
    }
    for (uint32_t p = 0; p < parts; p++) {
        if (bytes[p] == 0 || bytes[p] > npu->memory.capacity) {
            return rps_npu_fail(RPS_E_INVAL,
                    "npu%" PRIu32 ": create a queue: part %" PRIu32
                    " has %" PRIu64 " bytes; 1 to %" PRIu64 " are allowed",
                    npu->id, p, bytes[p], npu->memory.capacity);
        }
    }
    return RPS_OK;
}

/* Returns the bytes of a place. */
static uint64_t
lay_out(rps_npu_queue *queue, const uint64_t *bytes)
{
    uint64_t place_bytes = 0;

    for (uint32_t p = 0; p < queue->parts; p++) {
        queue->bytes[p] = bytes[p];
        queue->offsets[p] = place_bytes;
        queue->set_bytes += bytes[p];
        place_bytes += (bytes[p] + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
    }
    return place_bytes;
}

static void
show_depth(const rps_npu_queue *queue, uint64_t ready)
{
    if (rps_profile_is_on()) {
        rps_profile_figure(queue->figure, rps_clock_ns(), (double)ready);
    }
}

static rps_status
copy_set(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct place *place = (struct place *)task;
    rps_npu_queue *queue = place->queue;
    const uint64_t start = rps_npu_span_start();
    const uint64_t end = rps_npu_copy_begin(
            stream->npu, RPS_NPU_TO_DEVICE, queue->set_bytes);
    uint64_t ready = 0;

    for (uint32_t p = 0; p < queue->parts; p++) {
        memcpy(place->inside + queue->offsets[p],
                place->staging + queue->offsets[p], queue->bytes[p]);
    }
    rps_npu_pause_until(end);
    if (start != 0) {
        rps_npu_span_end(
                start, (struct rps_profile_span){.class = RPS_PROFILE_COPY,
                               .type = "queue_put",
                               .name = queue->name,
                               .track = stream->track,
                               .bytes = queue->set_bytes});
    }
    rps_npu_tally_add(&stream->npu->tally, RPS_NPU_QUEUE_COPIES, 1);
    pthread_mutex_lock(&queue->lock);
    queue->ready++;
    ready = queue->ready - queue->taken;
    rps_npu_tally_most(&stream->npu->tally, RPS_NPU_QUEUE_DEPTH, ready);
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    show_depth(queue, ready);
    return RPS_OK;
}

static const struct rps_npu_task_kind copying_set = {
        .run = copy_set, .use = RPS_NPU_USE_BUSY, .kept = true};

static rps_status
make_places(rps_npu_queue *queue, uint64_t place_bytes)
{
    rps_status status = RPS_OK;

    if (place_bytes > queue->npu->memory.capacity / queue->depth) {
        return rps_npu_fail(RPS_E_NOMEM,
                "npu%" PRIu32 ": create a queue: %" PRIu32 " sets of %" PRIu64
                " bytes are more than the device's memory",
                queue->npu->id, queue->depth, place_bytes);
    }
    queue->places = calloc(queue->depth, sizeof(*queue->places));
    queue->staging = malloc(place_bytes * queue->depth);
    if (queue->places == NULL || queue->staging == NULL) {
        return rps_npu_nomem("create a queue");
    }
    status = rps_npu_malloc(
            queue->npu, place_bytes * queue->depth, &queue->memory);
    if (status != RPS_OK) {
        return status;
    }
    for (uint32_t i = 0; i < queue->depth; i++) {
        const uint64_t offset = place_bytes * i;

        queue->places[i] = (struct place){
                .task = {.kind = &copying_set},
                .queue = queue,
                .staging = queue->staging + offset,
                .inside = (char *)rps_npu_inside(queue->npu, queue->memory) +
                          offset,
        };
    }
    return RPS_OK;
}

static rps_status
make_stream(rps_npu_queue *queue)
{
    char name[RPS_NPU_NAME_BYTES + 16];

    (void)snprintf(name, sizeof(name), "queue %s", queue->name);
    return rps_npu_stream_create(queue->npu, name, &queue->stream);
}

rps_status
rps_npu_queue_create(rps_npu *npu, const char *name, uint32_t depth,
        const uint64_t *bytes, uint32_t parts, rps_npu_queue **queue_out)
{
    rps_npu_queue *queue = NULL;
    rps_status status = RPS_OK;

    if (queue_out == NULL) {
        return rps_npu_missing("create a queue", "queue_out");
    }
    *queue_out = NULL;
    if (npu == NULL || bytes == NULL || name == NULL) {
        return rps_npu_missing("create a queue", npu == NULL ? "device"
                                                 : bytes == NULL
                                                         ? "list of bytes"
                                                         : "name");
    }
    status = check_shape(npu, depth, bytes, parts);
    if (status != RPS_OK) {
        return status;
    }
    queue = calloc(1, sizeof(*queue));
    if (queue == NULL) {
        return rps_npu_nomem("create a queue");
    }
    queue->npu = npu;
    queue->depth = depth;
    queue->parts = parts;
    queue->expected = UINT64_MAX;
    (void)snprintf(queue->name, sizeof(queue->name), "%s",
            name == NULL ? "input" : name);
    (void)snprintf(queue->figure, sizeof(queue->figure),
            "npu%" PRIu32 " queue %s ready", npu->id, queue->name);
    pthread_mutex_init(&queue->take_lock, NULL);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    status = make_places(queue, lay_out(queue, bytes));
    if (status == RPS_OK) {
        status = make_stream(queue);
    }
    if (status != RPS_OK) {
        rps_npu_queue_destroy(queue);
        return status;
    }
    *queue_out = queue;
    return RPS_OK;
}

void
rps_npu_queue_destroy(rps_npu_queue *queue)
{
    if (queue == NULL) {
        return;
    }
    rps_npu_stream_destroy(queue->stream);
    (void)rps_npu_free(queue->npu, queue->memory);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    pthread_mutex_destroy(&queue->take_lock);
    free(queue->places);
    free(queue->staging);
    free(queue);
}

/* --- the input thread's end -------------------------------------------------
 */

/* The place of the next set; NULL: canceled. */
static struct place *
wait_for_place(rps_npu_queue *queue)
{
    const uint64_t start = rps_npu_span_start();
    struct place *place = NULL;
    bool waited = false;

    pthread_mutex_lock(&queue->lock);
    while (queue->put - queue->taken == queue->depth && !queue->canceled) {
        waited = true;
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    if (!queue->canceled) {
        place = &queue->places[queue->put % queue->depth];
    }
    pthread_mutex_unlock(&queue->lock);
    if (start != 0 && waited) {
        rps_npu_span_end(start,
                (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                        .type = "queue_full",
                        .name = queue->name,
                        .track = "input"});
    }
    return place;
}

rps_status
rps_npu_queue_put(rps_npu_queue *queue, const void *const *from)
{
    struct place *place = NULL;

    for (uint32_t p = 0; p < queue->parts; p++) {
        if (from[p] == NULL || rps_npu_is_any_device_address(from[p])) {
            return rps_npu_fail(RPS_E_INVAL,
                    "queue \"%s\": put: part %" PRIu32 ": %p is no memory of "
                    "the host",
                    queue->name, p, from[p]);
        }
    }
    place = wait_for_place(queue);
    if (place == NULL) {
        return rps_npu_fail(RPS_E_CANCELED,
                "queue \"%s\": put: the queue was canceled", queue->name);
    }
    for (uint32_t p = 0; p < queue->parts; p++) {
        memcpy(place->staging + queue->offsets[p], from[p], queue->bytes[p]);
    }
    pthread_mutex_lock(&queue->lock);
    queue->put++;
    pthread_mutex_unlock(&queue->lock);
    rps_npu_stream_post(queue->stream, &place->task);
    return RPS_OK;
}

static void
change(rps_npu_queue *queue, bool *what)
{
    pthread_mutex_lock(&queue->lock);
    *what = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
}

void
rps_npu_queue_end(rps_npu_queue *queue)
{
    change(queue, &queue->ended);
}

void
rps_npu_queue_cancel(rps_npu_queue *queue)
{
    change(queue, &queue->canceled);
}

void
rps_npu_queue_restart(rps_npu_queue *queue)
{
    rps_npu_stream_drain(queue->stream);
    pthread_mutex_lock(&queue->lock);
    queue->claimed = queue->put;
    queue->taken = queue->put;
    queue->reserved = queue->put;
    queue->expected = UINT64_MAX;
    queue->ended = false;
    queue->canceled = false;
    pthread_mutex_unlock(&queue->lock);
}

/* --- the device's end -------------------------------------------------------
 */

/* What lies in it and is not promised comes, too. */
void
rps_npu_queue_expect(rps_npu_queue *queue, uint64_t sets)
{
    pthread_mutex_lock(&queue->lock);
    queue->expected =
            sets > UINT64_MAX - 1 - queue->put ? UINT64_MAX : queue->put + sets;
    pthread_mutex_unlock(&queue->lock);
}

rps_status
rps_npu_queue_reserve_sets(
        rps_npu_queue *queue, const char *operation, uint64_t sets)
{
    uint64_t left = UINT64_MAX;
    bool enough = false;

    pthread_mutex_lock(&queue->lock);
    if (queue->expected != UINT64_MAX) {
        left = queue->expected > queue->reserved
                       ? queue->expected - queue->reserved
                       : 0;
    }
    enough = sets <= left;
    queue->reserved += enough ? sets : 0;
    pthread_mutex_unlock(&queue->lock);
    if (!enough) {
        return rps_npu_fail(RPS_E_INVAL,
                "%s: it takes %" PRIu64 " sets of queue \"%s\", which has "
                "%" PRIu64 " left: make the loop no larger than what is left",
                operation, sets, queue->name, left);
    }
    return RPS_OK;
}

void
rps_npu_queue_return_sets(rps_npu_queue *queue, uint64_t sets)
{
    pthread_mutex_lock(&queue->lock);
    queue->reserved -= sets;
    pthread_mutex_unlock(&queue->lock);
}

bool
rps_npu_queue_claim_sets(
        rps_npu_stream *stream, rps_npu_queue *queue, uint64_t sets)
{
    const uint64_t start = rps_npu_span_start();
    bool come = false;
    bool waited = false;

    pthread_mutex_lock(&queue->lock);
    /* sets that were put before the end still become ready */
    while (queue->ready - queue->claimed < sets && !queue->canceled &&
            !(queue->ended && queue->put - queue->claimed < sets)) {
        waited = true;
        pthread_cond_wait(&queue->changed, &queue->lock);
    }
    come = !queue->canceled && queue->ready - queue->claimed >= sets;
    queue->claimed += come ? sets : 0;
    pthread_mutex_unlock(&queue->lock);
    if (start != 0 && waited) {
        rps_npu_span_end(start,
                (struct rps_profile_span){.class = RPS_PROFILE_SCHEDULING,
                        .type = "wait_for_input",
                        .name = queue->name,
                        .track = stream->track});
    }
    return come;
}

void
rps_npu_queue_unclaim_sets(rps_npu_queue *queue, uint64_t sets)
{
    pthread_mutex_lock(&queue->lock);
    queue->claimed -= sets;
    pthread_mutex_unlock(&queue->lock);
}

static void
take_one(rps_npu_stream *stream, const struct take_task *take)
{
    rps_npu_queue *queue = take->queue;
    const uint64_t start = rps_npu_span_start();
    const struct place *place = NULL;
    uint64_t ready = 0;

    rps_npu_stream_use(stream, RPS_NPU_USE_BUSY);
    pthread_mutex_lock(&queue->take_lock);
    pthread_mutex_lock(&queue->lock);
    place = &queue->places[queue->taken % queue->depth];
    pthread_mutex_unlock(&queue->lock);
    (void)rps_npu_copy_begin(stream->npu, RPS_NPU_ON_DEVICE, queue->set_bytes);
    for (uint32_t p = 0; p < queue->parts; p++) {
        memcpy(take->to[p], place->inside + queue->offsets[p], queue->bytes[p]);
    }
    pthread_mutex_lock(&queue->lock);
    queue->taken++;
    ready = queue->ready - queue->taken;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->lock);
    pthread_mutex_unlock(&queue->take_lock);
    show_depth(queue, ready);
    if (start != 0) {
        rps_npu_span_end(
                start, (struct rps_profile_span){.class = RPS_PROFILE_COPY,
                               .type = "queue_take",
                               .name = queue->name,
                               .track = stream->track,
                               .bytes = queue->set_bytes});
    }
}

static rps_status
run_take(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct take_task *take = (struct take_task *)task;

    if (!take->in_step) {
        take->reserved = !rps_npu_queue_claim_sets(stream, take->queue, 1);
    }
    if (take->reserved) {
        return rps_npu_fail(RPS_E_NOT_FOUND,
                "take: queue \"%s\" has no set left: it was ended or canceled",
                take->queue->name);
    }
    take_one(stream, take);
    return RPS_OK;
}

static void
finish_take(struct rps_npu_task *task)
{
    const struct take_task *take = (struct take_task *)task;

    if (take->reserved) {
        rps_npu_queue_return_sets(take->queue, 1);
    }
}

static const struct rps_npu_task_kind taking = {
        .run = run_take,
        .finish = finish_take,
        .use = RPS_NPU_USE_IDLE,
        .sort = RPS_NPU_SORT_COPY,
        .launch = true,
};

static rps_status
check_take(rps_npu_stream *stream, const rps_npu_queue *queue, void *const *to)
{
    char side[32];

    if (queue == NULL || queue->npu != stream->npu) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": take: there is no queue, or it "
                "is another device's",
                stream->npu->id, stream->name);
    }
    for (uint32_t p = 0; p < queue->parts; p++) {
        rps_status status = RPS_OK;

        (void)snprintf(side, sizeof(side), "to[%" PRIu32 "]", p);
        status = rps_npu_check_range(
                stream->npu, "take", side, to[p], queue->bytes[p]);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

rps_status
rps_npu_queue_take(
        rps_npu_stream *stream, rps_npu_queue *queue, void *const *to)
{
    struct take_task *take = NULL;
    rps_status status = rps_npu_stream_ready(stream, "take");

    if (status == RPS_OK) {
        status = check_take(stream, queue, to);
    }
    if (status != RPS_OK) {
        return status;
    }
    take = calloc(1, sizeof(*take) + queue->parts * sizeof(take->to[0]));
    if (take == NULL) {
        return rps_npu_nomem("take");
    }
    take->task.kind = &taking;
    take->queue = queue;
    take->in_step = rps_npu_stream_captures(stream);
    for (uint32_t p = 0; p < queue->parts; p++) {
        take->to[p] = rps_npu_inside(stream->npu, to[p]);
    }
    status = take->in_step ? rps_npu_step_add_take(stream->capture->step, queue)
                           : rps_npu_queue_reserve_sets(queue, "take", 1);
    if (status != RPS_OK) {
        free(take);
        return status;
    }
    take->reserved = !take->in_step;
    rps_npu_stream_give(stream, &take->task);
    return RPS_OK;
}
