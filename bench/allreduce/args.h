/* SPDX-License-Identifier: Apache-2.0 */
/* What `recps-bench allreduce` was asked for. */
#ifndef RPS_BENCH_ALLREDUCE_ARGS_H
#define RPS_BENCH_ALLREDUCE_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_ALLREDUCE_PROGRAM   "recps-bench allreduce"
#define BENCH_ALLREDUCE_RANKS_MAX 64u
#define BENCH_ALLREDUCE_RUNS_MAX  8u
#define BENCH_ALLREDUCE_BYTES_MAX ((uint64_t)1 << 30)

struct bench_allreduce_args {
    uint32_t ranks[BENCH_ALLREDUCE_RUNS_MAX]; /* of each run; 2 or more */
    size_t run_count;
    uint64_t bytes;  /* of the payload; a multiple of 4 */
    uint64_t repeat; /* allreduces of a run */
    const char *mpirun;
    bool json;
    const char *as_rank; /* NULL, or "ring", "default": one of mpirun's */
};

/** 0; EX_USAGE after saying why; -1: --help was answered. */
int bench_allreduce_args_read(
        struct bench_allreduce_args *args, int argc, char **argv);

#endif /* RPS_BENCH_ALLREDUCE_ARGS_H */
