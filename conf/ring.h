/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of ranks in a ring, so that neighbours share a host and then a
 * switch. Hosts hang from switches, switches from switches: a forest, whose
 * roots are joined by a network that this file knows nothing of.
 *
 * A hop is a pair of neighbours; the last rank and the first are one, too. A
 * part is a host, all hosts that hang from one switch itself, or a switch with
 * all below it. Where a part holds some of the ranks but not all, the ring
 * leaves it and comes back, so at least 2 hops cross its border. Two parts are
 * apart, or one holds the other: a walk, depth first, lays the ranks of each
 * part side by side, and exactly 2 hops cross each border. The walk thus
 * reaches the lower bound of every border at once, and with it the least of
 * every sum over borders: hops between hosts, hops between switches, links
 * used. No search is needed.
 */
#ifndef RPS_CONF_RING_H
#define RPS_CONF_RING_H

#include "base/error.h"

#include <stdint.h>

#define RPS_RING_LEVELS_MAX 16u /* of switches, one above the other */
#define RPS_RING_NONE       UINT32_MAX

struct rps_ring {
    uint32_t rank_count;
    uint32_t host_count;
    uint32_t switch_count;
    uint32_t *host_of;   /* [rank_count] */
    uint32_t *switch_of; /* [host_count]; to plan, each has one */
    uint32_t *parent_of; /* [switch_count]; NONE: a root */
};

/** Of one order. */
struct rps_ring_crossings {
    uint64_t hosts;    /* hops whose ends are on different hosts */
    uint64_t switches; /* hops whose hosts hang from different switches */
    uint64_t links;    /* links of the forest that all hops use */
};

/** Levels of switches from this one up to its root, itself included; 0: more
 * than RPS_RING_LEVELS_MAX, or a cycle. */
uint32_t rps_ring_level(const struct rps_ring *ring, uint32_t a_switch);

/** Every switch has a level. order: [rank_count], a permutation. */
struct rps_ring_crossings rps_ring_count(
        const struct rps_ring *ring, const uint32_t *order);

/**
 * order_out[place] = rank; at least one rank. It is the order given where it is
 * best already, else the walk, which takes the part with the lowest rank first;
 * rank 0 keeps its place. Errors: NOMEM.
 */
rps_status rps_ring_plan(const struct rps_ring *ring, uint32_t *order_out,
        struct rps_error *error);

#endif /* RPS_CONF_RING_H */
