/* SPDX-License-Identifier: Apache-2.0 */
/* SAVE and RESTORE by way of frames. The manifest is made here from PREPARE's
 * answer, as a chief would, and the restored values are worked out by hand. */
#include "tests/unit/folder.h"
#include "tests/unit/server/fixture.h"
#include "tests/unit/server/saves.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[FOLDER_BYTES];

START_TEST(what_was_saved_comes_back_and_what_came_later_does_not)
{
    const uint64_t keys[2] = {7, UINT64_MAX};
    const float gradients[2] = {1, 2};
    struct rps_service *service;
    struct peer *peer;
    struct rps_header header;
    uint64_t id;
    float rows[2];
    char *text = NULL;
    char *words;
    json_t *stat;

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    peer = peer_greet(service, "none", 0, 0, "a");
    id = open_table(peer, "emb", 1);
    words = rps_service_unsaved(service);
    ck_assert_str_eq(words, "nothing unsaved");
    free(words);
    push(peer, 3, id, 2, keys, gradients, 1);
    words = rps_service_unsaved(service);
    ck_assert_str_eq(words, "table emb: 2 row updates since the start");
    free(words);
    save(peer, 3);
    words = rps_service_unsaved(service);
    ck_assert_str_eq(words, "nothing unsaved");
    free(words);
    push(peer, 4, id, 1, keys, gradients, 1);
    words = rps_service_unsaved(service);
    ck_assert_str_eq(words, "table emb: 1 row updates since ckpt-000000000003");
    free(words);
    stat = stat_of(peer);
    ck_assert_int_eq(json_integer_value(json_array_get(
                             json_object_get(stat, "checkpoints"), 0)),
            3);
    ck_assert(json_is_true(json_object_get(stat, "unsaved")));
    json_decref(stat);
    header = request_of(peer, RPS_OP_RESTORE);
    ask(peer, &header, "{\"epoch\":1,\"step\":3,\"mode\":\"async\"}", RPS_OK,
            &text);
    ck_assert_str_eq(text, "{\"step\":3,\"data_position\":{\"row\":640},"
                           "\"tables\":[\"emb\"]}");
    free(text);
    peer->epoch = 1;
    ck_assert_uint_eq(lookup(peer, id, 2, keys, 1, rows), 3);
    ck_assert_float_eq(rows[0], -1);
    ck_assert_float_eq(rows[1], -2);
    begin_job(peer, 2, 0, "async", 1);
    stat = stat_of(peer);
    ck_assert_uint_eq(json_array_size(json_object_get(stat, "tables")), 0);
    json_decref(stat);
    peer_close(peer);
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

START_TEST(a_restore_that_fails_keeps_what_was_there)
{
    const uint64_t key = 7;
    const float gradient[1] = {1};
    struct rps_service *service;
    struct peer *peer;
    struct rps_header header;
    struct answer answer;
    uint64_t id;
    float row[1];

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    peer = peer_greet(service, "none", 0, 0, "a");
    id = open_table(peer, "emb", 1);
    push(peer, 1, id, 1, &key, gradient, 1);
    header = request_of(peer, RPS_OP_RESTORE);
    ask(peer, &header, "{\"epoch\":1,\"step\":9}", RPS_E_NOT_FOUND, NULL);
    header = request_of(peer, RPS_OP_RESTORE);
    ask(peer, &header, "{\"epoch\":0,\"step\":0}", RPS_E_INVAL, NULL);
    header = request_of(peer, RPS_OP_RESTORE);
    answer = wait_answer(
            peer, send_text(peer, &header, "{\"epoch\":1,\"mode\":\"slow\"}"));
    check_refused(&answer, RPS_E_INVAL, "mode is \"slow\"");
    header = request_of(peer, RPS_OP_RESTORE);
    ask(peer, &header, "{\"epoch\":1,\"replicas\":0}", RPS_E_INVAL, NULL);
    lookup(peer, id, 1, &key, 1, row);
    ck_assert_float_eq(row[0], -1);
    peer_close(peer);
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

START_TEST(without_a_checkpoint_dir_a_save_is_refused_with_words)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "a");
    struct rps_header header = save_header(peer, 1);
    struct answer answer = wait_answer(
            peer, send_text(peer, &header, "{\"action\":\"prepare\"}"));

    check_refused(&answer, RPS_E_INVAL, "--checkpoint-dir");
    header = save_header(peer, 1);
    answer = wait_answer(
            peer, send_text(peer, &header, "{\"action\":\"swap\"}"));
    check_refused(&answer, RPS_E_INVAL, "action is \"swap\"");
    header = request_of(peer, RPS_OP_RESTORE);
    answer = wait_answer(
            peer, send_text(peer, &header, "{\"epoch\":1,\"step\":2}"));
    check_refused(&answer, RPS_E_NOT_FOUND, "no checkpoint_dir");
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_sync_save_wants_the_step_that_is_applied)
{
    struct rps_service *service;
    struct peer *chief;
    struct peer *tool;
    struct rps_header header;
    struct answer answer;

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    chief = peer_greet(service, "chief", 0, 1, "a");
    begin_job(chief, 1, 0, "sync", 1);
    header = save_header(chief, 1);
    answer = wait_answer(
            chief, send_text(chief, &header, "{\"action\":\"prepare\"}"));
    check_refused(&answer, RPS_E_INVAL, "has applied step 0");
    tool = peer_greet(service, "none", 0, 0, "b");
    tool->epoch = 1;
    header = save_header(chief, 0);
    ask(chief, &header, "{\"action\":\"prepare\"}", RPS_OK, NULL);
    header = save_header(tool, 0);
    ask(tool, &header, "{\"action\":\"prepare\"}", RPS_E_RETRY_LATER, NULL);
    header = save_header(chief, 0);
    ask(chief, &header, "{\"action\":\"abort\"}", RPS_OK, NULL);
    header = save_header(tool, 0);
    ask(tool, &header, "{\"action\":\"prepare\"}", RPS_OK, NULL);
    peer_close(tool);
    peer_close(chief);
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

START_TEST(verdicts_of_lanes_are_in_the_checkpoint)
{
    const uint64_t key = 7;
    const float gradient[1] = {1};
    struct rps_service *service;
    struct peer *peer;
    struct rps_header header;
    struct answer answer;
    uint64_t id;
    float row[1];

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    peer = peer_greet(service, "none", 0, 0, "a");
    id = open_table(peer, "emb", 1);
    answer = wait_answer(peer, send_push(peer, 1, 1, id, 1, &key, gradient, 1));
    answer_finish(&answer);
    save(peer, 1);
    peer_close(peer);
    rps_service_destroy(service);

    service = service_of(0, 1, dir, 60000);
    peer = peer_greet(service, "none", 0, 0, "b");
    header = request_of(peer, RPS_OP_RESTORE);
    ask(peer, &header, "{\"epoch\":2,\"step\":1}", RPS_OK, NULL);
    peer_close(peer);
    peer = peer_greet(service, "none", 0, 0, "a");
    peer->epoch = 2;
    answer = wait_answer(peer, send_push(peer, 1, 1, id, 1, &key, gradient, 1));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    lookup(peer, id, 1, &key, 1, row);
    ck_assert_float_eq(row[0], -1); /* not pushed twice */
    peer_close(peer);
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

START_TEST(nobody_ends_the_save_of_another_client)
{
    struct rps_service *service;
    struct peer *peers[2];
    struct rps_header header;
    char *prepared = NULL;
    char *manifest;

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    peers[0] = peer_greet(service, "none", 0, 0, "a");
    peers[1] = peer_greet(service, "none", 0, 0, "b");
    header = save_header(peers[0], 1);
    ask(peers[0], &header, "{\"action\":\"prepare\"}", RPS_OK, &prepared);
    header = save_header(peers[1], 1);
    ask(peers[1], &header, "{\"action\":\"abort\"}", RPS_E_RETRY_LATER, NULL);
    manifest = manifest_of(prepared, 1, 0);
    commit_save(peers[0], 1, manifest);
    free(manifest);
    free(prepared);
    /* once that is over, anybody may */
    ask(peers[1], &header, "{\"action\":\"abort\"}", RPS_OK, NULL);
    peer_close(peers[0]);
    peer_close(peers[1]);
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

START_TEST(a_save_of_a_closed_connection_is_answered_to_nobody)
{
    struct rps_service *service;
    struct rps_header header;

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    for (int i = 0; i < 20; i++) {
        struct peer *peer = peer_greet(service, "none", 0, 0, "a");

        header = save_header(peer, 1);
        send_text(peer, &header, "{\"action\":\"prepare\"}");
        peer_close(peer);
    }
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

struct pusher {
    struct rps_service *service;
    const char *client;
    uint64_t tables[2];
    atomic_bool *over;
};

/* Each push adds 1 to two keys of each table. */
static void *
pusher_main(void *context)
{
    static const uint64_t keys[2] = {1, 2};
    static const float gradients[2] = {-1, -1};
    struct pusher *pusher = context;
    struct peer *peer =
            peer_greet(pusher->service, "none", 0, 0, pusher->client);

    while (!atomic_load(pusher->over)) {
        const struct rps_header header =
                request_of(peer, RPS_OP_PUSH_GRADIENTS);
        struct rps_builder builder;
        struct answer answer;

        rps_builder_begin(&builder, &header, 4);
        for (int i = 0; i < 2; i++) {
            const struct rps_section keys_of = {.table_id = pusher->tables[i],
                    .kind = RPS_SECTION_KEYS,
                    .count = 2};
            const struct rps_section rows_of = {.table_id = pusher->tables[i],
                    .kind = RPS_SECTION_ROWS,
                    .dim = 1,
                    .count = 2,
                    .learning_rate = NAN};

            rps_builder_add(&builder, &keys_of, keys);
            rps_builder_add(&builder, &rows_of, gradients);
        }
        answer = wait_answer(peer, send_builder(peer, &builder));
        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
    }
    peer_close(peer);
    return NULL;
}

START_TEST(a_cut_beside_pushes_has_each_push_whole_or_not_at_all)
{
    static const char *const clients[2] = {"b", "c"};
    static const uint64_t keys[2] = {1, 2};
    struct rps_service *service;
    struct peer *peer;
    struct pusher pushers[2];
    pthread_t threads[2];
    atomic_bool over = false;
    uint64_t tables[2];

    folder_make(dir);
    service = service_of(0, 1, dir, 60000);
    peer = peer_greet(service, "none", 0, 0, "a");
    tables[0] = open_table(peer, "one", 1);
    tables[1] = open_table(peer, "two", 1);
    for (int i = 0; i < 2; i++) {
        pushers[i] = (struct pusher){
                service, clients[i], {tables[0], tables[1]}, &over};
        ck_assert_int_eq(
                pthread_create(&threads[i], NULL, pusher_main, &pushers[i]), 0);
    }
    for (uint64_t step = 1; step <= 5; step++) {
        save(peer, step);
    }
    atomic_store(&over, true);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    for (uint32_t step = 1; step <= 5; step++) {
        float rows[4];

        begin_job(peer, step, step, "async", 1);
        lookup(peer, tables[0], 2, keys, 1, rows);
        lookup(peer, tables[1], 2, keys, 1, rows + 2);
        for (int i = 1; i < 4; i++) {
            ck_assert_float_eq(rows[i], rows[0]);
        }
    }
    peer_close(peer);
    rps_service_destroy(service);
    folder_remove(dir);
}
END_TEST

START_TEST(stat_with_digests_reads_every_row)
{
    const uint64_t key = 7;
    const float gradient[1] = {1};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "a");
    const uint64_t id = open_table(peer, "emb", 1);
    struct rps_header header = request_of(peer, RPS_OP_STAT);
    const char *digest;
    char *text = NULL;
    json_t *stat;

    push(peer, 1, id, 1, &key, gradient, 1);
    ask(peer, &header, "{\"digests\":true}", RPS_OK, &text);
    stat = json_loads(text, 0, NULL);
    digest = json_string_value(json_object_get(
            json_array_get(json_object_get(stat, "tables"), 0), "digest"));
    ck_assert_ptr_nonnull(digest);
    ck_assert_uint_eq(strlen(digest), 32);
    ck_assert_int_eq(json_integer_value(json_object_get(
                             json_object_get(json_object_get(stat, "requests"),
                                     "PUSH_GRADIENTS"),
                             "count")),
            1);
    json_decref(stat);
    free(text);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: saving");
    TCase *tcase = tcase_create("saving");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(
            tcase, what_was_saved_comes_back_and_what_came_later_does_not);
    tcase_add_test(tcase, a_restore_that_fails_keeps_what_was_there);
    tcase_add_test(
            tcase, without_a_checkpoint_dir_a_save_is_refused_with_words);
    tcase_add_test(tcase, a_sync_save_wants_the_step_that_is_applied);
    tcase_add_test(tcase, verdicts_of_lanes_are_in_the_checkpoint);
    tcase_add_test(tcase, nobody_ends_the_save_of_another_client);
    tcase_add_test(tcase, a_save_of_a_closed_connection_is_answered_to_nobody);
    tcase_add_test(
            tcase, a_cut_beside_pushes_has_each_push_whole_or_not_at_all);
    tcase_add_test(tcase, stat_with_digests_reads_every_row);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
