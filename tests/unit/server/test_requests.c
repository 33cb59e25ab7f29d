/* SPDX-License-Identifier: Apache-2.0 */
/* Values are worked out by hand: sgd with learning rate 1 from zeros is the
 * negative sum of the gradients. */
#include "proto/route.h"
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void
refuse_hello(struct rps_service *service, const char *text, rps_status status,
        const char *part)
{
    struct peer *peer = peer_open(service);
    const struct rps_header header = request_of(peer, RPS_OP_HELLO);
    struct answer answer = wait_answer(peer, send_text(peer, &header, text));

    check_refused(&answer, status, part);
    peer_close(peer);
}

#define HELLO(versions, job, seed, count, index, rest)                       \
    "{\"versions\":" versions ",\"job_id\":\"" job "\",\"job_seed\":\"" seed \
    "\",\"ps_count\":" count ",\"ps_index\":" index ",\"role\":\"" rest "}"

START_TEST(hello_of_another_job_is_a_mismatch_that_names_both_values)
{
    struct rps_service *service = service_of(1, 3, NULL, 60000);

    refuse_hello(service, HELLO("[2,3]", "test", "0", "3", "1", "none\""),
            RPS_E_MISMATCH, "versions 2 to 3");
    refuse_hello(service, HELLO("[1,1]", "other", "0", "3", "1", "none\""),
            RPS_E_MISMATCH, "\"test\" here and \"other\"");
    refuse_hello(service, HELLO("[1,1]", "test", "7", "3", "1", "none\""),
            RPS_E_MISMATCH, "job_seed is 0 here and 7");
    refuse_hello(service, HELLO("[1,1]", "test", "0", "2", "1", "none\""),
            RPS_E_MISMATCH, "ps_count is 3 here and 2");
    refuse_hello(service, HELLO("[1,1]", "test", "0", "3", "0", "none\""),
            RPS_E_MISMATCH, "ps_index is 1 here and 0");
    refuse_hello(service, HELLO("[1,1]", "test", "0", "3", "1", "boss\""),
            RPS_E_INVAL, "role is \"boss\"");
    refuse_hello(service,
            HELLO("[1,1]", "test", "0", "3", "1",
                    "worker\",\"rank\":2,\"replicas\":2"),
            RPS_E_INVAL, "rank 2 of 2");
    refuse_hello(service,
            HELLO("[1,1]", "test", "0", "3", "1", "worker\",\"replicas\":2"),
            RPS_E_INVAL, "name their rank");
    refuse_hello(service, "[]", RPS_E_INVAL, "object");
    refuse_hello(service, "{", RPS_E_INVAL, "column");
    refuse_hello(service, NULL, RPS_E_INVAL, "text section");
    rps_service_destroy(service);
}
END_TEST

START_TEST(hello_tells_of_another_fingerprint_and_goes_on)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_open(service);
    const struct rps_header header = request_of(peer, RPS_OP_HELLO);

    ask(peer, &header,
            HELLO("[1,1]", "test", "0", "1", "0",
                    "none\",\"fingerprint\":\"beef\""),
            RPS_OK, NULL);
    pthread_mutex_lock(&rps_events.lock);
    ck_assert_str_eq(rps_events.last_event, "fingerprint_differs");
    pthread_mutex_unlock(&rps_events.lock);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(requests_before_hello_or_unknown_are_refused)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_open(service);
    struct rps_header header = request_of(peer, RPS_OP_PING);
    struct answer answer = wait_answer(peer, send_text(peer, &header, NULL));

    check_refused(&answer, RPS_E_INVAL, "HELLO comes first");
    peer_close(peer);
    peer = peer_greet(service, "none", 0, 0, "1");
    header = request_of(peer, RPS_OP_ROUTE);
    answer = wait_answer(peer, send_text(peer, &header, NULL));
    check_refused(&answer, RPS_E_UNSUPPORTED, "ROUTE");
    header = request_of(peer, RPS_OP_PING);
    header.flags = RPS_FLAG_MORE;
    answer = wait_answer(peer, send_text(peer, &header, NULL));
    check_refused(&answer, RPS_E_UNSUPPORTED, "flags");
    header = request_of(peer, RPS_OP_STEP_END);
    answer = wait_answer(peer, send_text(peer, &header, "{}"));
    check_refused(&answer, RPS_E_INVAL, "named no rank");
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_push_of_async_is_seen_by_the_next_lookup)
{
    const uint64_t keys[3] = {0, UINT64_MAX, 0};
    const float gradients[6] = {1, 2, 3, 4, 0.5f, 0.25f};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    uint64_t id = open_table(peer, "emb", 2);
    float rows[6];

    ck_assert_uint_eq(lookup(peer, id, 3, keys, 2, rows), 0);
    ck_assert_float_eq(rows[0], 0);
    push(peer, 7, id, 3, keys, gradients, 2);
    ck_assert_uint_eq(lookup(peer, id, 3, keys, 2, rows), 7);
    ck_assert_float_eq(rows[0], -1.5f);
    ck_assert_float_eq(rows[1], -2.25f);
    ck_assert_float_eq(rows[2], -3);
    ck_assert_float_eq(rows[3], -4);
    push(peer, 3, id, 1, keys, gradients, 2);
    ck_assert_uint_eq(lookup(peer, id, 1, keys, 2, rows), 7);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(one_bad_table_of_a_lookup_spares_the_others)
{
    const uint64_t key = 5;
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t good = open_table(peer, "emb", 4);
    const struct rps_section sections[2] = {
            {.table_id = 99, .kind = RPS_SECTION_KEYS, .count = 1},
            {.table_id = good, .kind = RPS_SECTION_KEYS, .count = 1}};
    const struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    const struct rps_section *rows;
    struct rps_builder builder;
    struct answer answer;

    rps_builder_begin(&builder, &header, 2);
    rps_builder_add(&builder, &sections[0], &key);
    rps_builder_add(&builder, &sections[1], &key);
    answer = wait_answer(peer, send_builder(peer, &builder));
    rows = rps_message_find(&answer.message, RPS_SECTION_ROWS, 99);
    ck_assert_ptr_nonnull(rows);
    ck_assert_int_eq(rows->status, RPS_E_NOT_FOUND);
    rows = rps_message_find(&answer.message, RPS_SECTION_ROWS, good);
    ck_assert_ptr_nonnull(rows);
    ck_assert_int_eq(rows->status, RPS_OK);
    ck_assert_uint_eq(rows->count, 1);
    check_refused(&answer, RPS_E_NOT_FOUND, "0000000000000063");
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

static struct answer
push_sections(struct peer *peer, uint16_t opcode,
        const struct rps_section *sections, size_t count)
{
    static const uint64_t zeros[64];
    const struct rps_header header = request_of(peer, opcode);
    struct rps_builder builder;

    rps_builder_begin(&builder, &header, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        rps_builder_add(&builder, &sections[i], zeros);
    }
    return wait_answer(peer, send_builder(peer, &builder));
}

START_TEST(sections_that_do_not_fit_are_named)
{
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "emb", 4);
    const struct rps_section keys = {
            .table_id = id, .kind = RPS_SECTION_KEYS, .count = 2};
    const struct rps_section rows = {
            .table_id = id, .kind = RPS_SECTION_ROWS, .dim = 4, .count = 2};
    struct rps_section bad[3] = {keys, rows, rows};
    struct answer answer;

    answer = push_sections(peer, RPS_OP_PUSH_GRADIENTS, bad, 1);
    check_refused(&answer, RPS_E_INVAL, "no ROWS section");
    answer = push_sections(peer, RPS_OP_PUSH_GRADIENTS, bad + 1, 1);
    check_refused(&answer, RPS_E_INVAL, "no KEYS section");
    answer = push_sections(peer, RPS_OP_PUSH_GRADIENTS, bad, 3);
    check_refused(&answer, RPS_E_INVAL, "twice");
    answer = push_sections(peer, RPS_OP_EMBEDDING_LOOKUP, bad, 2);
    check_refused(&answer, RPS_E_INVAL, "no place");
    bad[2] = keys;
    answer = push_sections(peer, RPS_OP_PUSH_GRADIENTS, bad, 3);
    check_refused(&answer, RPS_E_INVAL, "second KEYS");
    bad[1].dim = 3;
    answer = push_sections(peer, RPS_OP_PUSH_GRADIENTS, bad, 2);
    check_refused(&answer, RPS_E_INVAL, "dim 3, but the table's is 4");
    bad[1] = rows;
    bad[1].count = 1;
    answer = push_sections(peer, RPS_OP_PUSH_GRADIENTS, bad, 2);
    check_refused(&answer, RPS_E_INVAL, "count 1, but there are 2 keys");
    bad[1] = rows;
    bad[1].value = RPS_VALUE_F16;
    answer = push_sections(peer, RPS_OP_ASSIGN, bad, 2);
    check_refused(&answer, RPS_E_UNSUPPORTED, "value type 1");
    bad[1] = rows;
    bad[2] = rows;
    bad[2].kind = RPS_SECTION_SLOTS;
    answer = push_sections(peer, RPS_OP_ASSIGN, bad, 3);
    check_refused(&answer, RPS_E_INVAL, "sgd");
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* A key that PS `owner` of 2 owns. */
static uint64_t
key_owned_by(uint32_t owner)
{
    struct rps_route route;
    uint64_t key = 0;

    rps_route_init(&route, 2);
    while (rps_route_owner(&route, rps_key_hash(key, 0)) != owner) {
        key++;
    }
    return key;
}

START_TEST(keys_of_another_ps_change_nothing)
{
    struct rps_service *service = service_of(1, 2, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "emb", 1);
    const uint64_t keys[2] = {key_owned_by(1), key_owned_by(0)};
    const float gradients[2] = {1, 1};
    float row[1];
    struct answer answer =
            wait_answer(peer, send_push(peer, 1, 0, id, 2, keys, gradients, 1));

    check_refused(&answer, RPS_E_WRONG_ROUTE, "belongs to PS 0");
    lookup(peer, id, 1, keys, 1, row);
    ck_assert_float_eq(row[0], 0);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* REFRESH of keys in one table; the caller finishes the answer. */
static struct answer
refresh(struct peer *peer, uint64_t id, uint64_t since, size_t n,
        const uint64_t *keys)
{
    const struct rps_section keys_of = {
            .table_id = id, .kind = RPS_SECTION_KEYS, .count = n};
    struct rps_header header = request_of(peer, RPS_OP_REFRESH);
    struct rps_builder builder;
    struct answer answer;

    header.step = since;
    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &keys_of, keys);
    answer = wait_answer(peer, send_builder(peer, &builder));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    return answer;
}

START_TEST(refresh_answers_the_rows_that_changed_since)
{
    const uint64_t keys[3] = {1, 2, 3};
    const float gradient[2] = {1, 2};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "emb", 2);
    const struct rps_section *section;
    const uint32_t *positions;
    const float *rows;
    struct answer answer;

    push(peer, 1, id, 1, &keys[0], gradient, 2);
    push(peer, 2, id, 1, &keys[2], gradient, 2);
    answer = refresh(peer, id, 2, 3, keys);
    ck_assert_uint_eq(answer.header.step, 2);
    section = rps_message_find(&answer.message, RPS_SECTION_OFFSETS, id);
    ck_assert_ptr_nonnull(section);
    ck_assert_uint_eq(section->count, 1);
    positions = rps_message_array(&answer.message, section);
    ck_assert_uint_eq(positions[0], 2);
    section = rps_message_find(&answer.message, RPS_SECTION_ROWS, id);
    ck_assert_ptr_nonnull(section);
    rows = rps_message_array(&answer.message, section);
    ck_assert_float_eq(rows[0], -1);
    ck_assert_float_eq(rows[1], -2);
    answer_finish(&answer);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* Async: c = 9 is told, then a replica that is behind pushes step 9 or 3. */
START_TEST(a_push_after_its_step_was_told_is_refreshed)
{
    static const uint64_t steps[] = {9, 3};
    const uint64_t keys[2] = {1, 2};
    const float gradient[1] = {1};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "emb", 1);
    const uint64_t other = open_table(peer, "other", 1);
    const struct rps_section *section;
    struct answer answer;
    float rows[2];

    push(peer, 1, id, 2, keys, (const float[]){1, 1}, 1);
    push(peer, 9, other, 1, keys, gradient, 1);
    ck_assert_uint_eq(lookup(peer, id, 2, keys, 1, rows), 9);
    push(peer, steps[_i], id, 1, &keys[1], gradient, 1);
    answer = refresh(peer, id, 9, 2, keys);
    section = rps_message_find(&answer.message, RPS_SECTION_OFFSETS, id);
    ck_assert_ptr_nonnull(section);
    ck_assert_uint_eq(section->count, 1);
    ck_assert_uint_eq(
            *(const uint32_t *)rps_message_array(&answer.message, section), 1);
    answer_finish(&answer);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(assign_writes_all_tables_or_none)
{
    const uint64_t key = 4;
    const float good[2] = {3, 4};
    const float bad[2] = {1, NAN};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t ids[2] = {
            open_table(peer, "one", 2), open_table(peer, "two", 2)};
    const float *rows[2] = {good, bad};
    struct answer answer;
    float row[2];

    for (int round = 0; round < 2; round++) {
        const struct rps_header header = request_of(peer, RPS_OP_ASSIGN);
        struct rps_builder builder;

        rps_builder_begin(&builder, &header, 4);
        for (int i = 0; i < 2; i++) {
            const struct rps_section keys_of = {
                    .table_id = ids[i], .kind = RPS_SECTION_KEYS, .count = 1};
            const struct rps_section rows_of = {.table_id = ids[i],
                    .kind = RPS_SECTION_ROWS,
                    .dim = 2,
                    .count = 1};

            rps_builder_add(&builder, &keys_of, &key);
            rps_builder_add(&builder, &rows_of, rows[i]);
        }
        answer = wait_answer(peer, send_builder(peer, &builder));
        if (round == 0) {
            check_refused(&answer, RPS_E_NONFINITE, "table two");
            lookup(peer, ids[0], 1, &key, 2, row);
            ck_assert_float_eq(row[0], 0);
            rows[1] = good;
        } else {
            ck_assert_int_eq(answer.header.status, RPS_OK);
            answer_finish(&answer);
        }
    }
    lookup(peer, ids[1], 1, &key, 2, row);
    ck_assert_float_eq(row[1], 4);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(an_answer_beyond_a_frame_is_a_limit)
{
    const size_t n = 600;
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "wide", 8192);
    uint64_t *keys = calloc(n, sizeof(*keys));
    const struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    const struct rps_section keys_of = {
            .table_id = id, .kind = RPS_SECTION_KEYS, .count = n};
    struct rps_builder builder;
    struct answer answer;

    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &keys_of, keys);
    answer = wait_answer(peer, send_builder(peer, &builder));
    check_refused(&answer, RPS_E_LIMIT, "fewer than 600 keys");
    free(keys);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* An answer has more sections than its request: they must fit, too. */
START_TEST(an_answer_of_too_many_tables_is_a_limit)
{
    static const uint16_t opcodes[] = {RPS_OP_EMBEDDING_LOOKUP, RPS_OP_REFRESH};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");

    for (size_t i = 0; i < 2; i++) {
        const struct rps_header header = request_of(peer, opcodes[i]);
        struct rps_section keys = {.kind = RPS_SECTION_KEYS};
        struct rps_builder builder;
        struct answer answer;

        rps_builder_begin(&builder, &header, RPS_SECTIONS_MAX);
        for (keys.table_id = 1; keys.table_id <= RPS_SECTIONS_MAX;
                keys.table_id++) {
            rps_builder_add(&builder, &keys, NULL);
        }
        answer = wait_answer(peer, send_builder(peer, &builder));
        check_refused(&answer, RPS_E_LIMIT, "fewer tables");
    }
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_nonfinite_gradient_is_told_once_and_counted)
{
    const uint64_t key = 11;
    const float gradient[1] = {INFINITY};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "emb", 1);
    unsigned int before;
    json_t *stat;

    pthread_mutex_lock(&rps_events.lock);
    before = rps_events.count;
    pthread_mutex_unlock(&rps_events.lock);
    push(peer, 1, id, 1, &key, gradient, 1);
    push(peer, 2, id, 1, &key, gradient, 1);
    pthread_mutex_lock(&rps_events.lock);
    ck_assert_uint_eq(rps_events.count, before + 1);
    ck_assert_str_eq(rps_events.last_event, "nonfinite_gradient");
    ck_assert_ptr_nonnull(strstr(rps_events.last_text, "key 11"));
    pthread_mutex_unlock(&rps_events.lock);
    stat = stat_of(peer);
    ck_assert_int_eq(json_integer_value(json_object_get(
                             json_array_get(json_object_get(stat, "tables"), 0),
                             "nonfinite")),
            2);
    json_decref(stat);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_step_that_would_wrap_is_refused)
{
    const uint64_t key = 1;
    const float gradient = 1;
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t id = open_table(peer, "emb", 1);
    struct answer answer = wait_answer(
            peer, send_push(peer, UINT64_MAX, 0, id, 1, &key, &gradient, 1));
    float row;

    check_refused(&answer, RPS_E_INVAL, "step 18446744073709551615");
    ck_assert_uint_eq(lookup(peer, id, 1, &key, 1, &row), 0);
    ck_assert_float_eq(row, 0);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(an_infinite_or_negative_learning_rate_is_refused)
{
    static const float rates[] = {INFINITY, -INFINITY, -0.5f};
    const uint64_t key = 1;
    const float gradient = 1;
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const struct rps_header header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    const uint64_t id = open_table(peer, "emb", 1);
    const struct rps_section keys_of = {
            .table_id = id, .kind = RPS_SECTION_KEYS, .count = 1};
    const struct rps_section rows_of = {.table_id = id,
            .kind = RPS_SECTION_ROWS,
            .dim = 1,
            .count = 1,
            .learning_rate = rates[_i]};
    struct rps_builder builder;
    struct answer answer;
    float row;

    rps_builder_begin(&builder, &header, 2);
    rps_builder_add(&builder, &keys_of, &key);
    rps_builder_add(&builder, &rows_of, &gradient);
    answer = wait_answer(peer, send_builder(peer, &builder));
    check_refused(&answer, RPS_E_INVAL, "learning rate");
    lookup(peer, id, 1, &key, 1, &row);
    ck_assert_float_eq(row, 0);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_number_gets_one_verdict_and_a_repeat_the_kept_one)
{
    const uint64_t key = 1;
    const float gradient[2] = {1, 1};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "77");
    struct peer *newer;
    const uint64_t id = open_table(peer, "emb", 1);
    struct answer answer;
    char *text = NULL;
    float row[1];

    for (int i = 0; i < 2; i++) {
        answer = wait_answer(
                peer, send_push(peer, 1, 1, id, 1, &key, gradient, 1));
        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
    }
    answer = wait_answer(peer, send_push(peer, 1, 2, id, 1, &key, gradient, 2));
    check_refused(&answer, RPS_E_INVAL, "dim 2");
    answer = wait_answer(peer, send_push(peer, 1, 2, id, 1, &key, gradient, 1));
    check_refused(&answer, RPS_E_INVAL, "number 2 was carried out before");
    answer = wait_answer(peer, send_push(peer, 1, 9, id, 1, &key, gradient, 1));
    check_refused(&answer, RPS_E_INVAL, "the next one is 3");
    lookup(peer, id, 1, &key, 1, row);
    ck_assert_float_eq(row[0], -1);
    newer = peer_open(service);
    {
        const struct rps_header header = request_of(newer, RPS_OP_HELLO);

        ask(newer, &header,
                HELLO("[1,1]", "test", "0", "1", "0",
                        "none\",\"client\":\"77\",\"lane\":0"),
                RPS_OK, &text);
    }
    ck_assert_ptr_nonnull(strstr(text, "\"last_number\":\"2\""));
    ck_assert_ptr_nonnull(strstr(text, "\"verdicts\":[[\"1\",0],[\"2\",-1]]"));
    free(text);
    answer = wait_answer(peer, send_push(peer, 1, 3, id, 1, &key, gradient, 1));
    check_refused(&answer, RPS_E_CANCELED, "newer connection");
    peer_close(peer);
    peer_close(newer);
    rps_service_destroy(service);
}
END_TEST

START_TEST(a_request_of_another_epoch_is_rolled_back)
{
    const uint64_t key = 1;
    const float gradient[1] = {1};
    struct rps_service *service = service_of(0, 1, NULL, 60000);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    struct rps_header header;
    const uint64_t id = open_table(peer, "emb", 1);
    struct answer answer;

    peer->epoch = 4;
    answer = wait_answer(peer, send_push(peer, 1, 1, id, 1, &key, gradient, 1));
    check_refused(&answer, RPS_E_ROLLED_BACK, "epoch 4");
    header = request_of(peer, RPS_OP_PING);
    ask(peer, &header, NULL, RPS_OK, NULL);
    header = request_of(peer, RPS_OP_STAT);
    ask(peer, &header, NULL, RPS_OK, NULL);
    peer->epoch = 0;
    /* the refusal used number 1 up */
    answer = wait_answer(peer, send_push(peer, 1, 2, id, 1, &key, gradient, 1));
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: requests");
    TCase *tcase = tcase_create("requests");

    tcase_add_test(
            tcase, hello_of_another_job_is_a_mismatch_that_names_both_values);
    tcase_add_test(tcase, hello_tells_of_another_fingerprint_and_goes_on);
    tcase_add_test(tcase, requests_before_hello_or_unknown_are_refused);
    tcase_add_test(tcase, a_push_of_async_is_seen_by_the_next_lookup);
    tcase_add_test(tcase, one_bad_table_of_a_lookup_spares_the_others);
    tcase_add_test(tcase, sections_that_do_not_fit_are_named);
    tcase_add_test(tcase, keys_of_another_ps_change_nothing);
    tcase_add_test(tcase, refresh_answers_the_rows_that_changed_since);
    tcase_add_loop_test(
            tcase, a_push_after_its_step_was_told_is_refreshed, 0, 2);
    tcase_add_test(tcase, assign_writes_all_tables_or_none);
    tcase_add_test(tcase, an_answer_beyond_a_frame_is_a_limit);
    tcase_add_test(tcase, an_answer_of_too_many_tables_is_a_limit);
    tcase_add_test(tcase, a_nonfinite_gradient_is_told_once_and_counted);
    tcase_add_test(tcase, a_step_that_would_wrap_is_refused);
    tcase_add_loop_test(
            tcase, an_infinite_or_negative_learning_rate_is_refused, 0, 3);
    tcase_add_test(tcase, a_number_gets_one_verdict_and_a_repeat_the_kept_one);
    tcase_add_test(tcase, a_request_of_another_epoch_is_rolled_back);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
