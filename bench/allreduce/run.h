/* SPDX-License-Identifier: Apache-2.0 */
/* One run under mpirun, and what Open MPI's monitor saw of it. */
#ifndef RPS_BENCH_ALLREDUCE_RUN_H
#define RPS_BENCH_ALLREDUCE_RUN_H

#include "base/error.h"
#include "bench/allreduce/args.h"

/** What one rank sent in the whole run. */
struct bench_allreduce_sent {
    uint64_t bytes;
    uint64_t messages;
    uint32_t peers; /* ranks that got a hundredth of the bytes or more */
};

struct bench_allreduce_run {
    uint32_t ranks;
    const char *algorithm; /* "ring" or "default" */
    double milliseconds;   /* an allreduce; median, of rank 0 */
    struct bench_allreduce_sent sent[BENCH_ALLREDUCE_RANKS_MAX];
};

/**
 * Run `ranks` processes of this program. Errors: NOT_FOUND (no mpirun), IO,
 * CORRUPT (no figures where the monitor writes them), UNREACHABLE (mpirun
 * failed; a sum was wrong).
 */
rps_status bench_allreduce_run(const struct bench_allreduce_args *args,
        struct bench_allreduce_run *run, struct rps_error *error);

/** One line of the monitor: false if it does not count messages. */
bool bench_allreduce_read_line(
        const char *line, uint64_t *bytes_out, uint64_t *messages_out);

#endif /* RPS_BENCH_ALLREDUCE_RUN_H */
