/* SPDX-License-Identifier: Apache-2.0 */
/* Storages, and tensors that are made, kept, asked and copied. */
#include "client/npu/tensor.h"

#include "client/npu/device.h"
#include "client/npu/error.h"
#include "client/npu/keep.h"
#include "client/npu/pool_device.h"
#include "client/npu/stream.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>

struct rps_npu_storage {
    _Atomic uint64_t views;
    rps_npu *npu;    /* set before use, as is what follows */
    void *address;   /* a block of its pool */
    uint64_t bytes;  /* of which the tensor it was made for has these */
    uint64_t step;   /* whose memory that is; 0: no step's */
    uint64_t stream; /* for whose work: its number */
};

void *
rps_npu_storage_address(const rps_npu_storage *storage)
{
    return storage->address;
}

rps_npu *
rps_npu_storage_device(const rps_npu_storage *storage)
{
    return storage->npu;
}

uint64_t
rps_npu_storage_step(const rps_npu_storage *storage)
{
    return storage->step;
}

uint64_t
rps_npu_dtype_size(enum rps_npu_dtype dtype)
{
    switch (dtype) {
    case RPS_NPU_F32:
    case RPS_NPU_I32:
        return 4;
    case RPS_NPU_BF16:
        return 2;
    case RPS_NPU_F64:
        return 8;
    }
    return 0;
}

rps_status
rps_npu_tensor_check_shape(const char *operation, uint32_t ndim,
        const uint64_t *shape, uint64_t *elements_out)
{
    uint64_t elements = 1;
    bool is_empty = false;

    if (ndim > RPS_NPU_DIMS_MAX) {
        return rps_npu_fail(RPS_E_INVAL,
                "%s: %" PRIu32 " dimensions: a tensor has %u at most",
                operation, ndim, RPS_NPU_DIMS_MAX);
    }
    for (uint32_t i = 0; i < ndim; i++) {
        const uint64_t count = shape[i] > 0 ? shape[i] : 1;

        /* as if a 0 were 1: strides are products of these */
        if (count > RPS_NPU_ELEMENTS_MAX / elements) {
            return rps_npu_fail(RPS_E_INVAL,
                    "%s: dimension %" PRIu32 " is %" PRIu64
                    ": a tensor has at most %" PRIu64 " elements",
                    operation, i, shape[i], RPS_NPU_ELEMENTS_MAX);
        }
        elements *= count;
        is_empty = is_empty || shape[i] == 0;
    }
    *elements_out = is_empty ? 0 : elements;
    return RPS_OK;
}

void
rps_npu_tensor_lay_out(
        rps_npu_tensor *tensor, uint32_t ndim, const uint64_t *shape)
{
    uint64_t stride = 1;

    tensor->ndim = ndim;
    for (uint32_t i = RPS_NPU_DIMS_MAX; i-- > 0;) {
        tensor->shape[i] = i < ndim ? shape[i] : 0;
        tensor->strides[i] = i < ndim ? stride : 0;
        if (i < ndim) {
            stride *= shape[i] > 0 ? shape[i] : 1;
        }
    }
}

static rps_status
make_storage(
        rps_npu_stream *stream, uint64_t bytes, rps_npu_storage **storage_out)
{
    rps_npu_storage *storage = calloc(1, sizeof(*storage));
    const struct rps_pool_private *memory = NULL;
    rps_status status;

    if (storage == NULL) {
        return rps_npu_nomem("create a tensor");
    }
    status = rps_npu_pool_alloc(stream, bytes, &storage->address);
    if (status != RPS_OK) {
        free(storage);
        return status;
    }
    rps_pool_own(rps_npu_stream_device(stream)->pool, storage->address);
    storage->bytes = bytes;
    memory = rps_npu_pool_step_of(stream);
    storage->step = memory != NULL ? rps_pool_private_number(memory) : 0;
    storage->npu = rps_npu_stream_device(stream);
    storage->views = 1;
    storage->stream = stream->number;
    *storage_out = storage;
    return RPS_OK;
}

uint64_t
rps_npu_storage_stream(const rps_npu_storage *storage)
{
    return storage->stream;
}

rps_status
rps_npu_tensor_create(rps_npu_stream *stream, enum rps_npu_dtype dtype,
        uint32_t ndim, const uint64_t *shape, rps_npu_tensor *tensor_out)
{
    rps_npu_tensor tensor = {.dtype = dtype};
    uint64_t elements = 0;
    rps_status status;

    if (tensor_out == NULL) {
        return rps_npu_missing("create a tensor", "tensor_out");
    }
    *tensor_out = (rps_npu_tensor){.storage = NULL};
    if (stream == NULL) {
        return rps_npu_missing("create a tensor", "stream");
    }
    if (shape == NULL && ndim > 0) {
        return rps_npu_missing("create a tensor", "shape");
    }
    if (rps_npu_dtype_size(dtype) == 0) {
        return rps_npu_fail(RPS_E_INVAL,
                "create a tensor: %d is no type of elements", (int)dtype);
    }
    status = rps_npu_tensor_check_shape(
            "create a tensor", ndim, shape, &elements);
    if (status != RPS_OK) {
        return status;
    }
    rps_npu_tensor_lay_out(&tensor, ndim, shape);
    if (elements > 0) {
        status = make_storage(
                stream, elements * rps_npu_dtype_size(dtype), &tensor.storage);
    }
    if (status == RPS_OK) {
        *tensor_out = tensor;
    }
    return status;
}

rps_npu_tensor
rps_npu_tensor_retain(const rps_npu_tensor *tensor)
{
    if (tensor->storage != NULL) {
        /* relaxed: the caller's own view keeps the storage meanwhile */
        atomic_fetch_add_explicit(
                &tensor->storage->views, 1, memory_order_relaxed);
    }
    return *tensor;
}

void
rps_npu_tensor_release(rps_npu_tensor *tensor)
{
    rps_npu_storage *storage = tensor->storage;

    *tensor = (rps_npu_tensor){.storage = NULL};
    if (storage != NULL && atomic_fetch_sub(&storage->views, 1) == 1) {
        rps_pool_free_owned(storage->npu->pool, storage->address);
        rps_npu_pool_show(storage->npu);
        free(storage);
    }
}

void *
rps_npu_tensor_address(const rps_npu_tensor *tensor)
{
    return tensor->storage == NULL
                   ? NULL
                   : (char *)tensor->storage->address + tensor->offset;
}

uint64_t
rps_npu_tensor_elements(const rps_npu_tensor *tensor)
{
    uint64_t elements = tensor->storage == NULL ? 0 : 1;

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        elements *= tensor->shape[i];
    }
    return elements;
}

/* a + n * m, or UINT64_MAX. */
static uint64_t
add_product(uint64_t a, uint64_t n, uint64_t m)
{
    uint64_t product = 0;
    uint64_t sum = 0;

    return __builtin_mul_overflow(n, m, &product) ||
                           __builtin_add_overflow(a, product, &sum)
                   ? UINT64_MAX
                   : sum;
}

uint64_t
rps_npu_tensor_extent(const rps_npu_tensor *tensor)
{
    const uint64_t size = rps_npu_dtype_size(tensor->dtype);
    uint64_t last = 0; /* elements before the last one */

    for (uint32_t i = 0; i < tensor->ndim; i++) {
        if (tensor->shape[i] == 0) {
            return 0;
        }
        last = add_product(last, tensor->shape[i] - 1, tensor->strides[i]);
    }
    return add_product(size, last, size);
}

uint64_t
rps_npu_tensor_left(const rps_npu_tensor *tensor)
{
    const uint64_t has = tensor->storage == NULL ? 0 : tensor->storage->bytes;

    return tensor->offset < has ? has - tensor->offset : 0;
}

rps_status
rps_npu_tensor_check(const char *operation, const rps_npu_tensor *tensor)
{
    uint64_t elements = 0;

    if (tensor == NULL || rps_npu_dtype_size(tensor->dtype) == 0) {
        return rps_npu_fail(RPS_E_INVAL, "%s: this is no tensor", operation);
    }
    if (rps_npu_tensor_check_shape(
                operation, tensor->ndim, tensor->shape, &elements) != RPS_OK) {
        return RPS_E_INVAL;
    }
    if (rps_npu_tensor_extent(tensor) <= rps_npu_tensor_left(tensor)) {
        return RPS_OK;
    }
    return rps_npu_fail(RPS_E_INVAL,
            "%s: the tensor's elements take %" PRIu64 " bytes from offset "
            "%" PRIu64 " and leave its memory, which ends after %" PRIu64,
            operation, rps_npu_tensor_extent(tensor), tensor->offset,
            rps_npu_tensor_left(tensor));
}

/* Strides of dimensions of 1 are never taken. */
bool
rps_npu_tensor_is_contiguous(const rps_npu_tensor *tensor)
{
    uint64_t stride = 1;

    if (rps_npu_tensor_elements(tensor) == 0) {
        return true;
    }
    for (uint32_t i = tensor->ndim; i-- > 0;) {
        if (tensor->shape[i] != 1 && tensor->strides[i] != stride) {
            return false;
        }
        stride *= tensor->shape[i];
    }
    return true;
}

rps_status
rps_npu_tensor_record_stream(
        const rps_npu_tensor *tensor, rps_npu_stream *stream)
{
    return tensor->storage == NULL ? RPS_OK
                                   : rps_npu_pool_record_stream(
                                             tensor->storage->address, stream);
}

/* --- in and out --------------------------------------------------------------
 */

static rps_status
prepare_copy(rps_npu_stream *stream, const char *operation,
        const rps_npu_tensor *tensor)
{
    if (stream == NULL) {
        return rps_npu_fail(RPS_E_INVAL, "%s: no stream is given", operation);
    }
    if (rps_npu_tensor_check(operation, tensor) != RPS_OK) {
        return RPS_E_INVAL;
    }
    return rps_npu_tensor_is_contiguous(tensor)
                   ? rps_npu_keep(stream, operation, tensor, 1)
                   : rps_npu_fail(RPS_E_INVAL,
                             "%s: the tensor is a view that is not "
                             "contiguous: copy it with "
                             "rps_npu_tensor_contiguous() first",
                             operation);
}

static uint64_t
bytes_of(const rps_npu_tensor *tensor)
{
    return rps_npu_tensor_elements(tensor) * rps_npu_dtype_size(tensor->dtype);
}

rps_status
rps_npu_tensor_from_host(
        rps_npu_stream *stream, const rps_npu_tensor *tensor, const void *host)
{
    const rps_status status =
            prepare_copy(stream, "copy a tensor from the host", tensor);

    if (status != RPS_OK || bytes_of(tensor) == 0) {
        return status;
    }
    return rps_npu_copy_async(stream, rps_npu_tensor_address(tensor), host,
            bytes_of(tensor), RPS_NPU_TO_DEVICE);
}

rps_status
rps_npu_tensor_to_host(
        rps_npu_stream *stream, const rps_npu_tensor *tensor, void *host)
{
    const rps_status status =
            prepare_copy(stream, "copy a tensor to the host", tensor);

    if (status != RPS_OK || bytes_of(tensor) == 0) {
        return status;
    }
    return rps_npu_copy_async(stream, host, rps_npu_tensor_address(tensor),
            bytes_of(tensor), RPS_NPU_TO_HOST);
}
