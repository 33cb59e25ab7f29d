/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves beside steps: what is in them, one after the other, and what fails.
 * sgd with rate 1 on zeros: a row is minus the sum of what was applied.
 */
#include "tests/unit/client/servers.h"
#include "tests/unit/client/steps.h"
#include "tests/unit/suite.h"

#include <recps/save.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOPS 3 /* embedded, 1, 2 servers */

static struct servers servers;

static void
start_job(rps_client *chief, enum rps_mode mode, uint64_t step)
{
    rps_terms terms = steps_terms(mode, 1);
    rps_start start;

    must(rps_job_begin(chief, step, &terms, &start));
    free(start.data_position);
    must(rps_job_join(chief, &start));
    ck_assert_uint_eq(start.step, step);
    free(start.data_position);
}

static rps_decision
one_step(rps_client *client, rps_embedding_table *table, uint64_t step,
        uint32_t wishes)
{
    rps_decision decision;

    steps_push_all(table, step, 2.0f);
    must(rps_step_end(client, step, NAN, wishes, &decision));
    return decision;
}

static void
begin_save(rps_client *client, uint64_t step, uint32_t deltas_max)
{
    const rps_save_plan plan = {.step = step,
            .data_position = "{\"row\":128}",
            .keep = 9,
            .deltas_max = deltas_max};

    must(rps_save_begin(client, &plan));
}

START_TEST(a_save_is_of_the_step_at_which_it_was_begun)
{
    const enum rps_mode mode = _i < LOOPS ? RPS_MODE_SYNC : RPS_MODE_ASYNC;
    rps_client *client;
    rps_embedding_table *table;
    rps_saved saved = {0};
    uint64_t step = 2;
    int done = 0;

    if (!servers_start(&servers, (uint32_t)_i % LOOPS)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, mode, 0);
    table = steps_table(client);
    must_fail(rps_save_poll(client, &done, NULL), RPS_E_NOT_FOUND, "no save");
    (void)one_step(client, table, 1, 0);
    begin_save(client, 1, 0);
    must_fail(rps_save(client, 1, NULL, 5), RPS_E_RETRY_LATER, "not over");
    while (done == 0) {
        (void)one_step(client, table, step++, 0);
        must(rps_save_poll(client, &done, &saved));
    }
    ck_assert_uint_eq(saved.step, 1);
    ck_assert_int_eq(saved.delta, 0);
    ck_assert_uint_eq(saved.rows, STEPS_KEYS);
    ck_assert_uint_gt(saved.bytes, STEPS_KEYS * 8);
    steps_expect_all(table, -2.0f * (float)(step - 1), -(float)(step - 1));
    start_job(client, mode, 1);
    steps_expect_all(steps_table(client), -2, -1);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(a_wish_during_a_save_is_kept_for_its_end)
{
    rps_client *client;
    rps_embedding_table *table;
    rps_decision decision;
    rps_saved saved;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = steps_table(client);
    decision = one_step(client, table, 1, RPS_WISH_SAVE);
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
    begin_save(client, 1, 0);
    decision = one_step(client, table, 2, RPS_WISH_SAVE);
    ck_assert_uint_eq(decision.wishes, 0);
    decision = one_step(client, table, 3, 0);
    ck_assert_uint_eq(decision.wishes, 0);
    must(rps_save_wait(client, 0, &saved));
    ck_assert_uint_eq(saved.step, 1);
    decision = one_step(client, table, 4, 0);
    ck_assert_uint_eq(decision.wishes, RPS_WISH_SAVE);
    ck_assert_uint_eq(decision.save_step, 4);
    decision = one_step(client, table, 5, 0);
    ck_assert_uint_eq(decision.wishes, 0);
    /* its cut is there still, though the job has gone on */
    begin_save(client, 4, 0);
    must(rps_save_wait(client, 0, NULL));
    start_job(client, RPS_MODE_SYNC, 4);
    steps_expect_all(steps_table(client), -8, -4);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(deltas_follow_a_full_one_as_many_as_are_allowed)
{
    const int kinds[] = {0, 1, 1, 0, 1};
    rps_client *client;
    rps_embedding_table *table;
    const rps_save_plan plan = {.step = 9, .deltas_max = 17};

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = steps_table(client);
    must_fail(rps_save_begin(client, &plan), RPS_E_INVAL, "at most 16");
    for (uint64_t step = 1; step <= 5; step++) {
        rps_saved saved;

        (void)one_step(client, table, step, 0);
        begin_save(client, step, 2);
        must(rps_save_wait(client, 0, &saved));
        ck_assert_int_eq(saved.delta, kinds[step - 1]);
        ck_assert_uint_eq(
                saved.parent_step, kinds[step - 1] != 0 ? step - 1 : 0);
        ck_assert_uint_eq(saved.rows, STEPS_KEYS);
    }
    start_job(client, RPS_MODE_SYNC, 3);
    steps_expect_all(steps_table(client), -6, -3);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(a_save_that_fails_leaves_room_for_the_next)
{
    char folder[80];
    char aside[96];
    rps_client *client;
    rps_embedding_table *table;
    rps_saved saved;
    FILE *file;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = steps_table(client);
    (void)one_step(client, table, 1, 0);
    snprintf(folder, sizeof(folder), "%s", servers.dir);
    snprintf(aside, sizeof(aside), "%s-aside", folder);
    ck_assert_int_eq(rename(folder, aside), 0);
    file = fopen(folder, "w"); /* a file where the folder was */
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fclose(file), 0);
    begin_save(client, 1, 0);
    (void)one_step(client, table, 2, 0); /* it is no matter of the steps */
    must_fail(rps_save_wait(client, 0, &saved), RPS_E_IO, folder);
    ck_assert_int_eq(unlink(folder), 0);
    ck_assert_int_eq(rename(aside, folder), 0);
    begin_save(client, 2, 0);
    must(rps_save_wait(client, 0, &saved));
    ck_assert_uint_eq(saved.step, 2);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

START_TEST(a_client_that_closes_or_begins_again_drops_its_save)
{
    rps_client *client;
    rps_embedding_table *table;
    int done = 0;

    if (!servers_start(&servers, (uint32_t)_i)) {
        return;
    }
    client = servers_open_chief(&servers);
    start_job(client, RPS_MODE_SYNC, 0);
    table = steps_table(client);
    (void)one_step(client, table, 1, 0);
    begin_save(client, 1, 0);
    start_job(client, RPS_MODE_SYNC, 0);
    must_fail(rps_save_poll(client, &done, NULL), RPS_E_NOT_FOUND, "no save");
    table = steps_table(client);
    (void)one_step(client, table, 1, 0);
    begin_save(client, 1, 0);
    rps_client_close(client);
    servers_stop(&servers);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("client: save");
    TCase *tcase = tcase_create("save");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(
            tcase, a_save_is_of_the_step_at_which_it_was_begun, 0, 2 * LOOPS);
    tcase_add_loop_test(
            tcase, a_wish_during_a_save_is_kept_for_its_end, 0, LOOPS);
    tcase_add_loop_test(
            tcase, deltas_follow_a_full_one_as_many_as_are_allowed, 0, LOOPS);
    tcase_add_loop_test(
            tcase, a_save_that_fails_leaves_room_for_the_next, 0, LOOPS);
    tcase_add_loop_test(tcase,
            a_client_that_closes_or_begins_again_drops_its_save, 0, LOOPS);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
