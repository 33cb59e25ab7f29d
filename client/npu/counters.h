/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a device has done, counted where it is done (rps_npu_counters of
 * npu.h). All are relaxed: each is a number of its own, read for show.
 *
 * Threads: any.
 */
#ifndef RPS_NPU_COUNTERS_H
#define RPS_NPU_COUNTERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

enum rps_npu_count {
    RPS_NPU_LAUNCHES = 0,
    RPS_NPU_STEPS,
    RPS_NPU_CAPTURES,
    RPS_NPU_OPERATIONS,
    RPS_NPU_COPIES,                            /* + enum rps_npu_copy */
    RPS_NPU_COPIED_BYTES = RPS_NPU_COPIES + 3, /* + enum rps_npu_copy */
    RPS_NPU_QUEUE_COPIES = RPS_NPU_COPIED_BYTES + 3,
    RPS_NPU_QUEUE_DEPTH, /* the most */
    RPS_NPU_COUNTS
};

struct rps_npu_tally {
    _Atomic uint64_t counts[RPS_NPU_COUNTS];
    pthread_mutex_t lock;
    uint32_t busy;              /* lock; streams with a kernel or a copy */
    _Atomic uint64_t busy_ns;   /* written under lock; until busy_since */
    _Atomic uint64_t busy_from; /* written under lock; 0: none is busy */
};

void rps_npu_tally_init(struct rps_npu_tally *tally);
void rps_npu_tally_finish(struct rps_npu_tally *tally);

void rps_npu_tally_add(
        struct rps_npu_tally *tally, enum rps_npu_count count, uint64_t more);

/** The largest value that was ever given. */
void rps_npu_tally_most(
        struct rps_npu_tally *tally, enum rps_npu_count count, uint64_t value);

/** A stream begins or ends to have kernels and copies. */
void rps_npu_tally_busy(struct rps_npu_tally *tally);
void rps_npu_tally_idle(struct rps_npu_tally *tally);

uint64_t rps_npu_tally_busy_ns(const struct rps_npu_tally *tally);

#endif /* RPS_NPU_COUNTERS_H */
