/* SPDX-License-Identifier: Apache-2.0 */
/* A device's pool: the caching pool (pool.h) on the device's memory and
 * streams. */
#ifndef RPS_NPU_POOL_DEVICE_H
#define RPS_NPU_POOL_DEVICE_H

#include "client/npu/pool.h"

/** The device's memory and its lock are there. Errors: NOMEM, with words
 * (rps_npu_error). */
rps_status rps_npu_pool_open(rps_npu *npu);

/** rps_npu_pool_alloc() of this step's memory (NULL: of no step's). */
rps_status rps_npu_pool_take(rps_npu_stream *stream,
        struct rps_pool_private *memory, uint64_t bytes, void **address_out);

/** Of which step's memory what the stream asks for is; NULL: of no step's. */
struct rps_pool_private *rps_npu_pool_step_of(const rps_npu_stream *stream);

/** A tensor's block is used on the stream by the task that it is given next
 * (rps_npu_pool_record_stream() is for any, from now on). */
rps_status rps_npu_pool_note_use(void *address, rps_npu_stream *stream);

/** Where a profile is collected: the pool's allocated, active and reserved
 * bytes now. Shown when blocks are given and taken back; by a launch, since a
 * step asks for nothing. */
void rps_npu_pool_show(rps_npu *npu);

/** The device has no streams any more. */
void rps_npu_pool_close(rps_npu *npu);

#endif /* RPS_NPU_POOL_DEVICE_H */
