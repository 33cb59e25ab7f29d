/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a view whose elements lie side by side: what kernels that know
 * nothing of strides are given. */
#include "client/npu/error.h"
#include "client/npu/operation.h"
#include "client/npu/tensor.h"

#include <string.h>

struct gather {
    void *to;         /* inside */
    const void *from; /* inside */
    uint64_t size;    /* bytes of an element */
    uint64_t shape[RPS_NPU_DIMS_MAX];
    uint64_t strides[RPS_NPU_DIMS_MAX]; /* bytes */
};

/* The last dimension. */
static char *
gather_row(const struct gather *gather, char *to, const char *from)
{
    const uint64_t count = gather->shape[RPS_NPU_DIMS_MAX - 1];
    const uint64_t stride = gather->strides[RPS_NPU_DIMS_MAX - 1];

    if (stride == gather->size) {
        memcpy(to, from, count * gather->size);
        return to + count * gather->size;
    }
    for (uint64_t i = 0; i < count; i++) {
        memcpy(to, from + i * stride, gather->size);
        to += gather->size;
    }
    return to;
}

static void
run_gather(const void *args, void *workspace)
{
    const struct gather *gather = args;
    char *to = gather->to;

    for (uint64_t i = 0; i < gather->shape[0]; i++) {
        for (uint64_t j = 0; j < gather->shape[1]; j++) {
            for (uint64_t k = 0; k < gather->shape[2]; k++) {
                to = gather_row(gather, to,
                        (const char *)gather->from + i * gather->strides[0] +
                                j * gather->strides[1] +
                                k * gather->strides[2]);
            }
        }
    }
}

/* Four dimensions, the first ones of 1. */
static struct gather
gather_of(const rps_npu *npu, const rps_npu_tensor *tensor,
        const rps_npu_tensor *copy)
{
    const uint32_t added = RPS_NPU_DIMS_MAX - tensor->ndim;
    struct gather gather = {
            .to = rps_npu_inside(npu, rps_npu_tensor_address(copy)),
            .from = rps_npu_inside(npu, rps_npu_tensor_address(tensor)),
            .size = rps_npu_dtype_size(tensor->dtype),
    };

    for (uint32_t i = 0; i < RPS_NPU_DIMS_MAX; i++) {
        gather.shape[i] = i < added ? 1 : tensor->shape[i - added];
        gather.strides[i] =
                i < added ? 0 : tensor->strides[i - added] * gather.size;
    }
    return gather;
}

static rps_status
copy_into(rps_npu_stream *stream, const rps_npu_tensor *tensor,
        const rps_npu_tensor *copy)
{
    const struct gather gather =
            gather_of(rps_npu_stream_device(stream), tensor, copy);
    static const char *const x = "x", *const y = "y";
    const struct rps_npu_operation operation = {
            .type = "contiguous",
            .kernel = run_gather,
            .args = &gather,
            .args_bytes = sizeof(gather),
            .bytes = 2 * rps_npu_tensor_elements(tensor) * gather.size,
            .inputs = tensor,
            .input_count = 1,
            .outputs = copy,
            .output_count = 1,
            .input_labels = &x,
            .output_labels = &y,
    };

    return rps_npu_enqueue(stream, &operation);
}

rps_status
rps_npu_tensor_contiguous(rps_npu_stream *stream, const rps_npu_tensor *tensor,
        rps_npu_tensor *tensor_out)
{
    rps_npu_tensor copy;
    rps_status status;

    if (tensor_out == NULL) {
        return rps_npu_missing("contiguous", "tensor_out");
    }
    *tensor_out = (rps_npu_tensor){.storage = NULL};
    if (stream == NULL) {
        return rps_npu_missing("contiguous", "stream");
    }
    if (rps_npu_tensor_check("contiguous", tensor) != RPS_OK) {
        return RPS_E_INVAL;
    }
    if (rps_npu_tensor_is_contiguous(tensor)) {
        *tensor_out = rps_npu_tensor_retain(tensor);
        return RPS_OK;
    }
    status = rps_npu_tensor_create(
            stream, tensor->dtype, tensor->ndim, tensor->shape, &copy);
    if (status != RPS_OK) {
        return status;
    }
    status = copy_into(stream, tensor, &copy);
    if (status != RPS_OK) {
        rps_npu_tensor_release(&copy);
        return status;
    }
    *tensor_out = copy;
    return RPS_OK;
}
