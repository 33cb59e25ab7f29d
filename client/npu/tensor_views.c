/* SPDX-License-Identifier: Apache-2.0 */
/* Views: another shape and other strides on the same bytes. */
#include "client/npu/error.h"
#include "client/npu/tensor.h"

#include <inttypes.h>

static rps_status
begin_view(const char *operation, rps_npu_tensor *view_out)
{
    if (view_out == NULL) {
        return rps_npu_missing(operation, "view_out");
    }
    *view_out = (rps_npu_tensor){.storage = NULL};
    return RPS_OK;
}

static rps_status
check_dim(const char *operation, const rps_npu_tensor *tensor, uint32_t dim)
{
    return dim < tensor->ndim ? RPS_OK
                              : rps_npu_fail(RPS_E_INVAL,
                                        "%s: dimension %" PRIu32
                                        " of a tensor that has %" PRIu32,
                                        operation, dim, tensor->ndim);
}

rps_status
rps_npu_tensor_slice(const rps_npu_tensor *tensor, uint32_t dim, uint64_t first,
        uint64_t count, rps_npu_tensor *view_out)
{
    rps_npu_tensor view;

    if (begin_view("slice", view_out) != RPS_OK ||
            check_dim("slice", tensor, dim) != RPS_OK) {
        return RPS_E_INVAL;
    }
    if (first > tensor->shape[dim] || count > tensor->shape[dim] - first) {
        return rps_npu_fail(RPS_E_INVAL,
                "slice: %" PRIu64 " elements from %" PRIu64
                " of dimension %" PRIu32 ", which has %" PRIu64,
                count, first, dim, tensor->shape[dim]);
    }
    view = rps_npu_tensor_retain(tensor);
    view.offset += first * view.strides[dim] * rps_npu_dtype_size(view.dtype);
    view.shape[dim] = count;
    *view_out = view;
    return RPS_OK;
}

rps_status
rps_npu_tensor_transpose(const rps_npu_tensor *tensor, uint32_t a, uint32_t b,
        rps_npu_tensor *view_out)
{
    rps_npu_tensor view;

    if (begin_view("transpose", view_out) != RPS_OK ||
            check_dim("transpose", tensor, a) != RPS_OK ||
            check_dim("transpose", tensor, b) != RPS_OK) {
        return RPS_E_INVAL;
    }
    view = rps_npu_tensor_retain(tensor);
    view.shape[a] = tensor->shape[b];
    view.strides[a] = tensor->strides[b];
    view.shape[b] = tensor->shape[a];
    view.strides[b] = tensor->strides[a];
    *view_out = view;
    return RPS_OK;
}

rps_status
rps_npu_tensor_reshape(const rps_npu_tensor *tensor, uint32_t ndim,
        const uint64_t *shape, rps_npu_tensor *view_out)
{
    const uint64_t has = rps_npu_tensor_elements(tensor);
    uint64_t wants = 0;
    rps_npu_tensor view;

    if (begin_view("reshape", view_out) != RPS_OK ||
            rps_npu_tensor_check_shape("reshape", ndim, shape, &wants) !=
                    RPS_OK) {
        return RPS_E_INVAL;
    }
    if (wants != has) {
        return rps_npu_fail(RPS_E_INVAL,
                "reshape: %" PRIu64 " elements into a shape of %" PRIu64, has,
                wants);
    }
    if (!rps_npu_tensor_is_contiguous(tensor)) {
        return rps_npu_fail(RPS_E_INVAL,
                "reshape: the tensor is a view that is not contiguous: copy "
                "it with rps_npu_tensor_contiguous() first");
    }
    view = rps_npu_tensor_retain(tensor);
    rps_npu_tensor_lay_out(&view, ndim, shape);
    *view_out = view;
    return RPS_OK;
}

/* Dimension i of the larger shape: it is new, repeats one of 1, or is as it
 * was. */
static rps_status
expand_dim(const rps_npu_tensor *tensor, uint32_t i, uint64_t size,
        rps_npu_tensor *view)
{
    const uint32_t added = view->ndim - tensor->ndim;

    view->shape[i] = size;
    view->strides[i] = 0;
    if (i < added || tensor->shape[i - added] == 1) {
        return RPS_OK;
    }
    view->strides[i] = tensor->strides[i - added];
    return tensor->shape[i - added] == size
                   ? RPS_OK
                   : rps_npu_fail(RPS_E_INVAL,
                             "expand: dimension %" PRIu32 " is %" PRIu64
                             " and cannot become %" PRIu64
                             ": only dimensions of 1 become larger",
                             i - added, tensor->shape[i - added], size);
}

rps_status
rps_npu_tensor_expand(const rps_npu_tensor *tensor, uint32_t ndim,
        const uint64_t *shape, rps_npu_tensor *view_out)
{
    rps_npu_tensor view = *tensor;
    uint64_t elements = 0;

    if (begin_view("expand", view_out) != RPS_OK ||
            rps_npu_tensor_check_shape("expand", ndim, shape, &elements) !=
                    RPS_OK) {
        return RPS_E_INVAL;
    }
    if (ndim < tensor->ndim) {
        return rps_npu_fail(RPS_E_INVAL,
                "expand: %" PRIu32 " dimensions of a tensor that has %" PRIu32
                ": their number cannot shrink",
                ndim, tensor->ndim);
    }
    view.ndim = ndim;
    for (uint32_t i = 0; i < ndim; i++) {
        if (expand_dim(tensor, i, shape[i], &view) != RPS_OK) {
            return RPS_E_INVAL;
        }
    }
    (void)rps_npu_tensor_retain(tensor);
    *view_out = view;
    return RPS_OK;
}
