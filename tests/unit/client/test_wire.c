/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels and in which form: bags that the servers pool, value types and
 * checksums; embedded and over 1, 2 and 3
 * servers (the loop's index). The client's own pooling, whose tests are in
 * test_rows.c, is the model of the servers'.
 */
#include "base/half.h"
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOPS 4 /* embedded, 1, 2, 3 servers */
#define DIM   5u
#define KEYS  40u
#define BAGS  60u
#define USES  400u
#define PAD   77u

static struct servers servers;
static rps_client *client;
static uint64_t state;

static bool
begin(int count)
{
    if (!servers_start(&servers, (uint32_t)count)) {
        return false;
    }
    client = servers_open_chief(&servers);
    state = 88172645463325252u;
    return true;
}

static void
end(void)
{
    rps_client_close(client);
    servers_stop(&servers);
}

static uint64_t
draw(uint64_t below)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state >> 11) % below;
}

static rps_embedding_table *
table_of(const char *name, uint32_t dim)
{
    return servers_counter(client, name, dim);
}

static uint64_t
key_of(uint64_t i)
{
    return i == 3 ? PAD : i * 0x9e3779b97f4a7c15u;
}

/** A table, and bags over its keys: empty ones, padding, many duplicates. */
struct world {
    rps_embedding_table *table;
    uint64_t distinct[KEYS];
    float values[KEYS][DIM];
    uint64_t keys[USES];
    uint32_t offsets[BAGS + 1];
};

/* Rows are whole numbers where `exact`: then every order of a sum is right. */
static void
fill_world(struct world *world, const char *name, bool exact)
{
    rps_assign assign = {.keys = world->distinct,
            .key_count = KEYS,
            .rows = world->values[0]};

    world->table = assign.table = table_of(name, DIM);
    for (size_t i = 0; i < KEYS * DIM; i++) {
        const float whole = (float)draw(2001) - 1000.0f;

        world->distinct[i / DIM] = key_of(i / DIM);
        world->values[i / DIM][i % DIM] = exact ? whole : whole / 7.0f;
    }
    must(rps_assign_rows(client, &assign));
    for (size_t i = 0; i < USES; i++) {
        world->keys[i] = key_of(draw(KEYS));
    }
    for (uint32_t i = 0; i < BAGS; i++) { /* of 0 to 12 keys, one large */
        const uint32_t from = world->offsets[i];
        const uint32_t to = from + (uint32_t)draw(13);

        world->offsets[i + 1] = to < USES && i + 1 < BAGS ? to : USES;
    }
}

static rps_lookup
bag_lookup(const struct world *world, enum rps_pooling pooling, uint32_t flags,
        float *rows)
{
    return (rps_lookup){.table = world->table,
            .keys = world->keys,
            .key_count = USES,
            .offsets = world->offsets,
            .bag_count = BAGS,
            .pooling = pooling,
            .flags = RPS_PADDED | flags,
            .padding_key = PAD,
            .rows = rows};
}

static void
run_lookups(const rps_lookup *lookups, size_t n)
{
    rps_ticket ticket;

    must(rps_lookup_start(client, NULL, lookups, n, &ticket));
    must(rps_wait(client, ticket, 0));
}

static void
run_push(const rps_push *push)
{
    rps_ticket ticket;

    must(rps_push_start(client, NULL, push, 1, &ticket));
    must(rps_wait(client, ticket, 0));
}

START_TEST(bags_that_the_servers_pool_are_the_clients)
{
    struct world world = {0};
    float own[BAGS][DIM + 1], theirs[BAGS][DIM + 1];
    const size_t stride = sizeof(own[0]);

    if (!begin(_i)) {
        return;
    }
    fill_world(&world, "emb", true);
    for (int kind = RPS_POOLING_SUM; kind <= RPS_POOLING_SQRTN; kind++) {
        rps_lookup lookups[2] = {
                bag_lookup(&world, (enum rps_pooling)kind, 0, own[0]),
                bag_lookup(&world, (enum rps_pooling)kind, RPS_POOL_ON_SERVER,
                        theirs[0])};

        memset(own, 0xff, sizeof(own));
        memset(theirs, 0xff, sizeof(theirs));
        lookups[0].row_stride = lookups[1].row_stride = stride;
        run_lookups(lookups, 2);
        ck_assert_mem_eq(own, theirs, sizeof(own));
    }
    end();
}
END_TEST

/* Sums of rows that are no whole numbers differ by rounding where a bag lies
 * on several servers, and only there; they are the same each time. */
START_TEST(sums_of_several_servers_differ_by_rounding_alone)
{
    struct world world = {0};
    float own[BAGS][DIM], theirs[2][BAGS][DIM];
    rps_lookup lookups[3];

    if (!begin(_i)) {
        return;
    }
    fill_world(&world, "emb", false);
    lookups[0] = bag_lookup(&world, RPS_POOLING_MEAN, 0, own[0]);
    for (int i = 0; i < 2; i++) {
        lookups[1 + i] = bag_lookup(
                &world, RPS_POOLING_MEAN, RPS_POOL_ON_SERVER, theirs[i][0]);
    }
    run_lookups(lookups, 3);
    ck_assert_mem_eq(theirs[0], theirs[1], sizeof(own));
    if (_i <= 1) {
        ck_assert_mem_eq(own, theirs[0], sizeof(own));
    }
    for (size_t i = 0; i < BAGS * DIM; i++) {
        ck_assert_float_eq_tol(
                own[i / DIM][i % DIM], theirs[0][i / DIM][i % DIM], 1e-3f);
    }
    end();
}
END_TEST

static rps_push
bag_push(const struct world *world, enum rps_pooling pooling, uint32_t flags,
        const float *gradients)
{
    return (rps_push){.table = world->table,
            .keys = world->keys,
            .key_count = USES,
            .offsets = world->offsets,
            .bag_count = BAGS,
            .pooling = pooling,
            .flags = RPS_PADDED | flags,
            .padding_key = PAD,
            .gradients = gradients,
            .learning_rate = 0.5f};
}

/* Bit for bit, whatever the gradients and however many servers: a key's
 * gradients are summed in the same order. */
START_TEST(a_push_of_bags_is_the_clients_own_sum_bit_for_bit)
{
    static const char *const names[2][3] = {
            {"a1", "a2", "a3"}, {"b1", "b2", "b3"}};
    float gradients[BAGS][DIM];

    if (!begin(_i)) {
        return;
    }
    for (size_t i = 0; i < BAGS * DIM; i++) {
        gradients[i / DIM][i % DIM] = ((float)draw(2001) - 1000.0f) / 7.0f;
    }
    for (int kind = 0; kind < 3; kind++) {
        float rows[2][KEYS][DIM];

        for (int there = 0; there < 2; there++) {
            struct world world = {0};
            rps_push push;

            state = 99;
            fill_world(&world, names[there][kind], false);
            push = bag_push(&world, (enum rps_pooling)(kind + 1),
                    there != 0 ? RPS_POOL_ON_SERVER : 0, gradients[0]);
            run_push(&push);
            must(rps_embedding_lookup(
                    world.table, KEYS, world.distinct, rows[there][0]));
            ck_assert_mem_ne(rows[there], world.values, sizeof(rows[0]));
        }
        ck_assert_mem_eq(rows[0], rows[1], sizeof(rows[0]));
    }
    end();
}
END_TEST

/* bytes[1]: of a lookup of bags of so many keys each that the servers pool;
 * bytes[0]: the client does. */
static void
bytes_of_bags(rps_embedding_table *table, uint32_t bags, uint32_t size,
        uint64_t distinct, uint64_t bytes[2])
{
    uint64_t *keys = malloc((size_t)bags * size * sizeof(*keys));
    uint32_t *offsets = malloc((bags + 1) * sizeof(*offsets));
    float *rows = malloc((size_t)bags * DIM * sizeof(*rows));

    for (uint32_t i = 0; i < bags * size; i++) {
        keys[i] = i % distinct;
    }
    for (uint32_t i = 0; i <= bags; i++) {
        offsets[i] = i * size;
    }
    for (int there = 0; there < 2; there++) {
        const rps_lookup lookup = {.table = table,
                .keys = keys,
                .key_count = (size_t)bags * size,
                .offsets = offsets,
                .bag_count = bags,
                .pooling = RPS_POOLING_SUM,
                .flags = there == 1 ? RPS_POOL_ON_SERVER : 0,
                .rows = rows};
        rps_traffic before, after;

        rps_client_traffic(client, &before);
        run_lookups(&lookup, 1);
        rps_client_traffic(client, &after);
        bytes[there] = after.sent_bytes + after.received_bytes -
                       before.sent_bytes - before.received_bytes;
    }
    free(keys);
    free(offsets);
    free(rows);
}

/* docs/CLIENT.md: there, if 4 (uses + bags) + bags row < keys row. */
START_TEST(large_bags_of_distinct_keys_are_smaller_there)
{
    rps_embedding_table *table;
    uint64_t bytes[2];

    if (!begin(_i)) {
        return;
    }
    table = table_of("emb", DIM);
    bytes_of_bags(table, 10, 500, 5000, bytes);
    ck_assert_uint_lt(2 * bytes[1], bytes[0]);
    bytes_of_bags(table, 2000, 3, 100, bytes);
    ck_assert_uint_lt(2 * bytes[0], bytes[1]);
    end();
}
END_TEST

/* Three uses in two bags of one push are three, as where the client sums. */
START_TEST(uses_in_bags_count_towards_admission)
{
    const uint64_t keys[6] = {5, 6, 5, 5, 6, 7};
    const uint32_t offsets[3] = {0, 3, 6};
    const float gradients[2] = {1, 10};
    const uint64_t distinct[3] = {5, 6, 7};

    if (!begin(_i)) {
        return;
    }
    for (int there = 0; there < 2; there++) {
        rps_push push = {.keys = keys,
                .key_count = 6,
                .offsets = offsets,
                .bag_count = 2,
                .pooling = RPS_POOLING_SUM,
                .flags = there == 1 ? RPS_POOL_ON_SERVER : 0,
                .gradients = gradients,
                .learning_rate = 1.0f};
        rps_table_spec spec;
        float rows[3];
        float sum = 0;
        rps_lookup lookup = {.keys = keys,
                .key_count = 3,
                .offsets = offsets,
                .bag_count = 1,
                .pooling = RPS_POOLING_SUM,
                .flags = push.flags,
                .rows = &sum};

        rps_table_spec_init(
                &spec, there == 1 ? "b" : "a", 1, RPS_OPTIMIZER_SGD);
        spec.initializer = RPS_INITIALIZER_CONSTANT;
        spec.initializer_low = 100.0f;
        spec.min_used_times = 3;
        spec.default_value = 0.25f;
        must(rps_get_embedding_table(client, &spec, &push.table));
        lookup.table = push.table;
        run_push(&push);
        must(rps_embedding_lookup(push.table, 3, distinct, rows));
        ck_assert_float_eq(rows[0], 88.0f);  /* 100 - 1 - 1 - 10 */
        ck_assert_float_eq(rows[1], 100.0f); /* 2 so far, the lookup's third */
        ck_assert_float_eq(rows[2], 0.25f);
        run_lookups(&lookup, 1); /* {5, 6, 5} */
        ck_assert_float_eq(sum, 276.0f);
    }
    end();
}
END_TEST

/* What a value reads after the way there and back; i8 aside. */
static float
rounded(enum rps_value wire, float x)
{
    switch (wire) {
    case RPS_VALUE_F16:
        return rps_float_of_f16(rps_float_to_f16(x));
    case RPS_VALUE_BF16:
        return rps_float_of_bf16(rps_float_to_bf16(x));
    default:
        return x;
    }
}

/* i8 steps by a 127th of the row's largest. */
static float
error_of(enum rps_value wire, const float *row)
{
    float most = 0.0f;

    for (size_t c = 0; c < DIM; c++) {
        most = fabsf(row[c]) > most ? fabsf(row[c]) : most;
    }
    return wire == RPS_VALUE_I8 ? most / 253.9f + 1e-6f : 0.0f;
}

static void
expect_rounded(enum rps_value wire, const float *exact, const float *got)
{
    for (size_t c = 0; c < DIM; c++) {
        const float off = fabsf(got[c] - rounded(wire, exact[c]));

        ck_assert_msg(off <= error_of(wire, exact), "%g is read as %g",
                (double)exact[c], (double)got[c]);
    }
}

START_TEST(rows_and_gradients_are_rounded_to_what_travels)
{
    struct world world = {0};
    float rows[KEYS][DIM];
    float after[KEYS][DIM];

    if (!begin(_i)) {
        return;
    }
    fill_world(&world, "emb", false);
    for (int wire = RPS_VALUE_F16; wire <= RPS_VALUE_I8; wire++) {
        rps_lookup lookup = {.table = world.table,
                .keys = world.distinct,
                .key_count = KEYS,
                .rows = rows,
                .wire = (enum rps_value)wire};
        rps_push push = {.keys = world.distinct,
                .key_count = KEYS,
                .gradients = world.values,
                .learning_rate = 1.0f,
                .wire = (enum rps_value)wire};
        char name[8];

        run_lookups(&lookup, 1);
        (void)snprintf(name, sizeof(name), "p%d", wire);
        push.table = table_of(name, DIM);
        run_push(&push);
        must(rps_embedding_lookup(push.table, KEYS, world.distinct, after[0]));
        for (size_t i = 0; i < KEYS; i++) {
            expect_rounded((enum rps_value)wire, world.values[i], rows[i]);
            for (size_t c = 0; c < DIM; c++) {
                after[i][c] = -after[i][c]; /* rows were zeros */
            }
            expect_rounded((enum rps_value)wire, world.values[i], after[i]);
        }
    }
    end();
}
END_TEST

/* Every key's row moved by half of its bags' gradients, summed in double. */
static void
expect_moved(const struct world *world, float gradients[BAGS][DIM],
        float rows[KEYS][DIM])
{
    for (size_t k = 0; k < KEYS; k++) {
        double moved[DIM] = {0};

        for (uint32_t bag = 0; bag < BAGS; bag++) {
            for (uint32_t o = world->offsets[bag]; o < world->offsets[bag + 1];
                    o++) {
                for (size_t c = 0; c < DIM; c++) {
                    moved[c] += world->keys[o] == world->distinct[k] &&
                                                world->keys[o] != PAD
                                        ? 0.5 * (double)gradients[bag][c]
                                        : 0.0;
                }
            }
        }
        for (size_t c = 0; c < DIM; c++) {
            ck_assert_double_eq(
                    (double)rows[k][c], (double)world->values[k][c] - moved[c]);
        }
    }
}

/* One call: plain, pooled here and there, of three tables and four types. */
START_TEST(a_fused_call_may_mix_tables_bags_and_types)
{
    struct world a = {0}, b = {0};
    float bags[3][BAGS][DIM], rows[KEYS][DIM];
    float gradients[BAGS][DIM];
    rps_lookup lookups[4];
    rps_push pushes[3];
    rps_ticket ticket;

    if (!begin(_i)) {
        return;
    }
    fill_world(&a, "a", true);
    fill_world(&b, "b", true);
    lookups[0] = bag_lookup(&a, RPS_POOLING_SUM, 0, bags[0][0]);
    lookups[1] =
            bag_lookup(&a, RPS_POOLING_SUM, RPS_POOL_ON_SERVER, bags[1][0]);
    lookups[2] =
            bag_lookup(&b, RPS_POOLING_MEAN, RPS_POOL_ON_SERVER, bags[2][0]);
    lookups[2].wire = RPS_VALUE_BF16;
    lookups[3] = (rps_lookup){.table = b.table,
            .keys = b.distinct,
            .key_count = KEYS,
            .rows = rows,
            .flags = RPS_READ_ONLY,
            .wire = RPS_VALUE_I8};
    run_lookups(lookups, 4);
    ck_assert_mem_eq(bags[0], bags[1], sizeof(bags[0]));
    for (size_t i = 0; i < KEYS; i++) {
        expect_rounded(RPS_VALUE_I8, b.values[i], rows[i]);
    }
    for (size_t i = 0; i < BAGS * DIM; i++) {
        gradients[i / DIM][i % DIM] = (float)draw(16);
    }
    pushes[0] = bag_push(&a, RPS_POOLING_SUM, RPS_POOL_ON_SERVER, gradients[0]);
    pushes[0].wire = RPS_VALUE_F16; /* exact: small whole numbers */
    pushes[1] = bag_push(&b, RPS_POOLING_SUM, 0, gradients[0]);
    pushes[2] = (rps_push){.table = table_of("c", DIM),
            .keys = a.distinct,
            .key_count = KEYS,
            .gradients = a.values,
            .learning_rate = 1.0f};
    must(rps_push_start(client, NULL, pushes, 3, &ticket));
    must(rps_wait(client, ticket, 0));
    must(rps_embedding_lookup(a.table, KEYS, a.distinct, rows[0]));
    expect_moved(&a, gradients, rows);
    must(rps_embedding_lookup(b.table, KEYS, b.distinct, rows[0]));
    expect_moved(&b, gradients, rows);
    must(rps_embedding_lookup(pushes[2].table, KEYS, a.distinct, rows[0]));
    for (size_t i = 0; i < KEYS * DIM; i++) {
        ck_assert_float_eq(rows[i / DIM][i % DIM], -a.values[i / DIM][i % DIM]);
    }
    end();
}
END_TEST

/* More tables than a frame names, every other one with bags. */
START_TEST(a_call_of_hundreds_of_tables_goes_in_several_frames)
{
    enum {
        TABLES = 210
    };
    const uint64_t keys[4] = {1, 2, 3, 2};
    const uint32_t offsets[3] = {0, 1, 4};
    const float gradients[4][2] = {{-1, -2}, {-4, -8}, {-16, -32}, {-64, -128}};
    const float expected[2][4][2] = {
            {{1, 2}, {68, 136}, {16, 32}, {68, 136}}, {{1, 2}, {20, 40}}};
    rps_lookup *lookups = calloc(TABLES, sizeof(*lookups));
    rps_push *pushes = calloc(TABLES, sizeof(*pushes));
    float(*rows)[4][2] = calloc(TABLES, sizeof(*rows));
    rps_ticket ticket;
    size_t wrong = 0;

    if (begin(_i)) {
        for (size_t i = 0; i < TABLES; i++) {
            const bool bags = i % 2 == 1;
            char name[24];

            (void)snprintf(name, sizeof(name), "t%zu", i);
            lookups[i] = (rps_lookup){.table = table_of(name, 2),
                    .keys = keys,
                    .key_count = 4,
                    .offsets = bags ? offsets : NULL,
                    .bag_count = bags ? 2 : 0,
                    .pooling = bags ? RPS_POOLING_SUM : RPS_POOLING_NONE,
                    .flags = RPS_POOL_ON_SERVER,
                    .rows = rows[i]};
            pushes[i] = (rps_push){.table = lookups[i].table,
                    .keys = keys,
                    .key_count = 4,
                    .offsets = lookups[i].offsets,
                    .bag_count = lookups[i].bag_count,
                    .pooling = lookups[i].pooling,
                    .flags = RPS_POOL_ON_SERVER,
                    .gradients = gradients,
                    .learning_rate = NAN};
        }
        must(rps_push_start(client, NULL, pushes, TABLES, &ticket));
        must(rps_wait(client, ticket, 0));
        run_lookups(lookups, TABLES);
        for (size_t i = 0; i < TABLES; i++) {
            wrong += memcmp(rows[i], expected[i % 2],
                             (i % 2 == 1 ? 2 : 4) * sizeof(rows[i][0])) != 0;
        }
        ck_assert_uint_eq(wrong, 0);
        end();
    }
    free(lookups);
    free(pushes);
    free(rows);
}
END_TEST

/* A bag of 600 distinct keys of 32 KiB, and 600 bags of one key. */
START_TEST(bags_that_exceed_a_frame_are_cut_and_joined_again)
{
    enum {
        WIDE = 8192,
        N = 600
    };
    uint64_t *keys = malloc(2 * N * sizeof(*keys));
    uint32_t *offsets = malloc((N + 2) * sizeof(*offsets));
    float *own = malloc((size_t)(N + 1) * WIDE * sizeof(*own));
    float *theirs = malloc((size_t)(N + 1) * WIDE * sizeof(*theirs));
    rps_push push = {.key_count = 2 * N,
            .bag_count = N + 1,
            .pooling = RPS_POOLING_SUM,
            .flags = RPS_POOL_ON_SERVER,
            .learning_rate = NAN};
    rps_lookup lookup = {
            .key_count = 2 * N, .bag_count = N + 1, .pooling = RPS_POOLING_SUM};
    size_t wrong = 0;

    if (begin(_i)) {
        for (uint32_t i = 0; i < N; i++) {
            keys[i] = i * 0x9e3779b97f4a7c15u;
            keys[N + i] = 7;
            offsets[1 + i] = N + i;
        }
        offsets[0] = 0;
        offsets[N + 1] = 2 * N;
        for (size_t i = 0; i < (size_t)(N + 1) * WIDE; i++) {
            own[i] = -(float)(i % 97);
        }
        push.table = lookup.table = table_of("wide", WIDE);
        push.keys = lookup.keys = keys;
        push.offsets = lookup.offsets = offsets;
        push.gradients = own;
        run_push(&push);
        lookup.rows = own;
        run_lookups(&lookup, 1);
        lookup.rows = theirs;
        lookup.flags = RPS_POOL_ON_SERVER;
        memset(theirs, 0xff, (size_t)(N + 1) * WIDE * sizeof(*theirs));
        run_lookups(&lookup, 1);
        for (size_t i = 0; i < (size_t)(N + 1) * WIDE; i++) {
            wrong += own[i] != theirs[i];
        }
        ck_assert_uint_eq(wrong, 0);
        /* every key of the large bag got its gradient, exactly once */
        ck_assert_float_eq(own[3], 3.0f * N);
        end();
    }
    free(keys);
    free(offsets);
    free(own);
    free(theirs);
}
END_TEST

/* 40000 uses of a row of 8192: more than a server adds up for one frame. */
START_TEST(a_bag_that_adds_up_too_much_is_cut)
{
    enum {
        WIDE = 8192,
        N = 40000
    };
    const uint32_t offsets[2] = {0, N};
    uint64_t *keys = calloc(N, sizeof(*keys));
    float *rows = malloc(WIDE * sizeof(*rows));
    rps_lookup lookup = {.keys = keys,
            .key_count = N,
            .offsets = offsets,
            .bag_count = 1,
            .pooling = RPS_POOLING_SUM,
            .flags = RPS_POOL_ON_SERVER,
            .rows = rows};
    rps_traffic before, after;
    size_t wrong = 0;

    if (begin(_i)) {
        rps_assign assign = {.keys = keys, .key_count = 1, .rows = rows};

        lookup.table = assign.table = table_of("wide", WIDE);
        for (size_t c = 0; c < WIDE; c++) {
            rows[c] = (float)(c % 5);
        }
        must(rps_assign_rows(client, &assign));
        rps_client_traffic(client, &before);
        run_lookups(&lookup, 1);
        rps_client_traffic(client, &after);
        ck_assert_uint_eq(after.requests - before.requests, 2);
        for (size_t c = 0; c < WIDE; c++) {
            wrong += rows[c] != (float)(c % 5) * N;
        }
        ck_assert_uint_eq(wrong, 0);
        end();
    }
    free(keys);
    free(rows);
}
END_TEST

START_TEST(nothing_in_bags_is_legal_there_too)
{
    const uint32_t offsets[3] = {0, 0, 2};
    const uint64_t keys[2] = {PAD, PAD};
    float rows[2][DIM];
    rps_lookup lookup = {.keys = keys,
            .key_count = 2,
            .offsets = offsets,
            .bag_count = 2,
            .pooling = RPS_POOLING_MEAN,
            .flags = RPS_PADDED | RPS_POOL_ON_SERVER,
            .padding_key = PAD,
            .rows = rows};
    rps_push push = {.keys = keys,
            .key_count = 2,
            .offsets = offsets,
            .bag_count = 2,
            .pooling = RPS_POOLING_MEAN,
            .flags = RPS_PADDED | RPS_POOL_ON_SERVER,
            .padding_key = PAD,
            .gradients = rows,
            .learning_rate = NAN};

    if (!begin(_i)) {
        return;
    }
    lookup.table = push.table = table_of("emb", DIM);
    memset(rows, 0xff, sizeof(rows));
    run_lookups(&lookup, 1);
    for (size_t i = 0; i < 2 * DIM; i++) {
        ck_assert_float_eq(rows[i / DIM][i % DIM], 0.0f);
    }
    run_push(&push);
    lookup.wire = (enum rps_value)9;
    must_fail(rps_lookup_start(client, NULL, &lookup, 1, &(rps_ticket){0}),
            RPS_E_INVAL, "lookups[0].wire");
    end();
}
END_TEST

START_TEST(checksums_go_both_ways_when_asked_for)
{
    rps_client_options options;
    rps_cluster cluster;
    rps_client *plain;
    struct world world = {0};
    float own[BAGS][DIM], theirs[BAGS][DIM];
    rps_lookup lookups[2];
    rps_traffic traffic;
    char *json = NULL;

    if (!begin(_i)) {
        return;
    }
    plain = client;
    cluster = servers_cluster(&servers, NULL, 0, 1);
    rps_client_options_init(&options);
    options.cluster = &cluster;
    options.connect_timeout_ms = 30000;
    options.body_checksum = 1;
    servers_set_access(&servers, &options);
    must(rps_client_open(&client, &options));
    rps_cluster_finish(&cluster);
    fill_world(&world, "emb", true);
    lookups[0] = bag_lookup(&world, RPS_POOLING_SUM, 0, own[0]);
    lookups[1] =
            bag_lookup(&world, RPS_POOLING_SUM, RPS_POOL_ON_SERVER, theirs[0]);
    run_lookups(lookups, 2);
    ck_assert_mem_eq(own, theirs, sizeof(own));
    must(rps_stat_digests(client, 0, &json)); /* answered by a thread */
    free(json);
    must_fail(rps_alter_table(client, "none", "{}"), RPS_E_NOT_FOUND, "none");
    rps_client_traffic(client, &traffic);
    ck_assert_uint_gt(traffic.requests, 3);
    ck_assert_uint_gt(traffic.sent_bytes, 64 * traffic.requests);
    ck_assert_uint_gt(traffic.received_bytes, 64 * traffic.requests);
    rps_client_close(client);
    client = plain;
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("wire");
    TCase *tcase = tcase_create("wire");
    TCase *large =
            tcase_create("large"); /* one client, one request at a time */

    tcase_set_timeout(tcase, 120);
    tcase_set_timeout(large, 120);
    tcase_add_loop_test(
            tcase, bags_that_the_servers_pool_are_the_clients, 0, LOOPS);
    tcase_add_loop_test(
            tcase, sums_of_several_servers_differ_by_rounding_alone, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_push_of_bags_is_the_clients_own_sum_bit_for_bit, 0, LOOPS);
    tcase_add_loop_test(tcase, uses_in_bags_count_towards_admission, 0, LOOPS);
    tcase_add_loop_test(
            tcase, rows_and_gradients_are_rounded_to_what_travels, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_fused_call_may_mix_tables_bags_and_types, 0, LOOPS);
    tcase_add_loop_test(
            large, bags_that_exceed_a_frame_are_cut_and_joined_again, 0, LOOPS);
    tcase_add_loop_test(tcase,
            a_call_of_hundreds_of_tables_goes_in_several_frames, 0, LOOPS);
    tcase_add_loop_test(tcase, nothing_in_bags_is_legal_there_too, 0, LOOPS);
    tcase_add_loop_test(tcase, checksums_go_both_ways_when_asked_for, 0, LOOPS);
    tcase_add_loop_test(
            tcase, large_bags_of_distinct_keys_are_smaller_there, 0, LOOPS);
    tcase_add_loop_test(large, a_bag_that_adds_up_too_much_is_cut, 1, 2);
    suite_add_tcase(suite, tcase);
    suite_add_single_threaded(suite, large);
    return run_suite(suite);
}
