/* SPDX-License-Identifier: Apache-2.0 */
/* Budgets of bytes, and memory that goes back to the system. */
#include "base/hash.h"
#include "embedding/meta.h"
#include "tests/unit/embedding/policy.h"

#include <inttypes.h>

#define MIB ((uint64_t)1 << 20)

static rps_table_spec
spec_within(uint64_t limit, enum rps_on_full on_full)
{
    rps_table_spec spec = spec_of(16, RPS_OPTIMIZER_ADAGRAD); /* 128 B a row */

    spec.memory_limit = limit;
    spec.on_full = on_full;
    return spec;
}

static uint64_t
used_of(struct rps_table *table)
{
    return atomic_load(&table->budget.used);
}

START_TEST(a_limit_that_is_too_small_names_the_least_one)
{
    rps_table_spec spec = spec_within(1, RPS_ON_FULL_EVICT_LRU);
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;
    uint64_t least = 0;

    ck_assert_int_eq(rps_table_create(&table, &spec, 0, &error), RPS_E_INVAL);
    ck_assert_ptr_null(table);
    ck_assert_ptr_nonnull(strstr(error.text, "memory_limit is 1 bytes"));
    ck_assert_int_eq(
            sscanf(strstr(error.text, "needs "), "needs %" SCNu64, &least), 1);
    spec.memory_limit = least - 1;
    ck_assert_int_eq(rps_table_create(&table, &spec, 0, &error), RPS_E_INVAL);
    spec.memory_limit = least;
    ck_assert_int_eq(rps_table_create(&table, &spec, 0, &error), RPS_OK);
    push_range(table, 1, 0, 200000);
    ck_assert_uint_le(used_of(table), least);
    ck_assert_uint_gt(rows_of(table), 5000);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_push_beyond_the_limit_is_refused_and_changes_nothing)
{
    const rps_table_spec spec = spec_within(8 * MIB, RPS_ON_FULL_REFUSE);
    struct rps_table *table = table_of(&spec);
    struct rps_error error = {.text = ""};
    struct rps_apply_report report;
    struct rps_digest before;
    rps_status status = RPS_OK;
    uint64_t keys[512];
    uint64_t next = 0;

    while (status == RPS_OK) {
        for (size_t i = 0; i < 512; i++) {
            keys[i] = next + i;
        }
        before = rps_table_digest(table);
        status = push_at(
                table, (struct rps_now){.step = 1}, 512, keys, NULL, &report);
        next += 512;
        ck_assert_uint_le(used_of(table), 8 * MIB);
        ck_assert_uint_lt(next, 1000000);
    }
    ck_assert_int_eq(status, RPS_E_LIMIT);
    ck_assert_uint_gt(rows_of(table), 30000);
    ck_assert_uint_eq(rows_of(table), next - 512);
    ck_assert_uint_eq(before.low, rps_table_digest(table).low);
    ck_assert_int_eq(rps_table_fail_full(table, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "its memory_limit of 8388608"));
    ck_assert_ptr_nonnull(strstr(error.text, "on_full is refuse"));
    ck_assert_uint_eq(stats_of(table).dropped, 512); /* all were new */
    /* rows that are there go on */
    ck_assert_uint_eq(push_ok(table, 2, 1, &(uint64_t){5}, NULL).applied, 1);
    rps_table_destroy(table);
}
END_TEST

/* The words of a push of n keys that is LIMIT; each has but new keys. */
static struct rps_error
words_of_push(struct rps_table *table, uint64_t first, size_t n)
{
    struct rps_error error = {.text = ""};
    struct rps_apply_report report;
    uint64_t *keys = calloc(n, sizeof(*keys));

    ck_assert_ptr_nonnull(keys);
    for (size_t i = 0; i < n; i++) {
        keys[i] = first + i;
    }
    ck_assert_int_eq(
            push_at(table, (struct rps_now){.step = 1}, n, keys, NULL, &report),
            RPS_E_LIMIT);
    ck_assert_int_eq(rps_table_fail_full(table, &error), RPS_E_LIMIT);
    free(keys);
    return error;
}

START_TEST(a_limit_names_its_reason)
{
    rps_table_spec spec = spec_within(8 * MIB, RPS_ON_FULL_EVICT_LRU);
    struct rps_table *table = table_of(&spec);
    struct rps_error error = words_of_push(table, 0, 200000);
    struct rps_budget server;

    ck_assert_ptr_nonnull(strstr(error.text, "its memory_limit of 8388608"));
    ck_assert_ptr_nonnull(strstr(error.text, "push fewer new keys"));
    ck_assert_ptr_null(strstr(error.text, "on_full"));
    ck_assert_uint_eq(stats_of(table).dropped, 200000);
    rps_table_destroy(table);

    spec.keep_min_rows = 1000000;
    table = table_of(&spec);
    error = words_of_push(table, 0, 200000);
    ck_assert_ptr_nonnull(strstr(error.text, "keep_min_rows is 1000000"));
    ck_assert_ptr_null(strstr(error.text, "on_full"));
    rps_table_destroy(table);

    spec = spec_within(0, RPS_ON_FULL_REFUSE);
    table = table_of(&spec);
    rps_budget_init(&server, NULL, 9 * MIB);
    ck_assert_int_eq(rps_table_enter_budget(table, &server, NULL), RPS_OK);
    error = words_of_push(table, 0, 200000);
    ck_assert_ptr_nonnull(strstr(error.text, "the server's memory limit"));
    ck_assert_ptr_nonnull(strstr(error.text, "of 9437184 bytes"));
    rps_table_destroy(table);
}
END_TEST

/* What is drained takes no rows, but has room for them. */
START_TEST(a_push_while_chunks_are_drained_is_not_refused)
{
    const rps_table_spec spec = spec_within(8 * MIB, RPS_ON_FULL_REFUSE);
    struct rps_table *table = NULL;
    struct rps_apply_report report;
    struct rps_evict_report kept = {.examined = 0};
    const struct rps_now now = {.step = 2};
    uint64_t *keys = calloc(100000, sizeof(*keys));
    uint64_t n = 0;

    ck_assert_ptr_nonnull(keys);
    ck_assert_int_eq(
            rps_table_create_sharded(&table, &spec, 0, 0, NULL), RPS_OK);
    while (n < 100000 && push_at(table, now, 1, &n, NULL, &report) == RPS_OK) {
        n++;
    }
    ck_assert_uint_gt(n, 20000);
    ck_assert_uint_lt(n, 100000);
    for (uint64_t key = 0; key < n; key += 2) {
        keys[key / 2] = key;
    }
    ck_assert_uint_eq(rps_table_erase(table, n / 2, keys), n / 2);
    for (unsigned i = 0; i < 1000000 && !table->upkeep.draining; i++) {
        (void)rps_table_maintain(table, now, 1, &kept);
    }
    ck_assert(table->upkeep.draining);
    for (uint64_t i = 0; i < n / 8 * 3; i++) {
        keys[i] = n + i;
    }
    ck_assert_int_eq(
            push_at(table, now, n / 8 * 3, keys, NULL, &report), RPS_OK);
    ck_assert_uint_eq(rows_of(table), n - n / 2 + n / 8 * 3);
    rps_table_destroy(table);
    free(keys);
}
END_TEST

START_TEST(a_step_that_was_acknowledged_drops_new_keys_alone)
{
    const rps_table_spec spec = spec_within(8 * MIB, RPS_ON_FULL_REFUSE);
    struct rps_table *table = table_of(&spec);
    const struct rps_update update = {.step = 2,
            .t = 2,
            .learning_rate = NAN,
            .scale = 1.0f,
            .drop_new = true};
    static uint64_t keys[200000];
    float *gradients = calloc(200000 * 16, sizeof(*gradients));
    struct rps_contribution contribution = {
            .count = 200000, .keys = keys, .gradients = gradients};
    struct rps_apply_report report;

    ck_assert_ptr_nonnull(gradients);
    for (uint64_t i = 0; i < 200000; i++) {
        keys[i] = i;
    }
    push_range(table, 1, 100000, 1000);
    ck_assert_int_eq(
            rps_table_apply(table, &update, &contribution, 1, &report), RPS_OK);
    ck_assert_uint_eq(report.applied + report.dropped, 200000);
    ck_assert_uint_gt(report.dropped, 100000);
    ck_assert_uint_eq(rows_of(table), report.applied);
    ck_assert_uint_eq(stats_of(table).dropped, report.dropped);
    for (uint64_t key = 100000; key < 101000; key += 37) {
        ck_assert_uint_eq(RPS_META_LAST(see(table, key, 0).meta), 2);
    }
    free(gradients);
    rps_table_destroy(table);
}
END_TEST

/* Ten times what fits, with each policy that evicts. */
START_TEST(a_budget_is_never_exceeded)
{
    const rps_table_spec spec = spec_within(8 * MIB, (enum rps_on_full)_i);
    struct rps_table *table = table_of(&spec);
    uint64_t keys[256];
    uint64_t least = UINT64_MAX;

    for (uint64_t push = 0; push < 1200; push++) { /* 307 k rows */
        for (size_t i = 0; i < 256; i++) {
            keys[i] = push * 256 + i;
        }
        ck_assert_uint_eq(
                push_ok(table, push + 1, 256, keys, NULL).applied, 256);
        if (used_of(table) > 8 * MIB || rows_of(table) > 65536) {
            ck_abort_msg("%" PRIu64 " bytes, %" PRIu64 " rows", used_of(table),
                    rows_of(table));
        }
        if (push > 400 && rows_of(table) < least) {
            least = rows_of(table);
        }
    }
    ck_assert_uint_gt(least, 30000); /* of 42 k to 50 k that could fit */
    ck_assert_uint_gt(stats_of(table).evicted_full, 200000);
    for (size_t i = 0; i < 256; i++) {
        ck_assert(has_row(table, keys[i]));
    }
    rps_table_destroy(table);
}
END_TEST

/* 2000 keys in every push, new ones once each: who stays? */
static size_t
hot_keys_that_stay(enum rps_on_full on_full)
{
    const rps_table_spec spec = spec_within(8 * MIB, on_full);
    struct rps_table *table = table_of(&spec);
    static uint64_t keys[3000];
    size_t stay = 0;

    for (uint64_t step = 1; step <= 200; step++) {
        for (uint64_t i = 0; i < 3000; i++) {
            /* after step 100 only new keys: recency is of no help */
            keys[i] = i < 2000 && step <= 100 ? i : step * 3000 + i;
        }
        push_ok(table, step, 3000, keys, NULL);
    }
    for (uint64_t key = 0; key < 2000; key += 5) {
        stay += has_row(table, key);
    }
    rps_table_destroy(table);
    return stay;
}

START_TEST(lfu_keeps_what_was_used_often_and_lru_does_not)
{
    ck_assert_uint_gt(hot_keys_that_stay(RPS_ON_FULL_EVICT_LFU), 380);
    ck_assert_uint_lt(hot_keys_that_stay(RPS_ON_FULL_EVICT_LRU), 20);
}
END_TEST

START_TEST(keep_min_rows_win_over_the_budget)
{
    rps_table_spec spec = spec_within(8 * MIB, RPS_ON_FULL_EVICT_LRU);
    struct rps_table *table = NULL;
    struct rps_apply_report report;
    rps_status status = RPS_OK;
    uint64_t key = 0;

    spec.keep_min_rows = 1000000;
    table = table_of(&spec);
    for (; status == RPS_OK && key < 200000; key++) {
        status = push_at(
                table, (struct rps_now){.step = 1}, 1, &key, NULL, &report);
    }
    ck_assert_int_eq(status, RPS_E_LIMIT);
    ck_assert_uint_eq(rows_of(table), key - 1);
    ck_assert_uint_eq(stats_of(table).evicted_full, 0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_lower_limit_is_met_in_slices)
{
    rps_table_spec spec = spec_within(0, RPS_ON_FULL_EVICT_LRU);
    struct rps_table *table = table_of(&spec);
    struct rps_evict_report report = {.full = 0};
    const struct rps_now now = {.step = 10};

    push_range(table, 1, 0, 200000);
    push_range(table, 9, 0, 20000);
    ck_assert_uint_gt(used_of(table), 24 * MIB);
    spec.memory_limit = 12 * MIB;
    ck_assert_int_eq(rps_table_alter(table, &spec, now, NULL), RPS_OK);
    ck_assert_uint_gt(used_of(table), 24 * MIB);
    while (rps_table_maintain(table, now, 200, &report)) {
    }
    ck_assert_uint_le(used_of(table), 12 * MIB);
    ck_assert_uint_gt(report.full, 100000);
    ck_assert_uint_gt(rows_of(table), 25000);
    for (uint64_t key = 0, stay = 0; key < 20000; key += 100) {
        stay += has_row(table, key); /* the younger ones */
        ck_assert(key < 19900 || stay > 180);
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(admission_counts_are_part_of_the_budget)
{
    rps_table_spec spec = spec_within(8 * MIB, RPS_ON_FULL_EVICT_LRU);
    struct rps_table *table = NULL;

    spec.min_used_times = 2;
    table = table_of(&spec);
    for (uint64_t first = 0; first < 1000000; first += 100000) {
        push_range(table, 1, first, 100000);
        ck_assert_uint_le(used_of(table), 8 * MIB);
    }
    ck_assert_uint_gt(stats_of(table).admission_keys, 10000);
    ck_assert_uint_eq(rows_of(table), 0);
    push_range(table, 2, 999000, 1000);
    ck_assert_uint_gt(rows_of(table), 500);
    ck_assert_uint_le(used_of(table), 8 * MIB);
    rps_table_destroy(table);
}
END_TEST

/* Every row's pattern is its key's: what moved still is. */
static void
assert_patterns(struct rps_table *table, uint64_t keys, uint64_t every)
{
    float row[16];

    for (uint64_t key = 0; key < keys; key += every) {
        read_row(table, key, row);
        for (size_t j = 0; j < 16; j++) {
            ck_assert_float_eq(row[j], (float)(key % 1000) + (float)j);
        }
    }
}

static void
assign_patterns(struct rps_table *table, uint64_t keys)
{
    float rows[256][16];
    uint64_t names[256];

    for (uint64_t first = 0; first < keys; first += 256) {
        for (uint64_t i = 0; i < 256; i++) {
            names[i] = first + i;
            for (size_t j = 0; j < 16; j++) {
                rows[i][j] = (float)((first + i) % 1000) + (float)j;
            }
        }
        ck_assert_int_eq(rps_table_assign(table, 256, names, &rows[0][0], NULL,
                                 NULL, NULL),
                RPS_OK);
    }
}

static void
erase_but_every_tenth(struct rps_table *table, uint64_t keys)
{
    for (uint64_t key = 0; key < keys; key++) {
        if (key % 10 != 0) {
            rps_table_erase(table, 1, &key);
        }
    }
}

enum {
    MANY = 256 * 3904 /* a million */
};

START_TEST(memory_falls_when_nine_rows_of_ten_leave)
{
    const uint64_t payload = (uint64_t)MANY * 128;
    const rps_table_spec spec = spec_within(0, RPS_ON_FULL_REFUSE);
    const uint64_t before = resident_bytes();
    struct rps_table *table = table_of(&spec);
    struct rps_evict_report report;
    uint64_t after = 0;

    assign_patterns(table, MANY);
    ck_assert_uint_gt(resident_bytes() - before, payload);
    erase_but_every_tenth(table, MANY);
    report = evict_at(table, (struct rps_now){.step = 1});
    ck_assert_uint_eq(rows_of(table), (MANY + 9) / 10);
    ck_assert_uint_eq(report.bytes_after, used_of(table));
    ck_assert_uint_gt(report.bytes_before, payload);
    after = resident_bytes() - before;
    ck_assert_msg(after <= payload / 4,
            "%" PRIu64 " MiB of %" PRIu64 " are left, %" PRIu64 " counted",
            after / MIB, payload / MIB, used_of(table) / MIB);
    assert_patterns(table, MANY, 10);
    rps_table_destroy(table);
}
END_TEST

START_TEST(space_is_used_again_without_growth)
{
    const rps_table_spec spec = spec_within(0, RPS_ON_FULL_REFUSE);
    struct rps_table *table = table_of(&spec);
    const uint64_t before = resident_bytes();
    uint64_t full = 0;
    uint64_t used = 0;

    assign_patterns(table, MANY / 4);
    full = resident_bytes() - before;
    used = used_of(table);
    for (int round = 0; round < 3; round++) {
        erase_but_every_tenth(table, MANY / 4);
        assign_patterns(table, MANY / 4);
    }
    ck_assert_uint_eq(rows_of(table), MANY / 4);
    ck_assert_uint_le(used_of(table), used + used / 20);
    ck_assert_uint_le(resident_bytes() - before, full + full / 20);
    assert_patterns(table, MANY / 4, 7);
    rps_table_destroy(table);
}
END_TEST

START_TEST(rows_of_all_sizes_survive_compaction)
{
    static const uint32_t dims[] = {1, 3, 16, 200};
    rps_table_spec spec = spec_of(dims[_i], RPS_OPTIMIZER_SGD);
    struct rps_table *table = table_of(&spec);
    const uint64_t n = dims[_i] == 200 ? 20000 : 100000;
    static float row[200];
    uint64_t before = 0;

    push_range(table, 1, 0, n);
    push_range(table, 2, 0, n);
    before = used_of(table);
    erase_but_every_tenth(table, n);
    for (int pass = 0; pass < 3; pass++) {
        struct rps_evict_report report = {.cold = 0};
        while (rps_table_maintain(
                table, (struct rps_now){.step = 3}, 64, &report)) {
        }
    }
    ck_assert_uint_lt(used_of(table), before / 2 + 4 * MIB);
    for (uint64_t key = 0; key < n; key += 10) {
        float first[200];
        rps_table_first_value(table, key, first);
        read_row(table, key, row);
        for (size_t j = 0; j < dims[_i]; j++) {
            ck_assert(fabsf(row[j] - (first[j] - 0.02f)) < 1e-6f);
        }
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(tables_that_come_and_go_leave_nothing)
{
    const rps_table_spec spec = spec_within(0, RPS_ON_FULL_REFUSE);
    uint64_t first = 0;

    for (int round = 0; round < 50; round++) {
        struct rps_table *table = table_of(&spec);
        push_range(table, 1, 0, 30000);
        rps_table_destroy(table);
        if (round == 4) {
            first = resident_bytes();
        }
    }
    ck_assert_uint_le(resident_bytes(), first + 2 * MIB);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("budget");
    TCase *tc = tcase_create("budget");
    /* AddressSanitizer keeps what was freed: not the program's memory */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const bool measures = false;
#else
    const bool measures = true;
#endif

    tcase_set_timeout(tc, 300);
    tcase_add_test(tc, a_limit_names_its_reason);
    tcase_add_test(tc, a_limit_that_is_too_small_names_the_least_one);
    tcase_add_test(tc, a_push_beyond_the_limit_is_refused_and_changes_nothing);
    tcase_add_test(tc, a_push_while_chunks_are_drained_is_not_refused);
    tcase_add_test(tc, a_step_that_was_acknowledged_drops_new_keys_alone);
    tcase_add_loop_test(tc, a_budget_is_never_exceeded, RPS_ON_FULL_EVICT_LRU,
            RPS_ON_FULL_EVICT_LFU + 1);
    tcase_add_test(tc, lfu_keeps_what_was_used_often_and_lru_does_not);
    tcase_add_test(tc, keep_min_rows_win_over_the_budget);
    tcase_add_test(tc, a_lower_limit_is_met_in_slices);
    tcase_add_test(tc, admission_counts_are_part_of_the_budget);
    tcase_add_loop_test(tc, rows_of_all_sizes_survive_compaction, 0, 4);
    if (measures) {
        tcase_add_test(tc, memory_falls_when_nine_rows_of_ten_leave);
        tcase_add_test(tc, space_is_used_again_without_growth);
        tcase_add_test(tc, tables_that_come_and_go_leave_nothing);
    }
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
