/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waiting as long as a simulated latency lasts: asleep, with a timer slack of
 * 1 ns, but for the last 80 microseconds, which are looked away. (A sleep on
 * a virtual machine wakes 50 to 70 microseconds late.)
 */
#ifndef RPS_NPU_PAUSE_H
#define RPS_NPU_PAUSE_H

#include <stdint.h>

/** Until then (base/clock.h); at once if that is past. */
void rps_npu_pause_until(uint64_t ns);

/** About half a microsecond of looking, kind to the other hyperthread. */
void rps_npu_relax(void);

#endif /* RPS_NPU_PAUSE_H */
