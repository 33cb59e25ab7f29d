/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of keys without a row: kept whole, and not believed. */
#include "base/hash.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/embedding/checkpoint/forge.h"
#include "tests/unit/embedding/checkpoint/prepare.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STEP         3u
#define HEADER_BYTES 128u
#define LAST_CELL    ((uint64_t)RPS_SLOT_COUNT * RPS_SKETCH_CELLS - 1)

static char folder[256];
static char step_path[300];
static struct job writer;
static struct job reader;

static void
setup(void)
{
    folder_make(folder);
    job_make(&writer, folder, 2);
    job_fill(&writer);
    job_save(&writer, STEP, 0);
    snprintf(step_path, sizeof(step_path), "%s/ckpt-000000000003", folder);
    job_make(&reader, folder, 1);
}

static void
teardown(void)
{
    job_finish(&writer);
    job_finish(&reader);
    folder_remove(folder);
}

/* Overwrite the first entry of part 0; the checksums hold. */
static void
expect_entry_refused(
        const char *name, uint64_t id, uint64_t count, const char *words)
{
    const uint64_t entry[] = {id, count};
    struct kept kept = keep_file(step_path, name);
    struct rps_error error = {""};
    rps_status status;
    char *forged = malloc(kept.n);

    memcpy(forged, kept.bytes, kept.n);
    memcpy(forged + HEADER_BYTES, entry, sizeof(entry));
    forge_file(step_path, 0, name, forged, kept.n);
    status = job_restore_part(&reader, STEP, 0, &error);
    ck_assert_msg(status == RPS_E_CORRUPT, "%s", error.text);
    ck_assert_msg(strstr(error.text, name) != NULL, "%s", error.text);
    ck_assert_msg(strstr(error.text, words) != NULL, "%s", error.text);
    ck_assert_uint_eq(rps_store_count(reader.stores[0]), 0);
    forge_file(step_path, 0, name, kept.bytes, kept.n);
    free(kept.bytes);
    free(forged);
}

static uint64_t
key_of_half(uint32_t half)
{
    uint64_t key = 1;

    while (rps_hash_slot(rps_key_hash(key, JOB_SEED)) * 2 / RPS_SLOT_COUNT !=
            half) {
        key++;
    }
    return key;
}

START_TEST(an_entry_that_no_table_can_have_is_refused_by_name)
{
    const char exact[] = "table-counted/0-of-2.admission.npy";
    const char sketch[] = "table-plain/0-of-2.admission.npy";

    expect_entry_refused(exact, key_of_half(0), 0, "count 0");
    expect_entry_refused(exact, key_of_half(0), 65536, "must be 1 to 65535");
    expect_entry_refused(exact, key_of_half(1), 1, "slot");
    expect_entry_refused(sketch, 0, 256, "must be 1 to 255");
    expect_entry_refused(sketch, LAST_CELL, 1, "slot");
    expect_entry_refused(sketch, LAST_CELL + 1, 1, "slot");
    expect_entry_refused(sketch, UINT64_MAX, 1, "slot");
    expect_entry_refused(sketch, (uint64_t)1 << 45, 1, "slot");
    job_restore(&reader, STEP);
    job_check_rows(&reader);
}
END_TEST

START_TEST(an_entry_count_that_disagrees_is_refused)
{
    json_t *part = forge_load(step_path, "part-0-of-2.json");
    json_t *table = json_object_get(json_object_get(part, "tables"), "counted");
    const json_int_t entries =
            json_integer_value(json_object_get(table, "admission"));
    struct rps_error error = {""};

    ck_assert_int_gt(entries, 1);
    json_object_set_new(table, "admission", json_integer(entries - 1));
    forge_part(step_path, 0, part);
    ck_assert_int_eq(job_restore_part(&reader, STEP, 0, &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "admission.npy"));
    /* left out: then its file is one that nobody would read */
    json_object_del(table, "admission");
    forge_part(step_path, 0, part);
    ck_assert_int_eq(
            job_restore_part(&reader, STEP, 0, &error), RPS_E_UNSUPPORTED);
    ck_assert_uint_eq(rps_store_count(reader.stores[0]), 0);
    json_decref(part);
}
END_TEST

START_TEST(a_table_without_counts_has_no_file_of_them)
{
    char path[400];

    snprintf(path, sizeof(path), "%s/table-lazy/0-of-2.admission.npy",
            step_path);
    ck_assert_int_ne(access(path, F_OK), 0);
    snprintf(path, sizeof(path), "%s/table-counted/0-of-2.admission.npy",
            step_path);
    ck_assert_int_eq(access(path, F_OK), 0);
}
END_TEST

START_TEST(counts_are_in_no_digest)
{
    const struct rps_digest digest = job_digest(&writer, "counted");

    ck_assert_uint_eq(digest.low, 0);
    ck_assert_uint_eq(digest.high, 0);
}
END_TEST

START_TEST(a_count_of_another_ps_is_not_saved)
{
    struct rps_checkpoint_id id = job_id(&writer, STEP + 1, 0);
    const struct rps_admission_count entry = {key_of_half(1), 2};
    struct rps_error error = {""};
    json_t *answer = NULL;

    ck_assert_int_eq(
            rps_table_restore_admission(
                    rps_store_find(writer.stores[0], rps_table_id("counted")),
                    1, &entry, NULL),
            RPS_OK);
    ck_assert_int_eq(
            prepare_store(&id, writer.stores[0], NULL, 0, &answer, &error),
            RPS_E_WRONG_ROUTE);
    ck_assert_ptr_nonnull(strstr(error.text, "counted"));
    ck_assert_ptr_null(answer);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint admission");
    TCase *tcase = tcase_create("admission");

    tcase_set_timeout(tcase, 400);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_entry_that_no_table_can_have_is_refused_by_name);
    tcase_add_test(tcase, an_entry_count_that_disagrees_is_refused);
    tcase_add_test(tcase, a_table_without_counts_has_no_file_of_them);
    tcase_add_test(tcase, counts_are_in_no_digest);
    tcase_add_test(tcase, a_count_of_another_ps_is_not_saved);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
