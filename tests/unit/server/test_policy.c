/* SPDX-License-Identifier: Apache-2.0 */
/* ALTER_TABLE, ERASE, EVICT, DROP, HOT_KEYS and SCAN as frames. Rows are
 * sgd with learning rate 1 from zeros: minus the sum of their gradients. */
#include "server/keeper.h"
#include "tests/unit/server/fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static struct rps_service *service;
static struct peer *peer;

static void
begin(void)
{
    service = service_of(0, 1, NULL, 60000);
    peer = peer_greet(service, "none", 0, 0, "1");
}

static void
end(void)
{
    peer_close(peer);
    rps_service_destroy(service);
}

static json_t *
answer_of(struct peer *who, uint16_t opcode, const char *text)
{
    const struct rps_header header = request_of(who, opcode);
    char *got = NULL;
    json_t *object;

    ask(who, &header, text, RPS_OK, &got);
    object = json_loads(got, 0, NULL);
    ck_assert_msg(json_is_object(object), "%s", got);
    free(got);
    return object;
}

static void
refused(struct peer *who, uint16_t opcode, const char *text, rps_status status,
        const char *part)
{
    const struct rps_header header = request_of(who, opcode);
    struct answer answer = wait_answer(who, send_text(who, &header, text));

    check_refused(&answer, status, part);
}

static json_int_t
figure(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);

    ck_assert_msg(json_is_integer(value), "no number %s", name);
    return json_integer_value(value);
}

/* The figure of a table in STAT. */
static json_int_t
stat_figure(size_t table, const char *name)
{
    json_t *stat = stat_of(peer);
    const json_int_t value = figure(
            json_array_get(json_object_get(stat, "tables"), table), name);

    json_decref(stat);
    return value;
}

static void
push_ones(struct peer *who, uint64_t step, uint64_t table, uint64_t first,
        size_t n)
{
    uint64_t keys[64];
    float gradients[64];

    ck_assert_uint_le(n, 64);
    for (size_t i = 0; i < n; i++) {
        keys[i] = first + i;
        gradients[i] = 1;
    }
    push(who, step, table, n, keys, gradients, 1);
}

/* --- ALTER_TABLE --------------------------------------------------------- */

START_TEST(alter_changes_the_named_fields_and_leaves_the_others)
{
    const uint64_t key = 7;
    const json_t *spec;
    json_t *answer;
    uint64_t table;
    float row = 0;

    begin();
    table = open_table(peer, "emb", 1);
    answer = answer_of(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"learning_rate\":0.25,"
            "\"clip_value\":8}}");
    spec = json_object_get(answer, "spec");
    ck_assert(json_real_value(json_object_get(spec, "learning_rate")) == 0.25);
    ck_assert(json_real_value(json_object_get(spec, "clip_value")) == 8.0);
    ck_assert_str_eq(
            json_string_value(json_object_get(spec, "initializer")), "zeros");
    json_decref(answer);
    push(peer, 1, table, 1, &key, (const float[]){16}, 1);
    (void)lookup(peer, table, 1, &key, 1, &row);
    ck_assert_float_eq(row, -2.0f); /* 16 is clipped to 8, times 0.25 */
    end();
}
END_TEST

START_TEST(after_alter_the_old_spec_is_a_mismatch_and_the_new_one_opens)
{
    begin();
    (void)open_table(peer, "emb", 1);
    json_decref(answer_of(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"learning_rate\":0.25}}"));
    refused(peer, RPS_OP_GET_EMBEDDING_TABLE,
            "{\"name\":\"emb\",\"dimension\":1,\"optimizer\":\"sgd\","
            "\"initializer\":\"zeros\",\"learning_rate\":1.0}",
            RPS_E_MISMATCH, "learning_rate is 0.25 here and 1");
    json_decref(answer_of(peer, RPS_OP_GET_EMBEDDING_TABLE,
            "{\"name\":\"emb\",\"dimension\":1,\"optimizer\":\"sgd\","
            "\"initializer\":\"zeros\",\"learning_rate\":0.25}"));
    end();
}
END_TEST

START_TEST(alter_refuses_what_it_cannot_change_by_name)
{
    begin();
    (void)open_table(peer, "emb", 1);
    refused(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"dimension\":2}}", RPS_E_MISMATCH,
            "table emb: dimension is part of what the table is");
    refused(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"learning_rat\":2}}", RPS_E_INVAL,
            "no field \"learning_rat\"; did you mean \"learning_rate\"?");
    refused(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"learning_rate\":\"fast\"}}",
            RPS_E_INVAL, "learning_rate must be a number");
    refused(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"clip_norm\":-1}}", RPS_E_INVAL,
            "clip_norm");
    refused(peer, RPS_OP_ALTER_TABLE, "{\"table\":\"emb\",\"set\":{}}",
            RPS_E_INVAL, "nothing to change");
    refused(peer, RPS_OP_ALTER_TABLE, "{\"table\":\"emb\"}", RPS_E_INVAL,
            "nothing to change");
    refused(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"other\",\"set\":{\"rho\":0.5}}", RPS_E_NOT_FOUND,
            "no table other");
    refused(peer, RPS_OP_ALTER_TABLE, "{\"set\":{\"rho\":0.5}}", RPS_E_INVAL,
            "table must be a table's name");
    refused(peer, RPS_OP_ALTER_TABLE, "[]", RPS_E_INVAL, "object");
    end();
}
END_TEST

START_TEST(a_numbered_alter_takes_effect_once)
{
    struct rps_header header;
    json_t *stat;
    const json_t *spec;

    begin();
    (void)open_table(peer, "emb", 1);
    header = request_of(peer, RPS_OP_ALTER_TABLE);
    header.number = 1;
    ask(peer, &header, "{\"table\":\"emb\",\"set\":{\"learning_rate\":0.5}}",
            RPS_OK, NULL);
    header = request_of(peer, RPS_OP_ALTER_TABLE);
    header.number = 2;
    ask(peer, &header, "{\"table\":\"emb\",\"set\":{\"learning_rate\":2}}",
            RPS_OK, NULL);
    header = request_of(peer, RPS_OP_ALTER_TABLE);
    header.number = 1; /* again: it got its verdict */
    ask(peer, &header, "{\"table\":\"emb\",\"set\":{\"learning_rate\":0.5}}",
            RPS_OK, NULL);
    stat = stat_of(peer);
    spec = json_object_get(
            json_array_get(json_object_get(stat, "tables"), 0), "spec");
    ck_assert(json_real_value(json_object_get(spec, "learning_rate")) == 2.0);
    json_decref(stat);
    end();
}
END_TEST

START_TEST(requests_of_another_epoch_are_rolled_back)
{
    static const uint16_t opcodes[] = {RPS_OP_ALTER_TABLE, RPS_OP_ERASE,
            RPS_OP_EVICT, RPS_OP_DROP, RPS_OP_HOT_KEYS, RPS_OP_SCAN};

    begin();
    (void)open_table(peer, "emb", 1);
    peer->epoch = 3;
    for (size_t i = 0; i < sizeof(opcodes) / sizeof(opcodes[0]); i++) {
        refused(peer, opcodes[i],
                "{\"table\":\"emb\",\"set\":{\"learning_rate\":0.5}}",
                RPS_E_ROLLED_BACK, "epoch 3");
    }
    peer->epoch = 0;
    ck_assert_int_eq(stat_figure(0, "rows"), 0);
    end();
}
END_TEST

/* --- ERASE --------------------------------------------------------------- */

static uint64_t
send_erase(struct peer *who, uint64_t table, size_t n, const uint64_t *keys)
{
    const struct rps_header header = request_of(who, RPS_OP_ERASE);
    const struct rps_section section = {
            .table_id = table, .kind = RPS_SECTION_KEYS, .count = n};
    struct rps_builder builder;

    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &section, keys);
    return send_builder(who, &builder);
}

static json_int_t
erase(uint64_t table, size_t n, const uint64_t *keys)
{
    struct answer answer = wait_answer(peer, send_erase(peer, table, n, keys));
    char *text = rps_message_text(&answer.message);
    json_t *object = text != NULL ? json_loads(text, 0, NULL) : NULL;
    json_int_t erased;

    ck_assert_msg(answer.header.status == RPS_OK, "%s", text);
    erased = figure(
            json_array_get(json_object_get(object, "tables"), 0), "erased");
    json_decref(object);
    free(text);
    answer_finish(&answer);
    return erased;
}

START_TEST(erased_rows_are_gone_and_come_back_fresh)
{
    const uint64_t keys[4] = {2, 99, 2, 3}; /* 99 is absent, 2 twice */
    float rows[4];
    uint64_t table;

    begin();
    table = open_table(peer, "emb", 1);
    push_ones(peer, 1, table, 0, 5);
    ck_assert_int_eq(erase(table, 4, keys), 2);
    ck_assert_int_eq(stat_figure(0, "rows"), 3);
    ck_assert_int_eq(stat_figure(0, "erased"), 2);
    (void)lookup(peer, table, 4, keys, 1, rows);
    ck_assert_float_eq(rows[0], 0);
    push_ones(peer, 2, table, 2, 1);
    (void)lookup(peer, table, 4, keys, 1, rows);
    ck_assert_float_eq(rows[0], -1);
    ck_assert_int_eq(erase(table, 0, keys), 0);
    end();
}
END_TEST

START_TEST(erase_checks_table_route_and_kind)
{
    const uint64_t none = 1;
    struct rps_service *two = service_of(1, 2, NULL, 60000);
    struct peer *other = peer_greet(two, "none", 0, 0, "2");
    struct answer answer;
    uint64_t keys[16];

    begin();
    for (uint64_t i = 0; i < 16; i++) {
        keys[i] = i; /* some of them are PS 0's */
    }
    (void)open_table(other, "emb", 1);
    answer = wait_answer(
            other, send_erase(other, rps_table_id("emb"), 16, keys));
    check_refused(&answer, RPS_E_WRONG_ROUTE, "belongs to PS 0");
    answer = wait_answer(
            other, send_erase(other, rps_table_id("nobody"), 1, &none));
    check_refused(&answer, RPS_E_NOT_FOUND, "is not open here");
    json_decref(answer_of(peer, RPS_OP_GET_EMBEDDING_TABLE,
            "{\"name\":\"w\",\"dimension\":1024,\"optimizer\":\"sgd\","
            "\"initializer\":\"zeros\",\"dense_elements\":2000}"));
    answer = wait_answer(peer, send_erase(peer, rps_table_id("w"), 1, &none));
    check_refused(&answer, RPS_E_INVAL, "table w is a dense variable");
    refused(peer, RPS_OP_EVICT, "{\"table\":\"w\"}", RPS_E_INVAL,
            "table w is a dense variable");
    peer_close(other);
    rps_service_destroy(two);
    end();
}
END_TEST

/* --- DROP ---------------------------------------------------------------- */

START_TEST(a_dropped_table_is_not_found_and_its_name_is_free)
{
    const struct rps_section section = {.table_id = rps_table_id("a"),
            .kind = RPS_SECTION_KEYS,
            .count = 1};
    const uint64_t key = 3;
    struct rps_header header;
    struct rps_builder builder;
    struct answer answer;
    json_t *dropped;
    uint64_t a, b;
    float rows[2];

    begin();
    a = open_table(peer, "a", 1);
    b = open_table(peer, "b", 1);
    push_ones(peer, 1, a, 0, 5);
    push_ones(peer, 1, b, 0, 7);
    dropped = answer_of(peer, RPS_OP_DROP, "{\"table\":\"a\"}");
    ck_assert_int_eq(figure(dropped, "rows"), 5);
    json_decref(dropped);
    header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &section, &key);
    answer = wait_answer(peer, send_builder(peer, &builder));
    check_refused(&answer, RPS_E_NOT_FOUND, "GET_EMBEDDING_TABLE comes first");
    refused(peer, RPS_OP_DROP, "{\"table\":\"a\"}", RPS_E_NOT_FOUND,
            "no table a");
    ck_assert_int_eq(stat_figure(0, "rows"), 7); /* b is the first now */
    a = open_table(peer, "a", 2);
    (void)lookup(peer, a, 1, &key, 2, rows);
    ck_assert_float_eq(rows[0], 0);
    (void)lookup(peer, b, 1, &key, 1, rows);
    ck_assert_float_eq(rows[0], -1);
    end();
}
END_TEST

START_TEST(what_is_unsaved_of_a_dropped_table_is_not_told)
{
    char *words;
    uint64_t table;

    begin();
    table = open_table(peer, "emb", 1);
    push_ones(peer, 1, table, 0, 5);
    json_decref(answer_of(peer, RPS_OP_DROP, "{\"table\":\"emb\"}"));
    words = rps_service_unsaved(service);
    ck_assert_str_eq(words, "nothing unsaved");
    free(words);
    end();
}
END_TEST

START_TEST(a_dense_variable_of_a_job_is_dropped_by_its_chief_alone)
{
    static const char spec[] =
            "{\"name\":\"w\",\"dimension\":1024,\"optimizer\":\"sgd\","
            "\"initializer\":\"zeros\",\"dense_elements\":2000}";
    struct peer *chief;

    begin();
    json_decref(answer_of(peer, RPS_OP_GET_EMBEDDING_TABLE, spec));
    json_decref(answer_of(peer, RPS_OP_DROP, "{\"table\":\"w\"}")); /* no job */
    chief = peer_greet(service, "chief", 0, 1, "2");
    begin_job(chief, 1, 0, "async", 1);
    peer->epoch = 1;
    json_decref(answer_of(chief, RPS_OP_GET_EMBEDDING_TABLE, spec));
    refused(peer, RPS_OP_DROP, "{\"table\":\"w\"}", RPS_E_INVAL,
            "only the job's chief");
    json_decref(answer_of(chief, RPS_OP_DROP, "{\"table\":\"w\"}"));
    peer_close(chief);
    end();
}
END_TEST

/* The rest of a split push comes after its table was made anew, narrower:
 * what was checked with the first frame does not hold any more. */
START_TEST(a_split_push_that_meets_a_drop_is_checked_again)
{
    const uint64_t keys[1] = {5};
    const float gradients[4] = {1, 2, 3, 4};
    struct peer *other;
    struct rps_header header;
    struct rps_builder builder;
    struct answer answer;
    uint64_t table;

    begin();
    other = peer_greet(service, "none", 0, 0, "2");
    table = open_table(peer, "emb", 4);
    header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    header.flags = RPS_FLAG_MORE;
    header.step = 1;
    build_push(&builder, &header, table, 1, keys, gradients, 4);
    answer = wait_answer(peer, send_builder(peer, &builder));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    json_decref(answer_of(other, RPS_OP_DROP, "{\"table\":\"emb\"}"));
    (void)open_table(other, "emb", 1);
    answer = wait_answer(
            peer, send_push(peer, 1, 0, table, 1, keys, gradients, 1));
    check_refused(&answer, RPS_E_INVAL, "ROWS has dim 4");
    ck_assert_int_eq(stat_figure(0, "rows"), 0);
    peer_close(other);
    end();
}
END_TEST

START_TEST(what_a_step_of_sync_pushed_to_a_dropped_table_is_void)
{
    const uint64_t key = 5;
    const float gradients[4] = {1, 2, 3, 4};
    struct rps_wire_decision decision;
    struct peer *chief;
    uint64_t emb, other;
    float row = 1;

    service = service_of(0, 1, NULL, 60000);
    chief = peer_greet(service, "chief", 0, 1, "1");
    begin_job(chief, 1, 0, "sync", 1);
    emb = open_table(chief, "emb", 4);
    other = open_table(chief, "other", 1);
    join_all(&chief, 1);
    push(chief, 1, emb, 1, &key, gradients, 4);
    json_decref(answer_of(chief, RPS_OP_DROP, "{\"table\":\"emb\"}"));
    emb = open_table(chief, "emb", 1); /* another one of this name */
    decision = wait_decision(chief, send_step_end(chief, 1, 0, "null", ""));
    apply(chief, &decision, RPS_OK);
    rps_decision_finish(&decision);
    (void)lookup(chief, emb, 1, &key, 1, &row);
    ck_assert_float_eq(row, 0);
    (void)lookup(chief, other, 1, &key, 1, &row);
    ck_assert_float_eq(row, 0);
    peer_close(chief);
    rps_service_destroy(service);
}
END_TEST

/* --- EVICT, SCAN, HOT_KEYS ----------------------------------------------- */

/* A table that no push has reached does not know how late it is. */
START_TEST(an_assigned_row_is_as_old_as_the_newest_step)
{
    const uint64_t key = 7;
    const float row = 3;
    struct rps_section keys_of = {.kind = RPS_SECTION_KEYS, .count = 1};
    struct rps_section rows_of = {
            .kind = RPS_SECTION_ROWS, .dim = 1, .count = 1};
    struct rps_header header;
    struct rps_builder builder;
    struct answer answer;
    uint64_t a;

    begin();
    a = open_table(peer, "a", 1);
    push_ones(peer, 1000, a, 0, 1);
    rows_of.table_id = keys_of.table_id = open_table(peer, "b", 1);
    json_decref(answer_of(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"b\",\"set\":{\"max_cold_steps\":10}}"));
    header = request_of(peer, RPS_OP_ASSIGN);
    rps_builder_begin(&builder, &header, 2);
    rps_builder_add(&builder, &keys_of, &key);
    rps_builder_add(&builder, &rows_of, &row);
    answer = wait_answer(peer, send_builder(peer, &builder));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    json_decref(answer_of(peer, RPS_OP_EVICT, "{\"table\":\"b\"}"));
    ck_assert_int_eq(stat_figure(1, "rows"), 1);
    end();
}
END_TEST

START_TEST(evict_reports_each_table)
{
    const json_t *list;
    json_t *answer;
    uint64_t a, b;

    begin();
    a = open_table(peer, "a", 1);
    b = open_table(peer, "b", 1);
    json_decref(answer_of(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"a\",\"set\":{\"max_cold_steps\":10}}"));
    json_decref(answer_of(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"b\",\"set\":{\"max_cold_steps\":1000}}"));
    push_ones(peer, 1, a, 0, 40);
    push_ones(peer, 20, a, 0, 4);
    push_ones(peer, 20, b, 0, 3);
    answer = answer_of(peer, RPS_OP_EVICT, "{}");
    list = json_object_get(answer, "tables");
    ck_assert_uint_eq(json_array_size(list), 2);
    /* a slice of the background may have been first */
    ck_assert_int_eq(stat_figure(0, "evicted_cold"), 36);
    ck_assert_int_eq(stat_figure(0, "rows"), 4);
    ck_assert_int_eq(figure(json_array_get(list, 1), "examined"), 3);
    ck_assert_int_eq(figure(json_array_get(list, 1), "cold"), 0);
    (void)figure(json_array_get(list, 0), "full");
    (void)figure(json_array_get(list, 0), "bytes_before");
    (void)figure(json_array_get(list, 0), "bytes_after");
    json_decref(answer);
    answer = answer_of(peer, RPS_OP_EVICT, "{\"table\":\"b\"}");
    ck_assert_uint_eq(json_array_size(json_object_get(answer, "tables")), 1);
    json_decref(answer);
    refused(peer, RPS_OP_EVICT, "{\"table\":\"c\"}", RPS_E_NOT_FOUND,
            "no table c");
    end();
}
END_TEST

/* One SCAN; appends to keys. True: it was the end. */
static bool
scan(const char *table, json_t **cursor, uint64_t max, uint64_t *keys,
        size_t *count)
{
    const struct rps_header header = request_of(peer, RPS_OP_SCAN);
    const struct rps_section *keys_of, *meta_of;
    struct answer answer;
    json_t *request = *cursor != NULL ? json_incref(*cursor) : json_object();
    char *text;
    bool ended;

    json_object_set_new(request, "table", json_string(table));
    json_object_set_new(request, "max", json_integer((json_int_t)max));
    text = json_dumps(request, 0);
    answer = wait_answer(peer, send_text(peer, &header, text));
    free(text);
    json_decref(request);
    json_decref(*cursor);
    text = rps_message_text(&answer.message);
    ck_assert_msg(answer.header.status == RPS_OK, "%s", text);
    *cursor = json_loads(text, 0, NULL);
    free(text);
    keys_of = rps_message_find(
            &answer.message, RPS_SECTION_KEYS, rps_table_id(table));
    meta_of = rps_message_find(
            &answer.message, RPS_SECTION_META, rps_table_id(table));
    ck_assert_ptr_nonnull(keys_of);
    ck_assert_ptr_nonnull(meta_of);
    ck_assert_uint_eq(keys_of->count, meta_of->count);
    ck_assert_uint_le(keys_of->count, max);
    if (keys_of->count > 0) {
        memcpy(keys + *count, rps_message_array(&answer.message, keys_of),
                keys_of->count * sizeof(*keys));
    }
    *count += keys_of->count;
    ended = json_is_true(json_object_get(*cursor, "end"));
    ck_assert(ended == (keys_of->count == 0));
    answer_finish(&answer);
    return ended;
}

static int
by_value(const void *a, const void *b)
{
    const uint64_t left = *(const uint64_t *)a;
    const uint64_t right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

START_TEST(a_scan_sees_every_key_once)
{
    uint64_t keys[128];
    size_t count = 0;
    json_t *cursor = NULL;
    uint64_t table;

    begin();
    table = open_table(peer, "emb", 1);
    push_ones(peer, 1, table, 0, 64);
    push_ones(peer, 1, table, UINT64_MAX - 35, 36);
    while (!scan("emb", &cursor, 7, keys, &count)) {
        ck_assert_uint_lt(count, 120);
    }
    ck_assert_uint_eq(count, 100);
    qsort(keys, count, sizeof(*keys), by_value);
    for (size_t i = 0; i < 64; i++) {
        ck_assert_uint_eq(keys[i], i);
    }
    ck_assert_uint_eq(keys[99], UINT64_MAX);
    ck_assert_uint_eq(keys[64], UINT64_MAX - 35);
    json_decref(cursor);
    end();
}
END_TEST

START_TEST(a_scan_of_any_cursor_is_safe)
{
    static const char *const cursors[] = {
            "{\"table\":\"emb\",\"place\":\"18446744073709551615\","
            "\"hash\":\"18446744073709551615\",\"key\":\"0\"}",
            "{\"table\":\"emb\",\"place\":12345,\"hash\":1,\"key\":2}",
            "{\"table\":\"emb\",\"place\":1,\"hash\":"
            "\"18446744073709551615\",\"key\":\"18446744073709551615\"}"};
    uint64_t table;

    begin();
    table = open_table(peer, "emb", 1);
    push_ones(peer, 1, table, 0, 64);
    for (size_t i = 0; i < sizeof(cursors) / sizeof(cursors[0]); i++) {
        json_decref(answer_of(peer, RPS_OP_SCAN, cursors[i]));
    }
    refused(peer, RPS_OP_SCAN, "{\"table\":\"emb\",\"max\":0}", RPS_E_INVAL,
            "max is 0");
    refused(peer, RPS_OP_SCAN, "{\"table\":\"emb\",\"max\":65537}", RPS_E_INVAL,
            "max");
    refused(peer, RPS_OP_SCAN, "{\"table\":\"emb\",\"place\":-1}", RPS_E_INVAL,
            "place");
    refused(peer, RPS_OP_SCAN, "{\"table\":\"nobody\"}", RPS_E_NOT_FOUND,
            "no table nobody");
    end();
}
END_TEST

START_TEST(hot_keys_are_told_most_first)
{
    uint64_t keys[64];
    float gradients[64];
    const json_t *list;
    json_t *answer;
    uint64_t table;
    uint64_t key = 0;

    begin();
    table = open_table(peer, "emb", 1);
    for (uint64_t step = 1; step <= 600; step++) {
        for (size_t i = 0; i < 64; i++) { /* half of the traffic is key 9 */
            keys[i] = i % 2 == 0 ? 9 : step * 64 + i;
            gradients[i] = 1;
        }
        push(peer, step, table, 64, keys, gradients, 1);
    }
    answer = answer_of(peer, RPS_OP_HOT_KEYS, "{\"table\":\"emb\",\"max\":3}");
    list = json_object_get(answer, "keys");
    ck_assert_uint_ge(json_array_size(list), 1);
    ck_assert_uint_le(json_array_size(list), 3);
    key = strtoull(
            json_string_value(json_array_get(json_array_get(list, 0), 0)), NULL,
            10);
    ck_assert_uint_eq(key, 9);
    json_decref(answer);
    answer = answer_of(peer, RPS_OP_HOT_KEYS, "{\"table\":\"emb\",\"max\":0}");
    ck_assert_uint_eq(json_array_size(json_object_get(answer, "keys")), 0);
    json_decref(answer);
    refused(peer, RPS_OP_HOT_KEYS, "{\"table\":\"emb\",\"max\":513}",
            RPS_E_INVAL, "max is 513; at most 512");
    end();
}
END_TEST

/* --- the keeper ---------------------------------------------------------- */

START_TEST(a_slice_that_took_too_long_is_followed_by_a_shorter_one)
{
    ck_assert_uint_eq(rps_keeper_lines(1000, 400000, true), 375);
    ck_assert_uint_eq(rps_keeper_lines(1000, 10000, true), 2000);
    ck_assert_uint_eq(rps_keeper_lines(1000, 10000, false), 1000);
    ck_assert_uint_eq(rps_keeper_lines(1000, 150000, true), 1000);
    ck_assert_uint_eq(
            rps_keeper_lines(16, UINT64_MAX / 2, true), RPS_SLICE_LINES_MIN);
    ck_assert_uint_eq(rps_keeper_lines(60000, 1, true), RPS_SLICE_LINES_MAX);
}
END_TEST

/* Without a thread of its own (embedded) pushes do the slices. */
START_TEST(pushes_keep_the_tables_up_where_no_thread_does)
{
    uint64_t table;

    begin();
    table = open_table(peer, "emb", 1);
    json_decref(answer_of(peer, RPS_OP_ALTER_TABLE,
            "{\"table\":\"emb\",\"set\":{\"max_cold_steps\":10}}"));
    push_ones(peer, 1, table, 0, 64);
    for (uint64_t step = 100; step < 200; step++) {
        push_ones(peer, step, table, 1000, 1);
    }
    ck_assert_int_eq(stat_figure(0, "evicted_cold"), 64);
    ck_assert_int_eq(stat_figure(0, "rows"), 1);
    end();
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("policy");
    TCase *tcase = tcase_create("requests");

    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, alter_changes_the_named_fields_and_leaves_the_others);
    tcase_add_test(tcase,
            after_alter_the_old_spec_is_a_mismatch_and_the_new_one_opens);
    tcase_add_test(tcase, alter_refuses_what_it_cannot_change_by_name);
    tcase_add_test(tcase, a_numbered_alter_takes_effect_once);
    tcase_add_test(tcase, requests_of_another_epoch_are_rolled_back);
    tcase_add_test(tcase, erased_rows_are_gone_and_come_back_fresh);
    tcase_add_test(tcase, erase_checks_table_route_and_kind);
    tcase_add_test(tcase, a_dropped_table_is_not_found_and_its_name_is_free);
    tcase_add_test(tcase, what_is_unsaved_of_a_dropped_table_is_not_told);
    tcase_add_test(
            tcase, a_dense_variable_of_a_job_is_dropped_by_its_chief_alone);
    tcase_add_test(tcase, a_split_push_that_meets_a_drop_is_checked_again);
    tcase_add_test(
            tcase, what_a_step_of_sync_pushed_to_a_dropped_table_is_void);
    tcase_add_test(tcase, evict_reports_each_table);
    tcase_add_test(tcase, an_assigned_row_is_as_old_as_the_newest_step);
    tcase_add_test(tcase, a_scan_sees_every_key_once);
    tcase_add_test(tcase, a_scan_of_any_cursor_is_safe);
    tcase_add_test(tcase, hot_keys_are_told_most_first);
    tcase_add_test(
            tcase, a_slice_that_took_too_long_is_followed_by_a_shorter_one);
    tcase_add_test(tcase, pushes_keep_the_tables_up_where_no_thread_does);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
