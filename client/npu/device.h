/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device: what its parts share. Memory, links and counters have guards of
 * their own; the rest is set before start.
 */
#ifndef RPS_NPU_DEVICE_H
#define RPS_NPU_DEVICE_H

#include "client/npu/counters.h"
#include "client/npu/link.h"
#include "client/npu/memory.h"

#include <recps/npu_watch.h>

#include <stdatomic.h>

struct rps_npu_capture;
struct rps_npu_pool;

struct rps_npu {
    uint32_t id;
    rps_npu_options options;
    struct rps_npu_memory memory;
    struct rps_npu_pool *pool; /* set before start; pool.h */
    /* by enum rps_npu_copy: a direction each, shared by all streams */
    struct rps_npu_link links[2];
    struct rps_npu_tally tally;
    rps_npu_watcher watcher; /* set while no stream has work */
    _Atomic bool watched;    /* it is one; watch.h */
    pthread_mutex_t lock;
    struct rps_npu_stream *streams;   /* lock; a list */
    uint32_t streams_made;            /* lock */
    struct rps_npu_capture *captures; /* lock; open ones, a list */
    pthread_mutex_t launch_lock; /* held while a launch enters its streams */
};

/** The open device that has this address, or NULL. */
bool rps_npu_is_any_device_address(const void *address);

/**
 * Is [address, + bytes) in one allocation of this device? `operation` and
 * `side` begin the words: "copy to device: to".
 *
 * Errors: INVAL, with words.
 */
rps_status rps_npu_check_range(rps_npu *npu, const char *operation,
        const char *side, const void *address, uint64_t bytes);

/** What was taken of the memory, for the pool or not, after all work that is
 * given. false: it was not. */
bool rps_npu_give_back(rps_npu *npu, void *address, bool pooled);

/** A host call gives work to the device: counts it, and takes as long as the
 * simulated latency of a launch. `type`: static; of its span in a profile. */
void rps_npu_launch_pause(rps_npu *npu, const char *type);

#endif /* RPS_NPU_DEVICE_H */
