/* SPDX-License-Identifier: Apache-2.0 */
/* The save in hand: whose it is, what it holds, and that it ends. */
#include "tests/unit/folder.h"
#include "tests/unit/server/fixture.h"
#include "tests/unit/server/saves.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[FOLDER_BYTES];

/* SAVE with this text, as it is. */
static void
ask_save(struct peer *peer, uint64_t step, const char *text,
        rps_status expected, char **text_out)
{
    const struct rps_header header = save_header(peer, step);

    ask(peer, &header, text, expected, text_out);
}

/* A field of STAT's "save"; free() it. */
static char *
save_field(struct peer *peer, const char *name)
{
    json_t *stat = stat_of(peer);
    char *text =
            json_dumps(json_object_get(json_object_get(stat, "save"), name),
                    JSON_ENCODE_ANY | JSON_COMPACT);

    json_decref(stat);
    return text;
}

static void
check_field(struct peer *peer, const char *name, const char *expected)
{
    char *text = save_field(peer, name);

    ck_assert_str_eq(text, expected);
    free(text);
}

/* One key of a table that begins at 0: a push of g is a step of -g. */
struct tables {
    struct rps_service *service;
    struct peer *peer;
    uint64_t id;
};

static struct tables
tables_of(struct rps_service *service)
{
    struct tables tables = {.service = service};

    tables.peer = peer_greet(service, "none", 0, 0, "a");
    tables.id = open_table(tables.peer, "emb", 1);
    return tables;
}

static void
push_one(struct tables *tables, uint64_t step, uint64_t key, float gradient)
{
    push(tables->peer, step, tables->id, 1, &key, &gradient, 1);
}

static float
value_of(struct tables *tables, uint64_t key)
{
    float row[1];

    (void)lookup(tables->peer, tables->id, 1, &key, 1, row);
    return row[0];
}

static void
restore(struct tables *tables, uint32_t epoch, uint64_t step)
{
    begin_job(tables->peer, epoch, step, "async", 1);
}

static void
finish(struct tables *tables)
{
    if (tables->peer != NULL) {
        peer_close(tables->peer);
    }
    rps_service_destroy(tables->service);
    folder_remove(dir);
}

static struct tables
begin(void)
{
    folder_make(dir);
    return tables_of(service_of(0, 1, dir, 60000));
}

START_TEST(what_comes_after_the_cut_is_not_in_the_checkpoint)
{
    struct tables tables = begin();
    char *prepared = NULL;
    char *manifest;
    char *text = NULL;

    push_one(&tables, 1, 7, 1);
    ask_save(tables.peer, 1, "{\"action\":\"cut\"}", RPS_OK, &text);
    ck_assert_ptr_nonnull(strstr(text, "\"delta_parent\":null"));
    free(text);
    check_field(tables.peer, "phase", "\"cut\"");
    push_one(&tables, 2, 7, 1); /* of a row of the cut */
    push_one(&tables, 2, 8, 1); /* and of one that came later */
    ask_save(tables.peer, 1, "{\"action\":\"prepare\"}", RPS_OK, &prepared);
    check_field(tables.peer, "phase", "\"prepared\"");
    check_field(tables.peer, "copied_rows", "1");
    manifest = manifest_of(prepared, 1, 0);
    commit_save(tables.peer, 1, manifest);
    check_field(tables.peer, "phase", "\"none\"");
    check_field(tables.peer, "saved_cut", "1");
    free(manifest);
    free(prepared);
    text = rps_service_unsaved(tables.service);
    ck_assert_str_eq(text, "table emb: 2 row updates since ckpt-000000000001");
    free(text);
    restore(&tables, 1, 1);
    ck_assert_float_eq(value_of(&tables, 7), -1);
    ck_assert_float_eq(value_of(&tables, 8), 0);
    finish(&tables);
}
END_TEST

START_TEST(a_save_of_another_client_is_refused_until_its_owner_is_gone)
{
    struct tables tables = begin();
    struct peer *other = peer_greet(tables.service, "none", 0, 0, "b");
    const char *const actions[] = {"cut", "prepare", "commit", "abort"};

    push_one(&tables, 1, 7, 1);
    ask_save(tables.peer, 1, "{\"action\":\"cut\"}", RPS_OK, NULL);
    for (size_t i = 0; i < 4; i++) {
        char text[96];

        snprintf(text, sizeof(text), "{\"action\":\"%s\",\"manifest\":\"\"}",
                actions[i]);
        ask_save(other, 1, text, RPS_E_RETRY_LATER, NULL);
    }
    check_field(other, "cuts", "1");
    peer_close(tables.peer);
    tables.peer = NULL;
    ask_save(other, 2, "{\"action\":\"cut\"}", RPS_OK, NULL);
    check_field(other, "cuts", "2");
    ask_save(other, 2, "{\"action\":\"abort\",\"why\":\"enough\"}", RPS_OK,
            NULL);
    check_field(other, "failed", "{\"step\":2,\"cut\":2,\"why\":\"enough\"}");
    check_field(other, "failures", "2");
    peer_close(other);
    finish(&tables);
}
END_TEST

START_TEST(a_cut_of_a_client_that_is_gone_is_dropped_by_time)
{
    const struct rps_service_options options = {.ps_count = 1,
            .job_id = "test",
            .checkpoint_dir = dir,
            .step_bytes_max = 1u << 20,
            .step_timeout_ms = 50,
            .background = true};
    struct rps_service *service = NULL;
    struct tables tables;
    struct peer *other;
    char path[FOLDER_BYTES + 32];
    char *text = NULL;

    folder_make(dir);
    ck_assert_int_eq(rps_service_create(&service, &options, NULL), RPS_OK);
    tables = tables_of(service);
    push_one(&tables, 1, 7, 1);
    ask_save(tables.peer, 1, "{\"action\":\"cut\"}", RPS_OK, NULL);
    ask_save(tables.peer, 1, "{\"action\":\"prepare\"}", RPS_OK, NULL);
    peer_close(tables.peer);
    tables.peer = NULL;
    other = peer_greet(service, "none", 0, 0, "b");
    for (int i = 0; i < 1000; i++) {
        free(text);
        text = save_field(other, "phase");
        if (strcmp(text, "\"none\"") == 0) {
            break;
        }
        usleep(10000);
    }
    ck_assert_str_eq(text, "\"none\"");
    free(text);
    check_field(other, "failed",
            "{\"step\":1,\"cut\":1,\"why\":\"who began it is gone\"}");
    text = rps_service_unsaved(service); /* it is unsaved again */
    ck_assert_str_eq(text, "table emb: 1 row updates since the start");
    free(text);
    snprintf(path, sizeof(path), "%s/.tmp-ckpt-000000000001-0", dir);
    for (int i = 0; i < 1000 && access(path, F_OK) == 0; i++) {
        usleep(10000);
    }
    ck_assert_int_ne(access(path, F_OK), 0);
    peer_close(other);
    finish(&tables);
}
END_TEST

START_TEST(a_restore_drops_the_save_in_hand)
{
    struct tables tables = begin();
    struct answer answer;
    struct rps_header header;

    push_one(&tables, 1, 7, 1);
    save(tables.peer, 1);
    push_one(&tables, 2, 7, 1);
    ask_save(tables.peer, 2, "{\"action\":\"cut\"}", RPS_OK, NULL);
    restore(&tables, 1, 1);
    check_field(tables.peer, "phase", "\"none\"");
    header = save_header(tables.peer, 2);
    header.epoch = 0;
    answer = wait_answer(tables.peer,
            send_text(tables.peer, &header, "{\"action\":\"prepare\"}"));
    check_refused(&answer, RPS_E_ROLLED_BACK, "epoch");
    save(tables.peer, 2); /* and the next one is as ever */
    finish(&tables);
}
END_TEST

START_TEST(tables_of_a_cut_are_not_altered_or_dropped)
{
    static const char *const drop = "{\"table\":\"emb\"}";
    static const char *const alter =
            "{\"table\":\"emb\",\"set\":{\"learning_rate\":0.5}}";
    struct tables tables = begin();
    struct rps_header header;

    push_one(&tables, 1, 7, 1);
    ask_save(tables.peer, 1, "{\"action\":\"cut\"}", RPS_OK, NULL);
    header = request_of(tables.peer, RPS_OP_DROP);
    ask(tables.peer, &header, drop, RPS_E_RETRY_LATER, NULL);
    header = request_of(tables.peer, RPS_OP_ALTER_TABLE);
    ask(tables.peer, &header, alter, RPS_E_RETRY_LATER, NULL);
    (void)open_table(tables.peer, "two", 1); /* a new one is not of it */
    ask_save(tables.peer, 1, "{\"action\":\"abort\"}", RPS_OK, NULL);
    header = request_of(tables.peer, RPS_OP_ALTER_TABLE);
    ask(tables.peer, &header, alter, RPS_OK, NULL);
    header = request_of(tables.peer, RPS_OP_DROP);
    ask(tables.peer, &header, drop, RPS_OK, NULL);
    finish(&tables);
}
END_TEST

/* The digest in the manifest of a checkpoint. */
static char *
digest_of(uint64_t step)
{
    char path[FOLDER_BYTES + 64];
    json_t *manifest;
    char *digest;

    snprintf(path, sizeof(path), "%s/ckpt-%012d/manifest.json", dir, (int)step);
    manifest = json_load_file(path, 0, NULL);
    digest = strdup(json_string_value(json_object_get(manifest, "digest")));
    json_decref(manifest);
    return digest;
}

static void
save_delta(struct tables *tables, uint64_t step, uint64_t parent_step)
{
    char name[32];
    char *digest = digest_of(parent_step);
    char *text = NULL;
    char *prepared = NULL;
    char *manifest;

    snprintf(name, sizeof(name), "ckpt-%012d", (int)parent_step);
    ask_save(tables->peer, step, "{\"action\":\"cut\"}", RPS_OK, &text);
    ck_assert_ptr_nonnull(strstr(text, name));
    ck_assert_ptr_nonnull(strstr(text, digest));
    free(text);
    ask_save(tables->peer, step, "{\"action\":\"prepare\",\"kind\":\"delta\"}",
            RPS_OK, &prepared);
    manifest = manifest_on(prepared, step, tables->peer->epoch, name, digest);
    commit_save(tables->peer, step, manifest);
    free(manifest);
    free(prepared);
    free(digest);
}

START_TEST(a_delta_stands_on_the_save_before_it)
{
    struct tables tables = begin();
    char *text = NULL;

    push_one(&tables, 1, 7, 1);
    push_one(&tables, 1, 8, 1);
    ask_save(tables.peer, 1, "{\"action\":\"prepare\",\"kind\":\"delta\"}",
            RPS_E_INVAL, NULL); /* on what? */
    save(tables.peer, 1);
    push_one(&tables, 2, 8, 1);
    save_delta(&tables, 2, 1);
    push_one(&tables, 3, 9, 1);
    save_delta(&tables, 3, 2);
    check_field(tables.peer, "copied_rows", "0");
    ask_save(tables.peer, 4, "{\"action\":\"cut\"}", RPS_OK, &text);
    ck_assert_ptr_nonnull(strstr(text, "\"chain\":2"));
    free(text);
    ask_save(tables.peer, 4, "{\"action\":\"abort\"}", RPS_OK, NULL);
    /* what an abort leaves is in the next one */
    push_one(&tables, 4, 7, 1);
    ask_save(tables.peer, 4, "{\"action\":\"prepare\"}", RPS_OK, NULL);
    ask_save(tables.peer, 4, "{\"action\":\"abort\"}", RPS_OK, NULL);
    save_delta(&tables, 4, 3);
    /* and a restored one is as good a parent */
    restore(&tables, 1, 4);
    ck_assert_float_eq(value_of(&tables, 7), -2);
    ck_assert_float_eq(value_of(&tables, 8), -2);
    ck_assert_float_eq(value_of(&tables, 9), -1);
    ask_save(tables.peer, 5, "{\"action\":\"cut\"}", RPS_OK, &text);
    ck_assert_ptr_nonnull(strstr(text, "ckpt-000000000004"));
    ck_assert_ptr_nonnull(strstr(text, "\"chain\":3"));
    free(text);
    finish(&tables);
}
END_TEST

/* A sync job of a chief alone, with one table. */
static struct tables
sync_job(void)
{
    struct tables tables = {.service = NULL};
    struct peer *peers[1];

    folder_make(dir);
    tables.service = service_of(0, 1, dir, 60000);
    tables.peer = peer_greet(tables.service, "chief", 0, 1, "a");
    begin_job(tables.peer, 1, 0, "sync", 1);
    tables.id = open_table(tables.peer, "emb", 1);
    peers[0] = tables.peer;
    join_all(peers, 1);
    return tables;
}

static void
sync_step(struct tables *tables, uint64_t step, const char *wishes)
{
    struct rps_wire_decision decision;

    push_one(tables, step, 7, 1);
    decision = wait_decision(
            tables->peer, send_step_end(tables->peer, step, 0, "1", wishes));
    apply(tables->peer, &decision, RPS_OK);
    rps_decision_finish(&decision);
}

START_TEST(a_decision_has_the_cut_of_its_step_taken)
{
    struct tables tables = sync_job();
    char *prepared = NULL;
    char *manifest;

    sync_step(&tables, 1, "\"save\"");
    check_field(tables.peer, "phase", "\"cut\"");
    sync_step(&tables, 2, ""); /* training goes on before anybody asks */
    ask_save(tables.peer, 1, "{\"action\":\"cut\"}", RPS_OK, NULL);
    check_field(tables.peer, "cuts", "1");
    sync_step(&tables, 3, "");
    ask_save(tables.peer, 1, "{\"action\":\"prepare\"}", RPS_OK, &prepared);
    sync_step(&tables, 4, "");
    manifest = manifest_of(prepared, 1, 1);
    commit_save(tables.peer, 1, manifest);
    free(manifest);
    free(prepared);
    restore(&tables, 2, 1);
    ck_assert_float_eq(value_of(&tables, 7), -1);
    finish(&tables);
}
END_TEST

START_TEST(a_cut_that_is_asked_for_now_takes_the_decisions_place)
{
    struct tables tables = sync_job();
    struct answer answer;
    struct rps_header header;

    sync_step(&tables, 1, "\"save\"");
    ask_save(tables.peer, 1, "{\"action\":\"cut\",\"now\":true}", RPS_OK, NULL);
    check_field(tables.peer, "cuts", "2");
    check_field(tables.peer, "failures", "0");
    ask_save(tables.peer, 1, "{\"action\":\"abort\"}", RPS_OK, NULL);
    sync_step(&tables, 2, "");
    header = save_header(tables.peer, 1);
    answer = wait_answer(tables.peer,
            send_text(tables.peer, &header, "{\"action\":\"cut\"}"));
    check_refused(&answer, RPS_E_INVAL, "has applied step 2");
    finish(&tables);
}
END_TEST

/* async, two replicas; the chief asks for a save at the end of step 1. */
struct barrier {
    struct rps_service *service;
    struct peer *peers[2];
};

static struct barrier
barrier_of(const char *more)
{
    struct barrier job = {.service = NULL};
    struct rps_header header;
    char text[128];

    folder_make(dir);
    job.service = service_of(0, 1, dir, 60000);
    job.peers[0] = peer_greet(job.service, "chief", 0, 2, "a");
    job.peers[1] = peer_greet(job.service, "worker", 1, 2, "b");
    header = request_of(job.peers[0], RPS_OP_RESTORE);
    snprintf(text, sizeof(text),
            "{\"epoch\":1,\"step\":0,\"mode\":\"async\",\"replicas\":2%s}",
            more);
    ask(job.peers[0], &header, text, RPS_OK, NULL);
    join_all(job.peers, 2);
    return job;
}

static void
barrier_finish(struct barrier *job)
{
    peer_close(job->peers[0]);
    peer_close(job->peers[1]);
    rps_service_destroy(job->service);
    folder_remove(dir);
}

START_TEST(replicas_at_the_barrier_go_on_when_prepare_comes)
{
    struct barrier job = barrier_of("");
    struct rps_wire_decision decision = wait_decision(
            job.peers[0], send_step_end(job.peers[0], 1, 0, "1", "\"save\""));
    uint64_t worker;
    char *text;

    ck_assert_uint_eq(decision.save_step, 2);
    rps_decision_finish(&decision);
    decision = wait_decision(
            job.peers[1], send_step_end(job.peers[1], 1, 1, "1", ""));
    rps_decision_finish(&decision);
    worker = send_step_end(job.peers[1], 2, 1, "1", "");
    decision = wait_decision(
            job.peers[0], send_step_end(job.peers[0], 2, 0, "1", ""));
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
    rps_decision_finish(&decision);
    ask_save(job.peers[0], 2, "{\"action\":\"cut\"}", RPS_OK, NULL);
    ck_assert(!is_answered(job.peers[1], worker, 20));
    ask_save(job.peers[0], 2, "{\"action\":\"prepare\"}", RPS_OK, NULL);
    decision = wait_decision(job.peers[1], worker);
    ck_assert_uint_eq(decision.save_step, 0);
    rps_decision_finish(&decision);
    text = save_field(job.peers[0], "barrier_us");
    ck_assert_int_ge(atoi(text), 20000);
    free(text);
    barrier_finish(&job);
}
END_TEST

START_TEST(a_local_cut_holds_nobody)
{
    struct barrier job = barrier_of(",\"cut\":\"local\"");
    struct rps_wire_decision decision;

    for (uint64_t step = 1; step <= 3; step++) {
        decision = wait_decision(
                job.peers[1], send_step_end(job.peers[1], step, 1, "1", ""));
        rps_decision_finish(&decision);
    }
    decision = wait_decision(
            job.peers[0], send_step_end(job.peers[0], 1, 0, "1", "\"save\""));
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
    ck_assert_uint_eq(decision.save_step, 1);
    rps_decision_finish(&decision);
    decision = wait_decision(
            job.peers[1], send_step_end(job.peers[1], 4, 1, "1", ""));
    ck_assert_uint_eq(decision.save_step, 0);
    rps_decision_finish(&decision);
    ask_save(job.peers[0], 1, "{\"action\":\"cut\"}", RPS_OK, NULL);
    barrier_finish(&job);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: cuts");
    TCase *tcase = tcase_create("cuts");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, what_comes_after_the_cut_is_not_in_the_checkpoint);
    tcase_add_test(
            tcase, a_save_of_another_client_is_refused_until_its_owner_is_gone);
    tcase_add_test(tcase, a_cut_of_a_client_that_is_gone_is_dropped_by_time);
    tcase_add_test(tcase, a_restore_drops_the_save_in_hand);
    tcase_add_test(tcase, tables_of_a_cut_are_not_altered_or_dropped);
    tcase_add_test(tcase, a_delta_stands_on_the_save_before_it);
    tcase_add_test(tcase, a_decision_has_the_cut_of_its_step_taken);
    tcase_add_test(
            tcase, a_cut_that_is_asked_for_now_takes_the_decisions_place);
    tcase_add_test(tcase, replicas_at_the_barrier_go_on_when_prepare_comes);
    tcase_add_test(tcase, a_local_cut_holds_nobody);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
