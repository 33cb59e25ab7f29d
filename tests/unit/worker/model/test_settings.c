/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/settings.h"
#include "tests/unit/suite.h"

#include <stdlib.h>
#include <string.h>

#define ARGS_MAX 12

static const char synthetic[] = "--data=synthetic:rows=1000";

/* Reads the flags (NULL ends them) beside --data; *error gets the words. */
static rps_status
read_flags(const char *const *flags, const char *data,
        struct rps_options *options, struct rps_settings *settings,
        struct rps_error *error)
{
    static char program[] = "recps-train";
    char *argv[ARGS_MAX + 3] = {program, NULL};
    int argc = 1;
    rps_status status;

    if (data != NULL) {
        argv[argc++] = strdup(data);
    }
    for (size_t i = 0; flags[i] != NULL; i++) {
        argv[argc++] = strdup(flags[i]);
    }
    memset(options, 0, sizeof(*options));
    ck_assert_int_eq(rps_options_read(options, RPS_SCOPE_TRAIN, "recps-train",
                             "", false, argc, argv),
            -1);
    status = rps_settings_read(settings, options, error);
    for (int i = 1; i < argc; i++) {
        free(argv[i]);
    }
    return status;
}

START_TEST(defaults_are_the_documented_ones)
{
    static const char *const none[] = {NULL};
    const struct rps_table_config *emb;
    struct rps_options options;
    struct rps_settings settings;
    struct rps_error error;

    ck_assert_int_eq(
            read_flags(none, synthetic, &options, &settings, &error), RPS_OK);
    ck_assert_int_eq(settings.task, RPS_TASK_TRAIN);
    ck_assert_int_eq(settings.model.kind, RPS_MODEL_DLRM);
    ck_assert_uint_eq(settings.model.bottom.count, 2);
    ck_assert_uint_eq(settings.model.bottom.widths[0], 64);
    ck_assert_uint_eq(settings.model.bottom.widths[1], 16);
    ck_assert_uint_eq(settings.model.top.count, 2);
    ck_assert_uint_eq(settings.model.top.widths[0], 64);
    ck_assert_uint_eq(settings.model.top.widths[1], 1);
    ck_assert_uint_eq(settings.model.table_count, 1);
    emb = &settings.model.tables[0];
    ck_assert_str_eq(emb->spec.name, "emb");
    ck_assert_uint_eq(emb->spec.dim, 16);
    ck_assert_int_eq(emb->spec.optimizer, RPS_OPTIMIZER_ADAGRAD);
    ck_assert_double_eq(emb->learning_rate, 0.02);
    ck_assert_float_eq(emb->spec.initial_accumulator, 0.1f);
    ck_assert_int_eq(emb->spec.initializer, RPS_INITIALIZER_UNIFORM);
    ck_assert_float_eq(emb->spec.initializer_low, -0.05f);
    ck_assert_float_eq(emb->spec.initializer_high, 0.05f);
    ck_assert_int_eq(settings.model.dense.optimizer, RPS_OPTIMIZER_ADAM);
    ck_assert_double_eq(settings.model.dense_learning_rate, 0.001);
    ck_assert_int_eq(settings.terms.mode, RPS_MODE_SYNC);
    ck_assert_int_eq(settings.terms.combine, RPS_COMBINE_SUM);
    ck_assert_uint_eq(settings.replicas, 1);
    ck_assert(settings.is_chief && !settings.restore && !settings.has_test);
    rps_settings_finish(&settings);
    rps_options_finish(&options);
}
END_TEST

START_TEST(every_optimizer_and_normal_starts_can_be_named)
{
    static const char *const flags[] = {"--sparse-optimizer=ftrl",
            "--dense-optimizer=adamw", "--sparse-accumulator=0.5",
            "--sparse-init=truncated_normal:-0.01,0.02", NULL};
    const rps_table_spec *emb;
    struct rps_options options;
    struct rps_settings settings;
    struct rps_error error;

    ck_assert_int_eq(
            read_flags(flags, synthetic, &options, &settings, &error), RPS_OK);
    emb = &settings.model.tables[0].spec;
    ck_assert_int_eq(emb->optimizer, RPS_OPTIMIZER_FTRL);
    ck_assert_float_eq(emb->initial_accumulator, 0.5f);
    ck_assert_int_eq(settings.model.dense.optimizer, RPS_OPTIMIZER_ADAMW);
    ck_assert_int_eq(emb->initializer, RPS_INITIALIZER_TRUNCATED_NORMAL);
    ck_assert_float_eq(emb->initializer_low, -0.01f);
    ck_assert_float_eq(emb->initializer_high, 0.02f);
    rps_settings_finish(&settings);
    rps_options_finish(&options);
}
END_TEST

struct refusal {
    const char *data; /* NULL: no --data */
    const char *flags[7];
    const char *words; /* in the message */
};

static const struct refusal refusals[] = {
        {NULL, {NULL}, "--data is missing"},
        {"--data=csv:x", {NULL}, "--data=csv:x: must be criteo:PATH"},
        {"--data=criteo:", {NULL}, "--data=criteo:: a path is missing"},
        {synthetic, {"--eval-data=libfm:", NULL},
                "--eval-data=libfm:: a path is missing"},
        {synthetic, {"--eval-data=x", NULL}, "--eval-data=x"},
        {synthetic, {"--deterministic", "--mode=async", NULL},
                "--deterministic needs --mode sync"},
        {synthetic, {"--deterministic", "--blas-threads=4", NULL},
                "--blas-threads=4"},
        {synthetic,
                {"--deterministic", "--backup-workers=1", "--ps_hosts=a:1",
                        "--worker_hosts=b:1,c:1", "--job_name=worker",
                        "--task_index=0", NULL},
                "--deterministic does not go with --backup-workers=1"},
        {synthetic, {"--train-rows=5", "--eval-data=synthetic:rows=9", NULL},
                "--train-rows and --eval-data"},
        {synthetic,
                {"--sparse-optimizer=rmsprop", "--sparse-accumulator=1", NULL},
                "--sparse-accumulator does not go with "
                "--sparse-optimizer=rmsprop"},
        {synthetic, {"--emb-dim=8", NULL}, "must equal --emb-dim, which is 8"},
        {synthetic, {"--bottom-mlp=64,,16", NULL}, "layer 2"},
        {synthetic, {"--bottom-mlp=64,x", NULL}, "layer 2"},
        {synthetic, {"--top-mlp=64,2", NULL}, "must be 1"},
        {synthetic, {"--top-mlp=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1", NULL},
                "at most 16 layers"},
        {synthetic, {"--sparse-init=normal:0,-1", NULL}, "--sparse-init"},
        {synthetic, {"--sparse-init=normal:0", NULL}, "--sparse-init"},
        {synthetic, {"--sparse-init=gamma:0,1", NULL}, "--sparse-init"},
        {synthetic, {"--sparse-init=uniform:1,0", NULL}, "LOW < HIGH"},
        {synthetic, {"--sparse-init=uniform:1", NULL}, "LOW < HIGH"},
        {synthetic, {"--sparse-init=constant:1e99", NULL}, "constant:V"},
        {synthetic, {"--mode=async", "--combine=mean", NULL},
                "--combine=mean does not go with --mode=async"},
        {synthetic, {"--mode=bounded:2", "--combine=mean", NULL},
                "--combine=mean does not go with --mode=bounded:2"},
        {synthetic, {"--mode=bounded", NULL}, "bounded:S, S from 0"},
        {synthetic, {"--mode=bounded:1000001", NULL}, "S from 0 to 1000000"},
        {synthetic, {"--mode=bounded:-1", NULL}, "bounded:S, S from 0"},
        {synthetic, {"--mode=async", "--backup-workers=1", NULL},
                "--backup-workers=1 does not go with --mode=async"},
        {synthetic, {"--backup-workers=1", NULL},
                "--backup-workers=1 of 1 replicas"},
        {synthetic, {"--restore=0", NULL}, "--restore=0"},
        {synthetic, {"--eval-data=", NULL}, "--eval-data has an empty value"},
        {synthetic, {"--init-from=", NULL}, "--init-from has an empty value"},
        {synthetic, {"--predict", "", NULL}, "--predict has an empty value"},
        {synthetic, {"--json-log=", NULL}, "--json-log has an empty value"},
        {synthetic, {"--summary-dir=", NULL},
                "--summary-dir has an empty value"},
        {synthetic, {"--restore", "--init-from=d", NULL},
                "--restore and --init-from"},
        {synthetic, {"--evaluate", "--init-from=d", NULL},
                "--init-from does not go with --evaluate"},
        {synthetic, {"--predict=f", "--save-steps=5", NULL},
                "--save-steps does not go with --predict"},
        {"--data=criteo:x", {"--model=little_demo", NULL}, "own planted data"},
        {synthetic, {"--model=little_demo", "--emb-dim=16", NULL},
                "--emb-dim does not go with --model little_demo"},
        {synthetic, {"--model=little_demo", "--dense-lr=1", NULL},
                "--dense-lr"},
        {synthetic, {"--model=little_demo", "--init-from=d", NULL},
                "--init-from"},
};

START_TEST(options_that_contradict_are_refused_by_name)
{
    const struct refusal *refusal = &refusals[_i];
    struct rps_options options;
    struct rps_settings settings;
    struct rps_error error = {""};

    ck_assert_int_eq(read_flags(refusal->flags, refusal->data, &options,
                             &settings, &error),
            RPS_E_INVAL);
    ck_assert_msg(strstr(error.text, refusal->words) != NULL,
            "\"%s\" is not in: %s", refusal->words, error.text);
    rps_settings_finish(&settings);
    rps_options_finish(&options);
}
END_TEST

struct role_case {
    const char *flags[6];
    enum rps_task task;
    int replicas;
    int rank;
    int is_chief;
};

#define HOSTS "--ps_hosts=a:1", "--worker_hosts=b:1,c:1"

static const struct role_case roles[] = {
        {{HOSTS, "--job_name=worker", "--task_index=0", NULL}, RPS_TASK_TRAIN,
                2, 0, 1},
        {{HOSTS, "--job_name=worker", "--task_index=1", NULL}, RPS_TASK_TRAIN,
                2, 1, 0},
        {{HOSTS, "--job_name=worker", "--task_index=1", "--evaluate", NULL},
                RPS_TASK_LEAVE, 1, 0, -1},
        {{HOSTS, "--job_name=worker", "--task_index=0", "--evaluate", NULL},
                RPS_TASK_INFER, 2, 0, 1},
};

START_TEST(task_follows_from_role_and_options)
{
    const struct role_case *want = &roles[_i];
    struct rps_options options;
    struct rps_settings settings;
    struct rps_error error;

    ck_assert_int_eq(
            read_flags(want->flags, synthetic, &options, &settings, &error),
            RPS_OK);
    ck_assert_int_eq(settings.task, want->task);
    if (want->task != RPS_TASK_LEAVE) {
        ck_assert_uint_eq(settings.replicas, (unsigned)want->replicas);
        ck_assert_uint_eq(settings.rank, (unsigned)want->rank);
        ck_assert_int_eq(settings.is_chief, want->is_chief);
    }
    rps_settings_finish(&settings);
    rps_options_finish(&options);
}
END_TEST

START_TEST(roles_that_cannot_train_are_refused)
{
    static const char *const ps[] = {
            HOSTS, "--job_name=ps", "--task_index=0", NULL};
    static const char *const evaluator[] = {
            HOSTS, "--job_name=evaluator", "--task_index=0", NULL};
    struct rps_options options;
    struct rps_settings settings;
    struct rps_error error;

    ck_assert_int_eq(read_flags(ps, synthetic, &options, &settings, &error),
            RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "recpsd"));
    rps_settings_finish(&settings);
    rps_options_finish(&options);
    ck_assert_int_eq(
            read_flags(evaluator, synthetic, &options, &settings, &error),
            RPS_E_INVAL);
    ck_assert_ptr_nonnull(strstr(error.text, "test rows"));
    rps_settings_finish(&settings);
    rps_options_finish(&options);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("settings");
    TCase *tcase = tcase_create("settings");

    unsetenv("TF_CONFIG");
    unsetenv("TF_CONFIG_FILE");
    tcase_add_test(tcase, defaults_are_the_documented_ones);
    tcase_add_test(tcase, every_optimizer_and_normal_starts_can_be_named);
    tcase_add_loop_test(tcase, options_that_contradict_are_refused_by_name, 0,
            sizeof(refusals) / sizeof(refusals[0]));
    tcase_add_loop_test(tcase, task_follows_from_role_and_options, 0,
            sizeof(roles) / sizeof(roles[0]));
    tcase_add_test(tcase, roles_that_cannot_train_are_refused);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
