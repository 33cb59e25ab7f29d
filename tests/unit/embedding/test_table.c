/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "tests/unit/embedding/fixture.h"

#define DIM 4u

static const uint64_t special_keys[] = {0, 1, UINT64_MAX, UINT64_MAX - 1,
        UINT64_MAX - 2, (uint64_t)1 << 63, ((uint64_t)1 << 63) - 1,
        ((uint64_t)1 << 63) + 1, 0xffffffffu, (uint64_t)1 << 32};
#define SPECIAL (sizeof(special_keys) / sizeof(special_keys[0]))

/* A row that tells its key: four halves of 16 bits. */
static void
row_of_key(uint64_t key, float row[DIM])
{
    for (unsigned j = 0; j < DIM; j++) {
        row[j] = (float)(key >> (16 * j) & 0xffff);
    }
}

static void
assign_key(struct rps_table *table, uint64_t key)
{
    float row[DIM];

    row_of_key(key, row);
    ck_assert_int_eq(
            rps_table_assign(table, 1, &key, row, NULL, NULL, NULL), RPS_OK);
}

static void
assert_holds(struct rps_table *table, uint64_t key)
{
    float expected[DIM];
    float row[DIM];

    row_of_key(key, expected);
    read_row(table, key, row);
    ck_assert_mem_eq(row, expected, sizeof(row));
}

START_TEST(every_key_can_be_stored_first_last_and_again)
{
    for (size_t first = 0; first < SPECIAL; first++) {
        struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_SGD);
        assign_key(table, special_keys[first]);
        for (uint64_t key = 1000; key < 3000; key++) {
            assign_key(table, key);
        }
        for (size_t i = 0; i < SPECIAL; i++) {
            assign_key(table, special_keys[i]);
        }
        assign_key(table, special_keys[first]);
        for (size_t i = 0; i < SPECIAL; i++) {
            assert_holds(table, special_keys[i]);
        }
        ck_assert_uint_eq(rows_of(table), 2000 + SPECIAL);
        rps_table_destroy(table);
    }
}
END_TEST

START_TEST(every_key_can_be_pushed)
{
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_SGD);
    float gradients[SPECIAL * DIM];

    for (size_t i = 0; i < SPECIAL * DIM; i++) {
        gradients[i] = (float)i;
    }
    ck_assert_uint_eq(
            push(table, 1, SPECIAL, special_keys, gradients).applied, SPECIAL);
    for (size_t i = 0; i < SPECIAL; i++) {
        float first[DIM];
        float row[DIM];
        rps_table_first_value(table, special_keys[i], first);
        read_row(table, special_keys[i], row);
        for (size_t j = 0; j < DIM; j++) {
            const float step = 0.01f * gradients[i * DIM + j];
            ck_assert_float_eq(row[j], first[j] - step);
        }
    }
    rps_table_destroy(table);
}
END_TEST

START_TEST(lookup_creates_nothing_and_answers_the_first_value)
{
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_ADAGRAD);
    struct rps_table_stats stats;
    const struct rps_digest nothing = {0};
    struct rps_digest digest;
    float before[DIM];
    float after[DIM];

    for (int i = 0; i < 3; i++) {
        read_row(table, 77, before);
    }
    rps_table_first_value(table, 77, after);
    ck_assert_mem_eq(before, after, sizeof(before));
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.rows, 0);
    ck_assert_uint_eq(stats.inserted, 0);
    ck_assert_uint_eq(stats.lookups, 3);
    ck_assert_uint_eq(stats.missing, 3);
    digest = rps_table_digest(table);
    ck_assert_mem_eq(&digest, &nothing, sizeof(digest));
    rps_table_destroy(table);
}
END_TEST

START_TEST(read_only_lookup_of_an_absent_key_answers_the_default)
{
    const uint64_t keys[2] = {5, 6};
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_SGD);
    struct rps_table *table = NULL;
    struct rps_table_stats stats;
    float rows[2 * DIM];

    spec.default_value = 2.5f;
    table = table_of(&spec);
    assign_key(table, 6);
    look_up(table, 2, keys, true, rows, DIM * sizeof(float));
    for (size_t j = 0; j < DIM; j++) {
        ck_assert_float_eq(rows[j], 2.5f);
    }
    ck_assert_float_eq(rows[DIM], 6.0f);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.rows, 1);
    ck_assert_uint_eq(stats.missing, 1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(lookup_leaves_what_lies_between_strided_rows)
{
    const uint64_t keys[3] = {1, 2, 1};
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_SGD);
    float rows[3 * (DIM + 1)];
    float expected[DIM];

    assign_key(table, 1);
    for (size_t i = 0; i < 3 * (DIM + 1); i++) {
        rows[i] = -9.0f;
    }
    look_up(table, 3, keys, false, rows, (DIM + 1) * sizeof(float));
    row_of_key(1, expected);
    ck_assert_mem_eq(rows, expected, sizeof(expected));
    ck_assert_mem_eq(rows + 2 * (DIM + 1), expected, sizeof(expected));
    rps_table_first_value(table, 2, expected);
    ck_assert_mem_eq(rows + DIM + 1, expected, sizeof(expected));
    for (size_t i = 0; i < 3; i++) {
        ck_assert_float_eq(rows[i * (DIM + 1) + DIM], -9.0f);
    }
    rps_table_destroy(table);
}
END_TEST

#define GROWTH_KEYS 1000000u
#define GROWTH_PART 50000u

/* Keys that spread over all 64 bits: an odd factor is a bijection. */
static uint64_t
growth_key(uint64_t i)
{
    return i * UINT64_C(0x9e3779b97f4a7c15);
}

static void
grow(struct rps_table *table)
{
    uint64_t *keys = malloc(GROWTH_PART * sizeof(*keys));
    float *rows = malloc(GROWTH_PART * DIM * sizeof(*rows));

    for (uint64_t base = 0; base < GROWTH_KEYS; base += GROWTH_PART) {
        for (uint64_t i = 0; i < GROWTH_PART; i++) {
            keys[i] = growth_key(base + i);
            row_of_key(keys[i], rows + i * DIM);
        }
        ck_assert_int_eq(rps_table_assign(table, GROWTH_PART, keys, rows, NULL,
                                 NULL, NULL),
                RPS_OK);
        assert_holds(table, growth_key(0));
        assert_holds(table, growth_key(base / 2 + 1));
    }
    free(keys);
    free(rows);
}

START_TEST(growth_to_a_million_keys_keeps_every_one)
{
    struct rps_table *table = table_new(DIM, RPS_OPTIMIZER_SGD);
    uint64_t *keys = malloc(GROWTH_KEYS * sizeof(*keys));
    float *rows = malloc(GROWTH_KEYS * DIM * sizeof(*rows));
    struct rps_table_stats stats;
    size_t wrong = 0;

    grow(table);
    for (uint64_t i = 0; i < GROWTH_KEYS; i++) {
        keys[i] = growth_key(GROWTH_KEYS - 1 - i);
    }
    look_up(table, GROWTH_KEYS, keys, true, rows, DIM * sizeof(float));
    for (uint64_t i = 0; i < GROWTH_KEYS; i++) {
        float expected[DIM];
        row_of_key(keys[i], expected);
        wrong += memcmp(rows + i * DIM, expected, sizeof(expected)) != 0;
    }
    ck_assert_uint_eq(wrong, 0);
    rps_table_stats_of(table, &stats);
    ck_assert_uint_eq(stats.rows, GROWTH_KEYS);
    ck_assert_uint_eq(stats.missing, 0);
    ck_assert_uint_ge(stats.bytes, GROWTH_KEYS * (DIM * 4 + 16));
    ck_assert_uint_le(stats.bytes, GROWTH_KEYS * (DIM * 4 + 16) * 4);
    free(keys);
    free(rows);
    rps_table_destroy(table);
}
END_TEST

START_TEST(rows_wider_than_a_chunk_are_kept_too)
{
    struct rps_table *table = table_new(RPS_DIM_MAX, RPS_OPTIMIZER_ADAM);
    float *row = malloc(RPS_DIM_MAX * sizeof(*row));

    for (uint64_t key = 0; key < 100; key++) {
        for (size_t j = 0; j < RPS_DIM_MAX; j++) {
            row[j] = (float)(key * 10000 + j);
        }
        ck_assert_int_eq(
                rps_table_assign(table, 1, &key, row, NULL, NULL, NULL),
                RPS_OK);
    }
    for (uint64_t key = 0; key < 100; key++) {
        read_row(table, key, row);
        ck_assert_float_eq(row[0], (float)(key * 10000));
        ck_assert_float_eq(
                row[RPS_DIM_MAX - 1], (float)(key * 10000 + RPS_DIM_MAX - 1));
    }
    free(row);
    rps_table_destroy(table);
}
END_TEST

/* A server's keys share the top bits of their hash: shards must not. */
START_TEST(keys_of_one_server_spread_over_all_shards)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    size_t counts[1u << RPS_SHARD_LOG2] = {0};
    size_t least = SIZE_MAX;
    size_t wrong = 0;

    for (uint64_t key = 0; key < 100000; key++) {
        const uint64_t hash = rps_key_hash(key, 0);
        const uint64_t slots = UINT64_C(0xfff) << 52;
        counts[rps_table_shard_of(table, hash | slots)]++;
        wrong += rps_table_shard_of(table, hash | slots) !=
                 rps_table_shard_of(table, hash & ~slots);
    }
    ck_assert_uint_eq(wrong, 0);
    for (size_t s = 0; s < 1u << RPS_SHARD_LOG2; s++) {
        least = counts[s] < least ? counts[s] : least;
    }
    /* 1562 each, standard deviation 39 */
    ck_assert_uint_gt(least, 1562 - 6 * 39);
    rps_table_destroy(table);
}
END_TEST

START_TEST(a_spec_that_is_not_built_is_refused)
{
    rps_table_spec spec = spec_of(DIM, RPS_OPTIMIZER_FTRL);
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;

    spec.value_dtype = RPS_VALUE_I8;
    ck_assert_int_eq(
            rps_table_create(&table, &spec, 0, &error), RPS_E_UNSUPPORTED);
    ck_assert_ptr_null(table);
    ck_assert_ptr_nonnull(strstr(error.text, "value_dtype"));
    spec = spec_of(0, RPS_OPTIMIZER_SGD);
    ck_assert_int_eq(rps_table_create(&table, &spec, 0, &error), RPS_E_INVAL);
    rps_table_destroy(NULL);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table");
    TCase *keys = tcase_create("keys");
    TCase *growth = tcase_create("growth");

    tcase_add_test(keys, every_key_can_be_stored_first_last_and_again);
    tcase_add_test(keys, every_key_can_be_pushed);
    tcase_add_test(keys, lookup_creates_nothing_and_answers_the_first_value);
    tcase_add_test(keys, read_only_lookup_of_an_absent_key_answers_the_default);
    tcase_add_test(keys, lookup_leaves_what_lies_between_strided_rows);
    tcase_add_test(keys, keys_of_one_server_spread_over_all_shards);
    tcase_add_test(keys, a_spec_that_is_not_built_is_refused);
    suite_add_tcase(suite, keys);
    tcase_set_timeout(growth, 60);
    tcase_add_test(growth, growth_to_a_million_keys_keeps_every_one);
    tcase_add_test(growth, rows_wider_than_a_chunk_are_kept_too);
    suite_add_tcase(suite, growth);
    return run_suite(suite);
}
