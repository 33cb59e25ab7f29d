/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a profile shows of the device. A span's owner asks for its start before
 * and gives it after; where nobody collects the start is 0, and nothing is
 * given:
 *
 *   start = rps_npu_span_start();
 *   ...
 *   if (start != 0) { rps_npu_span_end(start, span); }
 */
#ifndef RPS_NPU_SPANS_H
#define RPS_NPU_SPANS_H

#include "base/clock.h"
#include "client/profile/profile.h"

/* Where the host's own waits and launches stand. */
#define RPS_NPU_HOST_TRACK "host"

static inline uint64_t
rps_npu_span_start(void)
{
    return rps_profile_is_on() ? rps_clock_ns() : 0;
}

/** From start until now; the rest is the span's. */
static inline void
rps_npu_span_end(uint64_t start, struct rps_profile_span span)
{
    span.start_ns = start;
    span.end_ns = rps_clock_ns();
    rps_profile_add(&span);
}

#endif /* RPS_NPU_SPANS_H */
