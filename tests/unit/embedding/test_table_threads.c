/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes and lookups side by side: no step is lost, no row is torn. */
#include "tests/unit/embedding/fixture.h"

#include <pthread.h>

#define DIM    32u
#define KEYS   64u
#define PUSHES 2000u

/* sgd at rate 1 from zeros: each column counts the pushes of -1. */
static struct rps_table *
counting_table(void)
{
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_SGD);

    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.learning_rate = 1.0f;
    return table_of(&spec);
}

static void *
push_one_key(void *context)
{
    const uint64_t key = UINT64_MAX;
    float minus[DIM];

    for (size_t j = 0; j < DIM; j++) {
        minus[j] = -1.0f;
    }
    for (uint64_t step = 1; step <= PUSHES; step++) {
        push(context, step, 1, &key, minus);
    }
    return NULL;
}

START_TEST(two_threads_pushing_one_key_lose_no_step)
{
    struct rps_table *table = counting_table();
    struct rps_table_stats stats;
    pthread_t other;
    float row[DIM];

    ck_assert_int_eq(pthread_create(&other, NULL, push_one_key, table), 0);
    push_one_key(table);
    pthread_join(other, NULL);
    read_row(table, UINT64_MAX, row);
    for (size_t j = 0; j < DIM; j++) {
        ck_assert_float_eq(row[j], (float)(2 * PUSHES));
    }
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.pushes, 2 * PUSHES);
    ck_assert_uint_eq(stats.rows, 1);
    rps_table_destroy(table);
}
END_TEST

struct storm {
    struct rps_table *table;
    uint64_t base; /* keys that this thread alone creates start here */
    _Atomic bool *over;
};

/* Each push: all shared keys, and KEYS new ones, so that shards grow. */
static void *
push_storm(void *context)
{
    const struct storm *storm = context;
    float gradients[2 * KEYS * DIM];
    uint64_t keys[2 * KEYS];

    for (size_t i = 0; i < 2 * KEYS * DIM; i++) {
        gradients[i] = -1.0f;
    }
    for (uint64_t step = 1; step <= 200; step++) {
        for (uint64_t i = 0; i < KEYS; i++) {
            keys[i] = i;
            keys[KEYS + i] = storm->base + step * KEYS + i;
        }
        push(storm->table, step, (size_t)2 * KEYS, keys, gradients);
    }
    return NULL;
}

static void *
read_storm(void *context)
{
    const struct storm *storm = context;
    float rows[KEYS * DIM];
    uint32_t positions[KEYS];
    uint64_t keys[KEYS];
    size_t torn = 0;

    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
    }
    while (!*storm->over) {
        look_up(storm->table, KEYS, keys, false, rows, DIM * sizeof(*rows));
        for (size_t i = 0; i < KEYS * DIM; i++) {
            torn += rows[i] != rows[i / DIM * DIM];
        }
        rps_table_changed(storm->table, KEYS, keys, 0, positions, rows);
        rps_table_digest(storm->table);
    }
    ck_assert_uint_eq(torn, 0);
    return NULL;
}

START_TEST(readers_beside_writers_see_whole_rows)
{
    struct rps_table *table = counting_table();
    _Atomic bool over = false;
    struct storm storms[3] = {{table, 1000000, &over}, {table, 2000000, &over},
            {table, 0, &over}};
    pthread_t threads[3];
    float row[DIM];

    ck_assert_int_eq(
            pthread_create(&threads[0], NULL, push_storm, &storms[0]), 0);
    ck_assert_int_eq(
            pthread_create(&threads[1], NULL, push_storm, &storms[1]), 0);
    ck_assert_int_eq(
            pthread_create(&threads[2], NULL, read_storm, &storms[2]), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    over = true;
    pthread_join(threads[2], NULL);
    ck_assert_uint_eq(rows_of(table), KEYS + 2 * 200 * KEYS);
    read_row(table, KEYS - 1, row);
    ck_assert_float_eq(row[0], 400.0f);
    rps_table_destroy(table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_threads");
    TCase *threads = tcase_create("threads");

    tcase_set_timeout(threads, 240);
    tcase_add_test(threads, two_threads_pushing_one_key_lose_no_step);
    tcase_add_test(threads, readers_beside_writers_see_whole_rows);
    suite_add_tcase(suite, threads);
    return run_suite(suite);
}
