/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe of the set that RPS_ISA names, on every kind of line, against
 * what the layout of a line says.
 */
#include "tests/kernel/kernels.h"

#define LINES 64u

/* Line i: bit l of `taken`: place l is; its key is first + l. */
static struct rps_index_line
line_of(unsigned taken, uint64_t first)
{
    struct rps_index_line line;

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        line.keys[lane] = first + lane; /* of a free place too: it is stale */
        line.rows[lane] = (taken >> lane & 1) != 0 ? UINT32_MAX - lane : 0;
        line.meta[lane] = UINT32_MAX;
    }
    return line;
}

static uint8_t
wanted_lane(unsigned taken, uint64_t first, uint64_t key)
{
    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        if ((taken >> lane & 1) != 0 && first + lane == key) {
            return (uint8_t)lane;
        }
    }
    return taken == 15 ? RPS_LANE_BEYOND : RPS_LANE_ABSENT;
}

/* All 16 ways to fill a line, and each of its keys or a foreign one. */
START_TEST(a_key_is_found_where_its_place_is_taken_and_nowhere_else)
{
    static const uint64_t firsts[] = {0, 1, UINT64_MAX - 3,
            (uint64_t)INT64_MAX - 1, 0xffffffff, 0x5a5a5a5a5a5a5a5a};
    struct rps_index_line lines[LINES] __attribute__((aligned(64)));
    const struct rps_index_line *asked[LINES];
    uint64_t keys[LINES];
    uint8_t lanes[LINES];

    for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
        for (unsigned offset = 0; offset < 5; offset++) {
            const size_t n = 16 + f; /* not always a multiple of four */
            for (size_t i = 0; i < n; i++) {
                lines[i] = line_of((unsigned)i & 15, firsts[f]);
                asked[i] = &lines[i];
                keys[i] = firsts[f] + offset; /* 4: of another line */
            }
            memset(lanes, 0xff, sizeof(lanes));
            fast.probe(asked, keys, n, lanes);
            for (size_t i = 0; i < n; i++) {
                ck_assert_uint_eq(lanes[i],
                        wanted_lane((unsigned)i & 15, firsts[f], keys[i]));
            }
            ck_assert_uint_eq(lanes[n], 0xff);
        }
    }
}
END_TEST

static Suite *
probe_suite(void)
{
    Suite *suite = suite_create("probe");
    TCase *tc = tcase_create("probe");

    tcase_add_test(
            tc, a_key_is_found_where_its_place_is_taken_and_nowhere_else);
    suite_add_tcase(suite, tc);
    return suite;
}

int
main(void)
{
    const int skip = kernels_choose();

    return skip != 0 ? skip : run_suite(probe_suite());
}
