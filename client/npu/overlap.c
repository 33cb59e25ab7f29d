/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/overlap.h"

#include "client/npu/tensor.h"

bool
rps_npu_tensor_is_same(const rps_npu_tensor *a, const rps_npu_tensor *b)
{
    if (a->storage != b->storage || a->offset != b->offset ||
            a->dtype != b->dtype || a->ndim != b->ndim) {
        return false;
    }
    for (uint32_t d = 0; d < a->ndim; d++) {
        if (a->shape[d] != b->shape[d] ||
                (a->shape[d] > 1 && a->strides[d] != b->strides[d])) {
            return false;
        }
    }
    return true;
}

/* Stride of a dimension in bytes; 0: it is never taken. */
static uint64_t
stride_of(const rps_npu_tensor *tensor, uint32_t d)
{
    return tensor->shape[d] > 1
                   ? tensor->strides[d] * rps_npu_dtype_size(tensor->dtype)
                   : 0;
}

/* All bytes of the tensor lie, modulo `period`, in the `period`'s bytes
 * [*first_out, + *bytes_out): those of the dimensions whose strides are no
 * multiples of it. */
static void
fold(const rps_npu_tensor *tensor, uint64_t period, uint64_t *first_out,
        uint64_t *bytes_out)
{
    uint64_t bytes = rps_npu_dtype_size(tensor->dtype);

    for (uint32_t d = 0; d < tensor->ndim; d++) {
        const uint64_t stride = stride_of(tensor, d);

        if (stride % period != 0) {
            bytes += (tensor->shape[d] - 1) * stride;
        }
    }
    *first_out = tensor->offset % period;
    *bytes_out = bytes;
}

/* Ranges on a circle. */
static bool
are_apart(const rps_npu_tensor *a, const rps_npu_tensor *b, uint64_t period)
{
    uint64_t first[2] = {0};
    uint64_t bytes[2] = {0};
    uint64_t from_a_to_b = 0;

    fold(a, period, &first[0], &bytes[0]);
    fold(b, period, &first[1], &bytes[1]);
    from_a_to_b = (first[1] + period - first[0]) % period;
    return bytes[0] <= from_a_to_b && bytes[1] <= period - from_a_to_b;
}

/* A period that tells the views apart is a stride of one of them. */
static bool
has_period(const rps_npu_tensor *a, const rps_npu_tensor *b)
{
    for (uint32_t d = 0; d < a->ndim; d++) {
        const uint64_t period = stride_of(a, d);

        if (period > 0 && are_apart(a, b, period)) {
            return true;
        }
    }
    return false;
}

bool
rps_npu_tensor_overlaps(const rps_npu_tensor *a, const rps_npu_tensor *b)
{
    const uint64_t a_bytes = rps_npu_tensor_extent(a);
    const uint64_t b_bytes = rps_npu_tensor_extent(b);

    if (a->storage == NULL || a->storage != b->storage || a_bytes == 0 ||
            b_bytes == 0 || a->offset + a_bytes <= b->offset ||
            b->offset + b_bytes <= a->offset) {
        return false;
    }
    return !has_period(a, b) && !has_period(b, a);
}
