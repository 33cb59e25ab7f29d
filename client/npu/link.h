/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of the simulated link to the host. Copies go over it one
 * after the other: one that comes while it is taken waits. Its latency is the
 * copy's own and keeps nobody else.
 *
 *   begin = max(now + latency, end of the copy before)
 *   end   = begin + bytes / bandwidth
 *
 * Threads: any.
 */
#ifndef RPS_NPU_LINK_H
#define RPS_NPU_LINK_H

#include <pthread.h>
#include <stdint.h>

struct rps_npu_link {
    uint64_t bytes_per_second; /* set before start; 0: no bound */
    uint64_t latency_ns;       /* set before start */
    pthread_mutex_t lock;
    uint64_t free_ns; /* lock; when it is free again */
};

void rps_npu_link_init(struct rps_npu_link *link, uint64_t bytes_per_second,
        uint64_t latency_ns);
void rps_npu_link_finish(struct rps_npu_link *link);

/** Take the link for a copy of `bytes`. Returns when the copy will be done
 * (base/clock.h), 0: nothing is simulated. */
uint64_t rps_npu_link_take(struct rps_npu_link *link, uint64_t bytes);

#endif /* RPS_NPU_LINK_H */
