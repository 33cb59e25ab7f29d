/* SPDX-License-Identifier: Apache-2.0 */
/* Rows by number: numbers that stay, rows that are taken again, draining. */
#include "embedding/rows.h"
#include "tests/unit/suite.h"

#include <string.h>

#define ROW_COUNT 20000u

struct rows_fixture {
    struct rps_budget budget;
    struct rps_arena arena;
    struct rps_rows rows;
};

static void
start(struct rows_fixture *f, size_t row_bytes)
{
    rps_budget_init(&f->budget, NULL, 0);
    ck_assert(rps_arena_init(&f->arena, &f->budget, NULL));
    rps_rows_init(&f->rows, &f->arena, row_bytes);
}

static void
finish(struct rows_fixture *f)
{
    rps_rows_finish(&f->rows);
    ck_assert_uint_le(rps_arena_bytes(&f->arena), RPS_REGION_BYTES);
    rps_arena_finish(&f->arena);
    ck_assert_uint_eq(atomic_load(&f->budget.used), 0);
}

static uint32_t
take(struct rps_rows *rows)
{
    ck_assert_int_eq(rps_rows_reserve(rows, 1), RPS_OK);
    return rps_rows_take(rows);
}

static void
mark(struct rps_rows *rows, uint32_t number)
{
    memset(rps_rows_at(rows, number), (int)(number % 251), rows->stride);
}

static void
check(const struct rps_rows *rows, uint32_t number)
{
    const char *row = rps_rows_at(rows, number);

    for (size_t i = 0; i < rows->stride; i++) {
        if ((unsigned char)row[i] != number % 251) {
            ck_abort_msg("row %u byte %zu is %d", number, i, row[i]);
        }
    }
}

START_TEST(rows_keep_number_and_content_while_many_more_are_taken)
{
    static const size_t sizes[] = {4, 12, 36, 256, 1000, 98304};
    struct rows_fixture f;
    const size_t bytes = sizes[_i];
    const uint32_t count = bytes > 1000 ? 50 : ROW_COUNT;

    start(&f, bytes);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(take(&f.rows), i);
        mark(&f.rows, i);
    }
    for (uint32_t i = 0; i < count; i++) {
        check(&f.rows, i);
    }
    ck_assert_uint_ge(rps_arena_bytes(&f.arena), count * bytes);
    finish(&f);
}
END_TEST

START_TEST(rows_given_back_are_taken_again_before_memory_grows)
{
    struct rows_fixture f;
    uint64_t bytes = 0;

    start(&f, 64);
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        mark(&f.rows, take(&f.rows));
    }
    bytes = rps_arena_bytes(&f.arena);
    for (uint32_t i = 0; i < ROW_COUNT; i += 2) {
        rps_rows_give(&f.rows, i);
    }
    ck_assert_uint_eq(f.rows.live, ROW_COUNT / 2);
    for (uint32_t i = 0; i < ROW_COUNT / 2; i++) {
        const uint32_t number = take(&f.rows);
        ck_assert_uint_eq(number % 2, 0);
        ck_assert_uint_lt(number, ROW_COUNT);
        mark(&f.rows, number);
    }
    for (uint32_t i = 0; i < ROW_COUNT; i++) {
        check(&f.rows, i);
    }
    ck_assert_uint_eq(rps_arena_bytes(&f.arena), bytes);
    finish(&f);
}
END_TEST

START_TEST(a_drained_chunk_leaves_with_its_last_row)
{
    struct rows_fixture f;
    uint32_t per_chunk = 0;
    uint32_t last = 0;

    start(&f, 64);
    per_chunk = (uint32_t)1 << f.rows.rows_log2;
    for (uint32_t i = 0; i < 3 * per_chunk; i++) {
        last = take(&f.rows);
        mark(&f.rows, last);
    }
    rps_rows_drain(&f.rows, 1);
    for (uint32_t i = per_chunk; i < 2 * per_chunk; i++) {
        ck_assert_uint_eq(f.rows.chunks[1].rows, per_chunk);
        rps_rows_give(&f.rows, i);
    }
    ck_assert_uint_eq(f.rows.chunks[1].rows, 0);
    ck_assert_uint_eq(f.rows.spare, 0);
    ck_assert_uint_eq(f.rows.live, 2 * per_chunk);
    check(&f.rows, 0);
    check(&f.rows, last);
    ck_assert_uint_eq(take(&f.rows) >> f.rows.rows_log2, 1);
    finish(&f);
}
END_TEST

START_TEST(a_chunk_that_is_kept_after_all_is_taken_from_again)
{
    struct rows_fixture f;
    const uint32_t few = 10;

    start(&f, 64);
    for (uint32_t i = 0; i < few; i++) {
        (void)take(&f.rows);
    }
    rps_rows_give(&f.rows, 3);
    rps_rows_drain(&f.rows, 0);
    ck_assert_uint_eq(f.rows.spare, 0);
    rps_rows_keep(&f.rows, 0);
    ck_assert_uint_gt(f.rows.spare, 0);
    ck_assert_uint_eq(take(&f.rows), 3);
    finish(&f);
}
END_TEST

START_TEST(a_row_is_padded_to_lines_where_that_costs_an_eighth_at_most)
{
    static const size_t cases[][2] = {
            {4, 4}, {60, 64}, {56, 56}, {216, 216}, {68, 68}, {116, 128}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rows_fixture f;
        start(&f, cases[i][0]);
        ck_assert_uint_eq(f.rows.stride, cases[i][1]);
        finish(&f);
    }
}
END_TEST

START_TEST(a_budget_that_is_used_up_is_a_limit_and_rows_stand)
{
    struct rows_fixture f;
    uint32_t count = 0;

    start(&f, 1024);
    atomic_store(&f.budget.limit, 3 * RPS_REGION_BYTES);
    while (rps_rows_reserve(&f.rows, 1) == RPS_OK) {
        mark(&f.rows, rps_rows_take(&f.rows));
        count++;
    }
    ck_assert_int_eq(rps_rows_reserve(&f.rows, 1), RPS_E_LIMIT);
    ck_assert_uint_gt(count, 4096);
    ck_assert_uint_le(atomic_load(&f.budget.used), 3 * RPS_REGION_BYTES);
    for (uint32_t i = 0; i < count; i++) {
        check(&f.rows, i);
    }
    finish(&f);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("rows");
    TCase *tc = tcase_create("rows");

    tcase_set_timeout(tc, 120);
    tcase_add_loop_test(
            tc, rows_keep_number_and_content_while_many_more_are_taken, 0, 6);
    tcase_add_test(tc, rows_given_back_are_taken_again_before_memory_grows);
    tcase_add_test(tc, a_drained_chunk_leaves_with_its_last_row);
    tcase_add_test(tc, a_chunk_that_is_kept_after_all_is_taken_from_again);
    tcase_add_test(
            tc, a_row_is_padded_to_lines_where_that_costs_an_eighth_at_most);
    tcase_add_test(tc, a_budget_that_is_used_up_is_a_limit_and_rows_stand);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
