/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong specs and wrong arrays at the public API: a status and words that
 * name the field, never a crash, and the client goes on. Embedded and over
 * one server (the loop's index).
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define LOOPS 2 /* embedded, 1 server */

static struct servers servers;
static rps_client *client;

static bool
begin(int count)
{
    if (!servers_start(&servers, (uint32_t)count)) {
        return false;
    }
    client = servers_open_chief(&servers);
    return true;
}

static void
end(void)
{
    rps_client_close(client);
    servers_stop(&servers);
}

static rps_table_spec
good_spec(const char *name)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, name, 2, RPS_OPTIMIZER_SGD);
    return spec;
}

/* A field of the spec, and a value that no table has. */
struct wrong {
    const char *words; /* in the message */
    size_t offset;
    enum {
        AS_F32,
        AS_U32,
        AS_U64,
        AS_ENUM
    } type;
    double value;
    enum rps_optimizer optimizer;
};

#define WRONG(field, type, value, optimizer)                  \
    {                                                         \
#field, offsetof(rps_table_spec, field), type, value, \
                RPS_OPTIMIZER_##optimizer                     \
    }

static const struct wrong wrongs[] = {
        {"dimension", offsetof(rps_table_spec, dim), AS_U32, 0, 0},
        {"dimension", offsetof(rps_table_spec, dim), AS_U32, RPS_DIM_MAX + 1,
                0},
        {"dimension", offsetof(rps_table_spec, dim), AS_U32, 4294967295.0, 0},
        {"optimizer", offsetof(rps_table_spec, optimizer), AS_ENUM,
                RPS_OPTIMIZER_COUNT, 0},
        {"optimizer", offsetof(rps_table_spec, optimizer), AS_ENUM, -1, 0},
        {"initializer", offsetof(rps_table_spec, initializer), AS_ENUM,
                RPS_INITIALIZER_COUNT, 0},
        {"value_dtype", offsetof(rps_table_spec, value_dtype), AS_ENUM,
                RPS_VALUE_I8, 0},
        {"value_dtype", offsetof(rps_table_spec, value_dtype), AS_ENUM, 99, 0},
        {"key_dtype", offsetof(rps_table_spec, key_dtype), AS_ENUM, 2, 0},
        {"on_full", offsetof(rps_table_spec, on_full), AS_ENUM, 9, 0},
        {"admission", offsetof(rps_table_spec, admission), AS_ENUM, 9, 0},
        {"struct_bytes", offsetof(rps_table_spec, struct_bytes), AS_U32, 0, 0},
        WRONG(device_vocabulary_size, AS_U64, 0, SGD),
        WRONG(device_vocabulary_size, AS_U64, 2e9, SGD),
        WRONG(learning_rate, AS_F32, -1.0, SGD),
        WRONG(learning_rate, AS_F32, (double)NAN, SGD),
        WRONG(learning_rate, AS_F32, (double)INFINITY, SGD),
        WRONG(initial_accumulator, AS_F32, -0.1, ADAGRAD),
        WRONG(initial_accumulator, AS_F32, -0.1, ROWWISE_ADAGRAD),
        WRONG(initial_accumulator, AS_F32, (double)NAN, FTRL),
        WRONG(beta1, AS_F32, 1.0, ADAM),
        WRONG(beta1, AS_F32, -0.1, ADAMW),
        WRONG(beta2, AS_F32, 1.0, ADAM_CATCHUP),
        WRONG(beta2, AS_F32, (double)NAN, ADAMW_CATCHUP),
        WRONG(epsilon, AS_F32, 0.0, ADAM),
        WRONG(epsilon, AS_F32, -1.0, ADAM),
        WRONG(epsilon, AS_F32, (double)INFINITY, RMSPROP),
        WRONG(weight_decay, AS_F32, -0.1, ADAMW),
        WRONG(weight_decay, AS_F32, (double)NAN, SGD),
        WRONG(momentum, AS_F32, -0.5, MOMENTUM),
        WRONG(momentum, AS_F32, (double)NAN, MOMENTUM),
        WRONG(nesterov, AS_U32, 2, MOMENTUM),
        WRONG(rho, AS_F32, -0.1, RMSPROP),
        WRONG(rho, AS_F32, 1.5, RMSPROP),
        WRONG(l1, AS_F32, -1.0, FTRL),
        WRONG(l2, AS_F32, -1.0, FTRL),
        WRONG(l2_shrinkage, AS_F32, (double)NAN, FTRL),
        WRONG(learning_rate_power, AS_F32, 0.5, FTRL),
        WRONG(clip_value, AS_F32, -1.0, SGD),
        WRONG(clip_norm, AS_F32, (double)NAN, SGD),
        WRONG(default_value, AS_F32, (double)INFINITY, SGD),
        WRONG(initializer_low, AS_F32, (double)NAN, SGD),
        WRONG(initializer_high, AS_F32, (double)INFINITY, SGD),
        WRONG(stochastic_rounding, AS_U32, 2, SGD),
        WRONG(memory_limit, AS_U64, 1, SGD), /* less than a chunk */
        WRONG(memory_limit, AS_U64, 4096, SGD),
};
#define WRONGS (sizeof(wrongs) / sizeof(wrongs[0]))
/* How much a table needs at least only its maker knows: not the check. */
#define WRONG_BY_CHECK (WRONGS - 2)

static rps_table_spec
wrong_spec(const struct wrong *wrong)
{
    rps_table_spec spec;
    char *field = (char *)&spec + wrong->offset;
    const float f32 = (float)wrong->value;
    const uint64_t u64 = wrong->value < 0 ? 0 : (uint64_t)wrong->value;
    const uint32_t u32 = (uint32_t)u64;
    const int number = (int)wrong->value;

    rps_table_spec_init(&spec, "emb", 2, wrong->optimizer);
    switch (wrong->type) {
    case AS_F32:
        memcpy(field, &f32, sizeof(f32));
        break;
    case AS_U64:
        memcpy(field, &u64, sizeof(u64));
        break;
    case AS_U32:
        memcpy(field, &u32, sizeof(u32));
        break;
    case AS_ENUM:
        memcpy(field, &number, sizeof(number));
        break;
    }
    return spec;
}

START_TEST(a_wrong_spec_is_refused_by_field_and_the_client_goes_on)
{
    rps_embedding_table *table = NULL;
    const uint64_t key = 5;
    rps_table_spec good = good_spec("emb");
    float row[2] = {7, 7};

    if (!begin(_i)) {
        return;
    }
    for (size_t i = 0; i < WRONGS; i++) {
        const rps_table_spec spec = wrong_spec(&wrongs[i]);
        const rps_status status =
                rps_get_embedding_table(client, &spec, &table);
        ck_assert_msg(status == RPS_E_INVAL || status == RPS_E_UNSUPPORTED,
                "%s = %g: %s", wrongs[i].words, wrongs[i].value,
                rps_status_str(status));
        ck_assert_ptr_null(table);
        ck_assert_msg(strstr(rps_client_error(client), wrongs[i].words) != NULL,
                "%s = %g: %s", wrongs[i].words, wrongs[i].value,
                rps_client_error(client));
    }
    must(rps_get_embedding_table(client, &good, &table));
    must(rps_embedding_lookup(table, 1, &key, row));
    ck_assert(fabsf(row[0]) <= 0.05f);
    end();
}
END_TEST

/* The check by itself, also without room for words. */
START_TEST(a_wrong_spec_is_refused_without_a_client)
{
    const rps_table_spec spec = wrong_spec(&wrongs[_i]);
    const rps_status status = rps_table_spec_check(&spec, NULL, 0);
    char cut[8] = "#######";
    char why[512] = "";

    ck_assert(status == RPS_E_INVAL || status == RPS_E_UNSUPPORTED);
    ck_assert_int_eq(rps_table_spec_check(&spec, why, sizeof(why)), status);
    ck_assert_msg(strstr(why, wrongs[_i].words) != NULL, "%s", why);
    ck_assert_int_eq(rps_table_spec_check(&spec, cut, 5), status);
    ck_assert_uint_eq(strlen(cut), 4);
    ck_assert_str_eq(cut + 5, "##");
}
END_TEST

START_TEST(names_that_no_table_has_are_refused)
{
    const char *const names[] = {"", ".", "..", ".x", "a/b", "../x", "a b",
            "a\n", "\xc3\xa9", "a:b", "%s%n"};
    rps_embedding_table *table = NULL;

    if (!begin(_i)) {
        return;
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const rps_table_spec spec = good_spec(names[i]);
        must_fail(rps_get_embedding_table(client, &spec, &table), RPS_E_INVAL,
                "name");
    }
    end();
}
END_TEST

START_TEST(no_keys_are_legal_and_null_with_some_is_not)
{
    const uint64_t keys[2] = {1, 2};
    const rps_table_spec spec = good_spec("emb");
    rps_embedding_table *table = NULL;
    float rows[4] = {0};
    size_t changed = 0;
    rps_assign assign = {.key_count = 2, .keys = keys};

    if (!begin(_i)) {
        return;
    }
    must_fail(
            rps_get_embedding_table(client, NULL, &table), RPS_E_INVAL, "spec");
    must_fail(rps_get_embedding_table(NULL, &spec, &table), RPS_E_INVAL, "");
    must(rps_get_embedding_table(client, &spec, &table));
    must(rps_embedding_lookup(table, 0, NULL, NULL));
    must(rps_push_gradients(table, 0, 0, NULL, NULL, NAN));
    must_fail(rps_embedding_lookup(table, 2, NULL, rows), RPS_E_INVAL, "keys");
    must_fail(rps_embedding_lookup(table, 2, keys, NULL), RPS_E_INVAL, "rows");
    must_fail(rps_push_gradients(table, 0, 2, NULL, rows, NAN), RPS_E_INVAL,
            "keys");
    must_fail(rps_push_gradients(table, 0, 2, keys, NULL, NAN), RPS_E_INVAL,
            "gradients");
    must_fail(rps_refresh(table, 2, NULL, 0, rows, &changed), RPS_E_INVAL,
            "keys");
    must_fail(rps_refresh(table, 2, keys, 0, NULL, &changed), RPS_E_INVAL,
            "rows");
    assign.table = table;
    must_fail(rps_assign_rows(client, &assign), RPS_E_INVAL, "rows");
    assign.rows = rows;
    assign.keys = NULL;
    must_fail(rps_assign_rows(client, &assign), RPS_E_INVAL, "keys");
    must(rps_embedding_lookup(table, 2, keys, rows));
    end();
}
END_TEST

START_TEST(a_number_of_keys_that_no_array_has_is_refused)
{
    const uint64_t keys[2] = {1, 2};
    const rps_table_spec spec = good_spec("emb");
    const size_t huge[] = {
            SIZE_MAX, SIZE_MAX / 2, SIZE_MAX / 8 + 1, (size_t)1 << 40};
    rps_embedding_table *table = NULL;
    float rows[4] = {0};

    if (!begin(_i)) {
        return;
    }
    must(rps_get_embedding_table(client, &spec, &table));
    for (size_t i = 0; i < sizeof(huge) / sizeof(huge[0]); i++) {
        must_fail(rps_embedding_lookup(table, huge[i], keys, rows), RPS_E_LIMIT,
                "");
        must_fail(rps_push_gradients(table, 0, huge[i], keys, rows, NAN),
                RPS_E_LIMIT, "");
    }
    must(rps_embedding_lookup(table, 2, keys, rows));
    end();
}
END_TEST

START_TEST(rates_that_no_push_may_carry_are_refused)
{
    const uint64_t key = 1;
    const float gradient[2] = {1, 1};
    const rps_table_spec spec = good_spec("emb");
    const float rates[] = {INFINITY, -INFINITY, -0.5f};
    rps_embedding_table *table = NULL;
    float before[2], after[2];

    if (!begin(_i)) {
        return;
    }
    must(rps_get_embedding_table(client, &spec, &table));
    must(rps_embedding_lookup(table, 1, &key, before));
    for (size_t i = 0; i < 3; i++) {
        must_fail(rps_push_gradients(table, 0, 1, &key, gradient, rates[i]),
                RPS_E_INVAL, "learning");
    }
    must(rps_embedding_lookup(table, 1, &key, after));
    ck_assert_mem_eq(before, after, sizeof(before));
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("client_bad_tables");
    TCase *bad = tcase_create("bad_tables");

    tcase_set_timeout(bad, 60);
    tcase_add_loop_test(bad,
            a_wrong_spec_is_refused_by_field_and_the_client_goes_on, 0, LOOPS);
    tcase_add_loop_test(bad, a_wrong_spec_is_refused_without_a_client, 0,
            (int)WRONG_BY_CHECK);
    tcase_add_loop_test(bad, names_that_no_table_has_are_refused, 0, LOOPS);
    tcase_add_loop_test(
            bad, no_keys_are_legal_and_null_with_some_is_not, 0, LOOPS);
    tcase_add_loop_test(
            bad, a_number_of_keys_that_no_array_has_is_refused, 0, LOOPS);
    tcase_add_loop_test(
            bad, rates_that_no_push_may_carry_are_refused, 0, LOOPS);
    suite_add_tcase(suite, bad);
    return run_suite(suite);
}
