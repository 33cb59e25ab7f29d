/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of async mode: no waiting but for the start, the save barrier and the
 * chief's leave. */
#include "tests/unit/folder.h"
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct job {
    struct rps_service *service;
    struct peer *peers[2];
    char dir[FOLDER_BYTES];
};

static struct job
job_of(uint32_t timeout_ms)
{
    struct job job = {0};

    folder_make(job.dir);
    job.service = service_of(0, 1, job.dir, timeout_ms);
    job.peers[0] = peer_greet(job.service, "chief", 0, 2, "a");
    job.peers[1] = peer_greet(job.service, "worker", 1, 2, "b");
    begin_job(job.peers[0], 1, 0, "async", 2);
    join_all(job.peers, 2);
    return job;
}

static void
job_finish(struct job *job)
{
    for (int rank = 0; rank < 2; rank++) {
        if (job->peers[rank] != NULL) {
            peer_close(job->peers[rank]);
        }
    }
    rps_service_destroy(job->service);
    folder_remove(job->dir);
}

static struct rps_wire_decision
end_step(struct job *job, uint32_t rank, uint64_t step, const char *wishes)
{
    return wait_decision(job->peers[rank],
            send_step_end(job->peers[rank], step, rank, "2.5", wishes));
}

/* Steps first..last of a rank, without waiting for anybody. */
static void
run_steps(struct job *job, uint32_t rank, uint64_t first, uint64_t last,
        uint64_t save_step)
{
    for (uint64_t step = first; step <= last; step++) {
        struct rps_wire_decision decision = end_step(job, rank, step, "");

        ck_assert_uint_eq(decision.step, step);
        ck_assert_uint_eq(decision.save_step, save_step);
        ck_assert_uint_eq(decision.wishes, 0);
        ck_assert_uint_eq(decision.rank_count, 1);
        ck_assert_uint_eq(decision.ranks[0], rank);
        ck_assert(decision.loss == 2.5);
        rps_decision_finish(&decision);
    }
}

static void
save_action(struct peer *peer, uint64_t step, const char *action,
        rps_status expected)
{
    struct rps_header header = request_of(peer, RPS_OP_SAVE);
    char text[64];

    header.step = step;
    snprintf(text, sizeof(text), "{\"action\":\"%s\"}", action);
    ask(peer, &header, text, expected, NULL);
}

START_TEST(steps_of_async_wait_for_nobody)
{
    struct job job = job_of(60000);

    run_steps(&job, 1, 1, 7, 0);
    run_steps(&job, 0, 1, 2, 0);
    job_finish(&job);
}
END_TEST

START_TEST(a_save_holds_every_replica_at_the_largest_step_begun)
{
    struct job job = job_of(60000);
    struct rps_wire_decision decision;
    uint64_t worker, chief;

    run_steps(&job, 1, 1, 4, 0); /* begins step 5 */
    decision = end_step(&job, 0, 1, "\"save\"");
    ck_assert_uint_eq(decision.save_step, 5);
    ck_assert_uint_eq(decision.wishes, 0);
    rps_decision_finish(&decision);
    worker = send_step_end(job.peers[1], 5, 1, "1", "");
    ck_assert(!is_answered(job.peers[1], worker, 20));
    run_steps(&job, 0, 2, 4, 5);
    chief = send_step_end(job.peers[0], 5, 0, "1", "");
    decision = wait_decision(job.peers[0], chief);
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
    ck_assert_uint_eq(decision.save_step, 5);
    rps_decision_finish(&decision);
    save_action(job.peers[0], 5, "prepare", RPS_OK);
    ck_assert(!is_answered(job.peers[1], worker, 20));
    save_action(job.peers[0], 5, "abort", RPS_OK);
    decision = wait_decision(job.peers[1], worker);
    ck_assert_uint_eq(decision.save_step, 0);
    rps_decision_finish(&decision);
    run_steps(&job, 1, 6, 6, 0);
    job_finish(&job);
}
END_TEST

START_TEST(a_replica_that_leaves_before_the_barrier_is_not_waited_for)
{
    struct job job = job_of(60000);
    struct rps_wire_decision decision = end_step(&job, 0, 1, "\"save\"");
    uint64_t chief;

    ck_assert_uint_eq(decision.save_step, 2);
    rps_decision_finish(&decision);
    chief = send_step_end(job.peers[0], 2, 0, "1", "");
    ck_assert(!is_answered(job.peers[0], chief, 20));
    decision = end_step(&job, 1, 1, "\"leave\"");
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[0], chief);
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(leave_of_the_chief_before_the_barrier_lets_the_others_go)
{
    struct job job = job_of(60000);
    struct rps_wire_decision decision;
    uint64_t worker, chief;

    run_steps(&job, 1, 1, 8, 0);
    decision = end_step(&job, 0, 1, "\"save\"");
    ck_assert_uint_eq(decision.save_step, 9);
    rps_decision_finish(&decision);
    worker = send_step_end(job.peers[1], 9, 1, "1", "");
    ck_assert(!is_answered(job.peers[1], worker, 20));
    chief = send_step_end(job.peers[0], 2, 0, "1", "\"save\",\"leave\"");
    decision = wait_decision(job.peers[1], worker);
    ck_assert_uint_eq(decision.save_step, 0);
    rps_decision_finish(&decision);
    ck_assert(!is_answered(job.peers[0], chief, 20));
    decision = end_step(&job, 1, 10, "\"leave\"");
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[0], chief);
    ck_assert_uint_eq(decision.step, 2);
    ck_assert_uint_eq(decision.save_step, 10);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_chief_that_goes_on_without_a_commit_opens_the_barrier)
{
    struct job job = job_of(60000);
    struct rps_wire_decision decision = end_step(&job, 0, 1, "\"save\"");
    uint64_t worker;

    rps_decision_finish(&decision);
    run_steps(&job, 1, 1, 1, 2);
    worker = send_step_end(job.peers[1], 2, 1, "1", "");
    for (int again = 0; again < 2; again++) { /* a lost answer */
        decision = end_step(&job, 0, 2, "");
        ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
        rps_decision_finish(&decision);
    }
    ck_assert(!is_answered(job.peers[1], worker, 20));
    decision = end_step(&job, 0, 3, "");
    ck_assert_uint_eq(decision.save_step, 0);
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[1], worker);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_chief_that_is_gone_ends_the_wait_at_the_barrier)
{
    struct job job = job_of(200);
    struct rps_wire_decision decision = end_step(&job, 0, 1, "\"save\"");
    struct answer answer;
    uint64_t worker;

    rps_decision_finish(&decision);
    run_steps(&job, 1, 1, 1, 2);
    worker = send_step_end(job.peers[1], 2, 1, "1", "");
    peer_close(job.peers[0]);
    job.peers[0] = NULL;
    answer = wait_answer(job.peers[1], worker);
    check_refused(&answer, RPS_E_TIMEOUT, "rank 0");
    job_finish(&job);
}
END_TEST

START_TEST(stop_of_the_chief_is_told_to_all)
{
    struct job job = job_of(60000);
    struct rps_wire_decision decision = end_step(&job, 0, 1, "\"stop\"");

    ck_assert_uint_eq(decision.wishes, RPS_WISH_STOP);
    rps_decision_finish(&decision);
    decision = end_step(&job, 1, 1, "\"leave\"");
    ck_assert_uint_eq(decision.wishes, RPS_WISH_STOP | RPS_WISH_LEAVE);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(steps_that_cannot_be_are_refused)
{
    struct job job = job_of(60000);
    struct peer *stranger = peer_greet(job.service, "worker", 1, 2, "c");
    struct answer answer;

    run_steps(&job, 1, 1, 3, 0);
    answer = wait_answer(
            job.peers[1], send_step_end(job.peers[1], 2, 1, "1", ""));
    check_refused(&answer, RPS_E_INVAL, "has ended step 3");
    answer = wait_answer(
            job.peers[1], send_step_end(job.peers[1], 4, 1, "1", "\"x\""));
    check_refused(&answer, RPS_E_INVAL, "wish \"x\"");
    stranger->epoch = 1;
    answer = wait_answer(stranger, send_step_end(stranger, 4, 1, "1", ""));
    check_refused(&answer, RPS_E_INVAL, "has not joined");
    peer_close(stranger);
    job_finish(&job);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: async");
    TCase *tcase = tcase_create("async");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, steps_of_async_wait_for_nobody);
    tcase_add_test(tcase, a_save_holds_every_replica_at_the_largest_step_begun);
    tcase_add_test(
            tcase, a_replica_that_leaves_before_the_barrier_is_not_waited_for);
    tcase_add_test(
            tcase, leave_of_the_chief_before_the_barrier_lets_the_others_go);
    tcase_add_test(
            tcase, a_chief_that_goes_on_without_a_commit_opens_the_barrier);
    tcase_add_test(tcase, a_chief_that_is_gone_ends_the_wait_at_the_barrier);
    tcase_add_test(tcase, stop_of_the_chief_is_told_to_all);
    tcase_add_test(tcase, steps_that_cannot_be_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
