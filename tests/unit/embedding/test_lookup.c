/* SPDX-License-Identifier: Apache-2.0 */
/* Every size of a lookup, of which some go shard by shard and some by windows
 * of several shards: values are derived from the keys. */
#include "base/hash.h"
#include "tests/unit/embedding/fixture.h"

#include <stdatomic.h>

#define DIM      4u
#define ROWS     12000u
#define KEYS_MAX 600u
#define UNTOLD   7777.0f

static struct rps_table *table;

/* Keys 0 .. ROWS - 1 have rows, higher ones have none. */
static void
value_of(uint64_t key, float row[DIM])
{
    if (key >= ROWS) {
        rps_table_first_value(table, key, row);
        return;
    }
    for (unsigned j = 0; j < DIM; j++) {
        row[j] = (float)(key * DIM + j);
    }
}

static void
fill(void)
{
    table = table_new(DIM, RPS_OPTIMIZER_ADAGRAD);
    for (uint64_t key = 0; key < ROWS; key++) {
        float row[DIM];
        value_of(key, row);
        ck_assert_int_eq(
                rps_table_assign(table, 1, &key, row, NULL, NULL, NULL),
                RPS_OK);
    }
}

static void
empty(void)
{
    rps_table_destroy(table);
}

/* And nothing is written behind them. Returns how many have no row. */
static uint64_t
assert_read(size_t n, const uint64_t *keys)
{
    static float rows[(KEYS_MAX + 1) * DIM];
    uint64_t absent = 0;

    for (size_t i = 0; i < (n + 1) * DIM; i++) {
        rows[i] = UNTOLD;
    }
    look_up(table, n, keys, false, rows, DIM * sizeof(float));
    for (size_t i = 0; i < n; i++) {
        float expected[DIM];
        value_of(keys[i], expected);
        ck_assert_mem_eq(rows + i * DIM, expected, sizeof(expected));
        absent += keys[i] >= ROWS;
    }
    ck_assert_float_eq(rows[n * DIM], UNTOLD);
    return absent;
}

/* Some of each, one of them twice, anywhere. */
static void
draw_keys(size_t n, uint64_t seed, uint64_t *keys)
{
    for (size_t i = 0; i < n; i++) {
        keys[i] = rps_mix64(seed * KEYS_MAX + i) % (ROWS + ROWS / 4);
    }
    if (n > 1) {
        keys[n - 1] = keys[0];
    }
}

START_TEST(a_lookup_of_any_size_reads_each_key)
{
    uint64_t keys[KEYS_MAX];
    struct rps_table_stats before;
    struct rps_table_stats after;
    uint64_t absent = 0;
    uint64_t sum = 0;

    rps_table_stats_of(table, &before);
    for (size_t n = 0; n <= KEYS_MAX; n++) {
        draw_keys(n, n + 1, keys);
        absent += assert_read(n, keys);
        sum += n;
    }
    rps_table_stats_of(table, &after);
    ck_assert_uint_eq(after.lookups - before.lookups, sum);
    ck_assert_uint_eq(after.missing - before.missing, absent);
}
END_TEST

START_TEST(few_keys_may_all_be_of_one_shard)
{
    uint64_t keys[KEYS_MAX];
    size_t n = 0;

    for (uint64_t i = 0; n < 200; i++) {
        const uint64_t key = i * 7919 % (ROWS + ROWS / 4);
        if (rps_table_shard_of(table, rps_key_hash(key, 0)) == 5) {
            keys[n++] = key;
        }
    }
    for (size_t count = 1; count <= n; count++) {
        (void)assert_read(count, keys);
    }
}
END_TEST

static _Atomic bool over;

/* Holds one shard after the other. */
static void *
hold(void *unused)
{
    (void)unused;
    while (!atomic_load(&over)) {
        for (size_t s = 0; s < table->shard_count; s++) {
            rps_shard_lock(&table->shards[s]);
            for (volatile int i = 0; i < 300; i = i + 1) {
            }
            pthread_mutex_unlock(&table->shards[s].lock);
        }
    }
    return NULL;
}

START_TEST(keys_of_shards_that_are_busy_are_read_as_well)
{
    uint64_t keys[KEYS_MAX];
    pthread_t thread;

    atomic_store(&over, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, hold, NULL), 0);
    for (uint64_t seed = 0; seed < 300; seed++) {
        const size_t n = 1 + seed * 7 % 256;
        draw_keys(n, seed, keys);
        (void)assert_read(n, keys);
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("lookup");
    TCase *tc = tcase_create("lookup");

    tcase_add_checked_fixture(tc, fill, empty);
    tcase_add_test(tc, a_lookup_of_any_size_reads_each_key);
    tcase_add_test(tc, few_keys_may_all_be_of_one_shard);
    tcase_add_test(tc, keys_of_shards_that_are_busy_are_read_as_well);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
