/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring chains into any number of PS, some of the tables, other specs. */
#include "base/hash.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/checkpoint.h"
#include "embedding/cut.h"
#include "tests/unit/embedding/checkpoint/forge.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARTS_MAX  8u
#define DIM        4u
#define KEYS       600u
#define ELEMENTS   1500u /* of the dense table */
#define DENSE_ROWS 2u
#define SEED       5u

/** Stores of n PS, which save as a chief has them save. */
struct side {
    uint32_t parts;
    uint64_t seed;
    uint32_t epoch;
    struct rps_store *stores[PARTS_MAX];
    uint64_t parent; /* step of the newest save; 0: none */
    char parent_digest[RPS_DIGEST_HEX_BYTES];
};

static char folder[FOLDER_BYTES];
static struct rps_error error;

static void
setup(void)
{
    folder_make(folder);
    error.text[0] = '\0';
}

static void
teardown(void)
{
    folder_remove(folder);
}

static void
must(rps_status status)
{
    ck_assert_msg(
            status == RPS_OK, "%s: %s", rps_status_str(status), error.text);
}

static void
must_fail(rps_status status, rps_status wanted, const char *word)
{
    ck_assert_msg(
            status == wanted, "%s: %s", rps_status_str(status), error.text);
    ck_assert_msg(strstr(error.text, word) != NULL, "%s", error.text);
}

static struct side
side_make(uint32_t parts, uint64_t seed)
{
    struct side side = {.parts = parts, .seed = seed, .epoch = 1};

    for (uint32_t i = 0; i < parts; i++) {
        must(rps_store_create(&side.stores[i], seed));
    }
    return side;
}

static void
side_finish(struct side *side)
{
    for (uint32_t i = 0; i < side->parts; i++) {
        rps_store_destroy(side->stores[i]);
    }
}

static uint32_t
owner_of(const struct side *side, uint64_t hash)
{
    return rps_hash_slot(hash) * side->parts / RPS_SLOT_COUNT;
}

static rps_table_spec
sparse_spec(const char *name)
{
    rps_table_spec spec;

    rps_table_spec_init(&spec, name, DIM, RPS_OPTIMIZER_ADAGRAD);
    spec.seed = 9;
    return spec;
}

static void
open_table(struct side *side, const rps_table_spec *spec)
{
    struct rps_table *table;

    for (uint32_t i = 0; i < side->parts; i++) {
        must(rps_store_open_table(side->stores[i], spec, &table, &error));
    }
}

static void
open_tables(struct side *side)
{
    const rps_table_spec emb = sparse_spec("emb");
    const rps_table_spec other = sparse_spec("other");
    rps_table_spec dense;

    rps_table_spec_init(&dense, "w", RPS_DENSE_ROW_FLOATS, RPS_OPTIMIZER_SGD);
    dense.dense_elements = ELEMENTS;
    dense.initializer = RPS_INITIALIZER_ZEROS;
    open_table(side, &emb);
    open_table(side, &other);
    open_table(side, &dense);
}

static struct rps_table *
table_of(const struct side *side, uint32_t part, const char *name)
{
    return rps_store_find(side->stores[part], rps_table_id(name));
}

static void
push(struct side *side, const char *name, uint64_t key, float gradient)
{
    const uint32_t part = owner_of(side, rps_key_hash(key, side->seed));
    struct rps_table *table = table_of(side, part, name);
    float gradients[RPS_DENSE_ROW_FLOATS];
    const struct rps_update update = {
            .step = 3, .t = 1, .learning_rate = 0.5f, .scale = 1.0f};
    const struct rps_contribution one = {
            .count = 1, .keys = &key, .gradients = gradients};
    struct rps_apply_report report;

    for (uint32_t i = 0; i < RPS_DENSE_ROW_FLOATS; i++) {
        gradients[i] = gradient + (float)(i % DIM);
    }
    must(rps_table_apply(table, &update, &one, 1, &report));
}

static void
push_many(struct side *side, const char *name, uint64_t first, uint64_t count,
        float gradient)
{
    for (uint64_t i = first; i < first + count; i++) {
        push(side, name, rps_mix64(i), gradient + (float)i);
    }
}

static void
push_dense(struct side *side, float gradient)
{
    for (uint64_t key = 0; key < DENSE_ROWS; key++) {
        push(side, "w", key, gradient);
    }
}

static void
erase_many(struct side *side, const char *name, uint64_t first, uint64_t count)
{
    for (uint64_t i = first; i < first + count; i++) {
        const uint64_t key = rps_mix64(i);
        const uint32_t part = owner_of(side, rps_key_hash(key, side->seed));

        ck_assert_uint_eq(
                rps_table_erase(table_of(side, part, name), 1, &key), 1);
    }
}

static struct rps_digest
digest_of(const struct side *side, const char *name)
{
    struct rps_digest sum = {0, 0};

    for (uint32_t i = 0; i < side->parts; i++) {
        struct rps_table *table = table_of(side, i, name);

        ck_assert_msg(table != NULL, "PS %u has no table %s", i, name);
        rps_digest_add(&sum, rps_table_digest(table));
    }
    return sum;
}

static uint64_t
rows_of(const struct side *side, const char *name)
{
    struct rps_table_stats stats;
    uint64_t rows = 0;

    for (uint32_t i = 0; i < side->parts; i++) {
        rps_table_stats_of(table_of(side, i, name), &stats);
        rows += stats.rows;
    }
    return rows;
}

static void
same_digest(struct rps_digest a, struct rps_digest b)
{
    ck_assert_uint_eq(a.low, b.low);
    ck_assert_uint_eq(a.high, b.high);
}

/* --- saving, as PS and chief do it --------------------------------------- */

static json_int_t
count_of(const json_t *object, const char *field)
{
    return json_integer_value(json_object_get(object, field));
}

static void
add_tables(json_t *sums, const json_t *part)
{
    const char *name;
    json_t *value;

    json_object_foreach(json_object_get(part, "tables"), name, value)
    {
        json_t *sum = json_object_get(sums, name);
        struct rps_digest digest = {0, 0};
        struct rps_digest term;
        char hex[RPS_DIGEST_HEX_BYTES];

        if (sum != NULL) {
            ck_assert(rps_digest_parse(
                    json_string_value(json_object_get(sum, "digest")),
                    &digest));
        }
        ck_assert(rps_digest_parse(
                json_string_value(json_object_get(value, "digest")), &term));
        rps_digest_add(&digest, term);
        json_object_set_new(sums, name,
                json_pack("{s:O, s:I, s:I, s:s}", "spec",
                        json_object_get(value, "spec"), "rows",
                        count_of(sum, "rows") + count_of(value, "rows"),
                        "erased",
                        count_of(sum, "erased") + count_of(value, "erased"),
                        "digest", rps_digest_hex(digest, hex)));
    }
}

static struct rps_checkpoint_id
id_of(const struct side *side, uint64_t step, uint32_t part)
{
    return (struct rps_checkpoint_id){
            folder, step, side->epoch, part, side->parts};
}

/* Any digest will do that is the manifest's own: nothing here recomputes it. */
static char *
manifest_of(struct side *side, uint64_t step, bool is_delta, json_t *parts,
        json_t *sums)
{
    char seed[24];
    char name[40];
    char digest[RPS_DIGEST_HEX_BYTES];
    json_t *manifest;
    char *text;

    (void)snprintf(seed, sizeof(seed), "%" PRIu64, side->seed);
    (void)snprintf(name, sizeof(name), "ckpt-%012" PRIu64, side->parent);
    (void)snprintf(digest, sizeof(digest), "%032" PRIx64, step);
    manifest = json_pack("{s:i, s:s, s:o, s:I, s:i, s:s, s:s, s:o, s:o, s:n, "
                         "s:s}",
            "format", 1, "kind", is_delta ? "delta" : "full", "parent",
            is_delta ? json_pack("{s:s, s:s}", "name", name, "digest",
                               side->parent_digest)
                     : json_null(),
            "step", (json_int_t)step, "epoch", (int)side->epoch, "job_id",
            "recps", "seed", seed, "parts", parts, "tables", sums,
            "data_position", "digest", digest);
    ck_assert_ptr_nonnull(manifest);
    text = json_dumps(manifest, JSON_INDENT(1) | JSON_SORT_KEYS);
    json_decref(manifest);
    side->parent = step;
    memcpy(side->parent_digest, digest, sizeof(digest));
    return text;
}

static void
save(struct side *side, uint64_t step, bool is_delta)
{
    struct rps_cut *cuts[PARTS_MAX];
    json_t *parts = json_array();
    json_t *sums = json_object();
    char *manifest;

    for (uint32_t i = 0; i < side->parts; i++) {
        const struct rps_checkpoint_id id = id_of(side, step, i);
        json_t *answer = NULL;

        must(rps_cut_take(side->stores[i], (struct rps_now){.step = step}, 0,
                &cuts[i], &error));
        must(rps_checkpoint_prepare(
                &id, is_delta, cuts[i], NULL, 0, &answer, &error));
        json_array_append_new(
                parts, json_pack("{s:O, s:O, s:O}", "file",
                               json_object_get(answer, "file"), "bytes",
                               json_object_get(answer, "bytes"), "xxh3",
                               json_object_get(answer, "xxh3")));
        add_tables(sums, json_object_get(answer, "part"));
        json_decref(answer);
    }
    manifest = manifest_of(side, step, is_delta, parts, sums);
    for (uint32_t i = 0; i < side->parts; i++) {
        const struct rps_checkpoint_id id = id_of(side, step, i);

        must(rps_checkpoint_commit(&id, manifest, strlen(manifest), 0, &error));
        rps_cut_commit(cuts[i]);
    }
    free(manifest);
}

/* --- restoring ----------------------------------------------------------- */

struct owner {
    const struct side *side;
    uint32_t part;
    char told[256]; /* "emb<old fresh;" a table */
    uint64_t rows;
    uint64_t rows_total;
};

static bool
owns(void *context, uint64_t hash)
{
    const struct owner *owner = context;

    return owner_of(owner->side, hash) == owner->part;
}

static void
tell(void *context, const char *table, const char *from, bool slots)
{
    struct owner *owner = context;
    const size_t used = strlen(owner->told);

    (void)snprintf(owner->told + used, sizeof(owner->told) - used, "%s<%s %s;",
            table, from, slots ? "slots" : "fresh");
}

static void
progress(void *context, uint64_t rows, uint64_t rows_total)
{
    struct owner *owner = context;

    ck_assert_uint_ge(rows, owner->rows);
    owner->rows = rows;
    owner->rows_total = rows_total;
}

/* how: tables, weights_only, begins; the rest is filled in. */
static rps_status
restore_part(struct side *side, struct rps_restore how, uint64_t step,
        uint32_t part, char told[256])
{
    struct owner owner = {.side = side, .part = part};
    struct rps_lane_record *lanes = NULL;
    size_t lane_count = 0;
    json_t *manifest = NULL;
    rps_status status;

    how.dir = folder;
    how.step = step;
    how.part = part;
    how.parts = side->parts;
    how.owns = owns;
    how.context = &owner;
    how.told = tell;
    how.progress = progress;
    status = rps_checkpoint_restore(
            &how, side->stores[part], &manifest, &lanes, &lane_count, &error);
    json_decref(manifest);
    free(lanes);
    if (status == RPS_OK) {
        ck_assert_uint_eq(owner.rows, owner.rows_total);
    } else {
        ck_assert_uint_eq(rps_store_count(side->stores[part]), 0);
    }
    memcpy(told, owner.told, sizeof(owner.told));
    return status;
}

static void
restore(struct side *side, uint64_t step)
{
    char told[256];

    for (uint32_t i = 0; i < side->parts; i++) {
        must(restore_part(side, (struct rps_restore){0}, step, i, told));
    }
}

static rps_status
restore_one(struct side *side, struct rps_restore how, char told[256])
{
    ck_assert_uint_eq(side->parts, 1);
    return restore_part(side, how, 10, 0, told);
}

/* --- chains -------------------------------------------------------------- */

static const char *const names[] = {"emb", "other", "w"};

#define NAMES (sizeof(names) / sizeof(names[0]))
#define LINKS 4u

/** What was there when a step was saved. */
struct state {
    uint64_t step;
    struct rps_digest digests[NAMES];
};

static void
remember(struct state *state, const struct side *side, uint64_t step)
{
    state->step = step;
    for (size_t t = 0; t < NAMES; t++) {
        state->digests[t] = digest_of(side, names[t]);
    }
}

/* Rows that change, that come, that go, and that come back. */
static void
save_chain(struct side *side, struct state states[LINKS])
{
    open_tables(side);
    push_many(side, "emb", 0, KEYS, 1);
    push_many(side, "other", 0, 50, 2);
    push_dense(side, 1);
    save(side, 10, false);
    remember(&states[0], side, 10);

    push_many(side, "emb", 100, 60, 3);
    push_many(side, "emb", KEYS, 40, 4);
    erase_many(side, "emb", 0, 30);
    save(side, 20, true);
    remember(&states[1], side, 20);

    push_many(side, "emb", 10, 5, 5); /* came back */
    erase_many(side, "emb", KEYS, 10);
    push_dense(side, 2);
    save(side, 30, true);
    remember(&states[2], side, 30);

    save(side, 40, true); /* nothing has changed */
    remember(&states[3], side, 40);
}

static const struct {
    uint32_t from, to;
} counts[] = {{1, 3}, {2, 1}, {3, 2}, {5, 8}};

START_TEST(every_point_of_a_chain_restores_into_any_number_of_ps)
{
    struct side from = side_make(counts[_i].from, SEED);
    struct state states[LINKS];

    save_chain(&from, states);
    for (size_t s = 0; s < LINKS; s++) {
        struct side to = side_make(counts[_i].to, SEED);

        restore(&to, states[s].step);
        for (size_t t = 0; t < NAMES; t++) {
            same_digest(digest_of(&to, names[t]), states[s].digests[t]);
        }
        side_finish(&to);
    }
    side_finish(&from);
}
END_TEST

START_TEST(a_delta_may_stand_on_what_was_restored)
{
    struct side from = side_make(2, SEED);
    struct side middle = side_make(3, SEED);
    struct side to = side_make(2, SEED);
    struct state states[LINKS];

    save_chain(&from, states);
    restore(&middle, 40);
    middle.parent = from.parent;
    memcpy(middle.parent_digest, from.parent_digest,
            sizeof(from.parent_digest));
    push_many(&middle, "emb", 200, 7, 1);
    erase_many(&middle, "emb", 300, 7);
    save(&middle, 50, true);
    restore(&to, 50);
    for (size_t t = 0; t < NAMES; t++) {
        same_digest(digest_of(&to, names[t]), digest_of(&middle, names[t]));
    }
    side_finish(&from);
    side_finish(&middle);
    side_finish(&to);
}
END_TEST

START_TEST(a_link_that_is_missing_is_named)
{
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    struct state states[LINKS];
    char *path = rps_checkpoint_path(folder, 20);
    char *aside = rps_format("%s/aside", folder);
    char told[256];

    save_chain(&from, states);
    ck_assert_int_eq(rename(path, aside), 0);
    must_fail(restore_part(&to, (struct rps_restore){0}, 40, 0, told),
            RPS_E_NOT_FOUND, "ckpt-000000000020");
    must(restore_part(&to, (struct rps_restore){0}, 10, 0, told));
    free(path);
    free(aside);
    side_finish(&from);
    side_finish(&to);
}
END_TEST

START_TEST(a_delta_with_a_key_twice_is_damaged)
{
    struct side from = side_make(2, SEED);
    struct side to = side_make(2, SEED);
    struct state states[LINKS];
    char *path = rps_checkpoint_path(folder, 20);
    struct kept kept;
    char told[256];

    save_chain(&from, states);
    kept = keep_file(path, "table-emb/0-of-2.keys.npy");
    ck_assert_uint_gt(kept.n, 128 + 16);
    memcpy(kept.bytes + 128 + 8, kept.bytes + 128, 8);
    forge_file(path, 0, "table-emb/0-of-2.keys.npy", kept.bytes, kept.n);
    must_fail(restore_part(&to, (struct rps_restore){0}, 20, 0, told),
            RPS_E_CORRUPT, "different keys");
    free(kept.bytes);
    free(path);
    side_finish(&from);
    side_finish(&to);
}
END_TEST

/* --- some tables, other specs -------------------------------------------- */

/* A full checkpoint of step 10 by one PS. */
static void
save_full(struct side *side)
{
    open_tables(side);
    push_many(side, "emb", 0, KEYS, 1);
    push_many(side, "other", 0, 50, 2);
    push_dense(side, 1);
    save(side, 10, false);
}

static void
row_of(const struct side *side, const char *name, uint64_t i, float row[DIM])
{
    const uint64_t key = rps_mix64(i);
    const struct rps_read read = {.count = 1, .keys = &key, .read_only = true};
    const uint32_t part = owner_of(side, rps_key_hash(key, side->seed));

    rps_table_lookup(
            table_of(side, part, name), &read, row, DIM * sizeof(float));
}

static void
same_rows(const struct side *a, const char *name_a, const struct side *b,
        const char *name_b, uint64_t count)
{
    ck_assert_uint_eq(rows_of(b, name_b), count);
    for (uint64_t i = 0; i < count; i++) {
        float row_a[DIM];
        float row_b[DIM];

        row_of(a, name_a, i, row_a);
        row_of(b, name_b, i, row_b);
        ck_assert_mem_eq(row_a, row_b, sizeof(row_a));
    }
}

START_TEST(some_tables_are_restored_under_other_names)
{
    const struct rps_restore_table tables[] = {
            {.name = "emb"}, {.name = "copy", .from = "other"}};
    const struct rps_restore how = {.tables = tables, .table_count = 2};
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    char told[256];

    save_full(&from);
    must(restore_one(&to, how, told));
    ck_assert_str_eq(told, "emb<emb slots;copy<other slots;");
    ck_assert_uint_eq(rps_store_count(to.stores[0]), 2);
    same_digest(digest_of(&to, "emb"), digest_of(&from, "emb"));
    same_digest(digest_of(&to, "copy"), digest_of(&from, "other"));
    side_finish(&from);
    side_finish(&to);
}
END_TEST

START_TEST(weights_alone_get_fresh_slots)
{
    const struct rps_restore how = {.weights_only = true};
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    uint64_t keys[1] = {rps_mix64(3)};
    float row[DIM];
    float slots[DIM];
    uint32_t meta;
    char told[256];

    save_full(&from);
    must(restore_one(&to, how, told));
    /* sgd has none, so nothing is lost of w */
    ck_assert_str_eq(told, "emb<emb fresh;other<other fresh;w<w slots;");
    same_rows(&from, "emb", &to, "emb", KEYS);
    ck_assert_uint_eq(
            rps_table_read(table_of(&to, 0, "emb"), 1, keys, row, slots, &meta),
            1);
    for (uint32_t i = 0; i < DIM; i++) {
        ck_assert_float_eq(slots[i], 0.1f);
    }
    side_finish(&from);
    side_finish(&to);
}
END_TEST

START_TEST(another_optimizer_gets_fresh_slots)
{
    rps_table_spec spec;
    struct rps_restore_table table = {.from = "emb", .spec = &spec};
    const struct rps_restore how = {
            .tables = &table, .table_count = 1, .begins = true};
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    char told[256];

    rps_table_spec_init(&spec, "new", DIM, RPS_OPTIMIZER_ADAM);
    save_full(&from);
    must(restore_one(&to, how, told));
    ck_assert_str_eq(told, "new<emb fresh;");
    same_rows(&from, "emb", &to, "new", KEYS);
    side_finish(&from);
    side_finish(&to);
}
END_TEST

START_TEST(another_value_type_is_converted)
{
    rps_table_spec spec = sparse_spec("emb");
    struct rps_restore_table table = {.spec = &spec};
    const struct rps_restore how = {
            .tables = &table, .table_count = 1, .begins = true};
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    char told[256];

    spec.value_dtype = RPS_VALUE_BF16;
    save_full(&from);
    must(restore_one(&to, how, told));
    ck_assert_str_eq(told, "emb<emb slots;");
    for (uint64_t i = 0; i < KEYS; i++) {
        float was[DIM];
        float is[DIM];

        row_of(&from, "emb", i, was);
        row_of(&to, "emb", i, is);
        for (uint32_t j = 0; j < DIM; j++) {
            /* 8 bits of fraction, the last one rounded */
            ck_assert_float_le(is[j] > was[j] ? is[j] - was[j] : was[j] - is[j],
                    (was[j] < 0 ? -was[j] : was[j]) / 256);
        }
    }
    side_finish(&from);
    side_finish(&to);
}
END_TEST

/* Its rows are stamped anew: the other job's ticks are ahead of its steps. */
START_TEST(a_job_with_another_seed_begins_from_it)
{
    struct side from = side_make(2, SEED);
    struct side to = side_make(3, SEED + 1);
    const struct rps_restore begins = {.begins = true};
    char told[256];

    save_full(&from);
    must_fail(restore_part(&to, (struct rps_restore){0}, 10, 0, told),
            RPS_E_MISMATCH, "job seed");
    for (uint32_t i = 0; i < to.parts; i++) {
        must(restore_part(&to, begins, 10, i, told));
    }
    same_rows(&from, "emb", &to, "emb", KEYS);
    same_rows(&from, "other", &to, "other", 50);
    for (uint32_t i = 0; i < to.parts; i++) {
        struct rps_scan_cursor cursor = {0};
        uint64_t key;
        uint32_t meta;

        while (rps_table_scan(
                       table_of(&to, i, "emb"), &cursor, 1, &key, &meta) == 1) {
            ck_assert_uint_eq(meta, 0);
        }
    }
    side_finish(&from);
    side_finish(&to);
}
END_TEST

START_TEST(what_does_not_fit_is_refused_and_named)
{
    rps_table_spec wide;
    rps_table_spec dense;
    struct rps_restore_table table = {.name = "absent"};
    struct rps_restore how = {.tables = &table, .table_count = 1};
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    char told[256];

    rps_table_spec_init(&wide, "emb", DIM + 1, RPS_OPTIMIZER_ADAGRAD);
    rps_table_spec_init(&dense, "w", RPS_DENSE_ROW_FLOATS, RPS_OPTIMIZER_SGD);
    dense.dense_elements = ELEMENTS + 1;
    dense.initializer = RPS_INITIALIZER_ZEROS;
    save_full(&from);
    must_fail(restore_one(&to, how, told), RPS_E_NOT_FOUND, "emb, other, w");
    table = (struct rps_restore_table){.spec = &wide};
    must_fail(restore_one(&to, how, told), RPS_E_MISMATCH, "dim");
    table = (struct rps_restore_table){.spec = &dense};
    must_fail(restore_one(&to, how, told), RPS_E_MISMATCH, "dense_elements");
    side_finish(&from);
    side_finish(&to);
}
END_TEST

START_TEST(an_optional_table_may_be_absent)
{
    const struct rps_restore_table tables[] = {
            {.name = "absent", .optional = true}, {.name = "emb"}};
    const struct rps_restore how = {.tables = tables, .table_count = 2};
    struct side from = side_make(1, SEED);
    struct side to = side_make(1, SEED);
    char told[256];

    save_full(&from);
    must(restore_one(&to, how, told));
    ck_assert_str_eq(told, "emb<emb slots;");
    side_finish(&from);
    side_finish(&to);
}
END_TEST

static Suite *
restore_suite(void)
{
    Suite *suite = suite_create("checkpoint restore");
    TCase *chains = tcase_create("chains");
    TCase *some = tcase_create("some");

    tcase_add_checked_fixture(chains, setup, teardown);
    tcase_set_timeout(chains, 120);
    tcase_add_loop_test(chains,
            every_point_of_a_chain_restores_into_any_number_of_ps, 0,
            (int)(sizeof(counts) / sizeof(counts[0])));
    tcase_add_test(chains, a_delta_may_stand_on_what_was_restored);
    tcase_add_test(chains, a_link_that_is_missing_is_named);
    tcase_add_test(chains, a_delta_with_a_key_twice_is_damaged);
    suite_add_tcase(suite, chains);
    tcase_add_checked_fixture(some, setup, teardown);
    tcase_add_test(some, some_tables_are_restored_under_other_names);
    tcase_add_test(some, weights_alone_get_fresh_slots);
    tcase_add_test(some, another_optimizer_gets_fresh_slots);
    tcase_add_test(some, another_value_type_is_converted);
    tcase_add_test(some, a_job_with_another_seed_begins_from_it);
    tcase_add_test(some, what_does_not_fit_is_refused_and_named);
    tcase_add_test(some, an_optional_table_may_be_absent);
    suite_add_tcase(suite, some);
    return suite;
}

int
main(void)
{
    return run_suite(restore_suite());
}
