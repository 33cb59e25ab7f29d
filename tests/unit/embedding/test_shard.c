/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of room: what was promised is there when it is wanted, whatever
 * others store meanwhile and however little memory is left.
 */
#include "base/hash.h"
#include "embedding/index_grow.h"
#include "embedding/shard.h"
#include "tests/unit/suite.h"

#include <stdlib.h>

#define ROW_BYTES 8u
#define LARGE     4000u /* keys of a push, in one shard */

struct shard_fixture {
    struct rps_budget budget;
    struct rps_arena lines;
    struct rps_arena cells;
    struct rps_shard shard;
    uint64_t next_key;
};

static void
start(struct shard_fixture *f)
{
    rps_budget_init(&f->budget, NULL, 0);
    ck_assert(rps_arena_init(&f->lines, &f->budget, NULL));
    ck_assert(rps_arena_init(&f->cells, &f->budget, NULL));
    ck_assert_int_eq(
            rps_shard_init(&f->shard, &f->lines, &f->cells, ROW_BYTES, 0, 0),
            RPS_OK);
    f->next_key = 0;
}

static void
finish(struct shard_fixture *f)
{
    rps_shard_finish(&f->shard);
    rps_arena_finish(&f->lines);
    rps_arena_finish(&f->cells);
}

static rps_status
create(struct shard_fixture *f, uint64_t key, bool promised)
{
    struct rps_index_place place;

    return rps_shard_create_row_locked(
            &f->shard, rps_key_hash(key, 0), key, promised, &place);
}

static void
fill(struct shard_fixture *f, uint64_t count)
{
    for (uint64_t end = f->next_key + count; f->next_key < end; f->next_key++) {
        ck_assert_int_eq(create(f, f->next_key, false), RPS_OK);
    }
}

/* Of keys that are not stored; the caller frees it. */
static uint64_t *
hashes_of(uint64_t first, size_t n)
{
    uint64_t *hashes = malloc(n * sizeof(*hashes));

    ck_assert_ptr_nonnull(hashes);
    for (size_t i = 0; i < n; i++) {
        hashes[i] = rps_key_hash(first + i, 0);
    }
    return hashes;
}

static void
check_invariant(const struct shard_fixture *f)
{
    const struct rps_index *index = &f->shard.index;
    uint64_t sum = f->shard.anywhere;

    for (uint32_t i = 0; i < RPS_INDEX_PARTS; i++) {
        sum += f->shard.promised[i];
    }
    ck_assert_uint_eq(sum, f->shard.reserved);
    for (uint32_t i = 0; i < index->segment_count; i++) {
        const struct rps_segment *segment = &index->segments[i];
        ck_assert_uint_ge(rps_segment_free(segment),
                rps_shard_kept_locked(&f->shard, segment));
    }
}

START_TEST(a_large_push_is_promised_its_rows)
{
    const uint64_t first = (uint64_t)1 << 40;
    uint64_t *hashes = hashes_of(first, LARGE);
    struct shard_fixture f;

    start(&f);
    fill(&f, 600000);
    ck_assert_uint_eq(f.shard.index.shallow, 0);
    ck_assert(rps_shard_promise_locked(&f.shard, LARGE, hashes));
    check_invariant(&f);
    fill(&f, 50000); /* another push's; segments grow and split */
    check_invariant(&f);
    atomic_store(&f.budget.limit, 1); /* no byte more */
    while (create(&f, f.next_key, false) == RPS_OK) {
        f.next_key++;
    }
    check_invariant(&f);
    for (uint64_t i = 0; i < LARGE; i++) {
        ck_assert_int_eq(create(&f, first + i, true), RPS_OK);
    }
    ck_assert_uint_eq(f.shard.reserved, 0);
    check_invariant(&f);
    for (uint64_t i = 0; i < LARGE; i++) {
        ck_assert_uint_ne(
                rps_index_find(&f.shard.index, hashes[i], first + i).row, 0);
    }
    finish(&f);
    free(hashes);
}
END_TEST

START_TEST(what_is_promised_to_a_part_leaves_the_others_alone)
{
    struct shard_fixture f;
    uint64_t same[3000]; /* hashes of one part */

    start(&f);
    fill(&f, 400000);
    for (uint64_t i = 0; i < 3000; i++) {
        same[i] = (uint64_t)5 << 58 | rps_key_hash(i, 0) >> 6;
    }
    /* the keys of a part may be those of one segment: not obvious */
    ck_assert(!rps_shard_promise_locked(&f.shard, 3000, same));
    ck_assert_uint_eq(f.shard.reserved, 0);
    check_invariant(&f);
    ck_assert(rps_shard_promise_locked(&f.shard, 50, same));
    ck_assert_uint_eq(f.shard.promised[5], 50);
    ck_assert(rps_shard_promise_locked(
            &f.shard, 1, (const uint64_t[]){(uint64_t)6 << 58}));
    check_invariant(&f);
    rps_shard_release_locked(&f.shard, (uint64_t)6 << 58);
    for (size_t i = 0; i < 50; i++) {
        rps_shard_release_locked(&f.shard, same[i]);
    }
    ck_assert_uint_eq(f.shard.reserved, 0);
    check_invariant(&f);
    finish(&f);
}
END_TEST

START_TEST(a_small_shard_promises_what_its_few_segments_have)
{
    struct shard_fixture f;

    for (uint64_t rows = 0; rows < 6000; rows += 500) {
        uint64_t *hashes = hashes_of((uint64_t)1 << 40, 400);
        size_t n = 0;

        start(&f);
        fill(&f, rows);
        while (n < 400 && rps_shard_promise_locked(&f.shard, 1, &hashes[n])) {
            check_invariant(&f);
            n++;
        }
        ck_assert_uint_gt(n, 0);
        ck_assert_uint_eq(f.shard.reserved, n);
        atomic_store(&f.budget.limit, 1);
        for (uint64_t i = 0; i < n; i++) {
            ck_assert_int_eq(create(&f, ((uint64_t)1 << 40) + i, true), RPS_OK);
        }
        ck_assert_uint_eq(f.shard.reserved, 0);
        finish(&f);
        free(hashes);
    }
}
END_TEST

/* The free places of the segment that has the fewest. */
static uint32_t
least_free(const struct shard_fixture *f)
{
    uint32_t least = UINT32_MAX;

    for (uint32_t i = 0; i < f->shard.index.segment_count; i++) {
        const uint32_t free_places =
                rps_segment_free(&f->shard.index.segments[i]);
        least = free_places < least ? free_places : least;
    }
    return least;
}

/* As many keys of one hash's neighbourhood as any segment has room for. */
START_TEST(what_is_promised_anywhere_may_fall_into_one_segment)
{
    struct shard_fixture f;
    uint32_t least = 0;

    start(&f);
    fill(&f, 400000);
    least = least_free(&f);
    ck_assert(!rps_shard_promise_anywhere_locked(&f.shard, least + 1));
    ck_assert_uint_eq(f.shard.reserved, 0);
    ck_assert(rps_shard_promise_anywhere_locked(&f.shard, least));
    ck_assert(!rps_shard_promise_anywhere_locked(&f.shard, 1));
    check_invariant(&f);
    fill(&f, 50000); /* another push's; segments grow and split */
    check_invariant(&f);
    atomic_store(&f.budget.limit, 1); /* no byte more */
    while (create(&f, f.next_key, false) == RPS_OK) {
        f.next_key++;
    }
    check_invariant(&f);
    for (uint64_t key = (uint64_t)1 << 40, n = 0; n < least; key++) {
        const uint64_t hash = rps_key_hash(key, 0);
        if (hash >> 58 == 5) { /* all of one part */
            rps_shard_settle_locked(&f.shard, hash);
            check_invariant(&f);
            ck_assert_int_eq(create(&f, key, true), RPS_OK);
            n++;
        }
    }
    ck_assert_uint_eq(f.shard.reserved, 0);
    ck_assert_uint_eq(f.shard.anywhere, 0);
    check_invariant(&f);
    finish(&f);
}
END_TEST

/* What one call was promised anywhere is kept from what another one is
 * promised by its keys. */
START_TEST(promises_of_both_kinds_add_up)
{
    struct shard_fixture f;
    uint64_t same[3000]; /* hashes of one part */
    size_t alone = 0;
    size_t beside = 0;

    start(&f);
    fill(&f, 400000);
    for (uint64_t i = 0; i < 3000; i++) {
        same[i] = (uint64_t)5 << 58 | rps_key_hash(i, 0) >> 6;
    }
    while (rps_shard_promise_locked(&f.shard, 1, &same[alone])) {
        alone++;
    }
    for (size_t i = 0; i < alone; i++) {
        rps_shard_release_locked(&f.shard, same[i]);
    }
    ck_assert(rps_shard_promise_anywhere_locked(&f.shard, 40));
    while (rps_shard_promise_locked(&f.shard, 1, &same[beside])) {
        check_invariant(&f);
        beside++;
    }
    ck_assert_uint_eq(beside, alone - 40);
    rps_shard_release_anywhere_locked(&f.shard, 40);
    for (size_t i = 0; i < beside; i++) {
        rps_shard_release_locked(&f.shard, same[i]);
    }
    ck_assert_uint_eq(f.shard.reserved, 0);
    check_invariant(&f);
    finish(&f);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("shard");
    TCase *tc = tcase_create("shard");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, a_large_push_is_promised_its_rows);
    tcase_add_test(tc, what_is_promised_to_a_part_leaves_the_others_alone);
    tcase_add_test(tc, a_small_shard_promises_what_its_few_segments_have);
    tcase_add_test(tc, what_is_promised_anywhere_may_fall_into_one_segment);
    tcase_add_test(tc, promises_of_both_kinds_add_up);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
