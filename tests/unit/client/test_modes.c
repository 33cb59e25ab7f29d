/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that do not wait for all, as a replica sees them: bounded, backup
 * workers, who is gone. sgd with rate 1 from zeros. */
#include "tests/unit/client/servers.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

static struct servers servers;
static const uint64_t key = 5;

static rps_embedding_table *
table_of(rps_client *client)
{
    return servers_counter(client, "emb", 1);
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
push_one(rps_embedding_table *table, uint64_t step, float gradient)
{
    must(rps_push_gradients(table, step, 1, &key, &gradient, NAN));
}

static void
expect_one(rps_embedding_table *table, float value)
{
    float row = NAN;

    must(rps_embedding_lookup(table, 1, &key, &row));
    ck_assert_float_eq(row, value);
}

static void *
join_other(void *context)
{
    rps_start start;

    must(rps_job_join(context, &start));
    free(start.data_position);
    return NULL;
}

static void *
leave_at_once(void *context)
{
    rps_decision decision;

    must(rps_step_end(context, 1, NAN, RPS_WISH_LEAVE, &decision));
    return NULL;
}

/* Two replicas that have joined a job. */
static void
join_both(rps_client *clients[2], const rps_terms *terms)
{
    pthread_t thread;
    rps_start start;

    must(rps_job_begin(clients[0], 0, terms, &start));
    ck_assert_int_eq(pthread_create(&thread, NULL, join_other, clients[1]), 0);
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
        push_one(tables[0], step, 1.0f);
        must(rps_step_end(clients[0], step, NAN, 0, &decision));
        ck_assert(decision.included && decision.gone == 0);
    }
    push_one(tables[1], 1, 100.0f); /* dropped */
    must(rps_step_end(clients[1], 1, NAN, 0, &decision));
    ck_assert_uint_eq(decision.step, 3);
    ck_assert(!decision.included);
    push_one(tables[1], 4, 10.0f);
    push_one(tables[0], 4, 1.0f);
    must(rps_step_end(clients[0], 4, NAN, 0, &decision));
    must(rps_step_end(clients[1], 4, NAN, RPS_WISH_LEAVE, &decision));
    ck_assert_uint_eq(decision.step, 4);
    ck_assert(!decision.included); /* ended in time is what counts */
    expect_one(tables[0], -4);
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

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    terms.on_lost = RPS_ON_LOST_LEAVE;
    join_both(clients, &terms);
    ck_assert_int_eq(
            pthread_create(&thread, NULL, leave_at_once, clients[1]), 0);
    must(rps_step_end(clients[0], 1, NAN, 0, &decision));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
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

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    terms.staleness = 1;
    join_both(clients, &terms);
    tables[0] = table_of(clients[0]);
    tables[1] = table_of(clients[1]);
    push_one(tables[0], 1, 1.0f);
    must(rps_step_end(clients[0], 1, NAN, 0, &decision));
    push_one(tables[0], 2, 1.0f);
    push_one(tables[1], 1, 2.0f);
    ck_assert_int_eq(
            pthread_create(&thread, NULL, leave_at_once, clients[1]), 0);
    must(rps_step_end(clients[0], 2, NAN, 0, &decision)); /* after rank 1's */
    expect_one(tables[0], -4);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
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

int
main(void)
{
    Suite *suite = suite_create("modes");
    TCase *tcase = tcase_create("modes");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_slow_replica_goes_on_at_the_newest_step, 1, 3);
    tcase_add_loop_test(tcase, who_is_gone_is_named_once, 1, 3);
    tcase_add_loop_test(
            tcase, a_bounded_replica_waits_for_the_slower_one, 1, 3);
    tcase_add_test(tcase, terms_that_no_job_can_have_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
