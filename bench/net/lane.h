/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: its client, its requests in flight, its draws. */
#ifndef RPS_BENCH_NET_LANE_H
#define RPS_BENCH_NET_LANE_H

#include "bench/dist.h"
#include "bench/net/load.h"

#include <pthread.h>
#include <stdatomic.h>

/** A request in flight. */
struct bench_slot {
    rps_ticket ticket;
    size_t at;      /* batch of the pool */
    uint64_t start; /* ns */
    float *rows;    /* [batch][dim] what a lookup answers */
    uint64_t *keys; /* [batch] new ones, of an insert */
    bool answered;  /* rows is the answer of batch `at`, a lookup */
};

struct bench_lane {
    struct bench_load *load;
    const struct bench_turn *turn; /* of this slice */
    unsigned index;
    bool is_beside;
    rps_client *client;
    rps_embedding_table *table;
    size_t batch;
    size_t depth; /* requests in flight */
    uint32_t dim;

    /* The pool: what is asked, over and over within a slice. */
    struct bench_dist dist;
    uint64_t draws;
    size_t batches;
    uint8_t *ops;            /* [batches] enum bench_op */
    uint32_t *rows;          /* [batches][batch] */
    uint64_t *keys;          /* [batches][batch] */
    uint32_t *pushes;        /* [batches] of the batch in this slice */
    float *gradients;        /* [batches][batch][dim], or NULL: no pushes */
    float *insert_gradients; /* [batch][dim], or NULL: no inserts */
    uint64_t inserted;       /* batches */

    struct bench_slot slots[BENCH_DEPTH_MAX];
    float *wanted; /* [batch][dim] scratch */
    float *starts; /* [batch][dim] scratch of checks beside pushes */

    /* Of this slice; the thread's until it is joined. */
    pthread_t thread;
    uint64_t first_ns;
    uint64_t deadline_ns;    /* 0: until `stop` */
    const atomic_bool *stop; /* relaxed: only says when to end */
    uint64_t last_ns;
    uint64_t requests;
    uint64_t ids;
    uint64_t checked;
    struct bench_series micros;
    rps_traffic traffic; /* before it, then of it */
    rps_status status;
    struct rps_error error;
};

rps_status bench_lane_init(struct bench_lane *lane, struct rps_error *error);
void bench_lane_finish(struct bench_lane *lane);

/** Draw what the slice asks for. */
void bench_lane_draw(struct bench_lane *lane);

/** The slice: pthread_create()'s function, context is the lane. */
void *bench_lane_run(void *context);

/** Nothing is in flight: compare what was answered, or what was pushed. */
rps_status bench_lane_check(struct bench_lane *lane, struct rps_error *error);

/** Compare these rows of the set with the model; n <= lane->batch. */
rps_status bench_lane_check_rows(struct bench_lane *lane, size_t n,
        const uint32_t *rows, struct rps_error *error);

#endif /* RPS_BENCH_NET_LANE_H */
