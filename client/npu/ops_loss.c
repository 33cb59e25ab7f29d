/* SPDX-License-Identifier: Apache-2.0 */
/* The loss, and dropout. */
#include "client/npu/kernels/dropout.h"
#include "client/npu/kernels/loss.h"
#include "client/npu/ops.h"

static const uint64_t one = 1;
static const uint64_t two = 2;

static void
check_bce(struct rps_npu_op *op, const rps_npu_bce *bce)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY, RPS_NPU_OP_ANY};

    if (!rps_npu_op_check(op, "logits", bce->logits, RPS_NPU_OP_F32, 2, any)) {
        return;
    }
    (void)rps_npu_op_check_like(
            op, "labels", bce->labels, RPS_NPU_OP_F32, bce->logits);
    if (bce->weights != NULL) {
        (void)rps_npu_op_check(op, "weights", bce->weights, RPS_NPU_OP_F32, 1,
                bce->logits->shape);
    }
    if (bce->scale != NULL) {
        (void)rps_npu_op_check(
                op, "scale", bce->scale, RPS_NPU_OP_F64, 1, &two);
    }
    if (bce->loss != NULL) {
        (void)rps_npu_op_check(op, "loss", bce->loss, RPS_NPU_OP_F64, 1, &one);
    }
    if (bce->dlogits != NULL) {
        (void)rps_npu_op_check_like(
                op, "dlogits", bce->dlogits, RPS_NPU_OP_F32, bce->logits);
    }
    if (bce->loss == NULL && bce->dlogits == NULL) {
        rps_npu_op_fail(op, RPS_E_INVAL, "neither loss nor dlogits is wanted");
    }
}

static void
add_inputs(struct rps_npu_op *op, const rps_npu_bce *bce,
        struct rps_npu_bce_args *args)
{
    struct rps_npu_operand_rows rows =
            rps_npu_op_input_rows(op, "logits", bce->logits);

    args->x = rows.at;
    args->x_stride = rows.stride;
    rows = rps_npu_op_input_rows(op, "labels", bce->labels);
    args->y = rows.at;
    args->y_stride = rows.stride;
    if (bce->weights != NULL) {
        args->weights = rps_npu_op_input(op, "weights", bce->weights);
    }
    if (bce->scale != NULL) {
        args->scale = rps_npu_op_input(op, "scale", bce->scale);
    }
}

static rps_status
give_bce(const rps_npu_ops *ops, const rps_npu_bce *bce, const char *type,
        const char *holds)
{
    struct rps_npu_bce_args args = {.rows = bce->logits->shape[0],
            .labels = bce->logits->shape[1],
            .accumulate = bce->accumulate};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, type);
    add_inputs(&op, bce, &args);
    if (bce->loss != NULL) {
        args.loss = rps_npu_op_output(&op, "loss", bce->loss);
        if (bce->accumulate) {
            rps_npu_op_reads_output(&op);
        }
        rps_npu_op_say_bool(&op, "accumulate", bce->accumulate);
    }
    if (bce->dlogits != NULL && rps_npu_tensor_elements(bce->dlogits) > 0) {
        const struct rps_npu_operand_rows rows =
                rps_npu_op_output_rows(&op, "dlogits", bce->dlogits);

        args.dx = rows.at;
        args.dx_stride = rows.stride;
    }
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_bce_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .flops = 40 * args.rows * args.labels,
                         .holds = holds});
}

rps_status
rps_npu_bce_with_logits(const rps_npu_ops *ops, const rps_npu_bce *bce)
{
    rps_npu_bce half;
    rps_status status = RPS_OK;
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "bce");
    if (rps_npu_op_has(&op, "bce", bce)) {
        check_bce(&op, bce);
    }
    if (op.status != RPS_OK) {
        return op.status;
    }
    half = *bce;
    if (bce->loss != NULL && bce->dlogits != NULL && ops->options.fusion) {
        return give_bce(ops, bce, "bce", "loss + gradient");
    }
    if (bce->loss != NULL) {
        half.dlogits = NULL;
        status = give_bce(ops, &half, "bce_loss", NULL);
    }
    if (status == RPS_OK && bce->dlogits != NULL &&
            rps_npu_tensor_elements(bce->dlogits) > 0) {
        half.dlogits = bce->dlogits;
        half.loss = NULL;
        status = give_bce(ops, &half, "bce_gradient", NULL);
    }
    return status;
}

/* --- dropout
 * ------------------------------------------------------------------ */

static bool
is_same_view(const rps_npu_tensor *a, const rps_npu_tensor *b)
{
    if (rps_npu_tensor_address(a) != rps_npu_tensor_address(b)) {
        return false;
    }
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->strides[d] != b->strides[d]) {
            return false;
        }
    }
    return true;
}

static bool
check_dropout(struct rps_npu_op *op, const rps_npu_dropout *dropout,
        const rps_npu_tensor *x, const rps_npu_tensor *y)
{
    if (!rps_npu_op_check(op, "y", y, RPS_NPU_OP_F32, 0, NULL) ||
            !rps_npu_op_check_like(op, "x", x, RPS_NPU_OP_F32, y)) {
        return false;
    }
    if (!(dropout->rate >= 0.0 && dropout->rate < 1.0)) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "its rate is %g: must be from 0 to below 1", dropout->rate);
        return false;
    }
    return dropout->rate == 0.0 ||
           rps_npu_op_check(op, "step", dropout->step, RPS_NPU_OP_F64, 1, &one);
}

rps_status
rps_npu_dropout_apply(const rps_npu_ops *ops, const rps_npu_dropout *dropout,
        const rps_npu_tensor *x, const rps_npu_tensor *y)
{
    struct rps_npu_dropout_args args;
    struct rps_npu_rows rows = {0};
    struct rps_npu_op op;
    void *at[3] = {NULL};

    rps_npu_op_begin(&op, ops, "dropout");
    if (!rps_npu_op_has(&op, "dropout", dropout) ||
            !check_dropout(&op, dropout, x, y) ||
            rps_npu_tensor_elements(y) == 0) {
        return op.status;
    }
    if (dropout->rate == 0.0) {
        return is_same_view(x, y) ? RPS_OK : rps_npu_op_copy(ops, "copy", x, y);
    }
    args = (struct rps_npu_dropout_args){.rate = dropout->rate,
            .seed = dropout->seed,
            .site = dropout->site,
            .first = dropout->first};
    op.in_place[0] = x;
    rows = rps_npu_op_rows(&op, x, NULL, y, at);
    args.step = rps_npu_op_input(&op, "step", dropout->step);
    rps_npu_op_say_number(&op, "rate", dropout->rate);
    rps_npu_op_say_count(&op, "seed", dropout->seed);
    rps_npu_op_say_count(&op, "site", dropout->site);
    rps_npu_op_say_count(&op, "first", dropout->first);
    args.rows = rows.rows;
    args.columns = rows.columns;
    args.x = at[0];
    args.x_stride = rows.a;
    args.y = at[2];
    args.y_stride = rows.y;
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_dropout_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .flops = 8 * rows.rows * rows.columns});
}
