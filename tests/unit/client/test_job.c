/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's life: begin, join, steps, decisions, saves, restores, and the ends
 * that nobody wants. sgd with rate 1 on zeros: a row is minus the sum of the
 * gradients that were applied.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOPS 4 /* embedded, 1, 2, 3 servers */
#define KEYS  40

static struct servers servers;

static rps_embedding_table *
table_of(rps_client *client)
{
    return servers_counter(client, "emb", 2);
}

static rps_terms
terms_of(enum rps_mode mode, uint32_t replicas)
{
    return (rps_terms){.mode = mode,
            .combine = RPS_COMBINE_SUM,
            .replica_count = replicas,
            .step_timeout_ms = 20000};
}

static void
start_job(rps_client *chief, enum rps_mode mode, uint64_t step)
{
    rps_terms terms = terms_of(mode, 1);
    rps_start start;

    must(rps_job_begin(chief, step, &terms, &start));
    ck_assert_uint_eq(start.step, step);
    free(start.data_position);
    must(rps_job_join(chief, &start));
    ck_assert_uint_eq(start.step, step);
    ck_assert_int_eq(start.terms.mode, mode);
    free(start.data_position);
}

static void
push_all(rps_embedding_table *table, uint64_t step, float gradient)
{
    uint64_t keys[KEYS];
    float gradients[KEYS * 2];
    int i;

    for (i = 0; i < KEYS; i++) {
        keys[i] = (uint64_t)i;
        gradients[2 * i] = gradient;
        gradients[2 * i + 1] = (float)i;
    }
    must(rps_push_gradients(table, step, KEYS, keys, gradients, NAN));
}

static void
expect_all(rps_embedding_table *table, float first, float times)
{
    uint64_t keys[KEYS];
    float rows[KEYS * 2];
    int i;

    for (i = 0; i < KEYS; i++) {
        keys[i] = (uint64_t)i;
    }
    must(rps_embedding_lookup(table, KEYS, keys, rows));
    for (i = 0; i < KEYS; i++) {
        ck_assert_float_eq(rows[2 * i], first);
        ck_assert_float_eq(rows[2 * i + 1], times * (float)i);
    }
}

static uint64_t
round_trips(const rps_client *client)
{
    rps_traffic traffic;

    rps_client_traffic(client, &traffic);
    return traffic.round_trips;
}

/* What was asked ahead is waited for in a later step than it was on its way. */
START_TEST(a_step_is_three_round_trips_beside_what_was_asked_ahead)
{
    const uint64_t keys[KEYS] = {7};
    float rows[3][KEYS * 2];
    rps_lookup lookup = {.keys = keys, .key_count = KEYS};
    rps_ticket now, ahead;
    rps_decision decision;
    rps_client *client;
    uint64_t before;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    lookup.table = table_of(client);
    lookup.rows = rows[0];
    must(rps_lookup_start(client, NULL, &lookup, 1, &ahead));
    before = round_trips(client);
    for (uint64_t step = 1; step <= 3; step++) {
        lookup.rows = rows[step % 3];
        must(rps_lookup_start(client, NULL, &lookup, 1, &now));
        must(rps_wait(client, now, 0));
        must(rps_wait(client, ahead, 0));
        lookup.rows = rows[(step + 1) % 3];
        must(rps_lookup_start(client, NULL, &lookup, 1, &ahead));
        push_all(lookup.table, step, 1.0f);
        must(rps_step_end(client, step, 0.0, 0, &decision));
        ck_assert_uint_eq(round_trips(client) - before, 3 * step);
    }
    rps_cancel(client, ahead);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(sync_push_shows_after_the_decision)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = table_of(client);
    push_all(table, 1, 3.0f);
    expect_all(table, 0, 0);
    must(rps_step_end(client, 1, 0.25, 0, &decision));
    ck_assert_uint_eq(decision.step, 1);
    ck_assert_uint_eq(decision.counted, 1);
    ck_assert_double_eq(decision.loss, 0.25);
    expect_all(table, -3, -1); /* the lookup carried it */
    ck_assert_uint_eq(rps_lookup_step(client), 1);
    push_all(table, 2, 1.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    ck_assert(isnan(decision.loss));
    must(rps_apply(client));
    must(rps_apply(client)); /* nothing is owed: no request */
    expect_all(table, -4, -2);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(second_push_of_a_sync_step_changes_nothing)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_embedding_table *other;
    rps_decision decision;
    rps_table_spec spec;
    const uint64_t key = 3;
    const float gradient = 7;
    float row = NAN;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = table_of(client);
    spec = *rps_embedding_table_spec(table);
    strcpy(spec.name, "other");
    spec.dim = 1;
    must(rps_get_embedding_table(client, &spec, &other));
    push_all(table, 1, 3.0f);
    push_all(table, 1, 5.0f);
    must(rps_push_gradients(other, 1, 1, &key, &gradient, NAN));
    must(rps_step_end(client, 1, NAN, 0, &decision));
    expect_all(table, -3, -1);
    must(rps_embedding_lookup(other, 1, &key, &row));
    ck_assert_float_eq(row, 0);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(null_out_pointers_are_named)
{
    const rps_terms terms = terms_of(RPS_MODE_SYNC, 1);
    rps_lookup lookup = {0};
    rps_push push = {0};
    rps_ticket ticket = {0};
    rps_client *client;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    ck_assert_int_eq(rps_client_open(NULL, NULL), RPS_E_INVAL);
    must_fail(rps_job_begin(client, 0, &terms, NULL), RPS_E_INVAL,
            "start_out is NULL");
    must_fail(rps_job_join(client, NULL), RPS_E_INVAL, "start_out is NULL");
    must_fail(rps_step_end(client, 1, 0, 0, NULL), RPS_E_INVAL,
            "decision_out is NULL");
    must_fail(rps_lookup_start(client, NULL, &lookup, 1, NULL), RPS_E_INVAL,
            "ticket_out is NULL");
    must_fail(rps_push_start(client, NULL, &push, 1, NULL), RPS_E_INVAL,
            "ticket_out is NULL");
    must_fail(rps_poll(client, ticket, NULL), RPS_E_INVAL, "done_out is NULL");
    must_fail(rps_stat(client, 0, NULL), RPS_E_INVAL, "json_out is NULL");
    must_fail(
            rps_stat_digests(client, 0, NULL), RPS_E_INVAL, "json_out is NULL");
    must_fail(rps_newest_checkpoint(client, NULL), RPS_E_INVAL,
            "step_out is NULL");
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(refresh_brings_what_changed_since)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;
    const uint64_t keys[4] = {100, 3, 101, 3};
    const uint64_t three = 3;
    const float gradient[2] = {5, 6};
    float rows[4][2] = {{0}};
    size_t changed = 0;
    uint64_t since;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = table_of(client);
    push_all(table, 1, 1.0f);
    must(rps_step_end(client, 1, NAN, 0, &decision));
    must(rps_apply(client));
    must(rps_embedding_lookup(table, 4, keys, rows[0]));
    since = rps_lookup_step(client);
    ck_assert_uint_eq(since, 1);
    must(rps_push_gradients(table, 2, 1, &three, gradient, NAN));
    must(rps_step_end(client, 2, NAN, 0, &decision));
    must(rps_refresh(table, 4, keys, since, rows[0], &changed));
    ck_assert_uint_eq(changed, 2); /* both places of key 3 */
    ck_assert_float_eq(rows[1][0], -6);
    ck_assert_float_eq(rows[1][1], -9);
    ck_assert_mem_eq(rows[1], rows[3], sizeof(rows[1]));
    ck_assert_float_eq(rows[0][0], 0);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(what_was_saved_comes_back)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;
    rps_terms terms = terms_of(RPS_MODE_SYNC, 1);
    rps_start start;
    uint64_t newest = 99;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    must(rps_newest_checkpoint(client, &newest));
    ck_assert_uint_eq(newest, 0);
    start_job(client, RPS_MODE_SYNC, 0);
    table = table_of(client);
    push_all(table, 1, 2.0f);
    must(rps_step_end(client, 1, NAN, 0, &decision));
    must(rps_save(client, 1, "{\"row\":128}", 5));
    push_all(table, 2, 2.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    expect_all(table, -4, -2);
    must_fail(rps_save(client, 2, "{row", 5), RPS_E_INVAL, "data_position");
    must(rps_newest_checkpoint(client, &newest));
    ck_assert_uint_eq(newest, 1);
    must_fail(rps_job_begin(client, 7, &terms, &start), RPS_E_NOT_FOUND, "7");
    if (servers.count > 0) { /* all of them forget everything */
        rps_client_close(client);
        servers_kill(&servers);
        servers_restart(&servers);
        client = servers_open_chief(&servers);
    }
    must(rps_job_begin(client, newest, &terms, &start));
    ck_assert_str_eq(start.data_position, "{\"row\":128}");
    free(start.data_position);
    must(rps_job_join(client, &start));
    ck_assert_uint_eq(start.step, 1);
    ck_assert_str_eq(start.data_position, "{\"row\":128}");
    free(start.data_position);
    table = table_of(client);
    expect_all(table, -2, -1);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

/* Servers that forgot their epoch: the folder has not. */
START_TEST(a_job_that_goes_back_replaces_what_it_saved_later)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = table_of(client);
    for (uint64_t step = 1; step <= 2; step++) {
        push_all(table, step, 2.0f);
        must(rps_step_end(client, step, NAN, 0, &decision));
        must(rps_save(client, step, NULL, 5));
    }
    rps_client_close(client);
    servers_kill(&servers);
    servers_restart(&servers);
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 1);
    table = table_of(client);
    push_all(table, 2, 5.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    must(rps_save(client, 2, NULL, 5));
    start_job(client, RPS_MODE_SYNC, 2);
    expect_all(table_of(client), -7, -2);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

struct replica {
    uint32_t rank;
    rps_client *client;
    double loss;
};

static void *
train(void *context)
{
    struct replica *replica = context;
    rps_embedding_table *table;
    rps_decision decision;
    rps_start start;
    uint64_t step;

    must(rps_job_join(replica->client, &start));
    free(start.data_position);
    table = table_of(replica->client);
    for (step = 1; step <= 5; step++) {
        push_all(table, step, (float)(1 + replica->rank));
        must(rps_step_end(replica->client, step, 0.5 * (1 + replica->rank),
                step == 5 ? RPS_WISH_LEAVE : 0, &decision));
        ck_assert_uint_eq(decision.counted, 2);
        replica->loss = decision.loss;
        must(rps_apply(replica->client));
        expect_all(table, -3.0f * (float)step, -2.0f * (float)step);
    }
    return NULL;
}

START_TEST(two_replicas_make_one_step)
{
    struct replica replicas[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t thread;
    rps_terms terms = terms_of(RPS_MODE_SYNC, 2);
    rps_start start;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    replicas[0].client = servers_open(&servers, "worker", 0, 2);
    replicas[1].client = servers_open(&servers, "worker", 1, 2);
    must_fail(rps_job_begin(replicas[1].client, 0, &terms, &start), RPS_E_INVAL,
            "chief");
    must(rps_job_begin(replicas[0].client, 0, &terms, &start));
    ck_assert_int_eq(pthread_create(&thread, NULL, train, &replicas[1]), 0);
    (void)train(&replicas[0]);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    /* losses are parts of one: rank 0's 0.5 and rank 1's 1.0 */
    ck_assert_double_eq(replicas[0].loss, 1.5);
    ck_assert_double_eq(replicas[1].loss, 1.5);
    rps_client_close(replicas[1].client);
    rps_client_close(replicas[0].client);
    servers_stop(&servers);
}
END_TEST

static void *
join_thread(void *context)
{
    rps_start start;

    must(rps_job_join(context, &start));
    free(start.data_position);
    return NULL;
}

static void *
leave_first(void *context)
{
    rps_client *chief = context;
    static rps_decision decision;

    must(rps_step_end(chief, 1, NAN, RPS_WISH_LEAVE, &decision));
    return &decision;
}

/* Two replicas that have joined a job. */
static void
join_both(rps_client *clients[2], const rps_terms *terms)
{
    pthread_t thread;
    rps_start start;

    must(rps_job_begin(clients[0], 0, terms, &start));
    ck_assert_int_eq(pthread_create(&thread, NULL, join_thread, clients[1]), 0);
    must(rps_job_join(clients[0], &start));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_uint_eq(start.terms.backup_workers, terms->backup_workers);
    ck_assert_uint_eq(start.terms.staleness, terms->staleness);
    ck_assert_int_eq(start.terms.on_lost, terms->on_lost);
    free(start.data_position);
}

START_TEST(a_slow_replica_goes_on_at_the_newest_step)
{
    rps_client *clients[2];
    rps_embedding_table *tables[2];
    rps_terms terms = terms_of(RPS_MODE_SYNC, 2);
    rps_decision decision;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    terms.backup_workers = 1;
    join_both(clients, &terms);
    tables[0] = table_of(clients[0]);
    tables[1] = table_of(clients[1]);
    for (uint64_t step = 1; step <= 3; step++) {
        push_all(tables[0], step, 1.0f);
        must(rps_step_end(clients[0], step, NAN, 0, &decision));
        ck_assert(decision.included && decision.gone == 0);
    }
    push_all(tables[1], 1, 100.0f); /* dropped */
    must(rps_step_end(clients[1], 1, NAN, 0, &decision));
    ck_assert_uint_eq(decision.step, 3);
    ck_assert(!decision.included);
    push_all(tables[1], 4, 10.0f);
    push_all(tables[0], 4, 1.0f);
    must(rps_step_end(clients[0], 4, NAN, 0, &decision));
    must(rps_step_end(clients[1], 4, NAN, RPS_WISH_LEAVE, &decision));
    ck_assert_uint_eq(decision.step, 4);
    ck_assert(!decision.included); /* ended in time is what counts */
    expect_all(tables[0], -4, -4);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

START_TEST(who_is_gone_is_named_once)
{
    rps_client *clients[2];
    rps_terms terms = terms_of(RPS_MODE_SYNC, 2);
    rps_decision decision;
    pthread_t thread;
    void *first = NULL;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    terms.on_lost = RPS_ON_LOST_LEAVE;
    join_both(clients, &terms);
    ck_assert_int_eq(pthread_create(&thread, NULL, leave_first, clients[1]), 0);
    must(rps_step_end(clients[0], 1, NAN, 0, &decision));
    ck_assert_int_eq(pthread_join(thread, &first), 0);
    ck_assert_uint_eq(decision.counted, 2);
    ck_assert_uint_eq(decision.gone, 0);
    must(rps_step_end(clients[0], 2, NAN, 0, &decision));
    ck_assert_uint_eq(decision.counted, 1);
    ck_assert_uint_eq(decision.gone, 1);
    ck_assert_uint_eq(decision.gone_rank, 1);
    must(rps_step_end(clients[0], 3, NAN, 0, &decision));
    ck_assert_uint_eq(decision.gone, 0);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

START_TEST(a_bounded_replica_waits_for_the_slower_one)
{
    rps_client *clients[2];
    rps_embedding_table *tables[2];
    rps_terms terms = terms_of(RPS_MODE_BOUNDED, 2);
    rps_decision decision;
    pthread_t thread;
    void *last = NULL;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    terms.staleness = 1;
    join_both(clients, &terms);
    tables[0] = table_of(clients[0]);
    tables[1] = table_of(clients[1]);
    push_all(tables[0], 1, 1.0f);
    must(rps_step_end(clients[0], 1, NAN, 0, &decision));
    push_all(tables[0], 2, 1.0f);
    push_all(tables[1], 1, 2.0f);
    ck_assert_int_eq(pthread_create(&thread, NULL, leave_first, clients[1]), 0);
    must(rps_step_end(clients[0], 2, NAN, 0, &decision)); /* after rank 1's */
    expect_all(tables[0], -4, -3);
    ck_assert_int_eq(pthread_join(thread, &last), 0);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

START_TEST(terms_that_no_job_can_have_are_refused)
{
    rps_client *client;
    rps_terms terms = terms_of(RPS_MODE_BOUNDED, 3);
    rps_start start;

    if (!servers_start(&servers, 0)) {
        return;
    }
    client = servers_open_chief(&servers);
    terms.backup_workers = 1;
    must_fail(rps_job_begin(client, 0, &terms, &start), RPS_E_INVAL,
            "backup_workers is 1 in mode bounded:0");
    terms.mode = RPS_MODE_SYNC;
    terms.backup_workers = 3;
    must_fail(rps_job_begin(client, 0, &terms, &start), RPS_E_INVAL,
            "backup_workers is 3 of 3 replicas");
    terms.backup_workers = 0;
    terms.mode = (enum rps_mode)3;
    must_fail(rps_job_begin(client, 0, &terms, &start), RPS_E_INVAL,
            "mode 3, combine 0, on_lost 0");
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(chief_that_leaves_first_gets_the_last_decision)
{
    rps_client *clients[2];
    rps_embedding_table *table;
    rps_terms terms = terms_of(RPS_MODE_SYNC, 2);
    rps_decision decision;
    pthread_t thread;
    rps_start start;
    void *last = NULL;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    must(rps_job_begin(clients[0], 0, &terms, &start));
    ck_assert_int_eq(pthread_create(&thread, NULL, join_thread, clients[1]), 0);
    must(rps_job_join(clients[0], &start));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, leave_first, clients[0]), 0);
    table = table_of(clients[1]);
    push_all(table, 1, 1.0f);
    must(rps_step_end(clients[1], 1, NAN, 0, &decision));
    push_all(table, 2, 2.0f);
    must(rps_step_end(clients[1], 2, NAN, RPS_WISH_LEAVE, &decision));
    ck_assert_int_eq(pthread_join(thread, &last), 0);
    ck_assert_uint_eq(((rps_decision *)last)->step, 2);
    must(rps_apply(clients[0]));
    expect_all(table_of(clients[0]), -3, -2);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

START_TEST(decision_of_a_refused_request_goes_again)
{
    enum {
        MANY = 1000000
    };

    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;
    uint64_t *keys = calloc(MANY, sizeof(*keys));
    float *rows = calloc(MANY, 2 * sizeof(*rows));
    const rps_call hasty = {.timeout_ms = 1};
    rps_lookup lookup = {.keys = keys, .key_count = MANY, .rows = rows};
    rps_ticket ticket;
    rps_status status;

    if (!servers_start(&servers, (uint32_t)_i)) {
        free(keys);
        free(rows);
        return;
    }
    for (uint64_t i = 0; i < MANY; i++) {
        keys[i] = i;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = table_of(client);
    push_all(table, 1, 1.0f);
    must(rps_step_end(client, 1, NAN, 0, &decision));
    lookup.table = table;
    must(rps_lookup_start(client, &hasty, &lookup, 1, &ticket));
    /* 8 MB in a millisecond: hardly ever; nothing was done by the server's
     * word, or no word came in time */
    status = rps_wait(client, ticket, 0);
    ck_assert(status == RPS_E_DEADLINE || status == RPS_E_TIMEOUT ||
              status == RPS_OK);
    push_all(table, 2, 2.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    expect_all(table, -3, -2);
    rps_client_close(client);
    servers_stop(&servers);
    free(keys);
    free(rows);
}
END_TEST

static void *
kill_soon(void *context)
{
    struct servers *all = context;
    struct timespec moment = {.tv_nsec = 300000000};

    (void)nanosleep(&moment, NULL);
    (void)kill(all->pids[1], SIGKILL);
    return NULL;
}

START_TEST(dead_server_ends_the_wait_for_a_step)
{
    rps_client *chief;
    rps_client *other;
    rps_terms terms = terms_of(RPS_MODE_SYNC, 2);
    rps_start start;
    pthread_t thread;

    if (!servers_start(&servers, 2)) {
        return;
    }
    chief = servers_open(&servers, "worker", 0, 2);
    other = servers_open(&servers, "worker", 1, 2);
    must(rps_job_begin(chief, 0, &terms, &start));
    ck_assert_int_eq(pthread_create(&thread, NULL, kill_soon, &servers), 0);
    /* the other replica never joins: only PS 1's death ends it */
    must_fail(rps_job_join(chief, &start), RPS_E_UNREACHABLE, "PS 1 (127.");
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    must_fail(rps_apply(chief), RPS_E_UNREACHABLE, "PS 1 (127.");
    must(rps_ping(chief, 0, NULL)); /* PS 0 is still there */
    must_fail(rps_ping(chief, 1, NULL), RPS_E_UNREACHABLE, "stays failed");
    rps_client_close(other);
    rps_client_close(chief);
    servers_stop(&servers);
}
END_TEST

START_TEST(another_epoch_is_rolled_back)
{
    rps_client *chief;
    rps_client *tool;
    rps_embedding_table *table;

    if (!servers_start(&servers, 2)) {
        return;
    }
    chief = servers_open_chief(&servers);
    tool = servers_open(&servers, NULL, 0, 1);
    table = table_of(tool); /* epoch 0 */
    start_job(chief, RPS_MODE_ASYNC, 0);
    must_fail(rps_push_gradients(table, 0, 0, NULL, NULL, NAN),
            RPS_E_ROLLED_BACK, " (127."); /* whichever answers first */
    rps_client_close(tool);
    tool = servers_open(&servers, NULL, 0, 1); /* HELLO says the epoch */
    (void)table_of(tool);
    rps_client_close(tool);
    rps_client_close(chief);
    servers_stop(&servers);
}
END_TEST

START_TEST(wish_of_a_tool_reaches_the_next_decision)
{
    rps_client *chief;
    rps_client *tool;
    rps_embedding_table *table;
    rps_decision decision;

    if (!servers_start(&servers, 2)) {
        return;
    }
    tool = servers_open(&servers, NULL, 0, 1);
    must_fail(rps_wish(tool, RPS_WISH_SAVE), RPS_E_NOT_FOUND, "chief");
    chief = servers_open_chief(&servers);
    start_job(chief, RPS_MODE_SYNC, 0);
    table = table_of(chief);
    must(rps_wish(tool, RPS_WISH_SAVE));
    push_all(table, 1, 1.0f); /* its replies have the flag */
    must(rps_step_end(chief, 1, NAN, 0, &decision));
    ck_assert_uint_eq(decision.wishes & RPS_WISH_SAVE, RPS_WISH_SAVE);
    must_fail(rps_save(tool, 1, NULL, 5), RPS_E_INVAL, "chief");
    must_fail(rps_shutdown(tool), RPS_E_RETRY_LATER, "chief");
    must(rps_shutdown(chief));
    rps_client_close(tool);
    rps_client_close(chief);
    ck_assert_int_eq(servers_wait_exit(&servers, 0), 0);
    ck_assert_int_eq(servers_wait_exit(&servers, 1), 0);
    servers_stop(&servers);
}
END_TEST

START_TEST(evaluator_talks_to_the_first_server_only)
{
    rps_client *evaluator;
    rps_table_spec spec;
    rps_embedding_table *table;
    rps_start start;

    if (!servers_start(&servers, 2)) {
        return;
    }
    evaluator = servers_open(&servers, "evaluator", 0, 1);
    must(rps_ping(evaluator, 0, NULL));
    must_fail(rps_ping(evaluator, 1, NULL), RPS_E_INVAL, "PS 1");
    rps_table_spec_init(&spec, "emb", 2, RPS_OPTIMIZER_SGD);
    must_fail(rps_get_embedding_table(evaluator, &spec, &table),
            RPS_E_UNSUPPORTED, "evaluator");
    must_fail(rps_job_join(evaluator, &start), RPS_E_INVAL, "evaluator");
    rps_client_close(evaluator);
    servers_stop(&servers);
}
END_TEST

static void
keep_line(void *context, const char *line)
{
    (void)snprintf(context, 512, "%s", line);
}

START_TEST(servers_that_are_not_there_are_named)
{
    rps_client_options options;
    rps_cluster cluster;
    rps_client *client = NULL;
    char line[512] = "";

    if (!servers_start(&servers, 2)) {
        return;
    }
    servers_kill_one(&servers, 1);
    cluster = servers_cluster(&servers, "worker", 0, 1);
    rps_client_options_init(&options);
    servers_set_access(&servers, &options);
    options.cluster = &cluster;
    options.connect_timeout_ms = 11000;
    options.report = keep_line;
    options.report_context = line;
    must_fail(rps_client_open(&client, &options), RPS_E_UNREACHABLE,
            "PS 1 (127.0.0.1:");
    ck_assert_ptr_null(client);
    ck_assert_ptr_nonnull(strstr(rps_client_error(NULL), "refused"));
    ck_assert_ptr_null(strstr(rps_client_error(NULL), "PS 0"));
    ck_assert_msg(strstr(line, "PS 1 (127.0.0.1:") != NULL, "%s", line);
    rps_cluster_finish(&cluster);
    servers_stop(&servers);
}
END_TEST

START_TEST(server_of_another_job_is_refused_at_once)
{
    rps_client_options options;
    rps_cluster cluster;
    rps_client *client = NULL;

    if (!servers_start(&servers, 2)) {
        return;
    }
    cluster = servers_cluster(&servers, "worker", 0, 1);
    rps_client_options_init(&options);
    servers_set_access(&servers, &options);
    options.cluster = &cluster;
    options.job_id = "another";
    must_fail(rps_client_open(&client, &options), RPS_E_MISMATCH, "another");
    options.job_id = "recps";
    options.job_seed = 5;
    must_fail(rps_client_open(&client, &options), RPS_E_MISMATCH, "seed");
    rps_cluster_finish(&cluster);
    servers_stop(&servers);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("job");
    TCase *tcase = tcase_create("job");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase,
            a_step_is_three_round_trips_beside_what_was_asked_ahead, 0, LOOPS);
    tcase_add_loop_test(tcase, sync_push_shows_after_the_decision, 0, LOOPS);
    tcase_add_loop_test(
            tcase, second_push_of_a_sync_step_changes_nothing, 0, LOOPS);
    tcase_add_loop_test(tcase, null_out_pointers_are_named, 0, LOOPS);
    tcase_add_loop_test(tcase, refresh_brings_what_changed_since, 0, LOOPS);
    tcase_add_loop_test(tcase, what_was_saved_comes_back, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_job_that_goes_back_replaces_what_it_saved_later, 1, LOOPS);
    tcase_add_loop_test(tcase, two_replicas_make_one_step, 1, LOOPS);
    tcase_add_loop_test(
            tcase, a_slow_replica_goes_on_at_the_newest_step, 1, LOOPS);
    tcase_add_loop_test(tcase, who_is_gone_is_named_once, 1, LOOPS);
    tcase_add_loop_test(
            tcase, a_bounded_replica_waits_for_the_slower_one, 1, LOOPS);
    tcase_add_test(tcase, terms_that_no_job_can_have_are_refused);
    tcase_add_loop_test(
            tcase, chief_that_leaves_first_gets_the_last_decision, 1, 3);
    tcase_add_loop_test(tcase, decision_of_a_refused_request_goes_again, 1, 3);
    tcase_add_test(tcase, dead_server_ends_the_wait_for_a_step);
    tcase_add_test(tcase, another_epoch_is_rolled_back);
    tcase_add_test(tcase, wish_of_a_tool_reaches_the_next_decision);
    tcase_add_test(tcase, evaluator_talks_to_the_first_server_only);
    tcase_add_test(tcase, servers_that_are_not_there_are_named);
    tcase_add_test(tcase, server_of_another_job_is_refused_at_once);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
