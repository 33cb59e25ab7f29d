/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors in a device's memory: counted storages (a block of the pool) and
 * views on them (shape, strides, type). A view is a small value that its owner
 * keeps; each holds its storage, and the block returns to the pool with the
 * last one. Slices and transposes copy nothing.
 *
 * Threads and errors as npu.h.
 */
#ifndef RPS_NPU_TENSOR_H
#define RPS_NPU_TENSOR_H

#include <recps/npu.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RPS_NPU_DIMS_MAX 4u

enum rps_npu_dtype {
    RPS_NPU_F32 = 0,
    RPS_NPU_BF16 = 1,
    RPS_NPU_I32 = 2,
    RPS_NPU_F64 = 3
};

typedef struct rps_npu_storage rps_npu_storage;

/**
 * A view. A zeroed one is no tensor, and may be released.
 *
 * Element (i, j, …) is at storage's address + offset + (i strides[0] +
 * j strides[1] + …) * size of dtype. Whoever fills in a view may not leave
 * the storage: calls that read or write elements refuse one that does (INVAL).
 */
typedef struct rps_npu_tensor {
    rps_npu_storage *storage;
    uint64_t offset; /**< bytes */
    enum rps_npu_dtype dtype;
    uint32_t ndim;
    uint64_t shape[RPS_NPU_DIMS_MAX];
    uint64_t strides[RPS_NPU_DIMS_MAX]; /**< elements; 0 repeats (expand) */
} rps_npu_tensor;

/**
 * A contiguous tensor of new memory for work on `stream`, contents
 * unspecified. A shape with a 0 has no elements and no memory.
 *
 * Owns:    *tensor_out is released by rps_npu_tensor_release().
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_create(rps_npu_stream *stream,
        enum rps_npu_dtype dtype, uint32_t ndim, const uint64_t *shape,
        rps_npu_tensor *tensor_out);

/**
 * One more view of the same; released like any.
 *
 * Threads: any.
 */
RPS_API rps_npu_tensor rps_npu_tensor_retain(const rps_npu_tensor *tensor);

/**
 * Zeroes *tensor.
 *
 * Threads: any.
 */
RPS_API void rps_npu_tensor_release(rps_npu_tensor *tensor);

/**
 * Its first element's address; NULL where there is no memory.
 *
 * Threads: any.
 */
RPS_API void *rps_npu_tensor_address(const rps_npu_tensor *tensor);

/**
 * How many elements it has: the product of its shape.
 *
 * Threads: any.
 */
RPS_API uint64_t rps_npu_tensor_elements(const rps_npu_tensor *tensor);

/**
 * How large an element is.
 *
 * Units:   bytes.
 * Threads: any.
 */
RPS_API uint64_t rps_npu_dtype_size(enum rps_npu_dtype dtype);

/**
 * Do its elements lie side by side, last dimension fastest?
 *
 * Threads: any.
 */
RPS_API bool rps_npu_tensor_is_contiguous(const rps_npu_tensor *tensor);

/**
 * Another stream's work uses it (rps_npu_pool_record_stream).
 *
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_record_stream(
        const rps_npu_tensor *tensor, rps_npu_stream *stream);

/* --- views: *view_out is released like any; nothing is copied ------------- */

/**
 * Elements [first, first + count) of a dimension.
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_slice(
        const rps_npu_tensor *tensor, uint32_t dim, uint64_t first,
        uint64_t count, rps_npu_tensor *view_out);

/**
 * Two dimensions change places.
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_transpose(
        const rps_npu_tensor *tensor, uint32_t a, uint32_t b,
        rps_npu_tensor *view_out);

/**
 * Another shape of as many elements.
 *
 * Threads: any.
 * Errors:  INVAL (not contiguous).
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_reshape(
        const rps_npu_tensor *tensor, uint32_t ndim, const uint64_t *shape,
        rps_npu_tensor *view_out);

/**
 * Dimensions of 1 become larger ones, with stride 0.
 *
 * Threads: any.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_expand(
        const rps_npu_tensor *tensor, uint32_t ndim, const uint64_t *shape,
        rps_npu_tensor *view_out);

/**
 * The tensor itself where it is contiguous (one more view), else a copy of it,
 * made on `stream` and counted in profiles as "contiguous".
 *
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_contiguous(
        rps_npu_stream *stream, const rps_npu_tensor *tensor,
        rps_npu_tensor *tensor_out);

/* --- in and out ----------------------------------------------------------- */

/**
 * Copy on a stream.
 *
 * Shapes:  host[elements], tensor contiguous.
 * Owns:    borrows both until done.
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_from_host(
        rps_npu_stream *stream, const rps_npu_tensor *tensor, const void *host);

/**
 * The other way.
 *
 * Threads: one at a time a stream.
 * Errors:  the usual.
 */
RPS_API RPS_NODISCARD rps_status rps_npu_tensor_to_host(
        rps_npu_stream *stream, const rps_npu_tensor *tensor, void *host);

#ifdef __cplusplus
}
#endif

#endif /* RPS_NPU_TENSOR_H */
