/* SPDX-License-Identifier: Apache-2.0 */
/* Do two views share an element? */
#ifndef RPS_NPU_OVERLAP_H
#define RPS_NPU_OVERLAP_H

#include <recps/npu_tensor.h>

/** The same elements at the same places: shape, strides, offset, type. */
bool rps_npu_tensor_is_same(const rps_npu_tensor *a, const rps_npu_tensor *b);

/**
 * false: they have no byte in common. Slices of one wider tensor that lie
 * between each other (columns of a concat) are told apart; of views of other
 * strides true may mean that they are only interleaved.
 */
bool rps_npu_tensor_overlaps(const rps_npu_tensor *a, const rps_npu_tensor *b);

#endif /* RPS_NPU_OVERLAP_H */
