/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first stage: turns in the order of their steps, read from the data,
 * their keys taken out by table and split. With a depth above 1, or where more
 * are to be read ahead, a thread makes them ahead of the steps; it alone
 * touches the data then.
 *
 * Threads: one caller, the training loop; the thread is inside. Another one may
 * follow it with rps_reader_see().
 */
#ifndef RPS_WORKER_READER_H
#define RPS_WORKER_READER_H

#include "client/worker/spent.h"
#include "client/worker/turn.h"

#define RPS_PIPELINE_DEPTH_MAX 64u

struct rps_reader;

struct rps_reader_options {
    const struct rps_model *model; /* borrowed, its tables alone */
    struct rps_bags_work *work;    /* [tables], of the turns' bags; borrowed */
    struct rps_batcher_options batches; /* this replica's; other_keys is set
                                         * as the depth needs it */
    uint32_t depth; /* turns in hand: one is computed, the rest ahead */
    uint32_t ahead; /* turns that are read ahead, if that is more */
    bool slots;     /* of the turns' tokens are wanted */
    uint32_t slack; /* steps that lookups may be behind (bounded) */
    uint64_t epoch; /* where the data begins */
    uint64_t batch;
    uint64_t epoch_batches; /* global batches of an epoch */
    uint64_t done;      /* steps that are over: the first turn is the next */
    uint64_t last_step; /* no turn beyond it is read */
};

/** The dataset is borrowed, and not to be touched until destroy(). */
rps_status rps_reader_create(struct rps_reader **reader_out,
        struct rps_dataset *dataset, const struct rps_reader_options *options,
        struct rps_error *error);

/** Stops the thread. No lookup of a turn may be on its way. NULL is fine. */
void rps_reader_destroy(struct rps_reader *reader);

/**
 * The next step's turn, as soon as it is read; the one before is over.
 *
 * Errors: of reading it, in the turn's words.
 */
rps_status rps_reader_take(struct rps_reader *reader,
        struct rps_turn **turn_out, struct rps_error *error);

/** The turn that is `behind` the one taken (0: that one), if it is read by now
 * and may be looked up ahead; else NULL. */
struct rps_turn *rps_reader_peek(struct rps_reader *reader, uint32_t behind);

/**
 * Turn `number` (0: the first), as soon as it is made; NULL: there is none, or
 * rps_reader_stop() was called first. It stays as it is, but for its lookups
 * and its rows, until the one after it is taken.
 *
 * Threads: one beside the caller's; not after the turn after it is taken.
 */
const struct rps_turn *rps_reader_see(
        struct rps_reader *reader, uint64_t number);

/** Nobody waits in rps_reader_see() any more, and no turn is made. */
void rps_reader_stop(struct rps_reader *reader);

/** Turns taken so far. */
uint64_t rps_reader_taken(struct rps_reader *reader);

/** What its thread did so far; nothing without one. */
struct rps_reader_times rps_reader_times(struct rps_reader *reader);

#endif /* RPS_WORKER_READER_H */
