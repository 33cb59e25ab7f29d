/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operation on a stream: a kernel with its arguments. What gives operators
 * to streams (ops*.c, tensor.c) and what does them (stream.c) meet here.
 *
 * A kernel works on host-visible addresses (rps_npu_inside), which no one but
 * kernels may use. It does not wait, allocate or fail: whoever enqueues it has
 * checked everything.
 */
#ifndef RPS_NPU_OPERATION_H
#define RPS_NPU_OPERATION_H

#include <recps/npu_tensor.h>

#define RPS_NPU_OPERATION_ARGS_BYTES  256u
#define RPS_NPU_OPERATION_TENSORS_MAX 16u

/** args: as enqueued; workspace: the stream's, at least as large as asked for,
 * 64-byte aligned, contents unspecified. */
typedef void (*rps_npu_kernel_fn)(const void *args, void *workspace);

struct rps_npu_operation {
    const char *type; /* "linear": static */
    const char *name; /* "top.2/linear": copied; NULL: the type */
    const char
            *holds; /* of a fused one: "linear + bias + relu"; static; NULL */
    rps_npu_kernel_fn kernel;
    const void *args;    /* copied */
    uint32_t args_bytes; /* at most RPS_NPU_OPERATION_ARGS_BYTES */
    uint64_t workspace_bytes;
    uint64_t flops; /* for profiles; 0: not said */
    uint64_t bytes; /* read and written, for profiles */
    /* what it reads and writes: its memory stays theirs until it is done, in
     * a step as long as the step (keep.h); shown by profiles and dumps */
    const rps_npu_tensor *inputs;
    uint32_t input_count;
    const rps_npu_tensor *outputs;
    uint32_t output_count;
    /* for who watches (npu_watch.h): static words, or NULL */
    const char *const *input_labels;  /* [input_count] */
    const char *const *output_labels; /* [output_count] */
    uint32_t outputs_read;  /* bits: outputs whose old value is an input */
    uint32_t outputs_kept;  /* bits: those that it only looks at */
    const char *attributes; /* copied; NULL: none */
};

/**
 * Give a kernel to a stream, or note it where the stream captures.
 *
 * Errors: the usual of npu.h.
 */
rps_status rps_npu_enqueue(
        rps_npu_stream *stream, const struct rps_npu_operation *operation);

/** Where a kernel finds what the device calls `address`. */
void *rps_npu_inside(const rps_npu *npu, const void *address);

/** Set the thread's words (rps_npu_error); returns `status`. */
rps_status rps_npu_fail(rps_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

#endif /* RPS_NPU_OPERATION_H */
