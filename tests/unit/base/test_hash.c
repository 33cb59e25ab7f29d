/* SPDX-License-Identifier: Apache-2.0 */
/* Expected values: python-xxhash 3.2 over the bytes named in the headers. */
#include "base/digest.h"
#include "base/hash.h"
#include "tests/unit/suite.h"

#include <stdint.h>
#include <string.h>

START_TEST(hash_of_a_key_is_xxh3_of_its_bytes)
{
    ck_assert_uint_eq(rps_key_hash(0, 0), 0xc77b3abb6f87acd9u);
    ck_assert_uint_eq(rps_key_hash(1, 0), 0x2fbc593564db792eu);
    ck_assert_uint_eq(rps_key_hash(UINT64_MAX, 0), 0x5111c7e47d784413u);
    ck_assert_uint_eq(rps_key_hash(7, 42), 0xe2b7c088a70bf583u);
    ck_assert_uint_eq(rps_hash_slot(0xfff0000000000000u), 4095);
    ck_assert_uint_eq(rps_table_id("emb"), 0x68f33834bcc78b6eu);
}
END_TEST

static struct rps_digest
row_five(void)
{
    const float value[2] = {1.0f, -2.0f};
    const float slots[2] = {0.1f, 0.1f};

    return rps_digest_row(5, value, sizeof(value), slots, sizeof(slots), 3, 9);
}

static struct rps_digest
row_last(void)
{
    const float value[2] = {0.5f, 0.25f};
    const float slots[2] = {0.1f, 0.2f};

    return rps_digest_row(
            UINT64_MAX, value, sizeof(value), slots, sizeof(slots), 1, 2);
}

START_TEST(digest_of_a_row_is_xxh3_128_of_its_parts_joined)
{
    char hex[RPS_DIGEST_HEX_BYTES];

    ck_assert_str_eq(rps_digest_hex(row_five(), hex),
            "a6aafa2e3d045feb41b6b30fd87a2569");
    ck_assert_str_eq(rps_digest_hex(row_last(), hex),
            "dc65403929c1bcfbcdeb744c27165eb9");
}
END_TEST

START_TEST(digests_add_modulo_two_to_the_128_in_any_order)
{
    struct rps_digest sum = {0};
    struct rps_digest other = {0};
    char hex[RPS_DIGEST_HEX_BYTES];

    rps_digest_add(&sum, row_five());
    rps_digest_add(&sum, row_last());
    rps_digest_add(&other, row_last());
    rps_digest_add(&other, row_five());
    ck_assert_str_eq(
            rps_digest_hex(sum, hex), "83103a6766c61ce70fa2275bff908422");
    ck_assert_mem_eq(&sum, &other, sizeof(sum));
}
END_TEST

START_TEST(digest_of_a_checkpoint_sorts_its_tables_by_name)
{
    struct rps_digest table = {0};
    struct rps_digest_entry entries[2];
    char hex[RPS_DIGEST_HEX_BYTES];

    ck_assert(rps_digest_parse("83103a6766c61ce70fa2275bff908422", &table));
    entries[0] = (struct rps_digest_entry){"zed", "{}", {.low = 1}};
    entries[1] = (struct rps_digest_entry){"emb", "{\"a\":1}", table};
    ck_assert_str_eq(rps_digest_hex(rps_digest_checkpoint(entries, 2), hex),
            "1402555fe287ca3bb2461c2fb91c2170");
}
END_TEST

START_TEST(digest_text_that_is_not_32_hex_digits_is_refused)
{
    struct rps_digest digest;

    ck_assert(!rps_digest_parse("", &digest));
    ck_assert(!rps_digest_parse("83103a6766c61ce70fa2275bff90842", &digest));
    ck_assert(!rps_digest_parse("83103a6766c61ce70fa2275bff90842G", &digest));
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("hash");
    TCase *tc = tcase_create("hash and digest");

    tcase_add_test(tc, hash_of_a_key_is_xxh3_of_its_bytes);
    tcase_add_test(tc, digest_of_a_row_is_xxh3_128_of_its_parts_joined);
    tcase_add_test(tc, digests_add_modulo_two_to_the_128_in_any_order);
    tcase_add_test(tc, digest_of_a_checkpoint_sorts_its_tables_by_name);
    tcase_add_test(tc, digest_text_that_is_not_32_hex_digits_is_refused);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
