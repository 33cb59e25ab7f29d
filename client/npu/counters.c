/* SPDX-License-Identifier: Apache-2.0 */
#include "client/npu/counters.h"

#include "base/clock.h"
#include "client/npu/device.h"

void
rps_npu_tally_init(struct rps_npu_tally *tally)
{
    *tally = (struct rps_npu_tally){0};
    pthread_mutex_init(&tally->lock, NULL);
}

void
rps_npu_tally_finish(struct rps_npu_tally *tally)
{
    pthread_mutex_destroy(&tally->lock);
}

/* Relaxed, here and below: no other memory is read by a counter's value. */
void
rps_npu_tally_add(
        struct rps_npu_tally *tally, enum rps_npu_count count, uint64_t more)
{
    atomic_fetch_add_explicit(
            &tally->counts[count], more, memory_order_relaxed);
}

static uint64_t
count_of(const struct rps_npu_tally *tally, unsigned count)
{
    return atomic_load_explicit(&tally->counts[count], memory_order_relaxed);
}

void
rps_npu_tally_most(
        struct rps_npu_tally *tally, enum rps_npu_count count, uint64_t value)
{
    uint64_t most = count_of(tally, count);

    while (value > most && !atomic_compare_exchange_weak(
                                   &tally->counts[count], &most, value)) {
    }
}

void
rps_npu_tally_busy(struct rps_npu_tally *tally)
{
    pthread_mutex_lock(&tally->lock);
    if (tally->busy++ == 0) {
        tally->busy_from = rps_clock_ns();
    }
    pthread_mutex_unlock(&tally->lock);
}

/* busy_from goes first: who reads between the two misses a little, and never
 * counts a time twice. */
void
rps_npu_tally_idle(struct rps_npu_tally *tally)
{
    pthread_mutex_lock(&tally->lock);
    if (--tally->busy == 0) {
        const uint64_t from = tally->busy_from;

        tally->busy_from = 0;
        tally->busy_ns += rps_clock_ns() - from;
    }
    pthread_mutex_unlock(&tally->lock);
}

uint64_t
rps_npu_tally_busy_ns(const struct rps_npu_tally *tally)
{
    const uint64_t whole = tally->busy_ns;
    const uint64_t from = tally->busy_from;
    const uint64_t now = rps_clock_ns();

    return whole + (from != 0 && from < now ? now - from : 0);
}

void
rps_npu_read_counters(const rps_npu *npu, rps_npu_counters *counters)
{
    const struct rps_npu_tally *tally = &npu->tally;
    const unsigned copies = RPS_NPU_COPIES;
    const unsigned bytes = RPS_NPU_COPIED_BYTES;

    *counters = (rps_npu_counters){
            .launches = count_of(tally, RPS_NPU_LAUNCHES),
            .steps = count_of(tally, RPS_NPU_STEPS),
            .captures = count_of(tally, RPS_NPU_CAPTURES),
            .operations = count_of(tally, RPS_NPU_OPERATIONS),
            .copies_to_device = count_of(tally, copies + RPS_NPU_TO_DEVICE),
            .copies_to_host = count_of(tally, copies + RPS_NPU_TO_HOST),
            .copies_on_device = count_of(tally, copies + RPS_NPU_ON_DEVICE),
            .bytes_to_device = count_of(tally, bytes + RPS_NPU_TO_DEVICE),
            .bytes_to_host = count_of(tally, bytes + RPS_NPU_TO_HOST),
            .queue_copies = count_of(tally, RPS_NPU_QUEUE_COPIES),
            .queue_depth_max = count_of(tally, RPS_NPU_QUEUE_DEPTH),
            .busy_ns = rps_npu_tally_busy_ns(tally),
    };
}
