/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for kept rows that is there before the cut: what stays, what counts.
 * That rows come out as they went in: test_cut.c. */
#include "embedding/save_buffer.h"
#include "tests/unit/suite.h"

#include <check.h>
#include <string.h>

#define ROW_BYTES ((size_t)1000)
#define BLOCK     ((uint64_t)RPS_KEPT_BLOCK_BYTES)

static struct rps_budget budget;
static struct rps_save_buffer *buffer;

static void
set_up(void)
{
    rps_budget_init(&budget, NULL, 0);
    buffer = rps_save_buffer_create();
    ck_assert_ptr_nonnull(buffer);
    rps_save_buffer_set_budget(buffer, &budget);
}

static void
tear_down(void)
{
    rps_save_buffer_destroy(buffer);
    ck_assert_uint_eq(atomic_load(&budget.used), 0);
}

static struct rps_save_figures
figures(void)
{
    struct rps_save_figures now;

    rps_save_buffer_figures(buffer, &now);
    return now;
}

/* Returns the number of slices. */
static unsigned
make_ready(uint64_t bytes)
{
    unsigned slices = 1;

    while (rps_save_buffer_make_ready(buffer, bytes)) {
        slices++;
    }
    return slices;
}

static void
open_one(void)
{
    const size_t row_bytes = ROW_BYTES;

    ck_assert_int_eq(
            rps_save_buffer_open(buffer, 1024 * BLOCK, &row_bytes, 1), RPS_OK);
}

static void
add_rows(size_t n)
{
    const struct rps_kept_row kept = {.key = 7};
    const char row[ROW_BYTES] = {1};

    for (size_t i = 0; i < n; i++) {
        rps_save_buffer_add(buffer, 0, &kept, row);
    }
    ck_assert_int_eq(rps_save_buffer_state(buffer), RPS_OK);
}

/* As who writes the cut. Returns the number of rows. */
static size_t
take_all(void)
{
    struct rps_kept_block *block;
    size_t rows = 0;

    while ((block = rps_save_buffer_take(buffer, 0, true)) != NULL) {
        rows += block->used / rps_kept_stride(ROW_BYTES);
        rps_save_buffer_drop(buffer, block);
    }
    return rows;
}

START_TEST(memory_is_made_ready_in_slices_of_a_mebibyte)
{
    ck_assert_uint_eq(make_ready(40 * BLOCK), 3);
    ck_assert_uint_eq(figures().ready, 40 * BLOCK);
    ck_assert_uint_eq(make_ready(40 * BLOCK), 1);
    ck_assert_uint_eq(figures().ready, 40 * BLOCK);
}
END_TEST

START_TEST(what_is_not_wanted_any_more_is_given_back)
{
    make_ready(40 * BLOCK);
    ck_assert_uint_eq(make_ready(5 * BLOCK + 1), 1);
    ck_assert_uint_eq(figures().ready, 5 * BLOCK);
    make_ready(0);
    ck_assert_uint_eq(figures().ready, 0);
}
END_TEST

START_TEST(rows_go_to_what_is_ready_and_only_they_count)
{
    const size_t rows = 10 * (BLOCK / rps_kept_stride(ROW_BYTES));

    make_ready(16 * BLOCK);
    ck_assert_uint_eq(atomic_load(&budget.used), 0);
    open_one();
    add_rows(rows);
    ck_assert_uint_eq(figures().ready, 6 * BLOCK);
    ck_assert_uint_eq(figures().used, 10 * BLOCK);
    ck_assert_uint_eq(atomic_load(&budget.used), 10 * BLOCK);
    ck_assert_uint_eq(take_all(), rows);
    ck_assert_uint_eq(figures().ready, 16 * BLOCK);
    ck_assert_uint_eq(figures().used, 0);
    ck_assert_uint_eq(atomic_load(&budget.used), 0);
    rps_save_buffer_close(buffer);
    ck_assert_uint_eq(figures().ready, 16 * BLOCK);
}
END_TEST

START_TEST(rows_beyond_it_are_kept_too_and_their_memory_goes)
{
    const size_t rows = 50 * (BLOCK / rps_kept_stride(ROW_BYTES));

    make_ready(16 * BLOCK);
    open_one();
    add_rows(rows);
    ck_assert_uint_eq(figures().ready, 0);
    ck_assert_uint_eq(figures().used, 50 * BLOCK);
    rps_save_buffer_close(buffer); /* the cut came to nothing */
    ck_assert_uint_eq(figures().ready, 16 * BLOCK);
    ck_assert_uint_eq(atomic_load(&budget.used), 0);
}
END_TEST

START_TEST(a_few_blocks_stay_while_a_cut_is_at_hand_though_none_is_wanted)
{
    open_one();
    add_rows(50 * (BLOCK / rps_kept_stride(ROW_BYTES)));
    take_all();
    ck_assert_uint_gt(figures().ready, 0);
    ck_assert_uint_lt(figures().ready, 50 * BLOCK);
    rps_save_buffer_close(buffer);
    ck_assert_uint_eq(figures().ready, 0);
}
END_TEST

START_TEST(with_a_cut_at_hand_nothing_is_made_ready)
{
    open_one();
    ck_assert_uint_eq(make_ready(40 * BLOCK), 1);
    ck_assert_uint_eq(figures().ready, 0);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("save_buffer");
    TCase *tc = tcase_create("save_buffer");

    tcase_add_checked_fixture(tc, set_up, tear_down);
    tcase_add_test(tc, memory_is_made_ready_in_slices_of_a_mebibyte);
    tcase_add_test(tc, what_is_not_wanted_any_more_is_given_back);
    tcase_add_test(tc, rows_go_to_what_is_ready_and_only_they_count);
    tcase_add_test(tc, rows_beyond_it_are_kept_too_and_their_memory_goes);
    tcase_add_test(
            tc, a_few_blocks_stay_while_a_cut_is_at_hand_though_none_is_wanted);
    tcase_add_test(tc, with_a_cut_at_hand_nothing_is_made_ready);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
