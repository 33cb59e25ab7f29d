/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/dataset.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <string.h>

static struct rps_dataset *
open_ok(const char *spec, bool demo)
{
    struct rps_dataset_options options = {.little_demo = demo};
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};

    ck_assert_msg(rps_dataset_open(&dataset, spec, &options, &error) == RPS_OK,
            "%s: %s", spec, error.text);
    return dataset;
}

static void
refused(const char *spec, bool demo, const char *words)
{
    struct rps_dataset_options options = {.little_demo = demo};
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};

    ck_assert_int_eq(
            rps_dataset_open(&dataset, spec, &options, &error), RPS_E_INVAL);
    ck_assert_ptr_null(dataset);
    ck_assert_msg(strstr(error.text, words) != NULL, "\"%s\" lacks \"%s\"",
            error.text, words);
}

START_TEST(defaults_are_those_of_the_documentation)
{
    struct rps_dataset *dataset = open_ok("synthetic:", false);
    struct rps_dataset_shape shape = rps_dataset_shape_of(dataset);
    uint64_t rows = 0;

    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 100000);
    ck_assert_uint_eq(shape.labels, 1);
    ck_assert_uint_eq(shape.dense, 13);
    ck_assert_uint_eq(shape.fields, 26);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_row_is_the_same_however_it_is_reached)
{
    struct rps_dataset *walked = open_ok("synthetic:rows=50,seed=3", false);
    struct rps_dataset *jumped = open_ok("synthetic:rows=9999,seed=3", false);
    struct rps_dataset *other = open_ok("synthetic:rows=50,seed=4", false);
    struct rps_row a;
    struct rps_row b;
    int i;

    ck_assert_int_eq(rps_dataset_skip(jumped, 49, NULL), RPS_OK);
    for (i = 0; i < 50; i++) {
        ck_assert_int_eq(rps_dataset_next(walked, &a, NULL), RPS_OK);
    }
    ck_assert_int_eq(rps_dataset_next(jumped, &b, NULL), RPS_OK);
    ck_assert_mem_eq(a.keys, b.keys, 26 * sizeof(a.keys[0]));
    ck_assert_mem_eq(a.dense, b.dense, 13 * sizeof(a.dense[0]));
    ck_assert_float_eq(a.labels[0], b.labels[0]);
    ck_assert_int_eq(rps_dataset_next(walked, &a, NULL), RPS_E_NOT_FOUND);
    ck_assert_int_eq(rps_dataset_skip(jumped, 1u << 30, NULL), RPS_OK);
    ck_assert_int_eq(rps_dataset_next(jumped, &a, NULL), RPS_E_NOT_FOUND);
    ck_assert_int_eq(rps_dataset_skip(other, 49, NULL), RPS_OK);
    ck_assert_int_eq(rps_dataset_next(other, &a, NULL), RPS_OK);
    ck_assert_mem_ne(a.keys, b.keys, 26 * sizeof(a.keys[0]));
    rps_dataset_close(walked);
    rps_dataset_close(jumped);
    rps_dataset_close(other);
}
END_TEST

/* Frequencies of 20 keys against p(k) = k^-s / sum, within 5 sigma. */
static void
check_zipf(const char *spec, double exponent)
{
    struct rps_dataset *dataset = open_ok(spec, false);
    double counts[20] = {0.0};
    double sum = 0.0;
    double n = 0.0;
    struct rps_row row;
    int k;

    while (rps_dataset_next(dataset, &row, NULL) == RPS_OK) {
        for (k = 0; k < 2; k++) {
            ck_assert_uint_eq(row.keys[k] >> 48, (uint64_t)k);
            ck_assert_uint_lt(row.keys[k] & 0xffffffffffff, 20);
            counts[row.keys[k] & 0xffffffffffff] += 1.0;
            n += 1.0;
        }
    }
    for (k = 1; k <= 20; k++) {
        sum += pow(k, -exponent);
    }
    for (k = 1; k <= 20; k++) {
        double p = pow(k, -exponent) / sum;

        ck_assert_double_eq_tol(
                counts[k - 1] / n, p, 5.0 * sqrt(p * (1.0 - p) / n) + 1e-9);
    }
    rps_dataset_close(dataset);
}

START_TEST(keys_are_zipf_distributed)
{
    check_zipf("synthetic:rows=8000,dense=0,fields=2,keys=20", 1.05);
    check_zipf("synthetic:rows=8000,dense=0,fields=2,keys=20,zipf=1", 1.0);
    check_zipf("synthetic:rows=8000,dense=0,fields=2,keys=20,zipf=2.5", 2.5);
    check_zipf("synthetic:rows=8000,dense=0,fields=2,keys=20,zipf=0", 0.0);
}
END_TEST

START_TEST(the_label_follows_the_dense_values_and_the_keys)
{
    struct rps_dataset *dataset =
            open_ok("synthetic:rows=10000,dense=1,fields=1,keys=8", false);
    double dense_sum[2] = {0.0, 0.0};
    double key_sum[8] = {0.0};
    double key_count[8] = {0.0};
    double count[2] = {0.0, 0.0};
    double low = 1.0;
    double high = 0.0;
    struct rps_row row;
    int i;

    while (rps_dataset_next(dataset, &row, NULL) == RPS_OK) {
        int label = row.labels[0] == 1.0f;

        ck_assert(row.labels[0] == 0.0f || row.labels[0] == 1.0f);
        dense_sum[label] += (double)row.dense[0];
        count[label] += 1.0;
        key_sum[row.keys[0]] += label;
        key_count[row.keys[0]] += 1.0;
    }
    ck_assert_double_gt(
            fabs(dense_sum[1] / count[1] - dense_sum[0] / count[0]), 0.1);
    for (i = 0; i < 8; i++) {
        low = fmin(low, key_sum[i] / key_count[i]);
        high = fmax(high, key_sum[i] / key_count[i]);
    }
    ck_assert_double_gt(high - low, 0.2);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(little_demo_has_two_labels_and_24_plain_ids)
{
    struct rps_dataset *dataset =
            open_ok("synthetic:rows=500,keys=30,seed=2", true);
    struct rps_dataset_shape shape = rps_dataset_shape_of(dataset);
    struct rps_row row;
    unsigned ones[2] = {0, 0};
    uint32_t i;

    ck_assert_uint_eq(shape.labels, 2);
    ck_assert_uint_eq(shape.dense, 0);
    ck_assert_uint_eq(shape.fields, 24);
    while (rps_dataset_next(dataset, &row, NULL) == RPS_OK) {
        for (i = 0; i < 24; i++) {
            ck_assert_uint_lt(row.keys[i], 30);
        }
        ones[0] += row.labels[0] == 1.0f;
        ones[1] += row.labels[1] == 1.0f;
    }
    for (i = 0; i < 2; i++) {
        ck_assert_uint_gt(ones[i], 100);
        ck_assert_uint_lt(ones[i], 400);
    }
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(wrong_settings_are_refused_by_name)
{
    refused("synthetic:row=5", false, "unknown setting \"row\"");
    refused("synthetic:rows", false, "\"rows\" is not of the form");
    refused("synthetic:rows=200,rows=300", false, "rows is set twice");
    refused("synthetic:seed=1,zipf=1,seed=1", false, "seed is set twice");
    refused("synthetic:zipf=1,zipf=2", false, "zipf is set twice");
    refused("synthetic:keys=5,keys=6", true, "keys is set twice");
    refused("synthetic:rows=0", false, "rows=0 is not an integer from 1");
    refused("synthetic:rows=5,", false, "is not of the form");
    refused("synthetic:rows=5k", false, "rows=5k");
    refused("synthetic:fields=32769", false, "fields=32769");
    refused("synthetic:keys=281474976710656", false, "keys=");
    refused("synthetic:zipf=-1", false, "zipf=-1");
    refused("synthetic:dense=13", true, "little_demo does not take \"dense\"");
    refused("synthetic:zipf=1", true, "little_demo does not take \"zipf\"");
    refused("criteo:x", true, "little_demo has its own");
}
END_TEST

START_TEST(a_vocabulary_of_2_48_keys_needs_no_memory)
{
    struct rps_dataset *dataset =
            open_ok("synthetic:rows=100,keys=281474976710655,zipf=0", false);
    uint64_t high = 0;
    struct rps_row row;

    while (rps_dataset_next(dataset, &row, NULL) == RPS_OK) {
        uint64_t token = row.keys[25] & 0xffffffffffff;

        ck_assert_uint_eq(row.keys[25] >> 48, 25);
        high = token > high ? token : high;
    }
    ck_assert_uint_gt(high, UINT64_C(1) << 46);
    rps_dataset_close(dataset);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("synthetic");
    TCase *tc = tcase_create("synthetic");

    tcase_set_timeout(tc, 60); /* sanitizers, busy machines */
    tcase_add_test(tc, defaults_are_those_of_the_documentation);
    tcase_add_test(tc, a_row_is_the_same_however_it_is_reached);
    tcase_add_test(tc, keys_are_zipf_distributed);
    tcase_add_test(tc, the_label_follows_the_dense_values_and_the_keys);
    tcase_add_test(tc, little_demo_has_two_labels_and_24_plain_ids);
    tcase_add_test(tc, wrong_settings_are_refused_by_name);
    tcase_add_test(tc, a_vocabulary_of_2_48_keys_needs_no_memory);
    suite_add_tcase(suite, tc);
    return run_suite(suite);
}
