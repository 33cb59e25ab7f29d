/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pushes and lookups by one thread, in turns, in an open loop: each is due at
 * its time whatever became of the one before, and is as late as it is late.
 */
#ifndef RPS_BENCH_CHECKPOINT_TRAFFIC_H
#define RPS_BENCH_CHECKPOINT_TRAFFIC_H

#include "bench/checkpoint/saves.h"
#include "bench/series.h"

#include <stdatomic.h>

#define BENCH_TRAFFIC_BATCHES                       \
    64u /* drawn before, gone through over and over \
         */

struct bench_traffic {
    struct bench_saves *saves;
    size_t batch;
    uint64_t *keys;   /* [BENCH_TRAFFIC_BATCHES][batch], distinct in each */
    float *gradients; /* [batch][dim] */
    float *rows;      /* [batch][dim] */
    uint64_t next;    /* batch */
};

/** Errors: NOMEM. Finish it also then. */
rps_status bench_traffic_init(
        struct bench_traffic *traffic, struct bench_saves *saves);
void bench_traffic_finish(struct bench_traffic *traffic);

/** Push the first `count` batches, each once. */
rps_status bench_traffic_push(struct bench_traffic *traffic, uint64_t count);

/** One after the other without a pause: pushes a second, as many lookups. */
rps_status bench_traffic_peak(
        struct bench_traffic *traffic, double seconds, double *per_second);

/** Microseconds from when each was due to its end. */
struct bench_latencies {
    struct bench_series push;
    struct bench_series lookup;
};

/**
 * per_second pushes and as many lookups, until *stop says so, but for
 * `seconds` at least. Only those count that begin while *counts is true;
 * NULL: all.
 */
rps_status bench_traffic_run(struct bench_traffic *traffic, double per_second,
        double seconds, const _Atomic bool *stop, const _Atomic bool *counts,
        struct bench_latencies *latencies);

#endif /* RPS_BENCH_CHECKPOINT_TRAFFIC_H */
