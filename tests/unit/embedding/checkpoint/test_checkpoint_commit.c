/* SPDX-License-Identifier: Apache-2.0 */
/* Two phases, several PS at once, and what stays on the disk. */
#include "base/file.h"
#include "base/text.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/embedding/checkpoint/prepare.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];
static struct job job;

static void
setup(void)
{
    folder_make(folder);
    job_make(&job, folder, 2);
}

static void
teardown(void)
{
    job_finish(&job);
    folder_remove(folder);
}

static bool
exists(const char *name)
{
    char path[700];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Names in the folder, hidden ones too. */
static size_t
entry_count(void)
{
    DIR *dir = opendir(folder);
    size_t count = 0;

    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

/* Listed steps as PS 0 of n sees them: "10 20". */
static const char *
listed(uint32_t parts, char out[256])
{
    uint64_t *steps = NULL;
    size_t count = 0;
    size_t used = 0;

    out[0] = '\0';
    ck_assert_int_eq(
            rps_checkpoint_list(folder, 0, parts, &steps, &count, NULL),
            RPS_OK);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(out + used, 256 - used, "%s%llu",
                i == 0 ? "" : " ", (unsigned long long)steps[i]);
    }
    free(steps);
    return out;
}

START_TEST(a_prepared_step_is_not_listed_before_its_commit)
{
    char *manifest = job_prepare(&job, 7);
    char text[256];

    ck_assert_str_eq(listed(2, text), "");
    ck_assert(exists(".tmp-ckpt-000000000007-1"));
    ck_assert_int_eq(job_commit(&job, 7, 0, manifest, NULL), RPS_OK);
    ck_assert_str_eq(listed(2, text), "7");
    ck_assert(!exists(".tmp-ckpt-000000000007-1"));
    free(manifest);
}
END_TEST

START_TEST(commit_twice_is_done)
{
    char *manifest = job_prepare(&job, 7);

    ck_assert_int_eq(job_commit(&job, 7, 0, manifest, NULL), RPS_OK);
    ck_assert_int_eq(job_commit(&job, 7, 0, manifest, NULL), RPS_OK);
    free(manifest);
}
END_TEST

START_TEST(commit_without_prepare_is_not_found)
{
    char *manifest = job_prepare(&job, 7);
    struct rps_checkpoint_id id = job_id(&job, 7, 0);

    rps_checkpoint_abort(&id);
    id = job_id(&job, 7, 1);
    rps_checkpoint_abort(&id);
    ck_assert_uint_eq(entry_count(), 0);
    ck_assert_int_eq(job_commit(&job, 7, 0, manifest, NULL), RPS_E_NOT_FOUND);
    free(manifest);
}
END_TEST

START_TEST(abort_leaves_the_other_ps_files)
{
    char *manifest = job_prepare(&job, 7);
    struct rps_checkpoint_id id = job_id(&job, 7, 0);

    rps_checkpoint_abort(&id);
    ck_assert(!exists(".tmp-ckpt-000000000007-1/part-0-of-2.json"));
    ck_assert(exists(".tmp-ckpt-000000000007-1/part-1-of-2.json"));
    free(manifest);
}
END_TEST

START_TEST(another_manifest_of_the_same_epoch_is_a_mismatch)
{
    struct rps_error error = {""};
    char *manifest;

    job_save(&job, 7, 0);
    job_fill(&job);
    manifest = job_prepare(&job, 7);
    ck_assert_int_eq(job_commit(&job, 7, 0, manifest, &error), RPS_E_MISMATCH);
    ck_assert_ptr_nonnull(strstr(error.text, "ckpt-000000000007"));
    free(manifest);
    /* what was saved is what it was: no tables */
    job_finish(&job);
    job_make(&job, folder, 2);
    job_restore(&job, 7);
    ck_assert_uint_eq(rps_store_count(job.stores[0]), 0);
}
END_TEST

START_TEST(a_newer_epoch_replaces_the_step)
{
    job_save(&job, 7, 0);
    job_fill(&job);
    job.epoch = 2;
    job_save(&job, 7, 0);
    job_finish(&job);
    job_make(&job, folder, 2);
    job_restore(&job, 7);
    job_check_rows(&job);
    ck_assert(!exists(".old-ckpt-000000000007-1"));
    ck_assert(!exists(".tmp-ckpt-000000000007-2"));
}
END_TEST

START_TEST(a_manifest_of_another_save_is_refused)
{
    char *manifest = job_prepare(&job, 7);
    struct rps_error error = {""};
    struct rps_checkpoint_id id = job_id(&job, 8, 0);

    ck_assert_int_eq(
            rps_checkpoint_commit(&id, manifest, strlen(manifest), 0, &error),
            RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "step 7"));
    ck_assert_int_eq(
            rps_checkpoint_commit(&id, "{", 1, 0, &error), RPS_E_INVAL);
    free(manifest);
}
END_TEST

START_TEST(prune_keeps_the_newest_and_what_is_not_ours)
{
    char path[700];
    char text[256];

    snprintf(path, sizeof(path), "%s/ckpt-000000000001x", folder);
    ck_assert_int_eq(mkdir(path, 0750), 0);
    snprintf(path, sizeof(path), "%s/ckpt-000000000002", folder);
    ck_assert_int_eq(mkdir(path, 0750), 0); /* half: no manifest */
    snprintf(path, sizeof(path), "%s/notes.txt", folder);
    ck_assert_int_eq(rps_file_write(path, "x", 1, false, NULL), RPS_OK);
    free(job_prepare(&job, 3)); /* never committed */
    for (uint64_t step = 10; step <= 60; step += 10) {
        job_save(&job, step, 2);
    }
    ck_assert_str_eq(listed(2, text), "50 60");
    ck_assert(exists("ckpt-000000000001x"));
    ck_assert(exists("ckpt-000000000002"));
    ck_assert(exists("notes.txt"));
    ck_assert(!exists(".tmp-ckpt-000000000003-1"));
    ck_assert_uint_eq(entry_count(), 5);
}
END_TEST

START_TEST(a_step_after_a_rollback_does_not_remove_later_ones)
{
    char text[256];

    job_save(&job, 10, 0);
    job_save(&job, 20, 0);
    job_save(&job, 30, 0);
    job.epoch = 2;
    job_save(&job, 15, 1);
    ck_assert_str_eq(listed(2, text), "15 20 30");
}
END_TEST

/* 30, back to 10, 15: what to go on from is 15, not the 20 and 30 of the
 * line that was left. */
START_TEST(steps_of_a_line_that_was_left_are_marked)
{
    struct rps_checkpoint_survey survey;

    job_save(&job, 10, 0);
    job_save(&job, 20, 0);
    job_save(&job, 30, 0);
    job.epoch = 2;
    job_save(&job, 15, 0);
    job_save(&job, 35, 0);
    ck_assert_int_eq(
            rps_checkpoint_survey(folder, 0, 2, &survey, NULL), RPS_OK);
    ck_assert_uint_eq(survey.count, 5);
    ck_assert_uint_eq(survey.epoch_max, 2);
    for (size_t i = 0; i < survey.count; i++) {
        const uint64_t step = survey.complete[i].step;
        ck_assert_int_eq(
                survey.complete[i].abandoned, step == 20 || step == 30);
    }
    rps_checkpoint_survey_finish(&survey);
}
END_TEST

START_TEST(a_checkpoint_without_a_part_is_listed_for_nobody_else)
{
    char path[700];
    char text[256];

    job_save(&job, 10, 0);
    snprintf(path, sizeof(path), "%s/ckpt-000000000010/part-1-of-2.json",
            folder);
    unlink(path);
    ck_assert_str_eq(listed(1, text), "");
    ck_assert_str_eq(listed(3, text), "");
    ck_assert_str_eq(listed(2, text), "10"); /* its own disk, perhaps */
    snprintf(path, sizeof(path), "%s/ckpt-000000000010/part-0-of-2.json",
            folder);
    unlink(path);
    ck_assert_str_eq(listed(2, text), "");
}
END_TEST

START_TEST(a_folder_that_is_not_there_has_no_steps)
{
    char path[300];
    uint64_t *steps = NULL;
    size_t count = 1;

    snprintf(path, sizeof(path), "%s/none", folder);
    ck_assert_int_eq(
            rps_checkpoint_list(path, 0, 1, &steps, &count, NULL), RPS_OK);
    ck_assert_uint_eq(count, 0);
}
END_TEST

struct committer {
    uint32_t part;
    const char *manifest;
    rps_status status;
    struct rps_error error;
};

static void *
commit_one(void *context)
{
    struct committer *c = context;
    struct rps_checkpoint_id id = job_id(&job, 7, c->part);

    c->status = rps_checkpoint_commit(
            &id, c->manifest, strlen(c->manifest), 2, &c->error);
    return NULL;
}

static void
commit_at_once(const char *manifest)
{
    struct committer committers[PARTS_MAX];
    pthread_t threads[PARTS_MAX];

    for (uint32_t i = 0; i < job.parts; i++) {
        committers[i] = (struct committer){i, manifest, RPS_OK, {""}};
        ck_assert_int_eq(
                pthread_create(&threads[i], NULL, commit_one, &committers[i]),
                0);
    }
    for (uint32_t i = 0; i < job.parts; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; i < job.parts; i++) {
        ck_assert_msg(committers[i].status == RPS_OK, "PS %u: %s", i,
                committers[i].error.text);
    }
}

/* Epoch 1: plain; epoch 2 and on: each replaces the one before. */
START_TEST(eight_ps_commit_at_once)
{
    char text[256];
    char *manifest;

    job_finish(&job);
    job_make(&job, folder, PARTS_MAX);
    for (job.epoch = 1; job.epoch <= 5; job.epoch++) {
        manifest = job_prepare(&job, 7);
        commit_at_once(manifest);
        ck_assert_str_eq(listed(1, text), "7");
        ck_assert(!exists(".tmp-ckpt-000000000007-2"));
        free(manifest);
    }
}
END_TEST

START_TEST(a_full_disk_is_an_io_error_with_the_path)
{
    const struct rlimit limit = {200000, RLIM_INFINITY};
    struct rps_checkpoint_id id = job_id(&job, 8, 0);
    struct rps_error error = {""};
    json_t *answer = NULL;

    job_save(&job, 7, 0);
    job_fill(&job);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(
            prepare_store(&id, job.stores[0], NULL, 0, &answer, &error),
            RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, folder));
    ck_assert_ptr_nonnull(strstr(error.text, ".npy"));
    /* the room is given back, and what was saved is there */
    ck_assert(!exists(".tmp-ckpt-000000000008-1"));
    ck_assert(exists("ckpt-000000000007/manifest.json"));
}
END_TEST

START_TEST(a_folder_that_cannot_be_made_is_an_io_error_with_the_path)
{
    struct rps_error error = {""};
    char path[300];

    snprintf(path, sizeof(path), "%s/file", folder);
    ck_assert_int_eq(rps_file_write(path, "x", 1, false, NULL), RPS_OK);
    snprintf(path, sizeof(path), "%s/file/below", folder);
    ck_assert_int_eq(rps_checkpoint_dir_check(path, &error), RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "file"));
    snprintf(path, sizeof(path), "%s/a/b", folder);
    ck_assert_int_eq(rps_checkpoint_dir_check(path, &error), RPS_OK);
    ck_assert(exists("a/b"));
    strcat(job.dir[0], "/file");
    {
        struct rps_checkpoint_id id = job_id(&job, 8, 0);
        json_t *answer = NULL;

        ck_assert_int_eq(
                prepare_store(&id, job.stores[0], NULL, 0, &answer, &error),
                RPS_E_IO);
        ck_assert_ptr_nonnull(strstr(error.text, "file"));
    }
}
END_TEST

START_TEST(a_failed_prepare_may_be_repeated)
{
    free(job_prepare(&job, 7)); /* left as it is */
    job_fill(&job);
    job_save(&job, 7, 0);
    job_finish(&job);
    job_make(&job, folder, 3);
    job_restore(&job, 7);
    job_check_rows(&job);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint commit");
    TCase *tcase = tcase_create("commit");
    TCase *large = tcase_create("large"); /* all tables, one PS at a time */

    tcase_set_timeout(tcase, 400);
    tcase_set_timeout(large, 400);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_checked_fixture(large, setup, teardown);
    tcase_add_test(tcase, a_prepared_step_is_not_listed_before_its_commit);
    tcase_add_test(tcase, commit_twice_is_done);
    tcase_add_test(tcase, commit_without_prepare_is_not_found);
    tcase_add_test(tcase, abort_leaves_the_other_ps_files);
    tcase_add_test(large, another_manifest_of_the_same_epoch_is_a_mismatch);
    tcase_add_test(large, a_newer_epoch_replaces_the_step);
    tcase_add_test(tcase, a_manifest_of_another_save_is_refused);
    tcase_add_test(tcase, prune_keeps_the_newest_and_what_is_not_ours);
    tcase_add_test(tcase, a_step_after_a_rollback_does_not_remove_later_ones);
    tcase_add_test(tcase, steps_of_a_line_that_was_left_are_marked);
    tcase_add_test(
            tcase, a_checkpoint_without_a_part_is_listed_for_nobody_else);
    tcase_add_test(tcase, a_folder_that_is_not_there_has_no_steps);
    tcase_add_test(tcase, eight_ps_commit_at_once);
    tcase_add_test(large, a_full_disk_is_an_io_error_with_the_path);
    tcase_add_test(
            tcase, a_folder_that_cannot_be_made_is_an_io_error_with_the_path);
    tcase_add_test(tcase, a_failed_prepare_may_be_repeated);
    suite_add_tcase(suite, tcase);
    suite_add_single_threaded(suite, large);
    return run_suite(suite);
}
