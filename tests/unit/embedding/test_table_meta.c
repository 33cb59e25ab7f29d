/* SPDX-License-Identifier: Apache-2.0 */
/* Stamps, uses, what changed, assigns, visits, and digests. */
#include "embedding/meta.h"
#include "tests/unit/embedding/fixture.h"

#include <xxhash.h>

static const float grad[4] = {0.5f, -0.5f, 0.25f, 1.0f};

START_TEST(skipped_steps_are_those_between_two_pushes)
{
    ck_assert_uint_eq(rps_meta_skipped(rps_meta_make(10, 1), 11), 0);
    ck_assert_uint_eq(rps_meta_skipped(rps_meta_make(10, 1), 15), 4);
    ck_assert_uint_eq(rps_meta_skipped(rps_meta_make(10, 1), 10), 0);
    ck_assert_uint_eq(rps_meta_skipped(rps_meta_make(12, 1), 10), 0);
    ck_assert_uint_eq(rps_meta_skipped(rps_meta_make(10, 0), 15), 0);
    ck_assert_uint_eq(
            rps_meta_skipped(rps_meta_make(0xfffffe, 1), 0x1000003), 4);
}
END_TEST

START_TEST(last_is_the_step_of_the_last_push_modulo_two_to_the_24)
{
    struct rps_table *table = table_new(4, RPS_OPTIMIZER_SGD);
    const uint64_t key = 8;

    push(table, 7, 1, &key, grad);
    ck_assert_uint_eq(RPS_META_LAST(see(table, key, 0).meta), 7);
    push(table, ((uint64_t)1 << 24) + 5, 1, &key, grad);
    ck_assert_uint_eq(RPS_META_LAST(see(table, key, 0).meta), 5);
    rps_table_destroy(table);
}
END_TEST

/* Mean of the estimates over 2000 keys; one key's has a standard deviation
 * of about 18 %, so the mean's is 0.4 %. */
static double
mean_of_uses(struct rps_table *table, uint32_t pushes, uint32_t count)
{
    enum {
        KEYS = 2000
    };
    static float gradients[KEYS];
    uint64_t keys[KEYS];
    uint32_t counts[KEYS];
    double sum = 0.0;

    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        counts[i] = count;
    }
    for (uint32_t step = 1; step <= pushes; step++) {
        const struct rps_update update = {
                .step = step, .t = step, .learning_rate = NAN, .scale = 1.0f};
        const struct rps_contribution contribution = {.count = KEYS,
                .keys = keys,
                .counts = counts,
                .gradients = gradients};
        struct rps_apply_report report;
        ck_assert_int_eq(
                rps_table_apply(table, &update, &contribution, 1, &report),
                RPS_OK);
    }
    for (uint64_t i = 0; i < KEYS; i++) {
        const uint32_t meta = see(table, i, 0).meta;
        sum += rps_uses_estimate(RPS_META_USES(meta));
    }
    return sum / KEYS;
}

START_TEST(uses_count_pushes_on_average)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);

    ck_assert_double_eq_tol(mean_of_uses(table, 1, 1), 1.0, 1e-9);
    rps_table_destroy(table);
    table = table_new(1, RPS_OPTIMIZER_SGD);
    ck_assert_double_eq_tol(mean_of_uses(table, 100, 1), 100.0, 2.0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(uses_count_multiplicities_on_average)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);

    ck_assert_double_eq_tol(mean_of_uses(table, 10, 50), 500.0, 10.0);
    rps_table_destroy(table);
    ck_assert_uint_eq(rps_uses_add(0, UINT64_MAX, 0), RPS_USES_MAX);
    ck_assert_uint_eq(rps_uses_add(RPS_USES_MAX, 9, UINT64_MAX), RPS_USES_MAX);
    rps_uses_prepare();
    for (uint32_t uses = 0; uses <= RPS_USES_MAX; uses++) {
        for (uint64_t i = 0; i < 200; i++) {
            const uint64_t draw = i < 100 ? rps_mix64(i) : (i - 100) << 54;
            ck_assert_uint_eq(
                    rps_uses_add_one(uses, draw), rps_uses_add(uses, 1, draw));
        }
    }
    ck_assert_uint_eq(rps_uses_add(17, 0, 0), 17);
}
END_TEST

static size_t
changed_keys(struct rps_table *table, uint64_t since, uint32_t *positions)
{
    const uint64_t keys[5] = {100, 1, 2, 3, 1};
    float rows[5 * 4];
    const size_t n = rps_table_changed(table, 5, keys, since, positions, rows);

    for (size_t i = 0; i < n; i++) {
        float row[4];
        read_row(table, keys[positions[i]], row);
        ck_assert_mem_eq(rows + i * 4, row, sizeof(row));
    }
    return n;
}

START_TEST(changed_answers_the_rows_pushed_after_a_step)
{
    struct rps_table *table = table_new(4, RPS_OPTIMIZER_SGD);
    const uint64_t keys[3] = {1, 2, 3};
    uint32_t at[5];

    push(table, 10, 1, &keys[0], grad);
    push(table, 11, 1, &keys[1], grad);
    push(table, 12, 1, &keys[2], grad);
    ck_assert_uint_eq(changed_keys(table, 12, at), 0);
    ck_assert_uint_eq(changed_keys(table, 11, at), 1);
    ck_assert_uint_eq(at[0], 3);
    ck_assert_uint_eq(changed_keys(table, 9, at), 4);
    ck_assert(at[0] == 1 && at[1] == 2 && at[2] == 3 && at[3] == 4);
    ck_assert_uint_eq(changed_keys(table, UINT64_MAX, at), 0);
    rps_table_destroy(table);
}
END_TEST

/* Async: pushes of step 12 may still come when it was told. */
START_TEST(changed_from_a_step_includes_it)
{
    const uint64_t key = 5;
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_SGD);
    const float ones[2] = {1, 1};
    uint32_t at;
    float row[2];

    push(table, 12, 1, &key, ones);
    ck_assert_uint_eq(rps_table_changed_from(table, 1, &key, 13, &at, row), 0);
    ck_assert_uint_eq(rps_table_changed_from(table, 1, &key, 12, &at, row), 1);
    ck_assert_uint_eq(rps_table_changed_from(table, 1, &key, 0, &at, row), 1);
    rps_table_destroy(table);
}
END_TEST

/* Steps pass that push to other tables only; then a row leaves. */
START_TEST(a_row_erased_in_a_table_without_pushes_is_sent)
{
    const uint64_t key = 5;
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_SGD);
    const float ones[2] = {1, 1};
    uint32_t at;
    float row[2];

    push(table, 1, 1, &key, ones);
    rps_table_set_now(table, (struct rps_now){.step = 9});
    ck_assert_uint_eq(rps_table_erase(table, 1, &key), 1);
    ck_assert_uint_eq(rps_table_changed(table, 1, &key, 9, &at, row), 1);
    rps_table_destroy(table);
}
END_TEST

START_TEST(changed_errs_to_resending_when_stamps_wrap)
{
    struct rps_table *table = table_new(4, RPS_OPTIMIZER_SGD);
    const uint64_t turn = (uint64_t)1 << 24;
    const uint64_t keys[3] = {1, 2, 3};
    uint32_t at[5];

    push(table, 10, 1, &keys[0], grad);
    push(table, turn - 1, 1, &keys[1], grad);
    push(table, turn + 5, 1, &keys[2], grad);
    /* step 10 is told from turn + 10: that step was not reached yet */
    ck_assert_uint_eq(changed_keys(table, turn, at), 1);
    ck_assert_uint_eq(at[0], 3);
    ck_assert_uint_eq(changed_keys(table, turn - 2, at), 2);
    push(table, turn + 20, 1, &keys[2], grad);
    /* now it may have been turn + 10: sent though it did not change */
    ck_assert_uint_eq(changed_keys(table, turn + 5, at), 3);
    rps_table_destroy(table);
}
END_TEST

START_TEST(assign_writes_rows_slots_and_meta_as_they_are)
{
    struct rps_table *table = table_new(2, RPS_OPTIMIZER_ADAM);
    const uint64_t keys[2] = {UINT64_MAX, 0};
    const float rows[4] = {1, 2, 3, 4};
    const float slots[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    const uint32_t meta[2] = {rps_meta_make(77, 3), rps_meta_make(5, 255)};
    struct seen_row seen;

    ck_assert_int_eq(
            rps_table_assign(table, 2, keys, rows, slots, meta, NULL), RPS_OK);
    seen = see(table, UINT64_MAX, 4);
    ck_assert_uint_eq(seen.meta, meta[0]);
    ck_assert_mem_eq(seen.content, rows, 8);
    ck_assert_mem_eq(seen.content + 2, slots, 16);
    seen = see(table, 0, 4);
    ck_assert_uint_eq(seen.meta, meta[1]);
    ck_assert_mem_eq(seen.content + 2, slots + 4, 16);

    ck_assert_int_eq(
            rps_table_assign(table, 1, keys, rows, NULL, NULL, NULL), RPS_OK);
    seen = see(table, UINT64_MAX, 4);
    ck_assert_uint_eq(seen.meta, 0);
    ck_assert_float_eq(seen.content[2], 0.0f);
    rps_table_destroy(table);
}
END_TEST

START_TEST(assign_of_a_value_that_is_not_finite_writes_nothing)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_ADAGRAD);
    struct rps_error error = {.text = ""};
    const uint64_t keys[2] = {1, 2};
    const float rows[2] = {1.0f, INFINITY};
    const float slots[2] = {1.0f, NAN};

    ck_assert_int_eq(rps_table_assign(table, 2, keys, rows, NULL, NULL, &error),
            RPS_E_NONFINITE);
    ck_assert_ptr_nonnull(strstr(error.text, "key 2"));
    ck_assert_int_eq(
            rps_table_assign(table, 2, keys, slots, slots, NULL, &error),
            RPS_E_NONFINITE);
    ck_assert_ptr_nonnull(strstr(error.text, "slots"));
    ck_assert_uint_eq(rows_of(table), 0);
    rps_table_destroy(table);
}
END_TEST

START_TEST(the_last_of_a_key_assigned_twice_stands)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    const uint64_t keys[3] = {1, 2, 1};
    const float rows[3] = {1.0f, 2.0f, 3.0f};
    float row = 0.0f;

    ck_assert_int_eq(
            rps_table_assign(table, 3, keys, rows, NULL, NULL, NULL), RPS_OK);
    read_row(table, 1, &row);
    ck_assert_float_eq(row, 3.0f);
    ck_assert_uint_eq(rows_of(table), 2);
    rps_table_destroy(table);
}
END_TEST

static rps_status
stop_at_two(void *context, const struct rps_row_view *row)
{
    size_t *visited = context;

    ++*visited;
    return *visited == 2 ? RPS_E_IO : RPS_OK;
}

START_TEST(visiting_stops_at_the_first_failure)
{
    struct rps_table *table = table_new(1, RPS_OPTIMIZER_SGD);
    const uint64_t keys[5] = {1, 2, 3, 4, 5};
    const float rows[5] = {0.0f};
    size_t visited = 0;

    ck_assert_int_eq(
            rps_table_assign(table, 5, keys, rows, NULL, NULL, NULL), RPS_OK);
    ck_assert_int_eq(rps_table_visit(table, stop_at_two, &visited), RPS_E_IO);
    ck_assert_uint_eq(visited, 2);
    rps_table_destroy(table);
}
END_TEST

/* The digest's own rule, written a second time: bytes joined, XXH3_128,
 * summed as a 128-bit number. */
static unsigned __int128
digest_term(uint64_t key, const float *content, size_t floats, uint8_t uses,
        uint32_t last)
{
    unsigned char bytes[8 + 64 * 4 + 5];
    XXH128_hash_t hash;
    size_t n = 0;

    memcpy(bytes, &key, 8);
    memcpy(bytes + 8, content, floats * 4);
    n = 8 + floats * 4;
    bytes[n++] = uses;
    memcpy(bytes + n, &last, 4);
    hash = XXH3_128bits(bytes, n + 4);
    return (unsigned __int128)hash.high64 << 64 | hash.low64;
}

START_TEST(digest_is_the_sum_of_the_rows_digests)
{
    enum {
        ROWS = 500
    };
    struct rps_table *table = table_new(3, RPS_OPTIMIZER_ADAGRAD);
    unsigned __int128 expected = 0;
    struct rps_digest digest;

    for (uint64_t i = 0; i < ROWS; i++) {
        const uint64_t key = i * i * UINT64_C(0x123456789) - 7;
        const uint8_t uses = (uint8_t)(i % 256);
        const uint32_t last = (uint32_t)(i * 1000);
        const uint32_t meta = rps_meta_make(last, uses);
        float content[6];
        for (size_t j = 0; j < 6; j++) {
            content[j] = (float)(i + j) * 0.5f;
        }
        ck_assert_int_eq(rps_table_assign(table, 1, &key, content, content + 3,
                                 &meta, NULL),
                RPS_OK);
        expected += digest_term(key, content, 6, uses, last);
    }
    digest = rps_table_digest(table);
    ck_assert_uint_eq(digest.low, (uint64_t)expected);
    ck_assert_uint_eq(digest.high, (uint64_t)(expected >> 64));
    rps_table_destroy(table);
}
END_TEST

#define MIX_KEYS 3000u

/* Three steps over MIX_KEYS keys, two contributions each, in the order that
 * `stride` (prime to MIX_KEYS) gives; only keys that are `part` of `parts`.
 * Contribution r brings gradients of its own for each key. */
static void
mix_steps(struct rps_table *table, size_t stride, size_t part, size_t parts)
{
    uint64_t *keys = malloc(MIX_KEYS * sizeof(*keys));
    float *gradients = malloc((size_t)2 * MIX_KEYS * 4 * sizeof(*gradients));
    size_t n = 0;

    for (size_t i = 0; i < MIX_KEYS; i++) {
        const uint64_t key = i * stride % MIX_KEYS;
        if (key % parts != part) {
            continue;
        }
        for (size_t j = 0; j < 4; j++) {
            gradients[n * 4 + j] = sinf((float)(key * 4 + j));
            gradients[((size_t)MIX_KEYS + n) * 4 + j] =
                    cosf((float)(key * 4 + j));
        }
        keys[n++] = key * UINT64_C(0x5bd1e9955bd1e995);
    }
    for (uint64_t step = 1; step <= 3; step++) {
        const struct rps_update update = {
                .step = step, .t = step, .learning_rate = NAN, .scale = 0.5f};
        const struct rps_contribution both[2] = {
                {.count = n, .keys = keys, .gradients = gradients},
                {.count = n,
                        .keys = keys,
                        .gradients = gradients + (size_t)MIX_KEYS * 4}};
        struct rps_apply_report report;
        ck_assert_int_eq(
                rps_table_apply(table, &update, both, 2, &report), RPS_OK);
    }
    free(keys);
    free(gradients);
}

static struct rps_digest
digest_of_mix(uint32_t shard_log2, size_t stride, size_t parts)
{
    const rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_ADAM);
    struct rps_digest sum = {0};

    for (size_t part = 0; part < parts; part++) {
        struct rps_table *table = NULL;
        ck_assert_int_eq(
                rps_table_create_sharded(&table, &spec, 0, shard_log2, NULL),
                RPS_OK);
        mix_steps(table, stride, part, parts);
        rps_digest_add(&sum, rps_table_digest(table));
        rps_table_destroy(table);
    }
    return sum;
}

START_TEST(digest_does_not_depend_on_order_shards_or_servers)
{
    const struct rps_digest digest = digest_of_mix(6, 1, 1);
    const struct rps_digest others[] = {digest_of_mix(6, 1, 1),
            digest_of_mix(6, 1009, 1), digest_of_mix(0, 1, 1),
            digest_of_mix(12, 7, 1), digest_of_mix(6, 1, 3)};

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        ck_assert_mem_eq(&others[i], &digest, sizeof(digest));
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_meta");
    TCase *meta = tcase_create("meta");
    TCase *changed = tcase_create("changed");
    TCase *assign = tcase_create("assign");
    TCase *digest = tcase_create("digest");

    tcase_set_timeout(meta, 60);
    tcase_add_test(
            meta, last_is_the_step_of_the_last_push_modulo_two_to_the_24);
    tcase_add_test(meta, skipped_steps_are_those_between_two_pushes);
    tcase_add_test(meta, uses_count_pushes_on_average);
    tcase_add_test(meta, uses_count_multiplicities_on_average);
    suite_add_tcase(suite, meta);
    tcase_add_test(changed, changed_answers_the_rows_pushed_after_a_step);
    tcase_add_test(changed, changed_from_a_step_includes_it);
    tcase_add_test(changed, a_row_erased_in_a_table_without_pushes_is_sent);
    tcase_add_test(changed, changed_errs_to_resending_when_stamps_wrap);
    suite_add_tcase(suite, changed);
    tcase_add_test(assign, assign_writes_rows_slots_and_meta_as_they_are);
    tcase_add_test(assign, assign_of_a_value_that_is_not_finite_writes_nothing);
    tcase_add_test(assign, the_last_of_a_key_assigned_twice_stands);
    tcase_add_test(assign, visiting_stops_at_the_first_failure);
    suite_add_tcase(suite, assign);
    tcase_add_test(digest, digest_is_the_sum_of_the_rows_digests);
    tcase_add_test(digest, digest_does_not_depend_on_order_shards_or_servers);
    suite_add_tcase(suite, digest);
    return run_suite(suite);
}
