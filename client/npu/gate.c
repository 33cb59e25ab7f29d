/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/gate.h"

#include "base/spin.h"
#include "client/npu/pause.h"

/* Whether looking pays is the waiting thread's experience. */
static _Thread_local struct rps_spin patience;
static _Thread_local bool patient;

struct look {
    const struct rps_npu_gate *gate;
    uint64_t value;
};

void
rps_npu_gate_init(struct rps_npu_gate *gate)
{
    atomic_init(&gate->value, 0);
    atomic_init(&gate->waiting, 0);
    pthread_mutex_init(&gate->lock, NULL);
    pthread_cond_init(&gate->risen, NULL);
}

void
rps_npu_gate_finish(struct rps_npu_gate *gate)
{
    pthread_cond_destroy(&gate->risen);
    pthread_mutex_destroy(&gate->lock);
}

/* Either this sees who waits, or who waits sees the value: both store first
 * and load then, in one order for all. */
void
rps_npu_gate_raise(struct rps_npu_gate *gate, uint64_t value)
{
    atomic_store(&gate->value, value);
    if (atomic_load(&gate->waiting) > 0) {
        pthread_mutex_lock(&gate->lock);
        pthread_cond_broadcast(&gate->risen);
        pthread_mutex_unlock(&gate->lock);
    }
}

bool
rps_npu_gate_reached(const struct rps_npu_gate *gate, uint64_t value)
{
    return atomic_load(&gate->value) >= value;
}

static bool
look_once(void *context)
{
    const struct look *look = context;

    rps_npu_relax();
    return rps_npu_gate_reached(look->gate, look->value);
}

void
rps_npu_gate_wait(struct rps_npu_gate *gate, uint64_t value)
{
    struct look look = {.gate = gate, .value = value};

    if (!patient) {
        rps_spin_init(&patience);
        patient = true;
    }
    if (rps_npu_gate_reached(gate, value) ||
            rps_spin(&patience, look_once, &look)) {
        return;
    }
    pthread_mutex_lock(&gate->lock);
    atomic_fetch_add(&gate->waiting, 1);
    while (!rps_npu_gate_reached(gate, value)) {
        pthread_cond_wait(&gate->risen, &gate->lock);
    }
    atomic_fetch_sub(&gate->waiting, 1);
    pthread_mutex_unlock(&gate->lock);
}
