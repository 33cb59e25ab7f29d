/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To look a little longer before one sleeps. A thread that sleeps and is woken
 * loses some microseconds and costs its peer a system call; one that looks in
 * vain loses what it looked. So it looks as long as looking has paid lately,
 * and tries anew now and then; not where it shares its one CPU with its peer.
 */
#ifndef RPS_BASE_SPIN_H
#define RPS_BASE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define RPS_SPIN_NS 50000u /* about what a sleep and a wake cost together */

struct rps_spin {
    uint32_t credit;  /* looks that may fail before it stops */
    uint32_t skipped; /* since it stopped */
    bool alone;       /* one CPU: never */
};

void rps_spin_init(struct rps_spin *spin);

/** Call `look`, which takes about a microsecond, for a while; true as soon as
 * it is. */
bool rps_spin(
        struct rps_spin *spin, bool (*look)(void *context), void *context);

#endif /* RPS_BASE_SPIN_H */
