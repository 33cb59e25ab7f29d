/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups and pushes through the public API: embedded and over 1, 2 and 3
 * servers (the loop's index). Rows are assigned, so that what is expected
 * is known; pushes go to sgd with rate 1 on zeros, so that a row is minus
 * the sum of its gradients. Values are small integers: float sums are exact.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOPS 4 /* embedded, 1, 2, 3 servers */

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

static rps_embedding_table *
table_of(const char *name, uint32_t dim)
{
    return servers_counter(client, name, dim);
}

/* Column c of key k, a small integer. */
static float
value_of(uint64_t key, uint32_t column)
{
    return (float)((int)((key * 2654435761u >> 7) % 1000) - 500 +
                   (int)column % 7);
}

static void
assign_values(rps_embedding_table *table, const uint64_t *keys, size_t n)
{
    uint32_t dim = rps_embedding_table_spec(table)->dim;
    float *rows = malloc(n * dim * sizeof(float));
    rps_assign assign = {
            .table = table, .keys = keys, .key_count = n, .rows = rows};
    size_t i;

    for (i = 0; i < n * dim; i++) {
        rows[i] = value_of(keys[i / dim], (uint32_t)(i % dim));
    }
    must(rps_assign_rows(client, &assign));
    free(rows);
}

/* Every float is `times` its key's value. One assert: Check logs each. */
static void
expect_times(const uint64_t *keys, size_t n, uint32_t dim, const float *rows,
        float times)
{
    size_t i = 0;

    while (i < n * dim &&
            rows[i] == times * value_of(keys[i / dim], (uint32_t)(i % dim))) {
        i++;
    }
    ck_assert_msg(i == n * dim, "float %zu of %zu is wrong", i, n * dim);
}

static void
expect_values(const uint64_t *keys, size_t n, uint32_t dim, const float *rows)
{
    expect_times(keys, n, dim, rows, 1);
}

static size_t
special_keys(uint64_t keys[64])
{
    size_t n = 0;
    int bit;

    keys[n++] = 0;
    keys[n++] = UINT64_MAX;
    keys[n++] = 0x7fffffffffffffffu;
    for (bit = 0; bit < 61; bit += 1) {
        keys[n++] = 1ull << (bit + 3);
    }
    return n;
}

START_TEST(every_key_goes_in_and_comes_back)
{
    uint64_t keys[64];
    size_t n = special_keys(keys);
    rps_embedding_table *table;
    float rows[64 * 5];

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", 5);
    assign_values(table, keys, n);
    must(rps_embedding_lookup(table, n, keys, rows));
    expect_values(keys, n, 5, rows);
    end();
}
END_TEST

START_TEST(duplicates_and_padding_are_filled_in)
{
    const uint64_t distinct[3] = {9, 1, UINT64_MAX};
    const uint64_t keys[7] = {9, 1, 9, 4, UINT64_MAX, 9, 4};
    float rows[7][6]; /* two floats of each row are not ours */
    rps_lookup lookup = {.keys = keys,
            .key_count = 7,
            .flags = RPS_PADDED,
            .padding_key = 4,
            .rows = rows,
            .row_stride = sizeof(rows[0])};
    rps_ticket ticket;
    int i;
    uint32_t c;

    if (!begin(_i)) {
        return;
    }
    lookup.table = table_of("emb", 4);
    assign_values(lookup.table, distinct, 3);
    for (i = 0; i < 7; i++) {
        rows[i][4] = rows[i][5] = 77.0f;
    }
    must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
    must(rps_wait(client, ticket, 0));
    for (i = 0; i < 7; i++) {
        for (c = 0; c < 4; c++) {
            ck_assert_float_eq(
                    rows[i][c], keys[i] == 4 ? 0.0f : value_of(keys[i], c));
        }
        ck_assert_float_eq(rows[i][4], 77.0f);
        ck_assert_float_eq(rows[i][5], 77.0f);
    }
    must_fail(rps_wait(client, ticket, 0), RPS_E_NOT_FOUND, "no such ticket");
    end();
}
END_TEST

START_TEST(absent_keys_answer_first_value_or_default)
{
    rps_table_spec spec;
    rps_embedding_table *table;
    const uint64_t keys[2] = {3, 4};
    float rows[2][2];
    rps_lookup lookup = {
            .keys = keys, .key_count = 2, .flags = RPS_READ_ONLY, .rows = rows};
    rps_ticket ticket;

    if (!begin(_i)) {
        return;
    }
    rps_table_spec_init(&spec, "c", 2, RPS_OPTIMIZER_SGD);
    spec.initializer = RPS_INITIALIZER_CONSTANT;
    spec.initializer_low = 0.5f;
    must(rps_get_embedding_table(client, &spec, &table));
    lookup.table = table;
    must(rps_embedding_lookup(table, 2, keys, rows[0]));
    ck_assert_float_eq(rows[1][1], 0.5f);
    must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
    must(rps_wait(client, ticket, 0));
    ck_assert_float_eq(rows[0][0], 0.0f);
    ck_assert_float_eq(rows[1][1], 0.0f);
    end();
}
END_TEST

/* Bags: {1, 2, 2}, {}, {pad, 3, 1, 4, 2}, {pad}; 5 keys that count. */
static const uint64_t bag_keys[9] = {1, 2, 2, 0, 3, 1, 4, 2, 0};
static const uint32_t bag_offsets[5] = {0, 3, 3, 8, 9};
static const double bag_sizes[4] = {3, 0, 4, 0};

static double
bag_divisor(enum rps_pooling pooling, int bag)
{
    if (pooling == RPS_POOLING_SUM || bag_sizes[bag] == 0) {
        return 1;
    }
    return pooling == RPS_POOLING_MEAN ? bag_sizes[bag] : sqrt(bag_sizes[bag]);
}

static double
bag_model(enum rps_pooling pooling, int bag, uint32_t column)
{
    double sum = 0;
    uint32_t i;

    for (i = bag_offsets[bag]; i < bag_offsets[bag + 1]; i++) {
        sum += bag_keys[i] == 0 ? 0 : (double)value_of(bag_keys[i], column);
    }
    return sum / bag_divisor(pooling, bag);
}

START_TEST(bags_are_pooled_as_the_model_says)
{
    const enum rps_pooling kinds[3] = {
            RPS_POOLING_SUM, RPS_POOLING_MEAN, RPS_POOLING_SQRTN};
    float rows[3][4][3];
    rps_lookup lookups[3];
    rps_embedding_table *table;
    rps_ticket ticket;
    int kind;
    int bag;
    uint32_t c;

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", 3);
    assign_values(table, bag_keys, 8);
    for (kind = 0; kind < 3; kind++) { /* one table three times in a call */
        lookups[kind] = (rps_lookup){.table = table,
                .keys = bag_keys,
                .key_count = 9,
                .offsets = bag_offsets,
                .bag_count = 4,
                .pooling = kinds[kind],
                .flags = RPS_PADDED,
                .padding_key = 0,
                .rows = rows[kind]};
    }
    must(rps_lookup_start(client, NULL, lookups, 3, &ticket));
    must(rps_wait(client, ticket, 0));
    for (kind = 0; kind < 3; kind++) {
        for (bag = 0; bag < 4; bag++) {
            for (c = 0; c < 3; c++) {
                ck_assert_double_eq_tol((double)rows[kind][bag][c],
                        bag_model(kinds[kind], bag, c), 1e-4);
            }
        }
    }
    end();
}
END_TEST

/* TensorFlow 38792, PyTorch 50286, TorchRec 2773: NaN, a row less, a crash. */
START_TEST(empty_bags_first_middle_and_last_are_zero_rows)
{
    const enum rps_pooling kinds[3] = {
            RPS_POOLING_SUM, RPS_POOLING_MEAN, RPS_POOLING_SQRTN};
    const uint32_t offsets[7] = {0, 0, 1, 1, 1, 2, 2};
    const uint64_t keys[2] = {UINT64_MAX, 5};
    rps_lookup lookup = {
            .keys = keys, .key_count = 2, .offsets = offsets, .bag_count = 6};
    rps_ticket ticket;

    if (!begin(_i)) {
        return;
    }
    lookup.table = table_of("emb", 2);
    assign_values(lookup.table, keys, 2);
    for (int kind = 0; kind < 3; kind++) {
        float rows[6][2];
        memset(rows, 0xff, sizeof(rows)); /* NaN */
        lookup.pooling = kinds[kind];
        lookup.rows = rows;
        must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
        must(rps_wait(client, ticket, 0));
        for (uint32_t bag = 0; bag < 6; bag++) {
            const bool empty = bag != 1 && bag != 4;
            for (uint32_t c = 0; c < 2; c++) {
                ck_assert_float_eq(rows[bag][c],
                        empty ? 0.0f : value_of(keys[bag / 4], c));
            }
        }
    }
    end();
}
END_TEST

START_TEST(push_of_duplicates_is_one_step_of_their_sum)
{
    const uint64_t keys[6] = {7, 8, 7, 0x8000000000000001u, 7, 8};
    const uint64_t distinct[3] = {7, 8, 0x8000000000000001u};
    const float gradients[6][2] = {
            {1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}};
    const float expected[3][2] = {{-15, -18}, {-14, -16}, {-7, -8}};
    rps_embedding_table *table;
    float rows[3][2];

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", 2);
    must(rps_push_gradients(table, 0, 6, keys, gradients[0], NAN));
    must(rps_embedding_lookup(table, 3, distinct, rows[0]));
    ck_assert_mem_eq(rows, expected, sizeof(rows));
    /* adagrad would see two steps; here a rate of the push halves it */
    must(rps_push_gradients(table, 0, 6, keys, gradients[0], 0.5f));
    must(rps_embedding_lookup(table, 3, distinct, rows[0]));
    ck_assert_float_eq(rows[0][0], -22.5f);
    end();
}
END_TEST

/* Single keys, one that comes twice and padding; rows two floats apart, at an
 * odd address. */
START_TEST(gradients_are_found_wherever_they_lie)
{
    static const enum rps_value wires[2] = {RPS_VALUE_F32, RPS_VALUE_BF16};
    const uint64_t keys[6] = {9, 1, 4, 9, UINT64_MAX, 4};
    const uint64_t distinct[3] = {9, 1, UINT64_MAX};
    const float expected[3][4] = {{-5, -7, -9, -11}, {-2, -3, -4, -5},
            {-5, -6, -7, -8}}; /* of 9: rows 0 and 3 */
    char bytes[1 + 6 * 6 * sizeof(float)];
    size_t i;

    if (!begin(_i)) {
        return;
    }
    for (i = 0; i < 36; i++) { /* column c of row r: r + c + 1; then NaN */
        const float value = i % 6 < 4 ? (float)(i / 6 + i % 6 + 1) : NAN;
        memcpy(bytes + 1 + i * sizeof(value), &value, sizeof(value));
    }
    for (i = 0; i < 2; i++) {
        rps_push push = {.table = table_of(i == 0 ? "f32" : "bf16", 4),
                .keys = keys,
                .key_count = 6,
                .flags = RPS_PADDED,
                .padding_key = 4,
                .gradients = bytes + 1,
                .gradient_stride = 6 * sizeof(float),
                .learning_rate = 1.0f,
                .wire = wires[i]};
        rps_ticket ticket;
        float rows[3][4];

        must(rps_push_start(client, NULL, &push, 1, &ticket));
        must(rps_wait(client, ticket, 0));
        must(rps_embedding_lookup(push.table, 3, distinct, rows[0]));
        ck_assert_mem_eq(rows, expected, sizeof(rows));
    }
    end();
}
END_TEST

START_TEST(adagrad_sees_one_summed_gradient)
{
    rps_table_spec spec;
    rps_embedding_table *table;
    const uint64_t keys[2] = {5, 5};
    const float gradients[2] = {1.0f, 2.0f};
    float row = 0;

    if (!begin(_i)) {
        return;
    }
    rps_table_spec_init(&spec, "ada", 1, RPS_OPTIMIZER_ADAGRAD);
    spec.initializer = RPS_INITIALIZER_ZEROS;
    spec.initial_accumulator = 0.1f;
    must(rps_get_embedding_table(client, &spec, &table));
    must(rps_push_gradients(table, 0, 2, keys, gradients, 1.0f));
    must(rps_embedding_lookup(table, 1, keys, &row));
    /* g = 3: accumulator 9.1 */
    ck_assert_double_eq_tol((double)row, -3.0 / sqrt(9.1), 1e-6);
    end();
}
END_TEST

START_TEST(gradients_of_bags_go_to_each_of_their_keys)
{
    const float gradients[4][3] = {
            {12, 24, 36}, {1, 1, 1}, {8, 16, 4}, {2, 2, 2}};
    const enum rps_pooling kinds[3] = {
            RPS_POOLING_SUM, RPS_POOLING_MEAN, RPS_POOLING_SQRTN};
    int kind;

    if (!begin(_i)) {
        return;
    }
    for (kind = 0; kind < 3; kind++) {
        const uint64_t keys[5] = {0, 1, 2, 3, 4};
        double model[5][3] = {{0}};
        float rows[5][3];
        char name[8];
        rps_push push = {.keys = bag_keys,
                .key_count = 9,
                .offsets = bag_offsets,
                .bag_count = 4,
                .pooling = kinds[kind],
                .flags = RPS_PADDED,
                .padding_key = 0,
                .gradients = gradients,
                .learning_rate = 1.0f};
        rps_ticket ticket;
        int i;

        (void)snprintf(name, sizeof(name), "t%d", kind);
        push.table = table_of(name, 3);
        must(rps_push_start(client, NULL, &push, 1, &ticket));
        must(rps_wait(client, ticket, 0));
        for (i = 0; i < 4 * 9 * 3; i++) {
            int bag = i / 27;
            uint32_t at = (uint32_t)(i / 3 % 9);

            if (at >= bag_offsets[bag] && at < bag_offsets[bag + 1] &&
                    bag_keys[at] != 0) {
                model[bag_keys[at]][i % 3] -= (double)gradients[bag][i % 3] /
                                              bag_divisor(kinds[kind], bag);
            }
        }
        must(rps_embedding_lookup(push.table, 5, keys, rows[0]));
        for (i = 0; i < 15; i++) {
            ck_assert_double_eq_tol(
                    (double)rows[i / 3][i % 3], model[i / 3][i % 3], 1e-4);
        }
    }
    end();
}
END_TEST

START_TEST(nothing_at_all_is_legal_everywhere)
{
    rps_embedding_table *table;
    const uint32_t no_bags[1] = {0};
    const uint32_t empty_bag[2] = {0, 0};
    float row[2] = {9, 9};
    size_t changed = 9;
    rps_lookup lookup = {.offsets = no_bags, .pooling = RPS_POOLING_SUM};
    rps_assign assign = {0};
    rps_ticket ticket;

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", 2);
    must(rps_embedding_lookup(table, 0, NULL, NULL));
    must(rps_push_gradients(table, 0, 0, NULL, NULL, NAN));
    must(rps_refresh(table, 0, NULL, 0, NULL, &changed));
    ck_assert_uint_eq(changed, 0);
    assign.table = table;
    must(rps_assign_rows(client, &assign));
    must(rps_lookup_start(client, NULL, NULL, 0, &ticket));
    must(rps_wait(client, ticket, 0));
    must(rps_push_start(client, NULL, NULL, 0, &ticket));
    must(rps_wait(client, ticket, 0));
    lookup.table = table;
    must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
    must(rps_wait(client, ticket, 0));
    lookup.offsets = empty_bag;
    lookup.bag_count = 1;
    lookup.rows = row;
    must(rps_lookup_start(client, NULL, &lookup, 1, &ticket));
    must(rps_wait(client, ticket, 0));
    ck_assert_float_eq(row[0], 0.0f);
    ck_assert_float_eq(row[1], 0.0f);
    end();
}
END_TEST

START_TEST(what_exceeds_a_frame_is_split)
{
    enum {
        DIM = 8192,
        N = 1100 /* 36 MB of rows */
    };
    uint64_t *keys = malloc(N * sizeof(*keys));
    float *rows = malloc((size_t)N * DIM * sizeof(*rows));
    rps_embedding_table *table;
    size_t i;

    if (begin(_i)) {
        table = table_of("wide", DIM);
        for (i = 0; i < N; i++) {
            keys[i] = i * 0x9e3779b97f4a7c15u;
        }
        assign_values(table, keys, N);
        memset(rows, 0, (size_t)N * DIM * sizeof(*rows));
        must(rps_embedding_lookup(table, N, keys, rows));
        expect_values(keys, N, DIM, rows);
        /* a push of minus the rows: every row becomes twice itself */
        for (i = 0; i < (size_t)N * DIM; i++) {
            rows[i] = -rows[i];
        }
        must(rps_push_gradients(table, 0, N, keys, rows, NAN));
        must(rps_embedding_lookup(table, N, keys, rows));
        expect_times(keys, N, DIM, rows, 2);
        /* the push was one push, and the lane goes on */
        must(rps_push_gradients(table, 0, 1, keys, rows, NAN));
        end();
    }
    free(keys);
    free(rows);
}
END_TEST

START_TEST(several_lookups_are_in_flight_at_once)
{
    enum {
        TICKETS = 20
    };
    uint64_t keys[TICKETS][50];
    float rows[TICKETS][50][2];
    rps_ticket tickets[TICKETS];
    rps_embedding_table *table;
    int i;
    int k;
    int done = 0;

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", 2);
    for (i = 0; i < TICKETS; i++) {
        rps_lookup lookup = {.table = table,
                .keys = keys[i],
                .key_count = 50,
                .rows = rows[i]};

        for (k = 0; k < 50; k++) {
            keys[i][k] = (uint64_t)(i * 50 + k);
        }
        assign_values(table, keys[i], 50);
        must(rps_lookup_start(client, NULL, &lookup, 1, &tickets[i]));
    }
    rps_cancel(client, tickets[3]);
    memset(rows[3], 0, sizeof(rows[3]));
    for (i = TICKETS - 1; i > 0; i--) {
        if (i != 3) {
            must(rps_wait(client, tickets[i], 10000));
            expect_values(keys[i], 50, 2, rows[i][0]);
        }
    }
    while (done == 0) {
        struct pollfd wait = {.fd = rps_client_fd(client), .events = POLLIN};

        if (wait.fd >= 0) { /* embedded: none */
            ck_assert_int_eq(poll(&wait, 1, 5000), 1);
        }
        must(rps_poll(client, tickets[0], &done));
    }
    expect_values(keys[0], 50, 2, rows[0][0]);
    ck_assert_float_eq(rows[3][0][0], 0.0f);
    end();
}
END_TEST

START_TEST(wrong_arguments_are_refused_by_name)
{
    const uint64_t keys[2] = {1, 2};
    const uint32_t descending[3] = {0, 2, 1};
    const uint32_t jagged[3] = {0, 3, 2};
    float rows[4];
    rps_lookup lookup = {.keys = keys, .key_count = 2, .rows = rows};
    rps_push pushes[2] = {{.keys = keys, .key_count = 2, .gradients = rows},
            {.keys = keys, .key_count = 2, .gradients = rows}};
    rps_call call = {.flags = 8};
    rps_ticket ticket;

    if (!begin(_i)) {
        return;
    }
    must_fail(rps_lookup_start(client, NULL, &lookup, 1, &ticket), RPS_E_INVAL,
            "lookups[0].table");
    lookup.table = pushes[0].table = pushes[1].table = table_of("emb", 2);
    must_fail(rps_lookup_start(client, &call, &lookup, 1, &ticket), RPS_E_INVAL,
            "call.flags");
    lookup.pooling = RPS_POOLING_SUM;
    must_fail(rps_lookup_start(client, NULL, &lookup, 1, &ticket), RPS_E_INVAL,
            "offsets is NULL");
    lookup.offsets = descending;
    lookup.bag_count = 2;
    must_fail(rps_lookup_start(client, NULL, &lookup, 1, &ticket), RPS_E_INVAL,
            "offsets");
    lookup.offsets = jagged;
    must_fail(rps_lookup_start(client, NULL, &lookup, 1, &ticket), RPS_E_INVAL,
            "offsets[1] = 3");
    must_fail(rps_push_start(client, NULL, pushes, 2, &ticket), RPS_E_INVAL,
            "pushes[1].table: emb");
    pushes[0].gradient_stride = 4;
    must_fail(rps_push_start(client, NULL, pushes, 1, &ticket), RPS_E_INVAL,
            "stride of 4");
    pushes[0].gradient_stride = 0;
    pushes[0].value = RPS_VALUE_F16;
    must_fail(rps_push_start(client, NULL, pushes, 1, &ticket),
            RPS_E_UNSUPPORTED, "value");
    must_fail(rps_embedding_lookup(NULL, 0, NULL, NULL), RPS_E_INVAL, "table");
    must_fail(rps_lookup_start(client, NULL, NULL, 1, &ticket), RPS_E_INVAL,
            "lookups is NULL");
    ck_assert_uint_eq(ticket.id, 0);
    must_fail(rps_push_start(client, NULL, NULL, 1, &ticket), RPS_E_INVAL,
            "pushes is NULL");
    ck_assert_uint_eq(ticket.id, 0);
    rps_client_options_init(NULL);
    rps_table_spec_init(NULL, "emb", 1, RPS_OPTIMIZER_SGD);
    end();
}
END_TEST

START_TEST(second_spec_must_be_the_first)
{
    rps_table_spec spec;
    rps_embedding_table *table = NULL;
    rps_embedding_table *again = NULL;

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", 4);
    spec = *rps_embedding_table_spec(table);
    must(rps_get_embedding_table(client, &spec, &again));
    ck_assert_ptr_eq(again, table);
    spec.dim = 8;
    must_fail(rps_get_embedding_table(client, &spec, &again), RPS_E_MISMATCH,
            "dim");
    ck_assert_ptr_null(again);
    (void)strcpy(spec.name, "..");
    must_fail(
            rps_get_embedding_table(client, &spec, &again), RPS_E_INVAL, "..");
    /* the lane goes on after refusals */
    table = table_of("other", 4);
    must(rps_push_gradients(table, 0, 0, NULL, NULL, NAN));
    end();
}
END_TEST

START_TEST(after_fork_the_child_is_told_so)
{
    pid_t pid;
    int state = 0;

    if (!begin(_i)) {
        return;
    }
    (void)table_of("emb", 2);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        rps_ticket ticket;
        bool good = rps_lookup_start(client, NULL, NULL, 0, &ticket) ==
                            RPS_E_FORKED &&
                    rps_apply(client) == RPS_E_FORKED &&
                    rps_client_fd(client) == -1 &&
                    strstr(rps_client_error(client), "after fork") != NULL;

        rps_client_close(client); /* frees its copy, harms nobody */
        _exit(good ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(pid, &state, 0), pid);
    ck_assert(WIFEXITED(state));
    ck_assert_int_eq(WEXITSTATUS(state), 0);
    (void)table_of("other", 2); /* the parent's goes on */
    end();
}
END_TEST

START_TEST(stat_and_ping_answer_json)
{
    char *json = NULL;

    if (!begin(_i)) {
        return;
    }
    (void)table_of("emb", 2);
    must(rps_stat(client, 0, &json));
    ck_assert_ptr_nonnull(strstr(json, "\"emb\""));
    free(json);
    must(rps_ping(client, 0, &json));
    ck_assert_ptr_nonnull(strstr(json, "epoch"));
    free(json);
    must(rps_ping(client, 0, NULL));
    must_fail(rps_stat(client, 17, &json), RPS_E_INVAL, "PS 17");
    ck_assert_ptr_null(json);
    end();
}
END_TEST

static void
push_one(rps_embedding_table *table, uint64_t keys)
{
    const float gradients[16] = {
            -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    uint64_t list[8];
    uint64_t i;

    for (i = 0; i < keys; i++) {
        list[i] = i;
    }
    must(rps_push_gradients(table, 0, keys, list, gradients, NAN));
}

START_TEST(servers_that_come_back_empty_say_what_is_lost)
{
    const uint64_t keys[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    rps_embedding_table *table;
    rps_rollback lost;
    float rows[16];
    uint32_t ps;
    int i;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    servers.reconnect_ms = 30000;
    client = servers_open(&servers, NULL, 0, 1);
    table = table_of("emb", 2);
    for (i = 0; i < 3; i++) {
        push_one(table, 8);
    }
    servers_kill(&servers);
    servers_restart(&servers);
    must_fail(rps_embedding_lookup(table, 8, keys, rows), RPS_E_ROLLED_BACK,
            "with 3 acknowledged pushes");
    for (ps = 0; ps < servers.count; ps++) {
        /* one that is found to be back by this very call ends it */
        const rps_status status = rps_ping(client, ps, NULL);

        ck_assert(status == RPS_OK || status == RPS_E_ROLLED_BACK);
    }
    for (ps = 0; ps < servers.count; ps++) {
        must(rps_client_rolled_back(client, ps, &lost));
        ck_assert_uint_eq(lost.pushes, 3);
        ck_assert_uint_eq(lost.acknowledged, 3);
        ck_assert_uint_eq(lost.unanswered, 0);
        ck_assert_uint_eq(lost.first, 1); /* opened the table */
        ck_assert_uint_eq(lost.last, 4);
    }
    must_fail(rps_client_rolled_back(client, ps, &lost), RPS_E_INVAL, "PS");
    table = table_of("emb", 2);
    push_one(table, 8);
    must(rps_client_rolled_back(client, 0, &lost));
    ck_assert_uint_eq(lost.pushes, 0);
    ck_assert_uint_eq(lost.acknowledged, 4);
    must(rps_embedding_lookup(table, 8, keys, rows));
    for (i = 0; i < 16; i++) {
        ck_assert_float_eq(rows[i], 1);
    }
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("rows");
    TCase *tcase = tcase_create("rows");
    TCase *large =
            tcase_create("large"); /* one client, one request at a time */

    tcase_set_timeout(tcase, 120);
    tcase_set_timeout(large, 120);
    tcase_add_loop_test(tcase, every_key_goes_in_and_comes_back, 0, LOOPS);
    tcase_add_loop_test(tcase, duplicates_and_padding_are_filled_in, 0, LOOPS);
    tcase_add_loop_test(
            tcase, absent_keys_answer_first_value_or_default, 0, LOOPS);
    tcase_add_loop_test(tcase, bags_are_pooled_as_the_model_says, 0, LOOPS);
    tcase_add_loop_test(
            tcase, empty_bags_first_middle_and_last_are_zero_rows, 0, LOOPS);
    tcase_add_loop_test(
            tcase, push_of_duplicates_is_one_step_of_their_sum, 0, LOOPS);
    tcase_add_loop_test(tcase, gradients_are_found_wherever_they_lie, 0, LOOPS);
    tcase_add_loop_test(tcase, adagrad_sees_one_summed_gradient, 0, LOOPS);
    tcase_add_loop_test(
            tcase, gradients_of_bags_go_to_each_of_their_keys, 0, LOOPS);
    tcase_add_loop_test(tcase, nothing_at_all_is_legal_everywhere, 0, LOOPS);
    tcase_add_loop_test(large, what_exceeds_a_frame_is_split, 0, LOOPS);
    tcase_add_loop_test(tcase, several_lookups_are_in_flight_at_once, 0, LOOPS);
    tcase_add_loop_test(tcase, wrong_arguments_are_refused_by_name, 0, LOOPS);
    tcase_add_loop_test(tcase, second_spec_must_be_the_first, 0, LOOPS);
    tcase_add_loop_test(tcase, after_fork_the_child_is_told_so, 0, LOOPS);
    tcase_add_loop_test(tcase, stat_and_ping_answer_json, 0, LOOPS);
    tcase_add_loop_test(
            tcase, servers_that_come_back_empty_say_what_is_lost, 1, LOOPS);
    suite_add_tcase(suite, tcase);
    suite_add_single_threaded(suite, large);
    return run_suite(suite);
}
