/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options: each type, each origin and their order, and what is refused.
 */
#include "base/text.h"
#include "conf/options_table.h"
#include "tests/unit/suite.h"

#include <string.h>
#include <unistd.h>

#define ARGUMENTS_MAX 16

struct outcome {
    int code;
    char *out;
    char *err;
    struct rps_options options;
};

/* Everything that was written to a temporary file in place of `stream`. */
static char *
take_output(FILE *file)
{
    const long length = ftell(file);
    char *text = calloc((size_t)length + 1, 1);

    rewind(file);
    ck_assert_uint_eq(fread(text, 1, (size_t)length, file), (size_t)length);
    (void)fclose(file);
    return text;
}

/* Read `line` (words by spaces) as arguments of a program of this scope. */
static struct outcome
read_line(uint32_t scope, bool stop_at_operand, const char *line)
{
    static char words[4096];
    static char *arguments[ARGUMENTS_MAX]; /* options.argv points into it */
    int count = 1;
    struct outcome outcome;
    FILE *const saved_out = stdout;
    FILE *const saved_err = stderr;

    memset(&outcome, 0, sizeof(outcome));
    arguments[0] = words;
    (void)snprintf(words, sizeof(words), "program %s", line);
    for (char *at = words; (at = strchr(at, ' ')) != NULL;) {
        *at++ = '\0';
        ck_assert_int_lt(count, ARGUMENTS_MAX);
        if (*at != '\0') {
            arguments[count++] = at;
        }
    }
    stdout = tmpfile();
    stderr = tmpfile();
    outcome.code = rps_options_read(&outcome.options, scope, "program",
            "usage: program\n", stop_at_operand, count, arguments);
    outcome.out = take_output(stdout);
    outcome.err = take_output(stderr);
    stdout = saved_out;
    stderr = saved_err;
    return outcome;
}

static struct outcome
train(const char *line)
{
    return read_line(RPS_SCOPE_TRAIN, false, line);
}

static void
finish(struct outcome *outcome)
{
    free(outcome->out);
    free(outcome->err);
    rps_options_finish(&outcome->options);
}

static void
refuses(uint32_t scope, const char *line, int code, const char *words)
{
    struct outcome outcome = read_line(scope, false, line);

    ck_assert_msg(outcome.code == code, "%s: %d, %s", line, outcome.code,
            outcome.err);
    ck_assert_msg(
            strstr(outcome.err, words) != NULL, "%s: %s", line, outcome.err);
    ck_assert_str_eq(outcome.out, "");
    ck_assert_ptr_eq(
            strchr(outcome.err, '\n'), outcome.err + strlen(outcome.err) - 1);
    finish(&outcome);
}

START_TEST(nothing_given_means_the_defaults)
{
    struct outcome outcome = train("");
    const struct rps_options *options = &outcome.options;

    ck_assert_int_eq(outcome.code, -1);
    ck_assert_str_eq(options->checkpoint_dir, "");
    ck_assert_str_eq(options->job_id, "recps");
    ck_assert_uint_eq(options->step_bytes_max, 268435456);
    ck_assert(options->connect_timeout == 300.0);
    ck_assert_uint_eq(options->batch_size, 128);
    ck_assert(options->sparse_lr == 0.02);
    ck_assert_str_eq(options->mode, "sync");
    ck_assert_str_eq(options->bottom_mlp, "64,16");
    ck_assert_ptr_null(options->restore);
    ck_assert(!options->evaluate);
    ck_assert(!rps_option_given(options, "batch_size"));
    ck_assert_int_eq(options->cluster.role, RPS_ROLE_LOCAL);
    ck_assert_int_eq(options->argc, 0);
    finish(&outcome);
}
END_TEST

START_TEST(a_flag_is_written_in_four_ways)
{
    static const char *const lines[] = {"--batch-size 7", "--batch-size=7",
            "--batch_size 7", "--batch_size=7"};

    for (size_t i = 0; i < 4; i++) {
        struct outcome outcome = train(lines[i]);
        ck_assert_int_eq(outcome.code, -1);
        ck_assert_uint_eq(outcome.options.batch_size, 7);
        ck_assert(rps_option_given(&outcome.options, "batch_size"));
        ck_assert(!rps_option_given(&outcome.options, "no_such"));
        finish(&outcome);
    }
}
END_TEST

START_TEST(every_type_is_read)
{
    struct outcome outcome =
            train("--seed=18446744073709551615 --sparse-lr=1e-3 "
                  "--step-timeout 0.5 --step-bytes-max=64k --mode async "
                  "--data=a=b --evaluate --restore=12 --dense_lr 0.5");
    const struct rps_options *options = &outcome.options;

    ck_assert_int_eq(outcome.code, -1);
    ck_assert_uint_eq(options->seed, UINT64_MAX);
    ck_assert(options->sparse_lr == 1e-3);
    ck_assert(options->step_timeout == 0.5);
    ck_assert_uint_eq(options->step_bytes_max, 65536);
    ck_assert_str_eq(options->mode, "async");
    ck_assert_str_eq(options->data, "a=b");
    ck_assert(options->evaluate);
    ck_assert_str_eq(options->restore, "12");
    ck_assert(options->dense_lr == 0.5);
    finish(&outcome);
}
END_TEST

START_TEST(a_switch_stands_alone_or_says_true_or_false)
{
    struct outcome outcome = train("--evaluate=true --restore");

    ck_assert(outcome.options.evaluate);
    ck_assert_str_eq(outcome.options.restore, "");
    finish(&outcome);
    outcome = train("--evaluate --evaluate=false");
    ck_assert(!outcome.options.evaluate);
    finish(&outcome);
    outcome = train("--restore --mode=sync");
    ck_assert_str_eq(outcome.options.restore, "");
    finish(&outcome);
}
END_TEST

START_TEST(wrong_flags_are_refused_with_64)
{
    refuses(RPS_SCOPE_TRAIN, "--bach-size=7", 64,
            "program: unknown option --bach-size=7; did you mean "
            "--batch-size? (program --help lists all)");
    refuses(RPS_SCOPE_TRAIN, "--loops=1", 64, "it is an option of recpsd");
    refuses(RPS_SCOPE_SERVER, "--mode=sync", 64, "an option of recps-train");
    refuses(RPS_SCOPE_TRAIN, "--check-config", 64, "an option of recpsd");
    refuses(RPS_SCOPE_LAUNCH, "--num-ps=2", 64, "an option of recpsd");
    refuses(RPS_SCOPE_LAUNCH, "--bind=a:1", 64, "an option of recpsd (");
    refuses(RPS_SCOPE_TRAIN, "--sparse-lr=0x10", 64, "is no number");
    refuses(RPS_SCOPE_TRAIN, "--zzzzzzzz", 64, "unknown option --zzzzzzzz (");
    refuses(RPS_SCOPE_TRAIN, "-v", 64, "unknown option -v");
    refuses(RPS_SCOPE_TRAIN, "--=3", 64, "unknown option --=3");
    refuses(RPS_SCOPE_TRAIN, "word", 64, "unexpected argument \"word\"");
    refuses(RPS_SCOPE_TRAIN, "--evaluate false", 64, "unexpected argument");
    refuses(RPS_SCOPE_TRAIN, "--data", 64, "--data: needs a value");
    refuses(RPS_SCOPE_TRAIN, "--data --mode=sync", 64, "needs a value");
    refuses(RPS_SCOPE_TRAIN, "--tf-config", 64, "--tf-config: needs a value");
    refuses(RPS_SCOPE_TRAIN, "--num-workers=x", 64, "allowed: 1..1000000");
    refuses(RPS_SCOPE_TRAIN, "--allow-unknown-roles=perhaps", 64, "true or");
}
END_TEST

START_TEST(wrong_values_name_the_option_the_value_and_what_is_allowed)
{
    refuses(RPS_SCOPE_TRAIN, "--batch-size=many", 64,
            "program: --batch-size: \"many\" is no whole number (allowed: "
            "1..16777216 rows)");
    refuses(RPS_SCOPE_TRAIN, "--batch-size=0", 64, "\"0\" is out of range");
    refuses(RPS_SCOPE_TRAIN, "--batch-size=-1", 64, "is no whole number");
    refuses(RPS_SCOPE_TRAIN, "--batch-size=", 64, "\"\" is no whole number");
    refuses(RPS_SCOPE_TRAIN, "--seed=18446744073709551616", 64, "no whole");
    refuses(RPS_SCOPE_TRAIN, "--sparse-lr=nan", 64, "is no number");
    refuses(RPS_SCOPE_TRAIN, "--sparse-lr=-0.1", 64, "is out of range");
    refuses(RPS_SCOPE_TRAIN, "--step-timeout=60s", 64,
            "(allowed: 0.1..86400 s)");
    refuses(RPS_SCOPE_TRAIN, "--step-bytes-max=4x", 64, "is no size");
    refuses(RPS_SCOPE_TRAIN, "--step-bytes-max=2TiB", 64, "4KiB..1TiB");
    refuses(RPS_SCOPE_TRAIN, "--combine=su", 64, "(allowed: sum|mean)");
    refuses(RPS_SCOPE_TRAIN, "--combine=", 64, "(allowed: sum|mean)");
    refuses(RPS_SCOPE_TRAIN, "--evaluate=maybe", 64, "true or false");
    refuses(RPS_SCOPE_TRAIN, "--restore=newest", 64, "is no whole number");
    refuses(RPS_SCOPE_TRAIN, "--job-id=", 64, "1..128 bytes of text");
}
END_TEST

START_TEST(flag_beats_variable_beats_json_beats_default)
{
    struct outcome outcome;
    const char *json = "{\"recps\":{\"seed\":2,\"epochs\":2,\"keep\":2}}";

    ck_assert_int_eq(setenv("RECPS_SEED", "3", 1), 0);
    ck_assert_int_eq(setenv("RECPS_EPOCHS", "3", 1), 0);
    ck_assert_int_eq(setenv("TF_CONFIG", json, 1), 0);
    outcome = train("--seed=4");
    ck_assert_int_eq(outcome.code, -1);
    ck_assert_uint_eq(outcome.options.seed, 4);
    ck_assert_uint_eq(outcome.options.epochs, 3);
    ck_assert_uint_eq(outcome.options.keep, 2);
    ck_assert_uint_eq(outcome.options.log_every, 1);
    ck_assert(rps_option_given(&outcome.options, "keep"));
    finish(&outcome);
    (void)unsetenv("RECPS_SEED");
    (void)unsetenv("RECPS_EPOCHS");
    (void)unsetenv("TF_CONFIG");
}
END_TEST

static void
json_gives(const char *member, int code, const char *words)
{
    char *text = rps_format("{\"recps\":{%s}}", member);

    ck_assert_int_eq(setenv("TF_CONFIG", text, 1), 0);
    if (code >= 0) {
        refuses(RPS_SCOPE_TRAIN, "", code, words);
    } else {
        struct outcome outcome = train("");
        ck_assert_msg(outcome.code == -1, "%s: %s", text, outcome.err);
        finish(&outcome);
    }
    (void)unsetenv("TF_CONFIG");
    free(text);
}

START_TEST(json_values_have_their_types)
{
    json_gives("\"seed\":5", -1, "");
    json_gives("\"seed\":\"18446744073709551615\"", -1, "");
    json_gives("\"sparse_lr\":1", -1, "");
    json_gives("\"sparse_lr\":0.1", -1, "");
    json_gives("\"sparse_lr\":\"0.1\"", -1, "");
    json_gives("\"step_bytes_max\":\"1g\"", -1, "");
    json_gives("\"step_bytes_max\":65536", -1, "");
    json_gives("\"evaluate\":true", -1, "");
    json_gives("\"restore\":false", -1, "");
    json_gives("\"restore\":true", -1, "");
    json_gives("\"restore\":7", -1, "");
    json_gives("\"loops\":1", -1, "");
    json_gives("\"loops\":\"for recpsd to refuse\"", -1, "");
    json_gives("\"seed\":1.5", 78, "TF_CONFIG: recps.seed: the value has the");
    json_gives("\"seed\":-1", 78, "recps.seed: \"-1\" is no whole number");
    json_gives("\"seed\":true", 78, "recps.seed: ");
    json_gives("\"combine\":5", 78, "wrong type (allowed: sum|mean)");
    json_gives("\"data\":null", 78, "recps.data: ");
    json_gives("\"evaluate\":1", 78, "true or false");
    json_gives("\"emb_dim\":9000", 78, "(allowed: 1..8192 floats)");
    json_gives("\"batchsize\":1", 78,
            "recps: no option \"batchsize\"; did you mean \"batch_size\"?");
    json_gives("\"batch-size\":1", 78, "did you mean \"batch_size\"?");
    json_gives("\"zzzzzzzzzz\":1", 78, "recps: no option \"zzzzzzzzzz\"\n");
}
END_TEST

START_TEST(variables_of_others_are_skipped_and_slips_are_warned_of)
{
    struct outcome outcome;

    ck_assert_int_eq(setenv("RECPS_LOOPS", "for recpsd to refuse", 1), 0);
    ck_assert_int_eq(setenv("RECPS_TEST_DATA", "x", 1), 0);
    outcome = train("");
    ck_assert_int_eq(outcome.code, -1);
    ck_assert_str_eq(outcome.err, "");
    finish(&outcome);
    ck_assert_int_eq(setenv("RECPS_EPOCH", "3", 1), 0);
    outcome = train("");
    ck_assert_int_eq(outcome.code, -1);
    ck_assert_str_eq(outcome.err,
            "program: warning: variable RECPS_EPOCH is no option; did you "
            "mean RECPS_EPOCHS?\n");
    finish(&outcome);
    (void)unsetenv("RECPS_EPOCH");
    ck_assert_int_eq(setenv("RECPS_EPOCHS", "x", 1), 0);
    refuses(RPS_SCOPE_TRAIN, "", 64, "program: variable RECPS_EPOCHS: \"x\"");
    outcome = train("--epochs=2");
    ck_assert_int_eq(outcome.code, -1);
    finish(&outcome);
    (void)unsetenv("RECPS_EPOCHS");
    (void)unsetenv("RECPS_LOOPS");
    (void)unsetenv("RECPS_TEST_DATA");
}
END_TEST

START_TEST(the_cluster_flags_reach_the_resolver)
{
    struct outcome outcome =
            train("--ps_hosts=a:1,b:1 --worker-hosts c:1 --chief_hosts=d:1 "
                  "--evaluator-hosts=e:1 --job_name=worker --task_index 0 "
                  "--num-ps=2 --num-workers=1 --allow-unknown-roles");

    ck_assert_int_eq(outcome.code, -1);
    ck_assert_uint_eq(outcome.options.cluster.ps_count, 2);
    ck_assert_str_eq(outcome.options.cluster.own_address, "c:1");
    ck_assert_uint_eq(outcome.options.cluster.rank, 1);
    finish(&outcome);
    refuses(RPS_SCOPE_TRAIN, "--tf-config=[]", 78,
            "TF_CONFIG: top level must be an object\n");
    refuses(RPS_SCOPE_TRAIN, "--job-name=ps", 78, "\"cluster\" is not set");
}
END_TEST

START_TEST(a_subcommand_ends_the_flags_where_the_program_has_them)
{
    struct outcome outcome = read_line(RPS_SCOPE_TOOL, true,
            "--json --ps-hosts=a:1 tables --no-flag-of-ours x");

    ck_assert_int_eq(outcome.code, -1);
    ck_assert(outcome.options.json);
    ck_assert_int_eq(outcome.options.cluster.role, RPS_ROLE_NONE);
    ck_assert_int_eq(outcome.options.argc, 3);
    ck_assert_str_eq(outcome.options.argv[0], "tables");
    ck_assert_str_eq(outcome.options.argv[1], "--no-flag-of-ours");
    finish(&outcome);
    outcome = train("--seed=1 -- --seed=2");
    ck_assert_int_eq(outcome.options.argc, 1);
    ck_assert_str_eq(outcome.options.argv[0], "--seed=2");
    ck_assert_uint_eq(outcome.options.seed, 1);
    finish(&outcome);
}
END_TEST

START_TEST(help_and_version_are_answers)
{
    struct outcome outcome = train("--help --no-such-flag");

    ck_assert_int_eq(outcome.code, 0);
    ck_assert_str_eq(outcome.err, "");
    ck_assert(strncmp(outcome.out, "usage: program\n", 15) == 0);
    ck_assert_ptr_nonnull(strstr(outcome.out, "--batch-size=N"));
    ck_assert_ptr_nonnull(strstr(outcome.out, "RECPS_BATCH_SIZE"));
    ck_assert_ptr_null(strstr(outcome.out, "--drain-timeout"));
    finish(&outcome);
    outcome = train("--version");
    ck_assert_int_eq(outcome.code, 0);
    ck_assert_str_eq(outcome.out, "program " RPS_VERSION "\n");
    finish(&outcome);
    outcome = train("--help=false -h");
    ck_assert_int_eq(outcome.code, 0);
    finish(&outcome);
}
END_TEST

START_TEST(what_was_replaced_or_ignored_is_logged)
{
    const char *line = "--ps-hosts=a:1 --job-name=ps --task-index=0 "
                       "--tf-config={\"cluster\":{\"ps\":[\"b:1\"]},\"x\":1}";
    struct outcome outcome = read_line(RPS_SCOPE_SERVER, false, line);

    ck_assert_int_eq(outcome.code, -1);
    ck_assert_ptr_nonnull(strstr(outcome.err,
            " warn tf_config: the cluster of TF_CONFIG is replaced by "
            "--ps-hosts\n"));
    ck_assert_ptr_nonnull(strstr(outcome.err, " info tf_config: ignored: x\n"));
    finish(&outcome);
    outcome = read_line(RPS_SCOPE_TOOL, true, line);
    ck_assert_ptr_nonnull(strstr(outcome.err, "is replaced by"));
    ck_assert_ptr_null(strstr(outcome.err, "ignored"));
    finish(&outcome);
}
END_TEST

START_TEST(a_refused_check_config_answers_in_json)
{
    struct outcome outcome = read_line(RPS_SCOPE_SERVER, false,
            "--check-config --json --tf-config={\"\xff\":1}");
    json_t *answer = json_loads(outcome.out, 0, NULL);

    ck_assert_int_eq(outcome.code, 78);
    ck_assert_ptr_nonnull(answer);
    ck_assert_str_eq(
            json_string_value(json_object_get(answer, "verdict")), "reject");
    ck_assert_str_eq(
            json_string_value(json_object_get(answer, "code")), "E_JSON");
    ck_assert(strncmp(outcome.err, "TF_CONFIG: not valid JSON at ", 29) == 0);
    json_decref(answer);
    finish(&outcome);
    outcome = read_line(RPS_SCOPE_SERVER, false,
            "--check-config --json --job_name=ps --task_index=0 "
            "--ps_hosts=\xff\xfe:1");
    answer = json_loads(outcome.out, 0, NULL);
    ck_assert_ptr_nonnull(
            strstr(json_string_value(json_object_get(answer, "message")),
                    "cannot read address \"??:1\""));
    json_decref(answer);
    finish(&outcome);
}
END_TEST

START_TEST(every_option_has_help_and_a_default_that_is_allowed)
{
    struct rps_options options;
    char why[RPS_OPTION_WHY_MAX];

    ck_assert(rps_options_default(&options));
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        ck_assert_uint_gt(strlen(def->help), 5);
        ck_assert(def->scope != 0);
        if (def->type != RPS_OPTION_OPTIONAL) {
            ck_assert_msg(rps_option_set(&options, def, def->value,
                                  RPS_ORIGIN_FLAG, why),
                    "%s: %s", def->name, why);
        }
    }
    rps_options_finish(&options);
    rps_options_finish(&options);
}
END_TEST

static void
clear_environment(void)
{
    char name[RPS_OPTION_NAME_MAX];

    for (size_t i = 0; i < rps_option_count; i++) {
        (void)unsetenv(rps_option_variable(rps_option_table[i].name, name));
    }
    (void)unsetenv("TF_CONFIG");
    (void)unsetenv("TF_CONFIG_FILE");
}

int
main(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("read");

    clear_environment();
    tcase_add_test(tcase, nothing_given_means_the_defaults);
    tcase_add_test(tcase, a_flag_is_written_in_four_ways);
    tcase_add_test(tcase, every_type_is_read);
    tcase_add_test(tcase, a_switch_stands_alone_or_says_true_or_false);
    tcase_add_test(tcase, wrong_flags_are_refused_with_64);
    tcase_add_test(
            tcase, wrong_values_name_the_option_the_value_and_what_is_allowed);
    tcase_add_test(tcase, flag_beats_variable_beats_json_beats_default);
    tcase_add_test(tcase, json_values_have_their_types);
    tcase_add_test(
            tcase, variables_of_others_are_skipped_and_slips_are_warned_of);
    tcase_add_test(tcase, the_cluster_flags_reach_the_resolver);
    tcase_add_test(
            tcase, a_subcommand_ends_the_flags_where_the_program_has_them);
    tcase_add_test(tcase, help_and_version_are_answers);
    tcase_add_test(tcase, what_was_replaced_or_ignored_is_logged);
    tcase_add_test(tcase, a_refused_check_config_answers_in_json);
    tcase_add_test(tcase, every_option_has_help_and_a_default_that_is_allowed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
