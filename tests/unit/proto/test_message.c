/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of PROTOCOL.md's worked example was made by a Python script
 * (struct and xxhash); everything else is held to it or to the rules. */
#include "base/checksum.h"
#include "base/hash.h"
#include "proto/message.h"
#include "proto/route.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t keys[2] = {7, UINT64_MAX};

static const char example[] =
        "525053310100040008000000500000002a000000000000000000000000000000"
        "030000000000000000000000000000000100000001000000"
        "90d003005b207634"
        "01000000000000006e8bc7bc3438f36801000000000000000200000000000000"
        "8000000000000000100000000000000000000000000000000000000000000000"
        "0700000000000000ffffffffffffffff";

static struct rps_header
lookup_header(void)
{
    return (struct rps_header){.version = RPS_WIRE_VERSION,
            .opcode = RPS_OP_EMBEDDING_LOOKUP,
            .flags = RPS_FLAG_READ_ONLY,
            .request_id = 42,
            .step = 3,
            .epoch = 1,
            .route_version = 1,
            .deadline_us = 250000};
}

static uint8_t *
lookup_frame(size_t *length)
{
    const struct rps_header header = lookup_header();
    const struct rps_section section = {.table_id = rps_table_id("emb"),
            .kind = RPS_SECTION_KEYS,
            .count = 2};
    struct rps_builder builder;
    uint8_t *frame = NULL;

    rps_builder_begin(&builder, &header, 1);
    rps_builder_add(&builder, &section, keys);
    ck_assert_int_eq(rps_builder_end(&builder, &frame, length), RPS_OK);
    return frame;
}

START_TEST(frame_of_the_worked_example_is_built_byte_for_byte)
{
    size_t length = 0;
    uint8_t *frame = lookup_frame(&length);
    char hex[2 * 144 + 1];

    ck_assert_uint_eq(length, 144);
    for (size_t i = 0; i < length; i++) {
        snprintf(hex + 2 * i, 3, "%02x", frame[i]);
    }
    ck_assert_str_eq(hex, example);
    free(frame);
}
END_TEST

START_TEST(frame_is_read_back_field_by_field)
{
    size_t length = 0;
    uint8_t *frame = lookup_frame(&length);
    struct rps_header header;
    struct rps_message message;
    const struct rps_section *section = NULL;

    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    ck_assert_uint_eq(header.request_id, 42);
    ck_assert_uint_eq(header.deadline_us, 250000);
    ck_assert_uint_eq(header.step, 3);
    ck_assert_int_eq(
            rps_message_open(&message, &header, frame, length, NULL), RPS_OK);
    section = rps_message_find(&message, RPS_SECTION_KEYS, 0);
    ck_assert_ptr_nonnull(section);
    ck_assert_uint_eq(section->table_id, rps_table_id("emb"));
    ck_assert_mem_eq(rps_message_array(&message, section), keys, sizeof(keys));
    ck_assert_ptr_null(rps_message_find(&message, RPS_SECTION_ROWS, 0));
    free(frame);
}
END_TEST

START_TEST(header_with_any_flipped_bit_fails_its_checksum)
{
    size_t length = 0;
    uint8_t *frame = lookup_frame(&length);
    struct rps_header header;

    for (size_t bit = 0; bit < 8 * RPS_HEADER_BYTES; bit++) {
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
        ck_assert_int_eq(
                rps_header_decode(frame, &header, NULL), RPS_E_CORRUPT);
        frame[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    free(frame);
}
END_TEST

START_TEST(header_of_a_later_version_opcode_or_flag_is_unsupported)
{
    const struct {
        uint16_t version;
        uint16_t opcode;
        uint32_t flags;
    } later[] = {{2, 21, 0}, {1, 25, 0}, {1, 0, 0}, {1, 21, 0x20}};
    uint8_t bytes[RPS_HEADER_BYTES];
    struct rps_header header = lookup_header();
    struct rps_header back;

    for (size_t i = 0; i < 4; i++) {
        header.version = later[i].version;
        header.opcode = later[i].opcode;
        header.flags = later[i].flags;
        rps_header_encode(&header, bytes);
        ck_assert_int_eq(
                rps_header_decode(bytes, &back, NULL), RPS_E_UNSUPPORTED);
        ck_assert_uint_eq(back.request_id, 42);
    }
}
END_TEST

START_TEST(head_of_a_reply_has_its_opcode_status_and_id)
{
    uint8_t bytes[RPS_HEADER_BYTES];
    struct rps_header header = lookup_header();
    struct rps_reply_head head;

    header.flags = RPS_FLAG_REPLY;
    header.status = RPS_E_LIMIT;
    rps_header_encode(&header, bytes);
    head = rps_reply_head(bytes);
    ck_assert_uint_eq(head.opcode, header.opcode);
    ck_assert_int_eq(head.status, RPS_E_LIMIT);
    ck_assert_uint_eq(head.request_id, 42);
}
END_TEST

START_TEST(header_with_a_body_over_16_mib_is_refused)
{
    uint8_t bytes[RPS_HEADER_BYTES];
    struct rps_header header = lookup_header();
    struct rps_header back;

    header.body_bytes = RPS_BODY_BYTES_MAX;
    rps_header_encode(&header, bytes);
    ck_assert_int_eq(rps_header_decode(bytes, &back, NULL), RPS_OK);
    header.body_bytes = RPS_BODY_BYTES_MAX + 1;
    rps_header_encode(&header, bytes);
    ck_assert_int_eq(rps_header_decode(bytes, &back, NULL), RPS_E_CORRUPT);
}
END_TEST

/* Each case changes one field of the good frame's only section. */
static void
expect_corrupt(void (*change)(struct rps_section *section))
{
    size_t length = 0;
    uint8_t *frame = lookup_frame(&length);
    struct rps_header header;
    struct rps_message message;

    change((struct rps_section *)(void *)(frame + RPS_HEADER_BYTES + 8));
    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    ck_assert_int_eq(rps_message_open(&message, &header, frame, length, NULL),
            RPS_E_CORRUPT);
    ck_assert_uint_eq(message.section_count, 0);
    free(frame);
}

static void
offset_past_the_end(struct rps_section *section)
{
    section->offset = 192;
}

static void
offset_that_wraps(struct rps_section *section)
{
    section->offset = UINT64_MAX - 63;
}

static void
offset_into_the_header(struct rps_section *section)
{
    section->offset = 64;
}

static void
offset_unaligned(struct rps_section *section)
{
    section->offset = 120;
}

static void
count_that_overflows(struct rps_section *section)
{
    section->count = UINT64_MAX / 8 + 3;
}

static void
count_unlike_bytes(struct rps_section *section)
{
    section->count = 3;
}

static void
bytes_past_the_end(struct rps_section *section)
{
    section->count = 100;
    section->bytes = 800;
}

static void
kind_unknown(struct rps_section *section)
{
    section->kind = 99;
}

static void
value_unknown(struct rps_section *section)
{
    section->kind = RPS_SECTION_ROWS;
    section->value = 9;
    section->dim = 1;
}

START_TEST(section_that_lies_is_refused)
{
    void (*const changes[])(struct rps_section *) = {offset_past_the_end,
            offset_that_wraps, offset_into_the_header, offset_unaligned,
            count_that_overflows, count_unlike_bytes, bytes_past_the_end,
            kind_unknown, value_unknown};

    expect_corrupt(changes[_i]);
}
END_TEST

START_TEST(offset_of_an_empty_section_leads_nowhere)
{
    const struct rps_header request = lookup_header();
    const struct rps_section empty = {.kind = RPS_SECTION_KEYS};
    struct rps_section *section;
    struct rps_header header;
    struct rps_message message;
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t length = 0;

    rps_builder_begin(&builder, &request, 1);
    rps_builder_add(&builder, &empty, NULL);
    ck_assert_int_eq(rps_builder_end(&builder, &frame, &length), RPS_OK);
    section = (struct rps_section *)(void *)(frame + RPS_HEADER_BYTES + 8);
    section->offset = UINT64_MAX - 64;
    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_message_open(&message, &header, frame, length, NULL), RPS_OK);
    ck_assert_ptr_eq(rps_message_array(&message, message.sections), frame);
    free(frame);
}
END_TEST

START_TEST(section_count_beyond_the_body_is_refused)
{
    const uint32_t counts[] = {2, 1025, UINT32_MAX};
    size_t length = 0;
    uint8_t *frame = lookup_frame(&length);
    struct rps_header header;
    struct rps_message message;

    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    for (size_t i = 1; i < 3; i++) {
        memcpy(frame + RPS_HEADER_BYTES, &counts[i], 4);
        ck_assert_int_eq(
                rps_message_open(&message, &header, frame, length, NULL),
                RPS_E_CORRUPT);
    }
    ck_assert_int_eq(
            rps_message_open(&message, &header, frame, length - 1, NULL),
            RPS_E_CORRUPT);
    free(frame);
}
END_TEST

START_TEST(body_checksum_is_verified_where_the_flag_asks)
{
    size_t length = 0;
    uint8_t *frame = lookup_frame(&length);
    struct rps_header header;
    struct rps_message message;

    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    header.flags |= RPS_FLAG_BODY_XXH3;
    header.body_xxh3 =
            rps_checksum(frame + RPS_HEADER_BYTES, length - RPS_HEADER_BYTES);
    ck_assert_int_eq(
            rps_message_open(&message, &header, frame, length, NULL), RPS_OK);
    frame[length - 1] ^= 1;
    ck_assert_int_eq(rps_message_open(&message, &header, frame, length, NULL),
            RPS_E_CORRUPT);
    free(frame);
}
END_TEST

START_TEST(builder_refuses_what_no_frame_holds)
{
    const struct rps_header header = lookup_header();
    const struct rps_section huge = {
            .kind = RPS_SECTION_KEYS, .count = 2u << 20};
    const struct rps_section wraps = {
            .kind = RPS_SECTION_KEYS, .count = UINT64_MAX / 4};
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t length = 0;

    rps_builder_begin(&builder, &header, 1);
    ck_assert_uint_eq(rps_builder_reserve(&builder, &huge), 0);
    ck_assert_int_eq(rps_builder_end(&builder, &frame, &length), RPS_E_LIMIT);
    ck_assert_ptr_null(frame);
    rps_builder_begin(&builder, &header, 1);
    ck_assert_uint_eq(rps_builder_reserve(&builder, &wraps), 0);
    ck_assert_int_eq(rps_builder_end(&builder, &frame, &length), RPS_E_LIMIT);
}
END_TEST

START_TEST(text_reply_carries_status_and_words)
{
    const struct rps_header request = lookup_header();
    struct rps_header header;
    struct rps_message message;
    uint8_t *frame = NULL;
    size_t length = 0;
    char *text = NULL;

    ck_assert_int_eq(rps_reply_text(&request, RPS_E_NOT_FOUND, "no table", 7, 9,
                             &frame, &length),
            RPS_OK);
    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    ck_assert_int_eq(header.status, RPS_E_NOT_FOUND);
    ck_assert_uint_eq(header.epoch, 7);
    ck_assert_uint_eq(header.step, 9);
    ck_assert_int_eq(
            rps_message_open(&message, &header, frame, length, NULL), RPS_OK);
    text = rps_message_text(&message);
    ck_assert_str_eq(text, "no table");
    free(text);
    free(frame);
}
END_TEST

START_TEST(decision_survives_the_wire_and_lies_are_refused)
{
    uint32_t ranks[3] = {0, 2, 5};
    const struct rps_wire_decision decision = {.step = 9,
            .loss = 0.5,
            .save_step = 9,
            .epoch = 2,
            .wishes = RPS_WISH_SAVE,
            .rank_count = 3,
            .ranks = ranks};
    struct rps_wire_decision back;
    size_t length = 0;
    uint8_t *bytes = rps_decision_encode(&decision, &length);

    ck_assert_uint_eq(length, 52);
    ck_assert_int_eq(rps_decision_decode(bytes, length, &back, NULL), RPS_OK);
    ck_assert_uint_eq(back.step, 9);
    ck_assert_double_eq(back.loss, 0.5);
    ck_assert_mem_eq(back.ranks, ranks, sizeof(ranks));
    rps_decision_finish(&back);
    for (size_t cut = 0; cut < length; cut++) {
        ck_assert_int_eq(
                rps_decision_decode(bytes, cut, &back, NULL), RPS_E_CORRUPT);
    }
    ranks[0] = 2; /* 2, 2, 5: a rank twice */
    memcpy(bytes + 40, ranks, sizeof(ranks));
    ck_assert_int_eq(
            rps_decision_decode(bytes, length, &back, NULL), RPS_E_CORRUPT);
    free(bytes);
}
END_TEST

START_TEST(route_gives_every_slot_to_one_ps_in_equal_runs)
{
    struct rps_route route;
    const uint32_t counts[] = {1, 2, 3, 7, 4096};

    for (size_t i = 0; i < 5; i++) {
        rps_route_init(&route, counts[i]);
        for (uint32_t slot = 0; slot < RPS_SLOT_COUNT; slot++) {
            ck_assert_uint_eq(route.owner[slot],
                    (uint32_t)floor((double)slot * counts[i] / 4096));
        }
        ck_assert_uint_eq(route.owner[4095], counts[i] - 1);
    }
    ck_assert_uint_eq(rps_route_owner(&route, UINT64_MAX), 4095);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("message");
    TCase *tc = tcase_create("frame and message");

    tcase_add_test(tc, frame_of_the_worked_example_is_built_byte_for_byte);
    tcase_add_test(tc, frame_is_read_back_field_by_field);
    tcase_add_test(tc, header_with_any_flipped_bit_fails_its_checksum);
    tcase_add_test(tc, header_of_a_later_version_opcode_or_flag_is_unsupported);
    tcase_add_test(tc, head_of_a_reply_has_its_opcode_status_and_id);
    tcase_add_test(tc, header_with_a_body_over_16_mib_is_refused);
    tcase_add_loop_test(tc, section_that_lies_is_refused, 0, 9);
    tcase_add_test(tc, offset_of_an_empty_section_leads_nowhere);
    tcase_add_test(tc, section_count_beyond_the_body_is_refused);
    tcase_add_test(tc, body_checksum_is_verified_where_the_flag_asks);
    tcase_add_test(tc, builder_refuses_what_no_frame_holds);
    tcase_add_test(tc, text_reply_carries_status_and_words);
    tcase_add_test(tc, decision_survives_the_wire_and_lies_are_refused);
    tcase_add_test(tc, route_gives_every_slot_to_one_ps_in_equal_runs);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
