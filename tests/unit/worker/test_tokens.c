/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/tokens.h"
#include "tests/unit/suite.h"

#include <stdio.h>

START_TEST(integers_below_2_48_are_packed_with_their_field)
{
    struct rps_tokens tokens = {0};
    const struct rps_token_entry *other = NULL;
    uint64_t key = 0;

    ck_assert_int_eq(rps_tokens_key(&tokens, 0, "0", &key, &other), RPS_OK);
    ck_assert_uint_eq(key, 0);
    ck_assert_int_eq(rps_tokens_key(&tokens, 3, "17", &key, &other), RPS_OK);
    ck_assert_uint_eq(key, UINT64_C(0x0003000000000011));
    ck_assert_int_eq(rps_tokens_key(&tokens, RPS_FIELD_LIMIT - 1,
                             "281474976710655", &key, &other),
            RPS_OK);
    ck_assert_uint_eq(key, UINT64_C(0x7fffffffffffffff));
    ck_assert_uint_eq(tokens.count, 0);
    rps_tokens_finish(&tokens);
}
END_TEST

START_TEST(only_canonical_decimals_are_integers)
{
    static const char *const texts[] = {"", "00", "01", "-1", "+1", " 1", "1 ",
            "1.0", "1e3", "0x1", "281474976710656", "18446744073709551616",
            "99999999999999999999999999999"};
    uint64_t token = 0;
    size_t i;

    for (i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        ck_assert_msg(!rps_token_integer(texts[i], &token), "\"%s\"", texts[i]);
    }
    ck_assert(rps_token_integer("281474976710655", &token));
    ck_assert_uint_eq(token, RPS_TOKEN_LIMIT - 1);
}
END_TEST

START_TEST(text_has_the_top_bit_and_a_key_of_its_field)
{
    struct rps_tokens tokens = {0};
    const struct rps_token_entry *other = NULL;
    uint64_t keys[3] = {0};

    ck_assert_int_eq(rps_tokens_key(&tokens, 0, "", &keys[0], &other), RPS_OK);
    ck_assert_int_eq(rps_tokens_key(&tokens, 1, "", &keys[1], &other), RPS_OK);
    ck_assert_int_eq(rps_tokens_key(&tokens, 0, "", &keys[2], &other), RPS_OK);
    ck_assert_uint_eq(keys[0] >> 63, 1);
    ck_assert_uint_eq(keys[1] >> 63, 1);
    ck_assert_uint_ne(keys[0], keys[1]);
    ck_assert_uint_eq(keys[0], keys[2]);
    ck_assert_uint_eq(tokens.count, 2);
    rps_tokens_finish(&tokens);
}
END_TEST

START_TEST(ten_thousand_texts_keep_ten_thousand_keys)
{
    struct rps_tokens tokens = {0};
    const struct rps_token_entry *other = NULL;
    uint64_t first = 0;
    uint64_t key = 0;
    char text[32];
    unsigned i;

    ck_assert_int_eq(rps_tokens_key(&tokens, 2, "t0", &first, &other), RPS_OK);
    for (i = 1; i < 10000; i++) {
        (void)snprintf(text, sizeof(text), "t%u", i);
        ck_assert_int_eq(
                rps_tokens_key(&tokens, 2, text, &key, &other), RPS_OK);
    }
    ck_assert_uint_eq(tokens.count, 10000);
    ck_assert_int_eq(rps_tokens_key(&tokens, 2, "t0", &key, &other), RPS_OK);
    ck_assert_uint_eq(key, first);
    ck_assert_uint_eq(tokens.count, 10000);
    rps_tokens_finish(&tokens);
}
END_TEST

START_TEST(two_pairs_that_meet_are_told_apart)
{
    struct rps_tokens tokens = {.mask = 7};
    const struct rps_token_entry *other = NULL;
    rps_status status = RPS_OK;
    uint64_t key = 0;
    char text[32];
    unsigned i;

    /* nine texts, eight keys: two must meet */
    for (i = 0; i < 9 && status == RPS_OK; i++) {
        (void)snprintf(text, sizeof(text), "t%u", i);
        status = rps_tokens_key(&tokens, i % 2, text, &key, &other);
    }
    ck_assert_int_eq(status, RPS_E_MISMATCH);
    ck_assert_ptr_nonnull(other);
    ck_assert_uint_eq(other->key, key);
    ck_assert_str_ne(other->text, text);
    rps_tokens_finish(&tokens);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("tokens");
    TCase *tc = tcase_create("tokens");

    tcase_set_timeout(tc, 60); /* sanitizers, busy machines */
    tcase_add_test(tc, integers_below_2_48_are_packed_with_their_field);
    tcase_add_test(tc, only_canonical_decimals_are_integers);
    tcase_add_test(tc, text_has_the_top_bit_and_a_key_of_its_field);
    tcase_add_test(tc, ten_thousand_texts_keep_ten_thousand_keys);
    tcase_add_test(tc, two_pairs_that_meet_are_told_apart);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
