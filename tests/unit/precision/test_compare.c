/* SPDX-License-Identifier: Apache-2.0 */
/* Dumps that the writer wrote are read again and compared. Figures are checked
 * against NumPy by tests/integration/test_precision_compare.py. */
#include "client/precision/compare.h"
#include "tests/unit/precision/write.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <unistd.h>

static char folder[FOLDER_BYTES];

static void
set_up(void)
{
    folder_make(folder);
}

static void
tear_down(void)
{
    folder_remove(folder);
}

/* --- writing -------------------------------------------------------------- */

enum {
    ROWS = 3,
    DIM = 2
};

/* What a step does: a lookup, a layer (fused or not), a push. */
struct made {
    uint64_t keys[ROWS];
    float rows[ROWS * DIM];
    float sums[ROWS];
    float activated[ROWS];
    float gradients[ROWS * DIM];
};

static const struct made good = {
        .keys = {1, UINT64_MAX, 7},
        .rows = {1, 2, 3, 4, -5, -6},
        .sums = {3, 7, -11},
        .activated = {3, 7, 0},
        .gradients = {1, 1, 2, 2, 3, 3},
};

static struct rps_dump_tensor
floats(const char *label, const float *bytes, uint64_t n, uint64_t dim)
{
    return (struct rps_dump_tensor){.label = label,
            .dtype = RPS_DUMP_F32,
            .ndim = dim > 0 ? 2 : 1,
            .shape = {n, dim},
            .strides = {dim > 0 ? dim : 1, 1},
            .bytes = bytes,
            .place = (uint64_t)(uintptr_t)bytes};
}

static struct rps_dump_tensor
keys_tensor(const struct made *made)
{
    return (struct rps_dump_tensor){.label = "keys",
            .dtype = RPS_DUMP_U64,
            .ndim = 1,
            .shape = {ROWS},
            .strides = {1},
            .bytes = made->keys};
}

/* Of up to two inputs and up to one output. */
static void
write_operator(struct rps_dump *dump, const char *type, const char *name,
        const char *holds, const struct rps_dump_tensor *inputs,
        const struct rps_dump_tensor *output)
{
    const struct rps_dump_operator op = {.type = type,
            .name = name,
            .holds = holds,
            .attributes = "{\"accumulate\": false}",
            .inputs = inputs,
            .input_count = inputs[1].ndim > 0 ? 2 : 1,
            .outputs = output,
            .output_count = output != NULL ? 1 : 0};
    struct rps_dump_token *token = rps_dump_before(dump, &op);

    rps_dump_after(dump, token, &op);
}

static void
write_layer(struct rps_dump *dump, const struct made *made, bool fused)
{
    const struct rps_dump_tensor x[2] = {floats("x", made->rows, ROWS, DIM)};
    const struct rps_dump_tensor z[2] = {floats("y", made->sums, ROWS, 0)};
    const struct rps_dump_tensor y = floats("y", made->activated, ROWS, 0);

    if (fused) {
        write_operator(dump, "linear_relu", "top.0/linear_relu",
                "linear + relu", x, &y);
    } else {
        write_operator(dump, "linear", "top.0/linear", NULL, x, &z[0]);
        write_operator(dump, "relu", "top.0/relu", NULL, z, &y);
    }
}

/* folder/name; the path, free(). */
static char *
write_dump(const char *name, const struct made *made, bool fused)
{
    char *path = write_path(folder, name);
    const struct rps_dump_options options = {.path = path,
            .steps = {.count = 1, .ranges = {{0, 5}}},
            .index_is_step = true,
            .model = "mlp",
            .bytes_max = 1u << 30,
            .run = "{\"command\": \"recps-train --dump\"}"};
    const struct rps_dump_tensor lookup[2] = {keys_tensor(made)};
    const struct rps_dump_tensor rows = floats("rows", made->rows, ROWS, DIM);
    const struct rps_dump_tensor pushed[2] = {
            keys_tensor(made), floats("gradients", made->gradients, ROWS, DIM)};
    struct rps_dump_result result;
    struct rps_error error = {.text = ""};
    struct rps_dump *dump = NULL;

    ck_assert_msg(rps_dump_begin(&dump, &options, &error) == RPS_OK, "%s",
            error.text);
    for (uint64_t step = 3; step < 5; step++) {
        rps_dump_step(dump, step);
        write_operator(dump, "lookup", "emb", NULL, lookup, &rows);
        write_layer(dump, made, fused);
        write_operator(dump, "push", "emb", NULL, pushed, NULL);
    }
    ck_assert_msg(
            rps_dump_end(dump, &result, &error) == RPS_OK, "%s", error.text);
    return path;
}

static struct rps_compare_run *
compare(const char *left, const char *right,
        const struct rps_compare_options *options)
{
    const struct rps_compare_options usual = {
            .threshold = RPS_COMPARE_THRESHOLD};
    struct rps_compare_run *run = NULL;
    struct rps_error error = {.text = ""};

    ck_assert_msg(
            rps_compare_dumps(left, right, options != NULL ? options : &usual,
                    &run, &error) == RPS_OK,
            "%s", error.text);
    return run;
}

/* Two dumps and what came of it. */
struct two {
    char *left, *right;
    struct rps_compare_run *run;
};

static struct two
compare_made(const struct made *made, bool fused)
{
    struct two two = {.left = write_dump("left", &good, true),
            .right = write_dump("right", made, fused)};

    two.run = compare(two.left, two.right, NULL);
    return two;
}

static void
two_free(struct two *two)
{
    rps_compare_run_free(two->run);
    free(two->left);
    free(two->right);
}

/* --- tests ---------------------------------------------------------------- */

START_TEST(a_dump_is_read_as_it_was_written)
{
    char *path = write_dump("one", &good, true);
    struct rps_dumped_steps steps;
    struct rps_dumped *dumped = NULL;
    struct rps_dumped_values values;
    const struct rps_dumped_operator *op;

    ck_assert_int_eq(rps_dumped_find(path, &steps, NULL), RPS_OK);
    ck_assert_uint_eq(steps.count, 2);
    ck_assert_uint_eq(steps.steps[0], 3);
    ck_assert_int_eq(rps_dumped_open(steps.folders[1], &dumped, NULL), RPS_OK);
    ck_assert_uint_eq(dumped->step, 4);
    ck_assert_uint_eq(dumped->problem_count, 0);
    ck_assert_str_eq(dumped->model, "mlp");
    ck_assert_uint_eq(dumped->operator_count, 3);
    op = &dumped->operators[1];
    ck_assert_str_eq(op->name, "top.0/linear_relu");
    ck_assert_str_eq(op->holds, "linear + relu");
    ck_assert_ptr_nonnull(json_object_get(op->attributes, "accumulate"));
    ck_assert_uint_eq(op->inputs[0].place, (uint64_t)(uintptr_t)good.rows);
    ck_assert_str_eq(op->inputs[0].label, "x");
    ck_assert_int_eq(
            rps_dumped_load(&dumped->operators[0].inputs[0], &values, NULL),
            RPS_OK);
    ck_assert(memcmp(values.keys, good.keys, sizeof(good.keys)) == 0);
    rps_dumped_values_free(&values);
    rps_dumped_close(dumped);
    rps_dumped_steps_free(&steps);
    free(path);
}
END_TEST

START_TEST(the_same_is_the_same)
{
    struct two two = compare_made(&good, true);

    ck_assert_ptr_null(two.run->first);
    ck_assert_uint_eq(two.run->count, 2);
    ck_assert_uint_eq(two.run->problems, 0);
    ck_assert_uint_eq(two.run->steps[0].comparison->equal_files, 6);
    two_free(&two);
}
END_TEST

START_TEST(a_fused_one_meets_its_parts_on_either_side)
{
    struct two two = compare_made(&good, false);
    struct rps_compare_run *turned = compare(two.right, two.left, NULL);

    ck_assert_ptr_null(two.run->first);
    ck_assert_uint_eq(two.run->steps[0].comparison->only_right, 0);
    ck_assert_uint_eq(two.run->steps[0].comparison->equal_files, 6);
    ck_assert_ptr_null(turned->first);
    ck_assert_uint_eq(turned->steps[0].comparison->equal_files, 6);
    rps_compare_run_free(turned);
    two_free(&two);
}
END_TEST

START_TEST(a_wrong_sign_in_a_fused_one_is_told_with_the_command)
{
    struct made bad = good;
    struct two two;

    bad.activated[1] = -7;
    two = compare_made(&bad, true);
    ck_assert_ptr_nonnull(two.run->first);
    ck_assert_int_eq(two.run->first->comparison->verdict, RPS_VERDICT_FUSED);
    ck_assert_uint_eq(two.run->first->step, 3);
    ck_assert_ptr_nonnull(strstr(two.run->first->comparison->words,
            "recps-train --dump --fusion off"));
    two_free(&two);
}
END_TEST

START_TEST(a_stale_row_is_told_by_its_key)
{
    struct made bad = good;
    const struct rps_compared *first;
    struct two two;

    bad.rows[2] = -3; /* of key 2^64 - 1 */
    two = compare_made(&bad, true);
    ck_assert_int_eq(two.run->first->comparison->verdict, RPS_VERDICT_LOOKUP);
    first = &two.run->first->comparison->operators[0];
    ck_assert_uint_eq(first->keys_differ, 1);
    ck_assert_uint_eq(first->keys[0], UINT64_MAX);
    ck_assert_uint_eq(first->tensors[1].rows_differ, 1);
    two_free(&two);
}
END_TEST

START_TEST(a_lost_gradient_is_an_input_that_nobody_wrote)
{
    struct made bad = good;
    struct two two;

    memset(bad.gradients, 0, sizeof(bad.gradients));
    two = compare_made(&bad, true);
    ck_assert_int_eq(two.run->first->comparison->verdict, RPS_VERDICT_INPUTS);
    ck_assert_str_eq(two.run->first->comparison
                             ->operators[two.run->first->comparison->first]
                             .type,
            "push");
    two_free(&two);
}
END_TEST

START_TEST(what_is_not_finite_has_no_cosine)
{
    struct made bad = good;
    const struct rps_compared *first;
    struct two two;

    bad.activated[0] = NAN;
    two = compare_made(&bad, true);
    first = &two.run->first->comparison
                     ->operators[two.run->first->comparison->first];
    ck_assert(isnan(first->output_cosine));
    ck_assert_uint_eq(first->tensors[1].right_nan, 1);
    ck_assert_uint_eq(first->tensors[1].left_nan, 0);
    two_free(&two);
}
END_TEST

START_TEST(exact_compares_bytes)
{
    const struct rps_compare_options exact = {.threshold = -1, .exact = true};
    struct made other = good;
    struct two two;
    struct rps_compare_run *run;

    other.activated[2] = -0.0f;
    two = compare_made(&other, true);
    ck_assert_ptr_null(two.run->first);
    run = compare(two.left, two.right, &exact);
    ck_assert_int_eq(run->first->comparison->verdict, RPS_VERDICT_FUSED);
    rps_compare_run_free(run);
    two_free(&two);
}
END_TEST

START_TEST(reports_are_written_whole)
{
    struct made bad = good;
    struct two two;
    char *csv = write_path(folder, "c.csv");
    char *html = write_path(folder, "c.html");
    char *bytes = NULL;
    size_t length = 0;

    bad.activated[1] = -7;
    two = compare_made(&bad, true);
    ck_assert_int_eq(rps_compare_run_write_csv(two.run, csv, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_compare_run_write_html(two.run, "<&>", html, NULL), RPS_OK);
    ck_assert_int_eq(
            rps_file_read(csv, 1u << 20, &bytes, &length, NULL), RPS_OK);
    ck_assert_ptr_nonnull(strstr(bytes, "Left,Right,type,Input,Output,Step,"));
    free(bytes);
    ck_assert_int_eq(
            rps_file_read(html, 1u << 20, &bytes, &length, NULL), RPS_OK);
    ck_assert_ptr_nonnull(strstr(bytes, "<h1>&lt;&amp;&gt;</h1>"));
    free(bytes);
    ck_assert_int_eq(
            rps_compare_write_csv(two.run->first->comparison, csv, NULL),
            RPS_OK);
    ck_assert_int_eq(
            rps_compare_write_html(two.run->first->comparison, "t", html, NULL),
            RPS_OK);
    ck_assert_int_ne(
            rps_compare_run_write_csv(two.run, "/no/such/place", NULL), RPS_OK);
    two_free(&two);
    free(csv);
    free(html);
}
END_TEST

/* A foreign side, by names; *map: a file that pairs it, free(). */
static char *
write_foreign(char **map)
{
    char *path = write_folder(folder, "torch/0");

    write_floats(path, "Linear.fc0.0.0.1.input.0.npy", good.rows, ROWS * DIM);
    write_floats(path, "Linear.fc0.0.0.2.output.0.npy", good.activated, ROWS);
    write_text(folder, "map.json",
            "{\"recps_map\": 1, \"pairs\": [{\"left\": \"top.*/linear_relu\", "
            "\"right\": \"fc*\"}]}");
    *map = write_path(folder, "map.json");
    return path;
}

START_TEST(a_mapping_pairs_other_names_and_shapes)
{
    char *map = NULL;
    char *right = write_foreign(&map);
    char *left = write_dump("left", &good, true);
    char *one = rps_format("%s/dump", left);
    const struct rps_compare_options options = {
            .threshold = RPS_COMPARE_THRESHOLD, .mapping = map};
    struct rps_dumped_steps steps;
    struct rps_compare_run *run;

    ck_assert_int_eq(rps_dumped_find(one, &steps, NULL), RPS_OK);
    run = compare(steps.folders[0], right, &options);
    ck_assert_ptr_null(run->first);
    ck_assert_uint_eq(run->problems, 0);
    ck_assert_uint_eq(run->steps[0].comparison->equal_files, 2);
    ck_assert_uint_eq(run->steps[0].comparison->only_left, 2);
    rps_compare_run_free(run);
    rps_dumped_steps_free(&steps);
    free(one);
    free(left);
    free(right);
    free(map);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("compare");
    TCase *tcase = tcase_create("dumps");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_dump_is_read_as_it_was_written);
    tcase_add_test(tcase, the_same_is_the_same);
    tcase_add_test(tcase, a_fused_one_meets_its_parts_on_either_side);
    tcase_add_test(tcase, a_wrong_sign_in_a_fused_one_is_told_with_the_command);
    tcase_add_test(tcase, a_stale_row_is_told_by_its_key);
    tcase_add_test(tcase, a_lost_gradient_is_an_input_that_nobody_wrote);
    tcase_add_test(tcase, what_is_not_finite_has_no_cosine);
    tcase_add_test(tcase, exact_compares_bytes);
    tcase_add_test(tcase, reports_are_written_whole);
    tcase_add_test(tcase, a_mapping_pairs_other_names_and_shapes);
    suite_add_single_threaded(suite, tcase);
    return run_suite(suite);
}
