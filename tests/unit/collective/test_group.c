/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank runs every test: under mpirun, one process a rank, without
 * Check's forks (a group is joined once a process). argv[1] says what the
 * group is like.
 */
#include "tests/unit/suite.h"

#include <recps/collective.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>

static rps_collective *group;
static const char *kind;
static uint32_t reversed[64];

static void
fill_options(rps_collective_options *options, uint32_t size)
{
    rps_collective_options_init(options);
    options->bucket_bytes = 4096;
    if (strcmp(kind, "ring") == 0 || strcmp(kind, "reversed") == 0) {
        options->algorithm = RPS_ALLREDUCE_RING;
    }
    if (strcmp(kind, "reversed") == 0) {
        for (uint32_t p = 0; p < size; p++) {
            reversed[p] = size - 1 - p;
        }
        options->order = reversed;
        options->order_count = size;
    }
}

/* Small whole numbers: every sum of them is exact. */
static float
value_of(uint32_t rank, size_t i)
{
    return (float)((i * 7 + rank * 13) % 101) - 50.0f;
}

static float
sum_of(size_t i)
{
    float sum = 0.0f;

    for (uint32_t r = 0; r < rps_collective_size(group); r++) {
        sum += value_of(r, i);
    }
    return sum;
}

static float *
make_values(size_t count)
{
    float *values = malloc((count + 1) * sizeof(*values));

    ck_assert_ptr_nonnull(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = value_of(rps_collective_rank(group), i);
    }
    values[count] = 12345.0f; /* stays */
    return values;
}

static void
assert_sums(const float *values, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_float_eq(values[i], sum_of(i) * factor);
    }
    ck_assert_float_eq(values[count], 12345.0f);
}

START_TEST(every_rank_has_a_number_of_its_own)
{
    const uint32_t size = rps_collective_size(group);
    float *seen = calloc(size, sizeof(*seen));

    ck_assert_uint_lt(rps_collective_rank(group), size);
    seen[rps_collective_rank(group)] = 1.0f;
    ck_assert_int_eq(
            rps_collective_allreduce(group, seen, size, RPS_REDUCE_SUM),
            RPS_OK);
    for (uint32_t r = 0; r < size; r++) {
        ck_assert_float_eq(seen[r], 1.0f);
    }
    free(seen);
}
END_TEST

START_TEST(on_one_host_local_ranks_are_the_ranks)
{
    ck_assert_uint_eq(
            rps_collective_local_rank(group), rps_collective_rank(group));
    ck_assert_uint_eq(
            rps_collective_local_size(group), rps_collective_size(group));
}
END_TEST

START_TEST(a_broadcast_gives_every_rank_the_bytes_of_its_root)
{
    for (uint32_t root = 0; root < rps_collective_size(group); root++) {
        for (size_t bytes = 0; bytes < 70000; bytes = bytes * 3 + 1) {
            char *data = malloc(bytes + 1);

            memset(data, (int)rps_collective_rank(group), bytes + 1);
            ck_assert_int_eq(
                    rps_collective_broadcast(group, data, bytes, root), RPS_OK);
            for (size_t i = 0; i < bytes; i++) {
                ck_assert_int_eq(data[i], (char)root);
            }
            ck_assert_int_eq(data[bytes], (char)rps_collective_rank(group));
            free(data);
        }
    }
}
END_TEST

START_TEST(an_allreduce_is_the_sum_over_all_ranks)
{
    static const size_t counts[] = {0, 1, 2, 3, 5, 1000, 100003};

    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        float *values = make_values(counts[c]);

        ck_assert_int_eq(rps_collective_allreduce(
                                 group, values, counts[c], RPS_REDUCE_SUM),
                RPS_OK);
        assert_sums(values, counts[c], 1.0f);
        free(values);
    }
}
END_TEST

START_TEST(a_mean_is_the_sum_by_the_number_of_ranks)
{
    float *values = make_values(1000);

    ck_assert_int_eq(
            rps_collective_allreduce(group, values, 1000, RPS_REDUCE_MEAN),
            RPS_OK);
    assert_sums(values, 1000, 1.0f / (float)rps_collective_size(group));
    free(values);
}
END_TEST

START_TEST(every_rank_has_the_same_bits_of_a_sum_that_rounds)
{
    const size_t count = 10007;
    float *values = make_values(count);
    float *others = malloc(count * sizeof(*others));

    for (size_t i = 0; i < count; i++) {
        values[i] = values[i] * 1.1f + 1e-3f * (float)(i % 17);
    }
    ck_assert_int_eq(
            rps_collective_allreduce(group, values, count, RPS_REDUCE_SUM),
            RPS_OK);
    for (uint32_t root = 0; root < rps_collective_size(group); root++) {
        memcpy(others, values, count * sizeof(*others));
        ck_assert_int_eq(rps_collective_broadcast(
                                 group, others, count * sizeof(*others), root),
                RPS_OK);
        ck_assert_mem_eq(others, values, count * sizeof(*others));
    }
    free(values);
    free(others);
}
END_TEST

/* A bucket has 1024 floats. */
START_TEST(tensors_of_any_sizes_are_fused_and_summed)
{
    static const size_t counts[] = {
            0, 1, 1023, 1, 1024, 0, 512, 512, 3000, 7, 0, 1025, 1, 2};
    rps_tensor tensors[sizeof(counts) / sizeof(counts[0])];
    const size_t n = sizeof(counts) / sizeof(counts[0]);

    for (size_t from = 0; from < n; from++) {
        for (size_t t = from; t < n; t++) {
            tensors[t] = (rps_tensor){
                    .values = make_values(counts[t]), .count = counts[t]};
        }
        ck_assert_int_eq(rps_collective_allreduce_many(group, tensors + from,
                                 n - from, RPS_REDUCE_SUM),
                RPS_OK);
        for (size_t t = from; t < n; t++) {
            assert_sums(tensors[t].values, counts[t], 1.0f);
            free(tensors[t].values);
        }
    }
}
END_TEST

START_TEST(no_tensors_are_a_sum_of_nothing)
{
    ck_assert_int_eq(
            rps_collective_allreduce_many(group, NULL, 0, RPS_REDUCE_MEAN),
            RPS_OK);
}
END_TEST

START_TEST(a_barrier_lets_all_pass)
{
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(rps_collective_barrier(group), RPS_OK);
    }
}
END_TEST

static void
assert_words(const char *part)
{
    ck_assert_msg(strstr(rps_collective_error(group), part) != NULL,
            "\"%s\" is not in \"%s\"", part, rps_collective_error(group));
}

/* Nothing is sent: no rank is left waiting. */
START_TEST(what_breaks_a_rule_is_refused_in_words)
{
    rps_collective_options options;
    rps_collective *second = group;
    float value = 0.0f;

    ck_assert_int_eq(rps_collective_broadcast(
                             group, &value, 1, rps_collective_size(group)),
            RPS_E_INVAL);
    assert_words("root");
    ck_assert_int_eq(rps_collective_broadcast(group, NULL, 1, 0), RPS_E_INVAL);
    ck_assert_int_eq(rps_collective_allreduce(group, NULL, 1, RPS_REDUCE_SUM),
            RPS_E_INVAL);
    ck_assert_int_eq(
            rps_collective_allreduce(group, &value, 1, (enum rps_reduce)7),
            RPS_E_INVAL);
    assert_words("neither SUM nor MEAN");
    ck_assert_int_eq(rps_collective_barrier(NULL), RPS_E_INVAL);
    rps_collective_options_init(&options);
    ck_assert_int_eq(rps_collective_initialize(&second, &options), RPS_E_INVAL);
    assert_words("started in this process before");
    ck_assert_ptr_null(second);
    options.bucket_bytes = 1;
    ck_assert_int_eq(rps_collective_initialize(&second, &options), RPS_E_INVAL);
    assert_words("bucket_bytes");
    options.bucket_bytes = 4096;
    options.algorithm = (enum rps_allreduce)9;
    ck_assert_int_eq(rps_collective_initialize(&second, &options), RPS_E_INVAL);
    options.struct_bytes = 1;
    ck_assert_int_eq(rps_collective_initialize(&second, &options), RPS_E_INVAL);
}
END_TEST

static int
run_tests(void)
{
    Suite *suite = suite_create("group");
    TCase *tcase = tcase_create(kind);
    SRunner *runner = NULL;
    int failed = 0;

    tcase_add_test(tcase, every_rank_has_a_number_of_its_own);
    tcase_add_test(tcase, on_one_host_local_ranks_are_the_ranks);
    tcase_add_test(tcase, a_broadcast_gives_every_rank_the_bytes_of_its_root);
    tcase_add_test(tcase, an_allreduce_is_the_sum_over_all_ranks);
    tcase_add_test(tcase, a_mean_is_the_sum_by_the_number_of_ranks);
    tcase_add_test(tcase, every_rank_has_the_same_bits_of_a_sum_that_rounds);
    tcase_add_test(tcase, tensors_of_any_sizes_are_fused_and_summed);
    tcase_add_test(tcase, no_tensors_are_a_sum_of_nothing);
    tcase_add_test(tcase, a_barrier_lets_all_pass);
    tcase_add_test(tcase, what_breaks_a_rule_is_refused_in_words);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed;
}

/* An order that is none: refused on every rank, and all can end. */
static int
join_in_a_bad_order(uint32_t size)
{
    static const struct {
        const char *kind;
        uint32_t order[2];
        uint32_t count;
        rps_status status;
        const char *words;
    } orders[] = {
            {"twice", {1, 1}, 2, RPS_E_INVAL, "stands there twice"},
            {"beyond", {0, 2}, 2, RPS_E_INVAL, "is not one of the group"},
            {"short", {0}, 1, RPS_E_MISMATCH, "has 1 ranks, the group 2"},
    };

    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        rps_collective_options options;

        if (size != 2 || strcmp(kind, orders[i].kind) != 0) {
            continue;
        }
        rps_collective_options_init(&options);
        options.order = orders[i].order;
        options.order_count = orders[i].count;
        return rps_collective_initialize(&group, &options) !=
                       orders[i].status ||
               group != NULL ||
               strstr(rps_collective_error(NULL), orders[i].words) == NULL;
    }
    fprintf(stderr, "no kind \"%s\"\n", kind);
    return 1;
}

int
main(int argc, char **argv)
{
    const uint32_t size = argc > 2 ? (uint32_t)atoi(argv[2]) : 1;
    rps_collective_options options;
    int failed = 0;

    kind = argc > 1 ? argv[1] : "";
    if (strcmp(kind, "default") != 0 && strcmp(kind, "ring") != 0 &&
            strcmp(kind, "reversed") != 0) {
        return join_in_a_bad_order(size);
    }
    fill_options(&options, size);
    if (rps_collective_initialize(&group, &options) != RPS_OK) {
        fprintf(stderr, "initialize: %s\n", rps_collective_error(NULL));
        return 1;
    }
    failed = run_tests() + (rps_collective_size(group) != size);
    if (failed != 0) { /* the others may wait for what this one skipped */
        rps_collective_abort(group, 1);
    }
    return rps_collective_shutdown(group) != RPS_OK;
}
