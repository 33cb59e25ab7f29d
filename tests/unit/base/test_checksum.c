/* SPDX-License-Identifier: Apache-2.0 */
/* Expected values: python-xxhash 3.2 over bytes 13, 20, 27, ... mod 256. */
#include "base/checksum.h"
#include "tests/unit/suite.h"

#include <stdint.h>

#define BYTES_MAX 100003u

static unsigned char bytes[BYTES_MAX];

static const struct {
    size_t n;
    uint64_t sum;
    uint64_t high;
    uint64_t low;
} rows[] = {
        {0, 0x2d06800538d394c2u, 0x99aa06d3014798d8u, 0x6001c324468d497fu},
        {1, 0x8a21d78b1538b1c0u, 0x79d2c79e874f72cdu, 0x8a21d78b1538b1c0u},
        {17, 0x80297144ea363493u, 0xb78b58b813196334u, 0x9f8529371239a893u},
        {240, 0x38b97a24f68efc13u, 0x7d8b4b8353e7cf75u, 0x573f933fdb17e57au},
        {241, 0xa59556a86c6a6ea6u, 0xf819661966936645u, 0xa59556a86c6a6ea6u},
        {525, 0xd160cd9595da169du, 0x046c3354a10329b3u, 0xd160cd9595da169du},
        {4096, 0xe08aaaddcdc1d3e7u, 0x70a55d11e4494afdu, 0xe08aaaddcdc1d3e7u},
        {100003, 0x3f9e08f206f881e8u, 0xfd9ee7019652318eu, 0x3f9e08f206f881e8u},
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static void
set_bytes(void)
{
    for (size_t i = 0; i < BYTES_MAX; i++) {
        bytes[i] = (unsigned char)(i * 7 + 13);
    }
}

START_TEST(checksum_is_xxh3_of_any_number_of_bytes)
{
    for (size_t i = 0; i < ROW_COUNT; i++) {
        const XXH128_hash_t wide = rps_checksum_128(bytes, rows[i].n);
        ck_assert_uint_eq(rps_checksum(bytes, rows[i].n), rows[i].sum);
        ck_assert_uint_eq(wide.high64, rows[i].high);
        ck_assert_uint_eq(wide.low64, rows[i].low);
    }
}
END_TEST

START_TEST(checksum_of_parts_is_that_of_all)
{
    XXH3_state_t *sum = XXH3_createState();

    ck_assert_ptr_nonnull(sum);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        size_t part = 1;
        XXH3_64bits_reset(sum);
        for (size_t at = 0; at < rows[i].n; at += part, part = part * 3 + 1) {
            const size_t left = rows[i].n - at;
            rps_checksum_add(sum, bytes + at, left < part ? left : part);
        }
        ck_assert_uint_eq(XXH3_64bits_digest(sum), rows[i].sum);
    }
    XXH3_freeState(sum);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("checksum");
    TCase *tc = tcase_create("checksum");

    tcase_add_checked_fixture(tc, set_bytes, NULL);
    tcase_add_test(tc, checksum_is_xxh3_of_any_number_of_bytes);
    tcase_add_test(tc, checksum_of_parts_is_that_of_all);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
