/* SPDX-License-Identifier: Apache-2.0 */
/* The step protocol of sync mode. Values are worked out by hand: sgd with
 * learning rate 1 from zeros is the negative sum of the gradients. */
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static const uint64_t key = 3;

/** PS 0 of 1 with a job of two replicas that have joined, and a table. */
struct job {
    struct rps_service *service;
    struct peer *peers[2];
    uint64_t table;
};

static struct job
job_with(const char *combine, uint32_t timeout_ms)
{
    struct job job = {.service = service_of(0, 1, NULL, timeout_ms)};

    job.peers[0] = peer_greet(job.service, "chief", 0, 2, "a");
    job.peers[1] = peer_greet(job.service, "worker", 1, 2, "b");
    begin_job_with(job.peers[0], 1, 0, "sync", combine, 2);
    job.table = open_table(job.peers[0], "emb", 1);
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
}

static void
push_one(struct peer *peer, uint64_t step, uint64_t table, float gradient)
{
    push(peer, step, table, 1, &key, &gradient, 1);
}

static struct answer
push_answer(struct peer *peer, uint64_t step, uint64_t table, float gradient)
{
    return wait_answer(
            peer, send_push(peer, step, 0, table, 1, &key, &gradient, 1));
}

static float
value_of(struct peer *peer, uint64_t table, uint64_t *step_out)
{
    float row = NAN;

    *step_out = lookup(peer, table, 1, &key, 1, &row);
    return row;
}

/* Both ranks end a step; the decision that both got. */
static struct rps_wire_decision
end_step(struct job *job, uint64_t step, const char *wishes)
{
    uint64_t first = send_step_end(job->peers[0], step, 0, "1.5", wishes);
    uint64_t second;
    struct rps_wire_decision decision, other;

    ck_assert(!is_answered(job->peers[0], first, 20));
    second = send_step_end(job->peers[1], step, 1, "0.25", "");
    decision = wait_decision(job->peers[0], first);
    other = wait_decision(job->peers[1], second);
    ck_assert_uint_eq(other.step, decision.step);
    ck_assert_uint_eq(other.rank_count, decision.rank_count);
    ck_assert(other.loss == decision.loss);
    rps_decision_finish(&other);
    return decision;
}

START_TEST(start_waits_for_every_replica_and_tells_the_terms)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *worker = peer_greet(service, "worker", 1, 2, "b");
    struct peer *chief;
    uint64_t early = send_step_end(worker, 0, 1, "null", "");
    uint64_t id;
    struct answer answer;
    char *text;

    ck_assert(!is_answered(worker, early, 20));
    chief = peer_greet(service, "chief", 0, 2, "a");
    begin_job(chief, 5, 0, "sync", 2);
    ck_assert(!is_answered(worker, early, 20));
    id = send_step_end(chief, 0, 0, "null", "");
    answer = wait_answer(worker, early);
    text = rps_message_text(&answer.message);
    ck_assert_str_eq(text, "{\"epoch\":5,\"step\":0,\"data_position\":null,"
                           "\"mode\":\"sync\",\"combine\":\"sum\","
                           "\"replicas\":2,\"step_timeout_ms\":60000,"
                           "\"step_bytes_max\":1048576,\"backup_workers\":0,"
                           "\"on_lost\":\"stop\"}");
    ck_assert_uint_eq(answer.header.epoch, 5);
    free(text);
    answer_finish(&answer);
    answer = wait_answer(chief, id);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    peer_close(chief);
    peer_close(worker);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_replica_that_never_came_is_named_every_10_s)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(service, "chief", 0, 3, "a");
    uint64_t id;

    begin_job(chief, 1, 0, "sync", 3);
    id = send_step_end(chief, 0, 0, "null", "");
    ck_assert(!is_answered(chief, id, 10500));
    pthread_mutex_lock(&rps_events.lock);
    ck_assert_str_eq(rps_events.last_event, "waiting_for_replicas");
    ck_assert_str_eq(rps_events.last_text,
            "STEP_END of step 0 waits for rank 1, 2 of 3 replicas");
    pthread_mutex_unlock(&rps_events.lock);
    peer_close(chief);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_step_changes_tables_with_its_decision_only)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    uint64_t step;

    push_one(job.peers[0], 1, job.table, 1);
    push_one(job.peers[1], 1, job.table, 2);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), 0);
    ck_assert_uint_eq(step, 0);
    decision = end_step(&job, 1, "");
    ck_assert_uint_eq(decision.step, 1);
    ck_assert_uint_eq(decision.epoch, 1);
    ck_assert_uint_eq(decision.rank_count, 2);
    ck_assert_uint_eq(decision.ranks[1], 1);
    ck_assert(decision.loss == 1.75);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), 0);
    apply(job.peers[1], &decision, RPS_OK);
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -3);
    ck_assert_uint_eq(step, 1);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(mean_divides_gradients_and_losses_by_the_counted_ranks)
{
    struct job job = job_with("mean", 60000);
    struct rps_wire_decision decision;
    uint64_t step;

    push_one(job.peers[0], 1, job.table, 1);
    push_one(job.peers[1], 1, job.table, 2);
    decision = end_step(&job, 1, "");
    ck_assert(decision.loss == 0.875);
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -1.5f);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(contributions_are_summed_in_rank_order)
{
    /* in floats (2^24 + 1) + 1 is 2^24, but 2^24 + (1 + 1) is not */
    const float gradients[3] = {16777216.0f, 1.0f, 1.0f};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peers[3] = {peer_greet(service, "chief", 0, 3, "a"),
            peer_greet(service, "worker", 1, 3, "b"),
            peer_greet(service, "worker", 2, 3, "c")};
    struct rps_wire_decision decision;
    uint64_t table, step, ids[3];

    begin_job(peers[0], 1, 0, "sync", 3);
    table = open_table(peers[0], "emb", 1);
    join_all(peers, 3);
    for (uint32_t rank = 3; rank-- > 0;) {
        push_one(peers[rank], 1, table, gradients[rank]);
        ids[rank] = send_step_end(peers[rank], 1, rank, "null", "");
    }
    for (uint32_t rank = 0; rank < 3; rank++) {
        decision = wait_decision(peers[rank], ids[rank]);
        ck_assert(isnan(decision.loss));
        apply(peers[rank], &decision, RPS_OK);
        rps_decision_finish(&decision);
    }
    ck_assert_float_eq(value_of(peers[0], table, &step), -16777216.0f);
    for (uint32_t rank = 0; rank < 3; rank++) {
        peer_close(peers[rank]);
    }
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_second_push_of_a_step_gets_the_kept_verdict)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    uint64_t step;
    struct answer answer;

    push_one(job.peers[0], 1, job.table, 1);
    push_one(job.peers[0], 1, job.table, 8);
    push_one(job.peers[1], 1, job.table, 2);
    decision = end_step(&job, 1, "");
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -3);
    push_one(job.peers[0], 1, job.table, 8); /* also after the decision */
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -3);
    answer = push_answer(job.peers[0], 3, job.table, 1);
    check_refused(&answer, RPS_E_INVAL, "decision of step 2 is missing");
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(uncounted_and_late_contributions_are_dropped_and_counted)
{
    struct job job = job_with("sum", 60000);
    uint32_t rank = 0;
    struct rps_wire_decision decision = {.step = 1,
            .epoch = 1,
            .loss = (double)NAN,
            .rank_count = 1,
            .ranks = &rank};
    uint64_t step;
    struct answer answer;
    json_t *stat;

    push_one(job.peers[0], 1, job.table, 1);
    push_one(job.peers[1], 1, job.table, 2);
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -1);
    decision.step = 2;
    push_one(job.peers[0], 2, job.table, 1);
    apply(job.peers[0], &decision, RPS_OK);
    answer = push_answer(job.peers[1], 2, job.table, 1);
    check_refused(&answer, RPS_E_INVAL, "after its decision");
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -2);
    stat = stat_of(job.peers[0]);
    ck_assert_int_eq(json_integer_value(json_object_get(stat, "late")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(stat, "dropped")), 1);
    json_decref(stat);
    decision.step = 4;
    apply(job.peers[0], &decision, RPS_E_INVAL);
    rank = 2;
    decision.step = 3;
    apply(job.peers[0], &decision, RPS_E_INVAL);
    job_finish(&job);
}
END_TEST

START_TEST(a_decision_comes_in_with_any_request)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    struct rps_section carried = {.kind = RPS_SECTION_DECISION};
    struct rps_header header;
    struct rps_builder builder;
    struct answer answer;
    size_t bytes = 0;
    uint8_t *body;
    uint64_t step;

    push_one(job.peers[0], 1, job.table, 1);
    push_one(job.peers[1], 1, job.table, 1);
    decision = end_step(&job, 1, "");
    body = rps_decision_encode(&decision, &bytes);
    carried.count = bytes;
    header = request_of(job.peers[1], RPS_OP_PUSH_GRADIENTS);
    header.step = 2;
    build_push(&builder, &header, job.table, 1, &key, (const float[1]){5}, 1);
    rps_builder_add(&builder, &carried, body);
    answer = wait_answer(job.peers[1], send_builder(job.peers[1], &builder));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    ck_assert_uint_eq(answer.header.step, 1);
    answer_finish(&answer);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -2);
    free(body);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

/* One frame of a split push of step s: `more` follow. */
static struct answer
push_part(struct peer *peer, uint64_t step, uint64_t number, uint64_t table,
        float gradient, uint32_t dim, bool more)
{
    const float gradients[2] = {gradient, gradient};
    struct rps_header header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    struct rps_builder builder;

    header.step = step;
    header.number = number;
    header.flags = more ? RPS_FLAG_MORE : 0;
    build_push(&builder, &header, table, 1, &key, gradients, dim);
    return wait_answer(peer, send_builder(peer, &builder));
}

START_TEST(a_split_push_takes_effect_with_its_last_frame)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    struct answer answer;
    uint64_t step;

    for (int part = 0; part < 3; part++) {
        answer = push_part(job.peers[0], 1, 1, job.table, 1, 1, part < 2);
        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
    }
    /* of rank 1: the second frame is bad, which refuses the whole push */
    answer = push_part(job.peers[1], 1, 1, job.table, 1, 1, true);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    answer = push_part(job.peers[1], 1, 1, job.table, 1, 2, true);
    check_refused(&answer, RPS_E_INVAL, "dim 2");
    answer = push_part(job.peers[1], 1, 1, job.table, 1, 1, false);
    check_refused(&answer, RPS_E_INVAL, "dim 2");
    answer = push_part(job.peers[1], 1, 2, job.table, 10, 1, false);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    decision = end_step(&job, 1, "");
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -13);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_split_push_that_its_decision_overtakes_is_late)
{
    struct job job = job_with("sum", 60000);
    uint32_t rank = 0;
    struct rps_wire_decision decision = {.step = 1,
            .epoch = 1,
            .loss = (double)NAN,
            .rank_count = 1,
            .ranks = &rank};
    struct answer answer;
    uint64_t step;

    answer = push_part(job.peers[1], 1, 1, job.table, 4, 1, true);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    push_one(job.peers[0], 1, job.table, 1);
    apply(job.peers[0], &decision, RPS_OK);
    answer = push_part(job.peers[1], 1, 1, job.table, 4, 1, false);
    check_refused(&answer, RPS_E_INVAL, "after its decision");
    /* and it is in no later step */
    decision.step = 2;
    rank = 1;
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -1);
    job_finish(&job);
}
END_TEST

START_TEST(a_split_push_whose_first_frame_is_refused_is_refused_whole)
{
    struct job job = job_with("sum", 60000);
    struct peer *tool = peer_greet(job.service, "none", 0, 0, "c");
    struct answer answer;

    job.peers[0]->epoch = 2;
    answer = push_part(job.peers[0], 1, 1, job.table, 1, 1, true);
    check_refused(&answer, RPS_E_ROLLED_BACK, "epoch 2");
    tool->epoch = 1;
    begin_job(tool, 2, 0, "async", 2);
    open_table(tool, "emb", 1);
    answer = push_part(job.peers[0], 1, 1, job.table, 1, 1, false);
    check_refused(&answer, RPS_E_ROLLED_BACK, "epoch 2");
    /* the next push is another one */
    answer = push_part(job.peers[0], 1, 2, job.table, 1, 1, false);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    peer_close(tool);
    job_finish(&job);
}
END_TEST

START_TEST(parts_of_a_push_end_with_their_connection)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    struct answer answer = push_part(job.peers[1], 1, 1, job.table, 1, 1, true);
    uint64_t step;

    answer_finish(&answer);
    peer_close(job.peers[1]);
    job.peers[1] = peer_greet(job.service, "worker", 1, 2, "b");
    job.peers[1]->epoch = 1;
    answer = push_part(job.peers[1], 1, 1, job.table, 4, 1, false);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    push_one(job.peers[0], 1, job.table, 1);
    decision = end_step(&job, 1, "");
    apply(job.peers[0], &decision, RPS_OK);
    ck_assert_float_eq(value_of(job.peers[0], job.table, &step), -5);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_push_beyond_step_bytes_max_is_a_limit_that_names_it)
{
    const size_t n = 65536; /* twice that is 1.5 MiB of keys and rows */
    struct job job = job_with("sum", 60000);
    uint64_t *keys = calloc(n, sizeof(*keys));
    float *gradients = calloc(n, sizeof(*gradients));
    struct answer answer;

    for (int part = 0; part < 2; part++) {
        struct rps_header header =
                request_of(job.peers[0], RPS_OP_PUSH_GRADIENTS);
        struct rps_builder builder;

        header.step = 1;
        header.flags = part == 0 ? RPS_FLAG_MORE : 0;
        build_push(&builder, &header, job.table, n, keys, gradients, 1);
        answer =
                wait_answer(job.peers[0], send_builder(job.peers[0], &builder));
        if (part == 0) {
            ck_assert_int_eq(answer.header.status, RPS_OK);
            answer_finish(&answer);
        }
    }
    check_refused(&answer, RPS_E_LIMIT, "--step-bytes-max");
    push_one(job.peers[0], 1, job.table, 1);
    free(keys);
    free(gradients);
    job_finish(&job);
}
END_TEST

START_TEST(a_replica_that_left_is_not_waited_for)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    uint64_t chief = send_step_end(job.peers[0], 1, 0, "1", "");
    uint64_t worker = send_step_end(job.peers[1], 1, 1, "1", "\"leave\"");

    decision = wait_decision(job.peers[1], worker);
    ck_assert_uint_eq(decision.rank_count, 2);
    ck_assert_uint_eq(decision.wishes, RPS_WISH_LEAVE);
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[0], chief);
    rps_decision_finish(&decision);
    peer_close(job.peers[1]);
    job.peers[1] = NULL;
    chief = send_step_end(job.peers[0], 2, 0, "1", "");
    decision = wait_decision(job.peers[0], chief);
    ck_assert_uint_eq(decision.rank_count, 1);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(leave_of_the_chief_waits_for_the_last_member)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision;
    uint64_t chief =
            send_step_end(job.peers[0], 1, 0, "1", "\"save\",\"leave\"");
    uint64_t worker = send_step_end(job.peers[1], 1, 1, "1", "");

    decision = wait_decision(job.peers[1], worker);
    ck_assert_uint_eq(decision.rank_count, 2);
    rps_decision_finish(&decision);
    ck_assert(!is_answered(job.peers[0], chief, 20));
    worker = send_step_end(job.peers[1], 2, 1, "4", "\"leave\"");
    decision = wait_decision(job.peers[1], worker);
    ck_assert_uint_eq(decision.rank_count, 1);
    ck_assert_uint_eq(decision.ranks[0], 1);
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[0], chief);
    /* the newest decision: the chief must bring it to every PS */
    ck_assert_uint_eq(decision.step, 2);
    ck_assert_uint_eq(decision.save_step, 2);
    ck_assert(decision.loss == 4);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_step_end_that_is_sent_again_gets_the_same_decision)
{
    struct job job = job_with("sum", 60000);
    struct rps_wire_decision decision = end_step(&job, 1, "\"save\"");
    struct rps_wire_decision again;
    struct answer answer;
    uint64_t first, second;

    ck_assert_uint_eq(decision.save_step, 1);
    again = wait_decision(
            job.peers[1], send_step_end(job.peers[1], 1, 1, "9", ""));
    ck_assert(again.loss == decision.loss);
    rps_decision_finish(&again);
    rps_decision_finish(&decision);
    first = send_step_end(job.peers[0], 2, 0, "1", "");
    second = send_step_end(job.peers[0], 2, 0, "1", "");
    answer = wait_answer(job.peers[0], first);
    check_refused(&answer, RPS_E_CANCELED, "sent again");
    answer = wait_answer(
            job.peers[1], send_step_end(job.peers[1], 3, 1, "1", ""));
    check_refused(&answer, RPS_E_INVAL, "step 2 has no decision");
    answer = wait_answer(
            job.peers[1], send_step_end(job.peers[1], 2, 0, "1", ""));
    check_refused(&answer, RPS_E_INVAL, "connection of rank 1");
    decision = wait_decision(
            job.peers[1], send_step_end(job.peers[1], 2, 1, "1", ""));
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[0], second);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_lost_replica_ends_the_wait_of_the_others_with_its_rank)
{
    struct job job = job_with("sum", 200);
    uint64_t chief = send_step_end(job.peers[0], 1, 0, "1", "");
    struct answer answer;

    peer_close(job.peers[1]);
    job.peers[1] = NULL;
    ck_assert(!is_answered(job.peers[0], chief, 50));
    answer = wait_answer(job.peers[0], chief);
    check_refused(&answer, RPS_E_TIMEOUT, "rank 1 (a test) has been gone");
    /* and again, at once */
    answer = wait_answer(
            job.peers[0], send_step_end(job.peers[0], 1, 0, "1", ""));
    check_refused(&answer, RPS_E_TIMEOUT, "rank 1");
    job_finish(&job);
}
END_TEST

START_TEST(a_replica_that_comes_back_in_time_is_not_lost)
{
    struct job job = job_with("sum", 500);
    uint64_t chief;
    struct rps_wire_decision decision;

    peer_close(job.peers[1]);
    job.peers[1] = peer_greet(job.service, "worker", 1, 2, "b");
    job.peers[1]->epoch = 1;
    usleep(700000); /* past the end of its time, had it not come back */
    chief = send_step_end(job.peers[0], 1, 0, "1", "");
    ck_assert(!is_answered(job.peers[0], chief, 50));
    decision = wait_decision(
            job.peers[1], send_step_end(job.peers[1], 1, 1, "1", ""));
    rps_decision_finish(&decision);
    decision = wait_decision(job.peers[0], chief);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_connected_replica_that_does_not_end_a_step_is_named)
{
    struct job job = job_with("sum", 200);
    uint64_t chief = send_step_end(job.peers[0], 1, 0, "1", "");
    struct answer answer = wait_answer(job.peers[0], chief);

    check_refused(&answer, RPS_E_TIMEOUT, "for rank 1, which did not end it");
    job_finish(&job);
}
END_TEST

START_TEST(a_chief_that_is_done_waits_for_who_still_ends_steps)
{
    struct job job = job_with("sum", 800);
    uint64_t second = send_step_end(job.peers[1], 1, 1, "1", "");
    uint64_t chief = send_step_end(job.peers[0], 1, 0, "1", "\"leave\"");
    struct rps_wire_decision decision = wait_decision(job.peers[1], second);

    rps_decision_finish(&decision);
    for (uint64_t step = 2; step < 6; step++) { /* 1.2 s in all */
        ck_assert(!is_answered(job.peers[0], chief, 300));
        decision = wait_decision(
                job.peers[1], send_step_end(job.peers[1], step, 1, "1",
                                      step == 5 ? "\"leave\"" : ""));
        rps_decision_finish(&decision);
    }
    decision = wait_decision(job.peers[0], chief);
    ck_assert_uint_eq(decision.step, 5);
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_chief_that_is_done_is_told_who_ends_no_step)
{
    struct job job = job_with("sum", 200);
    uint64_t second = send_step_end(job.peers[1], 1, 1, "1", "");
    uint64_t chief = send_step_end(job.peers[0], 1, 0, "1", "\"leave\"");
    struct rps_wire_decision decision = wait_decision(job.peers[1], second);
    struct answer answer = wait_answer(job.peers[0], chief);

    check_refused(&answer, RPS_E_TIMEOUT, "for rank 1, which did not end it");
    rps_decision_finish(&decision);
    job_finish(&job);
}
END_TEST

START_TEST(a_new_process_of_a_lost_rank_waits_for_the_next_epoch)
{
    struct job job = job_with("sum", 200);
    uint64_t chief = send_step_end(job.peers[0], 1, 0, "1", "");
    uint64_t joining;
    struct answer answer;

    peer_close(job.peers[1]);
    job.peers[1] = peer_greet(job.service, "worker", 1, 2, "c");
    joining = send_step_end(job.peers[1], 0, 1, "null", "");
    answer = wait_answer(job.peers[0], chief);
    check_refused(&answer, RPS_E_TIMEOUT, "a new process of this rank");
    ck_assert(!is_answered(job.peers[1], joining, 20));
    begin_job(job.peers[0], 2, 0, "sync", 2);
    chief = send_step_end(job.peers[0], 0, 0, "null", "");
    answer = wait_answer(job.peers[1], joining);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    ck_assert_uint_eq(answer.header.epoch, 2);
    answer_finish(&answer);
    answer = wait_answer(job.peers[0], chief);
    answer_finish(&answer);
    job_finish(&job);
}
END_TEST

START_TEST(new_processes_of_all_ranks_wait_for_the_next_epoch)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *old = peer_greet(service, "chief", 0, 1, "a");
    struct peer *new;
    uint64_t id;
    struct answer answer;

    begin_job(old, 1, 0, "sync", 1);
    join_all(&old, 1);
    peer_close(old);
    new = peer_greet(service, "chief", 0, 1, "b");
    id = send_step_end(new, 0, 0, "null", "");
    ck_assert(!is_answered(new, id, 50));
    new->epoch = 1;
    begin_job(new, 2, 0, "sync", 1);
    answer = wait_answer(new, id);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    ck_assert_uint_eq(answer.header.epoch, 2);
    answer_finish(&answer);
    peer_close(new);
    rps_service_destroy(service);
}
END_TEST

START_TEST(restore_rolls_back_who_waits_for_a_step)
{
    struct job job = job_with("sum", 60000);
    uint64_t worker = send_step_end(job.peers[1], 1, 1, "1", "");
    struct answer answer;

    push_one(job.peers[1], 1, job.table, 1);
    begin_job(job.peers[0], 2, 0, "sync", 2);
    answer = wait_answer(job.peers[1], worker);
    check_refused(&answer, RPS_E_ROLLED_BACK, "begun again");
    answer = push_answer(job.peers[1], 1, job.table, 1);
    check_refused(&answer, RPS_E_ROLLED_BACK, "epoch 1");
    job_finish(&job);
}
END_TEST

START_TEST(wishes_of_tools_reach_the_chief_and_end_with_its_step)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *tool = peer_greet(service, "none", 0, 0, "d");
    struct peer *chief;
    struct rps_header header = request_of(tool, RPS_OP_SAVE);
    struct rps_wire_decision decision;
    struct answer answer;
    char *text = NULL;

    ask(tool, &header, "{\"action\":\"wish\"}", RPS_E_NOT_FOUND, NULL);
    header = request_of(tool, RPS_OP_SHUTDOWN);
    ask(tool, &header, "{\"action\":\"wish\"}", RPS_E_NOT_FOUND, NULL);
    chief = peer_greet(service, "chief", 0, 1, "a");
    begin_job(chief, 1, 0, "sync", 1);
    join_all(&chief, 1);
    header = request_of(tool, RPS_OP_SAVE);
    ask(tool, &header, "{\"action\":\"wish\"}", RPS_OK, NULL);
    header = request_of(tool, RPS_OP_SHUTDOWN);
    ask(tool, &header, "{\"action\":\"now\"}", RPS_E_RETRY_LATER, NULL);
    header = request_of(tool, RPS_OP_SHUTDOWN);
    ask(tool, &header, "{\"action\":\"wish\"}", RPS_OK, NULL);
    header = request_of(chief, RPS_OP_PING);
    answer = wait_answer(chief, send_text(chief, &header, NULL));
    ck_assert_uint_eq(answer.header.flags & RPS_FLAG_WISH, RPS_FLAG_WISH);
    text = rps_message_text(&answer.message);
    ck_assert_str_eq(
            text, "{\"epoch\":1,\"step\":0,\"wishes\":[\"save\",\"stop\"]}");
    free(text);
    answer_finish(&answer);
    decision = wait_decision(
            chief, send_step_end(chief, 1, 0, "1", "\"save\",\"stop\""));
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE | RPS_WISH_STOP);
    ck_assert_uint_eq(decision.save_step, 1);
    rps_decision_finish(&decision);
    header = request_of(chief, RPS_OP_PING);
    answer = wait_answer(chief, send_text(chief, &header, NULL));
    ck_assert_uint_eq(answer.header.flags & RPS_FLAG_WISH, 0);
    answer_finish(&answer);
    header = request_of(chief, RPS_OP_SHUTDOWN);
    ask(chief, &header, "{}", RPS_OK, NULL);
    pthread_mutex_lock(&rps_events.lock);
    ck_assert_uint_eq(rps_events.shutdowns, 1);
    pthread_mutex_unlock(&rps_events.lock);
    peer_close(chief);
    header = request_of(tool, RPS_OP_SHUTDOWN);
    ask(tool, &header, "{\"action\":\"now\"}", RPS_OK, NULL);
    peer_close(tool);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: steps");
    TCase *tcase = tcase_create("steps");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, start_waits_for_every_replica_and_tells_the_terms);
    tcase_add_test(tcase, a_replica_that_never_came_is_named_every_10_s);
    tcase_add_test(tcase, a_step_changes_tables_with_its_decision_only);
    tcase_add_test(
            tcase, mean_divides_gradients_and_losses_by_the_counted_ranks);
    tcase_add_test(tcase, contributions_are_summed_in_rank_order);
    tcase_add_test(tcase, a_second_push_of_a_step_gets_the_kept_verdict);
    tcase_add_test(
            tcase, uncounted_and_late_contributions_are_dropped_and_counted);
    tcase_add_test(tcase, a_decision_comes_in_with_any_request);
    tcase_add_test(tcase, a_split_push_takes_effect_with_its_last_frame);
    tcase_add_test(tcase, a_split_push_that_its_decision_overtakes_is_late);
    tcase_add_test(
            tcase, a_split_push_whose_first_frame_is_refused_is_refused_whole);
    tcase_add_test(tcase, parts_of_a_push_end_with_their_connection);
    tcase_add_test(
            tcase, a_push_beyond_step_bytes_max_is_a_limit_that_names_it);
    tcase_add_test(tcase, a_replica_that_left_is_not_waited_for);
    tcase_add_test(tcase, leave_of_the_chief_waits_for_the_last_member);
    tcase_add_test(tcase, a_step_end_that_is_sent_again_gets_the_same_decision);
    tcase_add_test(
            tcase, a_lost_replica_ends_the_wait_of_the_others_with_its_rank);
    tcase_add_test(tcase, a_replica_that_comes_back_in_time_is_not_lost);
    tcase_add_test(
            tcase, a_connected_replica_that_does_not_end_a_step_is_named);
    tcase_add_test(tcase, a_chief_that_is_done_waits_for_who_still_ends_steps);
    tcase_add_test(tcase, a_chief_that_is_done_is_told_who_ends_no_step);
    tcase_add_test(
            tcase, a_new_process_of_a_lost_rank_waits_for_the_next_epoch);
    tcase_add_test(tcase, new_processes_of_all_ranks_wait_for_the_next_epoch);
    tcase_add_test(tcase, restore_rolls_back_who_waits_for_a_step);
    tcase_add_test(
            tcase, wishes_of_tools_reach_the_chief_and_end_with_its_step);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
