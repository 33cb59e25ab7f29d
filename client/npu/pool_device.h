/* SPDX-License-Identifier: Apache-2.0 */
/* A device's pool: the caching pool (pool.h) on the device's memory and
 * streams. */
#ifndef RPS_NPU_POOL_DEVICE_H
#define RPS_NPU_POOL_DEVICE_H

#include "client/npu/pool.h"

/** The device's memory and its lock are there. Errors: NOMEM, with words
 * (rps_npu_error). */
rps_status rps_npu_pool_open(rps_npu *npu);

/** The device has no streams any more. */
void rps_npu_pool_close(rps_npu *npu);

#endif /* RPS_NPU_POOL_DEVICE_H */
