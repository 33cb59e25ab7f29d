/* SPDX-License-Identifier: Apache-2.0 */
/* What `recps-bench npu` was asked for. */
#ifndef RPS_BENCH_NPU_ARGS_H
#define RPS_BENCH_NPU_ARGS_H

#include <stdbool.h>
#include <stdint.h>

struct bench_npu_args {
    uint32_t device;
    uint64_t batch;
    uint64_t width; /* of the layers */
    uint64_t steps; /* of a run */
    uint64_t loop;
    uint64_t rounds;
    uint64_t launch_latency_ns;
    uint64_t link_bytes_per_second; /* 0: as fast as the machine */
    uint64_t jitter_scale; /* the jittered model's width and batch, in these */
    const char *trace;     /* folder of the profiles; NULL: none */
    uint64_t seed;
    bool json;
};

/** 0, or the exit code after saying what is wrong. --help exits. */
int bench_npu_args_read(struct bench_npu_args *args, int argc, char **argv);

#endif /* RPS_BENCH_NPU_ARGS_H */
