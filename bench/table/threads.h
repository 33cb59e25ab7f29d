/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that run free for a while, each over a pool of batches made
 * beforehand (a thread's own, large enough that a second turn finds nothing
 * in a cache). In the loop only the first value of each row is compared
 * (about a nanosecond a key, in every kind of work); the last batch in full.
 */
#ifndef RPS_BENCH_TABLE_THREADS_H
#define RPS_BENCH_TABLE_THREADS_H

#include "bench/table/fixture.h"

#define BENCH_POOL_KEYS_MAX (4u << 20)

enum bench_work {
    BENCH_WORK_GATHER, /* a line, then the row */
    BENCH_WORK_LOOKUP,
    BENCH_WORK_PUSH
};

struct bench_pool {
    size_t batch;   /* keys of one */
    size_t batches; /* batches */
    bool hot;
    uint64_t pushed;        /* batches that were pushed so far */
    uint32_t *rows;         /* [batches][batch] */
    uint64_t *keys;         /* [batches][batch] */
    float *firsts;          /* [batches][batch] column 0, or NULL */
    const void **row_at;    /* [batches][batch], or NULL */
    const void **line_at;   /* [batches][batch], or NULL */
    float *gradients;       /* [batch][dim], the same for each batch, or NULL */
    struct bench_batch out; /* buffers */
};

/**
 * Pools of lookups (and gathers) have firsts, row_at and line_at.
 * Errors: NOMEM.
 */
rps_status bench_pool_init_reads(struct bench_pool *pool,
        const struct bench_fixture *fixture, const struct bench_dist_spec *dist,
        uint64_t seed);

/**
 * Pools of pushes: keys of a batch are distinct but for the hot row, and the
 * row at place i is of gradient class i mod 8, so that one array of gradients
 * serves every batch. `hot` puts row 0 into the fixture's hot places; without
 * it rows 0..7 never come.
 */
rps_status bench_pool_init_pushes(struct bench_pool *pool,
        const struct bench_fixture *fixture, bool hot, uint64_t seed);
void bench_pool_finish(struct bench_pool *pool);

/** Add to counts what the pool's pushes did. */
void bench_pool_count(const struct bench_pool *pool, uint32_t *counts);

/**
 * Run `threads` threads, thread i on pools[i], from a barrier on for args'
 * seconds. *rate_out: keys a second, summed. Errors: CORRUPT, NOMEM, what a
 * push says.
 */
rps_status bench_threads_run(struct bench_fixture *fixture,
        enum bench_work work, struct bench_pool *pools, unsigned threads,
        double *rate_out);

#endif /* RPS_BENCH_TABLE_THREADS_H */
