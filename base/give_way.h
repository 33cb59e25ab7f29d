/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For threads that work behind others, on CPUs that may all be in use. The
 * system lets who computes go on until the next tick of its timer, some
 * milliseconds, though somebody that is more urgent has become ready on the
 * same CPU: such a thread gives it away itself, many times between two ticks.
 */
#ifndef RPS_BASE_GIVE_WAY_H
#define RPS_BASE_GIVE_WAY_H

#include <stdint.h>

/**
 * Let others run who wait for this CPU, where that is due: after 0.1 ms of
 * work; after half the time that the others took, if that is longer, so that
 * the work gets a third of a CPU that others would use up. Nobody waits: less
 * than a microsecond.
 *
 * Threads: any; call it often, with no lock held, for who has one may be
 *          waited for by others.
 */
void rps_give_way(void);

/** The same rule. When is it due again, for one who gave way from `start_ns`
 * to `end_ns`? */
uint64_t rps_give_way_next(uint64_t start_ns, uint64_t end_ns);

#endif /* RPS_BASE_GIVE_WAY_H */
