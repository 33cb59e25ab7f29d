/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of bounded:S: step t may begin when every member that has not left
 * ended step t - S - 1. */
#include "tests/unit/folder.h"
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define RANKS 4

static const uint64_t key = 3;

struct job {
    struct rps_service *service;
    struct peer *peers[RANKS];
    uint32_t ranks;
    uint64_t table;
    char dir[FOLDER_BYTES];
};

static struct job
job_of(uint32_t ranks, const char *mode)
{
    struct job job = {.ranks = ranks};
    char client[2] = "a";

    folder_make(job.dir);
    job.service = service_of(0, 1, job.dir, 60000);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        job.peers[rank] = peer_greet(job.service,
                rank == 0 ? "chief" : "worker", rank, ranks, client);
        client[0]++;
    }
    begin_job(job.peers[0], 1, 0, mode, ranks);
    job.table = open_table(job.peers[0], "emb", 1);
    join_all(job.peers, ranks);
    return job;
}

static void
job_finish(struct job *job)
{
    for (uint32_t rank = 0; rank < job->ranks; rank++) {
        peer_close(job->peers[rank]);
    }
    rps_service_destroy(job->service);
    folder_remove(job->dir);
}

static uint64_t
send_end(struct job *job, uint32_t rank, uint64_t step, const char *wishes)
{
    return send_step_end(job->peers[rank], step, rank, "1", wishes);
}

static void
end_at_once(struct job *job, uint32_t rank, uint64_t step, const char *wishes)
{
    const uint64_t id = send_end(job, rank, step, wishes);
    struct rps_wire_decision decision;

    ck_assert(is_answered(job->peers[rank], id, 0));
    decision = wait_decision(job->peers[rank], id);
    ck_assert_uint_eq(decision.step, step);
    ck_assert_uint_eq(decision.rank_count, 1);
    ck_assert_uint_eq(decision.ranks[0], rank);
    rps_decision_finish(&decision);
}

static void
finish_wait(struct job *job, uint32_t rank, uint64_t id, uint64_t save_step)
{
    struct rps_wire_decision decision = wait_decision(job->peers[rank], id);

    ck_assert_uint_eq(decision.save_step, save_step);
    rps_decision_finish(&decision);
}

static void
save_action(struct peer *peer, uint64_t step, const char *action)
{
    struct rps_header header = request_of(peer, RPS_OP_SAVE);
    char text[64];

    header.step = step;
    snprintf(text, sizeof(text), "{\"action\":\"%s\"}", action);
    ask(peer, &header, text, RPS_OK, NULL);
}

START_TEST(a_replica_is_at_most_s_steps_ahead)
{
    struct job job = job_of(2, "bounded:2");
    uint64_t third, fourth;

    end_at_once(&job, 1, 1, "");
    end_at_once(&job, 1, 2, "");
    third = send_end(&job, 1, 3, ""); /* step 4 waits for step 1 of all */
    ck_assert(!is_answered(job.peers[1], third, 20));
    end_at_once(&job, 0, 1, "");
    finish_wait(&job, 1, third, 0);
    fourth = send_end(&job, 1, 4, "");
    ck_assert(!is_answered(job.peers[1], fourth, 20));
    end_at_once(&job, 0, 2, "");
    finish_wait(&job, 1, fourth, 0);
    job_finish(&job);
}
END_TEST

START_TEST(its_rows_have_what_all_pushed_so_far)
{
    struct job job = job_of(2, "bounded:1");
    const float one = 1, two = 2;
    float row = NAN;
    uint64_t id;

    push(job.peers[1], 1, job.table, 1, &key, &one, 1);
    (void)lookup(job.peers[1], job.table, 1, &key, 1, &row);
    ck_assert_float_eq(row, -1); /* applied as it came */
    end_at_once(&job, 1, 1, "");
    push(job.peers[1], 2, job.table, 1, &key, &one, 1);
    id = send_end(&job, 1, 2, "");
    ck_assert(!is_answered(job.peers[1], id, 20));
    push(job.peers[0], 1, job.table, 1, &key, &two, 1);
    end_at_once(&job, 0, 1, "");
    finish_wait(&job, 1, id, 0);
    (void)lookup(job.peers[1], job.table, 1, &key, 1, &row);
    ck_assert_float_eq(row, -4);
    job_finish(&job);
}
END_TEST

START_TEST(who_leaves_holds_nobody)
{
    struct job job = job_of(3, "bounded:0");
    uint64_t first = send_end(&job, 1, 1, "");
    uint64_t second;

    ck_assert(!is_answered(job.peers[1], first, 20));
    second = send_end(&job, 2, 1, "");
    ck_assert(!is_answered(job.peers[2], second, 20));
    /* the chief is done: it waits for the end, and they for each other */
    (void)send_end(&job, 0, 1, "\"leave\"");
    finish_wait(&job, 1, first, 0);
    finish_wait(&job, 2, second, 0);
    end_at_once(&job, 1, 2, "\"leave\"");
    end_at_once(&job, 2, 2, "");
    end_at_once(&job, 2, 3, "");
    job_finish(&job);
}
END_TEST

START_TEST(a_save_waits_for_those_that_are_held_and_lets_them_go)
{
    struct job job = job_of(2, "bounded:1");
    uint64_t held, chief, barrier;

    end_at_once(&job, 1, 1, "");
    held = send_end(&job, 1, 2, "");
    ck_assert(!is_answered(job.peers[1], held, 20));
    end_at_once(&job, 0, 1, "\"save\""); /* at 3: the step after rank 1's */
    finish_wait(&job, 1, held, 3);
    end_at_once(&job, 0, 2, "");
    barrier = send_end(&job, 1, 3, "");
    ck_assert(!is_answered(job.peers[1], barrier, 20));
    chief = send_end(&job, 0, 3, "");
    finish_wait(&job, 0, chief, 3);
    save_action(job.peers[0], 3, "prepare");
    ck_assert(!is_answered(job.peers[1], barrier, 20));
    save_action(job.peers[0], 3, "abort");
    finish_wait(&job, 1, barrier, 0);
    job_finish(&job);
}
END_TEST

/* By a model: rank r waits while the least of all is below its own minus S. */
static void
walk(uint32_t staleness, unsigned int seed)
{
    char mode[16];
    struct job job;
    uint64_t ended[RANKS] = {0};
    uint64_t waits[RANKS] = {0}; /* request id; 0: it computes */

    snprintf(mode, sizeof(mode), "bounded:%u", staleness);
    job = job_of(RANKS, mode);
    for (unsigned int turn = 0; turn < 200; turn++) {
        const uint32_t rank = (uint32_t)rand_r(&seed) % RANKS;
        uint64_t least = UINT64_MAX;

        if (waits[rank] == 0) {
            ended[rank]++;
            waits[rank] = send_end(&job, rank, ended[rank], "");
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            least = ended[r] < least ? ended[r] : least;
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            const bool goes = least + staleness >= ended[r];

            if (waits[r] != 0) {
                ck_assert_int_eq(is_answered(job.peers[r], waits[r], 0), goes);
            }
            if (waits[r] != 0 && goes) {
                finish_wait(&job, r, waits[r], 0);
                waits[r] = 0;
            }
        }
    }
    job_finish(&job);
}

START_TEST(any_order_of_ends_keeps_the_bound_and_stops_nobody_else)
{
    walk(0, 1);
    walk(1, 2);
    walk(3, 3);
}
END_TEST

START_TEST(the_mode_is_told_by_name)
{
    struct job job = job_of(2, "bounded:7");
    json_t *stat = stat_of(job.peers[0]);
    json_t *members;

    ck_assert_str_eq(
            json_string_value(json_object_get(stat, "mode")), "bounded:7");
    json_decref(stat);
    end_at_once(&job, 1, 1, "");
    end_at_once(&job, 1, 2, "");
    stat = stat_of(job.peers[0]);
    members = json_object_get(stat, "members");
    ck_assert_int_eq(json_integer_value(json_object_get(
                             json_array_get(members, 0), "behind")),
            2);
    ck_assert_int_eq(json_integer_value(json_object_get(
                             json_array_get(members, 1), "behind")),
            0);
    json_decref(stat);
    job_finish(&job);
}
END_TEST

START_TEST(terms_that_cannot_be_are_refused)
{
    static const struct {
        const char *terms, *words;
    } cases[] = {
            {"\"mode\":\"bounded\"", "mode is \"bounded\""},
            {"\"mode\":\"bounded:1000001\"", "bounded:S is allowed"},
            {"\"mode\":\"bounded:-1\"", "bounded:S is allowed"},
            {"\"mode\":7", "mode is \"\""},
            {"\"mode\":\"async\",\"replicas\":3,\"backup_workers\":1",
                    "it goes with sync"},
            {"\"mode\":\"sync\",\"replicas\":3,\"backup_workers\":3",
                    "one at least must be counted"},
            {"\"mode\":\"sync\",\"on_lost\":\"wait\"", "stop or leave"},
            {"\"mode\":\"sync\",\"replicas\":0", "replicas is 0"},
            {"\"mode\":\"sync\",\"replicas\":65537", "at most 65536"},
            {"\"combine\":\"max\"", "sum or mean"},
    };
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(service, "chief", 0, 2, "a");

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct rps_header header = request_of(chief, RPS_OP_RESTORE);
        struct answer answer;
        char text[256];

        snprintf(text, sizeof(text), "{\"epoch\":1,\"step\":0,%s}",
                cases[i].terms);
        answer = wait_answer(chief, send_text(chief, &header, text));
        check_refused(&answer, RPS_E_INVAL, cases[i].words);
    }
    peer_close(chief);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: bounded");
    TCase *tcase = tcase_create("bounded");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_replica_is_at_most_s_steps_ahead);
    tcase_add_test(tcase, its_rows_have_what_all_pushed_so_far);
    tcase_add_test(tcase, who_leaves_holds_nobody);
    tcase_add_test(
            tcase, a_save_waits_for_those_that_are_held_and_lets_them_go);
    tcase_add_test(
            tcase, any_order_of_ends_keeps_the_bound_and_stops_nobody_else);
    tcase_add_test(tcase, the_mode_is_told_by_name);
    tcase_add_test(tcase, terms_that_cannot_be_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
