/* SPDX-License-Identifier: Apache-2.0 */
/* What every copy does, also that of an input queue. */
#ifndef RPS_NPU_COPY_H
#define RPS_NPU_COPY_H

#include "client/npu/device.h"

/** Count a copy and take its link. Returns when it will be done
 * (rps_npu_pause_until). On a stream's thread. */
uint64_t rps_npu_copy_begin(
        rps_npu *npu, enum rps_npu_copy way, uint64_t bytes);

#endif /* RPS_NPU_COPY_H */
