/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is kept of an operation so that somebody can watch it: its tensors, and
 * its attributes in words. Kept of each operation that is given while somebody
 * watches, and of all in compiled steps.
 */
#ifndef RPS_NPU_WATCH_IMPL_H
#define RPS_NPU_WATCH_IMPL_H

#include "client/npu/device.h"
#include "client/npu/operation.h"

#include <recps/npu_watch.h>

struct rps_npu_record;

/** Does somebody watch? One relaxed load: who begins to watch gives work
 * after it, and a stream's thread sees it with the work. */
static inline bool
rps_npu_is_watched(const rps_npu *npu)
{
    return atomic_load_explicit(&npu->watched, memory_order_relaxed);
}

/** `name` outlives it. NULL: no memory. */
struct rps_npu_record *rps_npu_record_make(const rps_npu_stream *stream,
        const struct rps_npu_operation *operation, const char *name);
/** NULL is allowed. */
void rps_npu_record_free(struct rps_npu_record *record);

/** Of all its tensors, bf16 as f32. */
uint64_t rps_npu_record_bytes(const struct rps_npu_record *record);

/** Around the kernel, on the stream's thread. */
void *rps_npu_record_before(
        const rps_npu *npu, const struct rps_npu_record *record);
void rps_npu_record_after(
        const rps_npu *npu, const struct rps_npu_record *record, void *token);

#endif /* RPS_NPU_WATCH_IMPL_H */
