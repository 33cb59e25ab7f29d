/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/launch.h"

#include "client/npu/capture.h"
#include "client/npu/error.h"
#include "client/npu/pool_device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct part {
    struct rps_npu_task task;
    struct rps_npu_launch *launch;
    uint32_t lane;
};

struct rps_npu_launch {
    _Atomic uint32_t holders; /* one a part */
    struct rps_npu_step *step;
    uint64_t count;
    uint64_t *done_out; /* NULL: nobody asks */

    _Atomic bool ends;     /* a host function: after this iteration */
    _Atomic uint64_t last; /* the last iteration; set when all are done */
    _Atomic int failure;   /* rps_status; the first one */
    pthread_mutex_t lock;
    struct rps_error words; /* lock; of the failure */

    struct part parts[];
};

/* What the thread is doing. */
static _Thread_local struct {
    struct rps_npu_launch *launch; /* NULL: no step */
    uint64_t iteration;
} now;

uint64_t
rps_npu_launch_iteration(void)
{
    return now.iteration;
}

void
rps_npu_host_end_loop(void)
{
    if (now.launch != NULL) {
        now.launch->ends = true;
    }
}

/* --- on the streams' threads
 * --------------------------------------------------- */

static void
drop(struct rps_npu_launch *launch)
{
    if (--launch->holders == 0) {
        rps_npu_step_drop(launch->step);
        pthread_mutex_destroy(&launch->lock);
        free(launch);
    }
}

static void
fail(struct rps_npu_launch *launch, rps_status status, const char *words)
{
    pthread_mutex_lock(&launch->lock);
    if (launch->failure == RPS_OK) {
        (void)rps_fail(&launch->words, status, "%s", words);
        launch->failure = status;
    }
    pthread_mutex_unlock(&launch->lock);
}

/* After a failure nothing is done but passing edges: other lanes wait there. */
static void
walk(rps_npu_stream *stream, struct rps_npu_launch *launch,
        const struct rps_npu_lane *lane)
{
    struct rps_npu_task *task = lane->first;

    for (; task != NULL; task = task->next) {
        rps_status status = RPS_OK;

        if (launch->failure != RPS_OK && !task->kind->failed) {
            continue;
        }
        status = rps_npu_stream_do(stream, task);
        if (status != RPS_OK) {
            fail(launch, status, rps_npu_error());
        }
    }
}

static void
heed_former_failure(rps_npu_stream *stream, struct rps_npu_launch *launch)
{
    const rps_status status = (rps_status)stream->failure;
    struct rps_error words;

    if (status != RPS_OK) {
        pthread_mutex_lock(&stream->lock);
        words = stream->words;
        pthread_mutex_unlock(&stream->lock);
        fail(launch, status, words.text);
    }
}

/* A lane beside the first: the next iteration begins at its first edge, which
 * is also passed when there is none. */
static rps_status
run_lane(rps_npu_stream *stream, struct rps_npu_task *task)
{
    const struct part *part = (struct part *)task;
    struct rps_npu_launch *launch = part->launch;
    struct rps_npu_lane *lane = &launch->step->lanes[part->lane];

    heed_former_failure(stream, launch);
    now.launch = launch;
    for (;;) {
        rps_npu_stream_use(stream, RPS_NPU_USE_IDLE);
        now.iteration = ++lane->iteration;
        rps_npu_gate_wait(&lane->start->gate, now.iteration);
        if (now.iteration > launch->last) {
            break;
        }
        walk(stream, launch, lane);
        rps_npu_gate_raise(&lane->done, now.iteration);
    }
    now.launch = NULL;
    drop(launch);
    return RPS_OK;
}

/* Each queue of the step has what the next iteration takes; false: one will
 * not. */
static bool
claim_inputs(rps_npu_stream *stream, const struct rps_npu_step *step)
{
    for (uint32_t q = 0; q < step->queue_count; q++) {
        if (rps_npu_queue_claim_sets(
                    stream, step->queues[q].queue, step->queues[q].takes)) {
            continue;
        }
        while (q-- > 0) {
            rps_npu_queue_unclaim_sets(
                    step->queues[q].queue, step->queues[q].takes);
        }
        return false;
    }
    return true;
}

static void
return_inputs(const struct rps_npu_step *step, uint64_t iterations)
{
    for (uint32_t q = 0; q < step->queue_count; q++) {
        rps_npu_queue_return_sets(
                step->queues[q].queue, iterations * step->queues[q].takes);
    }
}

static void
iterate(rps_npu_stream *stream, struct rps_npu_launch *launch)
{
    struct rps_npu_step *step = launch->step;

    now.iteration = ++step->iteration;
    walk(stream, launch, &step->lanes[0]);
    for (uint32_t l = 1; l < step->lane_count; l++) {
        rps_npu_gate_wait(&step->lanes[l].done, now.iteration);
    }
}

/* The other lanes see that there is no more: one number is passed over. */
static void
release_lanes(struct rps_npu_launch *launch)
{
    struct rps_npu_step *step = launch->step;

    launch->last = step->iteration;
    step->iteration++;
    for (uint32_t l = 1; l < step->lane_count; l++) {
        rps_npu_gate_raise(&step->lanes[l].start->gate, step->iteration);
    }
}

static rps_status
run_origin(rps_npu_stream *stream, struct rps_npu_task *task)
{
    struct rps_npu_launch *launch = ((struct part *)task)->launch;
    struct rps_npu_step *step = launch->step;
    rps_status status = RPS_OK;
    uint64_t begun = 0;
    uint64_t whole = 0;

    heed_former_failure(stream, launch);
    now.launch = launch;
    while (begun < launch->count && !launch->ends &&
            launch->failure == RPS_OK) {
        rps_npu_stream_use(stream, RPS_NPU_USE_IDLE);
        if (!claim_inputs(stream, step)) {
            break;
        }
        begun++;
        iterate(stream, launch);
        whole += launch->failure == RPS_OK;
    }
    now.launch = NULL;
    release_lanes(launch);
    return_inputs(step, launch->count - begun);
    rps_npu_tally_add(&step->npu->tally, RPS_NPU_STEPS, whole);
    if (launch->done_out != NULL) {
        *launch->done_out = whole;
    }
    status = (rps_status)launch->failure;
    if (status != RPS_OK && stream->failure == RPS_OK) {
        (void)rps_npu_fail(status, "%s", launch->words.text);
    }
    rps_npu_gate_raise(&step->done, step->done.value + 1);
    drop(launch);
    return status;
}

static const struct rps_npu_task_kind launching = {
        .run = run_origin, .launch = true, .failed = true, .kept = true};
static const struct rps_npu_task_kind launching_lane = {
        .run = run_lane, .failed = true, .kept = true};

/* --- on the caller's
 * ----------------------------------------------------------- */

static rps_status
check_launch(
        rps_npu_stream *stream, const struct rps_npu_step *step, uint64_t count)
{
    const char *why = NULL;
    rps_status status = rps_npu_stream_may_wait(stream, "launch");

    if (status != RPS_OK) {
        return status;
    }
    if (step == NULL || step->npu != stream->npu) {
        why = "there is no step, or it is another device's";
    } else if (count == 0) {
        why = "a loop of 0 iterations: it has one at least";
    }
    for (uint32_t l = 1; why == NULL && l < step->lane_count; l++) {
        if (step->lanes[l].stream == stream) {
            why = "a stream that another one's capture came to: launch the "
                  "step on the stream that captured, or one beside it";
        }
    }
    if (why != NULL) {
        return rps_npu_fail(RPS_E_INVAL,
                "npu%" PRIu32 " stream \"%s\": launch: %s", stream->npu->id,
                stream->name, why);
    }
    return RPS_OK;
}

static rps_status
reserve_inputs(
        rps_npu_stream *stream, const struct rps_npu_step *step, uint64_t count)
{
    for (uint32_t q = 0; q < step->queue_count; q++) {
        const uint64_t takes = step->queues[q].takes;
        const uint64_t sets =
                count > UINT64_MAX / takes ? UINT64_MAX : count * takes;
        char words[160];
        rps_status status = RPS_OK;

        (void)snprintf(words, sizeof(words),
                "npu%" PRIu32 " stream \"%s\": launch a loop of %" PRIu64,
                stream->npu->id, stream->name, count);
        status = rps_npu_queue_reserve_sets(step->queues[q].queue, words, sets);
        if (status != RPS_OK) {
            while (q-- > 0) {
                rps_npu_queue_return_sets(
                        step->queues[q].queue, count * step->queues[q].takes);
            }
            return status;
        }
    }
    return RPS_OK;
}

static struct rps_npu_launch *
make_launch(struct rps_npu_step *step, uint64_t count, uint64_t *done_out)
{
    struct rps_npu_launch *launch = calloc(
            1, sizeof(*launch) + step->lane_count * sizeof(launch->parts[0]));

    if (launch == NULL) {
        return NULL;
    }
    launch->holders = step->lane_count;
    launch->step = step;
    launch->count = count;
    launch->done_out = done_out;
    launch->last = UINT64_MAX;
    pthread_mutex_init(&launch->lock, NULL);
    for (uint32_t l = 0; l < step->lane_count; l++) {
        launch->parts[l] = (struct part){
                .task = {.kind = l == 0 ? &launching : &launching_lane},
                .launch = launch,
                .lane = l,
        };
    }
    rps_npu_step_hold(step);
    return launch;
}

/* In every lane's stream at once: two launches that share streams come in the
 * same order to each, else each would wait for the other. */
static void
post(rps_npu_stream *stream, struct rps_npu_launch *launch)
{
    struct rps_npu_step *step = launch->step;
    const uint32_t lanes = step->lane_count;

    pthread_mutex_lock(&step->npu->launch_lock);
    for (uint32_t l = 1; l < lanes; l++) {
        rps_npu_stream_post(step->lanes[l].stream, &launch->parts[l].task);
    }
    rps_npu_stream_post(stream, &launch->parts[0].task);
    pthread_mutex_unlock(&step->npu->launch_lock);
}

rps_status
rps_npu_launch_counted(rps_npu_stream *stream, struct rps_npu_step *step,
        uint64_t count, uint64_t *done_out)
{
    struct rps_npu_launch *launch = NULL;
    rps_status status = check_launch(stream, step, count);

    if (status == RPS_OK) {
        status = reserve_inputs(stream, step, count);
    }
    if (status != RPS_OK) {
        return status;
    }
    launch = make_launch(step, count, done_out);
    if (launch == NULL) {
        return_inputs(step, count);
        return rps_npu_nomem("launch");
    }
    if (step->last != stream) { /* one launch of a step at a time */
        rps_npu_gate_wait(&step->done, step->given);
    }
    step->last = stream;
    step->given++;
    rps_npu_launch_pause(stream->npu, "launch_step");
    rps_npu_stream_make_room(stream);
    post(stream, launch);
    rps_npu_pool_show(stream->npu);
    return RPS_OK;
}

rps_status
rps_npu_launch(rps_npu_stream *stream, rps_npu_step *step, uint64_t count)
{
    return rps_npu_launch_counted(stream, step, count, NULL);
}
