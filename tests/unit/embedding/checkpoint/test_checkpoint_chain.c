/* SPDX-License-Identifier: Apache-2.0 */
/* Deltas and what they stand on: links, lists, pruning, pieces of a table. */
#include "base/text.h"
#include "embedding/checkpoint/chain.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/embedding/checkpoint/forge.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[256];
static struct job job;
static struct rps_ckpt_chain chain;

static void
setup(void)
{
    folder_make(folder);
    job_make(&job, folder, 2); /* no table: the links are what counts here */
}

static void
teardown(void)
{
    rps_ckpt_chain_close(&chain);
    job_finish(&job);
    folder_remove(folder);
}

static char *
path_of(uint64_t step)
{
    char *path = rps_checkpoint_path(folder, step);

    ck_assert_ptr_nonnull(path);
    return path;
}

/* A digest of its own for each step: nothing here recomputes it. */
static void
set_digest(json_t *object, uint64_t step)
{
    char hex[40];

    snprintf(hex, sizeof(hex), "%032llx", (unsigned long long)step);
    ck_assert_int_eq(
            json_object_set_new(object, "digest", json_string(hex)), 0);
}

/* What the chief's manifest of a delta says; parent 0: of a full one. */
static void
make_delta(json_t *manifest, uint64_t step, uint64_t parent)
{
    char name[40];
    json_t *object;

    set_digest(manifest, step);
    if (parent == 0) {
        return;
    }
    snprintf(name, sizeof(name), "ckpt-%012llu", (unsigned long long)parent);
    object = json_pack("{s:s}", "name", name);
    set_digest(object, parent);
    json_object_set_new(manifest, "kind", json_string("delta"));
    json_object_set_new(manifest, "parent", object);
}

/* ckpt-<step>, as a delta of parent; 0: full. */
static void
save(uint64_t step, uint64_t parent)
{
    char *path = path_of(step);
    json_t *manifest;

    job_save(&job, step, 0);
    for (uint32_t i = 0; i < 2 && parent != 0; i++) {
        char *name = rps_ckpt_part_name(i, 2);
        json_t *part = forge_load(path, name);

        json_object_set_new(part, "kind", json_string("delta"));
        forge_part(path, i, part);
        json_decref(part);
        free(name);
    }
    manifest = forge_load(path, "manifest.json");
    make_delta(manifest, step, parent);
    forge_manifest(path, manifest);
    json_decref(manifest);
    free(path);
}

static void
change(uint64_t step, const char *field, json_t *value)
{
    char *path = path_of(step);
    json_t *manifest = forge_load(path, "manifest.json");

    json_object_set_new(manifest, field, value);
    forge_manifest(path, manifest);
    json_decref(manifest);
    free(path);
}

static void
move_away(uint64_t step)
{
    char *path = path_of(step);
    char *aside = rps_format("%s/aside", folder);

    ck_assert_int_eq(rename(path, aside), 0);
    free(path);
    free(aside);
}

/* Both ways to say it fail alike, and the words have `a` and `b`. */
static void
expect_refused(uint64_t step, rps_status wanted, const char *a, const char *b)
{
    char *path = path_of(step);

    for (int way = 0; way < 2; way++) {
        struct rps_error error = {""};
        rps_status status =
                way == 0 ? rps_ckpt_chain_open(&chain, folder, step, &error)
                         : rps_ckpt_chain_open_folder(&chain, path, &error);

        ck_assert_msg(
                status == wanted, "%s: %s", rps_status_str(status), error.text);
        ck_assert_msg(strstr(error.text, a) != NULL, "%s", error.text);
        ck_assert_msg(strstr(error.text, b) != NULL, "%s", error.text);
        ck_assert_uint_eq(chain.count, 0);
    }
    free(path);
}

/* "10 20 !30": complete steps, and with ! those that cannot be used; with ~
 * what was abandoned. The words of those have `why`. */
static const char *
surveyed(const char *why, char out[512])
{
    struct rps_checkpoint_survey survey;
    size_t used = 0;

    out[0] = '\0';
    ck_assert_int_eq(
            rps_checkpoint_survey(folder, 0, 2, &survey, NULL), RPS_OK);
    for (size_t i = 0; i < survey.count; i++) {
        used += (size_t)snprintf(out + used, 512 - used, "%s%s%llu",
                used == 0 ? "" : " ", survey.complete[i].abandoned ? "~" : "",
                (unsigned long long)survey.complete[i].step);
    }
    for (size_t i = 0; i < survey.unusable_count; i++) {
        used += (size_t)snprintf(out + used, 512 - used, "%s!%s%llu",
                used == 0 ? "" : " ", survey.unusable[i].abandoned ? "~" : "",
                (unsigned long long)survey.unusable[i].step);
        ck_assert_msg(strstr(survey.unusable[i].why, why) != NULL, "%s",
                survey.unusable[i].why);
    }
    rps_checkpoint_survey_finish(&survey);
    return out;
}

START_TEST(a_chain_has_its_oldest_link_first)
{
    char *path = path_of(30);

    save(10, 0);
    save(20, 10);
    save(25, 10); /* a branch of its own */
    save(30, 20);
    for (int way = 0; way < 2; way++) {
        ck_assert_int_eq(
                way == 0 ? rps_ckpt_chain_open(&chain, folder, 30, NULL)
                         : rps_ckpt_chain_open_folder(&chain, path, NULL),
                RPS_OK);
        ck_assert_uint_eq(chain.count, 3);
        for (uint32_t i = 0; i < 3; i++) {
            ck_assert_uint_eq(chain.links[i].manifest.step, 10 * (i + 1));
            ck_assert_int_eq(chain.links[i].manifest.is_delta, i > 0);
        }
        ck_assert_int_eq(rps_ckpt_chain_read_parts(&chain, 0, 0, NULL), RPS_OK);
        ck_assert(chain.links[1].all_parts);
        rps_ckpt_chain_close(&chain);
    }
    free(path);
}
END_TEST

START_TEST(a_folder_is_found_from_within)
{
    char *path = path_of(20);
    char before[600];

    save(10, 0);
    save(20, 10);
    ck_assert_ptr_nonnull(getcwd(before, sizeof(before)));
    ck_assert_int_eq(chdir(path), 0);
    ck_assert_int_eq(rps_ckpt_chain_open_folder(&chain, ".", NULL), RPS_OK);
    ck_assert_int_eq(chdir(before), 0);
    ck_assert_uint_eq(chain.count, 2);
    free(path);
}
END_TEST

START_TEST(a_link_that_is_missing_is_named)
{
    char text[512];

    save(10, 0);
    save(20, 10);
    save(30, 20);
    move_away(10);
    expect_refused(30, RPS_E_NOT_FOUND, "ckpt-000000000010",
            "ckpt-000000000020 stands on");
    ck_assert_str_eq(surveyed("ckpt-000000000010", text), "!20 !30");
}
END_TEST

START_TEST(a_link_that_was_replaced_is_refused)
{
    char text[512];

    save(10, 0);
    save(20, 10);
    change(10, "digest", json_string("000102030405060708090a0b0c0d0e0f"));
    expect_refused(20, RPS_E_MISMATCH, "ckpt-000000000010", "was replaced");
    ck_assert_str_eq(surveyed("was replaced", text), "10 !20");
}
END_TEST

/* Both have the same digest: of a newer epoch it is another save. */
START_TEST(a_link_of_a_newer_epoch_is_refused)
{
    char text[512];

    save(10, 0);
    save(20, 10);
    change(10, "epoch", json_integer(2));
    expect_refused(20, RPS_E_MISMATCH, "ckpt-000000000010", "epoch 2");
    ck_assert_str_eq(surveyed("was replaced", text), "10 !~20");
}
END_TEST

START_TEST(a_link_of_another_job_seed_is_refused)
{
    save(10, 0);
    save(20, 10);
    change(10, "seed", json_string("5"));
    expect_refused(20, RPS_E_MISMATCH, "job seed", "5");
}
END_TEST

START_TEST(a_damaged_link_is_named)
{
    char path[700];

    save(10, 0);
    save(20, 10);
    save(30, 20);
    snprintf(path, sizeof(path), "%s/ckpt-000000000010/manifest.json.xxh3",
            folder);
    write_file(path, "12345678", 8);
    expect_refused(30, RPS_E_CORRUPT, "ckpt-000000000010/manifest.json",
            "ckpt-000000000020 stands on");
}
END_TEST

START_TEST(a_parent_of_a_later_step_is_no_parent)
{
    char text[512];

    save(10, 0);
    save(20, 10);
    save(30, 20);
    change(20, "parent",
            json_pack("{s:s, s:s}", "name", "ckpt-000000000030", "digest",
                    "00000000000000000000000000000000"));
    expect_refused(30, RPS_E_CORRUPT, "ckpt-000000000020", "parent");
    ck_assert_str_eq(surveyed("parent", text), "10 !20 !30");
    change(20, "parent", json_null());
    expect_refused(20, RPS_E_CORRUPT, "ckpt-000000000020", "parent");
    change(20, "parent",
            json_pack("{s:s, s:s}", "name", "../ckpt-000000000010", "digest",
                    "00000000000000000000000000000000"));
    expect_refused(20, RPS_E_CORRUPT, "ckpt-000000000020", "parent");
}
END_TEST

START_TEST(a_full_checkpoint_has_no_parent)
{
    save(10, 0);
    change(10, "parent", json_pack("{s:s}", "name", "ckpt-000000000005"));
    expect_refused(10, RPS_E_CORRUPT, "parent", "null");
    change(10, "kind", json_string("other"));
    expect_refused(10, RPS_E_UNSUPPORTED, "kind", "other");
}
END_TEST

START_TEST(sixteen_deltas_are_a_chain_and_one_more_is_none)
{
    char text[512];

    save(10, 0);
    for (uint64_t i = 1; i <= RPS_CKPT_DELTAS_MAX + 1; i++) {
        save(10 + i, 9 + i);
    }
    ck_assert_int_eq(rps_ckpt_chain_open(&chain, folder, 26, NULL), RPS_OK);
    ck_assert_uint_eq(chain.count, 1 + RPS_CKPT_DELTAS_MAX);
    rps_ckpt_chain_close(&chain);
    expect_refused(27, RPS_E_LIMIT, "ckpt-000000000027", "16 deltas");
    ck_assert_str_eq(surveyed("16 deltas", text),
            "10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 !27");
}
END_TEST

static rps_status
prune(uint64_t step, uint32_t keep, struct rps_error *error)
{
    char *manifest = job_prepare(&job, step);
    rps_status status = job_commit(&job, step, keep, manifest, error);

    free(manifest);
    return status;
}

START_TEST(what_a_kept_delta_stands_on_is_kept)
{
    char text[512];

    save(10, 0);
    save(20, 0);
    save(30, 20);
    save(40, 30);
    save(50, 0);
    ck_assert_int_eq(prune(60, 3, NULL), RPS_OK);
    ck_assert_str_eq(surveyed("", text), "20 30 40 50 60");
    ck_assert_int_eq(prune(70, 2, NULL), RPS_OK);
    ck_assert_str_eq(surveyed("", text), "60 70");
}
END_TEST

/* 10 to 40, back to 10, and on: 30 and 40 were made on another 20. */
START_TEST(deltas_that_were_overtaken_go)
{
    char text[512];

    save(10, 0);
    save(20, 10);
    save(30, 20);
    save(40, 30);
    job.epoch = 2;
    save(20, 10);
    ck_assert_str_eq(surveyed("", text), "10 20 !~30 !~40");
    ck_assert_int_eq(prune(35, 9, NULL), RPS_OK);
    ck_assert_str_eq(surveyed("", text), "10 20 35 !~40");
    ck_assert_int_eq(prune(50, 9, NULL), RPS_OK);
    ck_assert_str_eq(surveyed("", text), "10 20 35 50");
}
END_TEST

/* A later step stays, and so does what it stands on. */
START_TEST(what_a_later_delta_stands_on_is_kept)
{
    char text[512];

    save(10, 0);
    save(90, 10);
    save(20, 0);
    ck_assert_int_eq(prune(30, 1, NULL), RPS_OK);
    ck_assert_str_eq(surveyed("", text), "10 30 90");
}
END_TEST

static rps_status
commit_delta(uint64_t step, uint64_t parent, struct rps_error *error)
{
    char *text = job_prepare(&job, step);
    json_t *manifest = json_loads(text, 0, NULL);
    rps_status status;

    free(text);
    make_delta(manifest, step, parent);
    text = json_dumps(manifest, 0);
    json_decref(manifest);
    status = job_commit(&job, step, 0, text, error);
    free(text);
    return status;
}

START_TEST(a_delta_is_not_committed_without_its_parent)
{
    struct rps_error error = {""};
    char text[512];

    save(10, 0);
    ck_assert_int_eq(commit_delta(30, 20, &error), RPS_E_MISMATCH);
    ck_assert_msg(
            strstr(error.text, "ckpt-000000000020") != NULL, "%s", error.text);
    change(10, "digest", json_string("000102030405060708090a0b0c0d0e0f"));
    ck_assert_int_eq(commit_delta(20, 10, &error), RPS_E_MISMATCH);
    ck_assert_msg(strstr(error.text, "was replaced") != NULL, "%s", error.text);
    ck_assert_str_eq(surveyed("", text), "10");
}
END_TEST

/* ---- pieces: links that are made here, without files ---- */

#define LINKS 4u
#define PARTS 4u

static struct rps_ckpt_link links[LINKS];
static struct rps_ckpt_part parts[LINKS][PARTS];
static struct rps_ckpt_table listed[LINKS][2];
static struct rps_ckpt_table held[LINKS][PARTS];
static char link_path[LINKS][8];

static struct rps_ckpt_table
table_named(const char *name, uint32_t dim)
{
    struct rps_ckpt_table table = {.rows = 0};

    rps_table_spec_init(&table.spec, name, dim, RPS_OPTIMIZER_SGD);
    table.written = table.spec;
    return table;
}

/* Link i of n parts with table "t" of this dim (0: without it); whole[k]:
 * 'w' whole, 'd' of changes, '-' the part does not have the table, '.' the
 * part is not here. */
static void
put_link(uint32_t i, uint32_t dim, const char *whole)
{
    const uint32_t n = (uint32_t)strlen(whole);
    struct rps_ckpt_link *link = &links[i];

    snprintf(link_path[i], sizeof(link_path[i]), "link%u", i);
    memset(link, 0, sizeof(*link));
    link->folder = (struct rps_ckpt_folder){-1, link_path[i]};
    link->parts = parts[i];
    link->manifest.part_count = n;
    link->manifest.tables = listed[i];
    listed[i][0] = table_named("other", 3);
    listed[i][1] = table_named("t", dim == 0 ? 1 : dim);
    link->manifest.table_count = dim == 0 ? 1 : 2;
    for (uint32_t k = 0; k < n; k++) {
        struct rps_ckpt_part *part = &parts[i][k];

        memset(part, 0, sizeof(*part));
        part->root = whole[k] == '.' ? NULL : json_null();
        part->part = k;
        part->parts = n;
        rps_ckpt_part_slots(k, n, &part->slot_first, &part->slot_last);
        held[i][k] = table_named("t", dim == 0 ? 1 : dim);
        held[i][k].whole = whole[k] == 'w';
        part->tables = &held[i][k];
        part->table_count = whole[k] == '-' || whole[k] == '.' ? 0 : 1;
    }
    chain.links[i] = *link;
    chain.count = i + 1;
}

/* "0.1:0-2047 1.0:…": link, part and the slots of each piece. */
static char *
pieces_of(const char *table)
{
    struct rps_ckpt_piece *pieces = NULL;
    struct rps_text text = {.bytes = NULL};
    size_t count = 0;

    ck_assert_int_eq(
            rps_ckpt_chain_pieces(&chain, table, &pieces, &count, NULL),
            RPS_OK);
    rps_text_add(&text, "%s", "");
    for (size_t i = 0; i < count; i++) {
        rps_text_add(&text, "%s%u.%u:", i == 0 ? "" : " ", pieces[i].link,
                pieces[i].part->part);
        for (uint32_t slot = 0; slot < 4096; slot++) {
            const struct rps_ckpt_slots *live = &pieces[i].live;
            bool here = rps_ckpt_slots_has(live, slot);
            bool before = slot > 0 && rps_ckpt_slots_has(live, slot - 1);
            bool after = slot < 4095 && rps_ckpt_slots_has(live, slot + 1);

            if (here && !before) {
                rps_text_add(&text, "%u-", slot);
            }
            if (here && !after) {
                rps_text_add(&text, "%u", slot);
            }
        }
    }
    free(pieces);
    chain.count = 0; /* nothing of it is to be closed */
    return text.bytes;
}

static void
expect_pieces(const char *wanted)
{
    char *is = pieces_of("t");

    ck_assert_str_eq(is, wanted);
    free(is);
}

START_TEST(each_part_of_a_full_one_is_a_piece)
{
    put_link(0, 2, "ww");
    expect_pieces("0.0:0-2047 0.1:2048-4095");
}
END_TEST

START_TEST(a_delta_comes_behind_what_it_stands_on)
{
    put_link(0, 2, "ww");
    put_link(1, 2, "d");
    put_link(2, 2, "dddd");
    expect_pieces("0.0:0-2047 0.1:2048-4095 1.0:0-4095 2.0:0-1023 "
                  "2.1:1024-2047 2.2:2048-3071 2.3:3072-4095");
}
END_TEST

START_TEST(a_whole_part_drops_what_was_in_its_slots)
{
    put_link(0, 2, "w");
    put_link(1, 2, "dddd");
    put_link(2, 2, "dw");
    put_link(3, 2, "d");
    expect_pieces("0.0:0-2047 1.0:0-1023 1.1:1024-2047 2.0:0-2047 "
                  "2.1:2048-4095 3.0:0-4095");
}
END_TEST

START_TEST(a_part_without_the_table_drops_it_in_its_slots)
{
    put_link(0, 2, "ww");
    put_link(1, 2, "d-");
    expect_pieces("0.0:0-2047 1.0:0-2047");
}
END_TEST

START_TEST(a_table_that_was_gone_begins_anew)
{
    put_link(0, 2, "ww");
    put_link(1, 0, "--");
    put_link(2, 2, "dd");
    expect_pieces("2.0:0-2047 2.1:2048-4095");
}
END_TEST

START_TEST(another_table_of_the_name_begins_anew_where_it_is_whole)
{
    struct rps_ckpt_piece *pieces = NULL;
    struct rps_error error = {""};
    size_t count = 0;

    put_link(0, 2, "w");
    put_link(1, 5, "ww");
    put_link(2, 5, "d");
    expect_pieces("1.0:0-2047 1.1:2048-4095 2.0:0-4095");
    put_link(1, 5, "wd");
    ck_assert_int_eq(
            rps_ckpt_chain_pieces(&chain, "t", &pieces, &count, &error),
            RPS_E_CORRUPT);
    ck_assert_msg(
            strstr(error.text, "link1/part-1-of-2") != NULL, "%s", error.text);
    chain.count = 0;
}
END_TEST

START_TEST(parts_on_other_disks_have_no_piece)
{
    put_link(0, 2, ".w");
    put_link(1, 2, ".d");
    expect_pieces("0.1:2048-4095 1.1:2048-4095");
}
END_TEST

START_TEST(a_table_that_the_last_link_has_not_is_not_found)
{
    struct rps_ckpt_piece *pieces = NULL;
    struct rps_error error = {""};
    size_t count = 0;

    put_link(0, 2, "w");
    put_link(1, 0, "-");
    ck_assert_int_eq(
            rps_ckpt_chain_pieces(&chain, "t", &pieces, &count, &error),
            RPS_E_NOT_FOUND);
    chain.count = 0;
}
END_TEST

static Suite *
suite(void)
{
    Suite *s = suite_create("checkpoint_chain");
    TCase *files = tcase_create("links");
    TCase *pieces = tcase_create("pieces");

    tcase_add_checked_fixture(files, setup, teardown);
    tcase_set_timeout(files, 60);
    tcase_add_test(files, a_chain_has_its_oldest_link_first);
    tcase_add_test(files, a_folder_is_found_from_within);
    tcase_add_test(files, a_link_that_is_missing_is_named);
    tcase_add_test(files, a_link_that_was_replaced_is_refused);
    tcase_add_test(files, a_link_of_a_newer_epoch_is_refused);
    tcase_add_test(files, a_link_of_another_job_seed_is_refused);
    tcase_add_test(files, a_damaged_link_is_named);
    tcase_add_test(files, a_parent_of_a_later_step_is_no_parent);
    tcase_add_test(files, a_full_checkpoint_has_no_parent);
    tcase_add_test(files, sixteen_deltas_are_a_chain_and_one_more_is_none);
    tcase_add_test(files, what_a_kept_delta_stands_on_is_kept);
    tcase_add_test(files, deltas_that_were_overtaken_go);
    tcase_add_test(files, what_a_later_delta_stands_on_is_kept);
    tcase_add_test(files, a_delta_is_not_committed_without_its_parent);
    suite_add_tcase(s, files);
    tcase_add_test(pieces, each_part_of_a_full_one_is_a_piece);
    tcase_add_test(pieces, a_delta_comes_behind_what_it_stands_on);
    tcase_add_test(pieces, a_whole_part_drops_what_was_in_its_slots);
    tcase_add_test(pieces, a_part_without_the_table_drops_it_in_its_slots);
    tcase_add_test(pieces, a_table_that_was_gone_begins_anew);
    tcase_add_test(
            pieces, another_table_of_the_name_begins_anew_where_it_is_whole);
    tcase_add_test(pieces, parts_on_other_disks_have_no_piece);
    tcase_add_test(pieces, a_table_that_the_last_link_has_not_is_not_found);
    suite_add_tcase(s, pieces);
    return s;
}

int
main(void)
{
    return run_suite(suite());
}
