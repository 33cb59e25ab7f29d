/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/rows.h"
#include "tests/unit/suite.h"

#include <stdint.h>

static void
write_row(struct rps_rows *rows, uint64_t number, size_t floats)
{
    float *row = rps_rows_at(rows, number);

    row[0] = (float)number;
    row[floats - 1] = (float)number + 0.5f;
}

/* Rows that overlap, or share a place, overwrite each other's ends. */
static void
assert_rows_are_apart(size_t floats, uint64_t count)
{
    struct rps_rows rows;
    const float *first = NULL;
    size_t wrong = 0;

    rps_rows_init(&rows, floats);
    ck_assert_uint_ge(rows.stride, floats);
    for (uint64_t number = 0; number < count; number++) {
        ck_assert_int_eq(rps_rows_reserve(&rows, number + 1), RPS_OK);
        write_row(&rows, number, floats);
        first = number == 0 ? rps_rows_at(&rows, 0) : first;
    }
    ck_assert_ptr_eq(rps_rows_at(&rows, 0), first);
    for (uint64_t number = 0; number < count; number++) {
        const float *row = rps_rows_at(&rows, number);
        wrong += row[0] != (float)number ||
                 row[floats - 1] != (float)number + 0.5f;
    }
    ck_assert_uint_eq(wrong, 0);
    ck_assert_uint_ge(rps_rows_bytes(&rows), count * floats * sizeof(float));
    rps_rows_finish(&rows);
}

START_TEST(rows_lie_apart_over_many_of_the_largest_chunks)
{
    assert_rows_are_apart(8192, 400);     /* 64 rows in the largest chunk */
    assert_rows_are_apart(3 * 8192, 100); /* 16 rows, chunk 0 has one */
    assert_rows_are_apart(8193, 200);
}
END_TEST

START_TEST(narrow_rows_lie_apart_too)
{
    for (size_t floats = 2; floats <= 70; floats += 17) {
        assert_rows_are_apart(floats, 20000);
    }
}
END_TEST

START_TEST(a_row_is_padded_to_lines_where_that_costs_an_eighth)
{
    static const size_t cases[][2] = {
            {16, 16}, {15, 16}, {14, 14}, {17, 17}, {57, 64}, {56, 56}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct rps_rows rows;
        rps_rows_init(&rows, cases[i][0]);
        ck_assert_uint_eq(rows.stride, cases[i][1]);
        rps_rows_finish(&rows);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("rows");
    TCase *chunks = tcase_create("chunks");

    tcase_set_timeout(chunks, 60);
    tcase_add_test(chunks, rows_lie_apart_over_many_of_the_largest_chunks);
    tcase_add_test(chunks, narrow_rows_lie_apart_too);
    tcase_add_test(chunks, a_row_is_padded_to_lines_where_that_costs_an_eighth);
    suite_add_tcase(suite, chunks);
    return run_suite(suite);
}
