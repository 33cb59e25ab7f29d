/* SPDX-License-Identifier: Apache-2.0 */
/* Operators of one element after the other, and those that move elements. */
#include "client/npu/ops.h"

#include <string.h>

/* y is an f32 tensor; of another shape the inputs would be wrong. */
static bool
begin(struct rps_npu_op *op, const rps_npu_ops *ops, const char *type,
        const char *name, const rps_npu_tensor *y)
{
    rps_npu_op_begin(op, ops, type);
    return rps_npu_op_check(op, name, y, RPS_NPU_OP_F32, 0, NULL);
}

static rps_status
give(struct rps_npu_op *op, rps_npu_kernel_fn kernel,
        struct rps_npu_map_args *args, const rps_npu_tensor *a,
        const rps_npu_tensor *b, const rps_npu_tensor *y, uint64_t flops)
{
    void *at[3] = {NULL};

    if (rps_npu_tensor_elements(y) == 0) {
        return rps_npu_op_drop(op);
    }
    args->how = rps_npu_op_how(op->ops);
    args->shape = rps_npu_op_rows(op, a, b, y, at);
    args->a = at[0];
    args->b = at[1];
    args->y = at[2];
    return rps_npu_op_give(
            op, &(struct rps_npu_op_work){.kernel = kernel,
                        .args = args,
                        .args_bytes = sizeof(*args),
                        .flops = flops * rps_npu_tensor_elements(y)});
}

/* An element's operations, for profiles. */
static const struct {
    const char *type;
    const char *backward;
    uint64_t flops;
} functions[RPS_NPU_KERNEL_FUNCTIONS] = {
        {"relu", "relu_backward", 1},
        {"gelu", "gelu_backward", 25},
        {"tanh", "tanh_backward", 25},
        {"sigmoid", "sigmoid_backward", 20},
};

_Static_assert((int)RPS_NPU_SIGMOID == (int)RPS_NPU_KERNEL_SIGMOID &&
                       (int)RPS_NPU_TANH == (int)RPS_NPU_KERNEL_TANH &&
                       (int)RPS_NPU_GELU == (int)RPS_NPU_KERNEL_GELU &&
                       (int)RPS_NPU_RELU == (int)RPS_NPU_KERNEL_RELU,
        "one order of the functions");

static rps_status
no_such_function(const char *operation, unsigned function)
{
    return rps_npu_fail(
            RPS_E_INVAL, "%s: there is no function %u", operation, function);
}

rps_status
rps_npu_apply(const rps_npu_ops *ops, enum rps_npu_function function,
        const rps_npu_tensor *x, const rps_npu_tensor *y)
{
    struct rps_npu_map_args args = {
            .function = (enum rps_npu_kernel_function)function};
    struct rps_npu_op op;

    if ((unsigned)function >= RPS_NPU_KERNEL_FUNCTIONS) {
        return no_such_function("apply", (unsigned)function);
    }
    if (!begin(&op, ops, functions[function].type, "y", y) ||
            !rps_npu_op_check_like(&op, "x", x, RPS_NPU_OP_F32, y)) {
        return op.status;
    }
    op.in_place[0] = x;
    return give(&op, rps_npu_apply_kernel, &args, x, NULL, y,
            functions[function].flops);
}

rps_status
rps_npu_apply_backward(const rps_npu_ops *ops, enum rps_npu_function function,
        const rps_npu_tensor *kept, const rps_npu_tensor *dy,
        const rps_npu_tensor *dx)
{
    struct rps_npu_map_args args = {
            .function = (enum rps_npu_kernel_function)function};
    struct rps_npu_op op;

    if ((unsigned)function >= RPS_NPU_KERNEL_FUNCTIONS) {
        return no_such_function("apply_backward", (unsigned)function);
    }
    if (!begin(&op, ops, functions[function].backward, "dx", dx) ||
            !rps_npu_op_check_like(&op, "kept", kept, RPS_NPU_OP_F32, dx) ||
            !rps_npu_op_check_like(&op, "dy", dy, RPS_NPU_OP_F32, dx)) {
        return op.status;
    }
    op.in_place[0] = dy;
    op.row_names[0] = "kept";
    op.row_names[1] = "dy";
    op.row_names[2] = "dx";
    return give(&op, rps_npu_apply_back_kernel, &args, kept, dy, dx,
            functions[function].flops);
}

rps_status
rps_npu_add(const rps_npu_ops *ops, const rps_npu_tensor *a,
        const rps_npu_tensor *b, const rps_npu_tensor *y)
{
    struct rps_npu_map_args args = {0};
    struct rps_npu_op op;

    if (!begin(&op, ops, "add", "y", y) ||
            !rps_npu_op_check_like(&op, "a", a, RPS_NPU_OP_F32, y) ||
            !rps_npu_op_check_like(&op, "b", b, RPS_NPU_OP_F32, y)) {
        return op.status;
    }
    op.in_place[0] = a;
    op.in_place[1] = b;
    op.row_names[0] = "a";
    op.row_names[1] = "b";
    return give(&op, rps_npu_add_kernel, &args, a, b, y, 1);
}

static const uint64_t one = 1;

rps_status
rps_npu_scale(const rps_npu_ops *ops, const rps_npu_tensor *x, double factor,
        const rps_npu_tensor *device_factor, const rps_npu_tensor *y)
{
    struct rps_npu_map_args args = {.factor = factor};
    struct rps_npu_op op;

    if (!begin(&op, ops, "scale", "y", y) ||
            !rps_npu_op_check_like(&op, "x", x, RPS_NPU_OP_F32, y)) {
        return op.status;
    }
    if (device_factor != NULL) {
        if (!rps_npu_op_check(&op, "device_factor", device_factor,
                    RPS_NPU_OP_F64, 1, &one)) {
            return op.status;
        }
        args.device_factor =
                rps_npu_op_input(&op, "device_factor", device_factor);
    }
    rps_npu_op_say_number(&op, "factor", factor);
    op.in_place[0] = x;
    return give(&op, rps_npu_scale_kernel, &args, x, NULL, y, 1);
}

rps_status
rps_npu_fill(const rps_npu_ops *ops, float value, const rps_npu_tensor *y)
{
    struct rps_npu_map_args args = {.factor = (double)value};
    struct rps_npu_op op;

    if (!begin(&op, ops, "fill", "y", y)) {
        return op.status;
    }
    rps_npu_op_say_number(&op, "value", (double)value);
    return give(&op, rps_npu_fill_kernel, &args, NULL, NULL, y, 0);
}

/* --- moving
 * -------------------------------------------------------------------- */

static rps_status
cast_as(const rps_npu_ops *ops, const char *type, const rps_npu_tensor *x,
        const rps_npu_tensor *y)
{
    struct rps_npu_cast_args args = {.set = rps_npu_elementwise()};
    struct rps_npu_op op;
    void *at[3] = {NULL};

    rps_npu_op_begin(&op, ops, type);
    if (!rps_npu_op_check(&op, "y", y, ~0u, 0, NULL) ||
            !rps_npu_op_check_like(&op, "x", x,
                    1u << y->dtype | (RPS_NPU_OP_FACTOR & 1u << y->dtype
                                                     ? RPS_NPU_OP_FACTOR
                                                     : 0u),
                    y) ||
            rps_npu_tensor_elements(y) == 0) {
        return op.status;
    }
    args.widen = x->dtype == RPS_NPU_BF16 && y->dtype == RPS_NPU_F32;
    args.narrow = x->dtype == RPS_NPU_F32 && y->dtype == RPS_NPU_BF16;
    args.bytes = (uint32_t)rps_npu_dtype_size(y->dtype);
    args.shape = rps_npu_op_rows(&op, x, NULL, y, at);
    args.a = at[0];
    args.y = at[2];
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_cast_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args)});
}

rps_status
rps_npu_cast(const rps_npu_ops *ops, const rps_npu_tensor *x,
        const rps_npu_tensor *y)
{
    return cast_as(ops, "cast", x, y);
}

rps_status
rps_npu_op_copy(const rps_npu_ops *ops, const char *type,
        const rps_npu_tensor *x, const rps_npu_tensor *y)
{
    return cast_as(ops, type, x, y);
}

/* Parts [first, first + n) of a join, whose columns begin at `column`. */
struct run {
    uint32_t first, count;
    uint64_t column;
    bool is_part; /* others do the rest */
};

static bool
check_parts(struct rps_npu_op *op, const char *name,
        const rps_npu_tensor *parts, uint32_t count,
        const rps_npu_tensor *whole)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY, RPS_NPU_OP_ANY};
    uint64_t sum = 0;

    if (count < 1 || count > RPS_NPU_JOIN_MAX) {
        rps_npu_op_fail(op, RPS_E_INVAL, "%u tensors: 1 to %u are joined",
                count, RPS_NPU_JOIN_MAX);
        return false;
    }
    if (!rps_npu_op_check(op, "the whole", whole, RPS_NPU_OP_F32, 2, any)) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t shape[] = {whole->shape[0], RPS_NPU_OP_ANY};

        if (!rps_npu_op_check(op, name, &parts[i], RPS_NPU_OP_F32, 2, shape)) {
            return false;
        }
        sum += parts[i].shape[1];
    }
    if (sum != whole->shape[1]) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "the whole has %llu columns, its parts together %llu",
                (unsigned long long)whole->shape[1], (unsigned long long)sum);
        return false;
    }
    return true;
}

/* One operation: as many parts as its arguments have room for. */
static rps_status
join_run(const rps_npu_ops *ops, const rps_npu_tensor *parts, struct run *run,
        const rps_npu_tensor *whole, bool splits)
{
    struct rps_npu_join_args args = {.rows = whole->shape[0]};
    struct rps_npu_operand_rows rows = {0};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, splits ? "split" : "concat");
    rps_npu_op_say_count(&op, "column", run->column);
    rows = splits ? rps_npu_op_input_rows(&op, "x", whole)
                  : rps_npu_op_output_rows(&op, "y", whole);
    if (run->is_part && !splits) {
        rps_npu_op_reads_output(&op); /* its other columns stay */
    }
    args.whole = rows.at;
    args.whole_stride = rows.stride;
    for (uint32_t i = run->first; i < run->first + run->count; i++) {
        if (parts[i].shape[1] == 0) {
            continue;
        }
        rows = splits ? rps_npu_op_output_rows(&op, "y", &parts[i])
                      : rps_npu_op_input_rows(&op, "x", &parts[i]);
        args.part[args.count].at = rows.at;
        args.part[args.count].stride = rows.stride;
        args.part[args.count].columns = parts[i].shape[1];
        args.part[args.count].column = run->column;
        args.count++;
        run->column += parts[i].shape[1];
    }
    return rps_npu_op_give(&op,
            &(struct rps_npu_op_work){.kernel = splits ? rps_npu_split_kernel
                                                       : rps_npu_concat_kernel,
                    .args = &args,
                    .args_bytes = sizeof(args)});
}

static rps_status
join(const rps_npu_ops *ops, const rps_npu_tensor *parts, uint32_t count,
        const rps_npu_tensor *whole, bool splits)
{
    struct run run = {0};
    struct rps_npu_op op;
    rps_status status = RPS_OK;

    rps_npu_op_begin(&op, ops, splits ? "split" : "concat");
    if (!rps_npu_op_has(&op, "tensors", parts) ||
            !check_parts(&op, splits ? "y" : "x", parts, count, whole) ||
            rps_npu_tensor_elements(whole) == 0) {
        return op.status;
    }
    run.is_part = count > RPS_NPU_JOIN_AT_ONCE;
    while (run.first < count && status == RPS_OK) {
        run.count = count - run.first < RPS_NPU_JOIN_AT_ONCE
                            ? count - run.first
                            : RPS_NPU_JOIN_AT_ONCE;
        status = join_run(ops, parts, &run, whole, splits);
        run.first += run.count;
    }
    return status;
}

rps_status
rps_npu_concat(const rps_npu_ops *ops, const rps_npu_tensor *x, uint32_t count,
        const rps_npu_tensor *y)
{
    return join(ops, x, count, y, false);
}

rps_status
rps_npu_split(const rps_npu_ops *ops, const rps_npu_tensor *x,
        const rps_npu_tensor *y, uint32_t count)
{
    return join(ops, y, count, x, true);
}
