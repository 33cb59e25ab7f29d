/* SPDX-License-Identifier: Apache-2.0 */
/* The writer of dumps: which steps, where, in which order, how much. */
#include "base/file.h"
#include "base/npy.h"
#include "client/precision/dump.h"
#include "tests/unit/folder.h"
#include "tests/unit/suite.h"

#include <dirent.h>
#include <jansson.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_BYTES 1024u
#define FILES_MAX  4096u

static char root[FOLDER_BYTES];
static char path[FOLDER_BYTES + 16];

static void
set_up(void)
{
    folder_make(root);
    (void)snprintf(path, sizeof(path), "%s/debug_0", root);
}

static void
tear_down(void)
{
    folder_remove(root);
}

/* --- a dump -----------------------------------------------------------------
 */

static struct rps_dump_options
options_of(const char *steps)
{
    struct rps_dump_options options = {.path = path,
            .index_is_step = true,
            .device = 2,
            .model = "ge.default/1",
            .model_id = 6,
            .bytes_max = 1u << 30,
            .run = "{\"seed\": 1}"};

    ck_assert_int_eq(rps_dump_steps_parse(&options.steps, steps, NULL), RPS_OK);
    return options;
}

static struct rps_dump *
begin(const struct rps_dump_options *options)
{
    struct rps_dump *dump = NULL;
    struct rps_error error;
    const rps_status status = rps_dump_begin(&dump, options, &error);

    ck_assert_msg(status == RPS_OK, "%s", status == RPS_OK ? "" : error.text);
    return dump;
}

static struct rps_dump_result
end(struct rps_dump *dump)
{
    struct rps_dump_result result;
    struct rps_error error;
    const rps_status status = rps_dump_end(dump, &result, &error);

    ck_assert_msg(status == RPS_OK, "%s", status == RPS_OK ? "" : error.text);
    return result;
}

static float four[4] = {1.0f, 2.0f, 3.0f, 4.0f};

static struct rps_dump_tensor
of_four(void)
{
    return (struct rps_dump_tensor){.label = "x",
            .ndim = 1,
            .shape = {4},
            .strides = {1},
            .bytes = four,
            .place = 0x7f0000000010};
}

static struct rps_dump_operator
of_tensor(const struct rps_dump_tensor *tensor)
{
    return (struct rps_dump_operator){.type = "relu",
            .name = "top.2/relu",
            .attributes = "{}",
            .inputs = tensor,
            .input_count = 1,
            .outputs = tensor,
            .output_count = 1};
}

static void
run_one(struct rps_dump *dump, const struct rps_dump_tensor *tensor)
{
    const struct rps_dump_operator op = of_tensor(tensor);

    rps_dump_after(dump, rps_dump_before(dump, &op), &op);
}

static void
run_steps(struct rps_dump *dump, uint64_t count)
{
    const struct rps_dump_tensor tensor = of_four();

    for (uint64_t s = 0; s < count; s++) {
        rps_dump_step(dump, s);
        run_one(dump, &tensor);
    }
    rps_dump_step_end(dump);
}

static json_t *
manifest(const struct rps_dump_result *result, const char *index)
{
    char name[PATH_BYTES];
    json_t *value;

    (void)snprintf(name, sizeof(name), "%s/2/ge_default_1/6/%s.json",
            result->folder, index);
    value = json_load_file(name, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(value != NULL, "%s", name);
    return value;
}

/* of operator `op`'s first tensor of "inputs" or "outputs" */
static const json_t *
tensor_of(const json_t *value, size_t op, const char *way)
{
    return json_array_get(
            json_object_get(
                    json_array_get(json_object_get(value, "operators"), op),
                    way),
            0);
}

static const char *
words_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* The whole file; free() it. Its header must be as said. */
static char *
load(const struct rps_dump_result *result, const char *index, const char *file,
        struct rps_npy *npy)
{
    char name[PATH_BYTES];
    char *bytes = NULL;
    size_t n = 0;

    (void)snprintf(name, sizeof(name), "%s/2/ge_default_1/6/%s/%s",
            result->folder, index, file);
    ck_assert_int_eq(rps_file_read(name, 1u << 24, &bytes, &n, NULL), RPS_OK);
    ck_assert_int_eq(rps_npy_parse(bytes, n, n, npy, NULL), RPS_OK);
    return bytes;
}

static bool
is_there(const char *name)
{
    struct stat info;

    return stat(name, &info) == 0;
}

START_TEST(a_step_has_files_and_a_manifest_with_their_names)
{
    const struct rps_dump_options options = options_of("1");
    struct rps_dump *dump = begin(&options);
    struct rps_dump_result result;
    struct rps_npy npy;
    const json_t *op, *in;
    json_t *value;
    char *bytes;
    char type[16], name[32], task[8], stream[8], stamp[32], way[16], last[8];

    run_steps(dump, 3);
    result = end(dump);
    ck_assert_uint_eq(result.steps, 1);
    ck_assert_uint_eq(result.files, 2);
    value = manifest(&result, "1");
    ck_assert_int_eq(json_integer_value(json_object_get(value, "step")), 1);
    ck_assert(json_is_true(json_object_get(value, "complete")));
    ck_assert_int_eq(json_integer_value(json_object_get(
                             json_object_get(value, "run"), "seed")),
            1);
    op = json_array_get(json_object_get(value, "operators"), 0);
    ck_assert_str_eq(words_of(op, "name"), "top.2/relu");
    ck_assert(json_is_null(json_object_get(op, "holds")));
    in = tensor_of(value, 0, "inputs");
    ck_assert_str_eq(words_of(in, "label"), "x");
    ck_assert_str_eq(words_of(in, "dtype"), "f32");
    ck_assert_str_eq(words_of(in, "place"), "0x7f0000000010");
    ck_assert_int_eq(
            sscanf(words_of(in, "file"),
                    "%15[^.].%31[^.].%7[^.].%7[^.].%31[^.].%15[^.].%7[^.].npy",
                    type, name, task, stream, stamp, way, last),
            7);
    ck_assert_str_eq(type, "relu");
    ck_assert_str_eq(name, "top_2_relu");
    ck_assert_str_eq(task, "0");
    ck_assert_str_eq(stream, "0");
    ck_assert_uint_eq(strlen(stamp), 16);
    ck_assert_str_eq(way, "input");
    ck_assert_str_eq(last, "0");
    bytes = load(&result, "1", words_of(in, "file"), &npy);
    ck_assert_str_eq(npy.dtype, "<f4");
    ck_assert_mem_eq(bytes + npy.data_offset, four, sizeof(four));
    free(bytes);
    json_decref(value);
}
END_TEST

START_TEST(an_input_is_as_it_was_before_and_an_output_as_it_is_after)
{
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    float x[2] = {1.0f, -1.0f};
    const struct rps_dump_tensor tensor = {
            .ndim = 1, .shape = {2}, .strides = {1}, .bytes = x};
    const struct rps_dump_operator op = of_tensor(&tensor);
    struct rps_dump_result result;
    struct rps_dump_token *token;
    struct rps_npy npy;
    json_t *value;
    char *in, *out;

    rps_dump_step(dump, 0);
    token = rps_dump_before(dump, &op);
    x[1] = 0.0f;
    rps_dump_after(dump, token, &op);
    result = end(dump);
    value = manifest(&result, "0");
    in = load(&result, "0", words_of(tensor_of(value, 0, "inputs"), "file"),
            &npy);
    out = load(&result, "0", words_of(tensor_of(value, 0, "outputs"), "file"),
            &npy);
    ck_assert_mem_eq(in + npy.data_offset, ((float[]){1.0f, -1.0f}), 8);
    ck_assert_mem_eq(out + npy.data_offset, ((float[]){1.0f, 0.0f}), 8);
    ck_assert(json_is_null(json_object_get(
                      tensor_of(value, 0, "inputs"), "place")) ||
              json_object_get(tensor_of(value, 0, "inputs"), "place") == NULL);
    free(in);
    free(out);
    json_decref(value);
}
END_TEST

START_TEST(views_come_in_c_order_and_bf16_as_f32)
{
    static uint16_t cube[2][3][8];
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    /* [3][2][2] of cube[2][3][8]: dimensions turned, every third column */
    const struct rps_dump_tensor view = {.dtype = RPS_DUMP_BF16,
            .ndim = 3,
            .shape = {3, 2, 2},
            .strides = {8, 24, 3},
            .bytes = &cube[0][0][1]};
    struct rps_dump_result result;
    struct rps_npy npy;
    json_t *value;
    char *bytes;

    for (int i = 0; i < 48; i++) {
        ((uint16_t *)cube)[i] = (uint16_t)(0x3f80 + i);
    }
    rps_dump_step(dump, 0);
    run_one(dump, &view);
    result = end(dump);
    value = manifest(&result, "0");
    ck_assert_str_eq(words_of(tensor_of(value, 0, "inputs"), "dtype"), "bf16");
    bytes = load(&result, "0", words_of(tensor_of(value, 0, "inputs"), "file"),
            &npy);
    ck_assert_uint_eq(npy.ndim, 3);
    ck_assert_uint_eq(npy.shape[0], 3);
    for (int i = 0; i < 3; i++) {
        for (int j = 0; j < 2; j++) {
            for (int k = 0; k < 2; k++) {
                const uint32_t bits = (uint32_t)cube[j][i][1 + 3 * k] << 16;

                ck_assert_mem_eq(bytes + npy.data_offset +
                                         4 * (size_t)(i * 4 + j * 2 + k),
                        &bits, 4);
            }
        }
    }
    free(bytes);
    json_decref(value);
}
END_TEST

START_TEST(a_repeated_row_is_written_as_often_as_it_is_seen)
{
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    const struct rps_dump_tensor expanded = {
            .ndim = 2, .shape = {3, 4}, .strides = {0, 1}, .bytes = four};
    struct rps_dump_result result;
    struct rps_npy npy;
    json_t *value;
    char *bytes;

    rps_dump_step(dump, 0);
    run_one(dump, &expanded);
    result = end(dump);
    value = manifest(&result, "0");
    bytes = load(&result, "0", words_of(tensor_of(value, 0, "inputs"), "file"),
            &npy);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_mem_eq(
                bytes + npy.data_offset + i * sizeof(four), four, sizeof(four));
    }
    free(bytes);
    json_decref(value);
}
END_TEST

START_TEST(a_tensor_without_elements_has_no_file)
{
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    const struct rps_dump_tensor none = {
            .label = "x", .ndim = 2, .shape = {0, 4}, .strides = {4, 1}};
    struct rps_dump_result result;
    json_t *value;

    rps_dump_step(dump, 0);
    run_one(dump, &none);
    result = end(dump);
    ck_assert_uint_eq(result.files, 0);
    ck_assert_uint_eq(result.steps, 1);
    value = manifest(&result, "0");
    ck_assert(json_is_null(
            json_object_get(tensor_of(value, 0, "inputs"), "file")));
    json_decref(value);
}
END_TEST

START_TEST(without_chosen_steps_folders_are_counted)
{
    struct rps_dump_options options = options_of("5|9");
    struct rps_dump *dump;
    struct rps_dump_result result;
    json_t *value;

    options.index_is_step = false;
    dump = begin(&options);
    run_steps(dump, 20);
    result = end(dump);
    value = manifest(&result, "1");
    ck_assert_int_eq(json_integer_value(json_object_get(value, "step")), 9);
    json_decref(value);
    ck_assert_uint_eq(result.steps, 2);
}
END_TEST

START_TEST(outside_of_its_steps_a_dump_is_off)
{
    const struct rps_dump_tensor tensor = of_four();
    const struct rps_dump_operator op = of_tensor(&tensor);
    const struct rps_dump_options options = options_of("1");
    struct rps_dump *dump = begin(&options);

    ck_assert(!rps_dump_is_on(NULL));
    ck_assert(!rps_dump_is_on(dump));
    ck_assert_ptr_null(rps_dump_before(dump, &op));
    rps_dump_step(dump, 0);
    ck_assert(!rps_dump_is_on(dump));
    rps_dump_step(dump, 1);
    ck_assert(rps_dump_is_on(dump));
    rps_dump_step_end(dump);
    ck_assert(!rps_dump_is_on(dump));
    (void)end(dump);
}
END_TEST

START_TEST(an_operator_that_ends_behind_its_step_is_in_it)
{
    const struct rps_dump_tensor tensor = of_four();
    const struct rps_dump_operator op = of_tensor(&tensor);
    const struct rps_dump_options options = options_of("0-1");
    struct rps_dump *dump = begin(&options);
    struct rps_dump_token *token;
    struct rps_dump_result result;
    json_t *value;

    rps_dump_step(dump, 0);
    token = rps_dump_before(dump, &op);
    rps_dump_step(dump, 1);
    run_one(dump, &tensor);
    rps_dump_after(dump, token, &op);
    result = end(dump);
    ck_assert_uint_eq(result.steps, 2);
    value = manifest(&result, "0");
    ck_assert_uint_eq(json_array_size(json_object_get(value, "operators")), 1);
    ck_assert_ptr_nonnull(words_of(tensor_of(value, 0, "outputs"), "file"));
    json_decref(value);
}
END_TEST

START_TEST(long_and_odd_names_are_cleaned_and_cut)
{
    static char longest[600];
    const struct rps_dump_tensor tensor = of_four();
    struct rps_dump_operator op = of_tensor(&tensor);
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    struct rps_dump_result result;
    json_t *value;

    memset(longest, 'n', sizeof(longest) - 1);
    rps_dump_step(dump, 0);
    op.name = longest;
    op.type = "a.b c/d\\e";
    rps_dump_after(dump, rps_dump_before(dump, &op), &op);
    op.name = NULL;
    rps_dump_after(dump, rps_dump_before(dump, &op), &op);
    result = end(dump);
    value = manifest(&result, "0");
    ck_assert_str_eq(
            words_of(json_array_get(json_object_get(value, "operators"), 0),
                    "name"),
            longest);
    ck_assert_ptr_nonnull(strstr(
            words_of(tensor_of(value, 1, "inputs"), "file"), "a_b_c_d_e.a_b_"));
    json_decref(value);
}
END_TEST

/* --- several threads --------------------------------------------------------
 */

#define THREADS 4
#define EACH    50

struct crowd {
    struct rps_dump *dump;
    uint32_t stream;
};

static void *
give_many(void *context)
{
    const struct crowd *crowd = context;
    const struct rps_dump_tensor tensor = of_four();
    struct rps_dump_operator op = of_tensor(&tensor);

    op.stream = crowd->stream;
    for (int i = 0; i < EACH; i++) {
        rps_dump_after(crowd->dump, rps_dump_before(crowd->dump, &op), &op);
    }
    return NULL;
}

static int
by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

static size_t
stamps_in(const char *folder, uint64_t stamps[FILES_MAX])
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    size_t n = 0;

    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)) != NULL) {
        unsigned long long stamp;

        if (sscanf(entry->d_name, "%*[^.].%*[^.].%*[^.].%*[^.].%llu.",
                    &stamp) == 1) {
            stamps[n++] = stamp;
        }
    }
    closedir(dir);
    return n;
}

START_TEST(streams_write_side_by_side_and_no_time_comes_twice)
{
    static uint64_t stamps[FILES_MAX];
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    struct crowd crowds[THREADS];
    pthread_t threads[THREADS];
    struct rps_dump_result result;
    char folder[PATH_BYTES];
    json_t *value;
    size_t n;

    rps_dump_step(dump, 0);
    for (uint32_t t = 0; t < THREADS; t++) {
        crowds[t] = (struct crowd){.dump = dump, .stream = t};
        ck_assert_int_eq(
                pthread_create(&threads[t], NULL, give_many, &crowds[t]), 0);
    }
    for (uint32_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
    }
    result = end(dump);
    ck_assert_uint_eq(result.files, 2 * THREADS * EACH);
    value = manifest(&result, "0");
    ck_assert_uint_eq(json_array_size(json_object_get(value, "operators")),
            THREADS * EACH);
    ck_assert(json_is_true(json_object_get(value, "complete")));
    json_decref(value);
    (void)snprintf(
            folder, sizeof(folder), "%s/2/ge_default_1/6/0", result.folder);
    n = stamps_in(folder, stamps);
    ck_assert_uint_eq(n, 2 * THREADS * EACH);
    qsort(stamps, n, sizeof(stamps[0]), by_number);
    for (size_t i = 1; i < n; i++) {
        ck_assert_uint_lt(stamps[i - 1], stamps[i]);
    }
}
END_TEST

/* --- where it lies ----------------------------------------------------------
 */

static void
dump_once(bool may_rotate)
{
    struct rps_dump_options options = options_of("0");
    struct rps_dump *dump;

    options.rotate = may_rotate;
    dump = begin(&options);
    run_steps(dump, 1);
    (void)end(dump);
}

static char *
in_root(const char *name)
{
    static char full[PATH_BYTES];

    (void)snprintf(full, sizeof(full), "%s/%s", root, name);
    return full;
}

START_TEST(a_dump_that_is_there_is_refused)
{
    const struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = NULL;
    struct rps_error error;

    dump_once(false);
    ck_assert_int_eq(rps_dump_begin(&dump, &options, &error), RPS_E_INVAL);
    ck_assert_ptr_null(dump);
    ck_assert_ptr_nonnull(strstr(error.text, path));
    ck_assert_ptr_nonnull(strstr(error.text, "--rotate"));
}
END_TEST

START_TEST(rotated_dumps_move_on_by_one)
{
    char mark[PATH_BYTES];

    dump_once(true);
    (void)snprintf(mark, sizeof(mark), "%s/first", path);
    ck_assert_int_eq(mkdir(mark, 0750), 0);
    dump_once(true);
    ck_assert(is_there(in_root("debug_1/first")));
    ck_assert(is_there(in_root("debug_0/dump")));
    dump_once(true);
    ck_assert(is_there(in_root("debug_2/first")));
    ck_assert(is_there(in_root("debug_1/dump")));
    ck_assert(!is_there(in_root("debug_3")));
}
END_TEST

START_TEST(a_path_without_a_number_gets_one)
{
    (void)snprintf(path, sizeof(path), "%s/kept/", root);
    dump_once(true);
    dump_once(true);
    dump_once(true);
    ck_assert(is_there(in_root("kept/dump")));
    ck_assert(is_there(in_root("kept.1/dump")));
    ck_assert(is_there(in_root("kept.2/dump")));
}
END_TEST

START_TEST(a_dump_of_nothing_leaves_nothing_behind)
{
    struct rps_dump_options options = options_of("0");
    struct rps_dump_result result = end(begin(&options));

    ck_assert_uint_eq(result.bytes, 0);
    ck_assert(!is_there(path));
    dump_once(false);
    options.rotate = true;
    (void)end(begin(&options));
    ck_assert(is_there(in_root("debug_0/dump")));
    ck_assert(!is_there(in_root("debug_1")));
}
END_TEST

START_TEST(paths_that_cannot_be_are_refused)
{
    static char longest[600];
    struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = NULL;
    struct rps_error error;

    memset(longest, 'p', sizeof(longest) - 1);
    options.path = longest;
    ck_assert_int_eq(rps_dump_begin(&dump, &options, &error), RPS_E_INVAL);
    options.path = "";
    ck_assert_int_eq(rps_dump_begin(&dump, &options, &error), RPS_E_INVAL);
    options.path = "/dev/null/here";
    ck_assert_int_eq(rps_dump_begin(&dump, &options, &error), RPS_E_IO);
    ck_assert_ptr_nonnull(strstr(error.text, "/dev/null"));
    options.path = path;
    options.run = "[]";
    ck_assert_int_eq(rps_dump_begin(&dump, &options, &error), RPS_E_INVAL);
    ck_assert_ptr_null(dump);
}
END_TEST

/* --- how much ---------------------------------------------------------------
 */

static uint64_t
bytes_under(const char *folder)
{
    char command[PATH_BYTES + 64];
    unsigned long long bytes = 0;
    FILE *pipe;

    (void)snprintf(command, sizeof(command),
            "find '%s' -type f -printf '%%s\\n' | awk '{n += $1} END {print "
            "n}'",
            folder);
    pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_int_eq(fscanf(pipe, "%llu", &bytes), 1);
    pclose(pipe);
    return bytes;
}

START_TEST(bytes_are_those_on_the_disk)
{
    const struct rps_dump_options options = options_of("all");
    struct rps_dump *dump = begin(&options);
    struct rps_dump_result result;

    run_steps(dump, 5);
    result = end(dump);
    ck_assert_uint_eq(result.bytes, bytes_under(path));
    ck_assert_uint_le(result.bytes, rps_dump_bytes(5, 1, 2 * sizeof(four)));
}
END_TEST

START_TEST(what_would_go_beyond_the_limit_ends_the_dump)
{
    struct rps_dump_options options = options_of("all");
    struct rps_dump *dump;
    struct rps_dump_result result;
    struct rps_error error;

    options.bytes_max = 5000;
    dump = begin(&options);
    run_steps(dump, 100);
    ck_assert(!rps_dump_is_on(dump));
    ck_assert_int_eq(rps_dump_end(dump, &result, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "--dump-limit"));
    ck_assert_uint_gt(result.steps, 0);
    ck_assert_uint_lt(result.steps, 100);
    ck_assert_uint_le(bytes_under(path), options.bytes_max);
    ck_assert_uint_eq(result.bytes, bytes_under(path));
}
END_TEST

START_TEST(the_step_that_did_not_end_says_so)
{
    const struct rps_dump_tensor tensor = of_four();
    struct rps_dump_options options = options_of("0");
    struct rps_dump *dump;
    struct rps_dump_result result;
    struct rps_error error;
    json_t *value;

    options.bytes_max = 3000;
    dump = begin(&options);
    rps_dump_step(dump, 0);
    for (int i = 0; i < 20; i++) {
        run_one(dump, &tensor);
    }
    ck_assert_int_eq(rps_dump_end(dump, &result, &error), RPS_E_LIMIT);
    ck_assert_uint_eq(result.steps, 0);
    value = manifest(&result, "0");
    ck_assert(json_is_false(json_object_get(value, "complete")));
    ck_assert_uint_gt(json_array_size(json_object_get(value, "operators")), 0);
    json_decref(value);
}
END_TEST

START_TEST(more_than_is_allowed_or_free_is_refused_before_it_begins)
{
    struct rps_dump_options options = options_of("0");
    struct rps_dump *dump = begin(&options);
    struct rps_error error;

    ck_assert_int_eq(rps_dump_expect(dump, 1u << 20, &error), RPS_OK);
    ck_assert_int_eq(
            rps_dump_expect(dump, (1u << 30) + 1, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "--dump-limit"));
    ck_assert_ptr_nonnull(strstr(error.text, "1073741825"));
    (void)end(dump);
    options.bytes_max = UINT64_MAX;
    dump = begin(&options);
    ck_assert_int_eq(
            rps_dump_expect(dump, UINT64_C(1) << 62, &error), RPS_E_LIMIT);
    ck_assert_ptr_nonnull(strstr(error.text, "--dump-path"));
    (void)end(dump);
}
END_TEST

START_TEST(an_unwritable_step_fails_the_dump_and_not_the_run)
{
    const struct rps_dump_options options = options_of("0-1");
    struct rps_dump *dump = begin(&options);
    const struct rps_dump_tensor tensor = of_four();
    struct rps_dump_result result;
    struct rps_error error;
    char name[PATH_BYTES];

    rps_dump_step(dump, 0);
    run_one(dump, &tensor);
    rps_dump_step_end(dump);
    /* a file where the next step's folder must be */
    (void)snprintf(name, sizeof(name),
            "find '%s' -name 6 -type d "
            "-exec touch '{}/1' ';'",
            path);
    ck_assert_int_eq(system(name), 0);
    rps_dump_step(dump, 1);
    run_one(dump, &tensor);
    ck_assert_int_eq(rps_dump_end(dump, &result, &error), RPS_E_IO);
    ck_assert_uint_eq(result.steps, 1);
}
END_TEST

static Suite *
suite(void)
{
    Suite *suite = suite_create("precision dump");
    TCase *tcase = tcase_create("dump");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_step_has_files_and_a_manifest_with_their_names);
    tcase_add_test(
            tcase, an_input_is_as_it_was_before_and_an_output_as_it_is_after);
    tcase_add_test(tcase, views_come_in_c_order_and_bf16_as_f32);
    tcase_add_test(tcase, a_repeated_row_is_written_as_often_as_it_is_seen);
    tcase_add_test(tcase, a_tensor_without_elements_has_no_file);
    tcase_add_test(tcase, without_chosen_steps_folders_are_counted);
    tcase_add_test(tcase, outside_of_its_steps_a_dump_is_off);
    tcase_add_test(tcase, an_operator_that_ends_behind_its_step_is_in_it);
    tcase_add_test(tcase, long_and_odd_names_are_cleaned_and_cut);
    tcase_add_test(tcase, a_dump_that_is_there_is_refused);
    tcase_add_test(tcase, rotated_dumps_move_on_by_one);
    tcase_add_test(tcase, a_path_without_a_number_gets_one);
    tcase_add_test(tcase, a_dump_of_nothing_leaves_nothing_behind);
    tcase_add_test(tcase, paths_that_cannot_be_are_refused);
    tcase_add_test(tcase, bytes_are_those_on_the_disk);
    tcase_add_test(tcase, what_would_go_beyond_the_limit_ends_the_dump);
    tcase_add_test(tcase, the_step_that_did_not_end_says_so);
    tcase_add_test(
            tcase, more_than_is_allowed_or_free_is_refused_before_it_begins);
    tcase_add_test(tcase, an_unwritable_step_fails_the_dump_and_not_the_run);
    suite_add_single_threaded(suite, tcase);
    tcase = tcase_create("threads");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, streams_write_side_by_side_and_no_time_comes_twice);
    suite_add_tcase(suite, tcase);
    return suite;
}

int
main(void)
{
    return run_suite(suite());
}
