/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/position.h"
#include "tests/unit/suite.h"

#include <stdlib.h>
#include <string.h>

static struct rps_position
somewhere(void)
{
    return (struct rps_position){.epoch = 2,
            .batch = 17,
            .data = "criteo:/data/\"day\" 1.tsv",
            .train_rows = 7000,
            .global_batch = 256,
            .shuffle = 1000,
            .seed = UINT64_MAX};
}

START_TEST(position_comes_back_from_its_text)
{
    struct rps_position want = somewhere(), got;
    char *text = rps_position_text(&want), *data;

    ck_assert_ptr_nonnull(text);
    ck_assert_int_eq(rps_position_read(text, &got, &data, NULL), RPS_OK);
    ck_assert_str_eq(got.data, want.data);
    ck_assert_uint_eq(got.epoch, 2);
    ck_assert_uint_eq(got.batch, 17);
    ck_assert_uint_eq(got.train_rows, 7000);
    ck_assert_uint_eq(got.global_batch, 256);
    ck_assert_uint_eq(got.shuffle, 1000);
    ck_assert_uint_eq(got.seed, UINT64_MAX);
    free(text);
    free(data);
}
END_TEST

START_TEST(texts_of_other_programs_are_refused)
{
    static const char *const texts[] = {"", "[]", "{}", "null",
            "{\"epoch\":-1,\"batch\":0,\"data\":\"x\",\"train_rows\":1,"
            "\"global_batch\":1,\"shuffle\":0,\"seed\":\"1\"}",
            "{\"epoch\":1.5,\"batch\":0,\"data\":\"x\",\"train_rows\":1,"
            "\"global_batch\":1,\"shuffle\":0,\"seed\":\"1\"}",
            "{\"epoch\":1,\"batch\":0,\"data\":7,\"train_rows\":1,"
            "\"global_batch\":1,\"shuffle\":0,\"seed\":\"1\"}"};
    struct rps_position got;
    struct rps_error error;
    char *data;

    ck_assert_int_eq(
            rps_position_read(texts[_i], &got, &data, &error), RPS_E_CORRUPT);
    ck_assert_ptr_null(data);
}
END_TEST

START_TEST(same_run_goes_on_at_the_same_batch)
{
    struct rps_position saved = somewhere(), now = somewhere();
    const char *what;

    now.epoch = 0;
    now.batch = 0;
    ck_assert(!rps_position_recount(&saved, &now, &what));
    ck_assert_uint_eq(now.epoch, 2);
    ck_assert_uint_eq(now.batch, 17);
}
END_TEST

START_TEST(end_of_an_epoch_is_the_start_of_the_next)
{
    struct rps_position saved = somewhere(), now = somewhere();
    const char *what;

    saved.batch = 7000 / 256;
    ck_assert(!rps_position_recount(&saved, &now, &what));
    ck_assert_uint_eq(now.epoch, 3);
    ck_assert_uint_eq(now.batch, 0);
}
END_TEST

START_TEST(another_batch_size_goes_on_at_the_same_row)
{
    struct rps_position saved = somewhere(), now = somewhere();
    const char *what;

    now.global_batch = 100;
    ck_assert(rps_position_recount(&saved, &now, &what));
    ck_assert_ptr_nonnull(strstr(what, "--batch-size"));
    ck_assert_uint_eq(now.epoch, 2);
    ck_assert_uint_eq(now.batch, 43); /* 17 * 256 / 100 */
}
END_TEST

START_TEST(other_data_is_named)
{
    struct rps_position saved = somewhere(), now = somewhere();
    const char *what;

    now.data = "criteo:other";
    ck_assert(rps_position_recount(&saved, &now, &what));
    ck_assert_str_eq(what, "--data");
}
END_TEST

START_TEST(hostile_counts_do_not_overflow)
{
    struct rps_position saved = somewhere(), now = somewhere();
    const char *what;

    saved.batch = INT64_MAX;
    saved.global_batch = INT64_MAX;
    saved.epoch = INT64_MAX;
    ck_assert(rps_position_recount(&saved, &now, &what));
    ck_assert_uint_eq(now.batch, 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("position");
    TCase *tcase = tcase_create("position");

    tcase_add_test(tcase, position_comes_back_from_its_text);
    tcase_add_loop_test(tcase, texts_of_other_programs_are_refused, 0, 7);
    tcase_add_test(tcase, same_run_goes_on_at_the_same_batch);
    tcase_add_test(tcase, end_of_an_epoch_is_the_start_of_the_next);
    tcase_add_test(tcase, another_batch_size_goes_on_at_the_same_row);
    tcase_add_test(tcase, other_data_is_named);
    tcase_add_test(tcase, hostile_counts_do_not_overflow);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
