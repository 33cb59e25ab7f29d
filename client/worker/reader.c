/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns lie in a ring: turn number n (0, 1, …) in place n mod places.
 *
 *   taken <= made <= taken - 1 + places
 *
 * The loop has turn taken - 1, those from `taken` to made - 1 are ready, the
 * thread fills place `made` without the lock. One place more than the turns in
 * hand, so that all but the loop's are ready while the thread reads the next.
 */
#include "client/worker/reader.h"

#include "base/clock.h"
#include "client/worker/operator.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct rps_reader {
    struct rps_reader_options options; /* set before start */
    struct rps_turn *turns;            /* [places], each its stage's */
    uint32_t places;                   /* set before start */
    /* whoever makes turns: the thread, or with depth 1 the caller */
    struct rps_batcher *batcher;
    struct rps_recent recent;
    uint64_t epoch; /* of the next turn's batch */
    uint64_t batch;

    bool has_thread; /* the caller's */
    pthread_t thread;
    pthread_mutex_t lock; /* guards: */
    pthread_cond_t moved;
    uint64_t made;
    uint64_t taken;
    bool stop;
    bool failed; /* no turn is made behind the last one */
    struct rps_reader_times times;
};

static struct rps_turn *
turn_at(const struct rps_reader *reader, uint64_t number)
{
    return &reader->turns[number % reader->places];
}

/* --- making a turn ------------------------------------------------------- */

static rps_status
read_batch(struct rps_reader *reader, struct rps_turn *turn)
{
    rps_status status = RPS_OK;

    if (reader->batch == reader->options.epoch_batches) {
        reader->epoch++;
        reader->batch = 0;
        status = rps_batcher_start(
                reader->batcher, reader->epoch, 0, &turn->error);
    }
    if (status == RPS_OK) {
        status = rps_batcher_next(reader->batcher, &turn->batch, &turn->error);
    }
    if (status == RPS_E_NOT_FOUND) {
        status = rps_fail(&turn->error, RPS_E_INVAL,
                "the data ended early in epoch %" PRIu64
                ": it changed while it was read",
                reader->epoch + 1);
    }
    reader->batch++;
    turn->epoch = reader->epoch;
    turn->next_batch = reader->batch;
    return status;
}

/* The step from which on the turn may be looked up. */
static uint64_t
looked_up_from(const struct rps_reader *reader, uint64_t step)
{
    const uint64_t ahead = reader->options.depth - 1;
    const uint64_t first = reader->options.done + 1;

    return step > first + ahead ? step - ahead : first;
}

/* Late is what a step that is not over then may change. */
static rps_status
split_keys(struct rps_reader *reader, struct rps_turn *turn)
{
    const struct rps_batch *batch = &turn->batch;
    const uint64_t from = looked_up_from(reader, turn->step);
    const uint64_t slack = reader->options.slack;
    const uint64_t since = from > slack ? from - slack : 0;
    rps_status status = RPS_OK;

    if (!rps_recent_reserve(&reader->recent,
                batch->key_count + batch->other_count, turn->step)) {
        return rps_fail(
                &turn->error, RPS_E_NOMEM, "no memory for a batch's keys");
    }
    for (uint32_t t = 0;
            status == RPS_OK && t < reader->options.model->table_count; t++) {
        status = rps_late_split(&turn->late[t], &turn->bags[t], &reader->recent,
                since, turn->step, &turn->error);
    }
    rps_recent_add(&reader->recent, batch->keys, batch->key_count, turn->step);
    rps_recent_add(
            &reader->recent, batch->other_keys, batch->other_count, turn->step);
    turn->split = true;
    return status;
}

static rps_status
take_keys(struct rps_reader *reader, struct rps_turn *turn)
{
    rps_status status = RPS_OK;

    for (uint32_t t = 0;
            status == RPS_OK && t < reader->options.model->table_count; t++) {
        status = rps_bags_take(&turn->bags[t], &turn->batch, &turn->error);
    }
    for (uint32_t t = 0; status == RPS_OK && reader->options.slots &&
                         t < reader->options.model->table_count;
            t++) {
        status = rps_slots_take(&turn->slots[t], &turn->bags[t], &turn->error);
    }
    return status == RPS_OK && reader->options.depth > 1
                   ? split_keys(reader, turn)
                   : status;
}

/* Spans of the profile: read, then split. */
static void
profile_turn(const struct rps_reader *reader, const struct rps_turn *turn,
        uint64_t start, uint64_t read, uint64_t end)
{
    struct rps_profile_span span = {
            .class = RPS_PROFILE_SCHEDULING,
            .type = "read rows",
            .track = reader->has_thread ? "reader" : RPS_OPERATOR_TRACK,
            .start_ns = start,
            .end_ns = read,
            .step = turn->step,
    };

    rps_profile_add(&span);
    span.type = "split keys";
    span.start_ns = read;
    span.end_ns = end;
    rps_profile_add(&span);
}

/* Without the lock. */
static void
make_turn(struct rps_reader *reader, uint64_t number,
        struct rps_reader_times *times)
{
    struct rps_turn *turn = turn_at(reader, number);
    const uint64_t start = rps_clock_ns();
    uint64_t read, end;

    assert(turn->ahead.id == 0);
    turn->step = reader->options.done + 1 + number;
    turn->split = false;
    turn->status = read_batch(reader, turn);
    read = rps_clock_ns();
    if (turn->status == RPS_OK) {
        turn->status = take_keys(reader, turn);
    }
    end = rps_clock_ns();
    times->read_ns += read - start;
    times->split_ns += end - read;
    if (rps_profile_is_on()) {
        profile_turn(reader, turn, start, read, end);
    }
}

/* --- the thread ---------------------------------------------------------- */

static bool
may_make_locked(const struct rps_reader *reader)
{
    return !reader->stop && reader->made + 1 < reader->taken + reader->places;
}

static void *
run(void *context)
{
    struct rps_reader *reader = context;
    const uint64_t count = reader->options.last_step - reader->options.done;
    struct rps_reader_times times = {0};

    (void)pthread_mutex_lock(&reader->lock);
    while (!reader->stop && !reader->failed && reader->made < count) {
        const uint64_t number = reader->made;

        if (!may_make_locked(reader)) {
            (void)pthread_cond_wait(&reader->moved, &reader->lock);
            continue;
        }
        (void)pthread_mutex_unlock(&reader->lock);
        make_turn(reader, number, &times);
        (void)pthread_mutex_lock(&reader->lock);
        reader->failed = turn_at(reader, number)->status != RPS_OK;
        reader->made = number + 1;
        reader->times = times;
        (void)pthread_cond_broadcast(&reader->moved);
    }
    (void)pthread_mutex_unlock(&reader->lock);
    return NULL;
}

/* Signals are the main thread's: they interrupt its waits. */
static rps_status
start_thread(struct rps_reader *reader, struct rps_error *error)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    reader->has_thread =
            pthread_create(&reader->thread, NULL, run, reader) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return reader->has_thread
                   ? RPS_OK
                   : rps_fail(error, RPS_E_NOMEM,
                             "cannot start the thread that reads the data");
}

/* --- life ---------------------------------------------------------------- */

static rps_status
open_data(struct rps_reader *reader, struct rps_dataset *dataset,
        struct rps_error *error)
{
    const struct rps_reader_options *options = &reader->options;
    struct rps_batcher_options batches = options->batches;
    rps_status status;

    batches.other_keys = options->depth > 1 && batches.replicas > 1;
    status = rps_batcher_create(&reader->batcher, dataset, &batches, error);
    reader->epoch = options->epoch;
    reader->batch = options->batch;
    return status == RPS_OK && options->done < options->last_step
                   ? rps_batcher_start(reader->batcher, options->epoch,
                             options->batch, error)
                   : status;
}

rps_status
rps_reader_create(struct rps_reader **reader_out, struct rps_dataset *dataset,
        const struct rps_reader_options *options, struct rps_error *error)
{
    struct rps_reader *reader = calloc(1, sizeof(*reader));
    uint32_t in_hand;
    rps_status status;

    assert(options->depth >= 1 && options->depth <= RPS_PIPELINE_DEPTH_MAX);
    *reader_out = NULL;
    if (reader == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for batches");
    }
    (void)pthread_mutex_init(&reader->lock, NULL);
    (void)pthread_cond_init(&reader->moved, NULL);
    reader->options = *options;
    in_hand = options->depth > options->ahead ? options->depth : options->ahead;
    reader->places = in_hand > 1 ? in_hand + 1 : 1;
    reader->turns = calloc(reader->places, sizeof(*reader->turns));
    status = reader->turns != NULL
                     ? open_data(reader, dataset, error)
                     : rps_fail(error, RPS_E_NOMEM, "no memory for batches");
    for (uint32_t i = 0; status == RPS_OK && i < reader->places; i++) {
        rps_turn_init(&reader->turns[i], options->model, options->work);
    }
    if (status == RPS_OK && in_hand > 1) {
        status = start_thread(reader, error);
    }
    if (status != RPS_OK) {
        rps_reader_destroy(reader);
        return status;
    }
    *reader_out = reader;
    return RPS_OK;
}

void
rps_reader_destroy(struct rps_reader *reader)
{
    if (reader == NULL) {
        return;
    }
    if (reader->has_thread) {
        rps_reader_stop(reader);
        (void)pthread_join(reader->thread, NULL);
    }
    for (uint32_t i = 0; reader->turns != NULL && i < reader->places; i++) {
        rps_turn_finish(&reader->turns[i]);
    }
    free(reader->turns);
    rps_recent_finish(&reader->recent);
    rps_batcher_destroy(reader->batcher);
    (void)pthread_cond_destroy(&reader->moved);
    (void)pthread_mutex_destroy(&reader->lock);
    free(reader);
}

/* --- taking -------------------------------------------------------------- */

static struct rps_turn *
take_made(struct rps_reader *reader)
{
    struct rps_turn *turn;

    (void)pthread_mutex_lock(&reader->lock);
    reader->taken++;
    (void)pthread_cond_broadcast(&reader->moved); /* a place is free */
    while (reader->made < reader->taken) {
        (void)pthread_cond_wait(&reader->moved, &reader->lock);
    }
    turn = turn_at(reader, reader->taken - 1);
    (void)pthread_mutex_unlock(&reader->lock);
    return turn;
}

rps_status
rps_reader_take(struct rps_reader *reader, struct rps_turn **turn_out,
        struct rps_error *error)
{
    struct rps_turn *turn;

    assert(reader->options.done + reader->taken < reader->options.last_step);
    if (reader->has_thread) {
        turn = take_made(reader);
    } else {
        struct rps_reader_times own = {0}; /* the caller's */

        make_turn(reader, reader->made, &own);
        turn = turn_at(reader, reader->made);
        reader->made++;
        reader->taken++;
    }
    *turn_out = turn;
    if (turn->status != RPS_OK) {
        *error = turn->error;
    }
    return turn->status;
}

struct rps_turn *
rps_reader_peek(struct rps_reader *reader, uint32_t behind)
{
    struct rps_turn *turn = NULL;

    (void)pthread_mutex_lock(&reader->lock);
    if (reader->taken > 0 && behind < reader->options.depth &&
            reader->taken + behind <= reader->made) {
        turn = turn_at(reader, reader->taken - 1 + behind);
    }
    (void)pthread_mutex_unlock(&reader->lock);
    return turn != NULL && turn->status == RPS_OK ? turn : NULL;
}

/* --- following ----------------------------------------------------------- */

const struct rps_turn *
rps_reader_see(struct rps_reader *reader, uint64_t number)
{
    const uint64_t count = reader->options.last_step - reader->options.done;
    const struct rps_turn *turn = NULL;

    assert(reader->has_thread);
    (void)pthread_mutex_lock(&reader->lock);
    while (!reader->stop && number < count && number >= reader->made &&
            !reader->failed) {
        (void)pthread_cond_wait(&reader->moved, &reader->lock);
    }
    if (!reader->stop && number < reader->made) {
        turn = turn_at(reader, number);
    }
    (void)pthread_mutex_unlock(&reader->lock);
    return turn;
}

void
rps_reader_stop(struct rps_reader *reader)
{
    (void)pthread_mutex_lock(&reader->lock);
    reader->stop = true;
    (void)pthread_cond_broadcast(&reader->moved);
    (void)pthread_mutex_unlock(&reader->lock);
}

uint64_t
rps_reader_taken(struct rps_reader *reader)
{
    uint64_t taken;

    (void)pthread_mutex_lock(&reader->lock);
    taken = reader->taken;
    (void)pthread_mutex_unlock(&reader->lock);
    return taken;
}

struct rps_reader_times
rps_reader_times(struct rps_reader *reader)
{
    struct rps_reader_times times;

    (void)pthread_mutex_lock(&reader->lock);
    times = reader->times;
    (void)pthread_mutex_unlock(&reader->lock);
    return times;
}
