/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/ops.h"

#include "base/text.h"
#include "client/npu/overlap.h"
#include "client/npu/tensor.h"
#include "client/npu/watch.h"

#include <cblas.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHAPE_BYTES 128u
#define WORDS_BYTES 400u
#define NAME_BYTES  (RPS_NPU_NAME_BYTES + 32u)

/* --- options ----------------------------------------------------------------
 */

void
rps_npu_ops_options_init(rps_npu_ops_options *options)
{
    *options = (rps_npu_ops_options){
            .struct_bytes = sizeof(*options),
            .fusion = true,
            .precision_mode = RPS_NPU_PRECISION_ORIGIN,
            .implmode = RPS_NPU_IMPL_HIGH_PERFORMANCE,
    };
}

struct rps_npu_arithmetic
rps_npu_op_how(const rps_npu_ops *ops)
{
    const rps_npu_ops_options *options = &ops->options;

    return (struct rps_npu_arithmetic){
            .set = rps_npu_elementwise(),
            .deterministic = options->deterministic,
            .mixed = options->precision_mode == RPS_NPU_PRECISION_MIXED,
            .precise = options->implmode == RPS_NPU_IMPL_HIGH_PRECISION,
    };
}

/* Somebody said how many. Relaxed: who sets threads beside a first product
 * gets the one or the other. */
static _Atomic bool threads_said;
static pthread_once_t threads_once = PTHREAD_ONCE_INIT;

static void
threads_begin(void)
{
    if (!atomic_load_explicit(&threads_said, memory_order_relaxed) &&
            getenv("OPENBLAS_NUM_THREADS") == NULL) {
        openblas_set_num_threads(1);
    }
}

rps_status
rps_npu_set_blas_threads(uint32_t threads)
{
    if (threads == 0 || threads > RPS_NPU_BLAS_THREADS_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "set_blas_threads: %u threads: must be 1 to %u", threads,
                RPS_NPU_BLAS_THREADS_MAX);
    }
    atomic_store_explicit(&threads_said, true, memory_order_relaxed);
    openblas_set_num_threads((int)threads);
    return RPS_OK;
}

void
rps_npu_op_check_threads(struct rps_npu_op *op)
{
    pthread_once(&threads_once, threads_begin);
    if (op->status == RPS_OK && op->ops->options.deterministic &&
            openblas_get_num_threads() != 1) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "deterministic does not go with %d BLAS threads: a product "
                "that is shared out is added in another order; set one "
                "(rps_npu_set_blas_threads, OPENBLAS_NUM_THREADS)",
                openblas_get_num_threads());
    }
}

/* --- an operation ------------------------------------------------------------
 */

static void
check_modes(struct rps_npu_op *op)
{
    const rps_npu_ops_options *options = &op->ops->options;

    if ((unsigned)options->precision_mode > RPS_NPU_PRECISION_MIXED) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its precision_mode is %u: must be origin (0) or mixed (1)",
                (unsigned)options->precision_mode);
    }
    if ((unsigned)options->implmode > RPS_NPU_IMPL_HIGH_PRECISION) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its implmode is %u: must be high_performance (0) or "
                "high_precision (1)",
                (unsigned)options->implmode);
    }
}

bool
rps_npu_op_has(struct rps_npu_op *op, const char *what, const void *given)
{
    if (op->status == RPS_OK && given == NULL) {
        rps_npu_op_fail(op, RPS_E_INVAL, "no %s is given", what);
    }
    return op->status == RPS_OK;
}

void
rps_npu_op_begin(
        struct rps_npu_op *op, const rps_npu_ops *ops, const char *type)
{
    op->ops = ops;
    op->npu = NULL;
    op->type = type;
    op->status = RPS_OK;
    op->input_count = 0;
    op->output_count = 0;
    op->bytes = 0;
    op->in_place[0] = op->in_place[1] = NULL;
    op->watched = false;
    op->row_names[0] = op->row_names[1] = "x";
    op->row_names[2] = "y";
    op->outputs_read = 0;
    op->outputs_kept = 0;
    op->attributes = (struct rps_text){0};
    if (ops == NULL) {
        op->status = rps_npu_fail(RPS_E_INVAL, "%s: no ops are given", type);
        return;
    }
    if (ops->options.struct_bytes != sizeof(ops->options)) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its options are not of rps_npu_ops_options_init()");
        return;
    }
    check_modes(op);
    if (ops->stream == NULL) {
        rps_npu_op_fail(op, RPS_E_INVAL, "there is no stream");
        return;
    }
    op->npu = rps_npu_stream_device(ops->stream);
    op->watched = rps_npu_is_watched(op->npu);
}

void
rps_npu_op_fail(
        struct rps_npu_op *op, rps_status status, const char *format, ...)
{
    char words[WORDS_BYTES];
    va_list list;

    if (op->status != RPS_OK) {
        return;
    }
    va_start(list, format);
    (void)vsnprintf(words, sizeof(words), format, list);
    va_end(list);
    if (op->ops->name != NULL) {
        op->status = rps_npu_fail(
                status, "%s/%s: %s", op->ops->name, op->type, words);
    } else {
        op->status = rps_npu_fail(status, "%s: %s", op->type, words);
    }
}

rps_status
rps_npu_op_drop(struct rps_npu_op *op)
{
    for (uint32_t i = 0; i < op->input_count; i++) {
        rps_npu_tensor_release(&op->inputs[i]);
    }
    for (uint32_t i = 0; i < op->output_count; i++) {
        rps_npu_tensor_release(&op->outputs[i]);
    }
    op->input_count = 0;
    op->output_count = 0;
    rps_text_finish(&op->attributes);
    return op->status;
}

/* May it be read where the output is written? */
static bool
is_in_place(const struct rps_npu_op *op, const rps_npu_tensor *input,
        const rps_npu_tensor *output)
{
    for (size_t i = 0; i < 2; i++) {
        if (op->in_place[i] != NULL &&
                rps_npu_tensor_is_same(op->in_place[i], input) &&
                rps_npu_tensor_is_same(input, output)) {
            return true;
        }
    }
    return false;
}

/* A copy of an input that no kernel can walk is nobody else's memory. */
static void
check_sharing(struct rps_npu_op *op)
{
    for (uint32_t o = 0; o < op->output_count; o++) {
        const rps_npu_tensor *output = &op->outputs[o];

        for (uint32_t i = 0; i < op->input_count; i++) {
            if (rps_npu_tensor_overlaps(&op->inputs[i], output) &&
                    !is_in_place(op, &op->inputs[i], output)) {
                rps_npu_op_fail(op, RPS_E_INVAL,
                        "output %u shares memory with input %u: they must be "
                        "apart, or the same tensor where the call says \"in "
                        "place\"",
                        o, i);
            }
        }
        for (uint32_t i = 0; i < o; i++) {
            if (rps_npu_tensor_overlaps(&op->outputs[i], output)) {
                rps_npu_op_fail(op, RPS_E_INVAL,
                        "outputs %u and %u share memory: they must be apart", i,
                        o);
            }
        }
    }
}

rps_status
rps_npu_op_give(struct rps_npu_op *op, const struct rps_npu_op_work *work)
{
    char name[NAME_BYTES];
    struct rps_text attributes = {0};

    check_sharing(op);
    rps_npu_op_attributes(op, &attributes);
    if (attributes.failed) {
        rps_npu_op_fail(op, RPS_E_NOMEM, "no memory for its attributes");
    }
    if (op->status == RPS_OK) {
        const struct rps_npu_operation operation = {
                .type = op->type,
                .name = op->ops->name == NULL ? NULL : name,
                .holds = work->holds,
                .kernel = work->kernel,
                .args = work->args,
                .args_bytes = work->args_bytes,
                .workspace_bytes = work->workspace_bytes,
                .flops = work->flops,
                .bytes = op->bytes,
                .inputs = op->inputs,
                .input_count = op->input_count,
                .outputs = op->outputs,
                .output_count = op->output_count,
                .input_labels = op->input_names,
                .output_labels = op->output_names,
                .outputs_read = op->outputs_read,
                .outputs_kept = op->outputs_kept,
                .attributes = attributes.bytes,
        };

        if (op->ops->name != NULL) {
            (void)snprintf(
                    name, sizeof(name), "%s/%s", op->ops->name, op->type);
        }
        op->status = rps_npu_enqueue(op->ops->stream, &operation);
    }
    rps_text_finish(&attributes);
    return rps_npu_op_drop(op);
}

/* --- checks ------------------------------------------------------------------
 */

static const char *const dtype_names[] = {"f32", "bf16", "i32", "f64"};
#define DTYPES (sizeof(dtype_names) / sizeof(dtype_names[0]))

/* "[128][13]", "[any][13]" */
static void
write_shape(char text[SHAPE_BYTES], uint32_t ndim, const uint64_t *shape)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t d = 0; d < ndim && used < SHAPE_BYTES; d++) {
        const int n =
                shape[d] == RPS_NPU_OP_ANY
                        ? snprintf(text + used, SHAPE_BYTES - used, "[any]")
                        : snprintf(text + used, SHAPE_BYTES - used,
                                  "[%" PRIu64 "]", shape[d]);

        used += n > 0 ? (size_t)n : 0;
    }
}

/* The names of a set. */
static void
write_dtypes(char text[SHAPE_BYTES], unsigned dtypes)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t d = 0; d < DTYPES; d++) {
        if ((dtypes & 1u << d) != 0) {
            used += (size_t)snprintf(text + used, SHAPE_BYTES - used, "%s%s",
                    used > 0 ? " or " : "", dtype_names[d]);
        }
    }
}

static bool
fits(const rps_npu_tensor *tensor, unsigned dtypes, uint32_t ndim,
        const uint64_t *shape)
{
    if ((dtypes & 1u << tensor->dtype) == 0) {
        return false;
    }
    if (ndim == 0) {
        return true;
    }
    if (tensor->ndim != ndim) {
        return false;
    }
    for (uint32_t d = 0; d < ndim; d++) {
        if (shape[d] != RPS_NPU_OP_ANY && shape[d] != tensor->shape[d]) {
            return false;
        }
    }
    return true;
}

static void
say_misfit(struct rps_npu_op *op, const char *what,
        const rps_npu_tensor *tensor, unsigned dtypes, uint32_t ndim,
        const uint64_t *shape)
{
    char is[SHAPE_BYTES], must[SHAPE_BYTES], types[SHAPE_BYTES];

    write_shape(is, tensor->ndim, tensor->shape);
    write_shape(must, ndim, shape);
    write_dtypes(types, dtypes);
    rps_npu_op_fail(op, RPS_E_INVAL, "%s is %s %s; it must be %s%s%s", what, is,
            dtype_names[tensor->dtype], must, ndim > 0 ? " " : "", types);
}

/* A tensor without elements is anywhere. */
static bool
is_here(const struct rps_npu_op *op, const rps_npu_tensor *tensor)
{
    return rps_npu_tensor_extent(tensor) == 0 ||
           (tensor->storage != NULL &&
                   rps_npu_storage_device(tensor->storage) == op->npu);
}

/* All of it is in its storage, and its elements can be counted. */
static bool
check_extent(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    const uint64_t extent = rps_npu_tensor_extent(tensor);
    const uint64_t left = rps_npu_tensor_left(tensor);
    uint64_t elements = 0;

    if (rps_npu_tensor_check_shape(
                op->type, tensor->ndim, tensor->shape, &elements) != RPS_OK) {
        rps_npu_op_fail(op, RPS_E_INVAL, "%s has too many elements", what);
    } else if (extent > left) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "%s: its elements take %" PRIu64 " bytes from offset %" PRIu64
                " and leave its memory, which ends after %" PRIu64,
                what, extent, tensor->offset, left);
    }
    return op->status == RPS_OK;
}

bool
rps_npu_op_check(struct rps_npu_op *op, const char *what,
        const rps_npu_tensor *tensor, unsigned dtypes, uint32_t ndim,
        const uint64_t *shape)
{
    if (op->status != RPS_OK) {
        return false;
    }
    if (tensor == NULL || tensor->ndim == 0 ||
            tensor->ndim > RPS_NPU_DIMS_MAX ||
            (unsigned)tensor->dtype >= DTYPES) {
        rps_npu_op_fail(op, RPS_E_INVAL, "%s is no tensor", what);
        return false;
    }
    if (!fits(tensor, dtypes, ndim, shape)) {
        say_misfit(op, what, tensor, dtypes, ndim, shape);
        return false;
    }
    if (!is_here(op, tensor)) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "%s is not in the memory of npu %u, whose stream it is given "
                "to",
                what, rps_npu_id(op->npu));
        return false;
    }
    return check_extent(op, what, tensor);
}

bool
rps_npu_op_check_like(struct rps_npu_op *op, const char *what,
        const rps_npu_tensor *tensor, unsigned dtypes,
        const rps_npu_tensor *like)
{
    return op->status == RPS_OK &&
           rps_npu_op_check(op, what, tensor, dtypes, like->ndim, like->shape);
}
