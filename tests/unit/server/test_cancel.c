/* SPDX-License-Identifier: Apache-2.0 */
/* What is taken back, what came too late, and checksums in kind. */
#include "base/clock.h"
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>

static uint64_t
send_cancel(struct peer *peer, uint64_t number, const char *text)
{
    struct rps_header header = request_of(peer, RPS_OP_CANCEL);

    header.number = number;
    return send_text(peer, &header, text);
}

/* CANCEL of one request; how many waited. */
static int
cancel_one(struct peer *peer, uint64_t id)
{
    struct answer answer;
    json_t *object;
    char text[64];
    char *got;
    int canceled;

    snprintf(text, sizeof(text), "{\"requests\":[\"%llu\"]}",
            (unsigned long long)id);
    answer = wait_answer(peer, send_cancel(peer, 0, text));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    got = rps_message_text(&answer.message);
    object = json_loads(got, 0, NULL);
    canceled = (int)json_integer_value(json_object_get(object, "canceled"));
    json_decref(object);
    free(got);
    answer_finish(&answer);
    return canceled;
}

START_TEST(a_step_end_that_waits_is_answered_canceled)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peers[2] = {peer_greet(service, "chief", 0, 2, "c1"),
            peer_greet(service, "worker", 1, 2, "c2")};
    struct rps_wire_decision decision;
    struct answer answer;
    uint64_t waits;
    uint64_t other;

    begin_job(peers[0], 1, 0, "sync", 2);
    join_all(peers, 2);
    waits = send_step_end(peers[0], 1, 0, "null", "");
    ck_assert(!is_answered(peers[0], waits, 20));
    ck_assert_int_eq(cancel_one(peers[1], waits), 0); /* not its request */
    ck_assert_int_eq(cancel_one(peers[0], waits), 1);
    answer = wait_answer(peers[0], waits);
    check_refused(&answer, RPS_E_CANCELED, "took the request back");
    ck_assert_int_eq(cancel_one(peers[0], waits), 0); /* it is answered */
    /* the step stays ended: the other's end decides it */
    other = send_step_end(peers[1], 1, 1, "null", "");
    decision = wait_decision(peers[1], other);
    ck_assert_uint_eq(decision.rank_count, 2);
    rps_decision_finish(&decision);
    decision =
            wait_decision(peers[0], send_step_end(peers[0], 1, 0, "null", ""));
    ck_assert_uint_eq(decision.step, 1);
    rps_decision_finish(&decision);
    peer_close(peers[0]);
    peer_close(peers[1]);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_join_that_is_canceled_may_come_again)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peers[2] = {peer_greet(service, "chief", 0, 2, "c1"),
            peer_greet(service, "worker", 1, 2, "c2")};
    struct answer answer;
    uint64_t waits;

    begin_job(peers[0], 1, 0, "sync", 2);
    waits = send_step_end(peers[1], 0, 1, "null", "");
    ck_assert_int_eq(cancel_one(peers[1], waits), 1);
    answer = wait_answer(peers[1], waits);
    check_refused(&answer, RPS_E_CANCELED, "waits no more");
    join_all(peers, 2);
    peer_close(peers[0]);
    peer_close(peers[1]);
    rps_service_destroy(service);
}
END_TEST

/* The first may be in hand; some of those behind it still wait. */
START_TEST(tasks_that_wait_for_the_writer_are_dropped)
{
    enum {
        TASKS = 60
    };
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "c1");
    const struct rps_header stat = request_of(peer, RPS_OP_STAT);
    uint64_t ids[TASKS];
    int canceled = 0;
    int refused = 0;

    (void)open_table(peer, "emb", 2);
    for (int i = 0; i < TASKS; i++) {
        struct rps_header header = stat;

        header.request_id = ids[i] = peer->next_request++;
        (void)send_text(peer, &header, "{\"digests\":true}");
    }
    for (int i = TASKS - 1; i >= 0; i--) {
        canceled += cancel_one(peer, ids[i]);
    }
    for (int i = 0; i < TASKS; i++) {
        struct answer answer = wait_answer(peer, ids[i]);

        refused += answer.header.status == RPS_E_CANCELED;
        ck_assert(answer.header.status == RPS_OK ||
                  answer.header.status == RPS_E_CANCELED);
        answer_finish(&answer);
    }
    ck_assert_int_eq(refused, canceled);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(what_is_no_list_of_requests_is_refused)
{
    const char *const texts[] = {NULL, "{}", "[]", "{\"requests\":7}"};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "c1");
    const struct rps_header header = request_of(peer, RPS_OP_CANCEL);

    for (size_t i = 0; i < 4; i++) {
        ask(peer, &header, texts[i], RPS_E_INVAL, NULL);
    }
    ask(peer, &header, "{\"requests\":[true,\"x\",-1,\"99\"]}", RPS_OK, NULL);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* --- numbers ------------------------------------------------------------- */

static const uint64_t key = 9;
static const float gradient[2] = {1, 2};

static struct answer
push_frame(struct peer *peer, uint64_t table, uint64_t number, uint32_t flags)
{
    struct rps_header header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    struct rps_builder builder;

    header.number = number;
    header.flags = flags;
    build_push(&builder, &header, table, 1, &key, gradient, 2);
    return wait_answer(peer, send_builder(peer, &builder));
}

static void
expect_row(struct peer *peer, uint64_t table, float first)
{
    float row[2];

    lookup(peer, table, 1, &key, 2, row);
    ck_assert_float_eq(row[0], first);
}

START_TEST(a_number_is_canceled_with_nothing_changed_or_keeps_its_verdict)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "c1");
    const uint64_t table = open_table(peer, "emb", 2);
    struct answer answer = push_frame(peer, table, 1, 0);

    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    /* too late: what was done stays done, and the verdict says so */
    answer = wait_answer(peer, send_cancel(peer, 1, NULL));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    expect_row(peer, table, -1);
    /* half a push: its frames are dropped, and so is its rest */
    answer = push_frame(peer, table, 2, RPS_FLAG_MORE);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    answer = wait_answer(peer, send_cancel(peer, 2, NULL));
    check_refused(&answer, RPS_E_CANCELED, "number 2 was taken back");
    answer = push_frame(peer, table, 2, 0);
    check_refused(&answer, RPS_E_CANCELED, "verdict");
    expect_row(peer, table, -1);
    /* before it came; and the lane goes on */
    answer = wait_answer(peer, send_cancel(peer, 3, NULL));
    check_refused(&answer, RPS_E_CANCELED, "nothing was changed");
    answer = push_frame(peer, table, 4, 0);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    expect_row(peer, table, -2);
    answer = wait_answer(peer, send_cancel(peer, 9, NULL)); /* a gap */
    check_refused(&answer, RPS_E_INVAL, "the next one is 5");
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* --- deadlines ----------------------------------------------------------- */

START_TEST(past_its_deadline_a_request_does_nothing)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "c1");
    const uint64_t table = open_table(peer, "emb", 2);
    struct rps_header header;
    struct rps_builder builder;
    struct answer answer;

    peer->came_ns = rps_clock_ns() - 1000000000;
    for (int more = 1; more >= 0; more--) { /* both frames of a push */
        header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
        header.number = 1;
        header.deadline_us = more == 1 ? 0 : 900000;
        header.flags = more == 1 ? RPS_FLAG_MORE : 0;
        build_push(&builder, &header, table, 1, &key, gradient, 2);
        answer = wait_answer(peer, send_builder(peer, &builder));
        ck_assert_int_eq(
                answer.header.status, more == 1 ? RPS_OK : RPS_E_DEADLINE);
        answer_finish(&answer);
    }
    header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    header.deadline_us = 1;
    answer = wait_answer(peer, send_text(peer, &header, NULL));
    check_refused(&answer, RPS_E_DEADLINE, "nothing was done");
    header = request_of(peer, RPS_OP_EVICT);
    header.deadline_us = 1;
    ask(peer, &header, "{}", RPS_E_DEADLINE, NULL);
    header.deadline_us = 1100000000; /* not yet */
    header.request_id = peer->next_request++;
    ask(peer, &header, "{}", RPS_OK, NULL);
    peer->came_ns = 0;
    expect_row(peer, table, 0);
    answer = push_frame(peer, table, 2, 0); /* number 1 is used up */
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* --- checksums ----------------------------------------------------------- */

START_TEST(a_reply_has_a_checksum_where_its_request_had_one)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "c1");
    const uint16_t opcodes[] = {RPS_OP_PING, RPS_OP_STAT, RPS_OP_SCAN,
            RPS_OP_EVICT, RPS_OP_EMBEDDING_LOOKUP, RPS_OP_DROP};

    (void)open_table(peer, "emb", 2);
    for (size_t i = 0; i < 12; i++) {
        struct rps_header header = request_of(peer, opcodes[i / 2]);
        struct answer answer;

        header.flags = i % 2 == 0 ? RPS_FLAG_BODY_XXH3 : 0;
        answer = wait_answer(
                peer, send_text(peer, &header,
                              "{\"table\":\"emb\",\"digests\":true}"));
        ck_assert_uint_eq(
                answer.header.flags & RPS_FLAG_BODY_XXH3, header.flags);
        ck_assert_int_eq(answer.header.body_xxh3 != 0, i % 2 == 0);
        answer_finish(&answer);
    }
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: cancel");
    TCase *tcase = tcase_create("cancel");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_step_end_that_waits_is_answered_canceled);
    tcase_add_test(tcase, a_join_that_is_canceled_may_come_again);
    tcase_add_test(tcase, tasks_that_wait_for_the_writer_are_dropped);
    tcase_add_test(tcase, what_is_no_list_of_requests_is_refused);
    tcase_add_test(tcase,
            a_number_is_canceled_with_nothing_changed_or_keeps_its_verdict);
    tcase_add_test(tcase, past_its_deadline_a_request_does_nothing);
    tcase_add_test(tcase, a_reply_has_a_checksum_where_its_request_had_one);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
