/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a pool stands on, without a device: memory is a range of numbers, a
 * stream two counters, and work is done when a test says so.
 *
 * Threads: any.
 */
#ifndef RPS_TESTS_UNIT_NPU_FAKE_DEVICE_H
#define RPS_TESTS_UNIT_NPU_FAKE_DEVICE_H

#include "client/npu/pool.h"

#include <pthread.h>
#include <stdatomic.h>

#define MIB               UINT64_C(1048576)
#define FAKE_BASE         (UINT64_C(1) << 40) /* the first address */
#define FAKE_SEGMENTS_MAX 1024

struct rps_npu_stream {
    const char *name;
    _Atomic uint64_t given; /* tasks; done <= given */
    _Atomic uint64_t done;
    _Atomic bool captures;
    /* in a capture: the place of `other` that its next task stands behind */
    rps_npu_stream *other;
    uint64_t known;
};

struct fake_segment {
    uint64_t address;
    uint64_t bytes;
};

struct fake_device {
    pthread_mutex_t lock;
    uint64_t capacity;
    struct fake_segment segments[FAKE_SEGMENTS_MAX]; /* by address */
    size_t count;
    uint64_t taken; /* bytes */
    uint64_t takes; /* calls that were answered */
    uint64_t waits;
    /* giving memory back waits for these; set before start */
    rps_npu_stream *streams;
    size_t stream_count;
};

void fake_device_init(struct fake_device *device, uint64_t capacity);
void fake_device_finish(struct fake_device *device);

struct rps_npu_pool *fake_pool_create(struct fake_device *device);

/** Its first `number` tasks are done. */
void fake_stream_reach(rps_npu_stream *stream, uint64_t number);

/** One more task; _finish does all that were given. */
void fake_stream_give(rps_npu_stream *stream);
void fake_stream_finish(rps_npu_stream *stream);

/** Of the pool, checked: its address. */
void *fake_alloc(
        struct rps_npu_pool *pool, rps_npu_stream *stream, uint64_t bytes);
void fake_free(struct rps_npu_pool *pool, void *address);
void fake_record(
        struct rps_npu_pool *pool, void *address, rps_npu_stream *stream);
void fake_record_place(struct rps_npu_pool *pool, void *address,
        rps_npu_stream *stream, uint64_t place);
rps_npu_pool_stats fake_stats(struct rps_npu_pool *pool);

#endif /* RPS_TESTS_UNIT_NPU_FAKE_DEVICE_H */
