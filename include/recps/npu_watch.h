/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching a device: every operation, with what it reads before it runs and
 * what it wrote after it. Made for dumps; whoever watches sees the memory as
 * kernels do, and only looks.
 *
 * Without a watcher it costs one relaxed load an operation.
 */
#ifndef RPS_NPU_WATCH_H
#define RPS_NPU_WATCH_H

#include <recps/npu_tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A tensor of an operation. Strides as npu_tensor.h has them. */
typedef struct rps_npu_watched_tensor {
    const char *label; /**< "weight", as the call has it; or NULL */
    enum rps_npu_dtype dtype;
    uint32_t ndim;
    uint64_t shape[RPS_NPU_DIMS_MAX];
    uint64_t strides[RPS_NPU_DIMS_MAX]; /**< elements */
    uint64_t address;                   /**< on the device; 0: no memory */
    /** Where the host can read its first element, during the call alone. */
    const void *bytes;
} rps_npu_watched_tensor;

typedef struct rps_npu_watched {
    const char *type;  /**< "linear" */
    const char *name;  /**< "top.2/linear" */
    const char *holds; /**< of a fused one: "linear + bias + relu"; or NULL */
    /** What it does beside its tensors, as a JSON object: {"activation":
     * "relu", "accumulate": false}; every argument that is a number or a word
     * and that a recomputation needs. Never NULL; "{}" */
    const char *attributes;
    uint32_t stream; /**< number on its device, from 0 in order of creation */
    /** Also what an output held before, where that is read: with the same
     * label, behind the others. */
    const rps_npu_watched_tensor *inputs;
    uint32_t input_count;
    const rps_npu_watched_tensor *outputs;
    uint32_t output_count;
} rps_npu_watched;

/**
 * Both are called on the stream's thread, one operation after the other a
 * stream; several streams at once. `before` with outputs, too, as they are
 * then. What `before` returns is `after`'s `token`.
 */
typedef struct rps_npu_watcher {
    void *(*before)(void *context, const rps_npu_watched *operation);
    void (*after)(void *context, void *token, const rps_npu_watched *operation);
    void *context;
} rps_npu_watcher;

/**
 * Watch, or with NULL no longer. Of what is in compiled steps all is seen;
 * operations that were captured before have no attributes ("{}"): watch first.
 *
 * Owns:    copies *watcher; its context outlives the watching.
 * Threads: one, while no stream has work.
 * Errors:  INVAL: no device, or a watcher that lacks a function.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_watch(
        rps_npu *npu, const rps_npu_watcher *watcher);

/**
 * How much one run of a compiled step would show: the bytes of all inputs and
 * outputs of its operations, bf16 as f32, as dumps have it.
 *
 * Threads: any.
 * Errors:  INVAL: no step.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_step_watched(const rps_npu_step *step,
        uint64_t *operations_out, uint64_t *bytes_out);

#ifdef __cplusplus
}
#endif

#endif /* RPS_NPU_WATCH_H */
