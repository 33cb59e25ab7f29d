/* SPDX-License-Identifier: Apache-2.0 */
/* The proofs were computed with Python's hmac and hashlib over a frame that
 * tests/integration/wire.py built: nonces 0..31 and 32..63, the text
 * {"a":1}, request 42, epoch 1. */
#include "proto/auth.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES  288u
#define PROOF_OFFSET 256u

static uint8_t short_token[32];
static uint8_t long_token[200]; /* longer than a block of SHA-256 */
static struct rps_nonces nonces;

static void
setup(void)
{
    memcpy(short_token, "0123456789abcdef0123456789abcdef", 32);
    for (uint8_t i = 0; i < 200; i++) {
        long_token[i] = i;
    }
    for (uint8_t i = 0; i < RPS_NONCE_BYTES; i++) {
        nonces.client[i] = i;
        nonces.server[i] = (uint8_t)(RPS_NONCE_BYTES + i);
    }
}

static uint8_t *
build_hello(void)
{
    const struct rps_header header = {.version = RPS_WIRE_VERSION,
            .opcode = RPS_OP_HELLO,
            .request_id = 42,
            .epoch = 1};
    struct rps_builder builder;
    uint8_t *frame = NULL;
    size_t bytes = 0;

    rps_builder_begin(&builder, &header, 2);
    rps_builder_add_text(&builder, "{\"a\":1}", 7);
    ck_assert_uint_eq(rps_auth_add(&builder, NULL), PROOF_OFFSET);
    ck_assert_int_eq(rps_builder_end(&builder, &frame, &bytes), RPS_OK);
    ck_assert_uint_eq(bytes, FRAME_BYTES);
    return frame;
}

static rps_status
verify(const struct rps_secret *token, enum rps_prover prover,
        const uint8_t *frame, struct rps_error *error)
{
    struct rps_header header;
    struct rps_message message;

    ck_assert_int_eq(rps_header_decode(frame, &header, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_message_open(&message, &header, frame, FRAME_BYTES, NULL),
            RPS_OK);
    return rps_auth_verify(token, prover, &nonces, &message, error);
}

static void
check_proof(uint8_t *bytes, size_t length, enum rps_prover prover,
        const char *expected)
{
    const struct rps_secret token = {.bytes = bytes, .length = length};
    uint8_t *frame = build_hello();
    char hex[2 * RPS_PROOF_BYTES + 1];

    ck_assert_int_eq(rps_auth_sign(&token, prover, &nonces, frame, FRAME_BYTES,
                             PROOF_OFFSET, NULL),
            RPS_OK);
    for (size_t i = 0; i < RPS_PROOF_BYTES; i++) {
        snprintf(hex + 2 * i, 3, "%02x", frame[PROOF_OFFSET + i]);
    }
    ck_assert_str_eq(hex, expected);
    ck_assert_int_eq(verify(&token, prover, frame, NULL), RPS_OK);
    free(frame);
}

START_TEST(proofs_are_those_of_another_implementation)
{
    check_proof(short_token, 32, RPS_PROVER_CLIENT,
            "a28b043de56b1cbf817ae5ec0bd8cfee00e9162781bcf2a502c0389271545710");
    check_proof(short_token, 32, RPS_PROVER_SERVER,
            "115a4751c8b636ac7766c80154d2d0cee4836265c472b11b229ece9e0abccbdb");
    check_proof(long_token, 200, RPS_PROVER_CLIENT,
            "48c2337fa27024269b63d6c8fea39da7ea3858a38bf398a898f458c06f9b50a2");
    check_proof(long_token, 200, RPS_PROVER_SERVER,
            "c6687076daa4b01a5328c2064859940b135841887d9d16e2f7548f59fbb0811b");
}
END_TEST

START_TEST(proof_of_another_token_nonce_or_prover_is_wrong)
{
    struct rps_secret token = {.bytes = short_token, .length = 32};
    uint8_t *frame = build_hello();
    struct rps_error error;

    ck_assert_int_eq(rps_auth_sign(&token, RPS_PROVER_CLIENT, &nonces, frame,
                             FRAME_BYTES, PROOF_OFFSET, NULL),
            RPS_OK);
    ck_assert_int_eq(
            verify(&token, RPS_PROVER_SERVER, frame, &error), RPS_E_AUTH);
    ck_assert_ptr_nonnull(strstr(error.text, "wrong"));
    short_token[31] ^= 1;
    ck_assert_int_eq(
            verify(&token, RPS_PROVER_CLIENT, frame, NULL), RPS_E_AUTH);
    short_token[31] ^= 1;
    token.length = 31;
    ck_assert_int_eq(
            verify(&token, RPS_PROVER_CLIENT, frame, NULL), RPS_E_AUTH);
    token.length = 32;
    nonces.server[0] ^= 1;
    ck_assert_int_eq(
            verify(&token, RPS_PROVER_CLIENT, frame, NULL), RPS_E_AUTH);
    nonces.server[0] ^= 1;
    nonces.client[31] ^= 0x80;
    ck_assert_int_eq(
            verify(&token, RPS_PROVER_CLIENT, frame, NULL), RPS_E_AUTH);
    nonces.client[31] ^= 0x80;
    ck_assert_int_eq(verify(&token, RPS_PROVER_CLIENT, frame, NULL), RPS_OK);
    free(frame);
}
END_TEST

/* The bytes that the frame's own form leaves open: text and proof. */
START_TEST(proof_covers_every_byte_of_the_frame)
{
    const struct rps_secret token = {.bytes = short_token, .length = 32};
    uint8_t *frame = build_hello();

    ck_assert_int_eq(rps_auth_sign(&token, RPS_PROVER_CLIENT, &nonces, frame,
                             FRAME_BYTES, PROOF_OFFSET, NULL),
            RPS_OK);
    for (size_t at = 192; at < FRAME_BYTES; at++) {
        frame[at] ^= 4;
        ck_assert_msg(
                verify(&token, RPS_PROVER_CLIENT, frame, NULL) == RPS_E_AUTH,
                "byte %zu", at);
        frame[at] ^= 4;
    }
    ck_assert_int_eq(verify(&token, RPS_PROVER_CLIENT, frame, NULL), RPS_OK);
    free(frame);
}
END_TEST

START_TEST(a_message_without_one_proof_of_32_bytes_has_none)
{
    const struct rps_header header = {
            .version = RPS_WIRE_VERSION, .opcode = RPS_OP_HELLO};
    const struct rps_section odd = {.kind = RPS_SECTION_AUTH, .count = 33};
    const uint8_t bytes[33] = {0};

    for (int shape = 0; shape < 3; shape++) {
        struct rps_header decoded;
        struct rps_message message;
        struct rps_builder builder;
        uint8_t *frame = NULL;
        size_t length = 0;

        rps_builder_begin(&builder, &header, 2);
        if (shape == 1) {
            rps_builder_add(&builder, &odd, bytes);
        } else if (shape == 2) {
            (void)rps_auth_add(&builder, bytes);
            (void)rps_auth_add(&builder, bytes);
        }
        ck_assert_int_eq(rps_builder_end(&builder, &frame, &length), RPS_OK);
        ck_assert_int_eq(rps_header_decode(frame, &decoded, NULL), RPS_OK);
        ck_assert_int_eq(
                rps_message_open(&message, &decoded, frame, length, NULL),
                RPS_OK);
        ck_assert_ptr_null(rps_auth_find(&message));
        free(frame);
    }
}
END_TEST

START_TEST(nonces_are_not_drawn_twice)
{
    uint8_t first[RPS_NONCE_BYTES] = {0};
    uint8_t second[RPS_NONCE_BYTES] = {0};

    ck_assert_int_eq(rps_auth_draw(first, NULL), RPS_OK);
    ck_assert_int_eq(rps_auth_draw(second, NULL), RPS_OK);
    ck_assert_mem_ne(first, second, sizeof(first));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("auth");
    TCase *tcase = tcase_create("proofs");

    setup();
    if (rps_auth_built(NULL) != RPS_OK) {
        return 77; /* skipped: built without OpenSSL */
    }
    tcase_add_test(tcase, proofs_are_those_of_another_implementation);
    tcase_add_test(tcase, proof_of_another_token_nonce_or_prover_is_wrong);
    tcase_add_test(tcase, proof_covers_every_byte_of_the_frame);
    tcase_add_test(tcase, a_message_without_one_proof_of_32_bytes_has_none);
    tcase_add_test(tcase, nonces_are_not_drawn_twice);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
