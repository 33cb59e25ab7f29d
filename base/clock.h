/* SPDX-License-Identifier: Apache-2.0 */
#ifndef RPS_BASE_CLOCK_H
#define RPS_BASE_CLOCK_H

#include <stdint.h>

/** Monotonic nanoseconds; only differences mean something. */
uint64_t rps_clock_ns(void);

/** Monotonic milliseconds. */
uint64_t rps_clock_ms(void);

/** Seconds since 1970, UTC: the wall clock, which may jump. */
uint64_t rps_clock_unix_s(void);

/** Microseconds of the same clock. */
uint64_t rps_clock_unix_us(void);

/** A number that differs from process to process: incarnations, client ids. */
uint64_t rps_random_id(void);

#endif /* RPS_BASE_CLOCK_H */
