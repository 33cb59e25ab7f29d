/* SPDX-License-Identifier: Apache-2.0 */
/* What the ranks of a job say that must be alike. */
#include "tests/unit/server/fixture.h"

#include <inttypes.h>
#include <stdio.h>

/* STEP_END(0) that says what must be alike. */
static uint64_t
send_join(struct peer *peer, uint32_t rank, const char *alike)
{
    struct rps_header header = request_of(peer, RPS_OP_STEP_END);
    char text[256];

    snprintf(text, sizeof(text),
            "{\"rank\":%" PRIu32 ",\"loss\":null,\"wishes\":[],"
            "\"alike\":%s}",
            rank, alike);
    return send_text(peer, &header, text);
}

START_TEST(a_rank_that_is_unlike_the_chief_is_named_to_all)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(service, "chief", 0, 3, "a");
    struct peer *near = peer_greet(service, "worker", 1, 3, "b");
    struct peer *other = peer_greet(service, "worker", 2, 3, "c");
    struct peer *peers[] = {chief, near, other};
    uint64_t ids[3];

    begin_job(chief, 1, 0, "sync", 3);
    ids[0] = send_join(chief, 0, "{\"x\":\"1\",\"y\":\"2\"}");
    ids[1] = send_join(near, 1, "{\"x\":\"1\",\"z\":\"5\"}");
    ck_assert(!is_answered(near, ids[1], 20));
    ids[2] = send_join(other, 2, "{\"x\":\"1\",\"y\":\"3\"}");
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct answer answer = wait_answer(peers[rank], ids[rank]);

        check_refused(&answer, RPS_E_MISMATCH, "rank 2 (");
    }
    ids[2] = send_join(other, 2, "null");
    ids[1] = send_join(near, 1, "{}");
    ids[0] = send_join(chief, 0, "{\"x\":\"1\"}");
    for (uint32_t rank = 0; rank < 3; rank++) {
        struct answer answer = wait_answer(peers[rank], ids[rank]);

        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
        peer_close(peers[rank]);
    }
    rps_service_destroy(service);
}
END_TEST

START_TEST(what_must_be_alike_is_a_few_short_strings)
{
    static const char *const bad[] = {
            "[]", "\"x\"", "{\"x\":1}", "{\"x\":{\"y\":\"z\"}}", "7"};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(service, "chief", 0, 1, "a");

    begin_job(chief, 1, 0, "sync", 1);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct answer answer = wait_answer(chief, send_join(chief, 0, bad[i]));

        check_refused(&answer, RPS_E_INVAL, "alike");
    }
    peer_close(chief);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: alike");
    TCase *tcase = tcase_create("alike");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, a_rank_that_is_unlike_the_chief_is_named_to_all);
    tcase_add_test(tcase, what_must_be_alike_is_a_few_short_strings);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
