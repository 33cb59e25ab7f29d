/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "base/text.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/embedding/checkpoint/prepare.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

static void
setup(void)
{
    folder_make(folder);
}

static void
teardown(void)
{
    folder_remove(folder);
}

static const uint32_t counts[] = {1, 2, 3, 5, 8};
#define COUNTS (sizeof(counts) / sizeof(counts[0]))

static void
check_digests(const struct job *a, const struct job *b)
{
    for (size_t i = 0; i < rps_store_count(a->stores[0]); i++) {
        const char *name =
                rps_table_spec_of(rps_store_at(a->stores[0], i))->name;
        struct rps_digest left = job_digest(a, name);
        struct rps_digest right = job_digest(b, name);

        ck_assert_uint_eq(left.low, right.low);
        ck_assert_uint_eq(left.high, right.high);
    }
}

/* Each number of parts into three of the five numbers of PS, so that each
 * number of PS is given three, too; in the long form all. */
START_TEST(any_number_of_parts_restores_into_any_number_of_ps)
{
    const size_t readers = suite_is_long() ? COUNTS : 3;

    struct job writer;
    struct job reader;

    job_make(&writer, folder, counts[_i]);
    job_fill(&writer);
    job_save(&writer, 42, 0);
    for (size_t i = 0; i < readers; i++) {
        job_make(&reader, folder, counts[((size_t)_i + i) % COUNTS]);
        job_restore(&reader, 42);
        job_check_rows(&reader);
        check_digests(&writer, &reader);
        job_finish(&reader);
    }
    job_finish(&writer);
}
END_TEST

START_TEST(push_counts_are_the_parts_own_or_the_largest)
{
    struct job writer;
    struct job same;
    struct job other;
    struct rps_table_stats stats;

    job_make(&writer, folder, 2);
    job_fill(&writer);
    job_save(&writer, 1, 0);
    job_make(&same, folder, 2);
    job_restore(&same, 1);
    job_make(&other, folder, 3);
    job_restore(&other, 1);
    rps_table_stats_of(
            rps_store_find(same.stores[0], rps_table_id("emb")), &stats);
    ck_assert_uint_eq(stats.pushes, 100);
    rps_table_stats_of(
            rps_store_find(same.stores[1], rps_table_id("emb")), &stats);
    ck_assert_uint_eq(stats.pushes, 101);
    rps_table_stats_of(
            rps_store_find(other.stores[0], rps_table_id("emb")), &stats);
    ck_assert_uint_eq(stats.pushes, 101);
    job_finish(&writer);
    job_finish(&same);
    job_finish(&other);
}
END_TEST

START_TEST(own_disks_restore_the_same_number_of_ps)
{
    struct job writer;
    struct job reader;
    struct job fewer;
    char dirs[2][256];
    struct rps_error error = {""};
    uint64_t *steps = NULL;
    size_t count = 0;

    folder_make(dirs[0]);
    folder_make(dirs[1]);
    job_make(&writer, dirs[0], 2);
    memcpy(writer.dir[1], dirs[1], sizeof(dirs[1]));
    job_fill(&writer);
    job_save(&writer, 9, 0);
    job_make(&reader, dirs[0], 2);
    memcpy(reader.dir[1], dirs[1], sizeof(dirs[1]));
    ck_assert_int_eq(
            rps_checkpoint_list(dirs[1], 1, 2, &steps, &count, NULL), RPS_OK);
    ck_assert_uint_eq(count, 1);
    free(steps);
    ck_assert_int_eq(
            rps_checkpoint_list(dirs[1], 0, 1, &steps, &count, NULL), RPS_OK);
    ck_assert_uint_eq(count, 0);
    job_restore(&reader, 9);
    job_check_rows(&reader);
    job_make(&fewer, dirs[0], 1);
    ck_assert_int_eq(job_restore_part(&fewer, 9, 0, &error), RPS_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "part-1-of-2.json"));
    ck_assert_uint_eq(rps_store_count(fewer.stores[0]), 0);
    job_finish(&writer);
    job_finish(&reader);
    job_finish(&fewer);
    folder_remove(dirs[0]);
    folder_remove(dirs[1]);
}
END_TEST

START_TEST(a_store_without_tables_is_a_checkpoint)
{
    struct job writer;
    struct job reader;

    job_make(&writer, folder, 2);
    job_save(&writer, 0, 0);
    job_make(&reader, folder, 1);
    job_restore(&reader, 0);
    ck_assert_uint_eq(rps_store_count(reader.stores[0]), 0);
    job_finish(&writer);
    job_finish(&reader);
}
END_TEST

START_TEST(another_job_seed_is_refused_with_both_values)
{
    struct job writer;
    struct job reader;
    struct rps_error error = {""};

    job_make(&writer, folder, 1);
    job_fill(&writer);
    job_save(&writer, 3, 0);
    job_make(&reader, folder, 1);
    rps_store_destroy(reader.stores[0]);
    ck_assert_int_eq(rps_store_create(&reader.stores[0], 78), RPS_OK);
    ck_assert_int_eq(job_restore_part(&reader, 3, 0, &error), RPS_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "77"));
    ck_assert_ptr_nonnull(strstr(error.text, "78"));
    job_finish(&writer);
    job_finish(&reader);
}
END_TEST

START_TEST(a_row_of_another_ps_is_not_saved)
{
    struct job job;
    struct rps_checkpoint_id id;
    struct rps_error error = {""};
    json_t *answer = NULL;

    job_make(&job, folder, 1);
    job_fill(&job);
    id = job_id(&job, 1, 0);
    id.parts = 2;
    ck_assert_int_eq(
            prepare_store(&id, job.stores[0], NULL, 0, &answer, &error),
            RPS_E_WRONG_ROUTE);
    ck_assert_ptr_nonnull(strstr(error.text, "emb"));
    ck_assert_ptr_null(answer);
    job_finish(&job);
}
END_TEST

static uint64_t last_done;

static void
progress(void *context, uint64_t done, uint64_t total)
{
    uint64_t *calls = context;

    ck_assert_uint_ge(done, last_done);
    ck_assert_uint_le(done, total);
    last_done = done;
    (*calls)++;
}

START_TEST(verify_recomputes_the_digests)
{
    struct job job;
    struct rps_checkpoint_report report;
    struct rps_error error = {""};
    uint64_t calls = 0;
    rps_status status;

    job_make(&job, folder, 3);
    job_fill(&job);
    job_save(&job, 5, 0);
    job_save(&job, 6, 0);
    status = rps_checkpoint_verify(folder, progress, &calls, &report, &error);
    ck_assert_msg(status == RPS_OK, "%s", error.text);
    ck_assert_uint_eq(report.step, 6);
    ck_assert(report.matches);
    ck_assert_uint_eq(last_done, report.bytes);
    ck_assert_uint_gt(calls, 3);
    ck_assert_uint_eq(report.table_count, 11);
    for (size_t i = 0; i < report.table_count; i++) {
        struct rps_digest wanted = job_digest(&job, report.tables[i].name);

        ck_assert(report.tables[i].matches);
        ck_assert_uint_eq(report.tables[i].digest.low, wanted.low);
        ck_assert_uint_eq(report.tables[i].digest.high, wanted.high);
    }
    rps_checkpoint_report_finish(&report);
    job_finish(&job);
}
END_TEST

START_TEST(verify_of_a_folder_without_a_checkpoint_says_so)
{
    struct rps_checkpoint_report report;
    struct rps_error error = {""};

    ck_assert_int_eq(rps_checkpoint_verify(folder, NULL, NULL, &report, &error),
            RPS_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, folder));
    rps_checkpoint_report_finish(&report);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tcase = tcase_create("round trip");

    tcase_set_timeout(tcase, 400);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase,
            any_number_of_parts_restores_into_any_number_of_ps, 0, COUNTS);
    tcase_add_test(tcase, push_counts_are_the_parts_own_or_the_largest);
    tcase_add_test(tcase, own_disks_restore_the_same_number_of_ps);
    tcase_add_test(tcase, a_store_without_tables_is_a_checkpoint);
    tcase_add_test(tcase, another_job_seed_is_refused_with_both_values);
    tcase_add_test(tcase, a_row_of_another_ps_is_not_saved);
    tcase_add_test(tcase, verify_recomputes_the_digests);
    tcase_add_test(tcase, verify_of_a_folder_without_a_checkpoint_says_so);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
