/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ways in which a model's steps are launched and fed:
 *
 *   own      the launching thread prepares, copies and launches each step, and
 *            waits for it
 *   ahead    an input thread prepares and copies, into a queue of one set;
 *            each step is launched, and waited for
 *   offload  the same with a queue of `loop` sets and as many steps a launch
 */
#ifndef RPS_BENCH_NPU_WAYS_H
#define RPS_BENCH_NPU_WAYS_H

#include "bench/npu/args.h"
#include "bench/npu/model.h"

#include <stdint.h>

enum bench_npu_way {
    BENCH_NPU_OWN,
    BENCH_NPU_AHEAD,
    BENCH_NPU_OFFLOAD,
    BENCH_NPU_WAYS
};

#define BENCH_NPU_SETS 16u /* of input, prepared before */

struct bench_npu_ways {
    rps_npu *npu;
    rps_npu_stream *stream;
    struct bench_npu_model model;
    rps_npu_queue *queues[BENCH_NPU_WAYS]; /* own: NULL */
    rps_npu_step *steps[BENCH_NPU_WAYS];
    rps_npu_step *busy; /* computes nothing for busy_ns */
    uint64_t busy_ns;
    float *sets; /* [BENCH_NPU_SETS][input_floats] */
    uint64_t loop;
    uint64_t seed;
};

/** What one run showed. */
struct bench_npu_run {
    double seconds;
    uint64_t digest; /* of all weights */
    double loss;     /* of the last step */
    rps_npu_counters counters;
};

const char *bench_npu_way_str(enum bench_npu_way way);

/** simulated: with the latencies of the options. Finish it in any case. */
rps_status bench_npu_ways_init(struct bench_npu_ways *ways,
        const struct bench_npu_args *args, bool simulated, uint64_t scale);
void bench_npu_ways_finish(struct bench_npu_ways *ways);

/** `steps` steps from the start values. prepare_ns[steps]: how long the input
 * of each takes to prepare; NULL: no time. */
rps_status bench_npu_ways_run(struct bench_npu_ways *ways,
        enum bench_npu_way way, uint64_t steps, const uint64_t *prepare_ns,
        struct bench_npu_run *run);

/** Units: s, medians of `count`: what launching a step and waiting for it takes
 * beyond the step itself, which is one that is busy for `step_seconds`: who
 * waits so long is asleep. And what a step's input adds to that, copied before
 * it. */
rps_status bench_npu_ways_latencies(struct bench_npu_ways *ways, uint64_t count,
        double step_seconds, double *launch_out, double *copy_out);

#endif /* RPS_BENCH_NPU_WAYS_H */
