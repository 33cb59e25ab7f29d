/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of layers: fused one operation, else one each. */
#include "client/npu/kernels/linear.h"
#include "client/npu/ops.h"

#define ACTIVATIONS 3u

static void
check_back(struct rps_npu_op *op, const rps_npu_linear_gradient *g)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY, RPS_NPU_OP_ANY};
    const uint64_t *dy = NULL;

    if ((unsigned)g->activation >= ACTIVATIONS) {
        rps_npu_op_fail(op, RPS_E_INVAL, "there is no activation %u",
                (unsigned)g->activation);
    }
    if (!rps_npu_op_check(op, "dy", g->dy, RPS_NPU_OP_F32, 2, any)) {
        return;
    }
    dy = g->dy->shape;
    if (g->activation != RPS_NPU_ACTIVATION_NONE) {
        (void)rps_npu_op_check(op, "kept", g->kept, RPS_NPU_OP_F32, 2, dy);
    }
    if (g->dbias != NULL) {
        (void)rps_npu_op_check(
                op, "dbias", g->dbias, RPS_NPU_OP_F32, 1, dy + 1);
    }
    if (g->dweight != NULL) {
        const uint64_t x[] = {dy[0], RPS_NPU_OP_ANY};

        if (rps_npu_op_check(op, "x", g->x, RPS_NPU_OP_FACTOR, 2, x)) {
            const uint64_t weight[] = {dy[1], g->x->shape[1]};

            (void)rps_npu_op_check(
                    op, "dweight", g->dweight, RPS_NPU_OP_F32, 2, weight);
        }
    }
    if (g->dx != NULL) {
        const uint64_t weight[] = {dy[1], RPS_NPU_OP_ANY};

        if (rps_npu_op_check(
                    op, "weight", g->weight, RPS_NPU_OP_FACTOR, 2, weight)) {
            const uint64_t dx[] = {dy[0], g->weight->shape[1]};

            (void)rps_npu_op_check(op, "dx", g->dx, RPS_NPU_OP_F32, 2, dx);
        }
    }
    rps_npu_op_check_threads(op);
}

/* What of it is wanted; a tensor without elements is not. */
static uint32_t
parts_of(const rps_npu_linear_gradient *g)
{
    uint32_t parts = 0;

    if (g->dbias != NULL && g->dbias->shape[0] > 0) {
        parts |= RPS_NPU_LINEAR_DBIAS;
    }
    if (g->dweight != NULL && rps_npu_tensor_elements(g->dweight) > 0) {
        parts |= RPS_NPU_LINEAR_DWEIGHT;
    }
    if (g->dx != NULL && rps_npu_tensor_elements(g->dx) > 0) {
        parts |= RPS_NPU_LINEAR_DX;
    }
    if (parts != 0 && g->activation != RPS_NPU_ACTIVATION_NONE) {
        parts |= RPS_NPU_LINEAR_DZ;
    }
    return parts;
}

/* A BLAS counts strides in 32 bits, too. */
static struct rps_npu_operand_rows
narrow(struct rps_npu_op *op, struct rps_npu_operand_rows rows)
{
    if (op->status == RPS_OK && rows.stride > INT32_MAX) {
        rps_npu_op_fail(op, RPS_E_INVAL, "rows are more than 2^31 - 1 apart");
    }
    return rows;
}

static struct rps_npu_matrix
factor(struct rps_npu_op *op, const char *what, const rps_npu_tensor *tensor)
{
    const struct rps_npu_operand_rows rows =
            narrow(op, rps_npu_op_input_rows(op, what, tensor));

    return (struct rps_npu_matrix){.at = rows.at,
            .stride = rows.stride,
            .bf16 = tensor->dtype == RPS_NPU_BF16};
}

static void
add_inputs(struct rps_npu_op *op, const rps_npu_linear_gradient *g,
        struct rps_npu_linear_back_args *args)
{
    struct rps_npu_operand_rows rows =
            narrow(op, rps_npu_op_input_rows(op, "dy", g->dy));

    args->dy = rows.at;
    args->dy_stride = rows.stride;
    if ((args->parts & RPS_NPU_LINEAR_DZ) != 0) {
        rows = rps_npu_op_input_rows(op, "kept", g->kept);
        args->kept = rows.at;
        args->kept_stride = rows.stride;
    }
    if ((args->parts & RPS_NPU_LINEAR_DWEIGHT) != 0) {
        args->x = factor(op, "x", g->x);
    }
    if ((args->parts & RPS_NPU_LINEAR_DX) != 0) {
        args->weight = factor(op, "weight", g->weight);
    }
}

static void
reads_if(struct rps_npu_op *op, bool accumulates)
{
    if (accumulates) {
        rps_npu_op_reads_output(op);
    }
}

static void
add_outputs(struct rps_npu_op *op, const rps_npu_linear_gradient *g,
        struct rps_npu_linear_back_args *args)
{
    struct rps_npu_operand_rows rows = {0};

    if ((args->parts & RPS_NPU_LINEAR_DBIAS) != 0) {
        args->dbias = rps_npu_op_output(op, "dbias", g->dbias);
        reads_if(op, g->accumulate);
    }
    if ((args->parts & RPS_NPU_LINEAR_DWEIGHT) != 0) {
        rows = narrow(op, rps_npu_op_output_rows(op, "dweight", g->dweight));
        reads_if(op, g->accumulate);
        args->dweight = rows.at;
        args->dweight_stride = rows.stride;
    }
    if ((args->parts & RPS_NPU_LINEAR_DX) != 0) {
        rows = narrow(op, rps_npu_op_output_rows(op, "dx", g->dx));
        args->dx = rows.at;
        args->dx_stride = rows.stride;
    }
}

static uint64_t
flops_of(const struct rps_npu_linear_back_args *args)
{
    const uint64_t product = 2 * args->rows * args->in * args->out;
    const uint32_t parts = args->parts;

    return ((parts & RPS_NPU_LINEAR_DWEIGHT) != 0 ? product : 0) +
           ((parts & RPS_NPU_LINEAR_DX) != 0 ? product : 0) +
           ((parts & RPS_NPU_LINEAR_DBIAS) != 0 ? args->rows * args->out : 0);
}

/* One operation. dz: where it is kept; NULL: nowhere. */
static rps_status
back_parts(const rps_npu_ops *ops, const rps_npu_linear_gradient *g,
        uint32_t parts, const rps_npu_tensor *dz, const char *type,
        const char *holds)
{
    static const char *const names[ACTIVATIONS] = {"none", "relu", "gelu"};
    struct rps_npu_linear_back_args args = {.how = rps_npu_op_how(ops),
            .parts = parts,
            .activation = (enum rps_npu_kernel_activation)g->activation,
            .rows = g->dy->shape[0],
            .out = g->dy->shape[1],
            .accumulate = g->accumulate};
    struct rps_npu_op op;

    if (g->dweight != NULL) {
        args.in = g->x->shape[1];
    } else if (g->dx != NULL) {
        args.in = g->weight->shape[1];
    }
    rps_npu_op_begin(&op, ops, type);
    add_inputs(&op, g, &args);
    add_outputs(&op, g, &args);
    if (dz != NULL) {
        const struct rps_npu_operand_rows rows =
                rps_npu_op_output_rows(&op, "dx", dz); /* relu_backward's */

        args.dz = rows.at;
        args.dz_stride = rows.stride;
    }
    rps_npu_op_say_word(&op, "activation",
            (parts & RPS_NPU_LINEAR_DZ) != 0 ? names[g->activation] : "none");
    rps_npu_op_say_bool(&op, "accumulate", g->accumulate);
    return rps_npu_op_give(&op,
            &(struct rps_npu_op_work){.kernel = rps_npu_linear_back_kernel,
                    .args = &args,
                    .args_bytes = sizeof(args),
                    .workspace_bytes = rps_npu_linear_back_workspace(&args),
                    .flops = flops_of(&args),
                    .holds = holds});
}

static rps_status
gradients_one_by_one(const rps_npu_ops *ops, const rps_npu_linear_gradient *g,
        uint32_t parts)
{
    static const struct {
        uint32_t part;
        const char *type;
    } all[] = {{RPS_NPU_LINEAR_DBIAS, "linear_dbias"},
            {RPS_NPU_LINEAR_DWEIGHT, "linear_dweight"},
            {RPS_NPU_LINEAR_DX, "linear_dx"}};
    rps_status status = RPS_OK;

    for (size_t i = 0; i < 3 && status == RPS_OK; i++) {
        if ((parts & all[i].part) != 0) {
            status = back_parts(ops, g, all[i].part, NULL, all[i].type, NULL);
        }
    }
    return status;
}

/* dz is a tensor of its own, between the operations. */
static rps_status
back_one_by_one(const rps_npu_ops *ops, const rps_npu_linear_gradient *g,
        uint32_t parts)
{
    static const char *const types[ACTIVATIONS] = {
            NULL, "relu_backward", "gelu_backward"};
    rps_npu_linear_gradient rest = *g;
    rps_npu_tensor dz = {0};
    rps_status status = RPS_OK;

    if ((parts & RPS_NPU_LINEAR_DZ) != 0 && g->dy->shape[0] > 0) {
        status = rps_npu_tensor_create(
                ops->stream, RPS_NPU_F32, 2, g->dy->shape, &dz);
        if (status == RPS_OK) {
            status = back_parts(
                    ops, g, RPS_NPU_LINEAR_DZ, &dz, types[g->activation], NULL);
        }
        rest.dy = &dz;
    }
    if (status == RPS_OK) {
        rest.activation = RPS_NPU_ACTIVATION_NONE;
        rest.kept = NULL;
        status = gradients_one_by_one(ops, &rest, parts);
    }
    rps_npu_tensor_release(&dz);
    return status;
}

/* By activation and by which gradients are wanted: bits DBIAS, DWEIGHT, DX. */
#define HELD(first)                                                    \
    {                                                                  \
        NULL, first "dbias", first "dweight", first "dbias + dweight", \
                first "dx", first "dbias + dx", first "dweight + dx",  \
                first "dbias + dweight + dx"                           \
    }

static const char *const held[ACTIVATIONS][8] = {
        HELD(""), HELD("relu_backward + "), HELD("gelu_backward + ")};

rps_status
rps_npu_linear_backward(
        const rps_npu_ops *ops, const rps_npu_linear_gradient *gradient)
{
    uint32_t parts = 0;
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "linear_backward");
    if (rps_npu_op_has(&op, "layer", gradient)) {
        check_back(&op, gradient);
    }
    if (op.status != RPS_OK) {
        return op.status;
    }
    parts = parts_of(gradient);
    if (parts == 0) {
        return RPS_OK;
    }
    if (!ops->options.fusion) {
        return back_one_by_one(ops, gradient, parts);
    }
    return back_parts(ops, gradient, parts, NULL, "linear_backward",
            held[gradient->activation][parts / RPS_NPU_LINEAR_DBIAS % 8]);
}
