/* SPDX-License-Identifier: Apache-2.0 */
/* What `recps-bench checkpoint` was asked for. */
#ifndef RPS_BENCH_CHECKPOINT_ARGS_H
#define RPS_BENCH_CHECKPOINT_ARGS_H

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_CHECKPOINT_ROUNDS_MAX 99u

struct bench_checkpoint_args {
    uint64_t rows;
    rps_table_spec spec;
    const char *dir; /* where the files go, in a folder of their own */
    uint64_t rounds;
    size_t batch;   /* keys of a push, of a lookup */
    double seconds; /* of each part with traffic; 0: none of them */
    uint64_t save_buffer;
    uint64_t seed;
    bool json;
};

/** 0, or the exit code after saying what is wrong. --help exits. */
int bench_checkpoint_args_read(
        struct bench_checkpoint_args *args, int argc, char **argv);

#endif /* RPS_BENCH_CHECKPOINT_ARGS_H */
