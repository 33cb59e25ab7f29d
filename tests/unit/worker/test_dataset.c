/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/dataset.h"
#include "client/worker/dataset_impl.h"
#include "tests/unit/suite.h"
#include "tests/unit/worker/files.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>

/* 13 + 26 columns, so that one of them can be put in place. */
#define DENSE_REST  "\t\t\t\t\t\t\t\t\t\t\t"
#define FIELDS_REST "\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t\t"
#define CRITEO(label, i1, i2, c1, c2) \
    label "\t" i1 "\t" i2 DENSE_REST "\t" c1 "\t" c2 FIELDS_REST

static struct rps_dataset *
open_ok(const char *spec, bool skip)
{
    struct rps_dataset_options options = {.skip_bad_rows = skip};
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};
    rps_status status = rps_dataset_open(&dataset, spec, &options, &error);

    ck_assert_msg(status == RPS_OK, "%s: %s", spec, error.text);
    return dataset;
}

static void
next_ok(struct rps_dataset *dataset, struct rps_row *row)
{
    struct rps_error error = {""};

    ck_assert_msg(
            rps_dataset_next(dataset, row, &error) == RPS_OK, "%s", error.text);
}

static char *
spec_of(const char *format, const char *name)
{
    static char spec[300];

    (void)snprintf(spec, sizeof(spec), "%s:%s", format, path_of(name));
    return spec;
}

/* Open and read to the end: the words of the failure must hold `words`. */
static void
fails_with(const char *spec, rps_status expected, const char *words)
{
    struct rps_dataset *dataset = NULL;
    struct rps_error error = {""};
    rps_status status = rps_dataset_open(&dataset, spec, NULL, &error);
    struct rps_row row;

    while (status == RPS_OK) {
        status = rps_dataset_next(dataset, &row, &error);
    }
    rps_dataset_close(dataset);
    ck_assert_msg(status == expected && strstr(error.text, words) != NULL,
            "%s: status %d, \"%s\" lacks \"%s\"", spec, status, error.text,
            words);
}

START_TEST(a_criteo_row_is_what_was_computed_by_hand)
{
    struct rps_dataset *dataset;
    struct rps_row row;

    put_file("a.tsv", CRITEO("1", "5", "-2", "68fd1e64", "") "\n");
    dataset = open_ok(spec_of("criteo", "a.tsv"), false);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).labels, 1);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).dense, 13);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).fields, 26);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 1.0f);
    ck_assert_float_eq(row.dense[0], 2.07944154167983592825f); /* ln 8 */
    ck_assert_float_eq(row.dense[1], 0.0f);                    /* ln 1 */
    ck_assert_float_eq(row.dense[2], 1.09861228866810969140f); /* ln 3 */
    ck_assert_uint_eq(row.keys[0], UINT64_C(0x68fd1e64));
    ck_assert_uint_eq(row.keys[1] >> 63, 1);
    ck_assert_uint_eq(row.offsets[26], 26);
    ck_assert_int_eq(rps_dataset_next(dataset, &row, NULL), RPS_E_NOT_FOUND);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_criteo_key_is_found_by_its_decimal_token_or_minus_one)
{
    struct rps_dataset *dataset;
    struct rps_row row;
    uint64_t key = 0;

    put_file("a.tsv", CRITEO("1", "", "", "", "68fd1e64") "\n");
    dataset = open_ok(spec_of("criteo", "a.tsv"), false);
    next_ok(dataset, &row);
    ck_assert_int_eq(rps_dataset_key(dataset, 0, "-1", &key, NULL), RPS_OK);
    ck_assert_uint_eq(key, row.keys[0]);
    ck_assert_int_eq(
            rps_dataset_key(dataset, 1, "1761418852", &key, NULL), RPS_OK);
    ck_assert_uint_eq(key, row.keys[1]);
    ck_assert_int_eq(
            rps_dataset_key(dataset, 1, "68fd1e64", &key, NULL), RPS_E_INVAL);
    ck_assert_int_eq(
            rps_dataset_key(dataset, 26, "1", &key, NULL), RPS_E_INVAL);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(crlf_and_a_missing_last_newline_change_nothing)
{
    struct rps_dataset *dataset;
    struct rps_row row;
    uint64_t rows = 0;

    put_file("a.tsv", CRITEO("1", "1", "1", "a", "b") "\r\n" CRITEO(
                              "0", "1", "1", "a", "b"));
    dataset = open_ok(spec_of("criteo", "a.tsv"), false);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.keys[1], UINT64_C(0x000100000000000b));
    /* counting does not move the reader */
    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 2);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 0.0f);
    ck_assert_int_eq(rps_dataset_next(dataset, &row, NULL), RPS_E_NOT_FOUND);
    ck_assert_int_eq(rps_dataset_rewind(dataset, NULL), RPS_OK);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 1.0f);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_bad_criteo_row_names_file_line_and_column)
{
    static const struct {
        const char *row;
        const char *words;
    } cases[] = {
            {CRITEO("2", "1", "1", "a", "b"), "a.tsv:2: column 1: label"},
            {CRITEO("", "1", "1", "a", "b"), "a.tsv:2: column 1: label"},
            {CRITEO("1", "x", "1", "a", "b"), "a.tsv:2: column 2: I1"},
            {CRITEO("1", "1", "nan", "a", "b"), "a.tsv:2: column 3: I2"},
            {CRITEO("1", "1", "1e999", "a", "b"), "a.tsv:2: column 3: I2"},
            {CRITEO("1", "1", "1", "zz", "b"), "a.tsv:2: column 15: C1"},
            {CRITEO("1", "1", "1", "a", "0xb"), "a.tsv:2: column 16: C2"},
            {CRITEO("1", "1", "1", "a", "1000000000000"),
                    "a.tsv:2: column 16: C2"},
            {CRITEO("1", "1", "1", "a", "b") "\t", "column 41: the row has"},
            {"1\t2", "a.tsv:2: column 2: the row has 2 columns"},
            {"", "a.tsv:2: column 1: the row has 1 columns"},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *text = rps_format(
                "%s\n%s\n", CRITEO("1", "", "", "", ""), cases[i].row);

        put_file("a.tsv", text);
        free(text);
        fails_with(spec_of("criteo", "a.tsv"), RPS_E_INVAL, cases[i].words);
    }
    put_bytes("a.tsv", "1\t2\t\0x\n", 7);
    fails_with(spec_of("criteo", "a.tsv"), RPS_E_INVAL,
            "a.tsv:1: column 3: a NUL byte");
}
END_TEST

/* Every byte at every place of a token of eight, which has a way of its own. */
START_TEST(a_criteo_token_of_eight_is_eight_hex_digits)
{
    static const char line[] = CRITEO("1", "", "", "%.*s", "") "\n";
    struct rps_text text = {0};
    struct rps_dataset *dataset;
    struct rps_row row;
    uint64_t rows = 0;
    int place = _i;

    for (int byte = 1; byte < 256; byte++) {
        char token[] = "09afAF7c";

        token[place] = (char)byte;
        if (byte != '\n' && byte != '\t') {
            rps_text_add(&text, line, 8, token);
        }
    }
    put_file("a.tsv", text.bytes);
    rps_text_finish(&text);
    dataset = open_ok(spec_of("criteo", "a.tsv"), true);
    for (int byte = 1; byte < 256; byte++) {
        char token[] = "09afAF7c";

        token[place] = (char)byte;
        if (isxdigit(byte)) {
            next_ok(dataset, &row);
            ck_assert_uint_eq(row.keys[0], strtoull(token, NULL, 16));
        }
    }
    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 22);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_criteo_number_is_what_strtod_reads)
{
    static const char *const numbers[] = {"0", "-1", "-2", "-3", "7", "007",
            "99999999", "100000000", "100000001", "9999999999", "-0", "+4",
            "1.5", "1e3", "123456789012"};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        const double value = fmax(strtod(numbers[i], NULL), -2.0);
        char *text =
                rps_format(CRITEO("1", "%s", "", "a", "") "\n", numbers[i]);
        struct rps_dataset *dataset;
        struct rps_row row;

        put_file("a.tsv", text);
        free(text);
        dataset = open_ok(spec_of("criteo", "a.tsv"), false);
        next_ok(dataset, &row);
        ck_assert_float_eq(row.dense[0], (float)log(value + 3.0));
        rps_dataset_close(dataset);
    }
}
END_TEST

START_TEST(bad_rows_are_skipped_and_counted_once_whatever_the_passes)
{
    struct rps_dataset *dataset;
    struct rps_row row;
    uint64_t rows = 0;
    int pass;

    put_file("a.tsv", "bad\n" CRITEO("1", "1", "", "a", "") "\nbad\n" CRITEO(
                              "0", "1", "", "b", "") "\nbad");
    dataset = open_ok(spec_of("criteo", "a.tsv"), true);
    for (pass = 0; pass < 2; pass++) {
        next_ok(dataset, &row);
        ck_assert_uint_eq(row.keys[0], 0xa);
        next_ok(dataset, &row);
        ck_assert_uint_eq(row.keys[0], 0xb);
        ck_assert_int_eq(
                rps_dataset_next(dataset, &row, NULL), RPS_E_NOT_FOUND);
        ck_assert_uint_eq(rps_dataset_skipped(dataset), 3);
        ck_assert_int_eq(rps_dataset_rewind(dataset, NULL), RPS_OK);
    }
    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 2);
    ck_assert_uint_eq(rps_dataset_skipped(dataset), 3);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_folder_and_a_glob_are_read_in_name_order)
{
    struct rps_dataset *dataset;
    struct rps_row row;
    const char *const names[] = {"", "part-*"};
    size_t i;

    put_file("part-10", "1 10:1\n");
    put_file("part-02", "1 2:1\n1 3:1");
    put_file(".hidden", "junk");
    for (i = 0; i < 2; i++) {
        dataset = open_ok(spec_of("libfm", names[i]), false);
        next_ok(dataset, &row);
        ck_assert_uint_eq(row.keys[0], 2);
        next_ok(dataset, &row);
        ck_assert_uint_eq(row.keys[0], 3);
        next_ok(dataset, &row);
        ck_assert_uint_eq(row.keys[0], 10);
        ck_assert_int_eq(
                rps_dataset_next(dataset, &row, NULL), RPS_E_NOT_FOUND);
        rps_dataset_close(dataset);
    }
}
END_TEST

START_TEST(what_is_not_data_is_refused_by_name)
{
    put_file("empty", "");
    fails_with(spec_of("criteo", "empty"), RPS_E_INVAL, "empty");
    fails_with(spec_of("criteo", "none"), RPS_E_NOT_FOUND, "no such file");
    fails_with(spec_of("criteo", "no*ne"), RPS_E_NOT_FOUND, "no such file");
    fails_with("criteo:", RPS_E_INVAL, "no path");
    fails_with("criteo:/dev/null", RPS_E_INVAL, "not a regular file");
    fails_with("parquet:x", RPS_E_INVAL, "unknown format");
    fails_with("criteo", RPS_E_INVAL, "unknown format");
}
END_TEST

START_TEST(a_line_of_a_megabyte_is_read_whole)
{
    struct rps_text text = {0};
    struct rps_dataset *dataset;
    struct rps_row row;
    unsigned i;

    rps_text_add(&text, "1:1");
    for (i = 0; i < 100000; i++) {
        rps_text_add(&text, " 18446744073709451%03u:%u", i % 1000, i % 3);
    }
    put_file("a", text.bytes);
    rps_text_finish(&text);
    dataset = open_ok(spec_of("feasign", "a"), false);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.offsets[3], 100000);
    ck_assert_uint_eq(row.keys[1], UINT64_C(18446744073709451003));
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(libfm_positions_are_fields_and_short_rows_end_empty)
{
    struct rps_dataset *dataset;
    struct rps_row row;
    uint64_t rows = 0;

    put_file("a", "-1 7:1 18446744073709551615:1.0 9:1\r\n"
                  "+1 5:1 \n"
                  "0\n");
    dataset = open_ok(spec_of("libfm", "a"), false);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).fields, 3);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).dense, 0);
    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 3);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 0.0f);
    ck_assert_uint_eq(row.keys[1], UINT64_MAX);
    ck_assert_uint_eq(row.offsets[3], 3);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 1.0f);
    ck_assert_uint_eq(row.offsets[1], 1);
    ck_assert_uint_eq(row.offsets[2], 1);
    ck_assert_uint_eq(row.offsets[3], 1);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 0.0f);
    ck_assert_uint_eq(row.offsets[3], 0);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_bad_libfm_or_feasign_row_names_file_line_and_column)
{
    static const struct {
        const char *format;
        const char *row;
        const char *words;
    } cases[] = {
            {"libfm", "2 1:1", "a:2: column 1: label"},
            {"libfm", "", "a:2: column 1: the row is empty"},
            {"libfm", "1 5", "a:2: column 2: \"5\" is not of the form"},
            {"libfm", "1 1:1 x:1", "a:2: column 3: key \"x\""},
            {"libfm", "1 -1:1", "a:2: column 2: key \"-1\""},
            {"libfm", "1 1:0.5", "a:2: column 2: value \"0.5\": only 1"},
            {"libfm", "1 1:", "a:2: column 2: value \"\""},
            {"libfm", "1 18446744073709551616:1", "a:2: column 2: key"},
            {"feasign", "1 1:1", "a:2: column 1: label"},
            {"feasign", "", "a:2: column 1: the row is empty"},
            {"feasign", "1:1 5", "a:2: column 2: \"5\" is not of the form"},
            {"feasign", "1:1 1:2 x:1", "a:2: column 3: key \"x\""},
            {"feasign", "1:1 1:x", "a:2: column 2: slot \"x\""},
            {"feasign", "1:1 1:2:3", "a:2: column 2: slot \"2:3\""},
    };
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *good = cases[i].format[0] == 'l' ? "1 1:1" : "1:1 1:1";
        char *text = rps_format("%s\n%s\n", good, cases[i].row);

        put_file("a", text);
        free(text);
        fails_with(spec_of(cases[i].format, "a"), RPS_E_INVAL, cases[i].words);
    }
}
END_TEST

START_TEST(feasign_slots_are_fields_sorted_over_the_whole_input)
{
    struct rps_dataset *dataset;
    struct rps_row row;

    put_file("a", "0:1 9223372036854775808:30 5:7 18446744073709551615:30\n"
                  "1:1 0:101 5:7\n");
    dataset = open_ok(spec_of("feasign", "a"), false);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).fields, 3);
    next_ok(dataset, &row);
    ck_assert_float_eq(row.labels[0], 0.0f);
    ck_assert_uint_eq(row.offsets[1], 1);
    ck_assert_uint_eq(row.offsets[2], 3);
    ck_assert_uint_eq(row.offsets[3], 3); /* slot 101: none */
    ck_assert_uint_eq(row.keys[0], 5);
    ck_assert_uint_eq(row.keys[1], UINT64_C(1) << 63);
    ck_assert_uint_eq(row.keys[2], UINT64_MAX);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.offsets[1], 1);
    ck_assert_uint_eq(row.offsets[2], 1);
    ck_assert_uint_eq(row.offsets[3], 2);
    ck_assert_uint_eq(row.keys[1], 0);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(fields_are_those_of_training_and_evaluation_data_together)
{
    struct rps_dataset_options options = {0};
    struct rps_dataset *dataset = NULL;
    struct rps_row row;
    uint64_t rows = 0;
    char also[300];

    put_file("train", "0:1 1:9 2:3\n");
    put_file("eval", "0:1 1:3 4:5\n1:1 1:9\n");
    (void)snprintf(also, sizeof(also), "%s", spec_of("feasign", "train"));
    options.also = also;
    ck_assert_int_eq(rps_dataset_open(&dataset, spec_of("feasign", "eval"),
                             &options, NULL),
            RPS_OK);
    ck_assert_uint_eq(rps_dataset_shape_of(dataset).fields, 3);
    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 2);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.offsets[2], 2); /* slots 3 and 5 */
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.offsets[2], 0); /* slot 9 alone */
    ck_assert_uint_eq(row.offsets[3], 1);
    rps_dataset_close(dataset);
}
END_TEST

static void
put_ml100k(const char *ratings)
{
    char *inter = rps_format("user_id:token\titem_id:token\trating:float\t"
                             "timestamp:float\n%s",
            ratings);

    put_file("ml-100k.inter", inter);
    free(inter);
    put_file("ml-100k.user",
            "user_id:token\tage:token\tgender:token\toccupation:token\t"
            "zip_code:token\n"
            "10\t25\tM\tother\t01234\n2\t50\tF\t\t85711\n");
    put_file("ml-100k.item",
            "item_id:token\tmovie_title:token_seq\trelease_year:token\t"
            "class:token_seq\n"
            "1\tA\t1995\tComedy Drama\n3\tB\t\tDrama\n");
}

START_TEST(ml_100k_is_sorted_by_time_user_and_item_as_numbers)
{
    struct rps_dataset *dataset;
    struct rps_row row;
    uint64_t key = 0;

    put_ml100k("10\t1\t3\t9\n2\t3\t4\t9\n2\t1\t5\t9\n10\t3\t5\t8\n");
    dataset = open_ok(spec_of("ml-100k", ""), false);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.keys[0], 10);
    ck_assert_uint_eq(row.keys[1], UINT64_C(0x0001000000000003));
    ck_assert_float_eq(row.dense[0], 0.5f);
    ck_assert_int_eq(rps_dataset_key(dataset, 4, "01234", &key, NULL), RPS_OK);
    ck_assert_uint_eq(row.keys[4], key);
    ck_assert_uint_eq(key >> 63, 1); /* a leading zero: text */
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.keys[0], 2);
    ck_assert_uint_eq(row.keys[1] & 0xff, 1);
    ck_assert_float_eq(row.labels[0], 1.0f);
    ck_assert_uint_eq(row.keys[4], UINT64_C(4) << 48 | 85711);
    ck_assert_uint_eq(row.keys[5], UINT64_C(5) << 48 | 1995);
    ck_assert_int_eq(rps_dataset_key(dataset, 6, "Comedy", &key, NULL), RPS_OK);
    ck_assert_uint_eq(row.keys[6], key);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.keys[1] & 0xff, 3);
    next_ok(dataset, &row);
    ck_assert_uint_eq(row.keys[0], 10);
    ck_assert_float_eq(row.labels[0], 0.0f);
    rps_dataset_close(dataset);
}
END_TEST

START_TEST(a_bad_ml_100k_row_names_file_line_and_column)
{
    static const struct {
        const char *row;
        const char *words;
    } cases[] = {
            {"77\t1\t3\t9\n", "ml-100k.inter:2: column 1: user \"77\""},
            {"2\t9\t3\t9\n", "ml-100k.inter:2: column 2: item \"9\""},
            {"x\t1\t3\t9\n", "ml-100k.inter:2: column 1: user_id"},
            {"2\t1\tx\t9\n", "ml-100k.inter:2: column 3: rating"},
            {"2\t1\t3\t\n", "ml-100k.inter:2: column 4: timestamp"},
            {"2\t1\t3\n", "ml-100k.inter:2: column 3: the row has 3"},
    };
    struct rps_dataset *dataset;
    uint64_t rows = 0;
    size_t i;

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        put_ml100k(cases[i].row);
        fails_with(spec_of("ml-100k", ""), RPS_E_INVAL, cases[i].words);
    }
    put_ml100k("77\t1\t3\t9\n2\t1\t3\t9\n");
    dataset = open_ok(spec_of("ml-100k", ""), true);
    ck_assert_int_eq(rps_dataset_rows(dataset, &rows, NULL), RPS_OK);
    ck_assert_uint_eq(rows, 1);
    ck_assert_uint_eq(rps_dataset_skipped(dataset), 1);
    rps_dataset_close(dataset);
    put_file("ml-100k.user", "1\t24\tM\ttechnician\t85711\n");
    fails_with(spec_of("ml-100k", ""), RPS_E_INVAL,
            "ml-100k.user:1: column 1: the header says");
    put_file("ml-100k.user", "");
    fails_with(spec_of("ml-100k", ""), RPS_E_INVAL, "ml-100k.user");
}
END_TEST

START_TEST(a_file_in_which_two_pairs_meet_is_refused_with_both)
{
    struct rps_dataset *dataset = calloc(1, sizeof(*dataset));
    struct rps_error error = {""};

    ck_assert_ptr_nonnull(dataset);
    dataset->options.skip_bad_rows = true; /* no bad row: a bad file */
    dataset->tokens.mask = 1;              /* two keys for all text */
    put_ml100k("2\t1\t3\t9\n");
    ck_assert_int_eq(
            rps_dataset_open_ml100k(dataset, folder, &error), RPS_E_MISMATCH);
    ck_assert_msg(strstr(error.text, "ml-100k.user:2: column ") != NULL ||
                          strstr(error.text, "ml-100k.user:3: column ") != NULL,
            "%s", error.text);
    ck_assert_ptr_nonnull(strstr(error.text, "same 64-bit key"));
    rps_dataset_close(dataset);
}
END_TEST

static Suite *
dataset_suite(void)
{
    Suite *suite = suite_create("dataset");
    TCase *tc = tcase_create("dataset");

    tcase_set_timeout(tc, 60); /* sanitizers, busy machines */
    tcase_add_checked_fixture(tc, make_folder, remove_folder);
    tcase_add_test(tc, a_criteo_row_is_what_was_computed_by_hand);
    tcase_add_test(tc, a_criteo_key_is_found_by_its_decimal_token_or_minus_one);
    tcase_add_test(tc, crlf_and_a_missing_last_newline_change_nothing);
    tcase_add_test(tc, a_bad_criteo_row_names_file_line_and_column);
    tcase_add_loop_test(tc, a_criteo_token_of_eight_is_eight_hex_digits, 0, 8);
    tcase_add_test(tc, a_criteo_number_is_what_strtod_reads);
    tcase_add_test(
            tc, bad_rows_are_skipped_and_counted_once_whatever_the_passes);
    tcase_add_test(tc, a_folder_and_a_glob_are_read_in_name_order);
    tcase_add_test(tc, what_is_not_data_is_refused_by_name);
    tcase_add_test(tc, a_line_of_a_megabyte_is_read_whole);
    tcase_add_test(tc, libfm_positions_are_fields_and_short_rows_end_empty);
    tcase_add_test(tc, a_bad_libfm_or_feasign_row_names_file_line_and_column);
    tcase_add_test(tc, feasign_slots_are_fields_sorted_over_the_whole_input);
    tcase_add_test(
            tc, fields_are_those_of_training_and_evaluation_data_together);
    tcase_add_test(tc, ml_100k_is_sorted_by_time_user_and_item_as_numbers);
    tcase_add_test(tc, a_bad_ml_100k_row_names_file_line_and_column);
    tcase_add_test(tc, a_file_in_which_two_pairs_meet_is_refused_with_both);
    suite_add_tcase(suite, tc);
    return suite;
}

int
main(void)
{
    return run_suite(dataset_suite());
}
