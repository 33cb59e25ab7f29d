/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that go without some: backup workers, and replicas that were lost or
 * silent. Values by hand: sgd with rate 1 from zeros. */
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define RANKS 3

static const uint64_t key = 3;

struct job {
    struct rps_service *service;
    struct peer *peers[RANKS];
    uint64_t table;
};

/* `terms`: the JSON of RESTORE behind epoch, step and replicas. */
static struct job
job_with(const char *terms, uint32_t timeout_ms)
{
    struct job job = {.service = service_of(0, 1, NULL, timeout_ms)};
    struct rps_header header;
    char text[256];

    job.peers[0] = peer_greet(job.service, "chief", 0, RANKS, "a");
    job.peers[1] = peer_greet(job.service, "worker", 1, RANKS, "b");
    job.peers[2] = peer_greet(job.service, "worker", 2, RANKS, "c");
    header = request_of(job.peers[0], RPS_OP_RESTORE);
    snprintf(text, sizeof(text), "{\"epoch\":1,\"step\":0,\"replicas\":%d,%s}",
            RANKS, terms);
    ask(job.peers[0], &header, text, RPS_OK, NULL);
    job.peers[0]->epoch = 1;
    job.table = open_table(job.peers[0], "emb", 1);
    join_all(job.peers, RANKS);
    return job;
}

static void
job_finish(struct job *job)
{
    for (int rank = 0; rank < RANKS; rank++) {
        if (job->peers[rank] != NULL) {
            peer_close(job->peers[rank]);
        }
    }
    rps_service_destroy(job->service);
}

static void
lose(struct job *job, uint32_t rank)
{
    peer_close(job->peers[rank]);
    job->peers[rank] = NULL;
}

static void
push_one(struct job *job, uint32_t rank, uint64_t step, float gradient)
{
    push(job->peers[rank], step, job->table, 1, &key, &gradient, 1);
}

static float
value_of(struct job *job)
{
    float row = NAN;

    (void)lookup(job->peers[0], job->table, 1, &key, 1, &row);
    return row;
}

static uint64_t
send_end(struct job *job, uint32_t rank, uint64_t step, const char *wishes)
{
    return send_step_end(job->peers[rank], step, rank, "1", wishes);
}

static void
check_decision(struct job *job, uint32_t rank, uint64_t id, uint64_t step,
        uint32_t counted)
{
    struct rps_wire_decision decision = wait_decision(job->peers[rank], id);

    ck_assert_uint_eq(decision.step, step);
    ck_assert_uint_eq(decision.rank_count, counted);
    apply(job->peers[rank], &decision, RPS_OK);
    rps_decision_finish(&decision);
}

static json_int_t
counter(struct job *job, const char *name)
{
    json_t *stat = stat_of(job->peers[0]);
    const json_int_t value = json_integer_value(json_object_get(stat, name));

    json_decref(stat);
    return value;
}

static bool
is_given_up(struct job *job, size_t rank)
{
    json_t *stat = stat_of(job->peers[0]);
    const json_t *member =
            json_array_get(json_object_get(stat, "members"), rank);
    const bool given_up = json_is_true(json_object_get(member, "given_up"));

    ck_assert_int_eq(given_up, json_is_true(json_object_get(member, "left")));
    json_decref(stat);
    return given_up;
}

/* --- backup workers ------------------------------------------------------ */

static const char backup[] = "\"mode\":\"sync\",\"backup_workers\":1";

START_TEST(a_step_is_decided_without_the_slowest)
{
    struct job job = job_with(backup, 60000);
    uint64_t chief, second;

    push_one(&job, 0, 1, 1);
    push_one(&job, 1, 1, 2);
    push_one(&job, 2, 1, 4); /* pushed in time, ended too late */
    chief = send_end(&job, 0, 1, "");
    ck_assert(!is_answered(job.peers[0], chief, 20));
    second = send_end(&job, 1, 1, "");
    check_decision(&job, 0, chief, 1, 2);
    check_decision(&job, 1, second, 1, 2);
    ck_assert_float_eq(value_of(&job), -3);
    ck_assert_int_eq(counter(&job, "dropped"), 1);
    job_finish(&job);
}
END_TEST

START_TEST(who_is_behind_goes_on_at_the_newest_step)
{
    struct job job = job_with(backup, 60000);
    uint64_t chief, second, slow;

    for (uint64_t step = 1; step <= 3; step++) {
        push_one(&job, 0, step, 1);
        push_one(&job, 1, step, 1);
        chief = send_end(&job, 0, step, "");
        second = send_end(&job, 1, step, "");
        check_decision(&job, 0, chief, step, 2);
        check_decision(&job, 1, second, step, 2);
    }
    push_one(&job, 2, 1, 100); /* of step 1: late, acknowledged, dropped */
    slow = send_end(&job, 2, 1, "");
    check_decision(&job, 2, slow, 3, 2);
    ck_assert_float_eq(value_of(&job), -6);
    ck_assert_int_eq(counter(&job, "late"), 1);
    push_one(&job, 2, 4, 10); /* in time again */
    slow = send_end(&job, 2, 4, "");
    push_one(&job, 0, 4, 1);
    chief = send_end(&job, 0, 4, "");
    check_decision(&job, 0, chief, 4, 2);
    check_decision(&job, 2, slow, 4, 2);
    ck_assert_float_eq(value_of(&job), -17);
    job_finish(&job);
}
END_TEST

START_TEST(the_chief_is_never_the_one_that_is_dropped)
{
    struct job job = job_with(backup, 60000);
    uint64_t first = send_end(&job, 1, 1, "");
    uint64_t second = send_end(&job, 2, 1, "");
    uint64_t chief;

    ck_assert(!is_answered(job.peers[1], first, 20));
    chief = send_end(&job, 0, 1, "");
    check_decision(&job, 0, chief, 1, 3);
    check_decision(&job, 1, first, 1, 3);
    check_decision(&job, 2, second, 1, 3);
    job_finish(&job);
}
END_TEST

START_TEST(one_that_left_is_one_of_the_backup)
{
    struct job job = job_with(backup, 60000);
    uint64_t chief = send_end(&job, 0, 1, "");
    uint64_t first = send_end(&job, 1, 1, "\"leave\"");
    uint64_t slow;

    check_decision(&job, 0, chief, 1, 2);
    check_decision(&job, 1, first, 1, 2);
    chief = send_end(&job, 0, 2, ""); /* both that are left are needed */
    ck_assert(!is_answered(job.peers[0], chief, 20));
    slow = send_end(&job, 2, 1, "");
    check_decision(&job, 2, slow, 1, 2);
    slow = send_end(&job, 2, 2, "");
    check_decision(&job, 0, chief, 2, 2);
    check_decision(&job, 2, slow, 2, 2);
    job_finish(&job);
}
END_TEST

START_TEST(a_late_leave_lets_the_chief_end)
{
    struct job job = job_with(backup, 60000);
    uint64_t first = send_end(&job, 1, 1, "\"leave\"");
    uint64_t chief = send_end(&job, 0, 1, "\"leave\"");
    uint64_t slow;

    check_decision(&job, 1, first, 1, 2);
    ck_assert(!is_answered(job.peers[0], chief, 20));
    slow = send_end(&job, 2, 1, "\"leave\""); /* it has nothing to push */
    check_decision(&job, 2, slow, 1, 2);
    check_decision(&job, 0, chief, 1, 2);
    job_finish(&job);
}
END_TEST

/* --- lost and silent ----------------------------------------------------- */

static const char leave[] = "\"mode\":\"sync\",\"on_lost\":\"leave\"";

START_TEST(the_others_go_on_without_one_that_is_gone)
{
    struct job job = job_with(leave, 200);
    uint64_t chief, second;

    push_one(&job, 0, 1, 1);
    push_one(&job, 1, 1, 2);
    push_one(&job, 2, 1, 4);
    chief = send_end(&job, 0, 1, "");
    second = send_end(&job, 1, 1, "");
    lose(&job, 2); /* pushed, not ended: absent */
    check_decision(&job, 0, chief, 1, 2);
    check_decision(&job, 1, second, 1, 2);
    ck_assert_float_eq(value_of(&job), -3);
    ck_assert_int_eq(counter(&job, "dropped"), 1);
    ck_assert(is_given_up(&job, 2));
    pthread_mutex_lock(&rps_events.lock);
    ck_assert_str_eq(rps_events.last_event, "replica_given_up");
    ck_assert_ptr_nonnull(strstr(rps_events.last_text, "rank 2 (a test)"));
    pthread_mutex_unlock(&rps_events.lock);
    job_finish(&job);
}
END_TEST

START_TEST(a_step_that_one_ended_before_it_was_lost_counts_it)
{
    struct job job = job_with(leave, 200);
    uint64_t chief;

    push_one(&job, 2, 1, 4);
    (void)send_end(&job, 2, 1, "");
    lose(&job, 2);
    usleep(300000); /* given up meanwhile */
    push_one(&job, 0, 1, 1);
    push_one(&job, 1, 1, 2);
    chief = send_end(&job, 0, 1, "");
    (void)send_end(&job, 1, 1, "");
    check_decision(&job, 0, chief, 1, 3);
    ck_assert_float_eq(value_of(&job), -7);
    ck_assert(is_given_up(&job, 2));
    job_finish(&job);
}
END_TEST

START_TEST(a_silent_one_is_left_behind_and_told_when_it_wakes)
{
    struct job job = job_with(leave, 200);
    uint64_t chief = send_end(&job, 0, 1, "");
    uint64_t second = send_end(&job, 1, 1, "");
    struct answer answer;

    check_decision(&job, 0, chief, 1, 2);
    check_decision(&job, 1, second, 1, 2);
    push_one(&job, 2, 1, 8); /* late: acknowledged, dropped, counted */
    answer = wait_answer(job.peers[2], send_end(&job, 2, 1, ""));
    check_refused(&answer, RPS_E_TIMEOUT,
            "this replica, rank 2, ended no further step within --step-timeout"
            " (0.2 s) after step 0: the others go on without it");
    push_one(&job, 2, 2, 8); /* in time, for a step that will not count it */
    chief = send_end(&job, 0, 2, "");
    second = send_end(&job, 1, 2, "");
    check_decision(&job, 0, chief, 2, 2);
    check_decision(&job, 1, second, 2, 2);
    ck_assert_float_eq(value_of(&job), 0);
    ck_assert_int_eq(counter(&job, "late"), 1);
    ck_assert_int_eq(counter(&job, "dropped"), 1);
    job_finish(&job);
}
END_TEST

START_TEST(without_the_chief_nobody_goes_on)
{
    struct job job = job_with(leave, 200);
    uint64_t first = send_end(&job, 1, 1, "");
    struct answer answer;

    lose(&job, 0);
    (void)send_end(&job, 2, 1, "");
    answer = wait_answer(job.peers[1], first);
    check_refused(&answer, RPS_E_TIMEOUT, "rank 0 (a test) has been gone");
    job_finish(&job);
}
END_TEST

START_TEST(a_silent_chief_ends_the_job_for_all)
{
    struct job job = job_with(leave, 200);
    struct answer answer;

    (void)send_end(&job, 1, 1, "");
    answer = wait_answer(job.peers[2], send_end(&job, 2, 1, ""));
    check_refused(&answer, RPS_E_TIMEOUT, "for rank 0, which did not end it");
    answer = wait_answer(job.peers[0], send_end(&job, 0, 1, ""));
    check_refused(&answer, RPS_E_TIMEOUT, "for rank 0, which did not end it");
    job_finish(&job);
}
END_TEST

START_TEST(a_chief_that_is_done_ends_without_a_silent_one)
{
    struct job job = job_with(leave, 200);
    uint64_t chief = send_end(&job, 0, 1, "\"leave\"");
    uint64_t second = send_end(&job, 1, 1, "\"leave\"");

    (void)send_end(&job, 2, 1, ""); /* and nothing more */
    check_decision(&job, 1, second, 1, 3);
    check_decision(&job, 0, chief, 1, 3);
    ck_assert(is_given_up(&job, 2));
    job_finish(&job);
}
END_TEST

START_TEST(stop_holds_for_later_steps_and_for_the_one_that_was_missing)
{
    struct job job = job_with("\"mode\":\"sync\"", 200);
    uint64_t chief = send_end(&job, 0, 1, "");
    uint64_t second = send_end(&job, 1, 1, "");
    struct answer answer = wait_answer(job.peers[0], chief);

    check_refused(&answer, RPS_E_TIMEOUT, "for rank 2, which did not end it");
    answer = wait_answer(job.peers[1], second);
    check_refused(&answer, RPS_E_TIMEOUT, "for rank 2, which did not end it");
    answer = wait_answer(job.peers[2], send_end(&job, 2, 1, ""));
    check_refused(&answer, RPS_E_TIMEOUT, "for rank 2, which did not end it");
    begin_job(job.peers[0], 2, 0, "sync", RANKS); /* and with the epoch ends */
    join_all(job.peers, RANKS);
    (void)send_end(&job, 0, 1, "");
    (void)send_end(&job, 1, 1, "");
    check_decision(&job, 2, send_end(&job, 2, 1, ""), 1, 3);
    job_finish(&job);
}
END_TEST

START_TEST(async_stops_at_the_next_step_where_one_is_gone)
{
    struct job job = job_with("\"mode\":\"async\"", 200);
    struct rps_wire_decision decision;
    struct answer answer;

    lose(&job, 2);
    decision = wait_decision(job.peers[0], send_end(&job, 0, 1, ""));
    rps_decision_finish(&decision);
    usleep(400000);
    answer = wait_answer(job.peers[0], send_end(&job, 0, 2, ""));
    check_refused(&answer, RPS_E_TIMEOUT, "rank 2 (a test) has been gone");
    job_finish(&job);
}
END_TEST

START_TEST(bounded_goes_on_without_one_that_is_gone)
{
    struct job job =
            job_with("\"mode\":\"bounded:1\",\"on_lost\":\"leave\"", 200);
    struct rps_wire_decision decision;
    uint64_t held;

    for (uint32_t rank = 0; rank < 2; rank++) {
        decision = wait_decision(job.peers[rank], send_end(&job, rank, 1, ""));
        rps_decision_finish(&decision);
    }
    held = send_end(&job, 0, 2, "");
    ck_assert(!is_answered(job.peers[0], held, 20));
    lose(&job, 2);
    decision = wait_decision(job.peers[0], held);
    rps_decision_finish(&decision);
    ck_assert(is_given_up(&job, 2));
    job_finish(&job);
}
END_TEST

START_TEST(a_new_process_of_a_rank_that_was_given_up_waits_for_the_next_epoch)
{
    struct job job = job_with(leave, 200);
    uint64_t chief = send_end(&job, 0, 1, "");
    uint64_t second = send_end(&job, 1, 1, "");
    uint64_t joining;

    lose(&job, 2);
    check_decision(&job, 0, chief, 1, 2);
    check_decision(&job, 1, second, 1, 2);
    job.peers[2] = peer_greet(job.service, "worker", 2, RANKS, "d");
    joining = send_step_end(job.peers[2], 0, 2, "null", "");
    ck_assert(!is_answered(job.peers[2], joining, 50));
    chief = send_end(&job, 0, 2, "");
    second = send_end(&job, 1, 2, "");
    check_decision(&job, 0, chief, 2, 2);
    check_decision(&job, 1, second, 2, 2);
    begin_job(job.peers[0], 2, 0, "sync", RANKS);
    chief = send_step_end(job.peers[0], 0, 0, "null", "");
    (void)send_step_end(job.peers[1], 0, 1, "null", "");
    ck_assert(is_answered(job.peers[2], joining, 1000));
    ck_assert(is_answered(job.peers[0], chief, 1000));
    job_finish(&job);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: lost");
    TCase *tcase = tcase_create("lost");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_step_is_decided_without_the_slowest);
    tcase_add_test(tcase, who_is_behind_goes_on_at_the_newest_step);
    tcase_add_test(tcase, the_chief_is_never_the_one_that_is_dropped);
    tcase_add_test(tcase, one_that_left_is_one_of_the_backup);
    tcase_add_test(tcase, a_late_leave_lets_the_chief_end);
    tcase_add_test(tcase, the_others_go_on_without_one_that_is_gone);
    tcase_add_test(tcase, a_step_that_one_ended_before_it_was_lost_counts_it);
    tcase_add_test(tcase, a_silent_one_is_left_behind_and_told_when_it_wakes);
    tcase_add_test(tcase, without_the_chief_nobody_goes_on);
    tcase_add_test(tcase, a_silent_chief_ends_the_job_for_all);
    tcase_add_test(tcase, a_chief_that_is_done_ends_without_a_silent_one);
    tcase_add_test(
            tcase, stop_holds_for_later_steps_and_for_the_one_that_was_missing);
    tcase_add_test(tcase, async_stops_at_the_next_step_where_one_is_gone);
    tcase_add_test(tcase, bounded_goes_on_without_one_that_is_gone);
    tcase_add_test(tcase,
            a_new_process_of_a_rank_that_was_given_up_waits_for_the_next_epoch);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
