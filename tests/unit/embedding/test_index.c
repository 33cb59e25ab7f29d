/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The index of one shard against a plain list of what was stored: it grows,
 * splits, shrinks and forgets, and never loses a key or finds a wrong one.
 */
#include "base/hash.h"
#include "embedding/index.h"
#include "embedding/index_grow.h"
#include "tests/unit/suite.h"

#include <stdlib.h>
#include <string.h>

#define JOB_SEED 7u
#define SKIP     18u /* slot and shard: the hashes below share them not */

struct index_fixture {
    struct rps_budget budget;
    struct rps_arena arena;
    struct rps_index index;
};

static void
start(struct index_fixture *f)
{
    rps_budget_init(&f->budget, NULL, 0);
    ck_assert(rps_arena_init(&f->arena, &f->budget, NULL));
    ck_assert_int_eq(
            rps_index_init(&f->index, &f->arena, JOB_SEED, SKIP), RPS_OK);
}

static void
finish(struct index_fixture *f)
{
    rps_index_finish(&f->index);
    rps_arena_finish(&f->arena);
    ck_assert_uint_eq(atomic_load(&f->budget.used), 0);
}

static rps_status
insert(struct index_fixture *f, uint64_t key, uint32_t row)
{
    struct rps_index_place place;
    const rps_status status = rps_index_insert(
            &f->index, rps_key_hash(key, JOB_SEED), key, row, 0, &place);

    if (status == RPS_OK) {
        place.line->meta[place.lane] = ~row;
    }
    return status;
}

static struct rps_index_place
find(const struct index_fixture *f, uint64_t key)
{
    return rps_index_find(&f->index, rps_key_hash(key, JOB_SEED), key);
}

static void
check_stored(const struct index_fixture *f, uint64_t key, uint32_t row)
{
    const struct rps_index_place place = find(f, key);

    if (place.row != row || place.line->meta[place.lane] != ~row) {
        ck_abort_msg("key %llu has row %u, not %u", (unsigned long long)key,
                place.row, row);
    }
}

static void
check_free_min(const struct index_fixture *f, const struct rps_segment *segment)
{
    const struct rps_index_parts parts = rps_segment_parts(segment);

    for (uint32_t i = 0; i < parts.count; i++) {
        ck_assert_uint_le(
                f->index.free_min[parts.first + i], rps_segment_free(segment));
    }
}

static void
check_segments(const struct index_fixture *f)
{
    uint32_t shallow = 0;
    uint64_t count = 0;
    uint64_t lines = 0;

    for (uint32_t i = 0; i < f->index.segment_count; i++) {
        const struct rps_segment *segment = &f->index.segments[i];
        count += segment->count;
        lines += segment->line_count;
        check_free_min(f, segment);
        shallow += rps_segment_parts(segment).count > 1;
        ck_assert_uint_lt(segment->count, segment->line_count * RPS_LINE_KEYS);
    }
    ck_assert_uint_eq(shallow, f->index.shallow);
    ck_assert_uint_eq(count, f->index.count);
    ck_assert_uint_eq(lines, f->index.line_count);
}

START_TEST(every_key_is_found_while_the_index_grows_and_splits)
{
    struct index_fixture f;
    const uint32_t count = 300000;

    start(&f);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(find(&f, i).row, 0);
        ck_assert_int_eq(insert(&f, i, i + 1), RPS_OK);
    }
    check_segments(&f);
    ck_assert_uint_gt(f.index.segment_count, 64);
    for (uint32_t i = 0; i < count; i++) {
        check_stored(&f, i, i + 1);
        ck_assert_uint_eq(find(&f, i + (uint64_t)count).row, 0);
    }
    /* 16 bytes a place, at least 4/5 of 59/64 full, less whole pages */
    ck_assert_uint_le(rps_index_line_bytes(&f.index), count * (uint64_t)24);
    finish(&f);
}
END_TEST

START_TEST(special_keys_are_keys_like_any_other)
{
    static const uint64_t keys[] = {0, 1, UINT64_MAX, UINT64_MAX - 1,
            UINT64_MAX - 2, (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1};
    const uint32_t count = sizeof(keys) / sizeof(keys[0]);
    struct index_fixture f;

    start(&f);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(find(&f, keys[i]).row, 0);
    }
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < count; i++) {
            ck_assert_int_eq(insert(&f, keys[i], i + 1), RPS_OK);
        }
        for (uint32_t i = 0; i < count; i++) {
            check_stored(&f, keys[i], i + 1);
        }
        for (uint32_t i = 0; i < count; i++) {
            rps_index_remove(&f.index, find(&f, keys[i]));
            ck_assert_uint_eq(find(&f, keys[i]).row, 0);
        }
    }
    finish(&f);
}
END_TEST

#define POOL 4000u

/* A small pool, so that lines fill, overflow and empty many times. */
START_TEST(storing_and_forgetting_at_random_agrees_with_a_list)
{
    struct index_fixture f;
    uint32_t *rows = calloc(POOL, sizeof(*rows));
    uint32_t next = 1;

    ck_assert_ptr_nonnull(rows);
    start(&f);
    for (uint64_t turn = 0; turn < 400000; turn++) {
        const uint64_t draw = rps_mix64(turn + (uint64_t)_i * 1000003);
        const uint64_t key = draw % POOL;
        /* tides: mostly storing, then mostly forgetting */
        const bool stores =
                draw >> 32 & 3 ? turn / 50000 % 2 == 0 : turn / 50000 % 2 != 0;
        if (stores && rows[key] == 0) {
            ck_assert_int_eq(insert(&f, key, next), RPS_OK);
            rows[key] = next++;
        } else if (!stores && rows[key] != 0) {
            check_stored(&f, key, rows[key]);
            rps_index_remove(&f.index, find(&f, key));
            rows[key] = 0;
        }
        if (turn % 5000 == 0) {
            rps_index_shrink(&f.index,
                    rps_index_segment(&f.index, rps_key_hash(key, JOB_SEED)),
                    0);
            check_segments(&f);
            for (uint64_t k = 0; k < POOL; k++) {
                if (rows[k] != 0) {
                    check_stored(&f, k, rows[k]);
                } else {
                    ck_assert_uint_eq(find(&f, k).row, 0);
                }
            }
        }
    }
    finish(&f);
    free(rows);
}
END_TEST

START_TEST(without_memory_places_are_used_up_to_the_last_but_one)
{
    struct index_fixture f;
    uint32_t count = 0;

    start(&f);
    for (; count < 50000; count++) {
        ck_assert_int_eq(insert(&f, count, count + 1), RPS_OK);
    }
    atomic_store(&f.budget.limit, 1); /* nothing more */
    while (insert(&f, count, count + 1) == RPS_OK) {
        count++;
    }
    ck_assert_uint_eq(find(&f, count).row, 0);
    for (uint32_t i = 0; i < count; i++) {
        check_stored(&f, i, i + 1);
    }
    check_segments(&f);
    atomic_store(&f.budget.limit, 0);
    ck_assert_int_eq(insert(&f, count, count + 1), RPS_OK);
    finish(&f);
}
END_TEST

START_TEST(places_that_are_promised_stay_free)
{
    struct index_fixture f;
    const uint64_t kept = 40;

    start(&f);
    for (uint32_t i = 0; i < 20000; i++) {
        struct rps_index_place place;
        ck_assert_int_eq(rps_index_insert(&f.index, rps_key_hash(i, JOB_SEED),
                                 i, i + 1, kept, &place),
                RPS_OK);
        ck_assert_uint_ge(rps_segment_free(rps_index_segment(
                                  &f.index, rps_key_hash(i, JOB_SEED))),
                kept);
    }
    for (uint32_t part = 0; part < RPS_INDEX_PARTS; part++) {
        ck_assert(rps_index_has_free(&f.index, part, kept));
        ck_assert(!rps_index_has_free(&f.index, part, 1u << 30));
    }
    finish(&f);
}
END_TEST

START_TEST(segments_follow_each_other_through_all_hashes)
{
    struct index_fixture f;
    uint64_t hash = 0;
    uint64_t count = 0;
    uint32_t segments = 0;

    start(&f);
    for (uint32_t i = 0; i < 100000; i++) {
        ck_assert_int_eq(insert(&f, i, i + 1), RPS_OK);
    }
    do {
        const struct rps_segment *segment = rps_index_segment(&f.index, hash);
        const uint64_t end = rps_index_segment_end(&f.index, segment);
        ck_assert(end == 0 || end > hash);
        count += segment->count;
        segments++;
        hash = end;
    } while (hash != 0);
    ck_assert_uint_eq(segments, f.index.segment_count);
    ck_assert_uint_eq(count, f.index.count);
    finish(&f);
}
END_TEST

/* The home line of a key, and how many of its keys are at home there. */
static bool
is_full_of_its_own(const struct rps_segment *segment, uint64_t hash)
{
    const uint64_t home = rps_index_home_line(hash, segment->line_count);
    const struct rps_index_line *line = &segment->lines[home];

    for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
        if (line->rows[lane] == 0 ||
                rps_index_home_line(rps_key_hash(line->keys[lane], JOB_SEED),
                        segment->line_count) != home) {
            return false;
        }
    }
    return true;
}

START_TEST(after_growth_a_key_is_at_home_where_its_line_has_room_for_it)
{
    struct index_fixture f;
    const uint32_t count = 20000;
    uint64_t before = 0;
    uint64_t away = 0;

    start(&f);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(insert(&f, i, i + 1), RPS_OK);
    }
    for (uint32_t s = 0; s < f.index.segment_count; s++) {
        before += f.index.segments[s].line_count;
    }
    /* every segment's last growth is now */
    for (uint32_t i = 0; i < f.index.segment_count; i++) {
        ck_assert_int_eq(
                rps_index_grow(&f.index,
                        (uint64_t)f.index.segments[i].first
                                << (64 - SKIP - f.index.segments[i].depth),
                        0),
                RPS_OK);
    }
    ck_assert_uint_gt(f.index.line_count, before);
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t hash = rps_key_hash(i, JOB_SEED);
        const struct rps_segment *segment = rps_index_segment(&f.index, hash);
        check_stored(&f, i, i + 1);
        if (find(&f, i).line != &segment->lines[rps_index_home_line(
                                        hash, segment->line_count)]) {
            ck_assert(is_full_of_its_own(segment, hash));
            away++;
        }
    }
    ck_assert_uint_gt(away, 0);
    finish(&f);
}
END_TEST

/* The row of a key, found as lookups do: at home, in the next lines, behind
 * them. *stage_out: where it ended, 0 .. 2. */
static uint32_t
find_in_stages(const struct index_fixture *f, uint64_t key, unsigned *stage_out)
{
    const uint64_t hash = rps_key_hash(key, JOB_SEED);
    struct rps_index_line *lines[1 + RPS_LINES_NEXT];
    struct rps_index_place place;

    rps_index_homes(&f->index, 1, &hash, lines);
    rps_index_next_lines(&f->index, hash, lines[0], lines + 1);
    for (unsigned i = 0; i < 1 + RPS_LINES_NEXT; i++) {
        *stage_out = i > 0;
        for (unsigned lane = 0; lane < RPS_LINE_KEYS; lane++) {
            if (lines[i]->keys[lane] == key && lines[i]->rows[lane] != 0) {
                return lines[i]->rows[lane];
            }
        }
        if (!rps_index_line_is_full(lines[i])) {
            return 0;
        }
    }
    *stage_out = 2;
    place = rps_index_find_far(&f->index, hash, key, lines[RPS_LINES_NEXT]);
    return place.row;
}

START_TEST(a_search_in_stages_finds_what_a_search_finds)
{
    struct index_fixture f;
    const uint32_t count = 60000;
    uint32_t ends[3] = {0};
    uint32_t wrong = 0;

    start(&f);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(insert(&f, i, i + 1), RPS_OK);
    }
    for (uint32_t i = 0; i < count; i += 3) {
        rps_index_remove(&f.index, find(&f, i));
    }
    for (uint32_t i = 0; i < 2 * count; i++) {
        unsigned stage = 0;
        const bool there = i < count && i % 3 != 0;
        wrong += find_in_stages(&f, i, &stage) != (there ? i + 1 : 0);
        ends[stage]++;
    }
    ck_assert_uint_eq(wrong, 0);
    for (unsigned stage = 0; stage < 3; stage++) {
        ck_assert_uint_gt(ends[stage], 100);
    }
    finish(&f);
}
END_TEST

/* A reader that was told where a key is not, and then sees another version,
 * begins again: without that it would miss a key that was pulled back. */
START_TEST(the_version_changes_whenever_a_key_moves)
{
    struct index_fixture f;
    struct rps_index_place *places = calloc(POOL, sizeof(*places));
    uint64_t moved = 0;

    ck_assert_ptr_nonnull(places);
    start(&f);
    for (uint32_t i = 0; i < POOL; i++) {
        ck_assert_int_eq(insert(&f, i, i + 1), RPS_OK);
    }
    for (uint32_t gone = 0; gone < POOL; gone += 7) {
        const uint64_t version = rps_index_version(&f.index);
        bool same = true;
        for (uint32_t i = gone + 1; i < POOL; i++) {
            places[i] = find(&f, i);
        }
        rps_index_remove(&f.index, find(&f, gone));
        for (uint32_t i = gone + 1; i < POOL; i++) {
            const struct rps_index_place now = find(&f, i);
            same &= i % 7 == 0 ||
                    (now.line == places[i].line && now.lane == places[i].lane);
        }
        if (!same) {
            moved++;
            ck_assert_uint_ne(rps_index_version(&f.index), version);
        }
    }
    ck_assert_uint_gt(moved, 0);
    finish(&f);
    free(places);
}
END_TEST

static void
check_all_stored(const struct index_fixture *f, uint32_t count)
{
    check_segments(f);
    for (uint32_t i = 0; i < count; i++) {
        check_stored(f, i, i + 1);
    }
    ck_assert_uint_eq(f->index.count, count);
}

START_TEST(an_index_that_expects_its_keys_does_not_grow)
{
    const uint32_t count = 200000;
    struct index_fixture f;
    uint64_t version = 0;
    uint64_t places = 0;

    start(&f);
    ck_assert(rps_index_expect(&f.index, count));
    version = rps_index_version(&f.index);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(insert(&f, i, i + 1), RPS_OK);
    }
    ck_assert_uint_eq(rps_index_version(&f.index), version);
    check_all_stored(&f, count);
    /* 59/64 of it are 9/8 to 5/4 of the keys; and whole pages */
    places = f.index.line_count * RPS_LINE_KEYS;
    ck_assert_uint_ge(places * 59 / 64, (uint64_t)count * 9 / 8);
    ck_assert_uint_le(places * 59 / 64, (uint64_t)count * 13 / 10);
    finish(&f);
}
END_TEST

/* Fewer come than were expected, and then more; keys are there already. */
START_TEST(an_index_may_expect_anything)
{
    struct index_fixture f;
    uint32_t count = 0;

    start(&f);
    for (; count < 3000; count++) {
        ck_assert_int_eq(insert(&f, count, count + 1), RPS_OK);
    }
    ck_assert(rps_index_expect(&f.index, 0));
    ck_assert(rps_index_expect(&f.index, 40000));
    check_all_stored(&f, count);
    for (; count < 90000; count++) {
        ck_assert_int_eq(insert(&f, count, count + 1), RPS_OK);
    }
    check_all_stored(&f, count);
    atomic_store(&f.budget.limit, 1); /* nothing more */
    ck_assert(!rps_index_expect(&f.index, (uint64_t)1 << 40));
    check_all_stored(&f, count);
    ck_assert_int_eq(insert(&f, count, count + 1), RPS_OK);
    check_all_stored(&f, count + 1);
    finish(&f);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("index");
    TCase *tc = tcase_create("index");

    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, every_key_is_found_while_the_index_grows_and_splits);
    tcase_add_test(tc, special_keys_are_keys_like_any_other);
    tcase_add_loop_test(
            tc, storing_and_forgetting_at_random_agrees_with_a_list, 0, 4);
    tcase_add_test(tc, without_memory_places_are_used_up_to_the_last_but_one);
    tcase_add_test(tc, places_that_are_promised_stay_free);
    tcase_add_test(tc, segments_follow_each_other_through_all_hashes);
    tcase_add_test(
            tc, after_growth_a_key_is_at_home_where_its_line_has_room_for_it);
    tcase_add_test(tc, a_search_in_stages_finds_what_a_search_finds);
    tcase_add_test(tc, the_version_changes_whenever_a_key_moves);
    tcase_add_test(tc, an_index_that_expects_its_keys_does_not_grow);
    tcase_add_test(tc, an_index_may_expect_anything);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
