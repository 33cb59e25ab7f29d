/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors as kernels take them: inside addresses, rows with strides, copies of
 * inputs that have no such form.
 */
#include "client/npu/ops.h"

#include <assert.h>

static void *
inside(const struct rps_npu_op *op, const rps_npu_tensor *tensor)
{
    return rps_npu_inside(op->npu, rps_npu_tensor_address(tensor));
}

static void
count_bytes(struct rps_npu_op *op, const rps_npu_tensor *tensor)
{
    op->bytes +=
            rps_npu_tensor_elements(tensor) * rps_npu_dtype_size(tensor->dtype);
}

void
rps_npu_op_add_input(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    if (op->status != RPS_OK) {
        return;
    }
    assert(op->input_count < RPS_NPU_OPERATION_TENSORS_MAX);
    op->input_names[op->input_count] = what;
    op->inputs[op->input_count++] = rps_npu_tensor_retain(tensor);
    count_bytes(op, tensor);
}

void
rps_npu_op_add_output(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    if (op->status != RPS_OK) {
        return;
    }
    assert(op->output_count < RPS_NPU_OPERATION_TENSORS_MAX);
    op->output_names[op->output_count] = what;
    op->outputs[op->output_count++] = rps_npu_tensor_retain(tensor);
    count_bytes(op, tensor);
}

static uint32_t
last_output(const struct rps_npu_op *op)
{
    return op->output_count > 0 ? 1u << (op->output_count - 1) : 0;
}

void
rps_npu_op_reads_output(struct rps_npu_op *op)
{
    op->outputs_read |= last_output(op);
}

void
rps_npu_op_keeps_output(struct rps_npu_op *op)
{
    op->outputs_read |= last_output(op);
    op->outputs_kept |= last_output(op);
}

/* As an input, contiguous; which view it is. */
static const rps_npu_tensor *
add_contiguous(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    rps_npu_tensor *input = &op->inputs[op->input_count];

    assert(op->input_count < RPS_NPU_OPERATION_TENSORS_MAX);
    op->status = rps_npu_tensor_contiguous(op->ops->stream, tensor, input);
    if (op->status != RPS_OK) {
        return NULL;
    }
    op->input_names[op->input_count++] = what;
    count_bytes(op, tensor);
    return input;
}

const void *
rps_npu_op_input(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    const rps_npu_tensor *input = NULL;

    if (op->status == RPS_OK) {
        input = add_contiguous(op, what, tensor);
    }
    return input != NULL ? inside(op, input) : NULL;
}

static void
say_layout(struct rps_npu_op *op, const char *what)
{
    rps_npu_op_fail(op, RPS_E_INVAL,
            "%s is an output: its elements must lie side by side along its "
            "last dimension, in rows one stride apart; a contiguous tensor "
            "does, or a slice of one",
            what);
}

void *
rps_npu_op_output(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    if (op->status == RPS_OK && !rps_npu_tensor_is_contiguous(tensor)) {
        rps_npu_op_fail(
                op, RPS_E_INVAL, "%s must be contiguous: it is changed", what);
    }
    rps_npu_op_add_output(op, what, tensor);
    return op->status == RPS_OK ? inside(op, tensor) : NULL;
}

/* --- rows
 * ---------------------------------------------------------------------- */

/* A dimension's stride where there is more than one element, else what it
 * would be in rows of `packed` elements. */
static uint64_t
stride_of(const rps_npu_tensor *tensor, uint32_t d, uint64_t packed)
{
    return tensor->shape[d] > 1 ? tensor->strides[d] : packed;
}

/* [rows][columns], columns side by side. Of an input rows may overlap, or be
 * the same one: a BLAS asks only that a row begins behind the last one's end,
 * so those are not rows to it. */
static bool
has_rows(const rps_npu_tensor *tensor)
{
    const uint64_t columns = tensor->shape[1];

    return stride_of(tensor, 1, 1) == 1 &&
           stride_of(tensor, 0, columns) >= columns;
}

static struct rps_npu_operand_rows
rows_of(const struct rps_npu_op *op, const rps_npu_tensor *tensor)
{
    return (struct rps_npu_operand_rows){.at = inside(op, tensor),
            .stride = stride_of(tensor, 0, tensor->shape[1])};
}

struct rps_npu_operand_rows
rps_npu_op_input_rows(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    const rps_npu_tensor *input = tensor;

    if (op->status == RPS_OK && has_rows(tensor)) {
        rps_npu_op_add_input(op, what, tensor);
    } else if (op->status == RPS_OK) {
        input = add_contiguous(op, what, tensor);
    }
    return op->status == RPS_OK ? rows_of(op, input)
                                : (struct rps_npu_operand_rows){0};
}

struct rps_npu_operand_rows
rps_npu_op_output_rows(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    if (op->status == RPS_OK && !has_rows(tensor)) {
        say_layout(op, what);
    }
    rps_npu_op_add_output(op, what, tensor);
    return op->status == RPS_OK ? rows_of(op, tensor)
                                : (struct rps_npu_operand_rows){0};
}

/* --- rows of rows
 * ---------------------------------------------------------------- */

static struct rps_npu_operand_planes
planes_of(const struct rps_npu_op *op, const rps_npu_tensor *tensor)
{
    struct rps_npu_operand_planes planes = {.at = inside(op, tensor)};

    planes.inner = stride_of(tensor, 1, tensor->shape[2]);
    planes.outer = stride_of(tensor, 0, planes.inner * tensor->shape[1]);
    return planes;
}

static bool
has_planes(const rps_npu_tensor *tensor)
{
    const uint64_t inner = stride_of(tensor, 1, tensor->shape[2]);

    return stride_of(tensor, 2, 1) == 1 && inner >= tensor->shape[2] &&
           stride_of(tensor, 0, UINT64_MAX) >= inner * tensor->shape[1];
}

struct rps_npu_operand_planes
rps_npu_op_input_planes(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    const rps_npu_tensor *input = tensor;

    if (op->status == RPS_OK && has_planes(tensor)) {
        rps_npu_op_add_input(op, what, tensor);
    } else if (op->status == RPS_OK) {
        input = add_contiguous(op, what, tensor);
    }
    return op->status == RPS_OK ? planes_of(op, input)
                                : (struct rps_npu_operand_planes){0};
}

struct rps_npu_operand_planes
rps_npu_op_output_planes(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    if (op->status == RPS_OK && !has_planes(tensor)) {
        say_layout(op, what);
    }
    rps_npu_op_add_output(op, what, tensor);
    return op->status == RPS_OK ? planes_of(op, tensor)
                                : (struct rps_npu_operand_planes){0};
}

/* --- tensors of one shape
 * ---------------------------------------------------------- */

/*
 * Are dimensions [split, ndim) side by side, and those before them one stride
 * apart? *stride_out: from a row to the next.
 */
static bool
splits_at(const rps_npu_tensor *tensor, uint32_t split, uint64_t *stride_out)
{
    uint64_t packed = 1;
    uint64_t next = 0; /* what one more dimension's stride must be; 0: free */

    for (uint32_t d = tensor->ndim; d-- > split;) {
        if (stride_of(tensor, d, packed) != packed) {
            return false;
        }
        packed *= tensor->shape[d];
    }
    *stride_out = packed;
    for (uint32_t d = split; d-- > 0;) {
        if (tensor->shape[d] < 2) {
            continue;
        }
        if (next == 0) {
            *stride_out = tensor->strides[d];
        } else if (tensor->strides[d] != next) {
            return false;
        }
        next = tensor->strides[d] * tensor->shape[d];
    }
    return *stride_out >= packed;
}

static bool
may_split(const rps_npu_tensor *tensor, uint32_t split)
{
    uint64_t stride = 0;

    return tensor == NULL || splits_at(tensor, split, &stride);
}

static size_t
stride_at(const rps_npu_tensor *tensor, uint32_t split)
{
    uint64_t stride = 0;

    /* a contiguous copy splits everywhere */
    (void)splits_at(tensor, split, &stride);
    return stride;
}

/* Where to split: so that none has to be copied, else so that y fits. ndim:
 * nowhere. */
static uint32_t
find_split(const rps_npu_tensor *a, const rps_npu_tensor *b,
        const rps_npu_tensor *y)
{
    for (uint32_t d = 0; d < y->ndim; d++) {
        if (may_split(y, d) && may_split(a, d) && may_split(b, d)) {
            return d;
        }
    }
    for (uint32_t d = 0; d < y->ndim; d++) {
        if (may_split(y, d)) {
            return d;
        }
    }
    return y->ndim;
}

static void *
input_at(struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor,
        uint32_t split, size_t *stride_out)
{
    const rps_npu_tensor *input = tensor;

    if (tensor == NULL || op->status != RPS_OK) {
        return NULL;
    }
    if (may_split(tensor, split)) {
        rps_npu_op_add_input(op, what, tensor);
    } else {
        input = add_contiguous(op, what, tensor);
    }
    if (input == NULL) {
        return NULL;
    }
    *stride_out = stride_at(input, split);
    return inside(op, input);
}

struct rps_npu_rows
rps_npu_op_rows(struct rps_npu_op *op, const rps_npu_tensor *a,
        const rps_npu_tensor *b, const rps_npu_tensor *y, void *at_out[3])
{
    struct rps_npu_rows rows = {.rows = 1, .columns = 1};
    uint32_t split = 0;

    if (op->status != RPS_OK) {
        return rows;
    }
    split = find_split(a, b, y);
    if (split == y->ndim) {
        say_layout(op, "y");
        return rows;
    }
    for (uint32_t d = 0; d < y->ndim; d++) {
        *(d < split ? &rows.rows : &rows.columns) *= y->shape[d];
    }
    at_out[0] = input_at(op, op->row_names[0], a, split, &rows.a);
    at_out[1] = input_at(op, op->row_names[1], b, split, &rows.b);
    rps_npu_op_add_output(op, op->row_names[2], y);
    at_out[2] = inside(op, y);
    rows.y = stride_at(y, split);
    return rows;
}
