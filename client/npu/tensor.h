/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of tensors share. */
#ifndef RPS_NPU_TENSOR_IMPL_H
#define RPS_NPU_TENSOR_IMPL_H

#include <recps/npu_tensor.h>

/** Sizes in bytes, and products of them with 8, do not overflow. */
#define RPS_NPU_ELEMENTS_MAX (UINT64_C(1) << 44)

/** The start of its block. */
void *rps_npu_storage_address(const rps_npu_storage *storage);

rps_npu *rps_npu_storage_device(const rps_npu_storage *storage);

/** The number of the step whose memory it is (pool.h); 0: no step's. */
uint64_t rps_npu_storage_step(const rps_npu_storage *storage);

/** `operation` begins the words. Errors: INVAL (too many dimensions or
 * elements). */
rps_status rps_npu_tensor_check_shape(const char *operation, uint32_t ndim,
        const uint64_t *shape, uint64_t *elements_out);

/** From its first element to the end of its last one, in bytes; 0 without
 * elements, UINT64_MAX where that does not fit. */
uint64_t rps_npu_tensor_extent(const rps_npu_tensor *tensor);

/** The bytes from its first element to the end of its storage. */
uint64_t rps_npu_tensor_left(const rps_npu_tensor *tensor);

/** Do all its elements lie in its storage? `operation` begins the words.
 * Errors: INVAL. */
rps_status rps_npu_tensor_check(
        const char *operation, const rps_npu_tensor *tensor);

/** For work on which stream it was made: its number (stream.h). */
uint64_t rps_npu_storage_stream(const rps_npu_storage *storage);

/** This shape, contiguous. */
void rps_npu_tensor_lay_out(
        rps_npu_tensor *tensor, uint32_t ndim, const uint64_t *shape);

#endif /* RPS_NPU_TENSOR_IMPL_H */
