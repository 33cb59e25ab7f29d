/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several replicas of a job: steps that wait for each other, and those that
 * go on without one.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/client/steps.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define LOOPS 4 /* embedded, 1, 2, 3 servers */

static struct servers servers;

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
    table = steps_table(replica->client);
    for (step = 1; step <= 5; step++) {
        steps_push_all(table, step, (float)(1 + replica->rank));
        must(rps_step_end(replica->client, step, 0.5 * (1 + replica->rank),
                step == 5 ? RPS_WISH_LEAVE : 0, &decision));
        ck_assert_uint_eq(decision.counted, 2);
        replica->loss = decision.loss;
        must(rps_apply(replica->client));
        steps_expect_all(table, -3.0f * (float)step, -2.0f * (float)step);
    }
    return NULL;
}

START_TEST(two_replicas_make_one_step)
{
    struct replica replicas[2] = {{.rank = 0}, {.rank = 1}};
    pthread_t thread;
    rps_terms terms = steps_terms(RPS_MODE_SYNC, 2);
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
    rps_terms terms = steps_terms(RPS_MODE_SYNC, 2);
    rps_decision decision;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    clients[0] = servers_open(&servers, "worker", 0, 2);
    clients[1] = servers_open(&servers, "worker", 1, 2);
    terms.backup_workers = 1;
    join_both(clients, &terms);
    tables[0] = steps_table(clients[0]);
    tables[1] = steps_table(clients[1]);
    for (uint64_t step = 1; step <= 3; step++) {
        steps_push_all(tables[0], step, 1.0f);
        must(rps_step_end(clients[0], step, NAN, 0, &decision));
        ck_assert(decision.included && decision.gone == 0);
    }
    steps_push_all(tables[1], 1, 100.0f); /* dropped */
    must(rps_step_end(clients[1], 1, NAN, 0, &decision));
    ck_assert_uint_eq(decision.step, 3);
    ck_assert(!decision.included);
    steps_push_all(tables[1], 4, 10.0f);
    steps_push_all(tables[0], 4, 1.0f);
    must(rps_step_end(clients[0], 4, NAN, 0, &decision));
    must(rps_step_end(clients[1], 4, NAN, RPS_WISH_LEAVE, &decision));
    ck_assert_uint_eq(decision.step, 4);
    ck_assert(!decision.included); /* ended in time is what counts */
    steps_expect_all(tables[0], -4, -4);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

START_TEST(who_is_gone_is_named_once)
{
    rps_client *clients[2];
    rps_terms terms = steps_terms(RPS_MODE_SYNC, 2);
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
    rps_terms terms = steps_terms(RPS_MODE_BOUNDED, 2);
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
    tables[0] = steps_table(clients[0]);
    tables[1] = steps_table(clients[1]);
    steps_push_all(tables[0], 1, 1.0f);
    must(rps_step_end(clients[0], 1, NAN, 0, &decision));
    steps_push_all(tables[0], 2, 1.0f);
    steps_push_all(tables[1], 1, 2.0f);
    ck_assert_int_eq(pthread_create(&thread, NULL, leave_first, clients[1]), 0);
    must(rps_step_end(clients[0], 2, NAN, 0, &decision)); /* after rank 1's */
    steps_expect_all(tables[0], -4, -3);
    ck_assert_int_eq(pthread_join(thread, &last), 0);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

START_TEST(terms_that_no_job_can_have_are_refused)
{
    rps_client *client;
    rps_terms terms = steps_terms(RPS_MODE_BOUNDED, 3);
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
    rps_terms terms = steps_terms(RPS_MODE_SYNC, 2);
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
    table = steps_table(clients[1]);
    steps_push_all(table, 1, 1.0f);
    must(rps_step_end(clients[1], 1, NAN, 0, &decision));
    steps_push_all(table, 2, 2.0f);
    must(rps_step_end(clients[1], 2, NAN, RPS_WISH_LEAVE, &decision));
    ck_assert_int_eq(pthread_join(thread, &last), 0);
    ck_assert_uint_eq(((rps_decision *)last)->step, 2);
    must(rps_apply(clients[0]));
    steps_expect_all(steps_table(clients[0]), -3, -2);
    rps_client_close(clients[1]);
    rps_client_close(clients[0]);
    servers_stop(&servers);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("replicas");
    TCase *tcase = tcase_create("replicas");

    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, two_replicas_make_one_step, 1, LOOPS);
    tcase_add_loop_test(
            tcase, a_slow_replica_goes_on_at_the_newest_step, 1, LOOPS);
    tcase_add_loop_test(tcase, who_is_gone_is_named_once, 1, LOOPS);
    tcase_add_loop_test(
            tcase, a_bounded_replica_waits_for_the_slower_one, 1, LOOPS);
    tcase_add_test(tcase, terms_that_no_job_can_have_are_refused);
    tcase_add_loop_test(
            tcase, chief_that_leaves_first_gets_the_last_decision, 1, 3);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
