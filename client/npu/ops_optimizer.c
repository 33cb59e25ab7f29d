/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers, and what stands around their step. */
#include "client/npu/kernels/optimize.h"
#include "client/npu/ops.h"

#include <math.h>

static const uint64_t one = 1;

rps_status
rps_npu_unscale(const rps_npu_ops *ops, const rps_npu_tensor *x,
        const rps_npu_tensor *factor, const rps_npu_tensor *finite,
        bool accumulate)
{
    struct rps_npu_unscale_args args = {
            .set = rps_npu_elementwise(), .accumulate = accumulate};
    struct rps_npu_rows rows = {0};
    struct rps_npu_op op;
    void *at[3] = {NULL};

    rps_npu_op_begin(&op, ops, factor != NULL ? "unscale" : "finite");
    if (!rps_npu_op_check(&op, "x", x, RPS_NPU_OP_F32, 0, NULL) ||
            !rps_npu_op_check(&op, "finite", finite, RPS_NPU_OP_I32, 1, &one)) {
        return op.status;
    }
    if (factor != NULL &&
            rps_npu_op_check(&op, "factor", factor, RPS_NPU_OP_F64, 1, &one)) {
        args.factor = rps_npu_op_input(&op, "factor", factor);
    }
    op.row_names[2] = "x";
    rows = rps_npu_op_rows(&op, NULL, NULL, x, at);
    if (factor != NULL) {
        rps_npu_op_reads_output(&op);
    } else {
        rps_npu_op_keeps_output(&op);
    }
    /* nothing is finite, too */
    args.rows = rps_npu_tensor_elements(x) > 0 ? rows.rows : 0;
    args.columns = rows.columns;
    args.stride = rows.y;
    args.x = at[2];
    args.finite = rps_npu_op_output(&op, "finite", finite);
    if (accumulate) {
        rps_npu_op_reads_output(&op);
    }
    rps_npu_op_say_bool(&op, "accumulate", accumulate);
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_unscale_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .flops = args.rows * args.columns});
}

rps_status
rps_npu_count(const rps_npu_ops *ops, const rps_npu_tensor *counter,
        const rps_npu_tensor *finite)
{
    struct rps_npu_count_args args = {0};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "count");
    if (!rps_npu_op_check(&op, "counter", counter, RPS_NPU_OP_F64, 1, &one)) {
        return op.status;
    }
    if (finite != NULL) {
        if (!rps_npu_op_check(&op, "finite", finite, RPS_NPU_OP_I32, 1, &one)) {
            return op.status;
        }
        args.finite = rps_npu_op_input(&op, "finite", finite);
    }
    args.counter = rps_npu_op_output(&op, "counter", counter);
    rps_npu_op_reads_output(&op);
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_count_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args)});
}

/* --- optimizers
 * ------------------------------------------------------------------ */

#define KINDS 3u

static const char *const kinds[KINDS] = {"sgd", "adam", "adamw"};

void
rps_npu_optimizer_init(
        rps_npu_optimizer *optimizer, enum rps_npu_optimizer_kind kind)
{
    *optimizer = (rps_npu_optimizer){
            .struct_bytes = sizeof(*optimizer),
            .kind = kind,
            .beta1 = 0.9,
            .beta2 = 0.999,
            .epsilon = 1e-8,
            .weight_decay = kind == RPS_NPU_ADAMW ? 0.01 : 0.0,
    };
}

static void
check_numbers(struct rps_npu_op *op, const rps_npu_optimizer *o)
{
    const bool adam = o->kind != RPS_NPU_SGD;

    if (adam && !(o->beta1 >= 0.0 && o->beta1 < 1.0 && o->beta2 >= 0.0 &&
                        o->beta2 < 1.0)) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its betas are %g and %g: must be from 0 to below 1", o->beta1,
                o->beta2);
    }
    if (adam && !(o->epsilon >= 0.0 && isfinite(o->epsilon))) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its epsilon is %g: must be finite, 0 or more", o->epsilon);
    }
    if (!(o->weight_decay >= 0.0 && isfinite(o->weight_decay))) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its weight decay is %g: must be finite, 0 or more",
                o->weight_decay);
    }
}

static void
check_tensors(struct rps_npu_op *op, const rps_npu_optimizer *o,
        const rps_npu_tensor *weight, const rps_npu_tensor *gradient,
        const rps_npu_tensor *m, const rps_npu_tensor *v)
{
    if (!rps_npu_op_check(op, "weight", weight, RPS_NPU_OP_F32, 0, NULL)) {
        return;
    }
    (void)rps_npu_op_check_like(
            op, "gradient", gradient, RPS_NPU_OP_F32, weight);
    (void)rps_npu_op_check(
            op, "learning_rate", o->learning_rate, RPS_NPU_OP_F64, 1, &one);
    if (o->kind != RPS_NPU_SGD) {
        (void)rps_npu_op_check_like(op, "m", m, RPS_NPU_OP_F32, weight);
        (void)rps_npu_op_check_like(op, "v", v, RPS_NPU_OP_F32, weight);
        (void)rps_npu_op_check(op, "step", o->step, RPS_NPU_OP_F64, 1, &one);
    }
    if (o->finite != NULL) {
        (void)rps_npu_op_check(
                op, "finite", o->finite, RPS_NPU_OP_I32, 1, &one);
    }
}

static void
add_operands(struct rps_npu_op *op, const rps_npu_optimizer *o,
        struct rps_npu_optimize_args *args)
{
    args->learning_rate =
            rps_npu_op_input(op, "learning_rate", o->learning_rate);
    if (args->adam) {
        args->step = rps_npu_op_input(op, "step", o->step);
    }
    if (o->finite != NULL) {
        args->finite = rps_npu_op_input(op, "finite", o->finite);
    }
}

static void *
add_changed(
        struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    void *at = rps_npu_op_output(op, what, tensor);

    rps_npu_op_reads_output(op);
    return at;
}

static void
say_numbers(struct rps_npu_op *op, const rps_npu_optimizer *o)
{
    if (o->kind != RPS_NPU_SGD) {
        rps_npu_op_say_number(op, "beta1", o->beta1);
        rps_npu_op_say_number(op, "beta2", o->beta2);
        rps_npu_op_say_number(op, "epsilon", o->epsilon);
    }
    rps_npu_op_say_number(op, "weight_decay", o->weight_decay);
}

rps_status
rps_npu_optimizer_step(const rps_npu_ops *ops,
        const rps_npu_optimizer *optimizer, const rps_npu_tensor *weight,
        const rps_npu_tensor *gradient, const rps_npu_tensor *m,
        const rps_npu_tensor *v)
{
    const rps_npu_optimizer *o = optimizer;
    struct rps_npu_optimize_args args;
    struct rps_npu_op op;

    if (o == NULL || o->struct_bytes != sizeof(*o) ||
            (unsigned)o->kind >= KINDS) {
        return rps_npu_fail(RPS_E_INVAL,
                "optimizer: it is not of rps_npu_optimizer_init()");
    }
    rps_npu_op_begin(&op, ops, kinds[o->kind]);
    check_numbers(&op, o);
    check_tensors(&op, o, weight, gradient, m, v);
    if (op.status != RPS_OK || rps_npu_tensor_elements(weight) == 0) {
        return op.status;
    }
    args = (struct rps_npu_optimize_args){.how = rps_npu_op_how(ops),
            .adam = o->kind != RPS_NPU_SGD,
            .decoupled = o->kind == RPS_NPU_ADAMW,
            .beta1 = o->beta1,
            .beta2 = o->beta2,
            .epsilon = o->epsilon,
            .decay = o->weight_decay,
            .n = rps_npu_tensor_elements(weight)};
    args.gradient = rps_npu_op_input(&op, "gradient", gradient);
    add_operands(&op, o, &args);
    args.weight = add_changed(&op, "weight", weight);
    if (args.adam) {
        args.m = add_changed(&op, "m", m);
        args.v = add_changed(&op, "v", v);
    }
    say_numbers(&op, o);
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_optimize_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .flops = args.n * (args.adam ? 14 : 4)});
}
