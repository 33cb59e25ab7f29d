/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What others' tables did with memory, as the right behaviour; see
 * test_table_peers.c.
 */
#include "tests/unit/embedding/pattern.h"

#include <stdio.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* the process's memory is mostly the sanitizer's */
#else
#define SANITIZED false
#endif

#define MIB  ((uint64_t)1 << 20)
#define LONG suite_is_long()

static uint64_t
bytes_of(struct rps_table *table)
{
    struct rps_table_stats stats;

    rps_table_stats_of(table, &stats);
    return stats.bytes;
}

/* Bytes of this process in memory. */
static uint64_t
resident(void)
{
    unsigned long size = 0;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu %lu", &size, &pages), 2);
    fclose(file);
    return (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/*
 * From how many rows on memory is measured, and what it may be: 8 to 16
 * million of them in the long run. At a few millions what is begun and not
 * full yet, in each shard, is a larger part.
 */
struct measure {
    double rows;
    double mean;
    double most;
};

static struct measure
measure(void)
{
    return LONG ? (struct measure){8e6, 24.0, 28.0}
                : (struct measure){1e6, 36.0, 44.0};
}

static struct rps_table *
sgd_table(uint32_t dim)
{
    const rps_table_spec spec = spec_of(dim, RPS_OPTIMIZER_SGD);

    return table_of(&spec);
}

/* Keys from *rows on, so that the table has `wanted`. */
static void
fill_to(struct rps_table *table, uint64_t *rows, uint64_t wanted)
{
    const size_t dim = rps_table_spec_of(table)->dim;
    float *values = calloc(4096 * dim, sizeof(*values));
    uint64_t keys[4096];

    ck_assert_ptr_nonnull(values);
    while (*rows < wanted) {
        const size_t n =
                wanted - *rows < 4096 ? (size_t)(wanted - *rows) : (size_t)4096;
        for (size_t i = 0; i < n; i++) {
            keys[i] = *rows + i;
        }
        ck_assert_int_eq(
                rps_table_assign(table, n, keys, values, NULL, NULL, NULL),
                RPS_OK);
        *rows += n;
    }
    free(values);
}

/* HugeCTR 412: 84 GB of keys and vectors of dim 1 take ten times that.
 * 16 sizes, evenly in the logarithm over one doubling. */
START_TEST(what_a_row_costs_beyond_its_payload_is_bounded)
{
    const uint32_t dims[] = {1, 8, 64};
    const uint32_t dim = dims[_i];
    uint64_t rows = 0;
    struct rps_table *table = sgd_table(dim);
    const struct measure limits = measure();
    const uint64_t start = resident();
    double sum = 0.0;

    if (!LONG && dim > 8) {
        rps_table_destroy(table);
        return;
    }
    for (int i = 0; i < 16; i++) {
        double overhead = 0.0;
        fill_to(table, &rows, (uint64_t)(limits.rows * exp2(i / 16.0)));
        overhead = (double)(SANITIZED ? bytes_of(table) : resident() - start) /
                           (double)rows -
                   4.0 * dim;
        ck_assert_msg(overhead <= limits.most, "dim %u, %llu rows: %.1f bytes",
                dim, (unsigned long long)rows, overhead);
        sum += overhead / 16.0;
    }
    ck_assert_msg(sum <= limits.mean, "dim %u: mean of %.1f bytes", dim, sum);
    rps_table_destroy(table);
}
END_TEST

/* libcuckoo 134, 7 and 109: doubling only: one row more than a power of two
 * doubles what the table takes. */
START_TEST(one_row_more_than_a_power_of_two_does_not_double_the_table)
{
    uint64_t rows = 0;
    struct rps_table *table = sgd_table(8);

    for (unsigned log2 = 16; log2 <= 20; log2++) {
        uint64_t before = 0;
        fill_to(table, &rows, UINT64_C(1) << log2);
        before = bytes_of(table);
        fill_to(table, &rows, (UINT64_C(1) << log2) + 1);
        ck_assert_msg(bytes_of(table) <= before + before / 10,
                "2^%u: from %llu to %llu", log2, (unsigned long long)before,
                (unsigned long long)bytes_of(table));
    }
    rps_table_destroy(table);
}
END_TEST

/* The same reports: while it doubles, the old and the new stand. */
START_TEST(growing_takes_a_tenth_more_than_the_end_at_most)
{
    uint64_t rows = 0;
    struct rps_table *table = sgd_table(8);
    uint64_t peak = 0;

    for (uint64_t wanted = 4096; wanted <= 1000000; wanted += 4096) {
        uint64_t now = 0;
        fill_to(table, &rows, wanted);
        now = bytes_of(table);
        peak = now > peak ? now : peak;
    }
    ck_assert_uint_le(peak, bytes_of(table) + bytes_of(table) / 10);
    rps_table_destroy(table);
}
END_TEST

/* DeepRec 252: memory grows with every reload of the model. */
START_TEST(making_and_dropping_a_table_50_times_leaves_memory_flat)
{
    uint64_t early = 0;

    for (int i = 0; i < 50; i++) {
        uint64_t rows = 0;
        struct rps_table *table = sgd_table(16);
        fill_to(table, &rows, 50000);
        ck_assert_uint_eq(rows_of(table), 50000);
        rps_table_destroy(table);
        if (i == 4) {
            early = resident();
        }
    }
    if (!SANITIZED) {
        ck_assert_uint_le(resident(), early + 4 * MIB);
    }
}
END_TEST

#define WIDE     64u
#define EVICTING (SANITIZED ? UINT64_C(50000) : UINT64_C(400000))

/* Keys from `first` on at this step, sgd of zeros: rows of first values. */
static void
push_wide(
        struct rps_table *table, uint64_t step, uint64_t first, uint64_t count)
{
    static const float zeros[512 * WIDE];
    uint64_t keys[512];

    for (uint64_t at = 0; at < count; at += 512) {
        const size_t n = count - at < 512 ? (size_t)(count - at) : (size_t)512;
        for (size_t i = 0; i < n; i++) {
            keys[i] = first + at + i;
        }
        push(table, step, n, keys, zeros);
    }
}

/* Monolith: eviction empties the index, not the memory. FBGEMM: blocks go to
 * a free list and never back. */
START_TEST(evicting_nine_tenths_gives_memory_back_and_it_is_used_again)
{
    rps_table_spec spec = spec_of(WIDE, RPS_OPTIMIZER_SGD);
    struct rps_evict_report report;
    struct rps_table *table = NULL;
    const uint64_t start = resident();
    const uint64_t payload = EVICTING * WIDE * sizeof(float);
    uint64_t full = 0;

    spec.max_cold_steps = 50;
    table = table_of(&spec);
    push_wide(table, 1, 0, EVICTING);
    push_wide(table, 100, 0, EVICTING / 10);
    full = bytes_of(table);
    rps_table_evict(table, (struct rps_now){.step = 100, .unix_s = 1}, &report);
    ck_assert_uint_eq(report.cold, EVICTING - EVICTING / 10);
    ck_assert_uint_eq(rows_of(table), EVICTING / 10);
    ck_assert_uint_lt(report.bytes_after, report.bytes_before);
    if (!SANITIZED) { /* of few rows the rest of a chunk is the most */
        ck_assert_msg(bytes_of(table) <= payload / 4, "%llu of %llu bytes",
                (unsigned long long)bytes_of(table),
                (unsigned long long)payload);
        ck_assert_msg(resident() - start <= payload / 4 + 8 * MIB,
                "%llu of %llu bytes in memory",
                (unsigned long long)(resident() - start),
                (unsigned long long)payload);
    }
    push_wide(table, 101, EVICTING, EVICTING - EVICTING / 10);
    ck_assert_uint_eq(rows_of(table), EVICTING);
    ck_assert_uint_le(bytes_of(table), full + full / 20);
    rps_table_destroy(table);
}
END_TEST

static TCase *
memory(void)
{
    TCase *memory = tcase_create("memory");

    tcase_set_timeout(memory, 900);
    tcase_add_loop_test(
            memory, what_a_row_costs_beyond_its_payload_is_bounded, 0, 3);
    tcase_add_test(
            memory, one_row_more_than_a_power_of_two_does_not_double_the_table);
    tcase_add_test(memory, growing_takes_a_tenth_more_than_the_end_at_most);
    tcase_add_test(memory,
            evicting_nine_tenths_gives_memory_back_and_it_is_used_again);
    tcase_add_test(
            memory, making_and_dropping_a_table_50_times_leaves_memory_flat);
    return memory;
}

int
main(void)
{
    Suite *suite = suite_create("table_peers_memory");

    suite_add_tcase(suite, memory());
    return run_suite(suite);
}
