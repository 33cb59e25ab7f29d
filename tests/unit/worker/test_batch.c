/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/batch.h"
#include "tests/unit/suite.h"
#include "tests/unit/worker/files.h"

#define ROWS 103u /* of the file: row i is "label (i mod 2)", keys i, … */

static struct rps_dataset *dataset;

/* Row i has i mod 3 more keys than one, so that rows differ in length. */
static void
open_rows(void)
{
    struct rps_text text = {0};
    struct rps_error error = {""};
    char spec[300];
    unsigned i;
    unsigned k;

    make_folder();
    for (i = 0; i < ROWS; i++) {
        rps_text_add(&text, "%u:1 %u:1", i % 2, i);
        for (k = 0; k < i % 3; k++) {
            rps_text_add(&text, " %u:%u", 1000 * (k + 1) + i, 2);
        }
        rps_text_add(&text, "\n");
    }
    put_file("rows", text.bytes);
    rps_text_finish(&text);
    (void)snprintf(spec, sizeof(spec), "feasign:%s", path_of("rows"));
    ck_assert_msg(rps_dataset_open(&dataset, spec, NULL, &error) == RPS_OK,
            "%s", error.text);
}

static void
close_rows(void)
{
    rps_dataset_close(dataset);
    remove_folder();
}

/* Append the rows of one replica's epoch; checks each against its number. */
static size_t
walk(const struct rps_batcher_options *options, uint64_t epoch, uint64_t skip,
        uint64_t *rows)
{
    struct rps_batcher *batcher = NULL;
    struct rps_batch batch = {0};
    struct rps_error error = {""};
    size_t count = 0;
    rps_status status = rps_batcher_create(&batcher, dataset, options, &error);
    size_t r;

    ck_assert_msg(status == RPS_OK, "%s", error.text);
    ck_assert_int_eq(rps_batcher_start(batcher, epoch, skip, &error), RPS_OK);
    while ((status = rps_batcher_next(batcher, &batch, &error)) == RPS_OK) {
        ck_assert_uint_eq(batch.capacity, options->batch_rows);
        for (r = 0; r < batch.rows; r++) {
            const uint32_t *bag = &batch.offsets[2 * r];
            uint64_t row = batch.keys[bag[0]];

            ck_assert_uint_eq(bag[1] - bag[0], 1);
            ck_assert_uint_eq(bag[2] - bag[1], row % 3);
            if (row % 3 == 2) {
                ck_assert_uint_eq(batch.keys[bag[1] + 1], 2000 + row);
            }
            ck_assert_float_eq(batch.labels[r], (float)(row % 2));
            rows[count++] = row;
        }
        for (r = 2 * batch.rows; r < 2 * batch.capacity; r++) {
            ck_assert_uint_eq(batch.offsets[r + 1], batch.key_count);
        }
        for (r = batch.rows; r < batch.capacity; r++) {
            ck_assert_float_eq(batch.labels[r], 0.0f);
        }
    }
    ck_assert_msg(status == RPS_E_NOT_FOUND, "%s", error.text);
    rps_batch_finish(&batch);
    rps_batcher_destroy(batcher);
    return count;
}

START_TEST(file_order_drops_the_last_partial_batch)
{
    struct rps_batcher_options options = {.batch_rows = 10, .replicas = 1};
    uint64_t rows[ROWS];
    size_t count = walk(&options, 0, 0, rows);
    size_t i;

    ck_assert_uint_eq(count, 100);
    for (i = 0; i < count; i++) {
        ck_assert_uint_eq(rows[i], i);
    }
}
END_TEST

START_TEST(evaluation_pads_the_last_batch)
{
    struct rps_batcher_options options = {
            .first_row = 80, .batch_rows = 10, .replicas = 1, .pad_last = true};
    uint64_t rows[ROWS];
    size_t count = walk(&options, 0, 0, rows);
    size_t i;

    ck_assert_uint_eq(count, 23);
    for (i = 0; i < count; i++) {
        ck_assert_uint_eq(rows[i], 80 + i);
    }
    options.first_row = 93; /* a whole batch and nothing behind it */
    ck_assert_uint_eq(walk(&options, 0, 0, rows), 10);
}
END_TEST

START_TEST(a_window_ends_where_it_was_told)
{
    struct rps_batcher_options options = {.first_row = 7,
            .end_row = 50,
            .batch_rows = 4,
            .replicas = 1,
            .pad_last = true};
    uint64_t rows[ROWS];
    size_t count = walk(&options, 0, 0, rows);

    ck_assert_uint_eq(count, 43);
    ck_assert_uint_eq(rows[0], 7);
    ck_assert_uint_eq(rows[42], 49);
    options.end_row = 0;
    options.first_row = 500; /* behind the data */
    ck_assert_uint_eq(walk(&options, 0, 0, rows), 0);
}
END_TEST

/* Rank r's batch b holds rows r, r + R, … of global batch b. */
static void
check_union(uint64_t shuffle)
{
    struct rps_batcher_options options = {.end_row = 90,
            .batch_rows = 12,
            .replicas = 1,
            .shuffle = shuffle,
            .seed = 5};
    uint64_t whole[ROWS];
    uint64_t part[ROWS];
    size_t count = walk(&options, 2, 0, whole);
    uint32_t rank;
    size_t i;

    ck_assert_uint_eq(count, 84);
    options.batch_rows = 4;
    options.replicas = 3;
    for (rank = 0; rank < 3; rank++) {
        options.rank = rank;
        ck_assert_uint_eq(walk(&options, 2, 0, part), 28);
        for (i = 0; i < 28; i++) {
            ck_assert_uint_eq(part[i], whole[i * 3 + rank]);
        }
    }
}

START_TEST(the_ranks_together_walk_the_global_order)
{
    check_union(0);
    check_union(16);
}
END_TEST

START_TEST(padding_is_shared_out_like_rows)
{
    struct rps_batcher_options options = {
            .end_row = 8, .batch_rows = 2, .replicas = 3, .pad_last = true};
    uint64_t rows[ROWS];

    ck_assert_uint_eq(walk(&options, 0, 0, rows), 3); /* 0 3 6 */
    ck_assert_uint_eq(rows[2], 6);
    options.rank = 1;
    ck_assert_uint_eq(walk(&options, 0, 0, rows), 3); /* 1 4 7 */
    options.rank = 2;
    ck_assert_uint_eq(walk(&options, 0, 0, rows), 2); /* 2 5 */
}
END_TEST

START_TEST(a_shuffle_is_a_permutation_set_by_seed_and_epoch)
{
    static const uint64_t buffers[] = {1, 2, 10, 103, 5000};
    struct rps_batcher_options options = {
            .batch_rows = 1, .replicas = 1, .seed = 9};
    uint64_t rows[ROWS];
    uint64_t again[ROWS];
    size_t b;
    size_t i;

    for (b = 0; b < sizeof(buffers) / sizeof(buffers[0]); b++) {
        bool seen[ROWS] = {false};
        size_t moved = 0;

        options.shuffle = buffers[b];
        ck_assert_uint_eq(walk(&options, 0, 0, rows), ROWS);
        for (i = 0; i < ROWS; i++) {
            ck_assert(!seen[rows[i]]);
            seen[rows[i]] = true;
            moved += rows[i] != i;
            /* a row cannot come before it was read */
            ck_assert_uint_lt(rows[i], i + buffers[b]);
        }
        ck_assert_int_eq(moved > ROWS / 4, buffers[b] > 1);
        ck_assert_uint_eq(walk(&options, 0, 0, again), ROWS);
        ck_assert_mem_eq(rows, again, sizeof(rows));
        if (buffers[b] > 1) {
            ck_assert_uint_eq(walk(&options, 1, 0, again), ROWS);
            ck_assert_mem_ne(rows, again, sizeof(rows));
            options.seed = 10;
            ck_assert_uint_eq(walk(&options, 0, 0, again), ROWS);
            ck_assert_mem_ne(rows, again, sizeof(rows));
            options.seed = 9;
        }
    }
}
END_TEST

START_TEST(a_resumed_epoch_goes_on_where_it_was_left)
{
    struct rps_batcher_options options = {
            .first_row = 3, .batch_rows = 5, .replicas = 2, .seed = 4};
    uint64_t whole[ROWS];
    uint64_t rest[ROWS];
    uint64_t shuffle;
    uint64_t skip;

    for (shuffle = 0; shuffle < 30; shuffle += 7) {
        options.shuffle = shuffle;
        ck_assert_uint_eq(walk(&options, 1, 0, whole), 50);
        for (skip = 0; skip <= 11; skip += 3) {
            size_t left = skip < 10 ? 50 - 5 * (size_t)skip : 0;

            ck_assert_uint_eq(walk(&options, 1, skip, rest), left);
            ck_assert_int_eq(
                    memcmp(rest, &whole[50 - left], left * sizeof(rest[0])), 0);
        }
    }
}
END_TEST

START_TEST(impossible_batches_are_refused)
{
    struct rps_batcher_options options = {.batch_rows = 0, .replicas = 1};
    struct rps_batcher *batcher = NULL;

    ck_assert_int_eq(
            rps_batcher_create(&batcher, dataset, &options, NULL), RPS_E_INVAL);
    options.batch_rows = 1;
    options.rank = 1;
    ck_assert_int_eq(
            rps_batcher_create(&batcher, dataset, &options, NULL), RPS_E_INVAL);
}
END_TEST

START_TEST(the_rows_of_an_epoch_are_counted_also_where_none_is_given_out)
{
    struct rps_batcher_options options = {
            .end_row = 9, .batch_rows = 10, .replicas = 1};
    struct rps_batcher *batcher = NULL;
    struct rps_batch batch = {0};

    ck_assert_int_eq(
            rps_batcher_create(&batcher, dataset, &options, NULL), RPS_OK);
    ck_assert_int_eq(rps_batcher_next(batcher, &batch, NULL), RPS_E_NOT_FOUND);
    ck_assert_int_eq(rps_batcher_start(batcher, 0, 0, NULL), RPS_OK);
    ck_assert_int_eq(rps_batcher_next(batcher, &batch, NULL), RPS_E_NOT_FOUND);
    ck_assert_uint_eq(rps_batcher_epoch_rows(batcher), 9);
    rps_batch_finish(&batch);
    rps_batcher_destroy(batcher);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("batch");
    TCase *tc = tcase_create("batch");

    tcase_set_timeout(tc, 60); /* sanitizers, busy machines */
    tcase_add_checked_fixture(tc, open_rows, close_rows);
    tcase_add_test(tc, file_order_drops_the_last_partial_batch);
    tcase_add_test(tc, evaluation_pads_the_last_batch);
    tcase_add_test(tc, a_window_ends_where_it_was_told);
    tcase_add_test(tc, the_ranks_together_walk_the_global_order);
    tcase_add_test(tc, padding_is_shared_out_like_rows);
    tcase_add_test(tc, a_shuffle_is_a_permutation_set_by_seed_and_epoch);
    tcase_add_test(tc, a_resumed_epoch_goes_on_where_it_was_left);
    tcase_add_test(tc, impossible_batches_are_refused);
    tcase_add_test(
            tc, the_rows_of_an_epoch_are_counted_also_where_none_is_given_out);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
