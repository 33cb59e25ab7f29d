/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With a disk tier a table answers as it does without one, whatever lies
 * where. The oracle is a table in memory that was given the same pushes.
 */
#include "base/hash.h"
#include "embedding/cut.h"
#include "embedding/region.h"
#include "embedding/store.h"
#include "tests/unit/embedding/fixture.h"

#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define DIM 16u
#define MIB ((uint64_t)1 << 20)

struct tiered {
    struct rps_region_file file;
    struct rps_budget disk;
    struct rps_budget memory;
    struct rps_store *store;
    struct rps_table *table;
};

static void
start(struct tiered *t, uint64_t memory_limit, uint64_t disk_limit,
        enum rps_on_full on_full)
{
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_ADAGRAD);
    struct rps_error error = {.text = ""};

    spec.memory_limit = memory_limit;
    spec.on_full = on_full;
    ck_assert_int_eq(rps_region_file_open(&t->file, "/tmp"), RPS_OK);
    rps_budget_init(&t->disk, NULL, disk_limit);
    rps_budget_init(&t->memory, NULL, 0);
    ck_assert_int_eq(rps_store_create(&t->store, 0), RPS_OK);
    rps_store_set_budget(t->store, &t->memory);
    rps_store_set_tier(t->store, &t->file, &t->disk);
    ck_assert_msg(
            rps_store_open_table(t->store, &spec, &t->table, &error) == RPS_OK,
            "%s", error.text);
}

static void
finish(struct tiered *t)
{
    rps_store_destroy(t->store);
    ck_assert_uint_eq(atomic_load(&t->disk.used), 0);
    rps_region_file_close(&t->file);
}

static rps_status
push_some(
        struct rps_table *table, uint64_t step, const uint64_t *keys, size_t n)
{
    const struct rps_update update = {
            .step = step, .t = step, .learning_rate = NAN, .scale = 1.0f};
    float *gradients = calloc(n * DIM, sizeof(*gradients));
    const struct rps_contribution contribution = {
            .count = n, .keys = keys, .gradients = gradients};
    struct rps_apply_report report;
    rps_status status;

    for (size_t i = 0; i < n * DIM; i++) {
        gradients[i] =
                (float)(rps_mix64(step + keys[i / DIM] + i % DIM) % 64) / 64.0f;
    }
    status = rps_table_apply(table, &update, &contribution, 1, &report);
    free(gradients);
    return status;
}

static void
push_range(struct rps_table *table, uint64_t step, uint64_t first, size_t n)
{
    uint64_t keys[512];

    for (size_t done = 0; done < n; done += 512) {
        const size_t left = n - done < 512 ? n - done : 512;
        for (size_t i = 0; i < left; i++) {
            keys[i] = first + done + i;
        }
        ck_assert_int_eq(push_some(table, step, keys, left), RPS_OK);
    }
}

static struct rps_table_stats
stats_of(struct rps_table *table)
{
    struct rps_table_stats stats;

    rps_table_stats_of(table, &stats);
    return stats;
}

static void
maintain(struct rps_table *table, uint64_t step)
{
    struct rps_evict_report report = {.full = 0};

    while (rps_table_maintain(
            table, (struct rps_now){.step = step}, 2000, &report)) {
    }
    ck_assert_uint_eq(report.full, 0);
}

static void
expect_same(struct rps_table *tiered, struct rps_table *plain)
{
    const struct rps_digest a = rps_table_digest(tiered);
    const struct rps_digest b = rps_table_digest(plain);

    ck_assert_uint_eq(stats_of(tiered).rows, stats_of(plain).rows);
    ck_assert(a.low == b.low && a.high == b.high);
}

START_TEST(a_table_beyond_its_memory_is_the_table_that_it_would_be)
{
    static const enum rps_on_full kinds[] = {
            RPS_ON_FULL_REFUSE, RPS_ON_FULL_EVICT_LRU, RPS_ON_FULL_EVICT_LFU};
    struct rps_table *plain = table_new(DIM, RPS_OPTIMIZER_ADAGRAD);
    struct tiered t;
    struct rps_table_stats stats;

    start(&t, 12 * MIB, 0, kinds[_i]);
    push_range(plain, 1, 0, 200000);
    push_range(t.table, 1, 0, 200000); /* 30 MB of rows */
    stats = stats_of(t.table);
    ck_assert_uint_gt(stats.disk_rows, 100000);
    ck_assert_uint_gt(stats.lowered, 100000);
    ck_assert_uint_gt(stats.disk_bytes, 12 * MIB);
    ck_assert_uint_eq(stats.evicted_full, 0);
    for (uint64_t step = 2; step < 8; step++) {
        push_range(plain, step, step * 20000, 30000);
        push_range(t.table, step, step * 20000, 30000);
        maintain(t.table, step);
    }
    expect_same(t.table, plain);
    stats = stats_of(t.table);
    ck_assert_uint_gt(stats.raised, 10000);
    ck_assert_uint_le(atomic_load(&t.memory.used), 12 * MIB);
    /* erased keys leave the disk, too */
    for (uint64_t key = 0; key < 150000; key += 3) {
        ck_assert_uint_eq(rps_table_erase(plain, 1, &key), 1);
        ck_assert_uint_eq(rps_table_erase(t.table, 1, &key), 1);
    }
    expect_same(t.table, plain);
    rps_table_destroy(plain);
    finish(&t);
}
END_TEST

START_TEST(a_row_that_is_looked_up_comes_back)
{
    struct tiered t;
    uint64_t keys[1000];
    float rows[1000 * DIM];
    uint64_t hits = 0;

    start(&t, 12 * MIB, 0, RPS_ON_FULL_REFUSE);
    push_range(t.table, 1, 0, 200000);
    maintain(t.table, 1);
    for (uint64_t i = 0; i < 1000; i++) {
        keys[i] = i * 7;
    }
    for (unsigned pass = 0; pass < 4; pass++) {
        const uint64_t before = stats_of(t.table).disk_hits;
        look_up(t.table, 1000, keys, true, rows, DIM * sizeof(float));
        hits = stats_of(t.table).disk_hits - before;
        if (pass == 0) {
            ck_assert_uint_gt(hits, 100);
        }
        maintain(t.table, 2 + pass);
    }
    ck_assert_uint_lt(hits, 20);
    finish(&t);
}
END_TEST

START_TEST(a_disk_that_is_full_leaves_on_full_to_decide)
{
    struct tiered t;
    uint64_t keys[256];
    rps_status status = RPS_OK;

    start(&t, 12 * MIB, 4 * MIB, RPS_ON_FULL_REFUSE);
    for (uint64_t first = 0; status == RPS_OK && first < 1000000;
            first += 256) {
        for (size_t i = 0; i < 256; i++) {
            keys[i] = first + i;
        }
        status = push_some(t.table, 1, keys, 256);
    }
    ck_assert_int_eq(status, RPS_E_LIMIT);
    ck_assert_uint_le(atomic_load(&t.disk.used), 4 * MIB);
    ck_assert_uint_gt(stats_of(t.table).disk_rows, 10000);
    finish(&t);
    start(&t, 12 * MIB, 4 * MIB, RPS_ON_FULL_EVICT_LRU);
    push_range(t.table, 1, 0, 300000);
    ck_assert_uint_gt(stats_of(t.table).evicted_full, 10000);
    ck_assert_uint_gt(stats_of(t.table).disk_rows, 10000);
    finish(&t);
}
END_TEST

/* Nothing of the memory is left for it: not even a first chunk a shard. */
START_TEST(a_table_whose_memory_others_have_lies_on_the_disk)
{
    struct rps_table *plain = table_new(DIM, RPS_OPTIMIZER_ADAGRAD);
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_ADAGRAD);
    struct rps_error error = {.text = ""};
    struct rps_table *second = NULL;
    struct tiered t;

    start(&t, 0, 0, RPS_ON_FULL_REFUSE);
    snprintf(spec.name, sizeof(spec.name), "second");
    ck_assert_int_eq(
            rps_store_open_table(t.store, &spec, &second, &error), RPS_OK);
    atomic_store(&t.memory.limit, 10 * MIB);
    push_range(t.table, 1, 0, 100000);
    push_range(second, 1, 0, 30000);
    ck_assert_uint_eq(stats_of(t.table).rows, 100000);
    ck_assert_uint_eq(stats_of(second).rows, 30000);
    ck_assert_uint_gt(stats_of(second).disk_rows, 20000);
    ck_assert_uint_eq(stats_of(second).dropped, 0);
    push_range(plain, 1, 0, 100000);
    expect_same(t.table, plain);
    rps_table_destroy(plain);
    finish(&t);
}
END_TEST

struct sum {
    struct rps_digest digest;
    uint64_t rows;
};

static rps_status
add_row(void *context, const struct rps_row_view *row)
{
    struct sum *sum = context;

    rps_digest_add(&sum->digest,
            rps_digest_row(row->key, row->value, DIM * sizeof(float),
                    row->slots, DIM * sizeof(float),
                    (uint8_t)RPS_META_USES(row->meta),
                    RPS_META_LAST(row->meta)));
    sum->rows++;
    return RPS_OK;
}

/* Rows go down and come back while a cut is read. */
struct churn {
    struct rps_table *table;
    _Atomic bool stop;
};

static void *
churn(void *context)
{
    struct churn *c = context;
    struct rps_evict_report report = {.full = 0};
    uint64_t keys[64];
    float rows[64 * DIM];

    for (uint64_t i = 0; !atomic_load(&c->stop); i++) {
        for (size_t k = 0; k < 64; k++) {
            keys[k] = rps_mix64(i * 64 + k) % 200000;
        }
        ck_assert_int_eq(push_some(c->table, i + 2, keys, 64), RPS_OK);
        look_up(c->table, 64, keys, true, rows, DIM * sizeof(float));
        (void)rps_table_maintain(
                c->table, (struct rps_now){.step = i + 2}, 500, &report);
    }
    return NULL;
}

START_TEST(a_cut_has_the_rows_of_both_tiers)
{
    const struct rps_cut_aside none = {.put = NULL};
    struct rps_error error = {.text = ""};
    struct rps_cut *cut = NULL;
    struct churn c = {.stop = false};
    struct sum sum = {.rows = 0};
    struct rps_digest wanted;
    pthread_t thread;
    struct tiered t;

    start(&t, 12 * MIB, 0, RPS_ON_FULL_EVICT_LRU);
    push_range(t.table, 1, 0, 200000);
    maintain(t.table, 1);
    wanted = rps_table_digest(t.table);
    ck_assert_int_eq(rps_cut_take(t.store, (struct rps_now){.step = 1},
                             512 * MIB, &cut, &error),
            RPS_OK);
    c.table = t.table;
    ck_assert_int_eq(pthread_create(&thread, NULL, churn, &c), 0);
    rps_cut_begin(cut);
    ck_assert_uint_eq(rps_cut_choose(cut, 0, false), 200000);
    ck_assert_int_eq(
            rps_cut_visit(cut, 0, &none, add_row, &sum, &error), RPS_OK);
    atomic_store(&c.stop, true);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(sum.rows, 200000);
    ck_assert(sum.digest.low == wanted.low && sum.digest.high == wanted.high);
    rps_cut_commit(cut);
    finish(&t);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("tier");
    TCase *tc = tcase_create("tier");
    TCase *threads = tcase_create("threads");

    tcase_set_timeout(tc, 120);
    tcase_set_timeout(threads, 120);
    tcase_add_loop_test(
            tc, a_table_beyond_its_memory_is_the_table_that_it_would_be, 0, 3);
    tcase_add_test(tc, a_row_that_is_looked_up_comes_back);
    tcase_add_test(tc, a_disk_that_is_full_leaves_on_full_to_decide);
    tcase_add_test(tc, a_table_whose_memory_others_have_lies_on_the_disk);
    tcase_add_test(threads, a_cut_has_the_rows_of_both_tiers);
    suite_add_single_threaded(suite, tc);
    suite_add_tcase(suite, threads);
    return run_suite(suite);
}
