/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Long answers to lookups go to the session's sink while they are made. They
 * must be, byte for byte, what another session without one gets whole; its
 * values are tested elsewhere (bags, requests).
 */
#include "proto/value.h"
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdlib.h>

#define DIM      64u
#define ODD_DIM  3u
#define LONG     5000u /* rows of DIM floats: more than a part */
#define FEW      100u
#define SINK_MAX ((size_t)32 << 20)

/** A sink that keeps all of it. */
struct keeper {
    struct rps_frame_sink sink;
    uint8_t *frame; /* [SINK_MAX] */
    size_t frame_bytes;
    size_t at;
    size_t room; /* of the last call */
    bool refuses;
};

static struct rps_service *service;
static struct peer *streamed; /* its session has the keeper */
static struct peer *whole;
static struct keeper keeper;

static struct keeper *
keeper_of(struct rps_frame_sink *sink)
{
    return (struct keeper *)(void *)sink;
}

static bool
keep_begin(struct rps_frame_sink *sink, size_t frame_bytes)
{
    struct keeper *self = keeper_of(sink);

    self->frame_bytes = frame_bytes;
    self->at = 0;
    return !self->refuses;
}

static uint8_t *
keep_room(struct rps_frame_sink *sink, size_t bytes)
{
    struct keeper *self = keeper_of(sink);

    ck_assert_uint_le(bytes, RPS_FRAME_PART_BYTES);
    ck_assert_uint_le(self->at + bytes, self->frame_bytes);
    self->room = bytes;
    return self->frame + self->at;
}

static void
keep_put(struct rps_frame_sink *sink, size_t bytes)
{
    struct keeper *self = keeper_of(sink);

    ck_assert_uint_eq(bytes, self->room);
    ck_assert(self->at > 0 || bytes >= RPS_HEADER_BYTES);
    self->at += bytes;
}

static void
begin(void)
{
    service = service_of(0, 1, NULL, 60000);
    streamed = peer_greet(service, "none", 0, 0, "c1");
    whole = peer_greet(service, "none", 0, 0, "c2");
    keeper = (struct keeper){.sink = {keep_begin, keep_room, keep_put}};
    keeper.frame = aligned_alloc(RPS_MESSAGE_ALIGN, SINK_MAX);
    memset(keeper.frame, 0xa5, SINK_MAX); /* what is not written shows */
    rps_session_set_sink(streamed->session, &keeper.sink);
}

static void
end(void)
{
    peer_close(streamed);
    peer_close(whole);
    rps_service_destroy(service);
    free(keeper.frame);
}

/* Key k, of a table whose learning rate is 1, gets -(k + j / 64). */
static uint64_t
filled_table(const char *name, uint32_t dim, size_t n)
{
    const uint64_t table = open_table(whole, name, dim);
    float *gradients = calloc(n * dim, sizeof(*gradients));
    uint64_t *keys = calloc(n, sizeof(*keys));

    for (size_t i = 0; i < n; i++) {
        keys[i] = i;
        for (uint32_t j = 0; j < dim; j++) {
            gradients[i * dim + j] = (float)i + (float)j / 64.0f;
        }
    }
    push(whole, 1, table, n, keys, gradients, dim);
    ck_assert_uint_eq(open_table(streamed, name, dim), table);
    free(gradients);
    free(keys);
    return table;
}

/** A table of a lookup: keys n - 1 down to 0. */
struct asked {
    uint64_t table;
    size_t n;
    uint16_t value;
};

static uint64_t
send_lookup(struct peer *peer, uint32_t flags, const struct asked *asked,
        size_t count)
{
    struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    struct rps_builder builder;

    header.flags |= flags;
    header.request_id = 77;
    rps_builder_begin(&builder, &header, (uint32_t)count);
    for (size_t i = 0; i < count; i++) {
        const struct rps_section section = {.table_id = asked[i].table,
                .kind = RPS_SECTION_KEYS,
                .value = asked[i].value,
                .count = asked[i].n};
        uint64_t *keys = malloc((asked[i].n + 1) * sizeof(*keys));

        for (size_t k = 0; k < asked[i].n; k++) {
            keys[k] = asked[i].n - 1 - k;
        }
        rps_builder_add(&builder, &section, keys);
        free(keys);
    }
    return send_builder(peer, &builder);
}

static struct answer
get_whole(uint32_t flags, const struct asked *asked, size_t count)
{
    return wait_answer(whole, send_lookup(whole, flags, asked, count));
}

/* Both sessions ask; the sink has what the other one got. */
static void
check_alike(uint32_t flags, const struct asked *asked, size_t count)
{
    struct answer answer = get_whole(flags, asked, count);
    const uint64_t id = send_lookup(streamed, flags, asked, count);

    ck_assert_int_eq(answer.header.status, RPS_OK);
    ck_assert_uint_eq(keeper.at, keeper.frame_bytes);
    ck_assert_uint_eq(keeper.frame_bytes, answer.bytes);
    ck_assert_mem_eq(keeper.frame, answer.frame, answer.bytes);
    ck_assert(!is_answered(streamed, id, 0)); /* not a second time */
    answer_finish(&answer);
}

/* It came by the callback. */
static void
check_not_streamed(uint32_t flags, const struct asked *asked, size_t count)
{
    struct answer answer =
            wait_answer(streamed, send_lookup(streamed, flags, asked, count));

    ck_assert_uint_eq(keeper.at, 0);
    answer_finish(&answer);
}

START_TEST(a_long_answer_of_each_type_goes_to_the_sink)
{
    const struct asked asked = {.table = filled_table("emb", DIM, LONG),
            .n = 4 * LONG, /* many of them absent */
            .value = (uint16_t)_i};

    check_alike(_i % 2 != 0 ? RPS_FLAG_READ_ONLY : 0, &asked, 1);
}
END_TEST

START_TEST(the_sink_gets_the_values_that_were_pushed)
{
    const struct asked asked = {
            .table = filled_table("emb", DIM, LONG), .n = LONG};
    const size_t rows_at = 192; /* header, counts, 2 sections, padding */
    const float *rows = (const float *)(const void *)(keeper.frame + rows_at);

    send_lookup(streamed, 0, &asked, 1);
    ck_assert_uint_eq(keeper.at, rows_at + LONG * DIM * sizeof(float));
    for (size_t i = 0; i < LONG; i++) {
        for (uint32_t j = 0; j < DIM; j++) {
            ck_assert_float_eq(rows[i * DIM + j],
                    -((float)(LONG - 1 - i) + (float)j / 64.0f));
        }
    }
}
END_TEST

START_TEST(tables_follow_each_other_with_zeros_between)
{
    const uint64_t odd = filled_table("odd", ODD_DIM, FEW);
    const uint64_t emb = filled_table("emb", DIM, LONG);
    const uint64_t none = open_table(whole, "none", 8);
    struct asked asked[] = {{odd, 7, RPS_VALUE_BF16}, {emb, LONG, 0},
            {none, 0, 0}, {odd, FEW + 1, RPS_VALUE_F32}, {emb, 1, RPS_VALUE_I8},
            {odd, 5, RPS_VALUE_F16}};

    asked[3].table = filled_table("odd_2", ODD_DIM, FEW);
    asked[4].table = filled_table("emb_2", DIM, FEW);
    asked[5].table = filled_table("odd_3", ODD_DIM, FEW);
    check_alike(0, asked, sizeof(asked) / sizeof(asked[0]));
}
END_TEST

START_TEST(what_is_short_or_refused_comes_whole)
{
    const uint64_t table = filled_table("emb", DIM, LONG);
    const struct asked few = {.table = table, .n = FEW};
    const struct asked many = {.table = table, .n = LONG};

    check_not_streamed(0, &few, 1);
    check_not_streamed(RPS_FLAG_BODY_XXH3, &many, 1);
    keeper.refuses = true;
    check_not_streamed(0, &many, 1);
}
END_TEST

START_TEST(an_answer_with_a_bad_table_comes_whole)
{
    const struct asked asked[] = {
            {filled_table("emb", DIM, LONG), LONG, 0}, {12345, 3, 0}};
    struct answer answer =
            wait_answer(streamed, send_lookup(streamed, 0, asked, 2));

    ck_assert_uint_eq(keeper.at, 0);
    check_refused(&answer, RPS_E_NOT_FOUND, "is not open here");
}
END_TEST

START_TEST(a_late_lookup_is_refused_before_its_first_byte)
{
    const uint64_t table = filled_table("emb", DIM, LONG);
    const struct rps_section section = {
            .table_id = table, .kind = RPS_SECTION_KEYS, .count = LONG};
    struct rps_header header = request_of(streamed, RPS_OP_EMBEDDING_LOOKUP);
    uint64_t *keys = calloc(LONG, sizeof(*keys));
    struct rps_builder builder;
    struct answer answer;

    for (uint64_t i = 0; i < LONG; i++) {
        keys[i] = i;
    }
    header.deadline_us = 1;
    streamed->came_ns = 1;
    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &section, keys);
    answer = wait_answer(streamed, send_builder(streamed, &builder));
    ck_assert_uint_eq(keeper.at, 0);
    check_refused(&answer, RPS_E_DEADLINE, "");
    free(keys);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: streams");
    TCase *tcase = tcase_create("streams");

    tcase_add_checked_fixture(tcase, begin, end);
    tcase_add_loop_test(
            tcase, a_long_answer_of_each_type_goes_to_the_sink, 0, 4);
    tcase_add_test(tcase, the_sink_gets_the_values_that_were_pushed);
    tcase_add_test(tcase, tables_follow_each_other_with_zeros_between);
    tcase_add_test(tcase, what_is_short_or_refused_comes_whole);
    tcase_add_test(tcase, an_answer_with_a_bad_table_comes_whole);
    tcase_add_test(tcase, a_late_lookup_is_refused_before_its_first_byte);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
