/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Deltas that the tables write, read by what the tools read with: at any point
 * of a chain the replayed state has the digest that the tables had.
 */
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/rewrite.h"
#include "tests/unit/embedding/checkpoint/fixture.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS      8u
#define KEYS       400u
#define CHANGES    90u
#define DIM_MAX    8u
#define TABLES_MAX 3u

static char folder[256];
static struct job job;
static uint64_t draw_at;
static char *parent_digest; /* of the last save; NULL: none */
static uint64_t parent_step;

static const struct {
    const char *name;
    uint32_t dim;
    enum rps_optimizer optimizer;
    enum rps_value type;
} tables[TABLES_MAX] = {
        {"emb", 5, RPS_OPTIMIZER_ADAGRAD, RPS_VALUE_F32},
        {"half", 3, RPS_OPTIMIZER_MOMENTUM, RPS_VALUE_F16},
        {"late", 2, RPS_OPTIMIZER_ADAM, RPS_VALUE_F32},
};

static uint64_t
draw(uint64_t below)
{
    return rps_mix64(++draw_at) % below;
}

static void
setup(void)
{
    folder_make(folder);
    job_make(&job, folder, 3);
    draw_at = 20261130;
}

static void
teardown(void)
{
    job_finish(&job);
    free(parent_digest);
    parent_digest = NULL;
    folder_remove(folder);
}

static struct rps_table *
table_at(uint32_t part, size_t t)
{
    struct rps_table *table = NULL;
    rps_table_spec spec;

    rps_table_spec_init(
            &spec, tables[t].name, tables[t].dim, tables[t].optimizer);
    spec.value_dtype = tables[t].type;
    ck_assert_int_eq(
            rps_store_open_table(job.stores[part], &spec, &table, NULL),
            RPS_OK);
    return table;
}

static void
change(size_t t, uint64_t key)
{
    const uint64_t hash = rps_key_hash(key, JOB_SEED);
    const uint32_t part =
            (uint32_t)((uint64_t)rps_hash_slot(hash) * job.parts / 4096);
    struct rps_table *table = table_at(part, t);
    const uint32_t meta = (uint32_t)draw(1u << 24);
    float row[DIM_MAX];
    float slots[2 * DIM_MAX];

    for (uint32_t i = 0; i < 2 * DIM_MAX; i++) {
        row[i % DIM_MAX] = (float)draw(1000) / 8;
        slots[i] = (float)draw(1000) / 16;
    }
    if (draw(4) == 0) {
        (void)rps_table_erase(table, 1, &key);
    }
    if (draw(5) != 0) {
        ck_assert_int_eq(
                rps_table_assign(table, 1, &key, row, slots, &meta, NULL),
                RPS_OK);
    }
}

static void
storm(size_t table_count)
{
    for (size_t t = 0; t < table_count; t++) {
        for (uint32_t i = 0; i < CHANGES; i++) {
            const uint64_t key = draw(KEYS);

            change(t, key % 7 == 0 ? UINT64_MAX - key : key);
        }
    }
}

static void
add_up(json_t *sums, const char *field, const json_t *entry, const char *name)
{
    json_t *sum = json_object_get(sums, name);
    const json_int_t more = json_integer_value(json_object_get(entry, field));

    json_object_set_new(sum, field,
            json_integer(
                    more + json_integer_value(json_object_get(sum, field))));
}

/* Of one part, to what the manifest says of the tables. */
static void
add_part(json_t *sums, const json_t *answer)
{
    json_t *list = json_object_get(json_object_get(answer, "part"), "tables");
    const char *name;
    json_t *entry;

    json_object_foreach(list, name, entry)
    {
        struct rps_digest sum = {0, 0};
        struct rps_digest own;
        char hex[RPS_DIGEST_HEX_BYTES];
        json_t *total = json_object_get(sums, name);

        if (total == NULL) {
            total = json_pack("{s:O}", "spec", json_object_get(entry, "spec"));
            json_object_set_new(sums, name, total);
        } else {
            ck_assert(rps_digest_parse(
                    json_string_value(json_object_get(total, "digest")), &sum));
        }
        ck_assert(rps_digest_parse(
                json_string_value(json_object_get(entry, "digest")), &own));
        rps_digest_add(&sum, own);
        json_object_set_new(
                total, "digest", json_string(rps_digest_hex(sum, hex)));
        add_up(sums, "rows", entry, name);
        add_up(sums, "erased", entry, name);
    }
}

static struct rps_digest
digest_of(const json_t *sums)
{
    struct rps_digest_entry entries[TABLES_MAX];
    char *texts[TABLES_MAX];
    struct rps_digest digest;
    size_t n = 0;
    const char *name;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)sums, name, value)
    {
        rps_table_spec spec;

        ck_assert_int_eq(
                rps_spec_read(json_object_get(value, "spec"), &spec, NULL),
                RPS_OK);
        texts[n] = rps_spec_to_json(&spec);
        entries[n].name = name;
        entries[n].spec_json = texts[n];
        ck_assert(rps_digest_parse(
                json_string_value(json_object_get(value, "digest")),
                &entries[n].digest));
        n++;
    }
    digest = rps_digest_checkpoint(entries, n);
    for (size_t i = 0; i < n; i++) {
        free(texts[i]);
    }
    return digest;
}

static json_t *
manifest_of(uint64_t step, bool is_delta, json_t *parts, json_t *sums)
{
    char hex[RPS_DIGEST_HEX_BYTES];
    char seed[24];
    char name[40];
    json_t *parent = json_null();

    snprintf(seed, sizeof(seed), "%u", JOB_SEED);
    snprintf(name, sizeof(name), "ckpt-%012" PRIu64, parent_step);
    if (is_delta) {
        parent = json_pack("{s:s, s:s}", "name", name, "digest", parent_digest);
    }
    rps_digest_hex(digest_of(sums), hex);
    free(parent_digest);
    parent_digest = strdup(hex);
    parent_step = step;
    return json_pack("{s:i, s:s, s:o, s:I, s:i, s:s, s:s, s:o, s:o, s:n, s:s}",
            "format", 1, "kind", is_delta ? "delta" : "full", "parent", parent,
            "step", (json_int_t)step, "epoch", 1, "job_id", "recps", "seed",
            seed, "parts", parts, "tables", sums, "data_position", "digest",
            hex);
}

/* Both phases, as the servers and their chief do it. */
static void
save(uint64_t step, bool is_delta)
{
    struct rps_cut *cuts[PARTS_MAX] = {NULL};
    json_t *parts = json_array();
    json_t *sums = json_object();
    struct rps_error error = {""};
    json_t *manifest;
    char *text;

    for (uint32_t i = 0; i < job.parts; i++) {
        const struct rps_checkpoint_id id = job_id(&job, step, i);
        json_t *answer = NULL;

        ck_assert_int_eq(rps_cut_take(job.stores[i], (struct rps_now){0},
                                 1u << 20, &cuts[i], NULL),
                RPS_OK);
        ck_assert_msg(rps_checkpoint_prepare(&id, is_delta, cuts[i], NULL, 0,
                              &answer, &error) == RPS_OK,
                "%s", error.text);
        add_part(sums, answer);
        json_array_append_new(
                parts, json_pack("{s:O, s:O, s:O}", "file",
                               json_object_get(answer, "file"), "bytes",
                               json_object_get(answer, "bytes"), "xxh3",
                               json_object_get(answer, "xxh3")));
        json_decref(answer);
    }
    manifest = manifest_of(step, is_delta, parts, sums);
    text = json_dumps(manifest, 0);
    ck_assert_msg(job_commit(&job, step, 0, text, &error) == RPS_OK, "%s",
            error.text);
    for (uint32_t i = 0; i < job.parts; i++) {
        rps_cut_commit(cuts[i]);
    }
    json_decref(manifest);
    free(text);
}

/* What is read there has each table's digest as `live` remembers it. */
static void
expect_state(uint64_t step, const struct rps_digest *live, size_t table_count)
{
    struct rps_checkpoint_report report;
    struct rps_error error = {""};
    char *path = rps_checkpoint_path(folder, step);
    rps_status status =
            rps_checkpoint_verify(path, NULL, NULL, &report, &error);

    ck_assert_msg(status == RPS_OK, "%s", error.text);
    ck_assert_uint_eq(report.table_count, table_count);
    for (size_t i = 0; i < table_count; i++) {
        size_t t = 0;

        while (strcmp(tables[t].name, report.tables[i].name) != 0) {
            t++;
        }
        if (!rps_digest_equal(report.tables[i].digest, live[t])) {
            ck_abort_msg("step %" PRIu64 ": table %s has another state", step,
                    tables[t].name);
        }
    }
    rps_checkpoint_report_finish(&report);
    free(path);
}

START_TEST(every_point_of_a_chain_is_what_the_tables_were)
{
    struct rps_digest live[STEPS + 1][TABLES_MAX];
    size_t counts[STEPS + 1];

    for (uint64_t step = 1; step <= STEPS; step++) {
        counts[step] = step < 4 ? 2 : 3; /* a table comes in between */
        storm(counts[step]);
        save(step, step > 1);
        for (size_t t = 0; t < counts[step]; t++) {
            live[step][t] = job_digest(&job, tables[t].name);
        }
    }
    for (uint64_t step = 1; step <= STEPS; step++) {
        expect_state(step, live[step], counts[step]);
    }
}
END_TEST

START_TEST(a_chain_that_is_folded_is_the_same_state)
{
    struct rps_digest live[TABLES_MAX];
    struct rps_ckpt_chain chain;
    struct rps_digest digest;
    struct rps_ckpt_rewrite how = {
            .chain = &chain, .dir = folder, .parts = 2, .replace = true};

    for (uint64_t step = 1; step <= 4; step++) {
        storm(3);
        save(step, step > 1);
        for (size_t t = 0; t < 3 && step == 3; t++) {
            live[t] = job_digest(&job, tables[t].name);
        }
    }
    ck_assert_int_eq(rps_ckpt_chain_open(&chain, folder, 3, NULL), RPS_OK);
    ck_assert_int_eq(rps_ckpt_chain_read_parts(&chain, 0, 0, NULL), RPS_OK);
    ck_assert_int_eq(rps_ckpt_rewrite(&how, &digest, NULL), RPS_OK);
    rps_ckpt_chain_close(&chain);
    expect_state(3, live, 3);
    for (size_t t = 0; t < 3; t++) {
        live[t] = job_digest(&job, tables[t].name);
    }
    expect_state(4, live, 3); /* a delta of what was folded */
}
END_TEST

static Suite *
suite(void)
{
    Suite *s = suite_create("checkpoint_deltas");
    TCase *tc = tcase_create("deltas");

    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, every_point_of_a_chain_is_what_the_tables_were);
    tcase_add_test(tc, a_chain_that_is_folded_is_the_same_state);
    suite_add_tcase(s, tc);
    return s;
}

int
main(void)
{
    return run_suite(suite());
}
