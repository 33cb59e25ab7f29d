/* SPDX-License-Identifier: Apache-2.0 */
/* What `recps-bench table` was asked for. */
#ifndef RPS_BENCH_TABLE_ARGS_H
#define RPS_BENCH_TABLE_ARGS_H

#include "base/error.h"
#include "bench/options.h"

#include <recps/types.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BENCH_DIMS_MAX     16u
#define BENCH_THREADS_MAX  256u
#define BENCH_INSERT_BATCH 256u /* new keys a push, as the issue has it */

struct bench_sweep {
    uint64_t from;
    uint64_t to;
    uint64_t count; /* sizes, evenly by logarithm; 0: no sweep */
};

struct bench_table_args {
    uint64_t rows;
    uint32_t dims[BENCH_DIMS_MAX]; /* one, or more for a sweep */
    size_t dim_count;
    size_t batch;
    const char *dist_text;
    struct bench_dist_spec dist;
    const char *mix_text;         /* NULL: no mix */
    uint64_t mix[BENCH_OP_COUNT]; /* weights */
    unsigned threads;
    enum rps_value value;
    enum rps_optimizer optimizer;
    double seconds;
    uint64_t seed;
    bool json;
    bool peers;
    bool memory;
    struct bench_sweep sweep;
};

/** 0, or the exit code after saying what is wrong. --help exits. */
int bench_table_args_read(struct bench_table_args *args, int argc, char **argv);

/** The table's spec at dims[which]. */
void bench_table_spec(const struct bench_table_args *args, size_t which,
        rps_table_spec *spec);

#endif /* RPS_BENCH_TABLE_ARGS_H */
