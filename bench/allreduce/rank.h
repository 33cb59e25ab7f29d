/* SPDX-License-Identifier: Apache-2.0 */
/* One rank of a run: what mpirun starts. */
#ifndef RPS_BENCH_ALLREDUCE_RANK_H
#define RPS_BENCH_ALLREDUCE_RANK_H

#include "bench/allreduce/args.h"

/** Was this built with MPI? */
bool bench_allreduce_is_built(void);

/** The exit code; 1: a sum was wrong. Rank 0 prints the median's
 * milliseconds. */
int bench_allreduce_rank(const struct bench_allreduce_args *args);

#endif /* RPS_BENCH_ALLREDUCE_RANK_H */
