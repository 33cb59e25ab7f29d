/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of upkeep beside pushes, lookups, and everything that takes its
 * tables away; run under tsan. A row is (key, 2 key, 3 key, 4 key) times how
 * often it was pushed since it was made: whatever was evicted or erased
 * meanwhile, columns keep this ratio. */
#include "server/keeper.h"
#include "tests/unit/server/fixture.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#define PUSHERS 2u
#define ROUNDS  60u
#define KEYS    64u
#define DIM     4u

struct work {
    struct rps_service *service;
    uint32_t index;
    _Atomic uint32_t *epoch;
    atomic_bool *over;
};

static bool
is_expected(const struct answer *answer)
{
    const int32_t status = answer->header.status;

    return status == RPS_OK || status == RPS_E_NOT_FOUND ||
           status == RPS_E_ROLLED_BACK || status == RPS_E_RETRY_LATER;
}

/* Whatever comes of it, but for what cannot be. */
static void
try_text(struct peer *peer, uint16_t opcode, const char *text)
{
    const struct rps_header header = request_of(peer, opcode);
    struct answer answer = wait_answer(peer, send_text(peer, &header, text));
    char *words = rps_message_text(&answer.message);

    ck_assert_msg(is_expected(&answer), "%s: %s", rps_opcode_str(opcode),
            words != NULL ? words : "");
    free(words);
    answer_finish(&answer);
}

static void
try_open(struct peer *peer)
{
    try_text(peer, RPS_OP_GET_EMBEDDING_TABLE,
            "{\"name\":\"emb\",\"dimension\":4,\"optimizer\":\"sgd\","
            "\"initializer\":\"zeros\",\"learning_rate\":1.0,"
            "\"max_cold_steps\":20}");
}

static void
check_ratio(const struct answer *answer, const uint64_t *keys)
{
    const struct rps_section *section = rps_message_find(
            &answer->message, RPS_SECTION_ROWS, rps_table_id("emb"));
    const float *rows;

    ck_assert_ptr_nonnull(section);
    ck_assert_uint_eq(section->count, KEYS);
    rows = rps_message_array(&answer->message, section);
    for (size_t i = 0; i < KEYS; i++) {
        for (size_t column = 1; column < DIM; column++) {
            ck_assert_msg(rows[i * DIM + column] ==
                                  (float)(column + 1) * rows[i * DIM],
                    "key %" PRIu64 " column %zu", keys[i], column);
        }
    }
}

static void
try_lookup(struct peer *peer, const uint64_t *keys)
{
    const struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    const struct rps_section keys_of = {.table_id = rps_table_id("emb"),
            .kind = RPS_SECTION_KEYS,
            .count = KEYS};
    struct rps_builder builder;
    struct answer answer;

    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &keys_of, keys);
    answer = wait_answer(peer, send_builder(peer, &builder));
    ck_assert(is_expected(&answer));
    if (answer.header.status == RPS_OK) {
        check_ratio(&answer, keys);
    }
    answer_finish(&answer);
}

static void *
pusher_main(void *context)
{
    struct work *work = context;
    char client[8];
    struct peer *peer;
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM];
    uint64_t step = 0;

    snprintf(client, sizeof(client), "%" PRIx32, work->index + 1);
    peer = peer_greet(work->service, "none", 0, 0, client);
    while (!atomic_load(work->over)) {
        struct answer answer;

        step++;
        for (size_t i = 0; i < KEYS; i++) {
            keys[i] = (step / 8 * 16 + i) % 1000;
            for (size_t column = 0; column < DIM; column++) {
                gradients[i * DIM + column] = (float)(column + 1);
            }
        }
        peer->epoch = atomic_load(work->epoch);
        answer = wait_answer(peer, send_push(peer, step, 0, rps_table_id("emb"),
                                           KEYS, keys, gradients, DIM));
        ck_assert(is_expected(&answer));
        answer_finish(&answer);
        try_lookup(peer, keys);
    }
    peer_close(peer);
    return NULL;
}

/* Takes the table away in every way there is. */
static void
disturb(struct peer *peer, uint32_t round, _Atomic uint32_t *epoch)
{
    try_open(peer);
    switch (round % 6) {
    case 0:
        try_text(peer, RPS_OP_ALTER_TABLE,
                "{\"table\":\"emb\",\"set\":{\"clip_norm\":0}}");
        break;
    case 1:
        try_text(peer, RPS_OP_EVICT, "{}");
        break;
    case 2:
        try_text(peer, RPS_OP_DROP, "{\"table\":\"emb\"}");
        break;
    case 3:
        try_text(peer, RPS_OP_SCAN, "{\"table\":\"emb\",\"max\":100}");
        try_text(peer, RPS_OP_HOT_KEYS, "{\"table\":\"emb\",\"max\":5}");
        break;
    case 4:
        json_decref(stat_of(peer));
        break;
    default:
        begin_job(peer, peer->epoch + 1, 0, "async", 1);
        atomic_store(epoch, peer->epoch);
        break;
    }
    try_open(peer);
}

START_TEST(upkeep_goes_on_beside_everything)
{
    struct rps_service *service = service_with_upkeep(NULL, 0);
    struct peer *peer = peer_greet(service, "chief", 0, 1, "ff");
    struct work work[PUSHERS];
    pthread_t threads[PUSHERS];
    _Atomic uint32_t epoch = 0;
    atomic_bool over = false;

    try_open(peer);
    for (uint32_t i = 0; i < PUSHERS; i++) {
        work[i] = (struct work){
                .service = service, .index = i, .epoch = &epoch, .over = &over};
        ck_assert_int_eq(
                pthread_create(&threads[i], NULL, pusher_main, &work[i]), 0);
    }
    for (uint32_t round = 0; round < ROUNDS; round++) {
        disturb(peer, round, &epoch);
        (void)is_answered(peer, 0, 5); /* nothing: let them push for 5 ms */
    }
    atomic_store(&over, true);
    for (uint32_t i = 0; i < PUSHERS; i++) {
        pthread_join(threads[i], NULL);
    }
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

static json_int_t
figure_at(struct peer *peer, size_t index, const char *name)
{
    json_t *stat = stat_of(peer);
    const json_t *table =
            json_array_get(json_object_get(stat, "tables"), index);
    const json_int_t value = json_integer_value(json_object_get(table, name));

    json_decref(stat);
    return value;
}

static json_int_t
figure_of(struct peer *peer, const char *name)
{
    return figure_at(peer, 0, name);
}

static void
push_to(struct peer *peer, uint64_t step, uint64_t first)
{
    uint64_t keys[KEYS];
    float gradients[KEYS * DIM] = {0};

    for (size_t i = 0; i < KEYS; i++) {
        keys[i] = first + i;
    }
    push(peer, step, rps_table_id("emb"), KEYS, keys, gradients, DIM);
}

START_TEST(cold_rows_go_by_themselves)
{
    struct rps_service *service = service_with_upkeep(NULL, 0);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    int waits = 0;

    try_open(peer);
    push_to(peer, 1, 0);
    push_to(peer, 100, 500);
    while (figure_of(peer, "rows") != KEYS && waits < 2000) {
        (void)is_answered(peer, 0, 10);
        waits++;
    }
    ck_assert_int_eq(figure_of(peer, "rows"), KEYS);
    ck_assert_int_eq(figure_of(peer, "evicted_cold"), KEYS);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* Its first push is of a replica that is behind: the rows are as new as any
 * that are made now. */
START_TEST(a_table_begins_at_the_newest_step)
{
    struct rps_service *service = service_with_upkeep(NULL, 0);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t other = open_table(peer, "other", 1);
    const float gradient = 1.0f;
    const uint64_t key = 1;

    push(peer, 100, other, 1, &key, &gradient, 1);
    try_open(peer);
    push_to(peer, 1, 0);
    try_text(peer, RPS_OP_EVICT, "{\"table\":\"emb\"}");
    ck_assert_int_eq(figure_at(peer, 1, "rows"), KEYS);
    push(peer, 120, other, 1, &key, &gradient, 1);
    try_text(peer, RPS_OP_EVICT, "{\"table\":\"emb\"}");
    ck_assert_int_eq(figure_at(peer, 1, "rows"), KEYS);
    push(peer, 121, other, 1, &key, &gradient, 1);
    try_text(peer, RPS_OP_EVICT, "{\"table\":\"emb\"}");
    ck_assert_int_eq(figure_at(peer, 1, "rows"), 0);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

/* The server's limit alone: the table has none and lets no row go. */
START_TEST(a_push_beyond_the_servers_memory_is_refused_in_words)
{
    struct rps_service *service = service_with_upkeep(NULL, 10u << 20);
    struct peer *peer = peer_greet(service, "none", 0, 0, "1");
    const uint64_t table = open_table(peer, "wide", 1024);
    static float gradients[1024];
    struct answer answer = {0};
    uint64_t key = 0;
    json_t *stat;

    for (; key < 4096; key++) {
        answer = wait_answer(
                peer, send_push(peer, 1, 0, table, 1, &key, gradients, 1024));
        if (answer.header.status != RPS_OK) {
            break;
        }
        answer_finish(&answer);
    }
    ck_assert_uint_gt(key, 100);
    ck_assert_uint_le(key, 2560); /* rows of 4 KiB in 10 MiB */
    check_refused(&answer, RPS_E_LIMIT,
            "the server's memory limit (--memory-limit) of 10485760 bytes is "
            "reached, and on_full is refuse");
    ck_assert_int_eq(figure_of(peer, "dropped"), 1);
    stat = stat_of(peer);
    ck_assert_int_eq(json_integer_value(json_object_get(stat, "memory_limit")),
            10 << 20);
    ck_assert_int_le(
            json_integer_value(json_object_get(stat, "memory_used")), 10 << 20);
    json_decref(stat);
    key = 0; /* a row that is there is stepped all the same */
    push(peer, 2, table, 1, &key, gradients, 1024);
    peer_close(peer);
    rps_service_destroy(service);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: upkeep");
    TCase *tcase = tcase_create("upkeep");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, upkeep_goes_on_beside_everything);
    tcase_add_test(tcase, cold_rows_go_by_themselves);
    tcase_add_test(tcase, a_table_begins_at_the_newest_step);
    tcase_add_test(tcase, a_push_beyond_the_servers_memory_is_refused_in_words);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
