/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of keys without a row: each key's own, and the sketch. */
#include "embedding/counts.h"
#include "embedding/sketch.h"
#include "embedding/table.h"
#include "tests/unit/suite.h"

#include <string.h>

static const uint64_t odd_keys[] = {0, 1, UINT64_MAX, UINT64_MAX - 1,
        (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1};

#define ODD_KEYS (sizeof(odd_keys) / sizeof(odd_keys[0]))

static uint32_t
add(struct rps_counts *counts, uint64_t key, uint64_t n)
{
    return rps_counts_add(counts, rps_key_hash(key, 0), key, n);
}

static uint32_t
get(const struct rps_counts *counts, uint64_t key)
{
    return rps_counts_get(counts, rps_key_hash(key, 0), key);
}

static uint32_t
take(struct rps_counts *counts, uint64_t key)
{
    return rps_counts_take(counts, rps_key_hash(key, 0), key);
}

static struct rps_sketch *
sketch_of(struct rps_budget *budget)
{
    struct rps_sketch *sketch = NULL;

    ck_assert_int_eq(rps_sketch_create(&sketch, budget), RPS_OK);
    return sketch;
}

START_TEST(every_key_can_be_counted_and_forgotten)
{
    struct rps_counts counts;

    rps_counts_init(&counts, 0, NULL);
    for (size_t round = 1; round <= 2; round++) {
        for (size_t i = 0; i < ODD_KEYS; i++) {
            ck_assert_uint_eq(get(&counts, odd_keys[i]), 0);
            ck_assert_uint_eq(add(&counts, odd_keys[i], 1), 1);
            ck_assert_uint_eq(add(&counts, odd_keys[i], 1 + i), 2 + i);
        }
        for (size_t i = 0; i < ODD_KEYS; i++) {
            ck_assert_uint_eq(take(&counts, odd_keys[i]), 2 + i);
            ck_assert_uint_eq(take(&counts, odd_keys[i]), 0);
        }
    }
    ck_assert_uint_eq(counts.used, 0);
    rps_counts_finish(&counts);
}
END_TEST

START_TEST(a_count_stops_at_65535)
{
    struct rps_counts counts;

    rps_counts_init(&counts, 0, NULL);
    ck_assert_uint_eq(add(&counts, 5, 65534), 65534);
    ck_assert_uint_eq(add(&counts, 5, 1), 65535);
    ck_assert_uint_eq(add(&counts, 5, 1), 65535);
    ck_assert_uint_eq(add(&counts, 5, UINT64_MAX), 65535);
    ck_assert_uint_eq(add(&counts, 6, UINT64_MAX), 65535);
    ck_assert_uint_eq(get(&counts, 6), 65535);
    rps_counts_finish(&counts);
}
END_TEST

/* Against an array indexed by key, with keys that come and go. */
START_TEST(counts_are_right_while_keys_come_and_go)
{
    enum {
        KEYS = 5000,
        ROUNDS = 100000
    };
    static uint32_t model[KEYS];
    struct rps_counts counts;
    uint64_t random = 7;

    rps_counts_init(&counts, 0, NULL);
    memset(model, 0, sizeof(model));
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t key = 0;
        random = rps_mix64(random);
        key = (random >> 8) % KEYS;
        if (random % 3 == 0) {
            ck_assert_uint_eq(take(&counts, key), model[key]);
            model[key] = 0;
        } else {
            model[key]++;
            ck_assert_uint_eq(add(&counts, key, 1), model[key]);
        }
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        ck_assert_uint_eq(get(&counts, key), model[key]);
    }
    rps_counts_finish(&counts);
}
END_TEST

START_TEST(a_round_of_ageing_halves_every_count_once)
{
    struct rps_counts counts;

    rps_counts_init(&counts, 0, NULL);
    for (uint64_t key = 0; key < 3000; key++) {
        add(&counts, key, 1 + key % 9);
    }
    while (!rps_counts_age(&counts, 100)) {
        for (uint64_t key = 1; key < 3000; key += 9) { /* those of 2 */
            ck_assert_uint_ge(get(&counts, key), 1);
        }
    }
    for (uint64_t key = 0; key < 3000; key++) {
        ck_assert_uint_eq(get(&counts, key), (1 + key % 9) / 2);
    }
    rps_counts_finish(&counts);
}
END_TEST

START_TEST(memory_stays_within_the_shards_limit)
{
    const uint64_t most = RPS_COUNTS_PLACES_MAX * 10;
    struct rps_counts counts;
    bool within = true;

    rps_counts_init(&counts, 0, NULL);
    for (uint64_t key = 0; key < RPS_COUNTS_PLACES_MAX * 3; key++) {
        add(&counts, key, 1);
        within = within && rps_counts_bytes(&counts) <= most;
    }
    ck_assert(within);
    ck_assert_uint_eq(counts.places, RPS_COUNTS_PLACES_MAX);
    /* what is pushed often outlives the flood */
    for (uint64_t key = 0; key < RPS_COUNTS_PLACES_MAX * 3; key++) {
        add(&counts, UINT64_MAX, 1);
        add(&counts, key ^ (uint64_t)1 << 40, 1);
    }
    ck_assert_uint_gt(get(&counts, UINT64_MAX), 1000);
    rps_counts_finish(&counts);
}
END_TEST

START_TEST(without_budget_old_counts_make_room_for_new_ones)
{
    struct rps_budget budget;
    struct rps_counts counts;

    rps_budget_init(&budget, NULL, 4096);
    rps_counts_init(&counts, 0, &budget);
    for (uint64_t key = 0; key < 10000; key++) {
        ck_assert_uint_eq(add(&counts, key, 1), 1);
        ck_assert_uint_eq(budget.used, rps_counts_bytes(&counts));
        ck_assert_uint_le(budget.used, 4096);
    }
    ck_assert_uint_gt(counts.used, 10);
    rps_counts_finish(&counts);
    ck_assert_uint_eq(budget.used, 0);
}
END_TEST

START_TEST(a_trim_gives_memory_back)
{
    struct rps_counts counts;
    uint64_t full = 0;

    rps_counts_init(&counts, 0, NULL);
    for (uint64_t key = 0; key < 50000; key++) {
        add(&counts, key, 1 + (key < 10));
    }
    full = rps_counts_bytes(&counts);
    while (!rps_counts_age(&counts, 4096)) {
    }
    rps_counts_trim(&counts);
    ck_assert_uint_lt(rps_counts_bytes(&counts), full / 100);
    for (uint64_t key = 0; key < 10; key++) {
        ck_assert_uint_eq(get(&counts, key), 1);
    }
    while (!rps_counts_age(&counts, 4096)) {
    }
    rps_counts_trim(&counts);
    ck_assert_uint_eq(rps_counts_bytes(&counts), 0);
    rps_counts_finish(&counts);
}
END_TEST

START_TEST(a_sketch_never_counts_too_little)
{
    enum {
        KEYS = 100000 /* 24 a slot: no slot ages */
    };
    struct rps_sketch *sketch = sketch_of(NULL);
    size_t exact = 0;

    ck_assert_ptr_nonnull(sketch);
    for (uint64_t key = 0; key < KEYS; key++) {
        const uint64_t hash = rps_key_hash(key, 0);
        for (uint64_t n = 0; n <= key % 4; n++) {
            ck_assert_uint_ge(rps_sketch_add(sketch, hash, 1), n + 1);
        }
    }
    for (uint64_t key = 0; key < KEYS; key++) {
        const uint32_t count = rps_sketch_get(sketch, rps_key_hash(key, 0));
        ck_assert_uint_ge(count, key % 4 + 1);
        exact += count == key % 4 + 1;
    }
    ck_assert_uint_gt(exact, KEYS * 99 / 100);
    rps_sketch_destroy(sketch);
}
END_TEST

/* Keys of one slot, found by trying. */
static void
keys_of_slot(uint32_t slot, size_t n, uint64_t *hashes)
{
    for (uint64_t key = 0; n > 0; key++) {
        const uint64_t hash = rps_key_hash(key, 0);
        if (rps_hash_slot(hash) == slot) {
            hashes[--n] = hash;
        }
    }
}

START_TEST(a_slots_sketch_ages_after_2048_newcomers)
{
    enum {
        KEYS = 3000
    };
    static uint64_t hashes[KEYS];
    struct rps_sketch *sketch = sketch_of(NULL);
    size_t known = 0;

    ck_assert_ptr_nonnull(sketch);
    keys_of_slot(77, KEYS, hashes);
    ck_assert_uint_eq(rps_sketch_add(sketch, hashes[0], 200), 200);
    for (size_t i = 1; i < 2048; i++) {
        known += rps_sketch_add(sketch, hashes[i], 1) != 1;
    }
    ck_assert_uint_eq(rps_sketch_get(sketch, hashes[0]), 200);
    ck_assert_uint_lt(known, 2048 * 6 / 100); /* 4 % is expected */
    for (size_t i = 2048; i < KEYS; i++) {
        rps_sketch_add(sketch, hashes[i], 1);
    }
    ck_assert_uint_eq(rps_sketch_get(sketch, hashes[0]), 100);
    rps_sketch_destroy(sketch);
}
END_TEST

START_TEST(a_sketch_stops_at_255_and_fades_to_nothing)
{
    const uint64_t hash = rps_key_hash(1, 0);
    struct rps_sketch *sketch = sketch_of(NULL);
    uint64_t empty = 0;

    ck_assert_ptr_nonnull(sketch);
    empty = rps_sketch_bytes(sketch);
    ck_assert_uint_eq(rps_sketch_add(sketch, hash, 254), 254);
    ck_assert_uint_eq(rps_sketch_add(sketch, hash, 1), 255);
    ck_assert_uint_eq(rps_sketch_add(sketch, hash, UINT64_MAX), 255);
    ck_assert_uint_gt(rps_sketch_bytes(sketch), empty);
    for (uint32_t left = 127; left > 0; left /= 2) {
        rps_sketch_age(sketch, rps_hash_slot(hash));
        ck_assert_uint_eq(rps_sketch_get(sketch, hash), left);
    }
    rps_sketch_age(sketch, rps_hash_slot(hash));
    ck_assert_uint_eq(rps_sketch_bytes(sketch), empty);
    rps_sketch_destroy(sketch);
}
END_TEST

struct copy {
    struct rps_sketch *to;
    size_t cells;
};

static rps_status
copy_cell(void *context, uint64_t id, uint8_t count)
{
    struct copy *copy = context;

    copy->cells++;
    return rps_sketch_set_cell(copy->to, id, count) ? RPS_OK : RPS_E_NOMEM;
}

START_TEST(a_sketch_that_is_visited_and_set_again_is_the_same)
{
    struct rps_sketch *from = sketch_of(NULL);
    struct copy copy = {.to = sketch_of(NULL)};

    ck_assert_ptr_nonnull(from);
    ck_assert_ptr_nonnull(copy.to);
    for (uint64_t key = 0; key < 5000; key++) {
        rps_sketch_add(from, rps_key_hash(key, 0), 1 + key % 300);
    }
    for (uint32_t slot = 0; slot < RPS_SLOT_COUNT; slot++) {
        ck_assert_int_eq(
                rps_sketch_visit(from, slot, copy_cell, &copy), RPS_OK);
    }
    ck_assert_uint_gt(copy.cells, 4 * 4900);
    for (uint64_t key = 0; key < 6000; key++) {
        const uint64_t hash = rps_key_hash(key, 0);
        ck_assert_uint_eq(
                rps_sketch_get(copy.to, hash), rps_sketch_get(from, hash));
    }
    rps_sketch_destroy(from);
    rps_sketch_destroy(copy.to);
}
END_TEST

START_TEST(a_sketch_takes_its_whole_budget_or_is_not_made)
{
    struct rps_budget budget;
    struct rps_sketch *sketch = NULL;

    rps_budget_init(&budget, NULL, RPS_SKETCH_BUDGET_BYTES - 1);
    ck_assert_int_eq(rps_sketch_create(&sketch, &budget), RPS_E_LIMIT);
    ck_assert_ptr_null(sketch);
    ck_assert_uint_eq(budget.used, 0);
    rps_budget_init(&budget, NULL, RPS_SKETCH_BUDGET_BYTES);
    sketch = sketch_of(&budget);
    ck_assert_ptr_nonnull(sketch);
    for (uint64_t key = 0; key < 30000; key++) { /* all slots */
        rps_sketch_add(sketch, rps_key_hash(key, 0), 7);
    }
    ck_assert_uint_le(rps_sketch_bytes(sketch), RPS_SKETCH_BUDGET_BYTES);
    rps_sketch_destroy(sketch);
    ck_assert_uint_eq(budget.used, 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("counts");
    TCase *tc = tcase_create("counts");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_key_can_be_counted_and_forgotten);
    tcase_add_test(tc, a_count_stops_at_65535);
    tcase_add_test(tc, counts_are_right_while_keys_come_and_go);
    tcase_add_test(tc, a_round_of_ageing_halves_every_count_once);
    tcase_add_test(tc, memory_stays_within_the_shards_limit);
    tcase_add_test(tc, without_budget_old_counts_make_room_for_new_ones);
    tcase_add_test(tc, a_trim_gives_memory_back);
    tcase_add_test(tc, a_sketch_never_counts_too_little);
    tcase_add_test(tc, a_slots_sketch_ages_after_2048_newcomers);
    tcase_add_test(tc, a_sketch_stops_at_255_and_fades_to_nothing);
    tcase_add_test(tc, a_sketch_that_is_visited_and_set_again_is_the_same);
    tcase_add_test(tc, a_sketch_takes_its_whole_budget_or_is_not_made);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
