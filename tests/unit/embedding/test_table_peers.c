/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong in systems that do the same job, as the right behaviour.
 * Each test names the system and its issue; tests/README.md lists them all,
 * also those that stand in other files.
 */
#include "base/spec.h"
#include "tests/unit/embedding/pattern.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

static const uint64_t reserved_elsewhere[] = {0, 1, 2, UINT64_MAX,
        UINT64_MAX - 1, UINT64_MAX - 2, UINT64_MAX - 4, INT64_MAX,
        UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1};
#define RESERVED (sizeof(reserved_elsewhere) / sizeof(reserved_elsewhere[0]))

/* A read_only lookup finds the key, and its row is right. */
static bool
holds(struct rps_table *table, uint64_t key)
{
    float row[PATTERN_DIM];

    look_up(table, 1, &key, true, row, sizeof(row));
    return pattern_row_is_right(table, key, row);
}

static void
push_range(struct rps_table *table, uint64_t first, uint64_t count)
{
    uint64_t keys[4096];

    for (uint64_t at = 0; at < count;) {
        const size_t n =
                count - at < 4096 ? (size_t)(count - at) : (size_t)4096;
        for (size_t i = 0; i < n; i++) {
            keys[i] = first + at + i;
        }
        pattern_push(table, 1, n, keys);
        at += n;
    }
}

static uint64_t
bytes_of(struct rps_table *table)
{
    struct rps_table_stats stats;

    rps_table_stats_of(table, &stats);
    return stats.bytes;
}

/* DeepRec 1003: a lookup of -1, -2, -5 hangs, as they mean empty and deleted.
 * HugeCTR 432: core dump when the data has -1 and -2. */
START_TEST(keys_that_others_reserve_are_stored_first)
{
    const rps_table_spec spec = pattern_spec(_i);
    struct rps_table *table = table_of(&spec);

    for (size_t i = 0; i < RESERVED; i++) {
        float row[PATTERN_DIM];
        look_up(table, 1, &reserved_elsewhere[i], true, row, sizeof(row));
        ck_assert(pattern_is_absent(row));
        pattern_push(table, 1, 1, &reserved_elsewhere[i]);
        ck_assert(holds(table, reserved_elsewhere[i]));
        ck_assert_uint_eq(rows_of(table), i + 1);
    }
    push_range(table, 1000, 50000);
    for (size_t i = 0; i < RESERVED; i++) {
        ck_assert(holds(table, reserved_elsewhere[i]));
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(keys_that_others_reserve_are_stored_last)
{
    const rps_table_spec spec = pattern_spec(_i);
    struct rps_table *table = table_of(&spec);

    push_range(table, 1000, 50000);
    pattern_push(table, 1, RESERVED, reserved_elsewhere);
    for (size_t i = 0; i < RESERVED; i++) {
        ck_assert(holds(table, reserved_elsewhere[i]));
    }
    ck_assert_uint_eq(rows_of(table), 50000 + RESERVED);
    rps_table_destroy(table);
}
END_TEST

/* The same reports: also a key that was deleted and comes back. */
START_TEST(keys_that_others_reserve_may_be_erased_and_come_back)
{
    const rps_table_spec spec = pattern_spec(_i);
    struct rps_table *table = table_of(&spec);

    push_range(table, 1000, 5000);
    for (int turn = 0; turn < 3; turn++) {
        pattern_push(table, 1, RESERVED, reserved_elsewhere);
        ck_assert_uint_eq(
                rps_table_erase(table, RESERVED, reserved_elsewhere), RESERVED);
        ck_assert_uint_eq(
                rps_table_erase(table, RESERVED, reserved_elsewhere), 0);
        for (size_t i = 0; i < RESERVED; i++) {
            ck_assert(!holds(table, reserved_elsewhere[i]));
        }
        ck_assert_uint_eq(rows_of(table), 5000);
    }
    pattern_push(table, 1, RESERVED, reserved_elsewhere);
    for (size_t i = 0; i < RESERVED; i++) {
        const struct seen_row seen =
                see(table, reserved_elsewhere[i], rps_spec_slot_floats(&spec));
        ck_assert(seen.found); /* fresh: one push, in value and slots */
        ck_assert_int_eq(pattern_counts(table)
                                 ? pattern_count(seen.key, seen.content)
                                 : pattern_slot_count(seen.key,
                                           seen.content + PATTERN_DIM),
                1);
        ck_assert_uint_eq(RPS_META_USES(seen.meta), 1);
    }
    rps_table_destroy(table);
}
END_TEST

/* HugeCTR 76 and 104: evaluation meets a key that training never saw, an
 * assertion fires, the job is dead. */
START_TEST(an_unseen_key_in_evaluation_is_counted_and_creates_nothing)
{
    const rps_table_spec spec = pattern_spec(_i);
    struct rps_table *table = table_of(&spec);
    struct rps_table_stats stats;

    push_range(table, 1000, 10);
    for (uint64_t key = 1005; key < 1020; key++) {
        float row[PATTERN_DIM];
        look_up(table, 1, &key, true, row, sizeof(row));
        ck_assert(pattern_is_absent(row) == (key >= 1010));
    }
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.rows, 10);
    ck_assert_uint_eq(stats.lookups, 15);
    ck_assert_uint_eq(stats.missing, 10);
    rps_table_destroy(table);
}
END_TEST

/* value and slots of one key after a push of these gradients */
static struct seen_row
row_after(const rps_table_spec *spec, size_t n, const float *gradients)
{
    const uint64_t keys[3] = {8, 8, 8};
    const float before[4] = {0.25f, -0.5f, 0.125f, 1.0f};
    struct rps_table *table = table_of(spec);
    struct seen_row seen;

    push(table, 1, 1, keys, before);
    push(table, 2, n, keys, gradients);
    seen = see(table, 8, rps_spec_slot_floats(spec));
    rps_table_destroy(table);
    return seen;
}

/* TorchRec 1298: with many duplicates in a batch the result is another than
 * the reference's. Ours: their sum, one step. Powers of two: the sum is
 * exact, so that every bit must agree. */
START_TEST(duplicates_of_a_push_are_their_sum_for_each_optimizer)
{
    const float parts[12] = {1, 2, -4, 0.5f, 8, -1, 2, 0.25f, -2, 1, 1, 4};
    const float sum[4] = {7, 2, -1, 4.75f};
    const rps_table_spec spec = spec_of(4, (enum rps_optimizer)_i);
    struct seen_row apart, summed;

    if (rps_table_spec_check(&spec, NULL, 0) != RPS_OK) {
        return; /* not in this build: test_spec.c says which are */
    }
    apart = row_after(&spec, 3, parts);
    summed = row_after(&spec, 1, sum);
    ck_assert(apart.found && summed.found);
    ck_assert_mem_eq(apart.content, summed.content,
            apart.floats * sizeof(*apart.content));
}
END_TEST

/* TensorFlow Recommenders Addons, pull request 376: the same id comes from
 * two ranks, the insert overwrites, one gradient is lost. */
START_TEST(pushes_of_one_new_key_add_up)
{
    const rps_table_spec spec = pattern_spec(0);
    const uint64_t key = 12;
    struct rps_table *table = table_of(&spec);
    float row[PATTERN_DIM];

    for (int64_t k = 1; k <= 50; k++) {
        pattern_push(table, (uint64_t)(k + 1) / 2, 1, &key);
        read_row(table, key, row);
        ck_assert_int_eq(pattern_count(key, row), k);
    }
    rps_table_destroy(table);
}
END_TEST

#define WRITERS    4u
#define INCREMENTS 1500u

static void *
increment(void *table)
{
    const uint64_t keys[2] = {UINT64_MAX, 4};

    for (uint64_t step = 1; step <= INCREMENTS; step++) {
        pattern_push(table, step, 2, keys);
    }
    return NULL;
}

/* TensorFlow Recommenders Addons, pull request 133: read, add and set race
 * between workers. */
START_TEST(n_threads_times_m_increments_are_exactly_n_m)
{
    const rps_table_spec spec = pattern_spec(0);
    struct rps_table *table = table_of(&spec);
    pthread_t threads[WRITERS];
    float row[PATTERN_DIM];

    for (size_t i = 0; i < WRITERS; i++) {
        ck_assert_int_eq(
                pthread_create(&threads[i], NULL, increment, table), 0);
    }
    for (size_t i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
    }
    read_row(table, 4, row);
    ck_assert_int_eq(pattern_count(4, row), WRITERS * INCREMENTS);
    read_row(table, UINT64_MAX, row);
    ck_assert_int_eq(pattern_count(UINT64_MAX, row), WRITERS * INCREMENTS);
    rps_table_destroy(table);
}
END_TEST

#define ROUNDS (SUITE_TSAN && !suite_is_long() ? 50u : 150u)
#define CROWD  3000u

/* Two updates that create one key: one is refused in the end, as its sum
 * overflows; what the other did must stay. */
struct rivals {
    struct rps_table *table;
    pthread_barrier_t ready;
};

/* Many new keys, so that rows are made before the first one is stepped. */
static void *
push_what_is_refused(void *context)
{
    struct rivals *rivals = context;
    uint64_t *keys = malloc((CROWD + 2) * sizeof(*keys));
    float *gradients = calloc(CROWD + 2, sizeof(*gradients));

    for (uint64_t round = 0; round < ROUNDS; round++) {
        for (size_t i = 0; i < CROWD; i++) {
            keys[i + 2] = (round + 1) << 32 | i;
        }
        keys[0] = keys[1] = round;
        gradients[0] = gradients[1] = 3e38f;
        pthread_barrier_wait(&rivals->ready);
        ck_assert_uint_eq(
                push(rivals->table, 1, CROWD + 2, keys, gradients).nonfinite,
                2);
        pthread_barrier_wait(&rivals->ready);
    }
    free(keys);
    free(gradients);
    return NULL;
}

START_TEST(an_update_that_is_refused_takes_no_step_of_another_back)
{
    rps_table_spec spec = spec_of(1, RPS_OPTIMIZER_SGD);
    struct rps_error error = {.text = ""};
    struct rivals rivals;
    uint64_t lost = 0;
    pthread_t other;

    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.learning_rate = 1.0f;
    ck_assert_int_eq(
            rps_table_create_sharded(&rivals.table, &spec, 0, 2, &error),
            RPS_OK);
    pthread_barrier_init(&rivals.ready, NULL, 2);
    ck_assert_int_eq(
            pthread_create(&other, NULL, push_what_is_refused, &rivals), 0);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        const float minus = -1.0f;
        float row = 0.0f;
        pthread_barrier_wait(&rivals.ready);
        for (uint64_t k = 1; k <= 20; k++) {
            push(rivals.table, 1, 1, &round, &minus);
            read_row(rivals.table, round, &row);
            lost += row != (float)k;
        }
        pthread_barrier_wait(&rivals.ready);
        read_row(rivals.table, round, &row);
        lost += row != 20.0f;
    }
    pthread_join(other, NULL);
    ck_assert_uint_eq(lost, 0);
    pthread_barrier_destroy(&rivals.ready);
    rps_table_destroy(rivals.table);
}
END_TEST

static void *
push_noise(void *table)
{
    uint64_t random = 77;
    uint64_t keys[32];
    float gradients[32 * 4];

    for (uint64_t step = 1; step <= 400; step++) {
        for (size_t i = 0; i < 32 * 4; i++) {
            gradients[i] = random_float(&random) * ldexpf(1.0f, -(int)(i % 40));
            keys[i / 4] = random_next(&random) % 8;
        }
        push(table, step, 32, keys, gradients);
    }
    return NULL;
}

/* The second slot of adam is a mean of squares. */
static rps_status
check_square(void *context, const struct rps_row_view *row)
{
    size_t *wrong = context;

    for (size_t j = 0; j < 4; j++) {
        *wrong += !(row->slots[4 + j] >= 0.0f) ||
                  !isfinite(((const float *)row->value)[j]);
    }
    return RPS_OK;
}

/* DeepRec 797: async Adam reads v twice around another's write, it goes
 * negative, its root is NaN. */
START_TEST(adams_second_moment_is_never_negative_under_races)
{
    struct rps_table *table = table_new(4, RPS_OPTIMIZER_ADAM);
    pthread_t threads[2];
    size_t wrong = 0;

    ck_assert_int_eq(pthread_create(&threads[0], NULL, push_noise, table), 0);
    ck_assert_int_eq(pthread_create(&threads[1], NULL, push_noise, table), 0);
    for (int i = 0; i < 200; i++) {
        rps_table_visit(table, check_square, &wrong);
    }
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    rps_table_visit(table, check_square, &wrong);
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_eq(rows_of(table), 8);
    rps_table_destroy(table);
}
END_TEST

/* TensorFlow Recommenders Addons 429: NaN in the embedding after an async
 * apply. */
START_TEST(a_nan_is_refused_counted_and_its_key_named)
{
    const rps_table_spec spec = spec_of(2, (enum rps_optimizer)_i);
    const uint64_t keys[4] = {1, 2, 3, 4};
    const float gradients[8] = {1, 1, NAN, 1, 1, -INFINITY, 1, 1};
    struct rps_table *table = NULL;
    struct rps_apply_report report;
    struct rps_table_stats stats;
    float row[2];

    if (rps_table_spec_check(&spec, NULL, 0) != RPS_OK) {
        return;
    }
    table = table_of(&spec);
    report = push(table, 1, 4, keys, gradients);
    ck_assert_uint_eq(report.applied, 2);
    ck_assert_uint_eq(report.nonfinite, 2);
    ck_assert_uint_eq(report.nonfinite_key, 2);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.nonfinite, 2);
    ck_assert_uint_eq(stats.rows, 2);
    for (uint64_t key = 1; key <= 4; key++) {
        read_row(table, key, row);
        ck_assert(isfinite(row[0]) && isfinite(row[1]));
    }
    rps_table_destroy(table);
}
END_TEST

/* HierarchicalKV 239: at a full bucket the lock is gone before the vector is
 * written. One shard, so that it passes each load on the way to its growths:
 * whatever the load, every row is right. */
START_TEST(every_row_is_right_at_every_load)
{
    const rps_table_spec spec = pattern_spec(_i);
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;

    ck_assert_int_eq(
            rps_table_create_sharded(&table, &spec, 0, 0, &error), RPS_OK);
    for (uint64_t count = 0; count < 6000; count += 16) {
        push_range(table, 1000, count + 16); /* old ones step as well */
        for (uint64_t key = 1000; key < 1000 + count + 16; key += 7) {
            ck_assert_msg(holds(table, key), "key %llu of %llu",
                    (unsigned long long)key, (unsigned long long)count + 16);
        }
    }
    ck_assert_uint_eq(rows_of(table), 6000);
    rps_table_destroy(table);
}
END_TEST

/* FBGEMM 6328: a short time to live evicts too much, a floor is asked for. */
START_TEST(eviction_leaves_the_rows_that_are_asked_for)
{
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_evict_report report;
    struct rps_table *table = NULL;

    spec.max_cold_steps = 1;
    spec.keep_min_rows = 700;
    table = table_of(&spec);
    for (uint64_t key = 0; key < 1000; key++) {
        const float zeros[4] = {0};
        push(table, 1, 1, &key, zeros);
    }
    rps_table_evict(
            table, (struct rps_now){.step = 1000, .unix_s = 1}, &report);
    ck_assert_uint_eq(rows_of(table), 700);
    ck_assert_uint_eq(report.cold, 300);
    rps_table_evict(
            table, (struct rps_now){.step = 2000, .unix_s = 1}, &report);
    ck_assert_uint_eq(rows_of(table), 700);
    rps_table_destroy(table);
}
END_TEST

/* Idle longer than asked for, strictly: the docs of Rec SDK and its code
 * differ by one. */
START_TEST(a_row_is_cold_only_after_more_than_max_cold_steps)
{
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    const float zeros[4] = {0};
    const uint64_t key = UINT64_MAX;
    struct rps_evict_report report;
    struct rps_table *table = NULL;

    spec.max_cold_steps = 10;
    table = table_of(&spec);
    push(table, 5, 1, &key, zeros);
    rps_table_evict(table, (struct rps_now){.step = 15}, &report);
    ck_assert_uint_eq(rows_of(table), 1);
    rps_table_evict(table, (struct rps_now){.step = 16}, &report);
    ck_assert_uint_eq(rows_of(table), 0);
    ck_assert_uint_eq(report.cold, 1);
    rps_table_destroy(table);
}
END_TEST

/* the table itself, hot keys, three bits a row */
#define BESIDE_BUDGET ((uint64_t)256 << 10)

/* HugeCTR 412 and others: what a table takes is not bounded by anything but
 * the out-of-memory killer. */
START_TEST(a_full_table_refuses_new_keys_and_still_steps_old_ones)
{
    rps_table_spec spec = pattern_spec(_i);
    struct rps_table *table = NULL;
    struct rps_apply_report report;
    struct rps_contribution all;
    const struct rps_update update = {
            .step = 1, .learning_rate = NAN, .scale = 1.0f};
    const uint64_t old = UINT64_MAX;
    uint64_t keys[512];
    float gradients[512 * PATTERN_DIM];
    rps_status status = RPS_OK;
    uint64_t before = 0;

    spec.memory_limit = (uint64_t)16 << 20;
    table = table_of(&spec);
    pattern_push(table, 1, 1, &old);
    for (uint64_t at = 0; status == RPS_OK; at += 512) {
        for (size_t i = 0; i < 512; i++) {
            keys[i] = at + i;
        }
        pattern_gradients(table, 512, keys, gradients);
        all = (struct rps_contribution){
                .count = 512, .keys = keys, .gradients = gradients};
        before = rows_of(table);
        ck_assert_uint_lt(before, 2000000);
        status = rps_table_apply(table, &update, &all, 1, &report);
    }
    ck_assert_int_eq(status, RPS_E_LIMIT);
    ck_assert_uint_eq(rows_of(table), before); /* all of it or nothing */
    ck_assert_uint_le(bytes_of(table), spec.memory_limit + BESIDE_BUDGET);
    ck_assert_uint_gt(before, 50000);
    pattern_push(table, 2, 1, &old);
    ck_assert(holds(table, old));
    rps_table_destroy(table);
}
END_TEST

/* A worker that is behind pushes with its own, earlier step (async): what
 * changed since must not look older for that, nor cold. */
START_TEST(a_late_push_of_an_earlier_step_makes_no_row_older)
{
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    const float ones[4] = {1, 1, 1, 1};
    const uint64_t key = 77;
    struct rps_evict_report report;
    struct rps_table *table = NULL;
    uint32_t position = 9;
    float row[4];

    spec.max_cold_steps = 50;
    table = table_of(&spec);
    push(table, 150, 1, &key, ones);
    push(table, 90, 1, &key, ones);
    ck_assert_uint_eq(
            rps_table_changed(table, 1, &key, 120, &position, row), 1);
    rps_table_evict(table, (struct rps_now){.step = 160}, &report);
    ck_assert_uint_eq(rows_of(table), 1);
    rps_table_destroy(table);
}
END_TEST

/* TensorFlow 38792, PyTorch 4169, FBGEMM 3750: a batch without ids crashes.
 * Empty bags: test_rows.c of the client. */
START_TEST(a_batch_without_keys_is_legal_everywhere)
{
    const rps_table_spec spec = pattern_spec(_i);
    struct rps_table *table = table_of(&spec);
    struct rps_table_stats stats;

    push_range(table, 1000, 3);
    look_up(table, 0, NULL, false, NULL, 0);
    ck_assert_uint_eq(push(table, 2, 0, NULL, NULL).applied, 0);
    ck_assert_int_eq(
            rps_table_assign(table, 0, NULL, NULL, NULL, NULL, NULL), RPS_OK);
    ck_assert_uint_eq(rps_table_changed(table, 0, NULL, 0, NULL, NULL), 0);
    ck_assert_int_eq(rps_table_check_keys(table, 0, NULL, NULL), RPS_OK);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.rows, 3);
    ck_assert_uint_eq(stats.pushes, 2);
    rps_table_destroy(table);
}
END_TEST

static TCase *
semantics(void)
{
    TCase *rules = tcase_create("semantics");

    tcase_set_timeout(rules, 300);
    tcase_add_loop_test(
            rules, keys_that_others_reserve_are_stored_first, 0, PATTERN_KINDS);
    tcase_add_loop_test(
            rules, keys_that_others_reserve_are_stored_last, 0, PATTERN_KINDS);
    tcase_add_loop_test(rules,
            keys_that_others_reserve_may_be_erased_and_come_back, 0,
            PATTERN_KINDS);
    tcase_add_test(rules, eviction_leaves_the_rows_that_are_asked_for);
    tcase_add_test(rules, a_row_is_cold_only_after_more_than_max_cold_steps);
    tcase_add_test(rules, a_late_push_of_an_earlier_step_makes_no_row_older);
    tcase_add_loop_test(rules,
            a_full_table_refuses_new_keys_and_still_steps_old_ones, 0,
            PATTERN_KINDS);
    tcase_add_loop_test(rules,
            an_unseen_key_in_evaluation_is_counted_and_creates_nothing, 0,
            PATTERN_KINDS);
    tcase_add_loop_test(rules,
            duplicates_of_a_push_are_their_sum_for_each_optimizer, 0,
            RPS_OPTIMIZER_COUNT);
    tcase_add_test(rules, pushes_of_one_new_key_add_up);
    tcase_add_loop_test(rules, a_nan_is_refused_counted_and_its_key_named, 0,
            RPS_OPTIMIZER_COUNT);
    tcase_add_loop_test(
            rules, every_row_is_right_at_every_load, 0, PATTERN_KINDS);
    tcase_add_loop_test(
            rules, a_batch_without_keys_is_legal_everywhere, 0, PATTERN_KINDS);
    return rules;
}

static TCase *
races(void)
{
    TCase *races = tcase_create("races");

    tcase_set_timeout(races, 300);
    tcase_add_test(races, n_threads_times_m_increments_are_exactly_n_m);
    tcase_add_test(
            races, an_update_that_is_refused_takes_no_step_of_another_back);
    tcase_add_test(races, adams_second_moment_is_never_negative_under_races);
    return races;
}

int
main(void)
{
    Suite *suite = suite_create("table_peers");

    suite_add_single_threaded(suite, semantics());
    suite_add_tcase(suite, races());
    return run_suite(suite);
}
