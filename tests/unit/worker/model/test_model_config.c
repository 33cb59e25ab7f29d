/* SPDX-License-Identifier: Apache-2.0 */
/* A model's file, refused in words, and the fields that its bags get. */
#include "base/spec.h"
#include "client/worker/layout.h"
#include "client/worker/settings.h"
#include "tests/unit/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file with this text; the path is to be freed after unlink(). */
static char *
file_of(const char *text)
{
    char *path = strdup("/tmp/recps-model-XXXXXX");
    int fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static rps_status
read_text(struct rps_model_config *config, const char *text,
        struct rps_error *error)
{
    static char *path; /* the config borrows it: the last one of a test stays */
    rps_status status;

    free(path);
    path = file_of(text);
    status = rps_model_config_read(config, path, error);
    unlink(path);
    if (status != RPS_OK) {
        ck_assert_msg(strncmp(error->text, path, strlen(path)) == 0,
                "the file is not named first: %s", error->text);
    }
    return status;
}

#define HEAD                                                       \
    "{\"model\": \"dlrm\", \"bottom_mlp\": [4], \"top_mlp\": [1]," \
    " \"dense\": {\"optimizer\": \"sgd\"}, "
#define TABLE(more) \
    "{\"name\": \"t\", \"dimension\": 4, \"optimizer\": \"sgd\"" more "}"

struct refusal {
    const char *text, *words;
};

#define SCALING ", \"initializer\": \"variance_scaling\", "

static const struct refusal refusals[] = {
        {"{", ":1:1: not JSON"},
        {"{\"model\": \"dlrm\", \"model\": \"dlrm\"}", "not JSON: duplicate"},
        {"[]", "must be a JSON object"},
        {"{}", "model must be \"dlrm\" or \"little_demo\""},
        {"{\"model\": \"wide\"}", "model must be"},
        {"{\"model\": \"dlrm\", \"top_mpl\": [1]}",
                "there is no field \"top_mpl\"; did you mean \"top_mlp\"?"},
        {"{\"model\": \"dlrm\", \"mlp\": [1]}", "no field \"mlp\""},
        {"{\"model\": \"little_demo\", \"top_mlp\": [1]}",
                "no field \"top_mlp\""},
        {"{\"model\": \"dlrm\"}", "bottom_mlp must be a list"},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [4, 0]}",
                "bottom_mlp[1] must be a whole number from 1 to 65536"},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [\"4\"]}", "bottom_mlp[0]"},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [4], \"top_mlp\": [2]}",
                "its last width must be 1"},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [4], \"top_mlp\": [1]}",
                "dense must be an object"},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [4], \"top_mlp\": [1],"
         " \"dense\": {}}",
                "dense: \"optimizer\" is missing"},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [4], \"top_mlp\": [1],"
         " \"dense\": {\"optimizer\": \"sgd\", \"memory_limit\": 1}}",
                "dense: there is no field \"memory_limit\""},
        {"{\"model\": \"dlrm\", \"bottom_mlp\": [4], \"top_mlp\": [1],"
         " \"dense\": {\"optimizer\": \"adam\", \"beta1\": 1.5}}",
                "dense: beta1"},
        {HEAD "\"tables\": []}", "tables must be a list of 1 to 64"},
        {HEAD "\"tables\": [3]}", "tables[0] must be an object"},
        {HEAD "\"tables\": [{\"name\": \"t\"}]}",
                "tables[0] (t): \"optimizer\" is missing"},
        {HEAD "\"tables\": [" TABLE(", \"optimiser\": 1") "]}",
                "did you mean \"optimizer\"?"},
        {HEAD "\"tables\": [" TABLE(", \"seed\": \"1\"") "]}",
                "tables[0] (t): there is no field \"seed\""},
        {HEAD "\"tables\": [{\"name\": \"t\", \"dimension\": 4,"
              " \"optimizer\": \"sdg\"}]}",
                "tables[0] (t): table spec: optimizer must be one of sgd"},
        {HEAD "\"tables\": [{\"name\": \"t\", \"dimension\": 0,"
              " \"optimizer\": \"sgd\"}]}",
                "tables[0] (t): table t: dimension is 0"},
        {HEAD "\"tables\": [{\"name\": \"a/b\", \"dimension\": 4,"
              " \"optimizer\": \"sgd\"}]}",
                "tables[0] (a/b): table name"},
        {HEAD "\"tables\": [" TABLE(", \"beta1\": 0.5") "]}",
                "tables[0] (t): table t: beta1 is 0.5"},
        {HEAD "\"tables\": [" TABLE(", \"max_cold_secs\": 1,"
                                    " \"max_cold_steps\": 1") "]}",
                "tables[0] (t): table t: max_cold_secs is 1 and"},
        {HEAD "\"tables\": [" TABLE(", \"pooling\": \"max\"") "]}",
                "pooling must be \"sum\", \"mean\" or \"sqrtn\""},
        {HEAD "\"tables\": [" TABLE(", \"fields\": []") "]}",
                "tables[0] (t): fields must be a list"},
        {HEAD "\"tables\": [" TABLE(", \"fields\": [0, []]") "]}",
                "fields[1] must be a list of fields"},
        {HEAD "\"tables\": [" TABLE(", \"fields\": [-1]") "]}",
                "fields[0][0] must be a field's number"},
        {HEAD "\"tables\": [" TABLE(", \"fields\": [[0, \"7-3\"]]") "]}",
                "fields[0][1] must be a field's number"},
        {HEAD "\"tables\": [" TABLE(", \"fields\": [\"0-4000000000\"]") "]}",
                "more than 1048576 fields"},
        {HEAD "\"tables\": [" TABLE("") ", " TABLE("") "]}",
                "tables[1] (t): tables[0] has the same name"},
        {HEAD "\"tables\": [" TABLE(
                 "") ", {\"name\": \"u\","
                     " \"dimension\": 1, \"optimizer\": \"sgd\"}]}",
                "tables[1] (u): tables[0] has no \"fields\" either"},
        {HEAD "\"tables\": [" TABLE(", \"value_dtype\": \"float8\"") "]}",
                "must be one of float32, float16, bfloat16"},
        {HEAD "\"tables\": [" TABLE(", \"initializer_scale\": 2") "]}",
                "tables[0] (t): initializer_scale goes with"},
        {HEAD "\"tables\": [" TABLE(SCALING "\"initializer_high\": 2") "]}",
                "tables[0] (t): initializer_high does not go with"},
        {HEAD "\"tables\": [" TABLE(SCALING "\"initializer_scale\": 0") "]}",
                "initializer_scale must be a number from 1e-30"},
        {HEAD "\"tables\": [" TABLE(
                 SCALING "\"initializer_mode\": \"fan\"") "]}",
                "initializer_mode must be one of fan_in, fan_out, fan_avg"},
        {HEAD "\"tables\": [" TABLE("") "], \"unused_fields\": 3}",
                "unused_fields must be a list of fields"},
};

START_TEST(what_is_wrong_in_a_file_is_named)
{
    struct rps_model_config config;
    struct rps_error error = {""};

    ck_assert_int_eq(
            read_text(&config, refusals[_i].text, &error), RPS_E_INVAL);
    ck_assert_msg(strstr(error.text, refusals[_i].words) != NULL,
            "\"%s\" is not in: %s", refusals[_i].words, error.text);
}
END_TEST

START_TEST(a_file_that_is_not_there_is_named)
{
    struct rps_model_config config;
    struct rps_error error = {""};

    ck_assert_int_eq(rps_model_config_read(&config, "/nowhere.json", &error),
            RPS_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(error.text, "/nowhere.json"));
}
END_TEST

static rps_status
layout_of(struct rps_layout *layout, struct rps_model_config *config,
        const char *tables, uint32_t fields, struct rps_error *error)
{
    char text[1024];

    snprintf(text, sizeof(text), HEAD "%s}", tables);
    ck_assert_int_eq(read_text(config, text, error), RPS_OK);
    return rps_layout_init(layout, config, fields, error);
}

/* "0,1|2" : fields with commas between, bags with bars. */
static void
check_bags(const struct rps_model_table *table, const char *want)
{
    char got[256] = "";
    size_t n = 0;

    for (uint32_t b = 0; b < table->bags; b++) {
        for (uint32_t i = table->bag_starts[b]; i < table->bag_starts[b + 1];
                i++) {
            const char *sign = i > table->bag_starts[b] ? ","
                               : b > 0                  ? "|"
                                                        : "";

            n += (size_t)snprintf(
                    got + n, sizeof(got) - n, "%s%u", sign, table->fields[i]);
        }
    }
    ck_assert_str_eq(got, want);
}

START_TEST(fields_go_where_the_file_says_and_the_rest_to_the_table_without)
{
    struct rps_model_config config;
    struct rps_layout layout;
    struct rps_error error = {""};

    ck_assert_int_eq(
            layout_of(&layout, &config,
                    "\"tables\": [" TABLE(
                            "") ", {\"name\": \"u\","
                                " \"fields\": [9, [0, \"2-4\"], \"6-7\"],"
                                " \"dimension\": 2, \"optimizer\": \"adam\","
                                " \"pooling\": \"sqrtn\"}],"
                                " \"unused_fields\": [1, \"10-11\"]",
                    13, &error),
            RPS_OK);
    ck_assert_uint_eq(layout.table_count, 2);
    check_bags(&layout.tables[0], "5|8|12");
    check_bags(&layout.tables[1], "9|0,2,3,4|6|7");
    ck_assert_str_eq(layout.tables[1].name, "u");
    ck_assert_uint_eq(layout.tables[1].dim, 2);
    ck_assert_int_eq(layout.tables[0].pooling, RPS_POOLING_SUM);
    ck_assert_int_eq(layout.tables[1].pooling, RPS_POOLING_SQRTN);
    rps_layout_finish(&layout);
    rps_model_config_finish(&config);
}
END_TEST

static const struct refusal misfits[] = {
        {"\"tables\": [" TABLE(", \"fields\": [\"0-3\"]") "]",
                "tables[0] (t): field 3 is not one of the data's 3"},
        {"\"tables\": [" TABLE("") "], \"unused_fields\": [7]",
                "unused_fields: field 7 is not one of"},
        {"\"tables\": [" TABLE(", \"fields\": [0, [1, 0], 2]") "]",
                "tables[0] (t): field 0 is named twice"},
        {"\"tables\": [" TABLE(
                 ", \"fields\": [\"0-2\"]") "],"
                                            " \"unused_fields\": [2]",
                "field 2 is named twice"},
        {"\"tables\": [" TABLE(", \"fields\": [0, 2]") "]",
                "field 1 of the data goes to no table"},
        {"\"tables\": [" TABLE("") "], \"unused_fields\": [\"0-2\"]",
                "tables[0] (t): no field of the data is left for it"},
};

START_TEST(a_file_that_does_not_fit_the_data_is_refused)
{
    struct rps_model_config config;
    struct rps_layout layout;
    struct rps_error error = {""};

    ck_assert_int_eq(layout_of(&layout, &config, misfits[_i].text, 3, &error),
            RPS_E_INVAL);
    ck_assert_msg(strstr(error.text, misfits[_i].words) != NULL,
            "\"%s\" is not in: %s", misfits[_i].words, error.text);
    ck_assert_ptr_nonnull(strstr(error.text, config.file));
    rps_model_config_finish(&config);
}
END_TEST

static void
read_settings(struct rps_settings *settings, struct rps_options *options,
        const char *flag)
{
    char *argv[] = {strdup("recps-train"), strdup("--data=synthetic:"),
            strdup(flag), NULL};
    struct rps_error error;

    memset(options, 0, sizeof(*options));
    ck_assert_int_eq(rps_options_read(options, RPS_SCOPE_TRAIN, "recps-train",
                             "", false, 3, argv),
            -1);
    ck_assert_msg(rps_settings_read(settings, options, &error) == RPS_OK, "%s",
            error.text);
    for (int i = 0; i < 3; i++) {
        free(argv[i]);
    }
}

static void
check_same_spec(const rps_table_spec *a, const rps_table_spec *b)
{
    char *one = rps_spec_to_json(a), *other = rps_spec_to_json(b);

    ck_assert_str_eq(one, other);
    free(one);
    free(other);
}

static void
check_same_table(
        const struct rps_table_config *a, const struct rps_table_config *b)
{
    check_same_spec(&a->spec, &b->spec);
    ck_assert_double_eq(a->learning_rate, b->learning_rate);
    ck_assert_int_eq(a->pooling, b->pooling);
    ck_assert_uint_eq(a->bag_count, b->bag_count);
    for (uint32_t i = 0; i < a->bag_count; i++) {
        ck_assert_uint_eq(a->bag_ends[i], b->bag_ends[i]);
    }
    for (uint32_t i = 0; a->bag_count > 0 && i < a->bag_ends[a->bag_count - 1];
            i++) {
        ck_assert_uint_eq(a->fields[i], b->fields[i]);
    }
}

START_TEST(the_examples_are_the_defaults)
{
    static const char *const cases[][2] = {
            {"--model=dlrm", "--model-config=" RPS_EXAMPLES "/dlrm.json"},
            {"--model=little_demo",
                    "--model-config=" RPS_EXAMPLES "/little_demo.json"},
    };
    struct rps_options options[2];
    struct rps_settings settings[2];
    const struct rps_model_config *a = &settings[0].model;
    const struct rps_model_config *b = &settings[1].model;

    read_settings(&settings[0], &options[0], cases[_i][0]);
    read_settings(&settings[1], &options[1], cases[_i][1]);
    ck_assert_int_eq(a->kind, b->kind);
    ck_assert_mem_eq(&a->bottom, &b->bottom, sizeof(a->bottom));
    ck_assert_mem_eq(&a->top, &b->top, sizeof(a->top));
    ck_assert_mem_eq(&a->trunk, &b->trunk, sizeof(a->trunk));
    ck_assert_double_eq(a->dense_learning_rate, b->dense_learning_rate);
    ck_assert_int_eq(a->dense.optimizer, b->dense.optimizer);
    ck_assert_float_eq(a->dense.learning_rate, b->dense.learning_rate);
    ck_assert_uint_eq(a->table_count, b->table_count);
    ck_assert_uint_eq(b->unused_count, 0);
    for (uint32_t t = 0; t < a->table_count; t++) {
        check_same_table(&a->tables[t], &b->tables[t]);
    }
    for (int i = 0; i < 2; i++) {
        rps_settings_finish(&settings[i]);
        rps_options_finish(&options[i]);
    }
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("model_config");
    TCase *tcase = tcase_create("model_config");

    unsetenv("TF_CONFIG");
    unsetenv("TF_CONFIG_FILE");
    tcase_add_loop_test(tcase, what_is_wrong_in_a_file_is_named, 0,
            sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_test(tcase, a_file_that_is_not_there_is_named);
    tcase_add_test(tcase,
            fields_go_where_the_file_says_and_the_rest_to_the_table_without);
    tcase_add_loop_test(tcase, a_file_that_does_not_fit_the_data_is_refused, 0,
            sizeof(misfits) / sizeof(misfits[0]));
    tcase_add_loop_test(tcase, the_examples_are_the_defaults, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
