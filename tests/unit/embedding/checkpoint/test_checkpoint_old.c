/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/data/checkpoint-1 was written by the first version that wrote
 * checkpoints (commit ce22ca5): 2 parts, step 42, job seed 7. Its specs lack
 * the fields that came later. README.md there says what it holds.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/embedding/checkpoint/forge.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OLD_STEP   42u
#define OLD_SEED   7u
#define OLD_DIGEST "ad0efbf34d875aa2a4dca5997580c3a5"
#define OLD_ROWS   15u

static const char old_dir[] = RPS_TEST_DATA "/checkpoint-1";

/* Of table emb, taken when it was written. */
static const char emb_digest[] = "14b0c0bbe6610f7f646c11786ad2a4f3";

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

static void
restore_old(struct job *job, uint32_t parts)
{
    job_make_seeded(job, old_dir, parts, OLD_SEED);
    job->epoch = 3;
    job_restore(job, OLD_STEP);
}

static rps_status
check_old_row(void *context, const struct rps_row_view *row)
{
    const rps_table_spec *spec = rps_table_spec_of(context);
    const float *value = row->value;
    const float base = (float)(row->key % 1000);
    const uint32_t meta =
            (uint32_t)((row->key & 0xff) << 24 | (row->key & 0xffffff));
    bool same = row->meta == meta;

    for (uint32_t j = 0; j < spec->dim; j++) {
        same = same && value[j] == base + (float)j / 4;
    }
    for (uint32_t j = 0; j < rps_spec_slot_floats(spec); j++) {
        same = same && row->slots[j] == base + 0.5f + (float)j / 4;
    }
    ck_assert_msg(same, "table %s: key %" PRIu64 " came back otherwise",
            spec->name, row->key);
    return RPS_OK;
}

static uint64_t
rows_of(const struct job *job, const char *name)
{
    uint64_t rows = 0;

    for (uint32_t i = 0; i < job->parts; i++) {
        struct rps_table *table =
                rps_store_find(job->stores[i], rps_table_id(name));
        struct rps_table_stats stats;

        ck_assert_ptr_nonnull(table);
        ck_assert_int_eq(rps_table_visit(table, check_old_row, table), RPS_OK);
        rps_table_stats_of(table, &stats);
        rows += stats.rows;
    }
    return rows;
}

START_TEST(an_old_checkpoint_verifies_with_its_digest)
{
    struct rps_checkpoint_report report;
    struct rps_error error = {""};
    char hex[RPS_DIGEST_HEX_BYTES];

    ck_assert_msg(rps_checkpoint_verify(old_dir, NULL, NULL, &report, &error) ==
                          RPS_OK,
            "%s", error.text);
    ck_assert(report.matches);
    ck_assert_str_eq(rps_digest_hex(report.digest, hex), OLD_DIGEST);
    ck_assert_uint_eq(report.step, OLD_STEP);
    ck_assert_uint_eq(report.table_count, 4);
    rps_checkpoint_report_finish(&report);
}
END_TEST

static json_t *
table_entry(json_t *manifest, const char *name)
{
    return json_object_get(json_object_get(manifest, "tables"), name);
}

static const uint32_t counts[] = {1, 2, 3};

START_TEST(an_old_checkpoint_restores_into_any_number_of_ps)
{
    struct job job;
    char hex[RPS_DIGEST_HEX_BYTES];

    restore_old(&job, counts[_i]);
    ck_assert_uint_eq(rows_of(&job, "emb"), OLD_ROWS);
    ck_assert_uint_eq(rows_of(&job, "lazy"), OLD_ROWS);
    ck_assert_uint_eq(rows_of(&job, "plain"), OLD_ROWS);
    ck_assert_uint_eq(rows_of(&job, "empty"), 0);
    ck_assert_str_eq(rps_digest_hex(job_digest(&job, "emb"), hex), emb_digest);
    job_finish(&job);
}
END_TEST

START_TEST(an_old_checkpoint_saved_again_says_the_same_of_its_tables)
{
    static const char *const names[] = {"emb", "empty", "lazy"};
    char step_path[300];
    struct job job;
    json_t *before = forge_load(old_dir, "ckpt-000000000042/manifest.json");
    json_t *after = NULL;

    restore_old(&job, 3);
    for (uint32_t i = 0; i < job.parts; i++) {
        memcpy(job.dir[i], folder, sizeof(folder));
    }
    job_save(&job, OLD_STEP, 0);
    snprintf(step_path, sizeof(step_path), "%s/ckpt-000000000042", folder);
    after = forge_load(step_path, "manifest.json");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        ck_assert(json_equal(
                table_entry(before, names[i]), table_entry(after, names[i])));
    }
    json_decref(before);
    json_decref(after);
    job_finish(&job);
}
END_TEST

static bool
owns_the_second_half(void *context, uint64_t hash)
{
    (void)context;
    return rps_hash_slot(hash) >= RPS_SLOT_COUNT / 2;
}

START_TEST(old_verdicts_and_push_counts_come_back)
{
    const struct rps_restore restore = {
            old_dir, OLD_STEP, 1, 2, owns_the_second_half, NULL};
    struct rps_lane_record *lanes = NULL;
    struct rps_table_stats stats;
    struct job job;
    json_t *manifest = NULL;
    size_t count = 0;

    job_make_seeded(&job, old_dir, 1, OLD_SEED);
    ck_assert_int_eq(rps_checkpoint_restore(&restore, job.stores[0], &manifest,
                             &lanes, &count, NULL),
            RPS_OK);
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(lanes[0].client, 17);
    ck_assert_uint_eq(lanes[0].number, 5);
    ck_assert_uint_eq(lanes[1].client, UINT64_MAX);
    ck_assert_int_eq(lanes[1].status, RPS_E_MISMATCH);
    rps_table_stats_of(
            rps_store_find(job.stores[0], rps_table_id("lazy")), &stats);
    ck_assert_uint_eq(stats.pushes, 101);
    json_decref(manifest);
    free(lanes);
    job_finish(&job);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint old");
    TCase *tcase = tcase_create("old");

    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, an_old_checkpoint_verifies_with_its_digest);
    tcase_add_loop_test(
            tcase, an_old_checkpoint_restores_into_any_number_of_ps, 0, 3);
    tcase_add_test(
            tcase, an_old_checkpoint_saved_again_says_the_same_of_its_tables);
    tcase_add_test(tcase, old_verdicts_and_push_counts_come_back);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
