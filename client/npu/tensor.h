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

/** For work on which stream it was made: its number (stream.h). */
uint64_t rps_npu_storage_stream(const rps_npu_storage *storage);

/** This shape, contiguous. */
void rps_npu_tensor_lay_out(
        rps_npu_tensor *tensor, uint32_t ndim, const uint64_t *shape);

#endif /* RPS_NPU_TENSOR_IMPL_H */
