/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is timed: our server, the bare stream, the table in process, other
 * servers. All sides take turns in short slices, so that the machine's drift
 * is in each of them; a ratio is the median of the ratios of the slices.
 */
#ifndef RPS_BENCH_NET_SIDE_H
#define RPS_BENCH_NET_SIDE_H

#include "base/error.h"
#include "bench/series.h"

#include <stdint.h>

/** What one slice did. */
struct bench_slice {
    double seconds;             /* from its first request to its last answer */
    uint64_t requests;          /* that were answered */
    uint64_t ids;               /* of these requests */
    uint64_t bytes;             /* of their messages, both ways; 0: unknown */
    struct bench_series micros; /* of each request */
    double client_cpu_seconds;
    double server_cpu_seconds; /* NaN: not ours */
    uint64_t beside_ids;       /* of the connection beside, as long */
};

void bench_slice_finish(struct bench_slice *slice);

struct bench_side {
    const char *name;
    void *context;
    /** A slice of so many seconds: fills *slice, which is zeroed. */
    rps_status (*run)(void *context, double seconds, struct bench_slice *slice,
            struct rps_error *error);
    /* Of each slice: */
    struct bench_series ids_rate; /* a second */
    struct bench_series bytes_rate;
    struct bench_series beside_rate;
    struct bench_series p50_us;
    /* Over all slices: */
    struct bench_series micros;
    double client_cpu_seconds;
    double server_cpu_seconds;
    uint64_t ids;
    uint64_t bytes;
};

/** One slice; `counts`: it is no warm-up. */
rps_status bench_side_run(struct bench_side *side, double seconds, bool counts,
        struct rps_error *error);
void bench_side_finish(struct bench_side *side);

#endif /* RPS_BENCH_NET_SIDE_H */
