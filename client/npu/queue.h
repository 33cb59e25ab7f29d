/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An input queue: a ring of `depth` places in device memory, each with a
 * staging place on the host. Its sets, counted since it was created:
 *
 *   taken <= claimed <= ready <= put <= taken + depth
 *
 * put: given to the queue's stream; ready: copied; claimed: promised to an
 * iteration that has begun; taken: copied on, so that their places are free.
 * Set s lies at place s mod depth.
 *
 * Threads: any; functions ending in _sets a launch's.
 */
#ifndef RPS_NPU_QUEUE_H
#define RPS_NPU_QUEUE_H

#include <recps/npu.h>

#include <stdbool.h>
#include <stdint.h>

#define RPS_NPU_QUEUE_PARTS_MAX 64u
#define RPS_NPU_QUEUE_DEPTH_MAX 65536u

/**
 * A launch will take so many. Errors: INVAL: that is more than are expected
 * and not promised yet; `operation` begins the words.
 */
rps_status rps_npu_queue_reserve_sets(
        rps_npu_queue *queue, const char *operation, uint64_t sets);

/** A launch did not take so many. */
void rps_npu_queue_return_sets(rps_npu_queue *queue, uint64_t sets);

/** On a stream's thread: wait until so many are ready, and promise them to an
 * iteration. false: they will not come. */
bool rps_npu_queue_claim_sets(
        rps_npu_stream *stream, rps_npu_queue *queue, uint64_t sets);

/** Claimed, and the iteration does not begin. */
void rps_npu_queue_unclaim_sets(rps_npu_queue *queue, uint64_t sets);

#endif /* RPS_NPU_QUEUE_H */
