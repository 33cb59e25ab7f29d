/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The training step of a device, compiled once for its shape:
 *
 *   take a set from the queue            device, copied ahead by the feed
 *   fetch                                host function: rps_loop_before()
 *   copy `in` and the variables' values  to the device; with a device cache
 *                                        the rows that move, too, to their
 *                                        places (device_store.c)
 *   each part: forward, loss, backward   operators (net.h)
 *   copy the gradients and `out`         to the host
 *   push                                 host function: rps_loop_after()
 *
 * One stream does it in this order, so no bit depends on how many steps a
 * launch has. The host's copies of values and gradients are the model's own
 * buffers.
 */
#include "client/worker/device_impl.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- host functions ------------------------------------------------------- */

static rps_status
stop(struct rps_device_step *step, rps_status status)
{
    step->status = status;
    return rps_npu_host_failed(status, step->loop->run->error.text);
}

/* The rows to where the device's copy takes them. */
static rps_status
gather(struct rps_device *device, struct rps_turn *turn)
{
    struct rps_device_step *step = &device->step;
    double *numbers = (void *)step->in_host;
    rps_status status = RPS_OK;

    numbers[0] = step->hand.loss_scale;
    numbers[1] = step->hand.loss_scale;
    numbers[2] = (double)step->hand.number;
    for (uint32_t t = 0; status == RPS_OK && t < device->model->table_count;
            t++) {
        status = rps_bags_prepare(
                &turn->bags[t], false, &step->loop->run->error);
        if (device->rows == NULL) {
            rps_slots_gather(&turn->slots[t], &turn->bags[t],
                    (void *)(step->in_host + step->shape.rows_at[t]));
        }
        step->hand.input.pooled_gradients[t] =
                (void *)(step->out_host + step->shape.gradients_at[t]);
    }
    step->hand.input.rows = turn->batch.rows;
    return status == RPS_OK && device->rows != NULL
                   ? rps_device_store_pack(
                             device, turn, &step->loop->run->error)
                   : status;
}

static rps_status
fetch(void *context)
{
    struct rps_device *device = context;
    struct rps_device_step *step = &device->step;
    rps_status status = rps_loop_before(step->loop, &step->hand);

    if (status == RPS_OK) {
        status = gather(device, step->hand.turn);
    }
    if (status == RPS_OK && device->dump != NULL) {
        status = rps_device_dump_fetched(device);
    }
    if (status != RPS_OK) {
        return stop(step, status);
    }
    rps_spent_on(&step->loop->spent, RPS_SPENT_COMPUTE);
    return RPS_OK;
}

/* The launch had more steps, as it was to know no better. */
static bool
is_last(const struct rps_loop *loop, uint64_t passed)
{
    return loop->left || loop->step >= loop->last_step ||
           loop->passed != passed;
}

static rps_status
push(void *context)
{
    struct rps_device *device = context;
    struct rps_device_step *step = &device->step;
    struct rps_loop *loop = step->loop;
    const uint64_t passed = loop->passed;
    rps_status status;

    memcpy(&step->hand.loss, step->out_host, sizeof(step->hand.loss));
    status = rps_loop_after(loop, &step->hand);
    if (status != RPS_OK) {
        return stop(step, status);
    }
    step->done++;
    if (is_last(loop, passed)) {
        rps_npu_host_end_loop();
    }
    rps_spent_on(&loop->spent, RPS_SPENT_READ); /* of the next set */
    return RPS_OK;
}

/* --- compiling ------------------------------------------------------------ */

static struct rps_net_bags
bags_of(struct rps_device *device, uint32_t t, uint64_t first, uint64_t rows)
{
    const struct rps_device_step *step = &device->step;
    const struct rps_device_shape *shape = &step->shape;
    const struct rps_model_table *table = &device->model->tables[t];
    const bool cached = device->rows != NULL;
    const uint64_t values[] = {
            cached ? device->store[t].shape[0] : shape->distinct[t],
            table->dim};
    const uint64_t starts[] = {rows * table->bags + 1};
    const uint64_t gradient[] = {rows, table->bags, table->dim};

    return (struct rps_net_bags){
            .rows = rps_net_view(cached ? &device->store[t] : &step->in,
                    cached ? 0 : shape->rows_at[t], RPS_NPU_F32, 2, values),
            .slots = rps_net_view(cached ? &step->in : &step->set,
                    shape->slots_at[t], RPS_NPU_I32, 1, &shape->tokens[t]),
            .starts = rps_net_view(&step->set,
                    shape->starts_at[t] + first * table->bags * sizeof(int32_t),
                    RPS_NPU_I32, 1, starts),
            .gradient = rps_net_view(&step->out,
                    shape->gradients_at[t] +
                            first * rps_model_pooled_floats(table) *
                                    sizeof(float),
                    RPS_NPU_F32, 3, gradient),
    };
}

static struct rps_net_part
part_of(struct rps_device *device, uint64_t first, uint64_t rows)
{
    const struct rps_device_step *step = &device->step;
    const uint64_t dense[] = {rows, device->model->shape.dense};
    const uint64_t labels[] = {rows, device->model->labels};
    const uint64_t one = 1, two = 2;
    struct rps_net_part part = {
            .first = first,
            .rows = rows,
            .dense = rps_net_view(&step->set, first * dense[1] * sizeof(float),
                    RPS_NPU_F32, 2, dense),
            .labels = rps_net_view(&step->set,
                    step->shape.labels_at + first * labels[1] * sizeof(float),
                    RPS_NPU_F32, 2, labels),
            .scale = rps_net_view(&step->in, 0, RPS_NPU_F64, 1, &two),
            .step = rps_net_view(
                    &step->in, RPS_DEVICE_STEP_AT, RPS_NPU_F64, 1, &one),
            .loss = rps_net_view(&step->out, 0, RPS_NPU_F64, 1, &one),
            .accumulate = first > 0,
    };

    for (uint32_t t = 0; t < device->model->table_count; t++) {
        part.tables[t] = bags_of(device, t, first, rows);
    }
    return part;
}

static void
release_part(struct rps_net_part *part)
{
    rps_npu_tensor_release(&part->dense);
    rps_npu_tensor_release(&part->labels);
    rps_npu_tensor_release(&part->scale);
    rps_npu_tensor_release(&part->step);
    rps_npu_tensor_release(&part->loss);
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_npu_tensor_release(&part->tables[t].rows);
        rps_npu_tensor_release(&part->tables[t].slots);
        rps_npu_tensor_release(&part->tables[t].starts);
        rps_npu_tensor_release(&part->tables[t].gradient);
    }
}

/* Parts differ by a row at most, the longer ones first. */
static rps_status
give_parts(struct rps_device *device)
{
    const uint64_t parts = device->settings->device.parts;
    const uint64_t rows = device->step.shape.rows;
    uint64_t first = 0;
    rps_status status = RPS_OK;

    for (uint64_t p = 0; status == RPS_OK && p < parts; p++) {
        const uint64_t own = rows / parts + (p < rows % parts ? 1 : 0);
        struct rps_net_part part = part_of(device, first, own);

        status = rps_net_train(&device->net, &part);
        release_part(&part);
        first += own;
    }
    return status;
}

static rps_status
give_input(struct rps_device *device)
{
    struct rps_device_step *step = &device->step;
    void *const to[] = {rps_npu_tensor_address(&step->set)};
    rps_status status = rps_npu_queue_take(device->compute, step->queue, to);

    if (status == RPS_OK) {
        status = rps_npu_call_async(device->compute, "fetch", fetch, device);
    }
    if (status == RPS_OK) {
        status = rps_npu_tensor_from_host(
                device->compute, &step->in, step->in_host);
    }
    if (status == RPS_OK && device->rows != NULL) {
        status = rps_device_store_give(device);
    }
    return status == RPS_OK
                   ? rps_npu_tensor_from_host(device->compute,
                             &device->net.values, device->model->values)
                   : status;
}

static rps_status
give_output(struct rps_device *device)
{
    struct rps_device_step *step = &device->step;
    rps_status status = rps_npu_tensor_to_host(
            device->compute, &device->net.gradients, device->model->gradients);

    if (status == RPS_OK) {
        status = rps_npu_tensor_to_host(
                device->compute, &step->out, step->out_host);
    }
    return status == RPS_OK
                   ? rps_npu_call_async(device->compute, "push", push, device)
                   : status;
}

static rps_status
capture(struct rps_device *device)
{
    struct rps_device_step *step = &device->step;
    rps_status status = rps_npu_capture_begin(device->compute);

    if (status != RPS_OK) {
        return status;
    }
    status = give_input(device);
    if (status == RPS_OK) {
        status = give_parts(device);
    }
    if (status == RPS_OK) {
        status = give_output(device);
    }
    return rps_device_capture_end(device, status, &step->compiled);
}

void
rps_device_step_finish(struct rps_device *device)
{
    struct rps_device_step *step = &device->step;

    rps_feed_join(&step->feed, true);
    rps_npu_step_destroy(step->compiled);
    rps_npu_queue_destroy(step->queue);
    rps_npu_tensor_release(&step->set);
    rps_npu_tensor_release(&step->in);
    rps_npu_tensor_release(&step->out);
    rps_npu_tensor_release(&step->packed);
    rps_net_drop_kept(&device->net);
    free(step->feed.set);
    free(step->in_host);
    free(step->out_host);
    free(step->packed_host);
    step->compiled = NULL;
    step->queue = NULL;
    step->feed.set = NULL;
    step->in_host = NULL;
    step->out_host = NULL;
    step->packed_host = NULL;
}

static char *
host_memory(uint64_t bytes)
{
    char *memory = aligned_alloc(RPS_DEVICE_ALIGN, bytes);

    if (memory != NULL) {
        memset(memory, 0, bytes);
    }
    return memory;
}

static rps_status
make_memory(struct rps_device *device, uint32_t ahead)
{
    struct rps_device_step *step = &device->step;
    const struct rps_device_shape *shape = &step->shape;
    rps_status status = rps_device_make(device, shape->set_bytes, &step->set);

    if (status == RPS_OK) {
        status = rps_device_make(device, shape->in_bytes, &step->in);
    }
    if (status == RPS_OK) {
        status = rps_device_make(device, shape->out_bytes, &step->out);
    }
    if (status == RPS_OK && device->rows != NULL) {
        status = rps_device_store_reserve(device);
    }
    return status == RPS_OK ? rps_npu_queue_create(device->npu, "input", ahead,
                                      &shape->set_bytes, 1, &step->queue)
                            : status;
}

static rps_status
compile(struct rps_device *device, struct rps_loop *loop, uint32_t ahead)
{
    struct rps_device_step *step = &device->step;
    struct rps_error *error = &loop->run->error;
    rps_status status;

    step->feed.set = host_memory(step->shape.set_bytes);
    step->in_host = host_memory(step->shape.in_bytes);
    step->out_host = host_memory(step->shape.out_bytes);
    if (device->rows != NULL) {
        step->packed_host = (void *)host_memory(
                rps_device_align(step->shape.packed_floats * sizeof(float)));
    }
    if (step->feed.set == NULL || step->in_host == NULL ||
            step->out_host == NULL ||
            (device->rows != NULL && step->packed_host == NULL)) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for a batch's rows");
    }
    status = make_memory(device, ahead);
    if (status == RPS_OK) {
        status = capture(device);
    }
    return status == RPS_OK ? RPS_OK : rps_device_failed(device, status, error);
}

/* Once: each later one would say the same. */
static void
say_again(struct rps_device *device, struct rps_loop *loop,
        const struct rps_turn *turn)
{
    if (!device->told) {
        rps_run_say(loop->run,
                "npu %u: the batch of step %" PRIu64 " has more %s than "
                "the step was compiled for: it is compiled again; further "
                "times are counted and not told",
                device->settings->device.id, loop->step + 1,
                rps_device_shape_lacks(
                        &device->step.shape, device->model, turn));
        device->told = true;
    }
}

/* --- running -------------------------------------------------------------- */

rps_status
rps_device_ahead(const struct rps_device *device, uint64_t steps,
        uint32_t *ahead_out, struct rps_error *error)
{
    uint64_t ahead = 1;
    rps_status status = rps_npu_loop_size(&ahead);

    if (status != RPS_OK) {
        return rps_fail(error, status, "npu %u: %s",
                device->settings->device.id, rps_npu_error());
    }
    ahead = ahead < steps ? ahead : steps;
    ahead = ahead < RPS_DEVICE_AHEAD_MAX ? ahead : RPS_DEVICE_AHEAD_MAX;
    *ahead_out = ahead > 0 ? (uint32_t)ahead : 1;
    return RPS_OK;
}

/* Where a turn could not be read its words are those of taking it. */
static rps_status
take_bad_turn(struct rps_loop *loop)
{
    struct rps_turn *turn;
    rps_status status = rps_reader_take(loop->reader, &turn, &loop->run->error);

    loop->run->data_failed = true;
    assert(status != RPS_OK);
    return status;
}

/* A step that fits the next turn, and the input thread from that turn on. */
static rps_status
begin(struct rps_device *device, struct rps_loop *loop)
{
    struct rps_device_step *step = &device->step;
    struct rps_error *error = &loop->run->error;
    const uint64_t next = rps_reader_taken(loop->reader);
    const struct rps_turn *turn = rps_reader_see(loop->reader, next);
    uint32_t ahead = 0;
    rps_status status = rps_device_ahead(
            device, loop->last_step - loop->step, &ahead, error);

    if (turn == NULL || turn->status != RPS_OK) {
        return take_bad_turn(loop);
    }
    if (status == RPS_OK &&
            (step->compiled == NULL || !rps_device_shape_fits(&step->shape,
                                               device->model, turn))) {
        if (step->compiled != NULL) {
            say_again(device, loop, turn);
        }
        rps_device_step_finish(device);
        step->shape.cached = device->rows != NULL;
        rps_device_shape_grow(&step->shape, device->model, turn);
        status = compile(device, loop, ahead);
        if (status == RPS_OK) {
            status = rps_device_expect_dump(device, loop, turn);
        }
    }
    if (status != RPS_OK) {
        return status;
    }
    rps_npu_queue_expect(step->queue, loop->last_step - loop->step);
    step->loop = loop;
    step->feed.reader = loop->reader;
    step->feed.model = device->model;
    step->feed.shape = &step->shape;
    step->feed.queue = step->queue;
    step->feed.next = next;
    return rps_feed_start(&step->feed, error);
}

/* The loop ended before it should have: the input did. */
static rps_status
look_why(struct rps_device *device, struct rps_loop *loop)
{
    struct rps_feed *feed = &device->step.feed;

    rps_feed_join(feed, false);
    switch (feed->end) {
    case RPS_FEED_GROW:
        return RPS_OK; /* begin() compiles again */
    case RPS_FEED_BAD_TURN:
        return take_bad_turn(loop);
    case RPS_FEED_FAILED:
        loop->run->error = feed->error;
        return feed->status;
    case RPS_FEED_DONE:
        break;
    }
    return rps_fail(&loop->run->error, RPS_E_CANCELED,
            "npu %u: the input ended at step %" PRIu64 ", %" PRIu64
            " were to come",
            device->settings->device.id, loop->step,
            loop->last_step - loop->step);
}

/* As the device counts, so that what a host function launches is seen, too. */
static void
count_launches(struct rps_device *device, const rps_npu_counters *before)
{
    rps_npu_counters now;

    rps_npu_read_counters(device->npu, &now);
    device->launches += now.launches - before->launches;
    device->steps += now.steps - before->steps;
}

/* Of the stream: a host function's own words stand already. */
static rps_status
launch(struct rps_device *device, struct rps_loop *loop, uint64_t count)
{
    struct rps_device_step *step = &device->step;
    rps_npu_counters before;
    rps_status status;

    step->done = 0;
    step->status = RPS_OK;
    rps_npu_read_counters(device->npu, &before);
    status = rps_npu_launch(device->compute, step->compiled, count);
    if (status == RPS_OK) {
        status = rps_npu_stream_synchronize(device->compute);
    }
    count_launches(device, &before);
    if (step->status != RPS_OK) {
        return step->status;
    }
    return status == RPS_OK
                   ? RPS_OK
                   : rps_device_failed(device, status, &loop->run->error);
}

static void
note_reserved(struct rps_device *device)
{
    rps_npu_pool_stats stats;
    uint64_t free_bytes, capacity;

    rps_npu_memory(device->npu, &free_bytes, &capacity);
    rps_npu_pool_read_stats(device->npu, &stats);
    device->reserved_last = stats.reserved.now;
    device->queue_bytes = capacity - free_bytes - stats.reserved.now;
    if (device->reserved_first == 0) {
        device->reserved_first = stats.reserved.now;
    }
}

rps_status
rps_device_steps(struct rps_device *device, struct rps_loop *loop)
{
    struct rps_device_step *step = &device->step;
    const uint64_t left = loop->last_step - loop->step;
    const uint64_t passed = loop->passed;
    uint64_t count = 1;
    rps_status status = RPS_OK;

    assert(loop->step < loop->last_step);
    if (!step->feed.runs) {
        status = begin(device, loop);
    }
    if (status == RPS_OK) {
        status = rps_npu_loop_size(&count);
        device->loop_size = count;
        count = count < left ? count : left;
        status = launch(device, loop, count);
    }
    if (status != RPS_OK) {
        return status;
    }
    note_reserved(device);
    if (loop->passed != passed) { /* their sets are of no use */
        rps_feed_join(&step->feed, true);
        return RPS_OK;
    }
    return step->done < count && !loop->left && loop->step < loop->last_step
                   ? look_why(device, loop)
                   : RPS_OK;
}

void
rps_device_pause(struct rps_device *device)
{
    struct rps_device_step *step = &device->step;

    if (step->loop == NULL) {
        return;
    }
    rps_reader_stop(step->loop->reader);
    rps_npu_stream_reset(device->compute);
    rps_feed_join(&step->feed, true);
    step->loop = NULL;
}

/* Rows that stay are forgotten with their places. */
void
rps_device_end_steps(struct rps_device *device)
{
    rps_device_step_finish(device);
    rps_device_store_finish(device);
    if (device->rows != NULL) {
        rps_device_rows_clear(device->rows);
    }
}
