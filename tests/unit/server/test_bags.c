/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bags and value types as a server sees them, frame by frame: sums of bags,
 * gradients of bags, rows of each type, and every wrong form of them, which
 * must be refused and change nothing. Values are small integers: float sums
 * are exact, and so are f16 and bf16 of them.
 */
#include "proto/value.h"
#include "tests/unit/server/fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define DIM 3u

static struct rps_service *service;
static struct peer *peer;
static uint64_t table;

static void
begin(void)
{
    service = service_of(0, 1, NULL, 60000);
    peer = peer_greet(service, "none", 0, 0, "c1");
    table = open_table(peer, "emb", DIM);
}

static void
end(void)
{
    peer_close(peer);
    rps_service_destroy(service);
}

/** One table's sections of a request; NULL and 0: it is not there. */
struct form {
    const uint64_t *keys;
    size_t key_count;
    uint16_t keys_value;
    const uint32_t *counts;
    const uint32_t *index;
    size_t index_count;
    const uint32_t *offsets;
    size_t offset_count;
    const void *rows;
    uint16_t value;
    size_t row_count;
    uint32_t dim; /* 0: DIM */
};

static void
add_form(struct rps_builder *builder, uint64_t id, const struct form *form)
{
    struct rps_section section = {.table_id = id, .kind = RPS_SECTION_KEYS};

    section.value = form->keys_value;
    section.count = form->key_count;
    rps_builder_add(builder, &section, form->keys);
    section.value = 0;
    if (form->counts != NULL) {
        section.kind = RPS_SECTION_COUNTS;
        rps_builder_add(builder, &section, form->counts);
    }
    if (form->index != NULL) {
        section.kind = RPS_SECTION_INDEX;
        section.count = form->index_count;
        rps_builder_add(builder, &section, form->index);
    }
    if (form->offsets != NULL) {
        section.kind = RPS_SECTION_OFFSETS;
        section.count = form->offset_count;
        rps_builder_add(builder, &section, form->offsets);
    }
    if (form->rows != NULL) {
        section.kind = RPS_SECTION_ROWS;
        section.value = form->value;
        section.dim = form->dim != 0 ? form->dim : DIM;
        section.count = form->row_count;
        section.learning_rate = NAN;
        rps_builder_add(builder, &section, form->rows);
    }
}

static struct answer
send_forms(struct peer *from, const struct rps_header *header,
        const uint64_t *ids, const struct form *forms, size_t n)
{
    struct rps_builder builder;

    rps_builder_begin(&builder, header, (uint32_t)(5 * n));
    for (size_t i = 0; i < n; i++) {
        add_form(&builder, ids[i], &forms[i]);
    }
    return wait_answer(from, send_builder(from, &builder));
}

static struct answer
send_form(uint16_t opcode, const struct form *form)
{
    const struct rps_header header = request_of(peer, opcode);

    return send_forms(peer, &header, &table, form, 1);
}

/* rows[n][DIM] of an answer, as floats. */
static void
read_rows(struct answer *answer, uint64_t id, size_t n, uint16_t value,
        float *rows)
{
    const struct rps_section *section =
            rps_message_find(&answer->message, RPS_SECTION_ROWS, id);

    ck_assert_int_eq(answer->header.status, RPS_OK);
    ck_assert_ptr_nonnull(section);
    ck_assert_uint_eq(section->count, n);
    ck_assert_uint_eq(section->value, value);
    ck_assert_uint_eq(section->dim, DIM);
    rps_value_decode(
            value, DIM, n, rps_message_array(&answer->message, section), rows);
    answer_finish(answer);
}

/* Key k has the row (k, 2 k, -k). */
static const uint64_t keys[4] = {1, 2, 3, UINT64_MAX};
static const float key_rows[4][DIM] = {
        {1, 2, -1}, {2, 4, -2}, {3, 6, -3}, {100, 200, -100}};

static void
fill(void)
{
    float gradients[4][DIM]; /* sgd, rate 1, from zeros */

    for (size_t i = 0; i < 4 * DIM; i++) {
        gradients[i / DIM][i % DIM] = -key_rows[i / DIM][i % DIM];
    }
    push(peer, 0, table, 4, keys, gradients[0], DIM);
}

/* {1, 1, max}, {}, {2}, {3, 2, 1, max} */
static const uint32_t index_of[8] = {0, 0, 3, 1, 2, 1, 0, 3};
static const uint32_t offsets[5] = {0, 3, 3, 4, 8};
static const float sums[4][DIM] = {
        {102, 204, -102}, {0, 0, 0}, {2, 4, -2}, {106, 212, -106}};

/* Half a step of i8 (or just above: asserted is less); none of others. */
static float
i8_error(int value, float most)
{
    return value == RPS_VALUE_I8 ? most / 253.9f : 1e-9f;
}

START_TEST(a_bag_is_the_sum_of_its_rows_in_every_type)
{
    struct form form = {.keys = keys,
            .key_count = 4,
            .keys_value = (uint16_t)_i,
            .index = index_of,
            .index_count = 8,
            .offsets = offsets,
            .offset_count = 5};
    float rows[4][DIM];
    struct answer answer;

    begin();
    fill();
    answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
    read_rows(&answer, table, 4, (uint16_t)_i, rows[0]);
    for (size_t i = 0; i < 4 * DIM; i++) {
        const float sum = sums[i / DIM][i % DIM];

        ck_assert_float_eq_tol(rows[i / DIM][i % DIM], sum, i8_error(_i, 212));
    }
    end();
}
END_TEST

START_TEST(without_an_index_the_keys_are_the_occurrences)
{
    const uint64_t twice[5] = {2, 2, 3, UINT64_MAX, 1};
    const uint32_t three[4] = {0, 2, 4, 5};
    const uint32_t none[1] = {0};
    struct form form = {
            .keys = twice, .key_count = 5, .offsets = three, .offset_count = 4};
    const float expected[3][DIM] = {{4, 8, -4}, {103, 206, -103}, {1, 2, -1}};
    float rows[3][DIM];
    struct answer answer;

    begin();
    fill();
    answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
    read_rows(&answer, table, 3, 0, rows[0]);
    ck_assert_mem_eq(rows, expected, sizeof(rows));
    form = (struct form){.keys = keys, .offsets = none, .offset_count = 1};
    answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
    read_rows(&answer, table, 0, 0, rows[0]);
    end();
}
END_TEST

START_TEST(rows_come_in_the_type_that_was_asked_for)
{
    struct form form = {
            .keys = keys, .key_count = 4, .keys_value = (uint16_t)_i};
    float rows[4][DIM];
    struct answer answer;

    begin();
    fill();
    answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
    read_rows(&answer, table, 4, (uint16_t)_i, rows[0]);
    for (size_t i = 0; i < 4; i++) {
        for (size_t c = 0; c < DIM; c++) {
            ck_assert_float_eq_tol(
                    rows[i][c], key_rows[i][c], i8_error(_i, key_rows[i][1]));
        }
    }
    end();
}
END_TEST

/* More keys than a slice; each row is its key's in all columns. */
START_TEST(a_large_lookup_of_slices_is_whole)
{
    enum {
        N = 9000
    };
    uint64_t *many = malloc(N * sizeof(*many));
    float *rows = malloc(N * DIM * sizeof(*rows));
    struct form form = {.keys = many, .key_count = N, .keys_value = 2};
    struct answer answer;
    size_t wrong = 0;

    begin();
    for (size_t i = 0; i < N; i++) {
        many[i] = i * 977;
        for (size_t c = 0; c < DIM; c++) {
            rows[i * DIM + c] = -(float)(i % 251); /* exact in bf16 */
        }
    }
    push(peer, 0, table, N, many, rows, DIM);
    answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
    read_rows(&answer, table, N, 2, rows);
    for (size_t i = 0; i < N * DIM; i++) {
        wrong += rows[i] != (float)(i / DIM % 251);
    }
    ck_assert_uint_eq(wrong, 0);
    free(many);
    free(rows);
    end();
}
END_TEST

static uint64_t
figure(const char *name)
{
    json_t *stat = stat_of(peer);
    const json_t *first = json_array_get(json_object_get(stat, "tables"), 0);
    const uint64_t value =
            (uint64_t)json_integer_value(json_object_get(first, name));

    json_decref(stat);
    return value;
}

static void
encode(uint16_t value, size_t n, const float *from, uint8_t *to)
{
    rps_value_encode(value, DIM, n, from, to);
}

/* Gradients of the four bags; the second is of the empty one. */
static const float bag_gradients[4][DIM] = {
        {1, 2, 4}, {77, 77, 77}, {8, 8, 8}, {16, 0, -16}};
/* key 1: twice the first, and the last; 2: third and last; 3: last; max */
static const float after[4][DIM] = {
        {-18, -4, 8}, {-24, -8, 8}, {-16, 0, 16}, {-17, -2, 12}};

static struct form
bag_push(uint16_t value, const uint8_t *rows)
{
    return (struct form){.keys = keys,
            .key_count = 4,
            .index = index_of,
            .index_count = 8,
            .offsets = offsets,
            .offset_count = 5,
            .rows = rows,
            .value = value,
            .row_count = 4};
}

START_TEST(gradients_of_bags_are_summed_then_one_step_a_key)
{
    const uint32_t counts[4] = {3, 2, 1, 2};
    const uint16_t value = (uint16_t)_i; /* f32, f16, bf16 */
    uint8_t coded[4 * DIM * sizeof(float)];
    struct form form;
    float rows[4][DIM];
    struct answer answer;

    begin();
    encode(value, 4, bag_gradients[0], coded);
    form = bag_push(value, coded);
    form.counts = counts;
    answer = send_form(RPS_OP_PUSH_GRADIENTS, &form);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    lookup(peer, table, 4, keys, DIM, rows[0]);
    ck_assert_mem_eq(rows, after, sizeof(rows));
    ck_assert_uint_eq(figure("applied"), 4);
    ck_assert_uint_eq(figure("pushes"), 1);
    end();
}
END_TEST

START_TEST(gradients_of_i8_are_their_steps_times_the_scale)
{
    const float gradients[2][DIM] = {{127, -127, 1}, {0.5f, 0.25f, -0.5f}};
    uint8_t coded[2 * 8];
    struct form form = {.keys = keys,
            .key_count = 2,
            .rows = coded,
            .value = RPS_VALUE_I8,
            .row_count = 2};
    float rows[2][DIM];
    float wide[2][DIM];
    struct answer answer;

    begin();
    encode(RPS_VALUE_I8, 2, gradients[0], coded);
    answer = send_form(RPS_OP_PUSH_GRADIENTS, &form);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    lookup(peer, table, 2, keys, DIM, rows[0]);
    rps_value_decode(RPS_VALUE_I8, DIM, 2, coded, wide[0]);
    ck_assert_float_eq(rows[0][0], -127.0f);
    for (size_t i = 0; i < 2 * DIM; i++) {
        ck_assert_float_eq(rows[i / DIM][i % DIM], -wide[i / DIM][i % DIM]);
    }
    end();
}
END_TEST

/* The others count; the law is that of floats. */
START_TEST(a_gradient_beyond_its_type_is_refused_as_not_finite)
{
    const float gradients[2][DIM] = {{1, 70000, 1}, {2, 2, 2}};
    const float broken[2][DIM] = {{1, NAN, 1}, {2, 2, 2}};
    const uint16_t value = _i == 0 ? RPS_VALUE_F16 : RPS_VALUE_I8;
    uint8_t coded[2 * 8];
    struct form form = {.keys = keys,
            .key_count = 2,
            .rows = coded,
            .value = value,
            .row_count = 2};
    float rows[2][DIM];
    struct answer answer;

    begin();
    encode(value, 2, _i == 0 ? gradients[0] : broken[0], coded);
    answer = send_form(RPS_OP_PUSH_GRADIENTS, &form);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    lookup(peer, table, 2, keys, DIM, rows[0]);
    ck_assert_float_eq(rows[0][0], 0.0f);
    ck_assert_float_eq(rows[1][0], -2.0f);
    ck_assert_uint_eq(figure("nonfinite"), 1);
    end();
}
END_TEST

/* --- wrong forms --------------------------------------------------------- */

static const uint32_t descending[5] = {0, 4, 3, 4, 8};
static const uint32_t late_start[5] = {1, 3, 3, 4, 8};
static const uint32_t short_end[5] = {0, 3, 3, 4, 7};
static const uint32_t long_end[5] = {0, 3, 3, 4, 9};
static const uint32_t beyond[8] = {0, 0, 3, 1, 4, 1, 0, 3};
static const uint32_t huge[8] = {0, 0, 3, 1, UINT32_MAX, 1, 0, 3};
static const uint32_t missing[8] = {0, 0, 3, 1, 1, 1, 0, 3};
static const uint8_t negative_scale[4 * 8] = {0, 0, 0x80, 0xbf};
static const uint8_t infinite_scale[4 * 8] = {0, 0, 0x80, 0x7f};
static const uint8_t zeros[5 * DIM * sizeof(float)];

#define BAGS(of, at)                                             \
    .keys = keys, .key_count = 4, .index = of, .index_count = 8, \
    .offsets = at, .offset_count = 5

static const struct {
    struct form form;
    rps_status status;
    const char *words;
    bool pushes_only;
} wrong[] = {
        {{.keys = keys, .key_count = 4, .index = index_of, .index_count = 8},
                RPS_E_INVAL, "INDEX without OFFSETS", false},
        {{.keys = keys, .key_count = 4, .offsets = offsets}, RPS_E_INVAL,
                "no bags are one offset", false},
        {{BAGS(index_of, descending)}, RPS_E_INVAL,
                "not ascending: 4 at position 1, then 3", false},
        {{BAGS(index_of, late_start)}, RPS_E_INVAL, "from 1 to 8", false},
        {{BAGS(index_of, short_end)}, RPS_E_INVAL, "from 0 to 7", false},
        {{BAGS(index_of, long_end)}, RPS_E_INVAL, "from 0 to 9", false},
        {{BAGS(NULL, offsets)}, RPS_E_INVAL, "must go from 0 to 4", false},
        {{BAGS(beyond, offsets)}, RPS_E_INVAL, "INDEX at position 4 is 4",
                false},
        {{BAGS(huge, offsets)}, RPS_E_INVAL, "INDEX at position 4 is", false},
        {{BAGS(missing, offsets)}, RPS_E_INVAL, "position 2 is in no bag",
                true},
        {{BAGS(index_of, offsets), .row_count = 3}, RPS_E_INVAL,
                "ROWS has count 3", true},
        {{BAGS(index_of, offsets), .row_count = 5}, RPS_E_INVAL,
                "ROWS has count 5", true},
        {{BAGS(index_of, offsets), .dim = 2}, RPS_E_INVAL, "dim 2", true},
        {{BAGS(index_of, offsets), .value = RPS_VALUE_I8,
                 .rows = negative_scale},
                RPS_E_INVAL, "row 0 is -1", true},
        {{BAGS(index_of, offsets), .value = RPS_VALUE_I8,
                 .rows = infinite_scale},
                RPS_E_INVAL, "row 0 is inf", true},
};

#undef BAGS

START_TEST(a_wrong_form_of_bags_is_refused_and_changes_nothing)
{
    struct form form = wrong[_i].form;
    struct answer answer;

    begin();
    form.rows = form.rows != NULL ? form.rows : zeros;
    form.row_count = form.row_count != 0 ? form.row_count : 4;
    answer = send_form(RPS_OP_PUSH_GRADIENTS, &form);
    check_refused(&answer, wrong[_i].status, wrong[_i].words);
    ck_assert_uint_eq(figure("applied"), 0);
    ck_assert_uint_eq(figure("rows"), 0);
    ck_assert_uint_eq(figure("pushes"), 0);
    if (!wrong[_i].pushes_only) {
        form.rows = NULL;
        answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
        check_refused(&answer, wrong[_i].status, wrong[_i].words);
    }
    end();
}
END_TEST

START_TEST(bags_and_types_have_no_place_in_other_requests)
{
    struct form form = {.keys = keys,
            .key_count = 4,
            .offsets = offsets,
            .offset_count = 5};
    struct answer answer;

    begin();
    answer = send_form(RPS_OP_ERASE, &form);
    check_refused(&answer, RPS_E_INVAL, "OFFSETS");
    answer = send_form(RPS_OP_REFRESH, &form);
    check_refused(&answer, RPS_E_INVAL, "OFFSETS");
    form = (struct form){.keys = keys,
            .key_count = 4,
            .rows = zeros,
            .value = RPS_VALUE_F16,
            .row_count = 4};
    answer = send_form(RPS_OP_ASSIGN, &form);
    check_refused(&answer, RPS_E_UNSUPPORTED, "value type 1");
    form = (struct form){.keys = keys, .key_count = 4, .keys_value = 4};
    answer = send_form(RPS_OP_EMBEDDING_LOOKUP, &form);
    check_refused(&answer, RPS_E_UNSUPPORTED, "value type 4");
    end();
}
END_TEST

/* 8 bytes a key on the wire, 32 KiB as floats. */
START_TEST(bags_that_would_grow_beyond_a_frame_are_limited)
{
    enum {
        N = 513
    };
    const uint64_t wide = (begin(), open_table(peer, "wide", 8192));
    uint64_t many[N];
    uint32_t one[2] = {0, N};
    uint8_t *row = calloc(1, 8192 + 4);
    struct form form = {
            .keys = many, .key_count = N, .offsets = one, .offset_count = 2};
    struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    struct answer answer;

    for (size_t i = 0; i < N; i++) {
        many[i] = i;
    }
    answer = send_forms(peer, &header, &wide, &form, 1);
    check_refused(&answer, RPS_E_LIMIT, "rows as floats would exceed");
    header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    form.rows = row;
    form.value = RPS_VALUE_I8;
    form.row_count = 1;
    form.dim = 8192;
    answer = send_forms(peer, &header, &wide, &form, 1);
    check_refused(&answer, RPS_E_LIMIT, "rows as floats would exceed");
    ck_assert_uint_eq(figure("rows"), 0);
    free(row);
    end();
}
END_TEST

/* 4 bytes an occurrence on the wire, 8192 additions. */
START_TEST(bags_that_would_add_up_for_seconds_are_limited)
{
    enum {
        USES = 32769
    };
    const uint64_t wide = (begin(), open_table(peer, "wide", 8192));
    uint32_t *index = calloc(USES, sizeof(*index));
    uint32_t one[2] = {0, USES};
    float *row = calloc(8192, sizeof(*row));
    struct form form = {.keys = keys,
            .key_count = 1,
            .index = index,
            .index_count = USES,
            .offsets = one,
            .offset_count = 2};
    struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    struct answer answer = send_forms(peer, &header, &wide, &form, 1);

    check_refused(&answer, RPS_E_LIMIT, "occurrences times dim");
    header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    form.rows = row;
    form.row_count = 1;
    form.dim = 8192;
    answer = send_forms(peer, &header, &wide, &form, 1);
    check_refused(&answer, RPS_E_LIMIT, "occurrences times dim");
    ck_assert_uint_eq(figure("rows"), 0);
    free(index);
    free(row);
    end();
}
END_TEST

/* One request: bags of one table, i8 rows of another, floats of a third. */
START_TEST(a_fused_request_may_mix_all_of_it)
{
    const uint64_t ids[4] = {(begin(), table), open_table(peer, "b", DIM),
            open_table(peer, "c", DIM), rps_table_id("absent")};
    struct form forms[4] = {{.keys = keys,
                                    .key_count = 4,
                                    .keys_value = RPS_VALUE_BF16,
                                    .index = index_of,
                                    .index_count = 8,
                                    .offsets = offsets,
                                    .offset_count = 5},
            {.keys = keys, .key_count = 4, .keys_value = RPS_VALUE_I8},
            {.keys = keys, .key_count = 2}, {.keys = keys, .key_count = 1}};
    struct rps_header header = request_of(peer, RPS_OP_EMBEDDING_LOOKUP);
    struct answer answer;
    float rows[4][DIM];

    fill();
    answer = send_forms(peer, &header, ids, forms, 4);
    ck_assert_int_eq(answer.header.status, RPS_E_NOT_FOUND);
    answer.header.status = RPS_OK; /* one bad table spares the others */
    ck_assert_uint_eq(
            rps_message_find(&answer.message, RPS_SECTION_ROWS, ids[1])->bytes,
            4 * 8);
    ck_assert_uint_eq(
            rps_message_find(&answer.message, RPS_SECTION_ROWS, ids[2])->bytes,
            2 * DIM * sizeof(float));
    read_rows(&answer, table, 4, RPS_VALUE_BF16, rows[0]);
    ck_assert_mem_eq(rows, sums, sizeof(rows));
    header = request_of(peer, RPS_OP_PUSH_GRADIENTS);
    forms[0].rows = bag_gradients;
    forms[0].row_count = 4;
    forms[0].keys_value = 0;
    forms[1].rows = zeros;
    forms[1].value = RPS_VALUE_I8;
    forms[1].row_count = 4;
    forms[2].rows = key_rows;
    forms[2].row_count = 2;
    answer = send_forms(peer, &header, ids + 1, forms + 1, 3);
    check_refused(&answer, RPS_E_INVAL, "has no ROWS"); /* all or nothing */
    answer = send_forms(peer, &header, ids, forms, 3);
    ck_assert_int_eq(answer.header.status, RPS_OK);
    answer_finish(&answer);
    lookup(peer, ids[2], 2, keys, DIM, rows[0]);
    ck_assert_float_eq(rows[1][1], -4.0f);
    lookup(peer, table, 4, keys, DIM, rows[0]);
    ck_assert_float_eq(rows[0][0], key_rows[0][0] + after[0][0]);
    end();
}
END_TEST

/* --- sync ---------------------------------------------------------------- */

static void
decide(struct peer *from, uint64_t step)
{
    struct rps_wire_decision decision =
            wait_decision(from, send_step_end(from, step, 0, "null", ""));

    apply(from, &decision, RPS_OK);
    rps_decision_finish(&decision);
}

START_TEST(bags_of_a_sync_step_wait_unfolded_for_the_decision)
{
    uint8_t coded[4 * 8];
    struct rps_service *sync = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(sync, "chief", 0, 1, "c1");
    struct rps_header header;
    struct answer answer;
    struct form form;
    uint64_t ids[2];
    float rows[4][DIM];

    begin_job(chief, 1, 0, "sync", 1);
    ids[0] = open_table(chief, "emb", DIM);
    ids[1] = open_table(chief, "gone", DIM);
    join_all(&chief, 1);
    encode(RPS_VALUE_BF16, 4, bag_gradients[0], coded);
    form = bag_push(RPS_VALUE_BF16, coded);
    for (int i = 0; i < 2; i++) { /* one push of two frames */
        header = request_of(chief, RPS_OP_PUSH_GRADIENTS);
        header.step = 1;
        header.flags = i == 0 ? RPS_FLAG_MORE : 0;
        answer = send_forms(chief, &header, &ids[i], &form, 1);
        ck_assert_int_eq(answer.header.status, RPS_OK);
        answer_finish(&answer);
    }
    lookup(chief, ids[0], 4, keys, DIM, rows[0]);
    ck_assert_float_eq(rows[0][0], 0.0f);
    header = request_of(chief, RPS_OP_DROP);
    ask(chief, &header, "{\"table\":\"gone\"}", RPS_OK, NULL);
    decide(chief, 1);
    lookup(chief, ids[0], 4, keys, DIM, rows[0]);
    ck_assert_mem_eq(rows, after, sizeof(rows));
    peer_close(chief);
    rps_service_destroy(sync);
}
END_TEST

/* The fixture's step_bytes_max is 1 MiB. */
START_TEST(what_is_stored_is_bounded_as_floats)
{
    enum {
        N = 40
    };
    struct rps_service *sync = service_of(0, 1, NULL, 60000);
    struct peer *chief = peer_greet(sync, "chief", 0, 1, "c1");
    uint64_t many[N];
    uint32_t one[2] = {0, N};
    uint8_t *row = calloc(1, 8192 + 4);
    struct form form = {.keys = many,
            .key_count = N,
            .offsets = one,
            .offset_count = 2,
            .rows = row,
            .value = RPS_VALUE_I8,
            .row_count = 1,
            .dim = 8192};
    struct rps_header header;
    struct answer answer;
    uint64_t wide;

    begin_job(chief, 1, 0, "sync", 1);
    wide = open_table(chief, "wide", 8192);
    join_all(&chief, 1);
    for (size_t i = 0; i < N; i++) {
        many[i] = i;
    }
    header = request_of(chief, RPS_OP_PUSH_GRADIENTS);
    header.step = 1;
    answer = send_forms(chief, &header, &wide, &form, 1); /* 9 KB sent */
    check_refused(&answer, RPS_E_LIMIT, "step_bytes_max");
    free(row);
    peer_close(chief);
    rps_service_destroy(sync);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("service: bags");
    TCase *tcase = tcase_create("bags");

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(
            tcase, a_bag_is_the_sum_of_its_rows_in_every_type, 0, 4);
    tcase_add_test(tcase, without_an_index_the_keys_are_the_occurrences);
    tcase_add_loop_test(tcase, rows_come_in_the_type_that_was_asked_for, 0, 4);
    tcase_add_test(tcase, a_large_lookup_of_slices_is_whole);
    tcase_add_loop_test(
            tcase, gradients_of_bags_are_summed_then_one_step_a_key, 0, 3);
    tcase_add_test(tcase, gradients_of_i8_are_their_steps_times_the_scale);
    tcase_add_loop_test(
            tcase, a_gradient_beyond_its_type_is_refused_as_not_finite, 0, 2);
    tcase_add_loop_test(tcase,
            a_wrong_form_of_bags_is_refused_and_changes_nothing, 0,
            (int)(sizeof(wrong) / sizeof(wrong[0])));
    tcase_add_test(tcase, bags_and_types_have_no_place_in_other_requests);
    tcase_add_test(tcase, bags_that_would_grow_beyond_a_frame_are_limited);
    tcase_add_test(tcase, bags_that_would_add_up_for_seconds_are_limited);
    tcase_add_test(tcase, a_fused_request_may_mix_all_of_it);
    tcase_add_test(tcase, bags_of_a_sync_step_wait_unfolded_for_the_decision);
    tcase_add_test(tcase, what_is_stored_is_bounded_as_floats);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
