/* SPDX-License-Identifier: Apache-2.0 */
/* Pushes, lookups, erases, scans and upkeep of one table at once: a row that
 * is read is always its key's first value, as gradients are 0. */
#include "tests/unit/embedding/policy.h"
#include "tests/unit/suite.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    KEYS = 60000,
    PUSHES = SUITE_TSAN ? 250 : 400, /* the table is full after 200 */
    BATCH = 256,
    DIM = 64
};

struct storm {
    struct rps_table *table;
    _Atomic uint64_t step;
    atomic_bool over;
    _Atomic uint64_t pushers;
    _Atomic uint64_t wrong;
};

static void *
push_keys(void *context)
{
    static const float zeros[BATCH * DIM];
    struct storm *storm = context;
    uint64_t random = 99 + atomic_fetch_add(&storm->pushers, 1);
    uint64_t keys[BATCH];

    for (int i = 0; i < PUSHES; i++) {
        const struct rps_update update = {
                .step = atomic_fetch_add(&storm->step, 1) + 1,
                .t = 1,
                .learning_rate = NAN,
                .scale = 1.0f,
                .drop_new = i % 2 == 0};
        const struct rps_contribution contribution = {
                .count = BATCH, .keys = keys, .gradients = zeros};
        struct rps_apply_report report;
        for (size_t k = 0; k < BATCH; k++) {
            keys[k] = random_next(&random) % KEYS;
        }
        if (rps_table_apply(storm->table, &update, &contribution, 1, &report) !=
                RPS_OK) {
            atomic_fetch_add(&storm->wrong, 1);
        }
    }
    return NULL;
}

static void *
look_up_keys(void *context)
{
    struct storm *storm = context;
    uint64_t random = 77;
    uint64_t keys[BATCH];
    float rows[BATCH][DIM];
    float first[DIM];
    uint32_t positions[BATCH];

    while (!atomic_load(&storm->over)) {
        for (size_t k = 0; k < BATCH; k++) {
            keys[k] = random_next(&random) % KEYS;
        }
        look_up(storm->table, BATCH, keys, false, &rows[0][0], sizeof(rows[0]));
        for (size_t k = 0; k < BATCH; k++) {
            rps_table_first_value(storm->table, keys[k], first);
            if (memcmp(rows[k], first, sizeof(first)) != 0 &&
                    rows[k][0] != 7.0f) { /* default_value: not admitted */
                atomic_fetch_add(&storm->wrong, 1);
            }
        }
        rps_table_changed(storm->table, BATCH, keys,
                atomic_load(&storm->step) / 2, positions, &rows[0][0]);
    }
    return NULL;
}

static void *
keep_up(void *context)
{
    struct storm *storm = context;
    struct rps_evict_report report = {.cold = 0};
    struct rps_hot_key hot[10];
    struct rps_scan_cursor cursor = {.place = 0};
    uint64_t random = 5;
    uint64_t keys[64];

    while (!atomic_load(&storm->over)) {
        (void)rps_table_maintain(storm->table,
                (struct rps_now){.step = atomic_load(&storm->step)}, 64,
                &report);
        for (size_t k = 0; k < 8; k++) {
            keys[k] = random_next(&random) % KEYS;
        }
        rps_table_erase(storm->table, 8, keys);
        if (rps_table_scan(storm->table, &cursor, 64, keys, NULL) == 0) {
            cursor = (struct rps_scan_cursor){.place = 0};
        }
        (void)rps_table_hot_keys(storm->table, 10, hot);
        stats_of(storm->table);
    }
    return NULL;
}

START_TEST(rows_stay_whole_whatever_runs_beside)
{
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_SGD);
    struct storm storm = {.wrong = 0};
    pthread_t threads[4];

    spec.memory_limit = (uint64_t)(_i == 0 ? 8 : 8 + 33) << 20;
    spec.on_full = _i == 0 ? RPS_ON_FULL_EVICT_LRU : RPS_ON_FULL_EVICT_LFU;
    spec.max_cold_steps = 300;
    spec.min_used_times = 2;
    spec.admission = (enum rps_admission)_i;
    spec.default_value = 7.0f;
    storm.table = table_of(&spec);
    ck_assert_int_eq(pthread_create(&threads[0], NULL, push_keys, &storm), 0);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, push_keys, &storm), 0);
    ck_assert_int_eq(
            pthread_create(&threads[2], NULL, look_up_keys, &storm), 0);
    ck_assert_int_eq(pthread_create(&threads[3], NULL, keep_up, &storm), 0);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    atomic_store(&storm.over, true);
    pthread_join(threads[2], NULL);
    pthread_join(threads[3], NULL);
    ck_assert_uint_eq(atomic_load(&storm.wrong), 0);
    ck_assert_uint_gt(stats_of(storm.table).evicted_full, 1000);
    rps_table_destroy(storm.table);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("policy_threads");
    TCase *tc = tcase_create("policy_threads");

    tcase_set_timeout(tc, 300);
    tcase_add_loop_test(tc, rows_stay_whole_whatever_runs_beside, 0, 2);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
