/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who takes the batches of a scan: the thread that reads them, or threads
 * beside it. A ring of batches: number i lies in place i mod count, and is
 * the reader's, or, from give on until it is done, a worker's.
 *
 *   started <= given <= started + count
 */
#ifndef RPS_EMBEDDING_CHECKPOINT_CREW_H
#define RPS_EMBEDDING_CHECKPOINT_CREW_H

#include "embedding/checkpoint/scan.h"

#include <pthread.h>

#define RPS_CKPT_WORKERS_MAX 8u
#define RPS_CKPT_BATCHES_MAX (RPS_CKPT_WORKERS_MAX + 2u)

struct rps_ckpt_crew {
    const struct rps_ckpt_scan *scan;
    uint32_t count; /* batches */
    struct rps_ckpt_batch batches[RPS_CKPT_BATCHES_MAX];
    bool busy[RPS_CKPT_BATCHES_MAX]; /* lock */
    pthread_mutex_t lock;
    pthread_cond_t work; /* given rose, or ending */
    pthread_cond_t done; /* a batch is the reader's again */
    uint64_t given;      /* lock */
    uint64_t started;    /* lock */
    bool ending;         /* lock */
    rps_status status;   /* lock; of the first that failed */
    struct rps_error error;
    pthread_t threads[RPS_CKPT_WORKERS_MAX];
    uint32_t thread_count;
};

/**
 * `capacity` rows a batch; scan->workers threads, none where all rows fit one
 * batch. Errors: NOMEM. End it also then.
 */
rps_status rps_ckpt_crew_start(struct rps_ckpt_crew *crew,
        const struct rps_ckpt_scan *scan, size_t capacity,
        struct rps_error *error);

/** A batch to fill; NULL: one failed, there is no use in more. */
struct rps_ckpt_batch *rps_ckpt_crew_take(struct rps_ckpt_crew *crew);

/** It is filled; it was the last one taken. */
void rps_ckpt_crew_give(struct rps_ckpt_crew *crew);

/** When all that was given is done: what the first one said that failed. */
rps_status rps_ckpt_crew_end(
        struct rps_ckpt_crew *crew, struct rps_error *error);

/** Processors that this process may use, RPS_CKPT_WORKERS_MAX at most. */
uint32_t rps_ckpt_crew_usual(void);

#endif /* RPS_EMBEDDING_CHECKPOINT_CREW_H */
