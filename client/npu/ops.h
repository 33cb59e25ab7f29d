/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How operators (ops*.c) check their tensors and give a kernel to a stream.
 *
 * An operation is begun, gets its inputs and outputs one after the other, and
 * is given. The first thing that is wrong stays in `status` and makes all that
 * follows do nothing, so a call asks once, at its end.
 */
#ifndef RPS_NPU_OPS_IMPL_H
#define RPS_NPU_OPS_IMPL_H

#include "base/text.h"
#include "client/npu/kernels/map.h"
#include "client/npu/operation.h"

#include <recps/npu_ops.h>

/** Dtypes that a tensor may have: a set of bits. */
#define RPS_NPU_OP_F32    (1u << RPS_NPU_F32)
#define RPS_NPU_OP_FACTOR (1u << RPS_NPU_F32 | 1u << RPS_NPU_BF16)
#define RPS_NPU_OP_I32    (1u << RPS_NPU_I32)
#define RPS_NPU_OP_F64    (1u << RPS_NPU_F64)

/** In a shape that is asked for: any number. */
#define RPS_NPU_OP_ANY UINT64_MAX

struct rps_npu_op {
    const rps_npu_ops *ops; /* borrowed */
    const rps_npu *npu;
    const char *type; /* static */
    rps_status status;
    uint32_t input_count;
    uint32_t output_count;
    /* views of our own: what was given, or a contiguous copy */
    rps_npu_tensor inputs[RPS_NPU_OPERATION_TENSORS_MAX];
    rps_npu_tensor outputs[RPS_NPU_OPERATION_TENSORS_MAX];
    uint64_t bytes;
    /* inputs that an output may be, element by element: NULL where none may.
     * Else the two may share no memory */
    const rps_npu_tensor *in_place[2]; /* borrowed */
    /* for who watches (npu_watch.h); names are static */
    bool watched;
    const char *input_names[RPS_NPU_OPERATION_TENSORS_MAX];
    const char *output_names[RPS_NPU_OPERATION_TENSORS_MAX];
    const char *row_names[3]; /* of rps_npu_op_rows(); x, x, y at first */
    uint32_t outputs_read;    /* as operation.h has them */
    uint32_t outputs_kept;
    struct rps_text attributes; /* what was said */
};

/** An operand in rows, as kernels take it. */
struct rps_npu_operand_rows {
    void *at; /* inside */
    size_t stride;
};

/** Begin an operation of a static type: its words begin with it. */
void rps_npu_op_begin(
        struct rps_npu_op *op, const rps_npu_ops *ops, const char *type);

/** Note that it cannot be done. */
void rps_npu_op_fail(struct rps_npu_op *op, rps_status status,
        const char *format, ...) __attribute__((format(printf, 3, 4)));

/** Is what `what` names given, that is not NULL? */
bool rps_npu_op_has(struct rps_npu_op *op, const char *what, const void *given);

/**
 * Is it a tensor on this device, of one of `dtypes`, of this shape? `what` is
 * its name in the call. ndim 0: any shape.
 *
 * Shapes: shape[ndim], RPS_NPU_OP_ANY where any number will do.
 */
bool rps_npu_op_check(struct rps_npu_op *op, const char *what,
        const rps_npu_tensor *tensor, unsigned dtypes, uint32_t ndim,
        const uint64_t *shape);

/** The same for tensors that must have the shape of another one. */
bool rps_npu_op_check_like(struct rps_npu_op *op, const char *what,
        const rps_npu_tensor *tensor, unsigned dtypes,
        const rps_npu_tensor *like);

/* Operands, checked before. */

/** A contiguous input, copied if it is not. */
const void *rps_npu_op_input(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);

/** A contiguous output. */
void *rps_npu_op_output(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);

/** Of two dimensions: rows with a stride. */
struct rps_npu_operand_rows rps_npu_op_input_rows(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);
struct rps_npu_operand_rows rps_npu_op_output_rows(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);

/** Of three dimensions: rows of rows, with both strides. */
struct rps_npu_operand_planes {
    void *at;
    size_t outer;
    size_t inner;
};

struct rps_npu_operand_planes rps_npu_op_input_planes(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);
struct rps_npu_operand_planes rps_npu_op_output_planes(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);

/**
 * Tensors of one shape as rows: as few and as long ones as the strides allow.
 * `a` and `b` may be NULL. at_out[3]: inside addresses of a, b, y.
 */
struct rps_npu_rows rps_npu_op_rows(struct rps_npu_op *op,
        const rps_npu_tensor *a, const rps_npu_tensor *b,
        const rps_npu_tensor *y, void *at_out[3]);

/** Inputs and outputs that were looked at already, for the record alone. */
void rps_npu_op_add_input(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);
void rps_npu_op_add_output(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor);

/** The output that was added last: what it held before is read, too. */
void rps_npu_op_reads_output(struct rps_npu_op *op);
/** It is no output, only looked at. */
void rps_npu_op_keeps_output(struct rps_npu_op *op);

/* Attributes: what a recomputation needs beside the tensors. Nothing is done
 * unless somebody watches. Keys and words are plain. */
void rps_npu_op_say_word(
        struct rps_npu_op *op, const char *key, const char *word);
void rps_npu_op_say_bool(struct rps_npu_op *op, const char *key, bool value);
void rps_npu_op_say_count(
        struct rps_npu_op *op, const char *key, uint64_t value);
void rps_npu_op_say_number(
        struct rps_npu_op *op, const char *key, double value);
/** All that was said, and how it computes, as a JSON object: into an empty
 * text, which stays empty where nobody watches. */
void rps_npu_op_attributes(const struct rps_npu_op *op, struct rps_text *text);

/** What is done with it. */
struct rps_npu_op_work {
    rps_npu_kernel_fn kernel;
    const void *args;
    uint32_t args_bytes;
    uint64_t workspace_bytes;
    uint64_t flops;
    const char *holds; /* static; NULL */
};

/** Give it, unless something was wrong, and let go of its tensors. */
rps_status rps_npu_op_give(
        struct rps_npu_op *op, const struct rps_npu_op_work *work);

/** Let go of its tensors; nothing is given. */
rps_status rps_npu_op_drop(struct rps_npu_op *op);

/** rps_npu_cast() under another name: a part of an operator. */
rps_status rps_npu_op_copy(const rps_npu_ops *ops, const char *type,
        const rps_npu_tensor *x, const rps_npu_tensor *y);

/** How its kernels compute. */
struct rps_npu_arithmetic rps_npu_op_how(const rps_npu_ops *ops);

/** A deterministic product needs one BLAS thread; the first product of a
 * process sets it. */
void rps_npu_op_check_threads(struct rps_npu_op *op);

#endif /* RPS_NPU_OPS_IMPL_H */
