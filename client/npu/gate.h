/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A number that rises, and threads that wait until it has: what a stream has
 * done, marks of events, edges of a compiled step.
 *
 * Raising costs one store where nobody waits. Who waits looks for a moment
 * (base/spin.h), then sleeps.
 *
 * Threads: any; but values are raised by one thread at a time.
 */
#ifndef RPS_NPU_GATE_H
#define RPS_NPU_GATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct rps_npu_gate {
    _Atomic uint64_t value;
    _Atomic uint32_t waiting; /* threads that sleep, or are about to */
    pthread_mutex_t lock;     /* of sleeping and waking alone */
    pthread_cond_t risen;
};

void rps_npu_gate_init(struct rps_npu_gate *gate);

/** Nobody waits any more. */
void rps_npu_gate_finish(struct rps_npu_gate *gate);

/** value >= the former one. */
void rps_npu_gate_raise(struct rps_npu_gate *gate, uint64_t value);

bool rps_npu_gate_reached(const struct rps_npu_gate *gate, uint64_t value);

void rps_npu_gate_wait(struct rps_npu_gate *gate, uint64_t value);

#endif /* RPS_NPU_GATE_H */
