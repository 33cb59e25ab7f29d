/* SPDX-License-Identifier: Apache-2.0 */
/* What tables' rows go through: pooling, and dlrm's dots. */
#include "client/npu/kernels/bags.h"
#include "client/npu/kernels/interact.h"
#include "client/npu/ops.h"

_Static_assert(sizeof(struct rps_npu_bags_args) <= RPS_NPU_OPERATION_ARGS_BYTES,
        "arguments fit into an operation");
_Static_assert(
        sizeof(struct rps_npu_interact_args) <= RPS_NPU_OPERATION_ARGS_BYTES,
        "arguments fit into an operation");

/* --- pooling
 * ------------------------------------------------------------------- */

static uint64_t
bags_of(const rps_npu_tensor *pooled)
{
    return pooled->ndim == 3 ? pooled->shape[0] * pooled->shape[1]
                             : pooled->shape[0];
}

static bool
check_bags(struct rps_npu_op *op, const rps_npu_bags *bags, const char *what,
        const rps_npu_tensor *pooled)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY};
    uint64_t starts = 0;

    if (bags->pooling != RPS_POOLING_SUM && bags->pooling != RPS_POOLING_MEAN &&
            bags->pooling != RPS_POOLING_SQRTN) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its pooling is %d: must be sum, mean or sqrtn",
                (int)bags->pooling);
        return false;
    }
    if (!rps_npu_op_check(op, what, pooled, RPS_NPU_OP_F32, 0, NULL)) {
        return false;
    }
    if (pooled->ndim != 2 && pooled->ndim != 3) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "%s has %u dimensions: must be [bags][dim] or [rows][bags of "
                "a row][dim]",
                what, pooled->ndim);
        return false;
    }
    starts = bags_of(pooled) + 1;
    return rps_npu_op_check(
                   op, "starts", bags->starts, RPS_NPU_OP_I32, 1, &starts) &&
           (bags->slots == NULL || rps_npu_op_check(op, "slots", bags->slots,
                                           RPS_NPU_OP_I32, 1, any));
}

static struct rps_npu_bags_args
bags_args(const rps_npu_ops *ops, const rps_npu_bags *bags,
        const rps_npu_tensor *pooled)
{
    return (struct rps_npu_bags_args){.how = rps_npu_op_how(ops),
            .mean = bags->pooling == RPS_POOLING_MEAN,
            .sqrtn = bags->pooling == RPS_POOLING_SQRTN,
            .bags = bags_of(pooled),
            .dim = pooled->shape[pooled->ndim - 1],
            .inner = 1};
}

static void
say_pooling(struct rps_npu_op *op, const rps_npu_bags *bags)
{
    rps_npu_op_say_word(op, "pooling",
            bags->pooling == RPS_POOLING_MEAN    ? "mean"
            : bags->pooling == RPS_POOLING_SQRTN ? "sqrtn"
                                                 : "sum");
}

/* Where bag b is: pooled + b / inner * outer_stride + b % inner * … */
static void
place_pooled(struct rps_npu_op *op, const rps_npu_tensor *pooled, bool output,
        struct rps_npu_bags_args *args)
{
    if (pooled->ndim == 3) {
        const struct rps_npu_operand_planes planes =
                output ? rps_npu_op_output_planes(op, "pooled", pooled)
                       : rps_npu_op_input_planes(op, "dpooled", pooled);

        args->pooled = planes.at;
        args->inner = pooled->shape[1];
        args->inner_stride = planes.inner;
        args->outer_stride = planes.outer;
    } else {
        const struct rps_npu_operand_rows rows =
                output ? rps_npu_op_output_rows(op, "pooled", pooled)
                       : rps_npu_op_input_rows(op, "dpooled", pooled);

        args->pooled = rows.at;
        args->outer_stride = rows.stride;
    }
}

static rps_status
pool_into(const rps_npu_ops *ops, const rps_npu_bags *bags,
        const rps_npu_tensor *rows, const rps_npu_tensor *pooled,
        const char *holds)
{
    struct rps_npu_bags_args args = bags_args(ops, bags, pooled);
    struct rps_npu_operand_rows from = {0};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "pooling");
    from = rps_npu_op_input_rows(&op, "rows", rows);
    args.rows = from.at;
    args.row_stride = from.stride;
    args.row_count = rows->shape[0];
    args.tokens = rows->shape[0];
    if (bags->slots != NULL) {
        args.slots = rps_npu_op_input(&op, "slots", bags->slots);
        args.tokens = bags->slots->shape[0];
    }
    args.starts = rps_npu_op_input(&op, "starts", bags->starts);
    place_pooled(&op, pooled, true, &args);
    say_pooling(&op, bags);
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_bags_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .workspace_bytes = rps_npu_bags_workspace(&args),
                         .flops = args.tokens * args.dim,
                         .holds = holds});
}

/* Into a tensor of its own, which is copied. */
static rps_status
pool_and_copy(const rps_npu_ops *ops, const rps_npu_bags *bags,
        const rps_npu_tensor *rows, const rps_npu_tensor *pooled)
{
    rps_npu_tensor own = {0};
    rps_status status = rps_npu_tensor_create(
            ops->stream, RPS_NPU_F32, pooled->ndim, pooled->shape, &own);

    if (status == RPS_OK) {
        status = pool_into(ops, bags, rows, &own, NULL);
    }
    if (status == RPS_OK) {
        status = rps_npu_op_copy(ops, "concat", &own, pooled);
    }
    rps_npu_tensor_release(&own);
    return status;
}

rps_status
rps_npu_pool_bags(const rps_npu_ops *ops, const rps_npu_bags *bags,
        const rps_npu_tensor *rows, const rps_npu_tensor *pooled)
{
    struct rps_npu_op op;
    uint64_t shape[2] = {RPS_NPU_OP_ANY, 0};

    rps_npu_op_begin(&op, ops, "pooling");
    if (!rps_npu_op_has(&op, "bags", bags) ||
            !check_bags(&op, bags, "pooled", pooled)) {
        return op.status;
    }
    shape[1] = pooled->shape[pooled->ndim - 1];
    if (!rps_npu_op_check(&op, "rows", rows, RPS_NPU_OP_F32, 2, shape) ||
            rps_npu_tensor_elements(pooled) == 0) {
        return op.status;
    }
    if (rps_npu_tensor_is_contiguous(pooled)) {
        return pool_into(ops, bags, rows, pooled, NULL);
    }
    return ops->options.fusion
                   ? pool_into(ops, bags, rows, pooled, "pooling + concat")
                   : pool_and_copy(ops, bags, rows, pooled);
}

rps_status
rps_npu_pool_bags_backward(const rps_npu_ops *ops, const rps_npu_bags *bags,
        const rps_npu_tensor *dpooled, const rps_npu_tensor *dtokens)
{
    uint64_t shape[2] = {RPS_NPU_OP_ANY, 0};
    struct rps_npu_operand_rows to = {0};
    struct rps_npu_bags_args args;
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "pooling_backward");
    if (!rps_npu_op_has(&op, "bags", bags) ||
            !check_bags(&op, bags, "dpooled", dpooled)) {
        return op.status;
    }
    shape[1] = dpooled->shape[dpooled->ndim - 1];
    if (!rps_npu_op_check(&op, "dtokens", dtokens, RPS_NPU_OP_F32, 2, shape) ||
            rps_npu_tensor_elements(dtokens) == 0 ||
            rps_npu_tensor_elements(dpooled) == 0) {
        return op.status;
    }
    args = bags_args(ops, bags, dpooled);
    args.tokens = dtokens->shape[0];
    args.starts = rps_npu_op_input(&op, "starts", bags->starts);
    place_pooled(&op, dpooled, false, &args);
    to = rps_npu_op_output_rows(&op, "dtokens", dtokens);
    rps_npu_op_reads_output(&op); /* tokens of no bag stay */
    say_pooling(&op, bags);
    args.dtokens = to.at;
    args.dtokens_stride = to.stride;
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_bags_back_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args)});
}

/* --- dots
 * ------------------------------------------------------------------------ */

/* n (n - 1) / 2 must not overflow, nor strides what dots.h counts in. */
#define VECTORS_MAX 65536u
#define WIDTH_MAX   (1u << 24)

static bool
check_dots(struct rps_npu_op *op, const rps_npu_tensor *v, bool first,
        const char *y_name, const rps_npu_tensor *y)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY, RPS_NPU_OP_ANY, RPS_NPU_OP_ANY};
    uint64_t shape[2] = {0, 0};

    if (!rps_npu_op_check(op, "v", v, RPS_NPU_OP_F32, 3, any)) {
        return false;
    }
    if (v->shape[1] == 0 || v->shape[1] > VECTORS_MAX ||
            v->shape[2] > WIDTH_MAX) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "v has %llu vectors of %llu: there may be 1 to %u, of at most "
                "%u",
                (unsigned long long)v->shape[1],
                (unsigned long long)v->shape[2], VECTORS_MAX, WIDTH_MAX);
        return false;
    }
    shape[0] = v->shape[0];
    shape[1] = v->shape[1] * (v->shape[1] - 1) / 2 + (first ? v->shape[2] : 0);
    return rps_npu_op_check(op, y_name, y, RPS_NPU_OP_F32, 2, shape);
}

static struct rps_npu_interact_args
interact_args(const rps_npu_ops *ops, const rps_npu_tensor *v, bool first)
{
    return (struct rps_npu_interact_args){.how = rps_npu_op_how(ops),
            .dots = rps_dots_best(),
            .rows = v->shape[0],
            .n = (uint32_t)v->shape[1],
            .width = (uint32_t)v->shape[2],
            .first = first};
}

/* dots.h's strides are 32 bits. */
static void
check_stride(struct rps_npu_op *op, uint64_t stride)
{
    if (op->status == RPS_OK && stride > UINT32_MAX) {
        rps_npu_op_fail(op, RPS_E_INVAL, "vectors are 2^32 or more apart");
    }
}

static uint64_t
flops_of(const struct rps_npu_interact_args *args)
{
    const uint64_t n = args->n;

    return args->rows * n * (n - 1) * args->width;
}

rps_status
rps_npu_dots(const rps_npu_ops *ops, const rps_npu_tensor *v, bool first,
        const rps_npu_tensor *y)
{
    struct rps_npu_interact_args args;
    struct rps_npu_operand_planes from = {0};
    struct rps_npu_operand_rows to = {0};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "dots");
    if (!check_dots(&op, v, first, "y", y) || rps_npu_tensor_elements(y) == 0) {
        return op.status;
    }
    args = interact_args(ops, v, first);
    from = rps_npu_op_input_planes(&op, "v", v);
    args.v = from.at;
    args.v_row = from.outer;
    args.v_vector = from.inner;
    to = rps_npu_op_output_rows(&op, "y", y);
    args.y = to.at;
    args.y_stride = to.stride;
    rps_npu_op_say_bool(&op, "first", first);
    check_stride(&op, from.inner);
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_interact_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .workspace_bytes = rps_npu_interact_workspace(&args),
                         .flops = flops_of(&args),
                         .holds = first ? "dots + concat" : NULL});
}

rps_status
rps_npu_dots_backward(const rps_npu_ops *ops, const rps_npu_tensor *v,
        bool first, const rps_npu_tensor *dy, const rps_npu_tensor *dv)
{
    struct rps_npu_interact_args args;
    struct rps_npu_operand_planes planes = {0};
    struct rps_npu_operand_rows from = {0};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "dots_backward");
    if (!check_dots(&op, v, first, "dy", dy) ||
            !rps_npu_op_check_like(&op, "dv", dv, RPS_NPU_OP_F32, v) ||
            rps_npu_tensor_elements(dv) == 0) {
        return op.status;
    }
    args = interact_args(ops, v, first);
    planes = rps_npu_op_input_planes(&op, "v", v);
    args.v = planes.at;
    args.v_row = planes.outer;
    args.v_vector = planes.inner;
    check_stride(&op, planes.inner);
    from = rps_npu_op_input_rows(&op, "dy", dy);
    args.dy = from.at;
    args.dy_stride = from.stride;
    planes = rps_npu_op_output_planes(&op, "dv", dv);
    args.dv = planes.at;
    args.dv_row = planes.outer;
    args.dv_vector = planes.inner;
    rps_npu_op_say_bool(&op, "first", first);
    return rps_npu_op_give(&op,
            &(struct rps_npu_op_work){.kernel = rps_npu_interact_back_kernel,
                    .args = &args,
                    .args_bytes = sizeof(args),
                    .workspace_bytes = rps_npu_interact_back_workspace(&args),
                    .flops = 2 * flops_of(&args)});
}
