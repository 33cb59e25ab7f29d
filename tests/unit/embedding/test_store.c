/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"
#include "embedding/budget.h"
#include "embedding/store.h"
#include "tests/unit/embedding/fixture.h"

#include <inttypes.h>
#include <stdio.h>

static struct rps_store *
store_new(void)
{
    struct rps_store *store = NULL;

    ck_assert_int_eq(rps_store_create(&store, 17), RPS_OK);
    return store;
}

static struct rps_table *
open_table(struct rps_store *store, const rps_table_spec *spec)
{
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;

    ck_assert_msg(rps_store_open_table(store, spec, &table, &error) == RPS_OK,
            "%s", error.text);
    return table;
}

START_TEST(many_tables_are_found_by_id_and_listed_as_made)
{
    struct rps_store *store = store_new();
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_table *tables[50];

    for (int i = 0; i < 50; i++) {
        snprintf(spec.name, sizeof(spec.name), "table_%d", i);
        tables[i] = open_table(store, &spec);
    }
    ck_assert_uint_eq(rps_store_count(store), 50);
    ck_assert_uint_eq(rps_store_job_seed(store), 17);
    for (int i = 0; i < 50; i++) {
        snprintf(spec.name, sizeof(spec.name), "table_%d", i);
        ck_assert_ptr_eq(
                rps_store_find(store, rps_table_id(spec.name)), tables[i]);
        ck_assert_ptr_eq(rps_store_at(store, (size_t)i), tables[i]);
    }
    ck_assert_ptr_null(rps_store_find(store, 0));
    ck_assert_ptr_null(rps_store_find(store, UINT64_MAX));
    rps_store_clear(store);
    ck_assert_uint_eq(rps_store_count(store), 0);
    ck_assert_ptr_null(rps_store_find(store, rps_table_id("table_1")));
    rps_store_destroy(store);
    rps_store_destroy(NULL);
}
END_TEST

START_TEST(a_second_request_of_the_same_spec_gets_the_same_table)
{
    struct rps_store *store = store_new();
    const rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_table *table = open_table(store, &spec);

    ck_assert_ptr_eq(open_table(store, &spec), table);
    ck_assert_uint_eq(rps_store_count(store), 1);
    rps_store_destroy(store);
}
END_TEST

static void
assert_mismatch(const rps_table_spec *other, const char *const words[4])
{
    struct rps_store *store = store_new();
    const rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_ADAGRAD);
    struct rps_error error = {.text = ""};
    struct rps_table *table = open_table(store, &spec);

    ck_assert_int_eq(
            rps_store_open_table(store, other, &table, &error), RPS_E_MISMATCH);
    ck_assert_ptr_null(table);
    for (size_t i = 0; i < 4; i++) {
        ck_assert_msg(strstr(error.text, words[i]) != NULL, "no \"%s\" in: %s",
                words[i], error.text);
    }
    rps_store_destroy(store);
}

START_TEST(another_identity_is_a_mismatch_that_names_the_field)
{
    rps_table_spec other = spec_of(8, RPS_OPTIMIZER_ADAGRAD);

    assert_mismatch(&other, (const char *const[]){"emb", "dim", "4", "8"});
    other = spec_of(4, RPS_OPTIMIZER_ADAM);
    assert_mismatch(&other,
            (const char *const[]){"emb", "optimizer", "adagrad", "adam"});
    other = spec_of(4, RPS_OPTIMIZER_ADAGRAD);
    other.seed = 18446744073709551615u;
    assert_mismatch(&other,
            (const char *const[]){"emb", "seed", "0", "18446744073709551615"});
}
END_TEST

START_TEST(another_policy_is_a_mismatch_that_names_alter_table)
{
    rps_table_spec other = spec_of(4, RPS_OPTIMIZER_ADAGRAD);

    other.clip_norm = 2.5f;
    assert_mismatch(&other,
            (const char *const[]){"emb", "clip_norm", "2.5", "ALTER_TABLE"});
}
END_TEST

START_TEST(a_spec_out_of_range_is_refused_and_adds_nothing)
{
    struct rps_store *store = store_new();
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;

    strcpy(spec.name, "..");
    ck_assert_int_eq(
            rps_store_open_table(store, &spec, &table, &error), RPS_E_INVAL);
    ck_assert_ptr_null(table);
    ck_assert_uint_eq(rps_store_count(store), 0);
    rps_store_destroy(store);
}
END_TEST

START_TEST(the_first_request_after_a_restore_sets_the_policy)
{
    struct rps_store *store = store_new();
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_table *table = table_of(&spec);
    struct rps_table *found = NULL;

    ck_assert_int_eq(rps_store_add_restored(store, table), RPS_OK);
    ck_assert_int_eq(rps_store_add_restored(store, table), RPS_E_MISMATCH);
    spec.learning_rate = 0.75f;
    ck_assert_ptr_eq(open_table(store, &spec), table);
    ck_assert_float_eq(rps_table_spec_of(table)->learning_rate, 0.75f);
    spec.learning_rate = 0.5f;
    ck_assert_int_eq(
            rps_store_open_table(store, &spec, &found, NULL), RPS_E_MISMATCH);
    rps_store_destroy(store);
}
END_TEST

START_TEST(an_altered_table_keeps_its_rows_and_opens_with_its_new_spec)
{
    const uint64_t key = 5;
    const float row[4] = {1, 2, 3, 4};
    const struct rps_read read = {.count = 1, .keys = &key};
    struct rps_store *store = store_new();
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_table *table = open_table(store, &spec);
    json_t *fields = json_pack("{s:f}", "learning_rate", 0.25);
    const struct rps_now now = {.step = 3, .unix_s = 1000};
    float out[4];

    ck_assert_int_eq(
            rps_table_assign(table, 1, &key, row, NULL, NULL, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_store_alter(store, rps_table_id_of(table), fields, now, NULL),
            RPS_OK);
    ck_assert_float_eq(rps_table_spec_of(table)->learning_rate, 0.25f);
    spec.learning_rate = 0.25f;
    ck_assert_ptr_eq(open_table(store, &spec), table);
    rps_table_lookup(table, &read, out, sizeof(out));
    ck_assert_mem_eq(out, row, sizeof(row));
    json_decref(fields);
    rps_store_destroy(store);
}
END_TEST

START_TEST(a_removed_table_leaves_the_others_in_their_order)
{
    struct rps_store *store = store_new();
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_table *tables[20];
    size_t index = 0;

    for (int i = 0; i < 20; i++) {
        snprintf(spec.name, sizeof(spec.name), "table_%d", i);
        tables[i] = open_table(store, &spec);
    }
    ck_assert_ptr_null(rps_store_remove(store, rps_table_id("none"), &index));
    for (int i = 19; i > 0; i -= 2) { /* the odd ones */
        const uint64_t id = rps_table_id_of(tables[i]);

        ck_assert_ptr_eq(rps_store_remove(store, id, &index), tables[i]);
        ck_assert_uint_eq(index, (size_t)i);
        ck_assert_ptr_null(rps_store_find(store, id));
        rps_table_destroy(tables[i]);
    }
    ck_assert_uint_eq(rps_store_count(store), 10);
    for (int i = 0; i < 20; i += 2) {
        ck_assert_ptr_eq(rps_store_at(store, (size_t)i / 2), tables[i]);
        ck_assert_ptr_eq(
                rps_store_find(store, rps_table_id_of(tables[i])), tables[i]);
    }
    rps_store_destroy(store);
}
END_TEST

START_TEST(what_all_tables_take_is_counted_in_one_budget)
{
    struct rps_budget budget;
    struct rps_store *store = store_new();
    rps_table_spec spec = spec_of(64, RPS_OPTIMIZER_SGD);
    struct rps_table_stats stats[2];
    struct rps_table *tables[2];
    float row[64] = {0};
    size_t index = 0;

    rps_budget_init(&budget, NULL, 0);
    rps_store_set_budget(store, &budget);
    for (int i = 0; i < 2; i++) {
        snprintf(spec.name, sizeof(spec.name), "table_%d", i);
        tables[i] = open_table(store, &spec);
        for (uint64_t key = 0; key < 1000; key++) {
            ck_assert_int_eq(
                    rps_table_assign(tables[i], 1, &key, row, NULL, NULL, NULL),
                    RPS_OK);
        }
        rps_table_stats_of(tables[i], &stats[i]);
    }
    ck_assert_uint_ge(atomic_load(&budget.used), 2 * 1000 * 64 * 4);
    ck_assert_uint_le(
            atomic_load(&budget.used), stats[0].bytes + stats[1].bytes);
    (void)rps_store_remove(store, rps_table_id_of(tables[0]), &index);
    rps_table_destroy(tables[0]);
    ck_assert_uint_ge(atomic_load(&budget.used), 1000 * 64 * 4);
    ck_assert_uint_le(atomic_load(&budget.used), stats[1].bytes);
    rps_store_destroy(store);
    ck_assert_uint_eq(atomic_load(&budget.used), 0);
}
END_TEST

static rps_table_spec
counting_spec(const char *name)
{
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);

    snprintf(spec.name, sizeof(spec.name), "%s", name);
    spec.admission = RPS_ADMISSION_SKETCH;
    spec.min_used_times = 2;
    return spec;
}

START_TEST(a_sketch_that_a_server_has_no_room_for_is_refused_at_creation)
{
    const uint64_t limit = (uint64_t)20 << 20;
    struct rps_store *store = store_new();
    const rps_table_spec spec = counting_spec("counting");
    const rps_table_spec second = counting_spec("second");
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;
    struct rps_budget server;
    uint64_t least = 0;
    uint64_t used = 0;

    rps_budget_init(&server, NULL, limit);
    rps_store_set_budget(store, &server);
    ck_assert_int_eq(
            rps_store_open_table(store, &spec, &table, &error), RPS_E_LIMIT);
    ck_assert_ptr_null(table);
    ck_assert_uint_eq(rps_store_count(store), 0);
    ck_assert_uint_eq(server.used, 0);
    ck_assert_int_eq(sscanf(strstr(error.text, "--memory-limit to "),
                             "--memory-limit to %" SCNu64, &least),
            1);
    rps_store_destroy(store);

    /* the limit that was named is enough, one byte less is not */
    store = store_new();
    rps_budget_init(&server, NULL, least - 1);
    rps_store_set_budget(store, &server);
    ck_assert_int_eq(
            rps_store_open_table(store, &spec, &table, &error), RPS_E_LIMIT);
    atomic_store(&server.limit, least);
    table = open_table(store, &spec);
    used = server.used;
    ck_assert_uint_le(used, least);
    /* a second one is not, and takes nothing */
    ck_assert_int_eq(
            rps_store_open_table(store, &second, &table, &error), RPS_E_LIMIT);
    ck_assert_uint_eq(server.used, used);
    ck_assert_uint_eq(rps_store_count(store), 1);
    rps_store_destroy(store);
    ck_assert_uint_eq(server.used, 0);
}
END_TEST

static rps_status
alter_text(struct rps_store *store, struct rps_table *table, const char *text,
        struct rps_error *error)
{
    json_t *set = json_loads(text, 0, NULL);
    const rps_status status = rps_store_alter(store, rps_table_id_of(table),
            set, (struct rps_now){.step = 1}, error);

    json_decref(set);
    return status;
}

START_TEST(a_sketch_that_finds_no_room_later_is_a_limit_in_words)
{
    const rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    const char *sketch = "{\"admission\":\"sketch\",\"min_used_times\":2}";
    struct rps_store *store = store_new();
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;
    struct rps_budget server;
    uint64_t used = 0;

    rps_budget_init(&server, NULL, (uint64_t)20 << 20);
    rps_store_set_budget(store, &server);
    table = open_table(store, &spec);
    used = server.used;
    ck_assert_int_eq(alter_text(store, table, sketch, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "the server's memory limit"));
    ck_assert_ptr_nonnull(strstr(error.text, "nothing was changed"));
    ck_assert_uint_eq(server.used, used);
    ck_assert_int_eq(rps_table_spec_of(table)->admission, RPS_ADMISSION_EXACT);
    atomic_store(&server.limit, (uint64_t)60 << 20);
    ck_assert_int_eq(alter_text(store, table, sketch, &error), RPS_OK);
    rps_store_destroy(store);
    ck_assert_uint_eq(server.used, 0);
}
END_TEST

/* The limit it has is not in the way of the one it gets. */
START_TEST(a_sketch_and_the_room_for_it_come_together)
{
    rps_table_spec spec = spec_of(4, RPS_OPTIMIZER_SGD);
    struct rps_store *store = store_new();
    struct rps_error error = {.text = ""};
    struct rps_table *table = NULL;

    spec.memory_limit = (uint64_t)20 << 20;
    table = open_table(store, &spec);
    ck_assert_int_eq(alter_text(store, table,
                             "{\"admission\":\"sketch\","
                             "\"min_used_times\":2,"
                             "\"memory_limit\":67108864}",
                             &error),
            RPS_OK);
    rps_store_destroy(store);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("store");
    TCase *tables = tcase_create("tables");

    tcase_add_test(tables, many_tables_are_found_by_id_and_listed_as_made);
    tcase_add_test(
            tables, a_second_request_of_the_same_spec_gets_the_same_table);
    tcase_add_test(tables, another_identity_is_a_mismatch_that_names_the_field);
    tcase_add_test(tables, another_policy_is_a_mismatch_that_names_alter_table);
    tcase_add_test(tables, a_spec_out_of_range_is_refused_and_adds_nothing);
    tcase_add_test(tables, the_first_request_after_a_restore_sets_the_policy);
    tcase_add_test(tables,
            an_altered_table_keeps_its_rows_and_opens_with_its_new_spec);
    tcase_add_test(tables, a_removed_table_leaves_the_others_in_their_order);
    tcase_add_test(tables,
            a_sketch_that_a_server_has_no_room_for_is_refused_at_creation);
    tcase_add_test(
            tables, a_sketch_that_finds_no_room_later_is_a_limit_in_words);
    tcase_add_test(tables, a_sketch_and_the_room_for_it_come_together);
    tcase_add_test(tables, what_all_tables_take_is_counted_in_one_budget);
    suite_add_tcase(suite, tables);
    return run_suite(suite);
}
