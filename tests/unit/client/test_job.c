/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job's life: begin, join, steps, decisions, saves, restores, and the ends
 * that nobody wants. sgd with rate 1 on zeros: a row is minus the sum of the
 * gradients that were applied.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/client/steps.h"
#include "tests/unit/suite.h"

#include <recps/alike.h>
#include <recps/refresh.h>

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define LOOPS 4 /* embedded, 1, 2, 3 servers */

static struct servers servers;

static void
start_job(rps_client *chief, enum rps_mode mode, uint64_t step)
{
    rps_terms terms = steps_terms(mode, 1);
    rps_start start;

    must(rps_job_begin(chief, step, &terms, &start));
    ck_assert_uint_eq(start.step, step);
    free(start.data_position);
    must(rps_job_join(chief, &start));
    ck_assert_uint_eq(start.step, step);
    ck_assert_int_eq(start.terms.mode, mode);
    free(start.data_position);
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
    const uint64_t keys[STEPS_KEYS] = {7};
    float rows[3][STEPS_KEYS * 2];
    rps_lookup lookup = {.keys = keys, .key_count = STEPS_KEYS};
    rps_ticket now, ahead;
    rps_decision decision;
    rps_client *client;
    uint64_t before;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    lookup.table = steps_table(client);
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
        steps_push_all(lookup.table, step, 1.0f);
        must(rps_step_end(client, step, 0.0, 0, &decision));
        if (servers_client_flags() == 0) {
            ck_assert_uint_eq(round_trips(client) - before, 3 * step);
        } /* a thread may have the answer before it is waited for */
        ck_assert_uint_le(round_trips(client) - before, 3 * step);
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
    table = steps_table(client);
    steps_push_all(table, 1, 3.0f);
    steps_expect_all(table, 0, 0);
    must(rps_step_end(client, 1, 0.25, 0, &decision));
    ck_assert_uint_eq(decision.step, 1);
    ck_assert_uint_eq(decision.counted, 1);
    ck_assert_double_eq(decision.loss, 0.25);
    steps_expect_all(table, -3, -1); /* the lookup carried it */
    ck_assert_uint_eq(rps_lookup_step(client), 1);
    steps_push_all(table, 2, 1.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    ck_assert(isnan(decision.loss));
    must(rps_apply(client));
    must(rps_apply(client)); /* nothing is owed: no request */
    steps_expect_all(table, -4, -2);
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
    table = steps_table(client);
    spec = *rps_embedding_table_spec(table);
    strcpy(spec.name, "other");
    spec.dim = 1;
    must(rps_get_embedding_table(client, &spec, &other));
    steps_push_all(table, 1, 3.0f);
    steps_push_all(table, 1, 5.0f);
    must(rps_push_gradients(other, 1, 1, &key, &gradient, NAN));
    must(rps_step_end(client, 1, NAN, 0, &decision));
    steps_expect_all(table, -3, -1);
    must(rps_embedding_lookup(other, 1, &key, &row));
    ck_assert_float_eq(row, 0);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(null_out_pointers_are_named)
{
    const rps_terms terms = steps_terms(RPS_MODE_SYNC, 1);
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
    must_fail(rps_job_alike(client, "[\"x\"]"), RPS_E_INVAL,
            "must be a JSON object");
    must_fail(rps_job_alike(client, "{"), RPS_E_INVAL, "must be a JSON object");
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
    table = steps_table(client);
    steps_push_all(table, 1, 1.0f);
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

START_TEST(a_refresh_of_tables_says_which_rows_changed)
{
    rps_client *client;
    rps_table_spec spec;
    rps_embedding_table *tables[2];
    rps_decision decision;
    const uint64_t keys[4] = {100, 3, 101, 3}, other[2] = {3, 7};
    const uint64_t three = 3;
    const float gradient[2] = {5, 6};
    float rows[4][2] = {{0}}, more[2][3] = {{1, 1, 1}, {1, 1, 1}};
    uint8_t changed[4] = {9, 9, 9, 9};
    size_t count = 9;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    tables[0] = steps_table(client);
    rps_table_spec_init(&spec, "other", 3, RPS_OPTIMIZER_SGD);
    must(rps_get_embedding_table(client, &spec, &tables[1]));
    steps_push_all(tables[0], 1, 1.0f);
    must(rps_step_end(client, 1, NAN, 0, &decision));
    must(rps_push_gradients(tables[0], 2, 1, &three, gradient, NAN));
    must(rps_step_end(client, 2, NAN, 0, &decision));
    {
        const rps_refresh_part parts[2] = {{.table = tables[0],
                                                   .keys = keys,
                                                   .key_count = 4,
                                                   .rows = rows[0],
                                                   .changed = changed},
                {.table = tables[1],
                        .keys = other,
                        .key_count = 2,
                        .rows = more[0]}};

        must(rps_refresh_tables(client, 1, parts, 2, &count));
    }
    ck_assert_uint_eq(count, 2);
    ck_assert_mem_eq(changed, ((uint8_t[]){0, 1, 0, 1}), 4);
    ck_assert_float_eq(rows[1][0], -6);
    ck_assert_mem_eq(rows[1], rows[3], sizeof(rows[1]));
    ck_assert_float_eq(rows[0][0], 0);
    ck_assert_float_eq(more[0][0], 1);
    ck_assert_uint_eq(rps_lookup_step(client), 2);
    must(rps_refresh_tables(client, 1, NULL, 0, &count));
    ck_assert_uint_eq(count, 0);
    must_fail(rps_refresh_tables(client, 1, NULL, 2, &count), RPS_E_INVAL,
            "parts");
    must_fail(rps_refresh_tables(
                      client, 1, &(rps_refresh_part){.rows = NULL}, 1, &count),
            RPS_E_INVAL, "table");
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(what_was_saved_comes_back)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;
    rps_terms terms = steps_terms(RPS_MODE_SYNC, 1);
    rps_start start;
    uint64_t newest = 99;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    must(rps_newest_checkpoint(client, &newest));
    ck_assert_uint_eq(newest, 0);
    start_job(client, RPS_MODE_SYNC, 0);
    table = steps_table(client);
    steps_push_all(table, 1, 2.0f);
    must(rps_step_end(client, 1, NAN, 0, &decision));
    must(rps_save(client, 1, "{\"row\":128}", 5));
    steps_push_all(table, 2, 2.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    steps_expect_all(table, -4, -2);
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
    table = steps_table(client);
    steps_expect_all(table, -2, -1);
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
    table = steps_table(client);
    for (uint64_t step = 1; step <= 2; step++) {
        steps_push_all(table, step, 2.0f);
        must(rps_step_end(client, step, NAN, 0, &decision));
        must(rps_save(client, step, NULL, 5));
    }
    rps_client_close(client);
    servers_kill(&servers);
    servers_restart(&servers);
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 1);
    table = steps_table(client);
    steps_push_all(table, 2, 5.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    must(rps_save(client, 2, NULL, 5));
    start_job(client, RPS_MODE_SYNC, 2);
    steps_expect_all(steps_table(client), -7, -2);
    rps_client_close(client);
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
    table = steps_table(client);
    steps_push_all(table, 1, 1.0f);
    must(rps_step_end(client, 1, NAN, 0, &decision));
    lookup.table = table;
    must(rps_lookup_start(client, &hasty, &lookup, 1, &ticket));
    /* 8 MB in a millisecond: hardly ever; nothing was done by the server's
     * word, or no word came in time */
    status = rps_wait(client, ticket, 0);
    ck_assert(status == RPS_E_DEADLINE || status == RPS_E_TIMEOUT ||
              status == RPS_OK);
    steps_push_all(table, 2, 2.0f);
    must(rps_step_end(client, 2, NAN, 0, &decision));
    steps_expect_all(table, -3, -2);
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
    rps_terms terms = steps_terms(RPS_MODE_SYNC, 2);
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
    table = steps_table(tool); /* epoch 0 */
    start_job(chief, RPS_MODE_ASYNC, 0);
    must_fail(rps_push_gradients(table, 0, 0, NULL, NULL, NAN),
            RPS_E_ROLLED_BACK, " (127."); /* whichever answers first */
    rps_client_close(tool);
    tool = servers_open(&servers, NULL, 0, 1); /* HELLO says the epoch */
    (void)steps_table(tool);
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
    table = steps_table(chief);
    must(rps_wish(tool, RPS_WISH_SAVE));
    steps_push_all(table, 1, 1.0f); /* its replies have the flag */
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
    tcase_add_loop_test(
            tcase, a_refresh_of_tables_says_which_rows_changed, 0, LOOPS);
    tcase_add_loop_test(tcase, what_was_saved_comes_back, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_job_that_goes_back_replaces_what_it_saved_later, 1, LOOPS);
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
