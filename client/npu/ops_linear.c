/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers. Fused, all parts of a layer are one operation; else each is one of
 * its own, of the same kernel.
 */
#include "client/npu/kernels/linear.h"
#include "client/npu/ops.h"

#define ACTIVATIONS 3u

_Static_assert(
        (int)RPS_NPU_ACTIVATION_GELU == (int)RPS_NPU_KERNEL_ACT_GELU &&
                (int)RPS_NPU_ACTIVATION_RELU == (int)RPS_NPU_KERNEL_ACT_RELU,
        "one order of the activations");
_Static_assert(RPS_NPU_TILE_ROWS == RPS_NPU_KERNEL_TILE, "one tile");
_Static_assert(
        sizeof(struct rps_npu_linear_args) <= RPS_NPU_OPERATION_ARGS_BYTES,
        "arguments fit into an operation");
_Static_assert(
        sizeof(struct rps_npu_linear_back_args) <= RPS_NPU_OPERATION_ARGS_BYTES,
        "arguments fit into an operation");

/* A BLAS counts in 32 bits. */
static bool
fits_blas(struct rps_npu_op *op, uint64_t rows, uint64_t in, uint64_t out)
{
    if (rows > INT32_MAX || in > INT32_MAX || out > INT32_MAX) {
        rps_npu_op_fail(op, RPS_E_INVAL,
                "[%llu][%llu] by [%llu][%llu]: a product's sides are at most "
                "2^31 - 1",
                (unsigned long long)rows, (unsigned long long)in,
                (unsigned long long)out, (unsigned long long)in);
        return false;
    }
    return true;
}

static struct rps_npu_matrix
factor(struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    const struct rps_npu_operand_rows rows =
            rps_npu_op_input_rows(op, what, tensor);

    if (op->status == RPS_OK && rows.stride > INT32_MAX) {
        rps_npu_op_fail(op, RPS_E_INVAL, "rows are more than 2^31 - 1 apart");
    }
    return (struct rps_npu_matrix){.at = rows.at,
            .stride = rows.stride,
            .bf16 = tensor->dtype == RPS_NPU_BF16};
}

/* --- forward -----------------------------------------------------------------
 */

static bool
has_product(const rps_npu_linear *l)
{
    return l->x != NULL && l->x->shape[1] > 0;
}

static void
check_factors(struct rps_npu_op *op, const rps_npu_linear *l)
{
    const uint64_t *y = l->y->shape;
    const uint64_t x_shape[] = {y[0], RPS_NPU_OP_ANY};

    if (l->x == NULL) {
        if (l->weight != NULL || l->bias == NULL) {
            rps_npu_op_fail(op, RPS_E_INVAL,
                    "without x there is no weight, and a bias");
        }
        return;
    }
    if (rps_npu_op_check(op, "x", l->x, RPS_NPU_OP_FACTOR, 2, x_shape)) {
        const uint64_t weight_shape[] = {y[1], l->x->shape[1]};

        (void)rps_npu_op_check(
                op, "weight", l->weight, RPS_NPU_OP_FACTOR, 2, weight_shape);
        (void)fits_blas(op, y[0], l->x->shape[1], y[1]);
    }
}

static void
check_forward(struct rps_npu_op *op, const rps_npu_linear *l)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY, RPS_NPU_OP_ANY};

    if ((unsigned)l->activation >= ACTIVATIONS) {
        rps_npu_op_fail(op, RPS_E_INVAL, "there is no activation %u",
                (unsigned)l->activation);
    }
    if (!rps_npu_op_check(op, "y", l->y, RPS_NPU_OP_F32, 2, any)) {
        return;
    }
    check_factors(op, l);
    if (l->bias != NULL) {
        (void)rps_npu_op_check(
                op, "bias", l->bias, RPS_NPU_OP_F32, 1, &l->y->shape[1]);
    }
    if (l->z != NULL) {
        (void)rps_npu_op_check_like(op, "z", l->z, RPS_NPU_OP_F32, l->y);
    }
    rps_npu_op_check_threads(op);
}

/* One operation of some of a layer's parts. */
static rps_status
forward_parts(const rps_npu_ops *ops, const rps_npu_linear *l, uint32_t parts,
        const char *type, const char *holds)
{
    static const char *const names[ACTIVATIONS] = {"none", "relu", "gelu"};
    const rps_npu_tensor *z = l->z != NULL ? l->z : l->y;
    const bool activates = (parts & RPS_NPU_LINEAR_ACTIVATION) != 0;
    const bool makes_z =
            (parts & (RPS_NPU_LINEAR_BIAS | RPS_NPU_LINEAR_PRODUCT)) != 0;
    /* the product of its own: to what bias left in z */
    const bool adds = l->bias != NULL && (parts & RPS_NPU_LINEAR_BIAS) == 0 &&
                      (parts & RPS_NPU_LINEAR_PRODUCT) != 0;
    struct rps_npu_linear_args args = {.how = rps_npu_op_how(ops),
            .parts = parts,
            .activation = (enum rps_npu_kernel_activation)l->activation,
            .rows = l->y->shape[0],
            .in = has_product(l) ? l->x->shape[1] : 0,
            .out = l->y->shape[1]};
    struct rps_npu_operand_rows rows = {0};
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, type);
    op.in_place[0] = makes_z || l->z != NULL ? NULL : z; /* y, activated */
    if ((parts & RPS_NPU_LINEAR_PRODUCT) != 0) {
        args.x = factor(&op, "x", l->x);
        args.weight = factor(&op, "weight", l->weight);
    }
    if ((parts & RPS_NPU_LINEAR_BIAS) != 0) {
        args.bias = rps_npu_op_input(&op, "bias", l->bias);
    } else if (l->bias != NULL) {
        /* what z holds is added to: not read through it */
        args.bias = rps_npu_inside(op.npu, rps_npu_tensor_address(l->bias));
    }
    if (makes_z && l->z != NULL) {
        rows = rps_npu_op_output_rows(&op, "z", z);
        if (adds) {
            rps_npu_op_reads_output(&op);
        }
    } else if (!makes_z) {
        rows = rps_npu_op_input_rows(&op, "x", z);
    }
    if (activates || l->z == NULL) {
        const struct rps_npu_operand_rows y =
                rps_npu_op_output_rows(&op, "y", l->y);

        if (adds && l->z == NULL) {
            rps_npu_op_reads_output(&op);
        }
        args.y = y.at;
        args.y_stride = y.stride;
        rows = l->z == NULL ? y : rows;
    }
    args.z = rows.at;
    args.z_stride = rows.stride;
    rps_npu_op_say_word(
            &op, "activation", activates ? names[l->activation] : "none");
    rps_npu_op_say_bool(&op, "accumulate", adds);
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_linear_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args),
                         .workspace_bytes = rps_npu_linear_workspace(&args),
                         .flops = args.rows * args.out *
                                  (2 * args.in + (args.bias != NULL ? 1 : 0)),
                         .holds = holds});
}

/* By activation, with a bias and without. */
static const struct {
    const char *type;
    const char *holds[2];
} fused[ACTIVATIONS] = {
        {"linear", {NULL, "linear + bias"}},
        {"linear_relu", {"linear + relu", "linear + bias + relu"}},
        {"linear_gelu", {"linear + gelu", "linear + bias + gelu"}},
};

static rps_status
forward_one_by_one(const rps_npu_ops *ops, const rps_npu_linear *l)
{
    static const char *const activations[ACTIVATIONS] = {
            "copy", "relu", "gelu"};
    rps_status status = RPS_OK;

    if (l->bias != NULL) {
        status = forward_parts(ops, l, RPS_NPU_LINEAR_BIAS, "bias", NULL);
    }
    if (status == RPS_OK && has_product(l)) {
        status = forward_parts(ops, l, RPS_NPU_LINEAR_PRODUCT, "linear", NULL);
    }
    if (status == RPS_OK &&
            (l->activation != RPS_NPU_ACTIVATION_NONE || l->z != NULL)) {
        status = forward_parts(ops, l, RPS_NPU_LINEAR_ACTIVATION,
                activations[l->activation], NULL);
    }
    return status;
}

rps_status
rps_npu_linear_forward(const rps_npu_ops *ops, const rps_npu_linear *linear)
{
    uint32_t parts = RPS_NPU_LINEAR_ACTIVATION;
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "linear");
    if (rps_npu_op_has(&op, "layer", linear)) {
        check_forward(&op, linear);
    }
    if (op.status != RPS_OK || rps_npu_tensor_elements(linear->y) == 0) {
        return op.status;
    }
    if (!has_product(linear) && linear->bias == NULL) { /* in is 0 */
        rps_npu_linear none = *linear;
        const rps_npu_tensor *z = linear->z != NULL ? linear->z : linear->y;
        const rps_status status = rps_npu_fill(ops, 0.0f, z);

        none.x = none.weight = NULL;
        return status != RPS_OK ? status : forward_one_by_one(ops, &none);
    }
    if (!ops->options.fusion) {
        return forward_one_by_one(ops, linear);
    }
    parts |= linear->bias != NULL ? RPS_NPU_LINEAR_BIAS : 0;
    parts |= has_product(linear) ? RPS_NPU_LINEAR_PRODUCT : 0;
    return forward_parts(ops, linear, parts, fused[linear->activation].type,
            has_product(linear)
                    ? fused[linear->activation].holds[linear->bias != NULL]
                    : NULL);
}
