/* SPDX-License-Identifier: Apache-2.0 */
/* Runs of pages: apart from each other, counted, given back to the system. */
#include "base/hash.h"
#include "embedding/arena.h"
#include "embedding/region.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RUN_COUNT 3000u

/* An eighth of what was touched stays, where a sanitizer keeps books. */
#ifdef __SANITIZE_ADDRESS__
#define BOOKS ((uint64_t)16 << 20)
#else
#define BOOKS 0u
#endif

static struct rps_run runs[RUN_COUNT];

static void
fill(uint32_t i)
{
    memset(runs[i].start, (int)(i % 251), runs[i].bytes);
}

static void
check(uint32_t i)
{
    const unsigned char *bytes = runs[i].start;

    ck_assert_uint_eq((uintptr_t)runs[i].start % 64, 0);
    ck_assert_int_eq(bytes[0], i % 251);
    ck_assert_int_eq(bytes[runs[i].bytes - 1], i % 251);
}

/* Resident pages of this process, in bytes. */
static uint64_t
resident(void)
{
    unsigned long long total = 0;
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu %llu", &total, &pages), 2);
    fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(runs_of_all_sizes_lie_apart)
{
    struct rps_budget budget;
    struct rps_arena arena;

    rps_budget_init(&budget, NULL, 0);
    ck_assert(rps_arena_init(&arena, &budget, NULL));
    for (uint32_t turn = 0; turn < 4 * RUN_COUNT; turn++) {
        const uint32_t i = (uint32_t)(rps_mix64(turn) % RUN_COUNT);
        const size_t bytes =
                1 + rps_mix64(turn + 99) %
                            (turn % 7 == 0 ? RPS_REGION_BYTES : 70000);
        if (runs[i].start != NULL) {
            check(i);
            rps_arena_give(&arena, &runs[i]);
            ck_assert_ptr_null(runs[i].start);
        } else if (turn % 7 != 0 || turn % 70 == 0) {
            ck_assert_int_eq(rps_arena_take(&arena, bytes, &runs[i]), RPS_OK);
            ck_assert_uint_ge(runs[i].bytes, bytes);
            fill(i);
        }
    }
    for (uint32_t i = 0; i < RUN_COUNT; i++) {
        if (runs[i].start != NULL) {
            check(i);
        }
        rps_arena_give(&arena, &runs[i]);
    }
    ck_assert_uint_le(rps_arena_bytes(&arena), RPS_REGION_BYTES);
    ck_assert_uint_eq(rps_arena_bytes(&arena), atomic_load(&budget.used));
    rps_arena_finish(&arena);
    ck_assert_uint_eq(atomic_load(&budget.used), 0);
}
END_TEST

START_TEST(memory_goes_back_to_the_system_by_regions)
{
    struct rps_budget budget;
    struct rps_arena arena;
    const uint32_t count = 1600; /* of 64 KiB: 100 MiB */
    uint64_t before = 0;

    rps_budget_init(&budget, NULL, 0);
    ck_assert(rps_arena_init(&arena, &budget, NULL));
    before = resident();
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_int_eq(
                rps_arena_take(&arena, (size_t)64 << 10, &runs[i]), RPS_OK);
        fill(i);
    }
    ck_assert_uint_ge(resident(), before + ((uint64_t)100 << 20));
    for (uint32_t i = 160; i < count; i++) {
        rps_arena_give(&arena, &runs[i]);
    }
    ck_assert_uint_le(resident(), before + ((uint64_t)16 << 20) + BOOKS);
    for (uint32_t i = 0; i < 160; i++) {
        check(i);
        rps_arena_give(&arena, &runs[i]);
    }
    rps_arena_finish(&arena);
}
END_TEST

/* On a machine with one node all of them put pages there: they are ours to
 * use, and that is what can be seen here. */
START_TEST(memory_is_usable_wherever_numa_puts_it)
{
    static const enum rps_numa policies[] = {
            RPS_NUMA_INTERLEAVE, RPS_NUMA_BIND, RPS_NUMA_OFF};
    struct rps_budget budget;
    struct rps_arena arena;

    rps_budget_init(&budget, NULL, 0);
    ck_assert(rps_arena_init(&arena, &budget, NULL));
    for (uint32_t i = 0; i < 3; i++) {
        if (!rps_region_numa(policies[i])) {
            continue; /* no libnuma here, or a kernel without NUMA */
        }
        ck_assert_int_eq(
                rps_arena_take(&arena, RPS_REGION_BYTES, &runs[i]), RPS_OK);
        fill(i);
        check(i);
        rps_arena_give(&arena, &runs[i]);
    }
    ck_assert(rps_region_numa(RPS_NUMA_OFF));
    rps_arena_finish(&arena);
}
END_TEST

START_TEST(a_childs_bytes_are_its_parents_too)
{
    struct rps_budget server;
    struct rps_budget table;

    rps_budget_init(&server, NULL, 1000);
    rps_budget_init(&table, &server, 600);
    ck_assert(rps_budget_take(&table, 600));
    ck_assert(!rps_budget_take(&table, 1));
    ck_assert_uint_eq(atomic_load(&server.used), 600);
    atomic_store(&table.limit, 2000);
    ck_assert(!rps_budget_take(&table, 401));
    ck_assert_uint_eq(atomic_load(&table.used), 600);
    ck_assert(rps_budget_take(&table, 400));
    rps_budget_give(&table, 1000);
    ck_assert_uint_eq(atomic_load(&server.used), 0);
    /* a limit below what is used takes nothing, and does not wrap */
    ck_assert(rps_budget_take(&table, 500));
    atomic_store(&table.limit, 100);
    ck_assert(!rps_budget_take(&table, 1));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("arena");
    TCase *tc = tcase_create("arena");

    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, runs_of_all_sizes_lie_apart);
    tcase_add_test(tc, memory_goes_back_to_the_system_by_regions);
    tcase_add_test(tc, memory_is_usable_wherever_numa_puts_it);
    tcase_add_test(tc, a_childs_bytes_are_its_parents_too);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
