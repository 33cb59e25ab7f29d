/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cut holds what the tables held at one instant, whatever becomes of them
 * while it is read. The oracle is a plain list of every row, its bytes as
 * they were when the cut was taken.
 */
#include "base/hash.h"
#include "embedding/cut.h"
#include "tests/unit/embedding/fixture.h"

#include <check.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIM       6u
#define ROW_BYTES (2 * DIM * sizeof(float)) /* value, accumulator */
#define MIB       ((uint64_t)1 << 20)

struct row {
    uint64_t key;
    uint32_t meta;
    char bytes[ROW_BYTES];
};

/** Rows in the order of their keys. */
struct rows {
    struct row *at;
    size_t count;
    size_t room;
    bool slow; /* others are to have time between two rows */
};

static rps_status
add_row(void *context, const struct rps_row_view *view)
{
    struct rows *rows = context;
    struct row *row = NULL;

    if (rows->count == rows->room) {
        rows->room = rows->room == 0 ? 1024 : 2 * rows->room;
        rows->at = realloc(rows->at, rows->room * sizeof(*rows->at));
        ck_assert_ptr_nonnull(rows->at);
    }
    if (rows->slow && rows->count % 128 == 0) {
        usleep(200);
    }
    row = &rows->at[rows->count++];
    memset(row, 0, sizeof(*row));
    row->key = view->key;
    row->meta = view->meta;
    memcpy(row->bytes, view->value, DIM * sizeof(float));
    memcpy(row->bytes + DIM * sizeof(float), view->slots, DIM * sizeof(float));
    return RPS_OK;
}

static int
by_key(const void *a, const void *b)
{
    const struct row *left = a;
    const struct row *right = b;

    return (left->key > right->key) - (left->key < right->key);
}

static void
sort(struct rows *rows)
{
    if (rows->count > 0) {
        qsort(rows->at, rows->count, sizeof(*rows->at), by_key);
    }
}

static void
expect_equal(const struct rows *found, const struct rows *wanted)
{
    ck_assert_uint_eq(found->count, wanted->count);
    for (size_t i = 0; i < wanted->count; i++) {
        ck_assert_uint_eq(found->at[i].key, wanted->at[i].key);
        ck_assert_uint_eq(found->at[i].meta, wanted->at[i].meta);
        ck_assert_mem_eq(found->at[i].bytes, wanted->at[i].bytes, ROW_BYTES);
    }
}

static struct rows
rows_now(struct rps_table *table)
{
    struct rows rows = {.at = NULL};

    ck_assert_int_eq(rps_table_visit(table, add_row, &rows), RPS_OK);
    sort(&rows);
    return rows;
}

/* Where what was kept is put away, of all cuts. */
static struct aside {
    char *bytes;
    uint64_t end;
} aside;

static rps_status
put(void *context, const void *bytes, size_t count, uint64_t *offset_out)
{
    struct aside *to = context;

    to->bytes = realloc(to->bytes, to->end + count);
    ck_assert_ptr_nonnull(to->bytes);
    memcpy(to->bytes + to->end, bytes, count);
    *offset_out = to->end;
    to->end += count;
    return RPS_OK;
}

static rps_status
get(void *context, uint64_t offset, void *bytes, size_t count)
{
    const struct aside *from = context;

    ck_assert_uint_le(offset + count, from->end);
    memcpy(bytes, from->bytes + offset, count);
    return RPS_OK;
}

/* The rows that a cut has of a table. */
static struct rows
rows_cut_slowly(struct rps_cut *cut, size_t table, bool changed_only, bool slow)
{
    const struct rps_cut_aside hooks = {
            .put = put, .get = get, .context = &aside};
    struct rows rows = {.slow = slow};
    struct rps_error error = {.text = ""};
    uint64_t count = 0;

    rps_cut_begin(cut);
    count = rps_cut_choose(cut, table, changed_only);
    ck_assert_msg(
            rps_cut_visit(cut, table, &hooks, add_row, &rows, &error) == RPS_OK,
            "%s", error.text);
    ck_assert_uint_eq(rows.count, count);
    sort(&rows);
    return rows;
}

static struct rows
rows_cut(struct rps_cut *cut, size_t table, bool changed_only)
{
    return rows_cut_slowly(cut, table, changed_only, false);
}

static struct rps_table *
open_table(struct rps_store *store, const char *name, uint64_t min_used)
{
    rps_table_spec spec;
    struct rps_table *table = NULL;
    struct rps_error error = {.text = ""};

    rps_table_spec_init(&spec, name, DIM, RPS_OPTIMIZER_ADAGRAD);
    spec.min_used_times = (uint32_t)min_used;
    ck_assert_msg(rps_store_open_table(store, &spec, &table, &error) == RPS_OK,
            "%s", error.text);
    return table;
}

static struct rps_store *
new_store(void)
{
    struct rps_store *store = NULL;

    ck_assert_int_eq(rps_store_create(&store, 7), RPS_OK);
    return store;
}

static struct rps_cut *
take(struct rps_store *store, uint64_t buffer_bytes)
{
    struct rps_cut *cut = NULL;
    struct rps_error error = {.text = ""};

    ck_assert_msg(rps_cut_take(store, (struct rps_now){0}, buffer_bytes, &cut,
                          &error) == RPS_OK,
            "%s", error.text);
    return cut;
}

static void
push_keys(struct rps_table *table, uint64_t step, uint64_t first, size_t n)
{
    uint64_t *keys = calloc(n + 1, sizeof(*keys));
    float *gradients = calloc(n * DIM + 1, sizeof(*gradients));

    for (size_t i = 0; i < n; i++) {
        keys[i] = first + i;
        for (size_t j = 0; j < DIM; j++) {
            gradients[i * DIM + j] = (float)(step + i + j) / 64.0f;
        }
    }
    push(table, step, n, keys, gradients);
    free(keys);
    free(gradients);
}

static void
erase_keys(struct rps_table *table, uint64_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint64_t key = first + i;
        (void)rps_table_erase(table, 1, &key);
    }
}

START_TEST(a_cut_holds_all_rows_as_they_were)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rows wanted;
    struct rows found;
    struct rps_cut *cut = NULL;

    push_keys(table, 1, 0, 5000);
    push_keys(table, 2, 1000, 500);
    wanted = rows_now(table);
    cut = take(store, 64 * MIB);
    push_keys(table, 3, 500, 3000); /* changed */
    push_keys(table, 3, 9000, 700); /* new */
    erase_keys(table, 100, 900);    /* gone, some of them changed before */
    push_keys(table, 4, 150, 200);  /* and back again */
    found = rows_cut(cut, 0, false);
    expect_equal(&found, &wanted);
    rps_cut_commit(cut);
    free(found.at);
    free(wanted.at);
    rps_store_destroy(store);
}
END_TEST

START_TEST(empty_tables_and_no_tables_can_be_cut)
{
    struct rps_store *store = new_store();
    struct rps_cut *cut = take(store, MIB);
    struct rows found;

    ck_assert_uint_eq(rps_cut_count(cut), 0);
    rps_cut_commit(cut);
    (void)open_table(store, "emb", 0);
    cut = take(store, MIB);
    ck_assert_uint_eq(rps_cut_count(cut), 1);
    found = rows_cut(cut, 0, false);
    ck_assert_uint_eq(found.count, 0);
    rps_cut_commit(cut);
    cut = take(store, MIB);
    ck_assert(rps_cut_is_based(cut, 0));
    found = rows_cut(cut, 0, true);
    ck_assert_uint_eq(found.count, 0);
    rps_cut_abort(cut);
    rps_store_destroy(store);
}
END_TEST

static rps_status
add_key(void *context, uint64_t key)
{
    struct rows *rows = context;
    const float zeros[DIM] = {0};
    const struct rps_row_view view = {
            .key = key, .value = zeros, .slots = zeros};

    return add_row(rows, &view);
}

/* Keys of `rows`, which are first, first + 1, … in pieces. */
static void
expect_keys(const struct rows *rows, size_t pieces, const uint64_t (*piece)[2])
{
    size_t at = 0;

    for (size_t p = 0; p < pieces; p++) {
        for (uint64_t key = piece[p][0]; key < piece[p][1]; key++, at++) {
            ck_assert_uint_lt(at, rows->count);
            ck_assert_uint_eq(rows->at[at].key, key);
        }
    }
    ck_assert_uint_eq(at, rows->count);
}

START_TEST(a_delta_has_what_changed_and_what_was_erased)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_cut *cut = NULL;
    struct rows rows;
    struct rows erased = {.at = NULL};

    push_keys(table, 1, 0, 20000);
    cut = take(store, MIB);
    ck_assert(!rps_cut_is_based(cut, 0)); /* there is none to stand on */
    rps_cut_commit(cut);

    push_keys(table, 2, 100, 50);
    erase_keys(table, 300, 10);
    erase_keys(table, 120, 5);
    erase_keys(table, 120, 1);   /* gone already */
    push_keys(table, 2, 302, 3); /* back */
    erase_keys(table, 302, 1);   /* and gone again: told once */
    cut = take(store, MIB);
    push_keys(table, 3, 90, 20); /* not of this delta */
    erase_keys(table, 140, 2);
    ck_assert(rps_cut_is_based(cut, 0));
    rows = rows_cut(cut, 0, true);
    expect_keys(&rows, 3,
            (const uint64_t[][2]){{100, 120}, {125, 150}, {303, 305}});
    ck_assert_int_eq(rps_cut_visit_erased(cut, 0, add_key, &erased), RPS_OK);
    sort(&erased);
    expect_keys(&erased, 2, (const uint64_t[][2]){{120, 125}, {300, 310}});
    rps_cut_commit(cut);
    free(rows.at);
    free(erased.at);

    erased = (struct rows){.at = NULL};
    cut = take(store, MIB);
    rows = rows_cut(cut, 0, true);
    expect_keys(&rows, 1, (const uint64_t[][2]){{90, 110}});
    ck_assert_int_eq(rps_cut_visit_erased(cut, 0, add_key, &erased), RPS_OK);
    sort(&erased);
    expect_keys(&erased, 1, (const uint64_t[][2]){{140, 142}});
    rps_cut_abort(cut);
    free(rows.at);
    free(erased.at);
    rps_store_destroy(store);
}
END_TEST

START_TEST(what_an_aborted_cut_had_is_in_the_next_one)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_cut *cut = NULL;
    struct rows rows;
    struct rows erased = {.at = NULL};

    push_keys(table, 1, 0, 8000);
    rps_cut_commit(take(store, MIB));
    push_keys(table, 2, 10, 10);
    erase_keys(table, 50, 3);
    cut = take(store, MIB);
    push_keys(table, 3, 15, 10);
    erase_keys(table, 51, 4);
    rows = rows_cut(cut, 0, true);
    expect_keys(&rows, 1, (const uint64_t[][2]){{10, 20}});
    free(rows.at);
    rps_cut_abort(cut);
    cut = take(store, MIB);
    rows = rows_cut(cut, 0, true);
    expect_keys(&rows, 1, (const uint64_t[][2]){{10, 25}});
    ck_assert_int_eq(rps_cut_visit_erased(cut, 0, add_key, &erased), RPS_OK);
    sort(&erased);
    expect_keys(&erased, 1, (const uint64_t[][2]){{50, 55}});
    rps_cut_commit(cut);
    free(rows.at);
    free(erased.at);
    rps_store_destroy(store);
}
END_TEST

START_TEST(a_restored_store_is_clean)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_cut *cut = NULL;
    struct rows rows;

    push_keys(table, 1, 0, 800);
    rps_store_mark_clean(store);
    push_keys(table, 2, 10, 1);
    cut = take(store, MIB);
    ck_assert(rps_cut_is_based(cut, 0));
    rows = rows_cut(cut, 0, true);
    expect_keys(&rows, 1, (const uint64_t[][2]){{10, 11}});
    rps_cut_commit(cut);
    free(rows.at);
    rps_store_destroy(store);
}
END_TEST

START_TEST(a_table_that_lost_too_many_rows_is_whole_again)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_cut *cut = NULL;

    push_keys(table, 1, 0, 200000);
    rps_cut_commit(take(store, MIB));
    erase_keys(table, 0, 160000);
    cut = take(store, MIB);
    ck_assert(!rps_cut_is_based(cut, 0));
    rps_cut_abort(cut);
    cut = take(store, MIB);
    ck_assert(!rps_cut_is_based(cut, 0));
    rps_cut_commit(cut);
    cut = take(store, MIB);
    ck_assert(rps_cut_is_based(cut, 0));
    rps_cut_commit(cut);
    rps_store_destroy(store);
}
END_TEST

START_TEST(rows_of_a_cut_stay_whatever_compaction_moves)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_evict_report report;
    struct rps_cut *cut = NULL;
    struct rows wanted;
    struct rows found;

    push_keys(table, 1, 0, 100000);
    rps_store_mark_clean(store);
    push_keys(table, 2, 5, 10000);
    wanted = rows_now(table);
    cut = take(store, 64 * MIB);
    erase_keys(table, 15000, 75000);
    rps_table_evict(table, (struct rps_now){.step = 3}, &report);
    ck_assert_uint_lt(report.bytes_after, report.bytes_before);
    push_keys(table, 3, 0, 20000);
    found = rows_cut(cut, 0, false);
    expect_equal(&found, &wanted);
    rps_cut_abort(cut);
    free(found.at);
    free(wanted.at);
    rps_store_destroy(store);
}
END_TEST

static rps_status
add_count(void *context, const struct rps_admission_count *count)
{
    const struct rps_row_view view = {.key = count->id,
            .meta = count->count,
            .value = (const float[DIM]){0},
            .slots = (const float[DIM]){0}};

    return add_row(context, &view);
}

static void
counts_stay(enum rps_admission kind)
{
    struct rps_store *store = new_store();
    struct rps_table *table = NULL;
    struct rps_cut *cut = NULL;
    struct rps_error error = {.text = ""};
    struct rows wanted = {.at = NULL};
    rps_table_spec spec;

    rps_table_spec_init(&spec, "emb", DIM, RPS_OPTIMIZER_ADAGRAD);
    spec.min_used_times = 3;
    spec.admission = kind;
    ck_assert_int_eq(
            rps_store_open_table(store, &spec, &table, &error), RPS_OK);
    push_keys(table, 1, 0, 3000);
    push_keys(table, 2, 1000, 1000);
    ck_assert_int_eq(
            rps_table_visit_admission(table, add_count, &wanted), RPS_OK);
    sort(&wanted);
    cut = take(store, MIB);
    push_keys(table, 3, 1500, 4000); /* some are admitted, others counted */
    for (unsigned pass = 0; pass < 2; pass++) {
        struct rows found = {.at = NULL};
        ck_assert_int_eq(rps_cut_visit_admission(
                                 cut, 0, pass == 1, add_count, &found, &error),
                RPS_OK);
        sort(&found);
        expect_equal(&found, &wanted);
        free(found.at);
        push_keys(table, 4 + pass, 0, 500);
    }
    rps_cut_commit(cut);
    free(wanted.at);
    rps_store_destroy(store);
}

START_TEST(exact_counts_of_a_cut_stay)
{
    counts_stay(RPS_ADMISSION_EXACT);
}
END_TEST

START_TEST(a_sketch_of_a_cut_stays)
{
    counts_stay(RPS_ADMISSION_SKETCH);
}
END_TEST

START_TEST(a_second_cut_and_an_alteration_wait)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_cut *cut = take(store, MIB);
    struct rps_cut *second = NULL;
    struct rps_error error = {.text = ""};
    rps_table_spec spec = *rps_table_spec_of(table);

    ck_assert_int_eq(
            rps_cut_take(store, (struct rps_now){0}, MIB, &second, &error),
            RPS_E_RETRY_LATER);
    spec.learning_rate = 0.5f;
    ck_assert(rps_table_is_cut(table));
    ck_assert_int_eq(rps_table_alter(table, &spec, (struct rps_now){0}, &error),
            RPS_E_RETRY_LATER);
    rps_cut_commit(cut);
    ck_assert(!rps_table_is_cut(table));
    ck_assert_int_eq(
            rps_table_alter(table, &spec, (struct rps_now){0}, &error), RPS_OK);
    rps_store_destroy(store);
}
END_TEST

START_TEST(a_buffer_that_is_full_before_anyone_writes_fails_the_cut)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    struct rps_cut *cut = NULL;
    struct rps_cut_aside hooks = {.put = put, .get = get};
    struct rps_error error = {.text = ""};
    struct rows rows = {.at = NULL};

    push_keys(table, 1, 0, 40000);
    cut = take(store, MIB);
    push_keys(table, 2, 0, 40000);
    rps_cut_begin(cut);
    (void)rps_cut_choose(cut, 0, false);
    ck_assert_int_eq(
            rps_cut_visit(cut, 0, &hooks, add_row, &rows, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "--save-buffer"));
    rps_cut_abort(cut);
    free(rows.at);
    rps_store_destroy(store);
}
END_TEST

START_TEST(rows_in_the_way_of_others_are_put_away_and_come_back)
{
    struct rps_store *store = new_store();
    struct rps_table *tables[2] = {
            open_table(store, "a", 0), open_table(store, "b", 0)};
    struct rps_save_figures figures;
    struct rps_cut *cut = NULL;
    struct rows wanted[2];

    for (size_t t = 0; t < 2; t++) {
        push_keys(tables[t], 1, 0, 20000);
        wanted[t] = rows_now(tables[t]);
    }
    cut = take(store, MIB);
    push_keys(tables[1], 2, 0, 12000); /* 72 bytes each: most of a MiB */
    for (size_t t = 0; t < 2; t++) {
        struct rows found = rows_cut(cut, t, false);
        expect_equal(&found, &wanted[t]);
        free(found.at);
        free(wanted[t].at);
    }
    rps_cut_figures(cut, &figures);
    ck_assert_uint_eq(figures.rows, 12000);
    ck_assert_uint_ge(figures.put_away, MIB / 4);
    ck_assert_uint_le(figures.peak, MIB);
    ck_assert_uint_eq(figures.used, 0);
    rps_cut_abort(cut);
    rps_store_destroy(store);
}
END_TEST

/* Two tables, threads that push, assign, erase and evict in both of them. */
struct storm {
    struct rps_table *tables[2];
    uint64_t seed;
    _Atomic bool stop;
};

#define STORM_KEYS 60000u

static void *
storm(void *context)
{
    struct storm *s = context;
    const uint64_t seed = s->seed;
    uint64_t keys[64];
    float rows[64 * DIM] = {0};
    struct rps_evict_report report = {.full = 0};

    for (uint64_t i = 0; !atomic_load(&s->stop); i++) {
        const uint64_t draw = rps_mix64(seed * 1000003 + i);
        struct rps_table *table = s->tables[draw % 2];
        for (size_t k = 0; k < 64; k++) {
            keys[k] = rps_mix64(draw + k) % STORM_KEYS;
            rows[k * DIM] = (float)(draw % 64) / 32.0f;
        }
        switch (draw >> 8 & 15) {
        case 0:
            (void)rps_table_erase(table, 64, keys);
            break;
        case 1:
            (void)rps_table_assign(table, 64, keys, rows, NULL, NULL, NULL);
            break;
        case 2:
            (void)rps_table_maintain(
                    table, (struct rps_now){.step = i}, 500, &report);
            break;
        default:
            push(table, i + 2, 64, keys, rows);
            break;
        }
    }
    return NULL;
}

/* The same instant in both tables, while the storm goes on around it. */
static void
save_in_storm(struct rps_store *store, struct storm *storms, uint64_t buffer)
{
    pthread_t threads[2];
    struct rows wanted[2];
    struct rows found[2];
    struct rps_save_figures figures;
    struct rps_cut *cut = NULL;

    for (size_t t = 0; t < 2; t++) {
        wanted[t] = rows_now(rps_store_at(store, t));
    }
    cut = take(store, buffer);
    rps_cut_begin(cut);
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&storms[i].stop, false);
        storms[i].seed += 2;
        ck_assert_int_eq(
                pthread_create(&threads[i], NULL, storm, &storms[i]), 0);
    }
    for (size_t t = 0; t < 2; t++) {
        found[t] = rows_cut_slowly(cut, t, false, true);
    }
    rps_cut_figures(cut, &figures);
    ck_assert_uint_gt(figures.rows, 0);
    for (size_t i = 0; i < 2; i++) {
        atomic_store(&storms[i].stop, true);
        pthread_join(threads[i], NULL);
    }
    for (size_t t = 0; t < 2; t++) {
        expect_equal(&found[t], &wanted[t]);
        free(found[t].at);
        free(wanted[t].at);
    }
    rps_cut_commit(cut);
}

START_TEST(rows_of_a_cut_stay_in_a_storm)
{
    struct rps_store *store = new_store();
    struct storm storms[2];

    for (size_t i = 0; i < 2; i++) {
        storms[i] = (struct storm){.seed = i};
    }
    storms[0].tables[0] = storms[1].tables[0] = open_table(store, "a", 0);
    storms[0].tables[1] = storms[1].tables[1] = open_table(store, "b", 0);
    for (unsigned t = 0; t < 2; t++) {
        push_keys(storms[0].tables[t], 1, 0, STORM_KEYS / 2);
    }
    for (unsigned round = 0; round < 4; round++) {
        /* one that is full soon, and one that never is */
        save_in_storm(store, storms, round % 2 == 0 ? MIB : 256 * MIB);
    }
    rps_store_destroy(store);
}
END_TEST

/* Has a shard, until all rows of the others were visited. */
struct busy {
    struct rps_shard *shard;
    uint64_t others; /* rows */
    _Atomic bool has_it;
    _Atomic uint64_t visited;
};

static void *
stay_busy(void *context)
{
    struct busy *busy = context;

    pthread_mutex_lock(&busy->shard->lock);
    atomic_store(&busy->has_it, true);
    while (atomic_load(&busy->visited) < busy->others) {
        usleep(100);
    }
    ck_assert_uint_eq(atomic_load(&busy->visited), busy->others);
    pthread_mutex_unlock(&busy->shard->lock);
    return NULL;
}

static rps_status
count_row(void *context, const struct rps_row_view *view)
{
    struct busy *busy = context;

    (void)view;
    atomic_fetch_add(&busy->visited, 1);
    return RPS_OK;
}

START_TEST(a_busy_shard_is_visited_after_the_others)
{
    struct rps_store *store = new_store();
    struct rps_table *table = open_table(store, "emb", 0);
    const struct rps_cut_aside hooks = {
            .put = put, .get = get, .context = &aside};
    struct busy busy = {.shard = &table->shards[0]};
    struct rps_error error = {.text = ""};
    struct rps_cut *cut = NULL;
    pthread_t thread;
    uint64_t rows = 0;

    push_keys(table, 1, 0, 20000);
    ck_assert_uint_gt(busy.shard->rows.live, 0);
    busy.others = 20000 - busy.shard->rows.live;
    cut = take(store, MIB);
    rps_cut_begin(cut);
    rows = rps_cut_choose(cut, 0, false);
    ck_assert_int_eq(pthread_create(&thread, NULL, stay_busy, &busy), 0);
    while (!atomic_load(&busy.has_it)) {
        usleep(100);
    }
    ck_assert_int_eq(
            rps_cut_visit(cut, 0, &hooks, count_row, &busy, &error), RPS_OK);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(rows, 20000);
    ck_assert_uint_eq(atomic_load(&busy.visited), rows);
    rps_cut_commit(cut);
    rps_store_destroy(store);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("cut");
    TCase *rows = tcase_create("rows");
    TCase *threads = tcase_create("threads");

    tcase_set_timeout(rows, 60);
    tcase_add_test(rows, a_cut_holds_all_rows_as_they_were);
    tcase_add_test(rows, empty_tables_and_no_tables_can_be_cut);
    tcase_add_test(rows, a_delta_has_what_changed_and_what_was_erased);
    tcase_add_test(rows, what_an_aborted_cut_had_is_in_the_next_one);
    tcase_add_test(rows, a_restored_store_is_clean);
    tcase_add_test(rows, a_table_that_lost_too_many_rows_is_whole_again);
    tcase_add_test(rows, rows_of_a_cut_stay_whatever_compaction_moves);
    tcase_add_test(rows, exact_counts_of_a_cut_stay);
    tcase_add_test(rows, a_sketch_of_a_cut_stays);
    tcase_add_test(rows, a_second_cut_and_an_alteration_wait);
    tcase_add_test(
            rows, a_buffer_that_is_full_before_anyone_writes_fails_the_cut);
    tcase_add_test(rows, rows_in_the_way_of_others_are_put_away_and_come_back);
    tcase_set_timeout(threads, 120);
    tcase_add_test(threads, rows_of_a_cut_stay_in_a_storm);
    tcase_add_test(threads, a_busy_shard_is_visited_after_the_others);
    suite_add_single_threaded(suite, rows);
    suite_add_tcase(suite, threads);
    return run_suite(suite);
}
