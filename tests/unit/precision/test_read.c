/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a dump: what is there, by manifests and by names, good and bad. */
#include "client/precision/read.h"
#include "tests/unit/precision/write.h"
#include "tests/unit/suite.h"

#include <math.h>
#include <unistd.h>

static char folder[FOLDER_BYTES];
static const float ones[] = {1.0f, 2.5f, -3.0f};

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

static struct rps_dumped *
open_good(const char *path)
{
    struct rps_dumped *dumped = NULL;
    struct rps_error error = {.text = ""};

    ck_assert_msg(
            rps_dumped_open(path, &dumped, &error) == RPS_OK, "%s", error.text);
    return dumped;
}

/* --- by names ------------------------------------------------------------ */

START_TEST(names_alone_give_operators_in_order_of_time)
{
    struct rps_dumped *dumped;

    write_floats(folder, "relu.top_1.7.0.2000.output.0.npy", ones, 3);
    write_floats(folder, "relu.top_1.7.0.1900.input.0.npy", ones, 2);
    write_floats(folder, "linear.top_0.3.0.1000.input.1.npy", ones, 1);
    write_floats(folder, "linear.top_0.3.0.999.input.0.npy", ones, 1);
    write_floats(folder, "linear.top_0.3.0.1001.output.0.npy", ones, 1);
    dumped = open_good(folder);
    ck_assert(!dumped->has_manifest && dumped->complete);
    ck_assert_uint_eq(dumped->problem_count, 0);
    ck_assert_uint_eq(dumped->operator_count, 2);
    ck_assert_str_eq(dumped->operators[0].type, "linear");
    ck_assert_str_eq(dumped->operators[0].clean, "top_0");
    ck_assert_uint_eq(dumped->operators[0].timestamp, 999);
    ck_assert_uint_eq(dumped->operators[0].input_count, 2);
    ck_assert_uint_eq(dumped->operators[0].inputs[1].index, 1);
    ck_assert_uint_eq(dumped->operators[0].inputs[1].timestamp, 1000);
    ck_assert_uint_eq(dumped->operators[1].output_count, 1);
    ck_assert_uint_eq(dumped->operators[1].outputs[0].shape[0], 3);
    ck_assert_uint_eq(dumped->operators[1].task, 7);
    rps_dumped_close(dumped);
}
END_TEST

START_TEST(an_operator_whose_files_come_again_ran_twice)
{
    struct rps_dumped *dumped;

    write_floats(folder, "a.x.0.0.1.input.0.npy", ones, 1);
    write_floats(folder, "a.x.0.0.2.output.0.npy", ones, 1);
    write_floats(folder, "a.x.0.0.4.input.0.npy", ones, 2);
    write_floats(folder, "a.x.0.0.5.output.0.npy", ones, 2);
    write_floats(folder, "b.y.0.0.3.output.0.npy", ones, 1);
    dumped = open_good(folder);
    ck_assert_uint_eq(dumped->operator_count, 3);
    ck_assert_str_eq(dumped->operators[1].type, "b");
    ck_assert_uint_eq(dumped->operators[0].occurrence, 0);
    ck_assert_uint_eq(dumped->operators[2].occurrence, 1);
    ck_assert_uint_eq(dumped->operators[2].outputs[0].shape[0], 2);
    rps_dumped_close(dumped);
}
END_TEST

START_TEST(a_file_of_another_name_is_told_and_the_rest_is_read)
{
    struct rps_dumped *dumped;

    write_floats(folder, "a.x.0.0.1.input.0.npy", ones, 1);
    write_floats(folder, "notes.npy", ones, 1);
    write_floats(folder, "a.x.0.0.two.input.0.npy", ones, 1);
    write_floats(folder, "a.x.0.0.1.sideways.0.npy", ones, 1);
    write_text(folder, "a.x.0.0.2.output.0.npy", "not an array");
    dumped = open_good(folder);
    ck_assert_uint_eq(dumped->problem_count, 3);
    ck_assert_ptr_nonnull(strstr(dumped->problems[2], "notes.npy"));
    ck_assert_uint_eq(dumped->operator_count, 1);
    ck_assert(!dumped->operators[0].outputs[0].shape_known);
    rps_dumped_close(dumped);
}
END_TEST

/* --- by a manifest ------------------------------------------------------- */

#define HEAD "{\"recps_dump\": 1, \"step\": 6, \"complete\": true, "
#define LINEAR                                                               \
    "{\"type\": \"linear\", \"name\": \"top.2/linear\", \"holds\": \"linear" \
    " + bias\", \"attributes\": {\"activation\": \"relu\"}, \"task\": 12, "  \
    "\"stream\": 1, \"inputs\": [{\"file\": "                                \
    "\"linear.top_2_linear.12.1.50.input.0.npy\", \"label\": \"x\", "        \
    "\"dtype\": \"f32\", \"shape\": [3], \"place\": \"0x1f\", "              \
    "\"strides\": [1]}], \"outputs\": [{\"dtype\": \"f32\", \"shape\": "     \
    "[0]}]}"

/* step 3 in model/1/3 with a manifest; its path. */
static char *
write_step(const char *manifest)
{
    char *path = write_folder(folder, "little_demo/1/3");
    char *json = rps_format("%s.json", path);

    write_floats(path, "linear.top_2_linear.12.1.50.input.0.npy", ones, 3);
    ck_assert_int_eq(
            rps_file_write(json, manifest, strlen(manifest), true, NULL),
            RPS_OK);
    free(json);
    return path;
}

START_TEST(a_manifest_says_what_names_cannot)
{
    char *path = write_step(
            HEAD "\"run\": {\"seed\": 5}, \"operators\": [" LINEAR "]}");
    struct rps_dumped *dumped = open_good(path);
    const struct rps_dumped_operator *op = &dumped->operators[0];

    ck_assert(dumped->has_manifest && dumped->complete);
    ck_assert_uint_eq(dumped->step, 6);
    ck_assert_str_eq(dumped->model, "little_demo");
    ck_assert_int_eq(
            json_integer_value(json_object_get(dumped->run, "seed")), 5);
    ck_assert_uint_eq(dumped->problem_count, 0);
    ck_assert_uint_eq(dumped->missing, 0);
    ck_assert_str_eq(op->name, "top.2/linear");
    ck_assert_str_eq(op->clean, "top_2_linear");
    ck_assert_str_eq(op->holds, "linear + bias");
    ck_assert_ptr_nonnull(json_object_get(op->attributes, "activation"));
    ck_assert_uint_eq(op->timestamp, 50);
    ck_assert_uint_eq(op->inputs[0].place, 0x1f);
    ck_assert_uint_eq(op->inputs[0].strides[0], 1);
    ck_assert_str_eq(op->inputs[0].label, "x");
    ck_assert_ptr_null(op->outputs[0].file);
    rps_dumped_close(dumped);
    free(path);
}
END_TEST

START_TEST(missing_and_strange_files_are_counted_and_told)
{
    char *path = write_step(HEAD "\"operators\": [" LINEAR "]}");
    char *file = write_path(path, "linear.top_2_linear.12.1.50.input.0.npy");
    struct rps_dumped *dumped;

    ck_assert_int_eq(unlink(file), 0);
    write_floats(path, "relu.x.1.1.51.input.0.npy", ones, 1);
    dumped = open_good(path);
    ck_assert_uint_eq(dumped->missing, 1);
    ck_assert_uint_eq(dumped->problem_count, 1);
    ck_assert_ptr_nonnull(strstr(dumped->problems[0], "relu.x"));
    rps_dumped_close(dumped);
    free(file);
    free(path);
}
END_TEST

START_TEST(a_damaged_manifest_is_told_and_names_are_read)
{
    static const char *const bad[] = {"{\"recps_dump\": 1, \"st",
            "{\"recps_dump\": 2, \"step\": 1, \"operators\": []}",
            HEAD "\"operators\": 5}",
            HEAD "\"operators\": [{\"type\": \"a\\u001b[2J\", \"name\": "
                 "\"b\", \"task\": 1, \"stream\": 1, \"inputs\": [], "
                 "\"outputs\": []}]}",
            HEAD "\"operators\": [7]}",
            HEAD "\"operators\": [{\"type\": \"a\", \"name\": \"b\"}]}",
            HEAD "\"operators\": [{\"type\": \"a\", \"name\": \"b\", "
                 "\"task\": 1, \"stream\": 1, \"inputs\": [{\"dtype\": "
                 "\"f32\", \"shape\": [1], \"file\": "
                 "\"../a.b.0.0.1.input.0.npy\"}], \"outputs\": []}]}",
            HEAD "\"operators\": [{\"type\": \"a\", \"name\": \"b\", "
                 "\"task\": 1, \"stream\": 1, \"inputs\": [{\"dtype\": "
                 "\"f32\", \"shape\": [1, 1, 1, 1, 1]}], \"outputs\": []}]}",
            HEAD "\"operators\": [{\"type\": \"a\", \"name\": \"b\", "
                 "\"task\": 1, \"stream\": 1, \"inputs\": [{\"dtype\": "
                 "\"f99\", \"shape\": [1]}], \"outputs\": []}]}",
            HEAD "\"operators\": [{\"type\": \"a\", \"name\": \"b\", "
                 "\"task\": 1, \"stream\": 1, \"inputs\": [{\"dtype\": "
                 "\"f32\", \"shape\": [-1]}], \"outputs\": []}]}",
            HEAD "\"operators\": [{\"type\": \"a\", \"name\": \"b\", "
                 "\"task\": 1, \"stream\": 1, \"inputs\": [{\"dtype\": "
                 "\"f32\", \"shape\": [1], \"place\": \"here\"}], "
                 "\"outputs\": []}]}"};

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *path = write_step(bad[i]);
        struct rps_dumped *dumped = open_good(path);

        ck_assert_msg(!dumped->has_manifest, "%s", bad[i]);
        ck_assert_uint_eq(dumped->problem_count, 1);
        ck_assert_ptr_nonnull(strstr(dumped->problems[0], "3.json"));
        ck_assert_uint_eq(dumped->operator_count, 1);
        ck_assert_str_eq(dumped->operators[0].name, "top_2_linear");
        rps_dumped_close(dumped);
        free(path);
    }
}
END_TEST

START_TEST(a_step_that_did_not_end_is_told)
{
    char *path = write_step(HEAD "\"operators\": [" LINEAR "]}");
    char *other = write_folder(folder, "little_demo/1/4");
    struct rps_dumped *dumped;

    write_floats(other, "a.x.0.0.1.input.0.npy", ones, 1);
    dumped = open_good(other);
    ck_assert_uint_eq(dumped->problem_count, 1);
    ck_assert_ptr_nonnull(strstr(dumped->problems[0], "did not end"));
    ck_assert_uint_eq(dumped->step, 4);
    ck_assert_uint_eq(dumped->operator_count, 1);
    rps_dumped_close(dumped);
    free(other);
    free(path);
}
END_TEST

/* --- values -------------------------------------------------------------- */

/* The one input of the only operator, of a folder by names. */
static rps_status
load_one(const char *file, struct rps_dumped_values *values,
        struct rps_error *error)
{
    struct rps_dumped *dumped = open_good(folder);
    char *path = write_path(folder, file);
    rps_status status;

    ck_assert_uint_eq(dumped->operator_count, 1);
    status = rps_dumped_load(&dumped->operators[0].inputs[0], values, error);
    if (status != RPS_OK) {
        ck_assert_msg(strstr(error->text, file) != NULL, "%s", error->text);
    }
    unlink(path);
    free(path);
    rps_dumped_close(dumped);
    return status;
}

#define LOADS(dtype_, type, ...)                                           \
    do {                                                                   \
        const type numbers[] = {__VA_ARGS__};                              \
        const double expected[] = {__VA_ARGS__};                           \
        const uint64_t n = sizeof(numbers) / sizeof(numbers[0]);           \
        const struct rps_npy npy = {                                       \
                .dtype = dtype_, .ndim = 2, .shape = {n, 1}};              \
        struct rps_dumped_values values;                                   \
                                                                           \
        write_npy(folder, "a.x.0.0.1.input.0.npy", &npy, numbers,          \
                sizeof(numbers));                                          \
        ck_assert_int_eq(                                                  \
                load_one("a.x.0.0.1.input.0.npy", &values, NULL), RPS_OK); \
        ck_assert_uint_eq(values.count, n);                                \
        for (uint64_t i = 0; i < n; i++) {                                 \
            ck_assert(memcmp(&values.numbers[i], &expected[i], 8) == 0);   \
        }                                                                  \
        ck_assert_int_eq(values.keys != NULL,                              \
                strcmp(dtype_, "<u8") == 0 || strcmp(dtype_, "<i8") == 0); \
        rps_dumped_values_free(&values);                                   \
    } while (0)

START_TEST(every_dtype_is_loaded_as_it_is)
{
    LOADS("<f4", float, 1.5f, -0.0f, INFINITY);
    LOADS("<f8", double, 0.1, -2.0, 1e300);
    LOADS("<i4", int32_t, -7, INT32_MIN, 3);
    LOADS("<u4", uint32_t, 7, UINT32_MAX);
    LOADS("<i8", int64_t, -7, 1ll << 40);
    LOADS("<u8", uint64_t, 7, 1ull << 40);
}
END_TEST

START_TEST(keys_are_whole)
{
    const uint64_t keys[] = {UINT64_MAX, (1ull << 60) + 1};
    const struct rps_npy npy = {.dtype = "<u8", .ndim = 1, .shape = {2}};
    struct rps_dumped_values values;

    write_npy(folder, "a.x.0.0.1.input.0.npy", &npy, keys, sizeof(keys));
    ck_assert_int_eq(load_one("a.x.0.0.1.input.0.npy", &values, NULL), RPS_OK);
    ck_assert(memcmp(values.keys, keys, sizeof(keys)) == 0);
    rps_dumped_values_free(&values);
}
END_TEST

START_TEST(more_than_a_block_is_loaded)
{
    enum {
        N = 100003
    };
    float *numbers = malloc(N * sizeof(*numbers));
    struct rps_dumped_values values;

    for (int i = 0; i < N; i++) {
        numbers[i] = (float)i;
    }
    write_floats(folder, "a.x.0.0.1.input.0.npy", numbers, N);
    ck_assert_int_eq(load_one("a.x.0.0.1.input.0.npy", &values, NULL), RPS_OK);
    ck_assert_uint_eq(values.count, N);
    for (int i = 0; i < N; i++) {
        ck_assert(values.numbers[i] == (double)i);
    }
    rps_dumped_values_free(&values);
    free(numbers);
}
END_TEST

START_TEST(a_damaged_file_is_named)
{
    const char *file = "a.x.0.0.1.input.0.npy";
    struct rps_npy npy = {.dtype = "<f4", .ndim = 1, .shape = {4}};
    struct rps_dumped_values values;
    struct rps_error error;

    write_text(folder, file, "");
    ck_assert_int_eq(load_one(file, &values, &error), RPS_E_CORRUPT);
    write_text(folder, file, "not an array at all, but long enough for one");
    ck_assert_int_eq(load_one(file, &values, &error), RPS_E_CORRUPT);
    write_npy(folder, file, &npy, ones, sizeof(ones)); /* 4 said, 3 there */
    ck_assert_int_eq(load_one(file, &values, &error), RPS_E_CORRUPT);
    npy.shape[0] = UINT64_MAX / 2;
    write_npy(folder, file, &npy, ones, sizeof(ones));
    ck_assert_int_eq(load_one(file, &values, &error), RPS_E_CORRUPT);
    npy = (struct rps_npy){.dtype = "<c8", .ndim = 1, .shape = {1}};
    write_npy(folder, file, &npy, ones, 8);
    ck_assert_int_eq(load_one(file, &values, &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "float32"));
}
END_TEST

START_TEST(another_shape_or_dtype_than_the_manifests_is_refused)
{
    char *path = write_step(HEAD "\"operators\": [" LINEAR "]}");
    const char *file = "linear.top_2_linear.12.1.50.input.0.npy";
    const struct rps_npy npy = {.dtype = "<i4", .ndim = 1, .shape = {3}};
    struct rps_dumped *dumped = open_good(path);
    const struct rps_dumped_tensor *tensor = &dumped->operators[0].inputs[0];
    struct rps_dumped_values values;
    struct rps_error error;

    ck_assert_int_eq(rps_dumped_load(tensor, &values, &error), RPS_OK);
    rps_dumped_values_free(&values);
    write_floats(path, file, ones, 2);
    ck_assert_int_eq(rps_dumped_load(tensor, &values, &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "shape"));
    write_npy(path, file, &npy, ones, sizeof(ones));
    ck_assert_int_eq(rps_dumped_load(tensor, &values, &error), RPS_E_CORRUPT);
    ck_assert_ptr_nonnull(strstr(error.text, "i32"));
    unlink(tensor->file);
    ck_assert_int_eq(rps_dumped_load(tensor, &values, &error), RPS_E_NOT_FOUND);
    ck_assert_int_eq(
            rps_dumped_load(&dumped->operators[0].outputs[0], &values, &error),
            RPS_OK);
    ck_assert_uint_eq(values.count, 0);
    rps_dumped_values_free(&values);
    dumped->operators[0].outputs[0].shape[0] = 1;
    ck_assert_int_eq(
            rps_dumped_load(&dumped->operators[0].outputs[0], &values, &error),
            RPS_E_CORRUPT);
    rps_dumped_close(dumped);
    free(path);
}
END_TEST

/* --- finding ------------------------------------------------------------- */

#define TIME "dump/20261130173500"

static void
write_whole_dump(void)
{
    static const char *const steps[] = {"dump/20251130173500/0/m/1/77",
            TIME "/0/m/1/10", TIME "/0/m/1/9", TIME "/0/m/1/0"};

    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        char *path = write_folder(folder, steps[i]);

        write_floats(path, "a.x.0.0.1.input.0.npy", ones, 1);
        free(path);
    }
}

START_TEST(a_dump_is_found_from_any_of_its_folders)
{
    static const char *const from[] = {
            "", "/", "dump", TIME, TIME "/0", TIME "/0/m/", TIME "/0/m/1"};

    write_whole_dump();
    for (size_t i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
        char *path = write_path(folder, from[i]);
        struct rps_dumped_steps steps;
        struct rps_error error = {.text = ""};

        ck_assert_msg(rps_dumped_find(path, &steps, &error) == RPS_OK, "%s: %s",
                path, error.text);
        ck_assert_uint_eq(steps.count, 3);
        ck_assert_uint_eq(steps.steps[0], 0);
        ck_assert_uint_eq(steps.steps[1], 9);
        ck_assert_uint_eq(steps.steps[2], 10);
        ck_assert_ptr_nonnull(strstr(steps.folders[2], TIME "/0/m/1/10"));
        rps_dumped_steps_free(&steps);
        free(path);
    }
}
END_TEST

START_TEST(a_steps_folder_is_that_step_as_its_manifest_says)
{
    char *path = write_step(HEAD "\"operators\": [" LINEAR "]}");
    struct rps_dumped_steps steps;

    ck_assert_int_eq(rps_dumped_find(path, &steps, NULL), RPS_OK);
    ck_assert_uint_eq(steps.count, 1);
    ck_assert_uint_eq(steps.steps[0], 6);
    ck_assert_str_eq(steps.folders[0], path);
    rps_dumped_steps_free(&steps);
    free(path);
}
END_TEST

START_TEST(several_devices_must_be_chosen_from)
{
    struct rps_dumped_steps steps;
    struct rps_error error;
    char *path;

    write_whole_dump();
    path = write_folder(folder, TIME "/1/m/1/0");
    ck_assert_int_eq(rps_dumped_find(folder, &steps, &error), RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, TIME " has 2 folders"));
    ck_assert_ptr_nonnull(strstr(error.text, "0, 1"));
    ck_assert_uint_eq(steps.count, 0);
    free(path);
}
END_TEST

START_TEST(where_no_dump_is_that_is_said)
{
    struct rps_dumped_steps steps;
    struct rps_error error;
    char *path = write_folder(folder, "a/b");

    ck_assert_int_eq(rps_dumped_find(folder, &steps, &error), RPS_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, folder));
    rps_dumped_steps_free(&steps);
    ck_assert_int_eq(rps_dumped_find("/no/such/folder", &steps, &error),
            RPS_E_NOT_FOUND);
    free(path);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("read");
    TCase *tcase = tcase_create("dump");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, names_alone_give_operators_in_order_of_time);
    tcase_add_test(tcase, an_operator_whose_files_come_again_ran_twice);
    tcase_add_test(tcase, a_file_of_another_name_is_told_and_the_rest_is_read);
    tcase_add_test(tcase, a_manifest_says_what_names_cannot);
    tcase_add_test(tcase, missing_and_strange_files_are_counted_and_told);
    tcase_add_test(tcase, a_damaged_manifest_is_told_and_names_are_read);
    tcase_add_test(tcase, a_step_that_did_not_end_is_told);
    tcase_add_test(tcase, every_dtype_is_loaded_as_it_is);
    tcase_add_test(tcase, keys_are_whole);
    tcase_add_test(tcase, more_than_a_block_is_loaded);
    tcase_add_test(tcase, a_damaged_file_is_named);
    tcase_add_test(tcase, another_shape_or_dtype_than_the_manifests_is_refused);
    tcase_add_test(tcase, a_dump_is_found_from_any_of_its_folders);
    tcase_add_test(tcase, a_steps_folder_is_that_step_as_its_manifest_says);
    tcase_add_test(tcase, several_devices_must_be_chosen_from);
    tcase_add_test(tcase, where_no_dump_is_that_is_said);
    suite_add_single_threaded(suite, tcase);
    return run_suite(suite);
}
