/* SPDX-License-Identifier: Apache-2.0 */
/* recps-bench table: its draws are what they say, and its checks bite. */
#include "bench/check.h"
#include "bench/series.h"
#include "bench/table/parts.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ROWS 256u
#define DIM  5u

static const struct bench_keyset plain_set = {.rows = ROWS};

START_TEST(a_wrong_value_is_named)
{
    const uint64_t keys[] = {7, 11};
    struct rps_error error = {.text = ""};
    float rows[2 * DIM];
    float row[DIM];

    bench_pattern(RPS_VALUE_F32, keys[0], DIM, rows);
    bench_pattern(RPS_VALUE_F32, keys[1], DIM, rows + DIM);
    ck_assert_int_eq(
            bench_check_pattern(RPS_VALUE_F32, keys, 2, DIM, rows, row, &error),
            RPS_OK);
    for (size_t i = 0; i < (size_t)2 * DIM; i++) {
        char wanted[64];
        const float right = rows[i];
        rows[i] = nextafterf(right, 2);
        ck_assert_int_eq(bench_check_pattern(RPS_VALUE_F32, keys, 2, DIM, rows,
                                 row, &error),
                RPS_E_CORRUPT);
        snprintf(wanted, sizeof(wanted), "key %d column %zu", i < DIM ? 7 : 11,
                i % DIM);
        ck_assert_ptr_nonnull(strstr(error.text, wanted));
        rows[i] = right;
    }
}
END_TEST

START_TEST(a_wrong_stored_bit_is_noticed_in_every_value_type)
{
    static const enum rps_value values[] = {
            RPS_VALUE_F32, RPS_VALUE_F16, RPS_VALUE_BF16};
    const uint64_t key = 99;
    struct rps_error error = {.text = ""};
    unsigned char row[DIM * 4];
    unsigned char scratch[DIM * 4];

    for (size_t v = 0; v < 3; v++) {
        const size_t bytes = DIM * bench_value_bytes(values[v]);
        bench_pattern_stored(values[v], key, DIM, row);
        ck_assert_int_eq(bench_check_stored(values[v], &key, 1, DIM, row,
                                 scratch, "a peer", &error),
                RPS_OK);
        for (size_t bit = 0; bit < bytes * 8; bit++) {
            row[bit / 8] ^= (unsigned char)(1u << bit % 8);
            ck_assert_int_eq(bench_check_stored(values[v], &key, 1, DIM, row,
                                     scratch, "a peer", &error),
                    RPS_E_CORRUPT);
            row[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        ck_assert_ptr_nonnull(strstr(error.text, "a peer"));
    }
}
END_TEST

START_TEST(the_bare_gather_reads_every_byte_of_a_line)
{
    struct bench_arrays arrays = {0};
    const void *at = NULL;
    uint64_t sum = 0;

    ck_assert_int_eq(bench_arrays_make_lines(&arrays, 64 * 100), RPS_OK);
    ck_assert_uint_eq(arrays.line_count, 100);
    at = arrays.lines + (size_t)BENCH_LINE_BYTES * 42;
    for (unsigned byte = 0; byte < BENCH_LINE_BYTES; byte++) {
        arrays.lines[42 * BENCH_LINE_BYTES + byte] ^= 1;
        bench_gather_lines(&at, 1, 8, &sum);
        ck_assert_uint_ne(sum, bench_line_sum(42));
        arrays.lines[42 * BENCH_LINE_BYTES + byte] ^= 1;
    }
    bench_gather_lines(&at, 1, 0, &sum);
    ck_assert_uint_eq(sum, bench_line_sum(42));
    bench_arrays_finish(&arrays);
}
END_TEST

START_TEST(every_prefetch_distance_gathers_the_same_rows)
{
    static const size_t sizes[] = {4, 12, 32, 64, 128, 256, 1000};
    char from[50][1000];
    char to[50][1000];
    const void *at[50];

    for (size_t i = 0; i < sizeof(from); i++) {
        from[i / 1000][i % 1000] = (char)rps_mix64(i);
    }
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t d = 0; d < BENCH_DISTANCES; d++) {
            memset(to, 0, sizeof(to));
            for (size_t i = 0; i < 50; i++) {
                at[i] = from[49 - i];
            }
            bench_gather_rows(at, 50, sizes[s], bench_distances[d], to);
            for (size_t i = 0; i < 50; i++) {
                ck_assert_mem_eq(to[0] + i * sizes[s], from[49 - i], sizes[s]);
            }
        }
    }
}
END_TEST

static void
draw(const char *text, size_t n, bool distinct, uint32_t *rows)
{
    struct bench_dist_spec spec;
    struct bench_dist dist;

    ck_assert(bench_dist_parse(text, &spec));
    ck_assert(bench_dist_init(&dist, &spec, &plain_set, 1, n));
    bench_dist_draw(&dist, n, distinct, rows);
    bench_dist_finish(&dist);
}

START_TEST(a_hot_key_has_its_share_and_the_rest_is_distinct)
{
    uint32_t rows[200];
    unsigned seen[ROWS] = {0};

    draw("hot:50", 200, true, rows);
    for (size_t i = 0; i < 200; i++) {
        seen[rows[i]]++;
    }
    ck_assert_uint_eq(seen[0], 100);
    for (size_t i = 1; i < ROWS; i++) {
        ck_assert_uint_le(seen[i], 1);
    }
}
END_TEST

static void
write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

START_TEST(rows_are_reused_as_the_histogram_says)
{
    static const char text[] = "# above up_to rows lookups\n"
                               "0\t1\t0.8\t0.4\n"
                               "2 4 0.15 0.3\n\n"
                               "99 inf 0.0 0.3\n";
    const struct bench_keyset many = {.rows = 1u << 30};
    struct bench_dist_spec spec;
    struct bench_dist dist;
    struct rps_error error = {.text = ""};
    uint32_t rows[1000];
    char path[64];
    unsigned once = 0;
    unsigned most = 0;

    snprintf(path, sizeof(path), "reuse:/tmp/reuse-%d.tsv", (int)getpid());
    write_text(path + 6, text);
    ck_assert(bench_dist_parse(path, &spec));
    ck_assert_int_eq(bench_dist_load(&spec, &error), RPS_OK);
    ck_assert(bench_dist_init(&dist, &spec, &many, 1, 1000));
    bench_dist_draw(&dist, 1000, false, rows);
    for (size_t i = 0; i < 1000; i++) {
        unsigned uses = 0;
        for (size_t j = 0; j < 1000; j++) {
            uses += rows[i] == rows[j];
        }
        once += uses == 1;
        most = uses > most ? uses : most;
    }
    ck_assert_uint_ge(once, 200); /* 400, were every row whole */
    ck_assert_uint_le(once, 600);
    ck_assert_uint_ge(most, 100);
    ck_assert_uint_le(most, 400);
    bench_dist_finish(&dist);
    unlink(path + 6);
}
END_TEST

START_TEST(a_histogram_that_is_none_is_refused_with_its_line)
{
    static const char *const texts[] = {"", "0 1 0.5\n", "0 1 0.5 0.5 9\n",
            "2 1 0.5 0.5\n", "a b c d\n", "0 1 0.5 2\n", "0 1 0.5 0\n"};
    char path[64];

    snprintf(path, sizeof(path), "reuse:/tmp/reuse-%d.tsv", (int)getpid());
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        struct bench_dist_spec spec;
        struct rps_error error = {.text = ""};
        write_text(path + 6, texts[i]);
        ck_assert(bench_dist_parse(path, &spec));
        ck_assert_int_eq(bench_dist_load(&spec, &error), RPS_E_INVAL);
        ck_assert_ptr_nonnull(strstr(error.text, path + 6));
    }
    unlink(path + 6);
}
END_TEST

START_TEST(distinct_draws_of_all_rows_give_each_once)
{
    static const char *const names[] = {"uniform", "zipf:1.2", "seq"};

    for (size_t k = 0; k < 3; k++) {
        uint32_t rows[ROWS];
        unsigned seen[ROWS] = {0};
        draw(names[k], ROWS, true, rows);
        for (size_t i = 0; i < ROWS; i++) {
            ck_assert_uint_eq(seen[rows[i]]++, 0);
        }
    }
}
END_TEST

static int
descending(const void *a, const void *b)
{
    return *(const int *)b - *(const int *)a;
}

/* Expected: count of rank k is 1 / k^s over their sum. */
START_TEST(zipf_draws_follow_the_law)
{
    enum {
        DRAWS = 200000
    };
    static const double skews[] = {0.5, 1.0, 1.3};
    static uint32_t rows[DRAWS];

    for (size_t k = 0; k < 3; k++) {
        int seen[ROWS] = {0};
        double sum = 0;
        char text[32];
        snprintf(text, sizeof(text), "zipf:%.1f", skews[k]);
        draw(text, DRAWS, false, rows);
        for (size_t i = 0; i < DRAWS; i++) {
            ck_assert_uint_lt(rows[i], ROWS);
            seen[rows[i]]++;
        }
        for (unsigned i = 1; i <= ROWS; i++) {
            sum += pow(i, -skews[k]);
        }
        qsort(seen, ROWS, sizeof(seen[0]), descending);
        for (unsigned rank = 1; rank <= 64; rank *= 4) {
            const double wanted = DRAWS * pow(rank, -skews[k]) / sum;
            ck_assert_double_eq_tol(
                    seen[rank - 1], wanted, 6 * sqrt(wanted) + wanted * 0.05);
        }
    }
}
END_TEST

START_TEST(other_words_are_no_distribution)
{
    static const char *const words[] = {"", "zipf", "zipf:", "zipf:0", "zipf:x",
            "hot:101", "hot:-1", "trace:", "uniform:1", "seq "};
    struct bench_dist_spec spec;

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        ck_assert_msg(!bench_dist_parse(words[i], &spec), "%s", words[i]);
    }
}
END_TEST

static rps_status
read_trace(const char *text, uint64_t rows, struct bench_keyset *set,
        struct rps_error *error)
{
    char path[] = "/tmp/recps-trace-XXXXXX";
    const int fd = mkstemp(path);
    rps_status status = RPS_OK;

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    status = bench_keyset_init(set, rows, path, error);
    unlink(path);
    return status;
}

START_TEST(a_trace_is_read_in_its_order_and_filled_up)
{
    static const uint64_t wanted[] = {5, UINT64_MAX, 0xff, 5, 0};
    struct rps_error error = {.text = ""};
    struct bench_keyset set;

    ck_assert_int_eq(
            read_trace("5\n-1\r\n\n0xff\n5\n0", 10, &set, &error), RPS_OK);
    ck_assert_uint_eq(set.rows, 10);
    ck_assert_uint_eq(set.trace_count, 5);
    for (size_t i = 0; i < 5; i++) {
        ck_assert_uint_eq(bench_keyset_key(&set, set.trace[i]), wanted[i]);
    }
    for (size_t i = 0; i < set.rows; i++) {
        for (size_t j = 0; j < i; j++) {
            ck_assert_uint_ne(set.keys[i], set.keys[j]);
        }
    }
    bench_keyset_finish(&set);
}
END_TEST

START_TEST(a_bad_line_of_a_trace_is_named)
{
    struct rps_error error = {.text = ""};
    struct bench_keyset set;

    ck_assert_int_eq(read_trace("5\n6 7\n", 1, &set, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, ":2: \"6 7\""));
    bench_keyset_finish(&set);
    ck_assert_int_eq(read_trace("\n", 1, &set, &error), RPS_E_INVAL);
    bench_keyset_finish(&set);
    ck_assert_int_eq(read_trace("\x93NUMPY\1", 1, &set, &error), RPS_E_INVAL);
    bench_keyset_finish(&set);
}
END_TEST

START_TEST(quantiles_are_of_nearest_rank)
{
    struct bench_series series = {0};

    ck_assert(isnan(bench_series_median(&series)));
    for (int i = 100; i >= 1; i--) {
        bench_series_add(&series, i);
    }
    ck_assert_double_eq(bench_series_median(&series), 50);
    ck_assert_double_eq(bench_series_quantile(&series, 0.99), 99);
    ck_assert_double_eq(bench_series_quantile(&series, 0.9999), 100);
    ck_assert_double_eq(bench_series_quantile(&series, 1), 100);
    ck_assert_double_eq(series.values[0], 100);
    bench_series_finish(&series);
}
END_TEST

START_TEST(the_ratio_is_the_median_of_ratios)
{
    struct bench_series a = {0};
    struct bench_series b = {0};

    for (int i = 1; i <= 3; i++) {
        bench_series_add(&a, i == 3 ? 600 : 2 * i);
        bench_series_add(&b, i);
    }
    ck_assert_double_eq(bench_median_ratio(&a, &b), 2);
    bench_series_finish(&a);
    bench_series_finish(&b);
}
END_TEST

/* sgd by hand: w - count * rate * gradient, exact in these halves. */
START_TEST(the_model_takes_each_push_once)
{
    const uint32_t rows[] = {3, 0, 12, 3};
    const uint32_t counts[] = {2, 5, 0, 2};
    struct rps_error error = {.text = ""};
    struct bench_model model;
    rps_table_spec spec;
    float starts[4 * DIM];
    float wanted[4 * DIM];
    const struct bench_past past = {
            .n = 4, .rows = rows, .counts = counts, .starts = starts};

    rps_table_spec_init(&spec, "t", DIM, RPS_OPTIMIZER_SGD);
    for (size_t i = 0; i < (size_t)4 * DIM; i++) {
        starts[i] = (float)i * 0.25f;
    }
    ck_assert_int_eq(bench_model_init(&model, &spec, 4, 0, 10, &error), RPS_OK);
    ck_assert_int_eq(bench_model_expect(&model, &past, wanted, &error), RPS_OK);
    for (size_t i = 0; i < 4; i++) {
        float gradient[DIM];
        const float factor = rows[i] == 0 ? 10 : 1; /* the hot row */
        bench_gradient(rows[i], DIM, gradient);
        for (size_t j = 0; j < DIM; j++) {
            ck_assert_float_eq(wanted[i * DIM + j],
                    starts[i * DIM + j] - (float)counts[i] * factor *
                                                  bench_update.learning_rate *
                                                  gradient[j]);
        }
    }
    bench_model_finish(&model);
}
END_TEST

/* What is checked again and again is compared with what a new model says;
 * 40 pushes of 3 rows are 120 replayed rows, and not 40 times as many. */
START_TEST(the_model_replays_each_push_once)
{
    const uint32_t rows[] = {3, 12, 3, 5};
    struct rps_error error = {.text = ""};
    struct bench_model model;
    rps_table_spec spec;
    float starts[4 * DIM];
    float wanted[4 * DIM];
    float anew[4 * DIM];

    rps_table_spec_init(&spec, "t", DIM, RPS_OPTIMIZER_ADAGRAD);
    for (size_t i = 0; i < 4; i++) {
        bench_pattern(RPS_VALUE_F32, rows[i], DIM, starts + i * DIM);
    }
    ck_assert_int_eq(bench_model_init(&model, &spec, 4, 16, 0, &error), RPS_OK);
    for (uint32_t count = BENCH_KEPT_MIN; count <= 40; count++) {
        const uint32_t counts[] = {count, count, count, count};
        struct bench_past past = {.n = 4,
                .keeps = true,
                .rows = rows,
                .counts = counts,
                .starts = starts};
        struct bench_model fresh;

        ck_assert_int_eq(
                bench_model_expect(&model, &past, wanted, &error), RPS_OK);
        ck_assert_uint_eq(model.pushed, (uint64_t)count * 3);
        past.keeps = false;
        ck_assert_int_eq(
                bench_model_init(&fresh, &spec, 4, 0, 0, &error), RPS_OK);
        ck_assert_int_eq(
                bench_model_expect(&fresh, &past, anew, &error), RPS_OK);
        ck_assert_mem_eq(wanted, anew, sizeof(wanted));
        bench_model_finish(&fresh);
    }
    bench_model_finish(&model);
}
END_TEST

static void
args_init(struct bench_table_args *args)
{
    *args = (struct bench_table_args){.rows = ROWS,
            .dims = {DIM},
            .dim_count = 1,
            .batch = 64,
            .dist_text = "uniform",
            .threads = 2,
            .optimizer = RPS_OPTIMIZER_ADAGRAD,
            .seconds = 0.001};
}

static struct bench_report report; /* large */

static void
fixture_init(struct bench_fixture *fixture, const struct bench_table_args *args)
{
    bench_report_init(&report);
    ck_assert_int_eq(
            bench_fixture_init(fixture, args, &plain_set, &report), RPS_OK);
}

/* What a table that answers wrong would do: one value of one row. */
static void
spoil(struct bench_fixture *fixture, uint64_t row)
{
    const uint64_t key = bench_keyset_key(&plain_set, row);
    float values[DIM];

    bench_pattern(RPS_VALUE_F32, key, DIM, values);
    values[DIM - 1] += 0.5f;
    ck_assert_int_eq(
            rps_table_assign(fixture->table, 1, &key, values, NULL, NULL, NULL),
            RPS_OK);
}

START_TEST(a_table_that_answers_wrong_fails_the_lookups)
{
    struct bench_table_args args;
    struct bench_fixture fixture;

    args_init(&args);
    fixture_init(&fixture, &args);
    ck_assert_int_eq(bench_part_lookup(&fixture), RPS_OK);
    for (uint64_t row = 0; row < ROWS; row += 4) {
        spoil(&fixture, row);
    }
    ck_assert_int_eq(bench_part_lookup(&fixture), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(report.error.text, "wrong answer: key "));
    bench_fixture_finish(&fixture);
}
END_TEST

START_TEST(a_push_that_is_lost_fails_the_last_check)
{
    struct bench_table_args args;
    struct bench_fixture fixture;
    struct bench_model model;

    args_init(&args);
    fixture_init(&fixture, &args);
    ck_assert_int_eq(bench_model_init(&model, &fixture.spec, args.batch, ROWS,
                             0, &report.error),
            RPS_OK);
    ck_assert_int_eq(bench_part_push(&fixture, &model), RPS_OK);
    ck_assert_int_eq(bench_fixture_check_all(&fixture, &model), RPS_OK);
    fixture.counts[77]++; /* counted, and never pushed */
    ck_assert_int_eq(bench_fixture_check_all(&fixture, &model), RPS_E_CORRUPT);
    bench_model_finish(&model);
    bench_fixture_finish(&fixture);
}
END_TEST

START_TEST(a_table_that_answers_wrong_fails_the_threads)
{
    struct bench_table_args args;
    struct bench_fixture fixture;

    args_init(&args);
    fixture_init(&fixture, &args);
    ck_assert_int_eq(bench_part_scaling(&fixture), RPS_OK);
    for (uint64_t row = 0; row < ROWS; row++) {
        const uint64_t key = bench_keyset_key(&plain_set, row);
        const float zeros[DIM] = {0};
        ck_assert_int_eq(rps_table_assign(fixture.table, 1, &key, zeros, NULL,
                                 NULL, NULL),
                RPS_OK);
    }
    ck_assert_int_eq(bench_part_scaling(&fixture), RPS_E_CORRUPT);
    bench_fixture_finish(&fixture);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("table_bench");
    TCase *tcase = tcase_create("all");

    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, a_wrong_value_is_named);
    tcase_add_test(tcase, a_wrong_stored_bit_is_noticed_in_every_value_type);
    tcase_add_test(tcase, the_bare_gather_reads_every_byte_of_a_line);
    tcase_add_test(tcase, every_prefetch_distance_gathers_the_same_rows);
    tcase_add_test(tcase, a_hot_key_has_its_share_and_the_rest_is_distinct);
    tcase_add_test(tcase, distinct_draws_of_all_rows_give_each_once);
    tcase_add_test(tcase, rows_are_reused_as_the_histogram_says);
    tcase_add_test(tcase, a_histogram_that_is_none_is_refused_with_its_line);
    tcase_add_test(tcase, zipf_draws_follow_the_law);
    tcase_add_test(tcase, other_words_are_no_distribution);
    tcase_add_test(tcase, a_trace_is_read_in_its_order_and_filled_up);
    tcase_add_test(tcase, a_bad_line_of_a_trace_is_named);
    tcase_add_test(tcase, quantiles_are_of_nearest_rank);
    tcase_add_test(tcase, the_ratio_is_the_median_of_ratios);
    tcase_add_test(tcase, the_model_takes_each_push_once);
    tcase_add_test(tcase, the_model_replays_each_push_once);
    tcase_add_test(tcase, a_table_that_answers_wrong_fails_the_lookups);
    tcase_add_test(tcase, a_push_that_is_lost_fails_the_last_check);
    tcase_add_test(tcase, a_table_that_answers_wrong_fails_the_threads);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
