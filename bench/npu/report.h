/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured, and how it is printed. bench/README.md explains each. */
#ifndef RPS_BENCH_NPU_REPORT_H
#define RPS_BENCH_NPU_REPORT_H

#include "bench/npu/args.h"

#include <stdbool.h>

/* X(name, words for people); NaN is "not measured", null in JSON. */
#define BENCH_NPU_FIGURES(X)                                                \
    X(launch_us, "a launch and its end, beyond the step, us")               \
    X(copy_us, "a step's input before it, us")                              \
    X(own_step_us, "step, input copied by its own thread, us")              \
    X(ahead_step_us, "step, input copied ahead, one a launch, us")          \
    X(offload_step_us, "step, offloaded, us")                               \
    X(saved_step_us, "saved by the offloaded loop, us a step")              \
    X(model_step_us, "launches and copies saved, by their latencies, us")   \
    X(saved_over_model, "saved / that")                                     \
    X(bare_own_step_us, "no latencies: step, own thread, us")               \
    X(bare_ahead_step_us, "no latencies: step, copied ahead, us")           \
    X(bare_offload_step_us, "no latencies: step, offloaded, us")            \
    X(bare_gain, "no latencies: own thread / offloaded")                    \
    X(jitter_step_us, "preprocessing: step of the wider model, us")         \
    X(offload_constant, "offloaded, 0.8 of a step each, in its steps")      \
    X(offload_jitter, "offloaded, 0 to 2 steps, mean 0.8")                  \
    X(own_constant, "own thread, 0.8 of a step each")                       \
    X(own_jitter, "own thread, 0 to 2 steps, mean 0.8")                     \
    X(offload_jitter_loss, "offloaded: what jitter costs, of its time")     \
    X(own_jitter_loss, "own thread with jitter: what it costs beyond that") \
    X(own_launches, "launches, own thread (input and step)")                \
    X(offload_launches, "launches, offloaded")                              \
    X(queue_copies, "sets copied ahead, offloaded")                         \
    X(queue_depth_max, "sets that lay ready, at most")                      \
    X(checked_runs, "runs whose weights were compared")

struct bench_npu_report {
#define BENCH_FIELD(name, words) double name;
    BENCH_NPU_FIGURES(BENCH_FIELD)
#undef BENCH_FIELD
};

/** Every figure NaN. */
void bench_npu_report_init(struct bench_npu_report *report);

/** To stdout. False: it could not be written. */
bool bench_npu_report_print(const struct bench_npu_report *report,
        const struct bench_npu_args *args);

#endif /* RPS_BENCH_NPU_REPORT_H */
