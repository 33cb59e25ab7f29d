/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table's whole life through the public API, embedded and over 1, 2 and 3
 * servers (the loop's index). Rows are minus the sum of their gradients.
 */
#include "client/call.h"
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <recps/rows.h>

#include <math.h>
#include <string.h>

#define LOOPS 4 /* embedded, 1, 2, 3 servers */
#define N     1000u

static struct servers servers;
static rps_client *client;
static uint64_t keys[N];
static float values[N];

static bool
begin(int count)
{
    if (!servers_start(&servers, (uint32_t)count)) {
        return false;
    }
    client = servers_open_chief(&servers);
    for (uint64_t i = 0; i < N; i++) { /* in both halves of the 64 bits */
        keys[i] = i % 2 == 0 ? i : UINT64_MAX - i;
        values[i] = 1.0f;
    }
    return true;
}

static void
end(void)
{
    rps_client_close(client);
    servers_stop(&servers);
}

static float
row_of(rps_embedding_table *table, uint64_t key)
{
    float row = NAN;

    must(rps_embedding_lookup(table, 1, &key, &row));
    return row;
}

START_TEST(altered_fields_hold_at_every_server)
{
    rps_embedding_table *table;

    if (!begin(_i)) {
        return;
    }
    table = servers_counter(client, "emb", 1);
    must(rps_alter_table(
            client, "emb", "{\"learning_rate\":0.5,\"clip_value\":4}"));
    ck_assert_float_eq(rps_embedding_table_spec(table)->learning_rate, 0.5f);
    ck_assert_float_eq(rps_embedding_table_spec(table)->clip_value, 4.0f);
    ck_assert_int_eq((int)rps_embedding_table_spec(table)->initializer,
            (int)RPS_INITIALIZER_ZEROS);
    for (size_t i = 0; i < N; i++) {
        values[i] = 100.0f;
    }
    must(rps_push_gradients(table, 1, N, keys, values, NAN));
    must(rps_embedding_lookup(table, N, keys, values));
    for (size_t i = 0; i < N; i++) { /* 100 is clipped to 4, times 0.5 */
        ck_assert_msg(values[i] == -2.0f, "key %zu", i);
    }
    end();
}
END_TEST

START_TEST(what_cannot_be_altered_is_named)
{
    rps_table_spec spec = servers_counter_spec("emb", 1);
    rps_embedding_table *table = NULL;

    if (!begin(_i)) {
        return;
    }
    (void)servers_counter(client, "emb", 1);
    must_fail(rps_alter_table(client, "emb", "{\"dimension\":2}"),
            RPS_E_MISMATCH, "dimension is part of what the table is");
    must_fail(rps_alter_table(client, "emb", "{\"dim\":2}"), RPS_E_MISMATCH,
            "dim is part of what the table is");
    must_fail(rps_alter_table(client, "emb", "{\"learning_rats\":2}"),
            RPS_E_INVAL, "did you mean \"learning_rate\"?");
    must_fail(rps_alter_table(client, "emb", "{\"on_full\":\"explode\"}"),
            RPS_E_INVAL, "on_full must be one of refuse, evict-lru, evict-lfu");
    must_fail(rps_alter_table(client, "emb", "{"), RPS_E_INVAL,
            "must be a JSON object");
    must_fail(rps_alter_table(client, "emb", NULL), RPS_E_INVAL,
            "must be a JSON object");
    must_fail(rps_alter_table(client, NULL, "{}"), RPS_E_INVAL, "NULL");
    must_fail(rps_alter_table(client, "a b", "{}"), RPS_E_INVAL,
            "must be the name of a table");
    must_fail(rps_alter_table(client, "other", "{\"rho\":0.5}"),
            RPS_E_NOT_FOUND, "no table other");
    must(rps_alter_table(client, "emb", "{\"learning_rate\":0.5}"));
    must_fail(rps_get_embedding_table(client, &spec, &table), RPS_E_MISMATCH,
            "ALTER_TABLE");
    end();
}
END_TEST

START_TEST(null_arguments_are_named)
{
    const rps_table_spec spec = servers_counter_spec("emb", 1);
    rps_embedding_table *table;
    rps_scan scan = {0};
    rps_scanned scanned;
    rps_hot hot;

    if (!begin(_i)) {
        return;
    }
    table = servers_counter(client, "emb", 1);
    must_fail(rps_hot_keys(client, "emb", 1, &hot, NULL), RPS_E_INVAL,
            "count_out is NULL");
    must_fail(rps_scan_rows(client, "emb", &scan, 1, &scanned, NULL),
            RPS_E_INVAL, "count_out is NULL");
    must_fail(rps_refresh(table, N, keys, 0, values, NULL), RPS_E_INVAL,
            "changed_out is NULL");
    must_fail(rps_get_embedding_table(client, &spec, NULL), RPS_E_INVAL,
            "table_out is NULL");
    must_fail(rps_assign_rows(client, NULL), RPS_E_INVAL, "assign is NULL");
    end();
}
END_TEST

START_TEST(erased_rows_come_back_fresh)
{
    rps_embedding_table *table;
    uint64_t erased = 0;

    if (!begin(_i)) {
        return;
    }
    table = servers_counter(client, "emb", 1);
    must(rps_push_gradients(table, 1, N, keys, values, NAN));
    must(rps_erase_rows(client, "emb", N / 2, keys, &erased));
    ck_assert_uint_eq(erased, N / 2);
    must(rps_erase_rows(client, "emb", N / 2 + 10, keys, &erased));
    ck_assert_uint_eq(erased, 10); /* the others are gone already */
    must(rps_erase_rows(client, "emb", 0, NULL, NULL));
    ck_assert_float_eq(row_of(table, keys[0]), 0.0f);
    ck_assert_float_eq(row_of(table, keys[N - 1]), -1.0f);
    must(rps_push_gradients(table, 2, 1, keys, values, NAN));
    ck_assert_float_eq(row_of(table, keys[0]), -1.0f);
    must_fail(rps_erase_rows(client, "other", 1, keys, &erased),
            RPS_E_NOT_FOUND, "ERASE");
    ck_assert_uint_eq(erased, 0);
    must_fail(rps_erase_rows(client, "emb", 1, NULL, &erased), RPS_E_INVAL,
            "keys is NULL");
    end();
}
END_TEST

START_TEST(a_pass_of_eviction_is_reported_by_server_and_summed)
{
    rps_eviction each[SERVERS_MAX];
    rps_eviction sum;
    rps_embedding_table *table;
    uint64_t cold = 0;
    uint64_t examined = 0;

    if (!begin(_i)) {
        return;
    }
    ck_assert_uint_eq(rps_server_count(client), _i == 0 ? 1 : (uint32_t)_i);
    table = servers_counter(client, "emb", 1);
    must(rps_push_gradients(table, 1, N, keys, values, NAN));
    must(rps_push_gradients(table, 200, 10, keys, values, NAN));
    must(rps_evict_rows(client, "emb", &sum, each)); /* no rule, no row */
    ck_assert_uint_eq(sum.examined, 0);
    ck_assert_uint_eq(sum.cold + sum.full, 0);
    must(rps_alter_table(client, "emb", "{\"max_cold_steps\":1000000}"));
    must(rps_evict_rows(client, "emb", &sum, each));
    ck_assert_uint_eq(sum.examined, N);
    ck_assert_uint_eq(sum.cold + sum.full, 0);
    ck_assert_uint_gt(sum.bytes_before, 0);
    must(rps_alter_table(client, "emb", "{\"max_cold_steps\":50}"));
    /* within 50 of 200: else the rows are cold while they are pushed to, and
     * the background may have them first */
    must(rps_push_gradients(table, 240, 10, keys, values, NAN));
    must(rps_evict_rows(client, NULL, &sum, each));
    for (uint32_t ps = 0; ps < rps_server_count(client); ps++) {
        cold += each[ps].cold;
        examined += each[ps].examined;
    }
    ck_assert_uint_eq(sum.cold, cold);
    ck_assert_uint_eq(sum.examined, examined);
    ck_assert_uint_le(sum.cold, N - 10); /* slices may have been first */
    must(rps_embedding_lookup(table, N, keys, values));
    for (size_t i = 0; i < N; i++) {
        ck_assert_msg(values[i] == (i < 10 ? -3.0f : 0.0f), "key %zu", i);
    }
    must_fail(rps_evict_rows(client, "other", &sum, NULL), RPS_E_NOT_FOUND,
            "no table other");
    end();
}
END_TEST

START_TEST(a_dropped_table_is_gone_for_every_client)
{
    rps_client *second;
    rps_embedding_table *mine, *theirs, *wide;
    uint64_t rows = 0;
    float row[2];

    if (!begin(_i) || _i == 0) {
        if (_i == 0) {
            end();
        }
        return; /* nobody else sees embedded tables */
    }
    second = servers_open(&servers, NULL, 0, 1);
    mine = servers_counter(client, "emb", 1);
    theirs = servers_counter(second, "emb", 1);
    must(rps_push_gradients(mine, 1, N, keys, values, NAN));
    must(rps_drop_table(second, "emb", &rows));
    ck_assert_uint_eq(rows, N);
    must_fail(rps_embedding_lookup(mine, 1, keys, row), RPS_E_NOT_FOUND,
            ": EMBEDDING_LOOKUP: table emb is not open here any more");
    must_fail(rps_push_gradients(mine, 1, 1, keys, values, NAN),
            RPS_E_NOT_FOUND,
            ": PUSH_GRADIENTS: table emb is not open here any more");
    must_fail(rps_erase_rows(client, "emb", 1, keys, &rows), RPS_E_NOT_FOUND,
            ": ERASE: there is no table emb at PS ");
    must_fail(rps_embedding_lookup(theirs, 1, keys, row), RPS_E_NOT_FOUND,
            "emb was dropped");
    must_fail(rps_drop_table(client, "emb", &rows), RPS_E_NOT_FOUND,
            "no table emb");
    wide = servers_counter(second, "emb", 2);
    ck_assert_ptr_ne(wide, theirs);
    must(rps_embedding_lookup(wide, 1, keys, row));
    ck_assert_float_eq(row[1], 0.0f);
    rps_client_close(second);
    /* the first client's handle had another dimension: a new one */
    wide = servers_counter(client, "emb", 2);
    ck_assert_ptr_ne(wide, mine);
    must(rps_embedding_lookup(wide, 1, keys, row));
    must_fail(rps_embedding_lookup(mine, 1, keys, row), RPS_E_NOT_FOUND,
            "emb was dropped");
    end();
}
END_TEST

START_TEST(a_dropped_table_may_be_made_again)
{
    rps_embedding_table *table;
    uint64_t rows = 0;

    if (!begin(_i)) {
        return;
    }
    for (int i = 0; i < 5; i++) {
        table = servers_counter(client, "emb", 1);
        ck_assert_float_eq(row_of(table, keys[3]), 0.0f);
        must(rps_push_gradients(table, 1, N, keys, values, NAN));
        must(rps_drop_table(client, "emb", &rows));
        ck_assert_uint_eq(rows, N);
    }
    end();
}
END_TEST

/* The table is missing at server 1: the words say who has done what. */
START_TEST(what_is_done_at_some_servers_alone_is_told)
{
    const struct rps_verb drop = {.opcode = RPS_OP_DROP};
    struct rps_answer answer = {0};
    const char *done = _i == 2 ? "done at PS 0:" : "done at PS 0, 2:";

    if (_i < 2 || !begin(_i)) {
        return;
    }
    (void)servers_counter(client, "emb", 1);
    must(rps_call_one(client, 1, &drop, "{\"table\":\"emb\"}", &answer));
    rps_answer_finish(&answer);
    must_fail(rps_alter_table(client, "emb", "{\"learning_rate\":0.5}"),
            RPS_E_NOT_FOUND, done);
    ck_assert_ptr_nonnull(strstr(rps_client_error(NULL), "PS 1 (127.0.0.1"));
    must_fail(rps_drop_table(client, "emb", NULL), RPS_E_NOT_FOUND, done);
    must_fail(rps_drop_table(client, "emb", NULL), RPS_E_NOT_FOUND,
            "there is no table emb at PS");
    ck_assert_ptr_null(strstr(rps_client_error(NULL), "done at"));
    end();
}
END_TEST

START_TEST(a_server_that_is_lost_meanwhile_is_named)
{
    if (_i < 2 || !begin(_i)) {
        return;
    }
    (void)servers_counter(client, "emb", 1);
    servers_kill_one(&servers, 1);
    must_fail(rps_drop_table(client, "emb", NULL), RPS_E_UNREACHABLE, "PS 1");
    end();
}
END_TEST

static int
by_value(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

START_TEST(a_scan_sees_every_key_once_with_its_meta)
{
    rps_embedding_table *table;
    static rps_scanned rows[N];
    static uint64_t seen[N];
    rps_scan scan = {0};
    size_t count = 0;

    if (!begin(_i)) {
        return;
    }
    table = servers_counter(client, "emb", 1);
    must(rps_push_gradients(table, 7, N, keys, values, NAN));
    while (scan.done == 0) {
        size_t n = 0;

        must(rps_scan_rows(client, "emb", &scan, 33, rows, &n));
        ck_assert_uint_le(n, 33);
        ck_assert(n > 0 || scan.done != 0);
        for (size_t i = 0; i < n; i++) {
            ck_assert_uint_lt(count, N);
            ck_assert_uint_eq(rows[i].last, 7);
            ck_assert_uint_eq(rows[i].uses, 1);
            seen[count++] = rows[i].key;
        }
    }
    ck_assert_uint_eq(count, N);
    qsort(seen, N, sizeof(*seen), by_value);
    qsort(keys, N, sizeof(*keys), by_value);
    ck_assert_int_eq(memcmp(seen, keys, sizeof(seen)), 0);
    must(rps_scan_rows(client, "emb", &scan, 33, rows, &count));
    ck_assert_uint_eq(count, 0); /* the end stays the end */
    scan = (rps_scan){.ps = 17};
    must_fail(rps_scan_rows(client, "emb", &scan, 33, rows, &count),
            RPS_E_INVAL, "scan.ps: 17");
    scan = (rps_scan){0};
    must_fail(rps_scan_rows(client, "other", &scan, 33, rows, &count),
            RPS_E_NOT_FOUND, "no table other");
    must_fail(rps_scan_rows(client, "emb", &scan, 0, rows, &count), RPS_E_INVAL,
            "max");
    end();
}
END_TEST

#define DIM   3u
#define SLOTS (2 * DIM) /* of adam */

/* Any table of that shape that is there, whole. */
static rps_embedding_table *
adam_table(enum rps_value value)
{
    rps_table_spec spec;
    rps_embedding_table *table = NULL;

    rps_table_spec_init(&spec, "adam", DIM, RPS_OPTIMIZER_ADAM);
    spec.value_dtype = value;
    must(rps_get_embedding_table(client, &spec, &table));
    return table;
}

static size_t
place_of(uint64_t key)
{
    for (size_t i = 0; i < N; i++) {
        if (keys[i] == key) {
            return i;
        }
    }
    return N;
}

START_TEST(rows_that_are_read_are_those_that_were_assigned)
{
    static float rows[N * DIM], slots[N * SLOTS];
    static float read_rows[N * DIM], read_slots[N * SLOTS];
    static uint32_t meta[N], read_meta[N];
    static uint64_t read_keys[N];
    const rps_rows room = {.keys = read_keys,
            .rows = read_rows,
            .slots = read_slots,
            .meta = read_meta};
    rps_embedding_table *table;
    rps_scan scan = {0};
    size_t total = 0;

    if (!begin(_i)) {
        return;
    }
    table = adam_table(RPS_VALUE_F32);
    for (size_t i = 0; i < N; i++) {
        meta[i] = (uint32_t)i | 9u << 24;
        for (size_t j = 0; j < SLOTS; j++) {
            rows[i * DIM + j % DIM] = 0.37f * (float)(i + j);
            slots[i * SLOTS + j] = 1e-3f * (float)(i * j);
        }
    }
    must(rps_assign_rows(client, &(rps_assign){.table = table,
                                         .keys = keys,
                                         .key_count = N,
                                         .rows = rows,
                                         .slots = slots,
                                         .meta = meta}));
    while (scan.done == 0) {
        size_t n = 0;

        must(rps_read_rows(client, table, &scan, 33, &room, &n));
        ck_assert_uint_le(n, 33);
        for (size_t k = 0; k < n; k++) {
            const size_t i = place_of(read_keys[k]);

            ck_assert_uint_lt(i, N);
            ck_assert_uint_eq(read_meta[k], meta[i]);
            ck_assert_mem_eq(
                    read_rows + k * DIM, rows + i * DIM, DIM * sizeof(*rows));
            ck_assert_mem_eq(read_slots + k * SLOTS, slots + i * SLOTS,
                    SLOTS * sizeof(*slots));
            keys[i] = 12345; /* none is met twice */
        }
        total += n;
    }
    ck_assert_uint_eq(total, N);
    end();
}
END_TEST

START_TEST(rows_are_read_without_slots_and_as_floats)
{
    static float read_rows[N * DIM];
    static uint32_t read_meta[N];
    static uint64_t read_keys[N];
    const float row[DIM] = {0.5f, -2.0f, 1.0f / 3.0f};
    rps_rows room = {.keys = read_keys, .rows = read_rows, .meta = read_meta};
    rps_embedding_table *table;
    rps_scan scan = {0};
    size_t n = 0;

    if (!begin(_i)) {
        return;
    }
    table = adam_table(RPS_VALUE_BF16);
    must(rps_assign_rows(client, &(rps_assign){.table = table,
                                         .keys = keys,
                                         .key_count = 1,
                                         .rows = row}));
    must(rps_read_rows(client, table, &scan, N, &room, &n));
    ck_assert_uint_eq(n, 1);
    ck_assert_uint_eq(read_keys[0], keys[0]);
    ck_assert_float_eq(read_rows[0], 0.5f);
    ck_assert_float_eq(read_rows[1], -2.0f);
    ck_assert_float_eq_tol(read_rows[2], 1.0f / 3.0f, 2e-3f);
    scan = (rps_scan){0};
    room.meta = NULL;
    must_fail(rps_read_rows(client, table, &scan, N, &room, &n), RPS_E_INVAL,
            "one is NULL");
    must_fail(rps_read_rows(client, NULL, &scan, N, &room, &n), RPS_E_INVAL,
            "one is NULL");
    end();
}
END_TEST

START_TEST(hot_keys_of_all_servers_are_one_list)
{
    rps_embedding_table *table;
    rps_hot hot[8];
    size_t count = 0;

    if (!begin(_i)) {
        return;
    }
    table = servers_counter(client, "emb", 1);
    for (uint64_t step = 1; step <= 300; step++) {
        for (size_t i = 0; i < N; i++) { /* most of it are keys 42 and -3 */
            keys[i] = i % 8 == 7 ? step * N + i : i % 8 < 5 ? 42 : (uint64_t)-3;
        }
        must(rps_push_gradients(table, step, N, keys, values, NAN));
    }
    must(rps_hot_keys(client, "emb", 8, hot, &count));
    ck_assert_uint_ge(count, 2);
    ck_assert_uint_le(count, 8);
    ck_assert_uint_eq(hot[0].key, 42);
    ck_assert_uint_eq(hot[1].key, (uint64_t)-3);
    for (size_t i = 1; i < count; i++) {
        ck_assert_uint_ge(hot[i - 1].count, hot[i].count);
    }
    must(rps_hot_keys(client, "emb", 0, NULL, &count));
    ck_assert_uint_eq(count, 0);
    must_fail(rps_hot_keys(client, "other", 8, hot, &count), RPS_E_NOT_FOUND,
            "no table other");
    end();
}
END_TEST

/* Multiplicities travel with lookups and pushes: a key that stands three
 * times in a batch is admitted at three. */
START_TEST(admission_counts_how_often_a_key_stands_in_a_batch)
{
    const uint64_t batch[5] = {8, 8, 8, 9, 9};
    rps_table_spec spec = servers_counter_spec("emb", 1);
    rps_embedding_table *table = NULL;
    float rows[5];

    if (!begin(_i)) {
        return;
    }
    spec.min_used_times = 3;
    spec.initializer = RPS_INITIALIZER_CONSTANT;
    spec.initializer_low = 5.0f;
    spec.default_value = -7.0f;
    must(rps_get_embedding_table(client, &spec, &table));
    must(rps_embedding_lookup(table, 5, batch, rows));
    ck_assert_float_eq(rows[0], 5.0f);  /* thrice: admitted for this request */
    ck_assert_float_eq(rows[3], -7.0f); /* twice: not yet */
    must(rps_push_gradients(table, 1, 5, batch, values, NAN));
    must(rps_embedding_lookup(table, 5, batch, rows));
    ck_assert_float_eq(rows[0], 2.0f);
    ck_assert_float_eq(rows[3], 5.0f); /* 2 counted + 2 of this request */
    must(rps_embedding_lookup(table, 1, &batch[3], rows));
    ck_assert_float_eq(rows[0], 5.0f); /* 2 counted + 1 */
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tcase = tcase_create("policy");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, altered_fields_hold_at_every_server, 0, LOOPS);
    tcase_add_loop_test(tcase, what_cannot_be_altered_is_named, 0, LOOPS);
    tcase_add_loop_test(tcase, null_arguments_are_named, 0, LOOPS);
    tcase_add_loop_test(tcase, erased_rows_come_back_fresh, 0, LOOPS);
    tcase_add_loop_test(tcase,
            a_pass_of_eviction_is_reported_by_server_and_summed, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_dropped_table_is_gone_for_every_client, 0, LOOPS);
    tcase_add_loop_test(tcase, a_dropped_table_may_be_made_again, 0, LOOPS);
    tcase_add_loop_test(
            tcase, what_is_done_at_some_servers_alone_is_told, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_server_that_is_lost_meanwhile_is_named, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_scan_sees_every_key_once_with_its_meta, 0, LOOPS);
    tcase_add_loop_test(
            tcase, rows_that_are_read_are_those_that_were_assigned, 0, LOOPS);
    tcase_add_loop_test(
            tcase, rows_are_read_without_slots_and_as_floats, 0, LOOPS);
    tcase_add_loop_test(tcase, hot_keys_of_all_servers_are_one_list, 0, LOOPS);
    tcase_add_loop_test(tcase,
            admission_counts_how_often_a_key_stands_in_a_batch, 0, LOOPS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
