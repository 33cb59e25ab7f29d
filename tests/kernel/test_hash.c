/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of the set that RPS_ISA names against the library's XXH3_64. */
#include "tests/kernel/kernels.h"

#include <xxhash.h>

#define KEYS_MAX 70u
#define ROUNDS   40u

static uint64_t
random_word(void)
{
    const uint64_t high = random_bits();
    const uint64_t middle = random_bits();

    return high << 40 ^ middle << 20 ^ random_bits();
}

/* Word i of a row: at the ends of the range, a bit, or random. */
static uint64_t
word(size_t i)
{
    static const uint64_t ends[] = {0, 1, UINT64_MAX, INT64_MAX,
            (uint64_t)INT64_MAX + 1, UINT32_MAX, (uint64_t)UINT32_MAX << 32};
    const size_t count = sizeof(ends) / sizeof(ends[0]);

    if (i < count) {
        return ends[i];
    }
    return i < count + 64 ? (uint64_t)1 << (i - count) : random_word();
}

/* keys[1 .. n] of words, and what is not to be written before and behind. */
static void
assert_hashes(uint64_t hash_seed, size_t first, size_t n)
{
    uint64_t keys[KEYS_MAX + 2];
    uint64_t hashes[KEYS_MAX + 2];

    for (size_t i = 0; i < KEYS_MAX + 2; i++) {
        keys[i] = word(first + i);
        hashes[i] = 0x5a5a;
    }
    fast.hash(keys + 1, n, hash_seed, hashes + 1);
    ck_assert_uint_eq(hashes[0], 0x5a5a);
    ck_assert_uint_eq(hashes[n + 1], 0x5a5a);
    for (size_t i = 1; i <= n; i++) {
        ck_assert_uint_eq(hashes[i],
                XXH3_64bits_withSeed(&keys[i], sizeof(keys[i]), hash_seed));
    }
}

START_TEST(a_key_hashes_as_the_library_hashes_its_bytes)
{
    for (size_t s = 0; s < 71 + ROUNDS; s++) {
        const uint64_t hash_seed = word(s);
        for (size_t first = 0; first < 3 * KEYS_MAX; first += KEYS_MAX) {
            assert_hashes(hash_seed, first, KEYS_MAX);
        }
    }
}
END_TEST

START_TEST(any_number_of_keys_is_hashed_and_no_more)
{
    for (size_t n = 0; n <= KEYS_MAX; n++) {
        assert_hashes(random_word(), 1000, n);
    }
}
END_TEST

static Suite *
hash_suite(void)
{
    Suite *suite = suite_create("hash");
    TCase *tc = tcase_create("hash");

    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, a_key_hashes_as_the_library_hashes_its_bytes);
    tcase_add_test(tc, any_number_of_keys_is_hashed_and_no_more);
    suite_add_tcase(suite, tc);
    return suite;
}

int
main(void)
{
    const int skip = kernels_choose();

    return skip != 0 ? skip : run_suite(hash_suite());
}
