/* SPDX-License-Identifier: Apache-2.0 */
/* Many sessions on many threads at once; run under tsan. Gradients are small
 * whole numbers, so that float sums are exact in any order and the expected
 * values can be worked out. */
#include "tests/unit/server/fixture.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define THREADS 4u
#define STEPS   30u
#define KEYS    16u

struct work {
    struct rps_service *service;
    uint32_t rank;
    uint64_t table;
    struct peer *peer;
    atomic_bool *over;
};

static void
fill(uint64_t *keys, float *gradients, uint32_t rank, uint64_t step)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        keys[i] = i;
        gradients[i] = (float)((rank + 1) * (i + 1) + step % 3);
    }
}

/* What all ranks pushed to key i in steps 1..last. */
static double
expected(uint32_t i, uint64_t last)
{
    double sum = 0;

    for (uint64_t step = 1; step <= last; step++) {
        for (uint32_t rank = 0; rank < THREADS; rank++) {
            sum += (rank + 1) * (i + 1) + (double)(step % 3);
        }
    }
    return -sum;
}

/* A sync lookup answers from one step, whole. */
static void
check_rows(struct peer *peer, uint64_t table)
{
    uint64_t keys[KEYS];
    float gradients[KEYS], rows[KEYS];
    uint64_t step;

    fill(keys, gradients, 0, 0);
    step = lookup(peer, table, KEYS, keys, 1, rows);
    for (uint32_t i = 0; i < KEYS; i++) {
        ck_assert_msg((double)rows[i] == expected(i, step),
                "key %" PRIu32 " at step %" PRIu64 ": %g, not %g", i, step,
                (double)rows[i], expected(i, step));
    }
}

static void *
replica_main(void *context)
{
    struct work *work = context;
    uint64_t keys[KEYS];
    float gradients[KEYS];

    for (uint64_t step = 1; step <= STEPS; step++) {
        struct rps_wire_decision decision;

        fill(keys, gradients, work->rank, step);
        push(work->peer, step, work->table, KEYS, keys, gradients, 1);
        decision = wait_decision(
                work->peer, send_step_end(work->peer, step, work->rank, "0.5",
                                    step == STEPS ? "\"leave\"" : ""));
        ck_assert_uint_eq(decision.rank_count, THREADS);
        ck_assert(decision.loss == 0.5 * THREADS);
        apply(work->peer, &decision, RPS_OK);
        rps_decision_finish(&decision);
        check_rows(work->peer, work->table);
    }
    return NULL;
}

/* Comes and goes, reads, and asks for STAT, while others train. */
static void *
onlooker_main(void *context)
{
    struct work *work = context;

    while (!atomic_load(work->over)) {
        struct peer *peer = peer_greet(work->service, "none", 0, 0, "f");
        struct rps_header header = request_of(peer, RPS_OP_STAT);

        peer->epoch = 1;
        check_rows(peer, work->table);
        ask(peer, &header, "{\"digests\":true}", RPS_OK, NULL);
        header = request_of(peer, RPS_OP_PING);
        ask(peer, &header, NULL, RPS_OK, NULL);
        header = request_of(peer, RPS_OP_STAT);
        send_text(peer, &header, "{\"digests\":true}");
        peer_close(peer); /* does not wait for the answer */
    }
    return NULL;
}

START_TEST(a_lookup_beside_sync_training_answers_from_one_step)
{
    static const char *const clients[THREADS] = {"a", "b", "c", "d"};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peers[THREADS];
    struct work work[THREADS + 1];
    pthread_t threads[THREADS + 1];
    atomic_bool over = false;
    uint64_t table;

    for (uint32_t rank = 0; rank < THREADS; rank++) {
        peers[rank] = peer_greet(service, rank == 0 ? "chief" : "worker", rank,
                THREADS, clients[rank]);
    }
    begin_job(peers[0], 1, 0, "sync", THREADS);
    table = open_table(peers[0], "emb", 1);
    join_all(peers, THREADS);
    for (uint32_t rank = 0; rank <= THREADS; rank++) {
        work[rank] = (struct work){.service = service,
                .rank = rank,
                .table = table,
                .peer = rank < THREADS ? peers[rank] : NULL,
                .over = &over};
        ck_assert_int_eq(pthread_create(&threads[rank], NULL,
                                 rank < THREADS ? replica_main : onlooker_main,
                                 &work[rank]),
                0);
    }
    for (uint32_t rank = 0; rank < THREADS; rank++) {
        pthread_join(threads[rank], NULL);
    }
    atomic_store(&over, true);
    pthread_join(threads[THREADS], NULL);
    check_rows(peers[0], table);
    for (uint32_t rank = 0; rank < THREADS; rank++) {
        peer_close(peers[rank]);
    }
    rps_service_destroy(service);
}
END_TEST

static void *
pusher_main(void *context)
{
    struct work *work = context;
    char client[8];
    struct peer *peer;
    uint64_t keys[KEYS];
    float gradients[KEYS];

    snprintf(client, sizeof(client), "%" PRIx32, work->rank + 1);
    peer = peer_greet(work->service, "none", 0, 0, client);
    for (uint64_t step = 1; step <= STEPS; step++) {
        struct answer answer;

        fill(keys, gradients, work->rank, step);
        answer = wait_answer(peer, send_push(peer, step, step, work->table,
                                           KEYS, keys, gradients, 1));
        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
        (void)open_table(peer, step % 2 == 0 ? "even" : "odd", 4);
    }
    peer_close(peer);
    return NULL;
}

START_TEST(no_push_of_async_is_lost_or_doubled)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "ff");
    const uint64_t table = open_table(peer, "emb", 1);
    struct work work[THREADS];
    pthread_t threads[THREADS];

    for (uint32_t rank = 0; rank < THREADS; rank++) {
        work[rank] =
                (struct work){.service = service, .rank = rank, .table = table};
        ck_assert_int_eq(
                pthread_create(&threads[rank], NULL, pusher_main, &work[rank]),
                0);
    }
    for (uint32_t rank = 0; rank < THREADS; rank++) {
        pthread_join(threads[rank], NULL);
    }
    check_rows(peer, table);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

static void *
joiner_main(void *context)
{
    struct work *work = context;

    while (!atomic_load(work->over)) {
        struct peer *peer = peer_greet(work->service, "worker", 1, 2, "b");
        uint64_t id = send_step_end(peer, 0, 1, "null", "");

        (void)is_answered(peer, id, 2);
        peer_close(peer); /* maybe while it is being answered */
    }
    return NULL;
}

START_TEST(sessions_may_close_while_they_are_answered)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(service, "chief", 0, 2, "a");
    atomic_bool over = false;
    struct work work = {.service = service, .over = &over};
    pthread_t thread;

    ck_assert_int_eq(pthread_create(&thread, NULL, joiner_main, &work), 0);
    for (uint32_t epoch = 1; epoch <= 50; epoch++) {
        uint64_t id;
        struct answer answer;

        begin_job(chief, epoch, 0, "sync", 2);
        id = send_step_end(chief, 0, 0, "null", "");
        answer = wait_answer(chief, id);
        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
        id = send_step_end(chief, 1, 0, "1", ""); /* ended by RESTORE */
    }
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    peer_close(chief);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: threads");
    TCase *tcase = tcase_create("threads");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_lookup_beside_sync_training_answers_from_one_step);
    tcase_add_test(tcase, no_push_of_async_is_lost_or_doubled);
    tcase_add_test(tcase, sessions_may_close_while_they_are_answered);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
