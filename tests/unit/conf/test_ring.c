/* SPDX-License-Identifier: Apache-2.0 */
/* The plan against every order there is, over small forests. */
#include "conf/ring.h"
#include "tests/unit/suite.h"

#include <stdbool.h>
#include <string.h>

#define RANKS_MAX    8
#define HOSTS_MAX    8
#define SWITCHES_MAX 6

struct forest {
    struct rps_ring ring;
    uint32_t host_of[RANKS_MAX];
    uint32_t switch_of[HOSTS_MAX];
    uint32_t parent_of[SWITCHES_MAX];
};

static uint64_t state;

/* 0 .. below - 1; a fixed sequence (Knuth's MMIX constants) */
static uint32_t
draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) +
            UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % below;
}

static void
forest_draw(struct forest *forest, uint32_t ranks)
{
    struct rps_ring *ring = &forest->ring;

    ring->rank_count = ranks;
    ring->host_count = 1 + draw(ranks);
    ring->switch_count = 1 + draw(SWITCHES_MAX);
    ring->host_of = forest->host_of;
    ring->switch_of = forest->switch_of;
    ring->parent_of = forest->parent_of;
    for (uint32_t r = 0; r < ranks; r++) {
        forest->host_of[r] = draw(ring->host_count);
    }
    for (uint32_t h = 0; h < ring->host_count; h++) {
        forest->switch_of[h] = draw(ring->switch_count);
    }
    for (uint32_t s = 0; s < ring->switch_count; s++) {
        /* to lower places only: no cycle; more than one root may come */
        forest->parent_of[s] = s == 0 || draw(4) == 0 ? RPS_RING_NONE : draw(s);
    }
}

static uint64_t
smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* The least of each figure over all orders of places [fixed, count). */
static void
try_all(const struct rps_ring *ring, uint32_t *order, uint32_t fixed,
        struct rps_ring_crossings *least)
{
    if (fixed == ring->rank_count) {
        struct rps_ring_crossings now = rps_ring_count(ring, order);

        least->hosts = smaller(least->hosts, now.hosts);
        least->switches = smaller(least->switches, now.switches);
        least->links = smaller(least->links, now.links);
        return;
    }
    for (uint32_t i = fixed; i < ring->rank_count; i++) {
        uint32_t kept = order[fixed];

        order[fixed] = order[i];
        order[i] = kept;
        try_all(ring, order, fixed + 1, least);
        order[i] = order[fixed];
        order[fixed] = kept;
    }
}

static struct rps_ring_crossings
least_of_all(const struct rps_ring *ring)
{
    struct rps_ring_crossings least = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
    uint32_t order[RANKS_MAX];

    for (uint32_t i = 0; i < ring->rank_count; i++) {
        order[i] = i;
    }
    /* a ring has no first place: rank 0 may stay at it */
    try_all(ring, order, 1, &least);
    return least;
}

static void
assert_permutation(const uint32_t *order, uint32_t count)
{
    bool seen[RANKS_MAX] = {false};

    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_lt(order[i], count);
        ck_assert(!seen[order[i]]);
        seen[order[i]] = true;
    }
}

START_TEST(no_order_crosses_less_than_the_plan)
{
    for (uint32_t n = 0; n < 200; n++) {
        struct rps_ring_crossings want, got;
        struct forest forest;
        uint32_t order[RANKS_MAX];

        state = n;
        forest_draw(&forest, 1 + n % 7);
        want = least_of_all(&forest.ring);
        ck_assert_int_eq(rps_ring_plan(&forest.ring, order, NULL), RPS_OK);
        assert_permutation(order, forest.ring.rank_count);
        ck_assert_uint_eq(order[0], 0);
        got = rps_ring_count(&forest.ring, order);
        ck_assert_uint_eq(got.hosts, want.hosts);
        ck_assert_uint_eq(got.switches, want.switches);
        ck_assert_uint_eq(got.links, want.links);
    }
}
END_TEST

START_TEST(a_best_order_is_left_as_it_is)
{
    /* the ring leaves host 0 between its two ranks, once each way */
    uint32_t host_of[] = {0, 1, 1, 0}, switch_of[] = {0, 0};
    uint32_t parent_of[] = {RPS_RING_NONE}, order[4];
    const struct rps_ring ring = {4, 2, 1, host_of, switch_of, parent_of};

    ck_assert_int_eq(rps_ring_plan(&ring, order, NULL), RPS_OK);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(order[i], i);
    }
}
END_TEST

START_TEST(a_second_plan_changes_nothing)
{
    for (uint32_t n = 0; n < 100; n++) {
        uint32_t order[RANKS_MAX], again[RANKS_MAX], host_of[RANKS_MAX];
        struct forest forest;

        state = 1000 + n;
        forest_draw(&forest, RANKS_MAX);
        ck_assert_int_eq(rps_ring_plan(&forest.ring, order, NULL), RPS_OK);
        for (uint32_t i = 0; i < RANKS_MAX; i++) {
            host_of[i] = forest.host_of[order[i]];
        }
        memcpy(forest.host_of, host_of, sizeof(host_of));
        ck_assert_int_eq(rps_ring_plan(&forest.ring, again, NULL), RPS_OK);
        for (uint32_t i = 0; i < RANKS_MAX; i++) {
            ck_assert_uint_eq(again[i], i);
        }
    }
}
END_TEST

START_TEST(links_are_those_between_two_hosts)
{
    /* 0 above 1 and 2, 2 above 3; host 0 at 1, host 1 at 3, host 2 at 0 */
    uint32_t host_of[] = {0, 1, 2}, switch_of[] = {1, 3, 0};
    uint32_t parent_of[] = {RPS_RING_NONE, 0, 0, 2}, order[] = {0, 1, 2};
    const struct rps_ring ring = {3, 3, 4, host_of, switch_of, parent_of};
    const struct rps_ring_crossings got = rps_ring_count(&ring, order);

    ck_assert_uint_eq(got.hosts, 3);
    ck_assert_uint_eq(got.switches, 3);
    ck_assert_uint_eq(got.links, 5 + 4 + 3);
}
END_TEST

START_TEST(a_cycle_and_too_many_levels_have_no_level)
{
    uint32_t parent_of[RPS_RING_LEVELS_MAX + 1];
    const struct rps_ring ring = {
            .switch_count = RPS_RING_LEVELS_MAX + 1, .parent_of = parent_of};

    parent_of[0] = RPS_RING_NONE;
    for (uint32_t s = 1; s <= RPS_RING_LEVELS_MAX; s++) {
        parent_of[s] = s - 1;
    }
    ck_assert_uint_eq(rps_ring_level(&ring, RPS_RING_NONE), 0);
    ck_assert_uint_eq(rps_ring_level(&ring, RPS_RING_LEVELS_MAX - 1),
            RPS_RING_LEVELS_MAX);
    ck_assert_uint_eq(rps_ring_level(&ring, RPS_RING_LEVELS_MAX), 0);
    parent_of[0] = 1;
    ck_assert_uint_eq(rps_ring_level(&ring, 0), 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("ring");
    TCase *tests = tcase_create("ring");

    tcase_add_test(tests, no_order_crosses_less_than_the_plan);
    tcase_add_test(tests, a_best_order_is_left_as_it_is);
    tcase_add_test(tests, a_second_plan_changes_nothing);
    tcase_add_test(tests, links_are_those_between_two_hosts);
    tcase_add_test(tests, a_cycle_and_too_many_levels_have_no_level);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
