/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of an update fails once: the table then is what it was.
 * The linker sends the engine's allocations here (--wrap).
 */
#include "embedding/store.h"
#include "tests/unit/embedding/fixture.h"

#include <errno.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
int __real_posix_memalign(void **out, size_t alignment, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
int __wrap_posix_memalign(void **out, size_t alignment, size_t bytes);

static long until_failure = -1; /* allocations that still succeed; < 0: all */

static bool
fails(void)
{
    if (until_failure < 0) {
        return false;
    }
    until_failure--;
    return until_failure < 0;
}

void *
__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *
__wrap_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __real_calloc(count, bytes);
}

void *
__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

int
__wrap_posix_memalign(void **out, size_t alignment, size_t bytes)
{
    return fails() ? ENOMEM : __real_posix_memalign(out, alignment, bytes);
}

#define DIM  16u
#define KEYS 4000u

static uint64_t keys[KEYS];
static float ones[KEYS * DIM];

static void
fill_inputs(uint64_t base)
{
    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = base + i;
    }
    for (size_t i = 0; i < KEYS * DIM; i++) {
        ones[i] = 1.0f;
    }
}

static rps_status
try_apply(struct rps_table *table)
{
    const struct rps_update update = {
            .step = 1, .t = 1, .learning_rate = NAN, .scale = 0.5f};
    const struct rps_contribution contribution = {
            .count = KEYS, .keys = keys, .gradients = ones};
    struct rps_apply_report report;

    return rps_table_apply(table, &update, &contribution, 1, &report);
}

static rps_status
try_assign(struct rps_table *table)
{
    return rps_table_assign(table, KEYS, keys, ones, NULL, NULL, NULL);
}

/* Fail allocation 0, 1, 2, ... of what is tried, until none was left. */
static void
fail_each(rps_status (*attempt)(struct rps_table *table))
{
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_ADAGRAD);
    rps_status status = RPS_E_NOMEM;
    long allocation = 0;
    struct rps_digest before;
    struct rps_table_stats stats;

    fill_inputs(0);
    ck_assert_int_eq(try_apply(table), RPS_OK);
    fill_inputs(KEYS / 2); /* half of them are new */
    before = rps_table_digest(table);
    for (; status != RPS_OK; allocation++) {
        struct rps_digest after;
        until_failure = allocation;
        status = attempt(table);
        if (status == RPS_OK) {
            break;
        }
        until_failure = -1;
        ck_assert_int_eq(status, RPS_E_NOMEM);
        after = rps_table_digest(table);
        ck_assert_mem_eq(&after, &before, sizeof(before));
        ck_assert_uint_eq(rows_of(table), KEYS);
    }
    until_failure = -1;
    ck_assert_int_gt(allocation, 2);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.rows, KEYS + KEYS / 2);
    ck_assert_uint_le(stats.pushes, 2);
    rps_table_destroy(table);
}

START_TEST(a_push_without_memory_changes_nothing)
{
    fail_each(try_apply);
}
END_TEST

START_TEST(an_assign_without_memory_changes_nothing)
{
    fail_each(try_assign);
}
END_TEST

START_TEST(a_store_without_memory_stays_whole)
{
    const rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_table *table = NULL;
    struct rps_store *store = NULL;
    rps_status status = RPS_E_NOMEM;

    for (long allocation = 0; status != RPS_OK; allocation++) {
        until_failure = allocation;
        status = rps_store_create(&store, 0);
        if (status == RPS_OK) {
            status = rps_store_open_table(store, &spec, &table, NULL);
        }
        until_failure = -1;
        if (status != RPS_OK) {
            ck_assert_int_eq(status, RPS_E_NOMEM);
            ck_assert_ptr_null(table);
            rps_store_destroy(store);
        }
    }
    ck_assert_ptr_eq(rps_store_find(store, rps_table_id_of(table)), table);
    rps_store_destroy(store);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_memory");
    TCase *memory = tcase_create("memory");

    tcase_set_timeout(memory, 60);
    tcase_add_test(memory, a_push_without_memory_changes_nothing);
    tcase_add_test(memory, an_assign_without_memory_changes_nothing);
    tcase_add_test(memory, a_store_without_memory_stays_whole);
    suite_add_tcase(suite, memory);
    return run_suite(suite);
}
