/* SPDX-License-Identifier: Apache-2.0 */
#include "conf/ring.h"

#include <stdlib.h>
#include <string.h>

/* root switch … switch, the hosts at it, host, rank */
#define PATH_MAX_STEPS (RPS_RING_LEVELS_MAX + 3u)

/* Lowest ranks of every part. */
struct lowest {
    uint32_t *hosts;    /* [host_count] */
    uint32_t *switches; /* [switch_count]: with all below */
    uint32_t *groups;   /* [switch_count]: hosts at the switch itself */
};

/* A rank's way down from its root: of each part its lowest rank, which no
 * other part at that level below the same parent has. */
struct path {
    uint32_t steps[PATH_MAX_STEPS];
    uint32_t rank;
};

uint32_t
rps_ring_level(const struct rps_ring *ring, uint32_t a_switch)
{
    uint32_t level = 0;

    while (a_switch != RPS_RING_NONE) {
        if (++level > RPS_RING_LEVELS_MAX) {
            return 0;
        }
        a_switch = ring->parent_of[a_switch];
    }
    return level;
}

/* Links between two switches, over their lowest common one, or over the
 * network that joins the roots. */
static uint32_t
switch_links(const struct rps_ring *ring, uint32_t a, uint32_t b)
{
    uint32_t level_a = rps_ring_level(ring, a);
    uint32_t level_b = rps_ring_level(ring, b);
    uint32_t links = 0;

    while (a != b) {
        if (level_a >= level_b) {
            a = ring->parent_of[a];
            level_a--;
        } else {
            b = ring->parent_of[b];
            level_b--;
        }
        links++;
    }
    return links;
}

static void
add_hop(const struct rps_ring *ring, uint32_t a, uint32_t b,
        struct rps_ring_crossings *sum)
{
    const uint32_t host_a = ring->host_of[a];
    const uint32_t host_b = ring->host_of[b];

    if (host_a == host_b) {
        return;
    }
    sum->hosts++;
    sum->switches += ring->switch_of[host_a] != ring->switch_of[host_b];
    sum->links += 2 + switch_links(ring, ring->switch_of[host_a],
                              ring->switch_of[host_b]);
}

struct rps_ring_crossings
rps_ring_count(const struct rps_ring *ring, const uint32_t *order)
{
    struct rps_ring_crossings sum = {0};

    for (uint32_t i = 0; i < ring->rank_count; i++) {
        const uint32_t next = i + 1 < ring->rank_count ? i + 1 : 0;

        add_hop(ring, order[i], order[next], &sum);
    }
    return sum;
}

static void
lower(uint32_t *lowest, uint32_t rank)
{
    if (rank < *lowest) {
        *lowest = rank;
    }
}

static void
find_lowest(const struct rps_ring *ring, const struct lowest *lowest)
{
    for (uint32_t rank = 0; rank < ring->rank_count; rank++) {
        lower(&lowest->hosts[ring->host_of[rank]], rank);
    }
    for (uint32_t host = 0; host < ring->host_count; host++) {
        uint32_t at = ring->switch_of[host];

        lower(&lowest->groups[at], lowest->hosts[host]);
        while (at != RPS_RING_NONE) {
            lower(&lowest->switches[at], lowest->hosts[host]);
            at = ring->parent_of[at];
        }
    }
}

static void
fill_path(const struct rps_ring *ring, const struct lowest *lowest,
        uint32_t rank, struct path *path)
{
    const uint32_t host = ring->host_of[rank];
    uint32_t at = ring->switch_of[host];
    uint32_t step = rps_ring_level(ring, at);

    path->rank = rank;
    path->steps[step] = lowest->groups[at];
    path->steps[step + 1] = lowest->hosts[host];
    path->steps[step + 2] = rank;
    while (at != RPS_RING_NONE) {
        path->steps[--step] = lowest->switches[at];
        at = ring->parent_of[at];
    }
}

/* Two paths part before either ends: at the latest at the ranks. */
static int
by_path(const void *left, const void *right)
{
    const struct path *a = left;
    const struct path *b = right;

    for (uint32_t i = 0; i < PATH_MAX_STEPS; i++) {
        if (a->steps[i] != b->steps[i]) {
            return a->steps[i] < b->steps[i] ? -1 : 1;
        }
    }
    return 0;
}

static void
walk(const struct rps_ring *ring, const struct lowest *lowest,
        struct path *paths, uint32_t *order_out)
{
    find_lowest(ring, lowest);
    for (uint32_t rank = 0; rank < ring->rank_count; rank++) {
        fill_path(ring, lowest, rank, &paths[rank]);
    }
    qsort(paths, ring->rank_count, sizeof(*paths), by_path);
    for (uint32_t i = 0; i < ring->rank_count; i++) {
        order_out[i] = paths[i].rank;
    }
}

/* The walk is best in all three; is the order as given? */
static void
keep_given(const struct rps_ring *ring, uint32_t *order, uint32_t *given)
{
    struct rps_ring_crossings least = rps_ring_count(ring, order);
    struct rps_ring_crossings now;

    for (uint32_t i = 0; i < ring->rank_count; i++) {
        given[i] = i;
    }
    now = rps_ring_count(ring, given);
    if (now.hosts == least.hosts && now.switches == least.switches &&
            now.links == least.links) {
        memcpy(order, given, ring->rank_count * sizeof(*order));
    }
}

rps_status
rps_ring_plan(const struct rps_ring *ring, uint32_t *order_out,
        struct rps_error *error)
{
    const size_t parts = ring->host_count + 2 * (size_t)ring->switch_count;
    uint32_t *ranks = malloc((parts + ring->rank_count) * sizeof(*ranks));
    struct path *paths = calloc(ring->rank_count, sizeof(*paths));
    rps_status status = RPS_OK;

    if (ranks == NULL || paths == NULL) {
        status = rps_fail(error, RPS_E_NOMEM, "no memory for the plan");
    } else {
        const struct lowest lowest = {.hosts = ranks,
                .switches = ranks + ring->host_count,
                .groups = ranks + ring->host_count + ring->switch_count};

        memset(ranks, 0xff, parts * sizeof(*ranks));
        walk(ring, &lowest, paths, order_out);
        keep_given(ring, order_out, ranks + parts);
    }
    free(ranks);
    free(paths);
    return status;
}
