/* SPDX-License-Identifier: Apache-2.0 */
/* Rows into a store that outlives the step. */
#include "client/npu/kernels/scatter.h"
#include "client/npu/ops.h"

_Static_assert(
        sizeof(struct rps_npu_scatter_args) <= RPS_NPU_OPERATION_ARGS_BYTES,
        "arguments fit into an operation");

rps_status
rps_npu_scatter_rows(const rps_npu_ops *ops, const rps_npu_tensor *packed,
        const rps_npu_tensor *header, const rps_npu_tensor *places,
        const rps_npu_tensor *y)
{
    const uint64_t any[] = {RPS_NPU_OP_ANY, RPS_NPU_OP_ANY};
    const uint64_t two[] = {2};
    struct rps_npu_scatter_args args = {0};
    struct rps_npu_operand_rows rows;
    struct rps_npu_op op;

    rps_npu_op_begin(&op, ops, "scatter");
    if (rps_npu_op_check(&op, "packed", packed, RPS_NPU_OP_F32, 1, any) &&
            rps_npu_op_check(&op, "header", header, RPS_NPU_OP_I32, 1, two) &&
            rps_npu_op_check(&op, "places", places, RPS_NPU_OP_I32, 1, any) &&
            rps_npu_op_check(&op, "y", y, RPS_NPU_OP_F32, 2, any)) {
        args.packed = rps_npu_op_input(&op, "packed", packed);
        args.packed_count = packed->shape[0];
        args.header = rps_npu_op_input(&op, "header", header);
        args.places = rps_npu_op_input(&op, "places", places);
        args.capacity = places->shape[0];
        rows = rps_npu_op_output_rows(&op, "y", y);
        rps_npu_op_reads_output(&op); /* its other rows stay */
        args.rows = rows.at;
        args.row_stride = rows.stride;
        args.row_count = y->shape[0];
        args.dim = y->shape[1];
    }
    return rps_npu_op_give(
            &op, &(struct rps_npu_op_work){.kernel = rps_npu_scatter_kernel,
                         .args = &args,
                         .args_bytes = sizeof(args)});
}
