/* SPDX-License-Identifier: Apache-2.0 */
/* Against a search through the whole array for every key. */
#include "base/hash.h"
#include "client/dedup.h"
#include "tests/unit/suite.h"

#include <stdlib.h>

static struct rps_route route;

static void
route_of(uint32_t ps_count)
{
    rps_route_init(&route, ps_count);
}

/* Index of the key among the first occurrences, by brute force. */
static uint32_t
model_index(const uint64_t *keys, size_t position, const uint64_t *padding)
{
    uint32_t distinct = 0;
    size_t i;
    size_t j;

    for (i = 0; i <= position; i++) {
        for (j = 0; j < i && keys[j] != keys[i]; j++) {
        }
        if (keys[i] == keys[position]) {
            return distinct;
        }
        distinct += j == i && (padding == NULL || keys[i] != *padding);
    }
    return distinct;
}

static void
hold_to_model(const uint64_t *keys, size_t n, const uint64_t *padding)
{
    struct rps_dedup dedup;
    size_t i;
    uint32_t total = 0;

    ck_assert_int_eq(
            rps_dedup_init(&dedup, keys, n, padding, &route, 11), RPS_OK);
    for (i = 0; i < n; i++) {
        if (padding != NULL && keys[i] == *padding) {
            ck_assert_uint_eq(dedup.index[i], RPS_DEDUP_PADDING);
            continue;
        }
        ck_assert_uint_eq(dedup.index[i], model_index(keys, i, padding));
        ck_assert_uint_eq(dedup.keys[dedup.index[i]], keys[i]);
        ck_assert_uint_le(dedup.first[dedup.index[i]], i);
        total++;
    }
    for (i = 0; i < dedup.count; i++) {
        total -= dedup.counts[i];
    }
    ck_assert_uint_eq(total, 0);
    rps_dedup_finish(&dedup);
}

START_TEST(duplicates_are_found_in_order_of_first_occurrence)
{
    uint64_t keys[400];
    size_t i;

    route_of(3);
    for (i = 0; i < 400; i++) {
        keys[i] = rps_mix64(i) % 97;
    }
    hold_to_model(keys, 400, NULL);
    hold_to_model(keys, 1, NULL);
    hold_to_model(keys, 0, NULL);
}
END_TEST

START_TEST(no_key_is_reserved)
{
    const uint64_t keys[] = {0, UINT64_MAX, 1, 0x8000000000000000u,
            0x7fffffffffffffffu, 0, UINT64_MAX, 0x8000000000000000u, UINT32_MAX,
            0xffffffff00000000u};

    route_of(1);
    hold_to_model(keys, sizeof(keys) / sizeof(keys[0]), NULL);
}
END_TEST

START_TEST(padding_is_left_out)
{
    const uint64_t keys[] = {5, 0, 7, 0, 5, 0};
    const uint64_t padding = 0;

    route_of(2);
    hold_to_model(keys, 6, &padding);
    hold_to_model(keys + 1, 1, &padding);
}
END_TEST

START_TEST(each_server_gets_its_own_keys_in_first_occurrence_order)
{
    uint64_t keys[1000];
    struct rps_dedup dedup;
    uint32_t seen = 0;
    uint32_t ps;
    size_t i;

    route_of(3);
    for (i = 0; i < 1000; i++) {
        keys[i] = rps_mix64(i) % 500;
    }
    ck_assert_int_eq(
            rps_dedup_init(&dedup, keys, 1000, NULL, &route, 7), RPS_OK);
    for (ps = 0; ps < 3; ps++) {
        uint32_t at;

        for (at = dedup.starts[ps]; at < dedup.starts[ps + 1]; at++) {
            uint64_t key = dedup.keys[dedup.order[at]];
            uint32_t slot = (uint32_t)(rps_key_hash(key, 7) >> 52);

            /* slot s belongs to PS floor(s n / 4096) */
            ck_assert_uint_eq(slot * 3 / 4096, ps);
            ck_assert(at == dedup.starts[ps] ||
                      dedup.order[at] > dedup.order[at - 1]);
            seen++;
        }
        ck_assert_uint_eq(rps_dedup_run(&dedup, ps),
                dedup.starts[ps + 1] - dedup.starts[ps]);
    }
    ck_assert_uint_eq(seen, dedup.count);
    rps_dedup_finish(&dedup);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("dedup");
    TCase *tcase = tcase_create("dedup");

    tcase_add_test(tcase, duplicates_are_found_in_order_of_first_occurrence);
    tcase_add_test(tcase, no_key_is_reserved);
    tcase_add_test(tcase, padding_is_left_out);
    tcase_add_test(
            tcase, each_server_gets_its_own_keys_in_first_occurrence_order);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
