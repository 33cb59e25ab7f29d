/* SPDX-License-Identifier: Apache-2.0 */
/* Who comes back: the epoch is void once another process waits in the place of
 * one that is gone, and a job that ends says so to who waits. */
#include "tests/unit/server/fixture.h"

#include <stdio.h>
#include <stdlib.h>

#define RANKS 2

struct job {
    struct rps_service *service;
    struct peer *chief, *worker;
};

static void
restore(struct peer *peer, const char *fields)
{
    struct rps_header header = request_of(peer, RPS_OP_RESTORE);
    char text[256];

    snprintf(text, sizeof(text), "{\"step\":0,\"replicas\":%d,%s}", RANKS,
            fields);
    ask(peer, &header, text, RPS_OK, NULL);
}

static struct job
job_of(const char *fields)
{
    struct job job = {.service = service_of(0, 1, NULL, 60000)};
    struct peer *peers[RANKS];

    job.chief = peers[0] = peer_greet(job.service, "chief", 0, RANKS, "a");
    job.worker = peers[1] = peer_greet(job.service, "worker", 1, RANKS, "b");
    restore(job.chief, fields);
    job.chief->epoch = 1;
    join_all(peers, RANKS);
    return job;
}

static void
job_finish(struct job *job)
{
    if (job->worker != NULL) {
        peer_close(job->worker);
    }
    peer_close(job->chief);
    rps_service_destroy(job->service);
}

static uint64_t
send_join(struct peer *peer, uint32_t rank)
{
    return send_step_end(peer, 0, rank, "null", "");
}

static void
expect_refused(
        struct peer *peer, uint64_t id, rps_status status, const char *words)
{
    struct answer answer = wait_answer(peer, id);

    check_refused(&answer, status, words);
    answer_finish(&answer);
}

static bool
is_restarting(struct peer *peer, size_t rank)
{
    json_t *stat = stat_of(peer);
    const bool restarting = json_is_true(json_object_get(
            json_array_get(json_object_get(stat, "members"), rank),
            "restarting"));

    json_decref(stat);
    return restarting;
}

START_TEST(another_process_in_the_place_of_a_lost_one_ends_the_epoch)
{
    struct job job = job_of("\"mode\":\"sync\",\"recover\":true,\"epoch\":1");
    const uint64_t end = send_step_end(job.chief, 1, 0, "1", "");
    struct peer *again;
    uint64_t join;

    peer_close(job.worker);
    job.worker = NULL;
    ck_assert(!is_answered(job.chief, end, 20));
    again = peer_greet(job.service, "worker", 1, RANKS, "c");
    join = send_join(again, 1);
    expect_refused(job.chief, end, RPS_E_ROLLED_BACK, "rank 1 was lost");
    ck_assert(is_restarting(job.chief, 1));
    /* so do all further ends of steps, until the job begins again */
    expect_refused(job.chief, send_step_end(job.chief, 1, 0, "1", ""),
            RPS_E_ROLLED_BACK, "rank 1 was lost");
    ck_assert(!is_answered(again, join, 0));
    peer_close(again);
    job_finish(&job);
}
END_TEST

START_TEST(a_second_process_beside_a_living_one_ends_nothing)
{
    struct job job = job_of("\"mode\":\"sync\",\"recover\":true,\"epoch\":1");
    struct peer *second = peer_greet(job.service, "worker", 1, RANKS, "c");
    const uint64_t join = send_join(second, 1);
    const uint64_t ends[] = {send_step_end(job.chief, 1, 0, "1", ""),
            send_step_end(job.worker, 1, 1, "1", "")};
    struct rps_wire_decision decision = wait_decision(job.chief, ends[0]);
    uint64_t end;

    ck_assert_uint_eq(decision.step, 1);
    rps_decision_finish(&decision);
    decision = wait_decision(job.worker, ends[1]);
    rps_decision_finish(&decision);
    ck_assert(!is_answered(second, join, 0));
    /* until the living one is gone, too */
    end = send_step_end(job.chief, 2, 0, "1", "");
    ck_assert(!is_answered(job.chief, end, 0));
    peer_close(job.worker);
    job.worker = NULL;
    expect_refused(job.chief, end, RPS_E_ROLLED_BACK, "rank 1 was lost");
    peer_close(second);
    job_finish(&job);
}
END_TEST

START_TEST(without_recover_the_others_wait_for_the_timeout)
{
    struct job job = job_of("\"mode\":\"sync\",\"epoch\":1");
    const uint64_t end = send_step_end(job.chief, 1, 0, "1", "");
    struct peer *again;

    peer_close(job.worker);
    job.worker = NULL;
    again = peer_greet(job.service, "worker", 1, RANKS, "c");
    (void)send_join(again, 1);
    ck_assert(!is_answered(job.chief, end, 50));
    peer_close(again);
    job_finish(&job);
}
END_TEST

START_TEST(one_that_had_left_is_waited_for_by_nobody)
{
    struct job job = job_of("\"mode\":\"async\",\"recover\":true,\"epoch\":1");
    struct rps_wire_decision decision = wait_decision(
            job.worker, send_step_end(job.worker, 1, 1, "1", "\"leave\""));
    struct peer *again;

    rps_decision_finish(&decision);
    peer_close(job.worker);
    job.worker = NULL;
    again = peer_greet(job.service, "worker", 1, RANKS, "c");
    (void)send_join(again, 1);
    decision =
            wait_decision(job.chief, send_step_end(job.chief, 1, 0, "1", ""));
    rps_decision_finish(&decision);
    peer_close(again);
    job_finish(&job);
}
END_TEST

START_TEST(the_reason_of_a_new_beginning_is_told_to_all)
{
    struct job job = job_of("\"mode\":\"sync\",\"recover\":true,\"epoch\":1");
    uint64_t ids[RANKS];
    struct answer answer;
    char *text;

    restore(job.chief, "\"epoch\":2,\"reason\":\"PS 1 was lost\"");
    ids[0] = send_join(job.chief, 0);
    ids[1] = send_join(job.worker, 1);
    answer = wait_answer(job.worker, ids[1]);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    text = rps_message_text(&answer.message);
    ck_assert_ptr_nonnull(text);
    ck_assert_ptr_nonnull(strstr(text, "\"reason\":\"PS 1 was lost\""));
    ck_assert_ptr_nonnull(strstr(text, "\"epoch\":2"));
    free(text);
    answer_finish(&answer);
    answer = wait_answer(job.chief, ids[0]);
    answer_finish(&answer);
    job_finish(&job);
}
END_TEST

START_TEST(a_reason_that_is_too_long_is_refused)
{
    struct job job = job_of("\"mode\":\"sync\",\"epoch\":1");
    struct rps_header header = request_of(job.chief, RPS_OP_RESTORE);
    char text[512];

    snprintf(text, sizeof(text), "{\"epoch\":2,\"reason\":\"%0*d\"}",
            (int)RPS_REASON_BYTES, 0);
    ask(job.chief, &header, text, RPS_E_INVAL, NULL);
    header = request_of(job.chief, RPS_OP_RESTORE);
    ask(job.chief, &header, "{\"epoch\":2,\"recover\":1}", RPS_E_INVAL, NULL);
    job_finish(&job);
}
END_TEST

START_TEST(an_epoch_that_a_member_knows_is_told)
{
    static const char hello[] =
            "{\"versions\":[1,1],\"job_id\":\"test\",\"job_seed\":\"0\","
            "\"ps_count\":1,\"ps_index\":0,\"role\":\"%s\",\"rank\":1,"
            "\"replicas\":2,\"client\":\"%s\",\"known_epoch\":%u}";
    static const struct {
        const char *role, *client;
        unsigned epoch, known;
    } cases[] = {{"none", "e", 9, 0}, {"worker", "f", 7, 7},
            {"worker", "f1", 5, 7}, {"worker", "f2", UINT32_MAX, 7}};
    struct rps_service *service = service_of(0, 1, NULL, 60000);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct peer *peer = peer_open(service);
        struct rps_header header = request_of(peer, RPS_OP_HELLO);
        char text[512];
        json_t *stat;

        snprintf(text, sizeof(text), hello, cases[i].role, cases[i].client,
                cases[i].epoch);
        ask(peer, &header, text, RPS_OK, NULL);
        stat = stat_of(peer);
        ck_assert_int_eq(
                json_integer_value(json_object_get(stat, "epoch_known")),
                cases[i].known);
        json_decref(stat);
        peer_close(peer);
    }
    rps_service_destroy(service);
}
END_TEST

START_TEST(who_waits_for_the_end_is_told_of_it)
{
    struct job job = job_of("\"mode\":\"async\",\"recover\":true,\"epoch\":1");
    struct peer *evaluator = peer_greet(job.service, "evaluator", 0, 0, "e");
    const uint64_t first = send_join(evaluator, 0);
    const uint64_t second = send_join(evaluator, 0);
    struct rps_wire_decision decision = wait_decision(
            job.worker, send_step_end(job.worker, 1, 1, "1", "\"leave\""));
    const uint64_t waits = send_join(job.worker, 1);
    struct rps_header header = request_of(job.chief, RPS_OP_SHUTDOWN);
    struct answer answer;

    rps_decision_finish(&decision);
    expect_refused(evaluator, first, RPS_E_CANCELED, "sent again");
    ck_assert(!is_answered(evaluator, second, 0));
    ck_assert(!is_answered(job.worker, waits, 0));
    ask(job.chief, &header, "{}", RPS_OK, NULL);
    expect_refused(job.worker, waits, RPS_E_CANCELED, "ended the job");
    answer = wait_answer(evaluator, second);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    peer_close(evaluator);
    job_finish(&job);
}
END_TEST

START_TEST(an_evaluator_that_goes_is_forgotten)
{
    struct job job = job_of("\"mode\":\"async\",\"epoch\":1");
    struct peer *evaluators[17];

    for (size_t i = 0; i < 17; i++) {
        char client[8];
        uint64_t id;

        snprintf(client, sizeof(client), "e%zx", i);
        evaluators[i] = peer_greet(job.service, "evaluator", 0, 0, client);
        id = send_join(evaluators[i], 0);
        if (i == 16) {
            expect_refused(evaluators[i], id, RPS_E_LIMIT, "16 evaluators");
        }
    }
    peer_close(evaluators[3]);
    ck_assert(!is_answered(evaluators[16], send_join(evaluators[16], 0), 10));
    for (size_t i = 0; i < 17; i++) {
        if (i != 3) {
            peer_close(evaluators[i]);
        }
    }
    job_finish(&job);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: back");
    TCase *tcase = tcase_create("back");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(
            tcase, another_process_in_the_place_of_a_lost_one_ends_the_epoch);
    tcase_add_test(tcase, a_second_process_beside_a_living_one_ends_nothing);
    tcase_add_test(tcase, without_recover_the_others_wait_for_the_timeout);
    tcase_add_test(tcase, one_that_had_left_is_waited_for_by_nobody);
    tcase_add_test(tcase, the_reason_of_a_new_beginning_is_told_to_all);
    tcase_add_test(tcase, a_reason_that_is_too_long_is_refused);
    tcase_add_test(tcase, an_epoch_that_a_member_knows_is_told);
    tcase_add_test(tcase, who_waits_for_the_end_is_told_of_it);
    tcase_add_test(tcase, an_evaluator_that_goes_is_forgotten);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
