/* SPDX-License-Identifier: Apache-2.0 */
/* Scans: every key once, whatever happens meanwhile. */
#include "base/hash.h"
#include "tests/unit/embedding/policy.h"

enum {
    KEYS = 60000
};

static uint8_t seen[KEYS];

static size_t
scan_all(struct rps_table *table, size_t max)
{
    struct rps_scan_cursor cursor = {.place = 0};
    uint64_t *keys = malloc(max * sizeof(*keys));
    size_t total = 0;
    size_t n = 0;

    ck_assert_ptr_nonnull(keys);
    memset(seen, 0, sizeof(seen));
    while ((n = rps_table_scan(table, &cursor, max, keys, NULL)) > 0) {
        ck_assert_uint_le(n, max);
        for (size_t i = 0; i < n; i++) {
            ck_assert_uint_lt(keys[i], KEYS);
            seen[keys[i]]++;
        }
        total += n;
    }
    free(keys);
    return total;
}

START_TEST(a_scan_sees_every_key_once)
{
    static const size_t sizes[] = {1, 7, 1024, 5000, KEYS};
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);

    push_range(table, 1, 0, KEYS / 10);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        ck_assert_uint_eq(scan_all(table, sizes[i]), KEYS / 10);
        for (size_t key = 0; key < KEYS / 10; key++) {
            ck_assert_uint_eq(seen[key], 1);
        }
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(keys_that_have_no_row_are_left_out_of_what_is_read)
{
    uint64_t keys[] = {5, 99999, 7, 88888, 6};
    float rows[5], slots[5];
    uint32_t meta[5];
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_ADAGRAD);

    push_range(table, 3, 5, 3);
    ck_assert_uint_eq(rps_table_read(table, 5, keys, rows, slots, meta), 3);
    ck_assert_uint_eq(keys[0], 5);
    ck_assert_uint_eq(keys[1], 7);
    ck_assert_uint_eq(keys[2], 6);
    for (size_t i = 0; i < 3; i++) {
        float row = NAN;

        read_row(table, keys[i], &row);
        ck_assert_float_eq(rows[i], row);
        ck_assert_float_gt(slots[i], 0.1f); /* its accumulator */
        ck_assert_uint_eq(RPS_META_LAST(meta[i]), 3);
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(an_empty_table_ends_at_once)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);

    ck_assert_uint_eq(scan_all(table, 10), 0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(special_keys_are_scanned_with_their_meta)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    struct rps_scan_cursor cursor = {.place = 0};
    uint64_t keys[SPECIAL_KEYS + 1];
    uint32_t meta[SPECIAL_KEYS + 1];

    push_ok(table, 77, SPECIAL_KEYS, special_keys, NULL);
    ck_assert_uint_eq(
            rps_table_scan(table, &cursor, SPECIAL_KEYS + 1, keys, meta),
            SPECIAL_KEYS);
    for (size_t i = 0; i < SPECIAL_KEYS; i++) {
        ck_assert_uint_eq(RPS_META_LAST(meta[i]), 77);
        ck_assert(has_row(table, keys[i]));
    }
    ck_assert_uint_eq(rps_table_scan(table, &cursor, 1, keys, NULL), 0);
    rps_table_destroy(table);
}
END_TEST

/* Keys below KEYS / 4 stay; others come and go between two calls. */
START_TEST(a_key_that_stays_is_seen_once_while_others_come_and_go)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    struct rps_scan_cursor cursor = {.place = 0};
    uint64_t keys[300];
    uint64_t next = KEYS / 4;
    uint64_t gone = KEYS / 4;
    size_t n = 0;

    push_range(table, 1, 0, KEYS / 4);
    memset(seen, 0, sizeof(seen));
    while ((n = rps_table_scan(table, &cursor, 300, keys, NULL)) > 0) {
        const uint64_t more = next + 2000 < KEYS ? 2000 : KEYS - next;
        for (size_t i = 0; i < n; i++) {
            seen[keys[i]]++;
        }
        push_range(table, 2, next, more);
        next += more;
        for (; gone + 500 < next; gone++) {
            rps_table_erase(table, 1, &gone);
        }
        if (next == KEYS) {
            evict_at(table, (struct rps_now){.step = 3}); /* compacts */
        }
    }
    for (size_t key = 0; key < KEYS / 4; key++) {
        ck_assert_uint_eq(seen[key], 1);
    }
    for (size_t key = KEYS / 4; key < KEYS; key++) {
        ck_assert_uint_le(seen[key], 1);
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(any_cursor_is_safe)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    uint64_t random = 5;
    uint64_t keys[10];

    push_range(table, 1, 0, 1000);
    for (int i = 0; i < 1000; i++) {
        struct rps_scan_cursor cursor = {.place = random_next(&random) % 200,
                .hash = random_next(&random),
                .key = random_next(&random)};
        ck_assert_uint_le(rps_table_scan(table, &cursor, 10, keys, NULL), 10);
        cursor.place = random_next(&random);
        ck_assert_uint_eq(rps_table_scan(table, &cursor, 10, keys, NULL), 0);
        cursor.place = UINT64_MAX;
        ck_assert_uint_eq(rps_table_scan(table, &cursor, 10, keys, NULL), 0);
    }
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("scan");
    TCase *tc = tcase_create("scan");

    tcase_set_timeout(tc, 240);
    tcase_add_test(tc, a_scan_sees_every_key_once);
    tcase_add_test(tc, keys_that_have_no_row_are_left_out_of_what_is_read);
    tcase_add_test(tc, an_empty_table_ends_at_once);
    tcase_add_test(tc, special_keys_are_scanned_with_their_meta);
    tcase_add_test(tc, a_key_that_stays_is_seen_once_while_others_come_and_go);
    tcase_add_test(tc, any_cursor_is_safe);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
