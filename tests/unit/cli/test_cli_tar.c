/* SPDX-License-Identifier: Apache-2.0 */
/* Heads of a tar archive: what tests/integration cannot make, which has no
 * file of 8 GiB. */
#include "client/cli/tar.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <string.h>

static void
expect_again(const char *name, uint64_t bytes)
{
    char block[RPS_TAR_BLOCK_BYTES];
    struct rps_tar_entry entry;

    ck_assert(rps_tar_write(name, bytes, block));
    ck_assert(rps_tar_read(block, &entry));
    ck_assert_str_eq(entry.name, name);
    ck_assert_uint_eq(entry.bytes, bytes);
    ck_assert(!entry.is_end && !entry.is_folder);
}

START_TEST(any_size_comes_back)
{
    static const uint64_t sizes[] = {0, 1, 511, 512, 0xffffffffu,
            ((uint64_t)8 << 30) - 1, (uint64_t)8 << 30, (uint64_t)1 << 40,
            INT64_MAX};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        expect_again("ckpt-000000000042/manifest.json", sizes[i]);
    }
}
END_TEST

START_TEST(a_long_name_is_split_at_a_slash)
{
    char name[300];

    memset(name, 'a', sizeof(name));
    memcpy(name, "ckpt-000000000042/table-", 24);
    memcpy(name + 152, "/15-of-16.slot-accumulator.npy.xxh3", 36);
    expect_again(name, 7); /* a table's name of 128 bytes */
    memset(name, 'a', 257);
    name[257] = '\0';
    ck_assert(!rps_tar_write(name, 7, (char[RPS_TAR_BLOCK_BYTES]){0}));
}
END_TEST

START_TEST(a_head_that_is_damaged_is_refused)
{
    char block[RPS_TAR_BLOCK_BYTES];
    struct rps_tar_entry entry;

    ck_assert(rps_tar_write("a/b", 5, block));
    for (size_t i = 0; i < sizeof(block); i++) {
        if (i == 155) {
            continue; /* behind the sum's end */
        }
        block[i] ^= 1;
        ck_assert_msg(!rps_tar_read(block, &entry), "byte %zu", i);
        block[i] ^= 1;
    }
    ck_assert(rps_tar_read(block, &entry));
}
END_TEST

START_TEST(a_block_of_zeros_is_the_end)
{
    const char block[RPS_TAR_BLOCK_BYTES] = {0};
    struct rps_tar_entry entry;

    ck_assert(rps_tar_read(block, &entry));
    ck_assert(entry.is_end);
    ck_assert_uint_eq(rps_tar_padding(0), 0);
    ck_assert_uint_eq(rps_tar_padding(1), 511);
    ck_assert_uint_eq(rps_tar_padding(512), 0);
}
END_TEST

static Suite *
suite(void)
{
    Suite *s = suite_create("cli_tar");
    TCase *tc = tcase_create("heads");

    tcase_add_test(tc, any_size_comes_back);
    tcase_add_test(tc, a_long_name_is_split_at_a_slash);
    tcase_add_test(tc, a_head_that_is_damaged_is_refused);
    tcase_add_test(tc, a_block_of_zeros_is_the_end);
    suite_add_tcase(s, tc);
    return s;
}

int
main(void)
{
    return run_suite(suite());
}
