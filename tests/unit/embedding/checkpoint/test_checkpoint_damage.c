/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever happens to a file, it is named, and nothing is loaded. */
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/embedding/checkpoint/forge.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP      20u /* the damaged one; 10 is the older one */
#define FILES_MAX 512

static char folder[256];
static char step_path[300];
static struct job reader;
static char *files[FILES_MAX]; /* below step_path, those that are damaged */
static size_t file_count;

/* One table with each kind of file, one with a sketch of counts and one with
 * short values have all kinds between them; the long form takes all tables. */
static bool
is_damaged(const char *below)
{
    static const char *const some[] = {
            "", "table-emb", "table-plain", "table-half"};

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        if (strcmp(below, some[i]) == 0) {
            return true;
        }
    }
    return suite_is_long();
}

static void
add_files(const char *below)
{
    char path[700];
    DIR *dir;
    const struct dirent *entry;

    snprintf(path, sizeof(path), "%s/%s", step_path, below);
    dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.' &&
                is_damaged(entry->d_name)) {
            add_files(entry->d_name);
        } else if (entry->d_type == DT_REG) {
            ck_assert_uint_lt(file_count, FILES_MAX);
            files[file_count++] = rps_format("%s%s%s", below,
                    below[0] == '\0' ? "" : "/", entry->d_name);
        }
    }
    closedir(dir);
}

/* Each file gets two of the four kinds of damage that follow; in the long form
 * all of them. */
static bool
is_turn(size_t file, unsigned kind)
{
    return suite_is_long() || file % 2 == kind % 2;
}

static char master[256]; /* saved once; each test damages a copy */

static void
save_master(void)
{
    struct job writer;

    folder_make(master);
    job_make(&writer, master, 2);
    job_fill(&writer);
    job_save(&writer, 10, 0);
    job_save(&writer, STEP, 0);
    job_finish(&writer);
}

static void
remove_master(void)
{
    folder_remove(master);
}

static void
setup(void)
{
    char command[600];

    folder_make(folder);
    snprintf(command, sizeof(command), "cp -r '%s/.' '%s'", master, folder);
    ck_assert_int_eq(system(command), 0);
    snprintf(step_path, sizeof(step_path), "%s/ckpt-000000000020", folder);
    job_make(&reader, folder, 1); /* reads every part */
    add_files("");
}

static void
teardown(void)
{
    job_finish(&reader);
    for (size_t i = 0; i < file_count; i++) {
        free(files[i]);
    }
    folder_remove(folder);
}

/* The words name the file; the store is empty. */
static void
expect_refused(const char *name, rps_status wanted)
{
    struct rps_error error = {""};
    rps_status status = job_restore_part(&reader, STEP, 0, &error);

    ck_assert_msg(status == wanted, "%s: %s: %s", name, rps_status_str(status),
            error.text);
    ck_assert_msg(strstr(error.text, name) != NULL, "%s: %s", name, error.text);
    ck_assert_uint_eq(rps_store_count(reader.stores[0]), 0);
}

static void
expect_older_loads(void)
{
    job_restore(&reader, 10);
    job_check_rows(&reader);
    rps_store_clear(reader.stores[0]);
}

/* "x.npy" for "x.npy.xxh3": either name is a good answer there. */
static const char *
data_name(const char *name, char out[300])
{
    size_t n = strlen(name);

    snprintf(out, 300, "%s", name);
    if (n > 5 && strcmp(name + n - 5, ".xxh3") == 0) {
        out[n - 5] = '\0';
    }
    return out;
}

START_TEST(a_truncated_file_is_named)
{
    char name[300];

    for (size_t i = 0; i < file_count; i++) {
        struct kept kept;

        if (!is_turn(i, 0)) {
            continue;
        }
        kept = keep_file(step_path, files[i]);
        ck_assert_int_eq(truncate(kept.path, (off_t)kept.n - 1), 0);
        expect_refused(data_name(files[i], name), RPS_E_CORRUPT);
        put_back(&kept);
    }
    expect_older_loads();
    job_restore(&reader, STEP);
    job_check_rows(&reader);
}
END_TEST

START_TEST(a_longer_file_is_named)
{
    char name[300];

    for (size_t i = 0; i < file_count; i++) {
        struct kept kept;
        FILE *file;

        if (!is_turn(i, 1)) {
            continue;
        }
        kept = keep_file(step_path, files[i]);
        file = fopen(kept.path, "ab");
        fputc('\n', file);
        fclose(file);
        expect_refused(data_name(files[i], name), RPS_E_CORRUPT);
        put_back(&kept);
    }
}
END_TEST

START_TEST(a_flipped_byte_is_named)
{
    char name[300];

    for (size_t i = 0; i < file_count; i++) {
        struct kept kept;

        if (!is_turn(i, 2)) {
            continue;
        }
        kept = keep_file(step_path, files[i]);
        /* the first, middle or last byte, by turns; in the long form each */
        for (size_t where = suite_is_long() ? 0 : i % 3; where < 3;
                where += suite_is_long() ? 1 : 3) {
            size_t at = where == 0 ? 0 : where == 1 ? kept.n / 2 : kept.n - 1;
            kept.bytes[at] ^= 1;
            write_file(kept.path, kept.bytes, kept.n);
            kept.bytes[at] ^= 1;
            expect_refused(data_name(files[i], name), RPS_E_CORRUPT);
        }
        put_back(&kept);
    }
    expect_older_loads();
}
END_TEST

START_TEST(a_removed_file_is_named)
{
    char name[300];

    for (size_t i = 0; i < file_count; i++) {
        struct kept kept;
        bool whole_part = strcmp(files[i], "manifest.json") == 0 ||
                          strncmp(files[i], "part-", 5) == 0;

        if (!is_turn(i, 3)) {
            continue;
        }
        kept = keep_file(step_path, files[i]);
        unlink(kept.path);
        expect_refused(data_name(files[i], name),
                whole_part ? RPS_E_NOT_FOUND : RPS_E_CORRUPT);
        put_back(&kept);
    }
    expect_older_loads();
}
END_TEST

static void
damage(const char *name)
{
    struct kept kept = keep_file(step_path, name);

    kept.bytes[kept.n - 1] ^= 1;
    write_file(kept.path, kept.bytes, kept.n);
    free(kept.bytes);
}

START_TEST(every_damaged_array_is_named)
{
    static const char *const some[] = {"table-emb/0-of-2.keys.npy",
            "table-emb/1-of-2.rows.npy", "table-half/1-of-2.last.npy",
            "table-wide/0-of-2.rows.npy", "lanes-1-of-2.npy"};
    const size_t count = sizeof(some) / sizeof(some[0]);
    struct rps_error error = {""};

    for (size_t i = 0; i < count; i++) {
        damage(some[i]);
    }
    ck_assert_int_eq(job_restore_part(&reader, STEP, 0, &error), RPS_E_CORRUPT);
    for (size_t i = 0; i < count; i++) {
        const char *at = strstr(error.text, some[i]);

        ck_assert_msg(at != NULL, "%s: %s", some[i], error.text);
        ck_assert_msg(strstr(at + 1, some[i]) == NULL, "%s", error.text);
    }
    ck_assert_ptr_null(strstr(error.text, "more"));
}
END_TEST

START_TEST(of_many_damaged_arrays_eight_are_named_and_the_others_counted)
{
    size_t arrays = 0;
    char words[32];
    struct rps_error error = {""};

    for (size_t i = 0; i < file_count; i++) {
        const size_t n = strlen(files[i]);

        if (n > 4 && strcmp(files[i] + n - 4, ".npy") == 0) {
            damage(files[i]);
            arrays++;
        }
    }
    ck_assert_uint_gt(arrays, 12);
    ck_assert_int_eq(job_restore_part(&reader, STEP, 0, &error), RPS_E_CORRUPT);
    (void)snprintf(words, sizeof(words), " and %zu more", arrays - 9);
    ck_assert_msg(
            strstr(error.text, words) != NULL, "%s: %s", words, error.text);
    ck_assert_uint_eq(rps_store_count(reader.stores[0]), 0);
}
END_TEST

START_TEST(damage_in_the_third_mib_names_block_2)
{
    struct kept kept = keep_file(step_path, "table-wide/0-of-2.rows.npy");
    struct rps_error error = {""};
    struct rps_checkpoint_report report;

    ck_assert_uint_gt(kept.n, (2u << 20) + 5);
    kept.bytes[(2u << 20) + 5] ^= 0x40;
    write_file(kept.path, kept.bytes, kept.n);
    ck_assert_int_eq(job_restore_part(&reader, STEP, 0, &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "table-wide/0-of-2.rows.npy"));
    ck_assert_ptr_nonnull(strstr(error.text, "block 2"));
    ck_assert_int_eq(
            rps_checkpoint_verify(step_path, NULL, NULL, &report, &error),
            RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "block 2"));
    rps_checkpoint_report_finish(&report);
    put_back(&kept);
}
END_TEST

START_TEST(no_flipped_byte_of_the_manifest_loads)
{
    struct kept kept = keep_file(step_path, "manifest.json");

    for (size_t at = 0; at < kept.n; at += suite_is_long() ? 1 : 7) {
        rps_status status;

        kept.bytes[at] ^= 1;
        write_file(kept.path, kept.bytes, kept.n);
        kept.bytes[at] ^= 1;
        status = job_restore_part(&reader, STEP, 0, NULL);
        if (status != RPS_E_CORRUPT && status != RPS_E_UNSUPPORTED) {
            ck_abort_msg("byte %zu: %s", at, rps_status_str(status));
        }
        if (rps_store_count(reader.stores[0]) != 0) {
            ck_abort_msg("byte %zu: something was loaded", at);
        }
    }
    put_back(&kept);
}
END_TEST

START_TEST(another_format_is_unsupported_by_its_number)
{
    json_t *manifest = forge_load(step_path, "manifest.json");
    uint64_t *steps = NULL;
    size_t count = 0;

    json_object_set_new(manifest, "format", json_integer(2));
    forge_manifest(step_path, manifest);
    expect_refused("format 2", RPS_E_UNSUPPORTED);
    /* it is shown: passing it over would train from an older step */
    ck_assert_int_eq(
            rps_checkpoint_list(folder, 0, 1, &steps, &count, NULL), RPS_OK);
    ck_assert_uint_eq(count, 2);
    free(steps);
    json_decref(manifest);
}
END_TEST

START_TEST(names_that_lead_out_of_the_folder_are_refused)
{
    static const char *const names[] = {"../evil.npy", "/etc/passwd",
            "table-emb/../../evil", "table-emb/a/b", "sub/0-of-2.keys.npy",
            ".hidden", "table-emb/.hidden", ""};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        json_t *part = forge_load(step_path, "part-0-of-2.json");
        json_t *object = json_object_get(part, "files");

        json_object_set_new(object, names[i],
                json_pack(
                        "{s:i, s:s}", "bytes", 1, "xxh3", "0123456789abcdef"));
        forge_part(step_path, 0, part);
        expect_refused("part-0-of-2.json", RPS_E_CORRUPT);
        json_object_del(object, names[i]);
        forge_part(step_path, 0, part);
        json_decref(part);
    }
}
END_TEST

START_TEST(a_file_that_this_version_does_not_know_is_not_passed_over)
{
    json_t *part = forge_load(step_path, "part-0-of-2.json");

    json_object_set_new(json_object_get(part, "files"),
            "table-emb/0-of-2.erased.npy",
            json_pack("{s:i, s:s}", "bytes", 1, "xxh3", "0123456789abcdef"));
    forge_part(step_path, 0, part);
    expect_refused("part-0-of-2.json", RPS_E_UNSUPPORTED);
    json_decref(part);
}
END_TEST

START_TEST(slots_that_no_part_has_are_refused)
{
    json_t *part = forge_load(step_path, "part-0-of-2.json");

    json_object_set_new(part, "slots", json_pack("[i, i]", 0, 2046));
    forge_part(step_path, 0, part);
    expect_refused("slot 2047", RPS_E_CORRUPT);
    json_decref(part);
}
END_TEST

START_TEST(a_symbolic_link_is_refused)
{
    struct kept kept = keep_file(step_path, "table-emb/0-of-2.keys.npy");
    char target[700];

    snprintf(target, sizeof(target), "%s/elsewhere", folder);
    ck_assert_int_eq(rename(kept.path, target), 0);
    ck_assert_int_eq(symlink(target, kept.path), 0);
    expect_refused("table-emb/0-of-2.keys.npy", RPS_E_CORRUPT);
    put_back(&kept);
}
END_TEST

START_TEST(row_counts_that_disagree_are_refused)
{
    json_t *part = forge_load(step_path, "part-0-of-2.json");
    json_t *manifest = forge_load(step_path, "manifest.json");
    json_t *in_part = json_object_get(json_object_get(part, "tables"), "emb");
    json_t *in_all =
            json_object_get(json_object_get(manifest, "tables"), "emb");

    json_object_set_new(in_part, "rows",
            json_integer(
                    json_integer_value(json_object_get(in_part, "rows")) + 1));
    json_object_set_new(in_all, "rows",
            json_integer(
                    json_integer_value(json_object_get(in_all, "rows")) + 1));
    forge_manifest(step_path, manifest);
    forge_part(step_path, 0, part);
    expect_refused("table-emb/0-of-2.keys.npy", RPS_E_CORRUPT);
    json_decref(part);
    json_decref(manifest);
}
END_TEST

START_TEST(a_table_name_that_is_a_path_is_refused)
{
    json_t *manifest = forge_load(step_path, "manifest.json");
    json_t *tables = json_object_get(manifest, "tables");
    json_t *entry = json_deep_copy(json_object_get(tables, "emb"));

    json_object_set_new(
            json_object_get(entry, "spec"), "name", json_string(".."));
    json_object_set_new(tables, "..", entry);
    forge_manifest(step_path, manifest);
    expect_refused("manifest.json", RPS_E_CORRUPT);
    json_decref(manifest);
}
END_TEST

/* What a later version may write: the file is whole, this one is too old. */
START_TEST(a_spec_of_a_later_version_is_unsupported_naming_the_field)
{
    static const struct {
        const char *field;
        const char *value;
        const char *words;
    } cases[] = {
            {"optimizer", "\"lamb\"", "optimizer \"lamb\""},
            {"value_dtype", "\"float8\"", "value_dtype \"float8\""},
            {"value_dtype", "\"int8\"", "value_dtype"},
            {"warm_rows", "7", "\"warm_rows\""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        json_t *manifest = forge_load(step_path, "manifest.json");
        json_t *old = json_deep_copy(manifest);
        json_t *table =
                json_object_get(json_object_get(manifest, "tables"), "emb");

        json_object_set_new(json_object_get(table, "spec"), cases[i].field,
                json_loads(cases[i].value, JSON_DECODE_ANY, NULL));
        forge_manifest(step_path, manifest);
        expect_refused(cases[i].words, RPS_E_UNSUPPORTED);
        forge_manifest(step_path, old);
        json_decref(old);
        json_decref(manifest);
    }
}
END_TEST

/* Fields of a wrong type or size, one after the other. */
START_TEST(no_field_of_the_manifest_is_trusted)
{
    static const char *const fields[] = {"format", "kind", "step", "epoch",
            "seed", "parts", "tables", "digest", "data_position"};
    static const char *const values[] = {
            "-1", "\"x\"", "[]", "{\"a\":[]}", "1.5", "9223372036854775807"};

    for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
        for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
            json_t *manifest = NULL;
            json_t *old = NULL;
            rps_status status;

            if (strcmp(fields[f], "data_position") == 0 && v == 3) {
                continue; /* any object is the reader's own affair */
            }
            manifest = forge_load(step_path, "manifest.json");
            old = json_deep_copy(manifest);
            json_object_set_new(manifest, fields[f],
                    json_loads(values[v], JSON_DECODE_ANY, NULL));
            forge_manifest(step_path, manifest);
            status = job_restore_part(&reader, STEP, 0, NULL);
            if (status == RPS_OK) {
                ck_abort_msg("%s: %s was taken", fields[f], values[v]);
            }
            forge_manifest(step_path, old);
            json_decref(old);
            json_decref(manifest);
            rps_store_clear(reader.stores[0]);
        }
    }
}
END_TEST

/* One value of a part file replaced, at any depth, with checksums that hold. */
static void
try_values(json_t *part, json_t *object, const char *field)
{
    static const char *const values[] = {"-1", "\"x\"", "[]", "{\"a\":[]}",
            "1.5", "9223372036854775807", "null", "true"};
    json_t *old = json_incref(json_object_get(object, field));

    for (size_t v = 0; v < sizeof(values) / sizeof(values[0]); v++) {
        rps_status status;

        json_object_set_new(
                object, field, json_loads(values[v], JSON_DECODE_ANY, NULL));
        forge_part(step_path, 0, part);
        status = job_restore_part(&reader, STEP, 0, NULL);
        if (status != RPS_E_CORRUPT && status != RPS_E_UNSUPPORTED) {
            ck_abort_msg(
                    "%s: %s: %s", field, values[v], rps_status_str(status));
        }
        if (rps_store_count(reader.stores[0]) != 0) {
            ck_abort_msg("%s: %s: something was loaded", field, values[v]);
        }
    }
    json_object_set_new(object, field, old);
    forge_part(step_path, 0, part);
}

START_TEST(no_field_of_a_part_file_is_trusted)
{
    static const char *const fields[] = {"format", "part", "parts", "step",
            "epoch", "slots", "tables", "files"};
    json_t *part = forge_load(step_path, "part-0-of-2.json");
    json_t *table = json_object_get(json_object_get(part, "tables"), "emb");
    json_t *listed = json_object_get(part, "files");
    json_t *entry = json_object_get(listed, "table-emb/0-of-2.rows.npy");

    for (size_t f = 0; f < sizeof(fields) / sizeof(fields[0]); f++) {
        try_values(part, part, fields[f]);
    }
    try_values(part, table, "spec");
    try_values(part, table, "rows");
    try_values(part, table, "digest");
    try_values(part, table, "pushes");
    try_values(part, json_object_get(table, "spec"), "dimension");
    try_values(part, json_object_get(table, "spec"), "optimizer");
    try_values(part, listed, "table-emb/0-of-2.rows.npy");
    try_values(part, entry, "bytes");
    try_values(part, entry, "xxh3");
    job_restore(&reader, STEP);
    job_check_rows(&reader);
    json_decref(part);
}
END_TEST

START_TEST(a_push_count_that_would_wrap_is_refused)
{
    json_t *part = forge_load(step_path, "part-0-of-2.json");
    json_t *table = json_object_get(json_object_get(part, "tables"), "emb");

    json_object_set_new(table, "pushes", json_string("18446744073709551615"));
    forge_part(step_path, 0, part);
    expect_refused("pushes", RPS_E_CORRUPT);
    json_decref(part);
}
END_TEST

START_TEST(a_verdict_that_no_lane_can_have_is_refused)
{
    const struct rps_lane_record lanes[] = {{1, 0, RPS_OK, 0},
            {1, 0, RPS_OK, UINT64_MAX}, {1, 0, (rps_status)7, 5}};

    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        struct rps_error error = {""};
        struct job job;

        folder_remove(folder);
        folder_make(folder);
        job_make(&job, folder, 1);
        job_fill(&job);
        job_first_lane = lanes[i];
        job_save(&job, STEP, 0);
        job_finish(&job);
        job_make(&job, folder, 1);
        ck_assert_int_eq(
                job_restore_part(&job, STEP, 0, &error), RPS_E_CORRUPT);
        ck_assert_ptr_nonnull(strstr(error.text, "is no verdict"));
        job_finish(&job);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checkpoint damage");
    TCase *tcase = tcase_create("damage");

    tcase_set_timeout(tcase, 400);
    tcase_add_unchecked_fixture(tcase, save_master, remove_master);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_truncated_file_is_named);
    tcase_add_test(tcase, a_longer_file_is_named);
    tcase_add_test(tcase, a_flipped_byte_is_named);
    tcase_add_test(tcase, a_removed_file_is_named);
    tcase_add_test(tcase, every_damaged_array_is_named);
    tcase_add_test(tcase,
            of_many_damaged_arrays_eight_are_named_and_the_others_counted);
    tcase_add_test(tcase, damage_in_the_third_mib_names_block_2);
    tcase_add_test(tcase, no_flipped_byte_of_the_manifest_loads);
    tcase_add_test(tcase, another_format_is_unsupported_by_its_number);
    tcase_add_test(tcase, names_that_lead_out_of_the_folder_are_refused);
    tcase_add_test(
            tcase, a_file_that_this_version_does_not_know_is_not_passed_over);
    tcase_add_test(tcase, slots_that_no_part_has_are_refused);
    tcase_add_test(tcase, a_symbolic_link_is_refused);
    tcase_add_test(tcase, row_counts_that_disagree_are_refused);
    tcase_add_test(tcase, a_table_name_that_is_a_path_is_refused);
    tcase_add_test(
            tcase, a_spec_of_a_later_version_is_unsupported_naming_the_field);
    tcase_add_test(tcase, no_field_of_the_manifest_is_trusted);
    tcase_add_test(tcase, no_field_of_a_part_file_is_trusted);
    tcase_add_test(tcase, a_push_count_that_would_wrap_is_refused);
    tcase_add_test(tcase, a_verdict_that_no_lane_can_have_is_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
