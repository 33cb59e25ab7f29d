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

#define FINDS 64u

/* Line number `at` of a search: its keys are 4 at .. 4 at + 3 more than
 * `first`; row r is that of key first + r - 1. */
static struct rps_index_line
numbered_line(unsigned taken, uint64_t first, size_t at)
{
    struct rps_index_line line = line_of(taken, first + at * RPS_LINE_KEYS);

    for (uint32_t lane = 0; lane < RPS_LINE_KEYS; lane++) {
        if (line.rows[lane] != 0) {
            line.rows[lane] = (uint32_t)(at * RPS_LINE_KEYS) + lane + 1;
        }
    }
    return line;
}

/* Key i is offset `offset` + i of a search of `width` lines, whose places are
 * taken as the bits of i say; one place is the key's at most. */
static void
assert_finds(size_t width, uint64_t first, size_t n, unsigned offset)
{
    static struct rps_index_line lines[FINDS * RPS_LINES_NEXT]
            __attribute__((aligned(64)));
    static const struct rps_index_line *asked[FINDS * RPS_LINES_NEXT];
    static uint64_t keys[FINDS];
    uint32_t rows[FINDS];
    uint64_t missing = 0;

    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < width; j++) {
            lines[i * width + j] = numbered_line(
                    (unsigned)(i + 5 * j + offset) & 15, first, j);
            asked[i * width + j] = &lines[i * width + j];
        }
        keys[i] = first + (offset + i) % (width * RPS_LINE_KEYS + 2);
    }
    missing = fast.find(asked, width, keys, n, rows);
    for (size_t i = 0; i < n; i++) {
        const size_t place = (offset + i) % (width * RPS_LINE_KEYS + 2);
        const size_t j = place / RPS_LINE_KEYS;
        const bool taken = j < width &&
                           ((i + 5 * j + offset) >> place % RPS_LINE_KEYS & 1);
        ck_assert_uint_eq(missing >> i & 1, !taken);
        ck_assert_uint_eq(rows[i], taken ? place + 1 : 0);
    }
    ck_assert(n == 64 || missing >> n == 0);
}

START_TEST(a_row_is_found_in_whichever_line_of_the_search_it_is)
{
    static const uint64_t firsts[] = {
            0, UINT64_MAX - 13, 0xfffffffe, 0x5a5a5a5a5a5a5a5a};

    for (size_t f = 0; f < sizeof(firsts) / sizeof(firsts[0]); f++) {
        for (size_t n = 0; n <= FINDS; n++) {
            for (unsigned offset = 0; offset < 15; offset++) {
                assert_finds(1, firsts[f], n, offset);
                assert_finds(RPS_LINES_NEXT, firsts[f], n, offset);
            }
        }
    }
}
END_TEST

/* A place that was freed keeps its key, and the key may lie behind it. */
START_TEST(what_a_free_place_says_does_not_hide_the_key)
{
    struct rps_index_line line __attribute__((aligned(64))) = line_of(15, 40);
    const struct rps_index_line *asked = &line;
    const uint64_t key = 43;
    uint32_t rows[8] = {0};

    line.keys[0] = 43;
    line.rows[0] = 0;
    ck_assert_uint_eq(fast.find(&asked, 1, &key, 1, rows), 0);
    ck_assert_uint_eq(rows[0], UINT32_MAX - 3);
    line.rows[3] = 0x80000000; /* on the disk */
    ck_assert_uint_eq(fast.find(&asked, 1, &key, 1, rows), 0);
    ck_assert_uint_eq(rows[0], 0x80000000);
}
END_TEST

static Suite *
probe_suite(void)
{
    Suite *suite = suite_create("probe");
    TCase *tc = tcase_create("probe");

    tcase_add_test(
            tc, a_key_is_found_where_its_place_is_taken_and_nowhere_else);
    tcase_add_test(tc, a_row_is_found_in_whichever_line_of_the_search_it_is);
    tcase_add_test(tc, what_a_free_place_says_does_not_hide_the_key);
    suite_add_tcase(suite, tc);
    return suite;
}

int
main(void)
{
    const int skip = kernels_choose();

    return skip != 0 ? skip : run_suite(probe_suite());
}
