/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/settings.h"

#include "base/terms.h"
#include "base/text.h"
#include "client/worker/deterministic.h"

#include <stdlib.h>
#include <string.h>

const char *
rps_text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* Places in options->origins. */
enum option_index {
#define RPS_OPTION_INDEX(scope, name, ...) OPTION_##name,
    RPS_OPTIONS(RPS_OPTION_INDEX)
#undef RPS_OPTION_INDEX
};

/* --predict "$FILE" with an unset FILE is a slip, not "no prediction". */
static rps_status
check_not_empty(const struct rps_options *options, struct rps_error *error)
{
    const struct {
        const char *flag, *value;
        enum option_index index;
    } texts[] = {
            {"model-config", options->model_config, OPTION_model_config},
            {"eval-data", options->eval_data, OPTION_eval_data},
            {"init-from", options->init_from, OPTION_init_from},
            {"predict", options->predict, OPTION_predict},
            {"json-log", options->json_log, OPTION_json_log},
            {"summary-dir", options->summary_dir, OPTION_summary_dir},
            {"profile", options->profile, OPTION_profile},
    };

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (texts[i].value[0] == '\0' &&
                options->origins[texts[i].index] == RPS_ORIGIN_FLAG) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s has an empty value: give one, or leave it out",
                    texts[i].flag);
        }
    }
    return RPS_OK;
}

#define DATA_FORMS                                           \
    "criteo:PATH, ml-100k:DIR, libfm:PATH, feasign:PATH or " \
    "synthetic:rows=N,..."

/* A known kind, and a path where it takes one. */
static rps_status
check_spec(const char *flag, const char *spec, struct rps_error *error)
{
    static const char *const kinds[] = {
            "synthetic:", "criteo:", "ml-100k:", "libfm:", "feasign:"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        const size_t length = strlen(kinds[i]);

        if (strncmp(spec, kinds[i], length) == 0) {
            return i == 0 || spec[length] != '\0'
                           ? RPS_OK
                           : rps_fail(error, RPS_E_INVAL,
                                     "--%s=%s: a path is missing behind the "
                                     "colon",
                                     flag, spec);
        }
    }
    return rps_fail(
            error, RPS_E_INVAL, "--%s=%s: must be " DATA_FORMS, flag, spec);
}

static rps_status
check_data(const struct rps_options *options, struct rps_error *error)
{
    rps_status status;

    if (options->data[0] == '\0') {
        return rps_fail(
                error, RPS_E_INVAL, "--data is missing: give " DATA_FORMS);
    }
    status = check_spec("data", options->data, error);
    if (status == RPS_OK && options->eval_data[0] != '\0') {
        status = check_spec("eval-data", options->eval_data, error);
    }
    if (status == RPS_OK && options->eval_data[0] != '\0' &&
            options->train_rows > 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--train-rows and --eval-data both say what the test rows "
                "are: give one of them");
    }
    return status;
}

static rps_status
check_counts(const struct rps_options *options, struct rps_error *error)
{
    const struct {
        const char *name;
        uint64_t value, max;
    } counts[] = {
            {"batch-size", options->batch_size, RPS_BATCH_ROWS_MAX},
            {"epochs", options->epochs, UINT32_MAX},
            {"log-every", options->log_every, UINT64_MAX},
            {"keep", options->keep, UINT32_MAX},
            {"blas-threads", options->blas_threads, 1024},
    };

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (counts[i].value == 0 || counts[i].value > counts[i].max) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s=%llu: must be from 1 to %llu", counts[i].name,
                    (unsigned long long)counts[i].value,
                    (unsigned long long)counts[i].max);
        }
    }
    return RPS_OK;
}

/* Options that only mean something to a run that trains. */
static rps_status
check_inference(const struct rps_options *options, struct rps_error *error)
{
    static const struct {
        const char *name, *flag;
    } training[] = {
            {"init_from", "init-from"},
            {"save_steps", "save-steps"},
    };
    const char *what = options->evaluate ? "evaluate" : "predict";

    for (size_t i = 0; i < sizeof(training) / sizeof(training[0]); i++) {
        if (rps_option_given(options, training[i].name)) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s does not go with --%s, which restores a "
                    "checkpoint and trains nothing",
                    training[i].flag, what);
        }
    }
    return RPS_OK;
}

/* recps launch says how often it has started this place before. */
static uint64_t
restart_count(void)
{
    const char *text = getenv("RECPS_RESTART_COUNT");
    uint64_t count = 0;

    return text != NULL && rps_parse_u64(text, &count) ? count : 0;
}

static rps_status
read_start(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    const char *step = options->restore;

    settings->evaluate = options->evaluate;
    settings->restore_if_any = step != NULL && strcmp(step, "auto") == 0;
    settings->restart_count = restart_count();
    settings->restore =
            step != NULL || options->evaluate || options->predict[0] != '\0';
    if (step != NULL && step[0] != '\0' && !settings->restore_if_any &&
            (!rps_parse_u64(step, &settings->restore_step) ||
                    settings->restore_step == 0)) {
        return rps_fail(error, RPS_E_INVAL,
                "--restore=%s: must be a step from 1 on, or auto; --restore "
                "alone takes the newest checkpoint",
                step);
    }
    if (step != NULL && options->init_from[0] != '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "--restore and --init-from both give the start values: give "
                "one of them");
    }
    if (options->evaluate || options->predict[0] != '\0') {
        rps_status status = check_inference(options, error);

        if (status != RPS_OK) {
            return status;
        }
    }
    return rps_settings_read_warm(settings, error);
}

static rps_status
read_terms(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    rps_terms *terms = &settings->terms;

    if (!rps_terms_read_mode(options->mode, terms)) {
        return rps_fail(error, RPS_E_INVAL,
                "--mode=%s: must be sync, async or bounded:S, S from 0 to %u",
                options->mode, RPS_STALENESS_MAX);
    }
    terms->combine = strcmp(options->combine, "mean") == 0 ? RPS_COMBINE_MEAN
                                                           : RPS_COMBINE_SUM;
    terms->on_lost = strcmp(options->on_lost, "leave") == 0 ? RPS_ON_LOST_LEAVE
                                                            : RPS_ON_LOST_STOP;
    terms->cut =
            strcmp(options->cut, "local") == 0 ? RPS_CUT_LOCAL : RPS_CUT_JOB;
    terms->step_timeout_ms = (uint32_t)(options->step_timeout * 1e3);
    terms->step_bytes_max = options->step_bytes_max;
    terms->recover = options->recover;
    if (terms->mode != RPS_MODE_SYNC && terms->combine == RPS_COMBINE_MEAN) {
        return rps_fail(error, RPS_E_INVAL,
                "--combine=mean does not go with --mode=%s, which "
                "combines nothing: each push is a step of its own",
                options->mode);
    }
    if (terms->mode == RPS_MODE_SYNC && terms->cut == RPS_CUT_LOCAL) {
        return rps_fail(error, RPS_E_INVAL,
                "--cut=local does not go with --mode=sync: its steps are the "
                "job's, and no save waits for one");
    }
    return RPS_OK;
}

/* Once the number of replicas is known. */
static rps_status
read_backup_workers(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    rps_terms *terms = &settings->terms;
    const unsigned long long count = options->backup_workers;

    terms->replica_count = settings->replicas;
    if (count == 0) {
        return RPS_OK;
    }
    if (terms->mode != RPS_MODE_SYNC) {
        return rps_fail(error, RPS_E_INVAL,
                "--backup-workers=%llu does not go with --mode=%s, in which no "
                "step waits for all replicas",
                count, options->mode);
    }
    if (count >= settings->replicas) {
        return rps_fail(error, RPS_E_INVAL,
                "--backup-workers=%llu of %u replicas: one at least must be "
                "counted",
                count, settings->replicas);
    }
    if (rps_option_given(options, "combine") &&
            terms->combine == RPS_COMBINE_SUM) {
        return rps_fail(error, RPS_E_INVAL,
                "--combine=sum does not go with --backup-workers: the replicas "
                "that a step counts differ, so their mean is taken");
    }
    terms->combine = RPS_COMBINE_MEAN;
    terms->backup_workers = (uint32_t)count;
    return RPS_OK;
}

static rps_status
read_replicas(struct rps_settings *settings, struct rps_error *error)
{
    const rps_cluster *cluster = &settings->options->cluster;

    settings->replicas = cluster->replica_count;
    settings->rank = cluster->rank;
    settings->is_chief = cluster->is_chief != 0;
    if (settings->replicas == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "the number of workers is unknown here (TF_CONFIG lists this "
                "one only): give --num-workers");
    }
    if (cluster->ps_count == 0 && settings->replicas > 1) {
        return rps_fail(error, RPS_E_INVAL,
                "cluster.ps is empty, but there are %u replicas: they need "
                "a parameter server to meet at",
                settings->replicas);
    }
    return RPS_OK;
}

static rps_status
read_task(struct rps_settings *settings, struct rps_error *error)
{
    const rps_cluster *cluster = &settings->options->cluster;
    const bool infer =
            settings->evaluate || settings->options->predict[0] != '\0';

    settings->replicas = 1;
    settings->is_chief = true;
    settings->task = infer ? RPS_TASK_INFER : RPS_TASK_TRAIN;
    switch (cluster->role) {
    case RPS_ROLE_LOCAL:
        return RPS_OK;
    case RPS_ROLE_CHIEF:
    case RPS_ROLE_WORKER:
        if (infer && !cluster->is_chief) {
            settings->task = RPS_TASK_LEAVE;
            return RPS_OK;
        }
        return read_replicas(settings, error);
    case RPS_ROLE_EVALUATOR:
        settings->task = infer ? RPS_TASK_LEAVE : RPS_TASK_EVALUATOR;
        settings->is_chief = false;
        return RPS_OK;
    case RPS_ROLE_PS:
        return rps_fail(error, RPS_E_INVAL,
                "this task is a parameter server (task.type ps): start "
                "recpsd for it");
    case RPS_ROLE_NONE:
        break;
    }
    return rps_fail(error, RPS_E_INVAL,
            "no task: recps-train needs task.type and task.index, or "
            "--job_name and --task_index");
}

/* Of a replica; the chief's terms are looked at again when it joins. */
static rps_status
check_deterministic(
        const struct rps_settings *settings, struct rps_error *error)
{
    rps_status status = RPS_OK;

    if (!settings->options->deterministic || settings->task != RPS_TASK_TRAIN) {
        return RPS_OK;
    }
    status = rps_deterministic_check_terms(&settings->terms, error);
    if (status == RPS_OK) {
        status = rps_deterministic_check_threads(
                settings->options->blas_threads, error);
    }
    for (uint32_t t = 0; status == RPS_OK && t < settings->model.table_count;
            t++) {
        status = rps_deterministic_check_table(
                &settings->model.tables[t].spec, error);
    }
    return status;
}

void
rps_settings_finish(struct rps_settings *settings)
{
    free(settings->warm.dir);
    rps_model_config_finish(&settings->model);
}

/* The flags alone: variables and the "recps" object are for the servers, who
 * may run beside this process, and would be asked for the same port. */
static void
read_admin(struct rps_settings *settings)
{
    const struct rps_options *options = settings->options;

    if (options->origins[OPTION_admin] == RPS_ORIGIN_FLAG &&
            strcmp(options->admin, "off") != 0) {
        settings->admin = options->admin;
    }
    if (settings->admin != NULL &&
            options->origins[OPTION_admin_port_file] == RPS_ORIGIN_FLAG) {
        settings->admin_port_file = rps_text_or_null(options->admin_port_file);
    }
}

rps_status
rps_settings_read(struct rps_settings *settings,
        const struct rps_options *options, struct rps_error *error)
{
    rps_status status;

    memset(settings, 0, sizeof(*settings));
    settings->options = options;
    settings->has_test = options->train_rows > 0 ||
                         options->eval_data[0] != '\0' || options->evaluate ||
                         options->predict[0] != '\0';
    read_admin(settings);
    status = check_not_empty(options, error);
    if (status == RPS_OK) {
        status = check_data(options, error);
    }
    if (status == RPS_OK) {
        status = check_counts(options, error);
    }
    if (status == RPS_OK) {
        status = read_start(settings, error);
    }
    if (status == RPS_OK) {
        status = read_terms(settings, error);
    }
    if (status == RPS_OK) {
        status = rps_settings_read_model(settings, error);
    }
    if (status == RPS_OK) {
        status = rps_settings_read_schedules(settings, error);
    }
    if (status == RPS_OK) {
        status = rps_settings_read_profile(settings, error);
    }
    if (status == RPS_OK) {
        status = read_task(settings, error);
    }
    if (status == RPS_OK && settings->task == RPS_TASK_TRAIN) {
        status = read_backup_workers(settings, error);
    }
    if (status == RPS_OK) {
        status = rps_settings_read_dense(settings, error);
    }
    if (status == RPS_OK) {
        status = rps_settings_read_dump(settings, error);
    }
    if (status == RPS_OK) {
        status = rps_settings_read_device(settings, error);
    }
    if (status == RPS_OK) {
        status = check_deterministic(settings, error);
    }
    if (status == RPS_OK && settings->task == RPS_TASK_EVALUATOR &&
            !settings->has_test) {
        return rps_fail(error, RPS_E_INVAL,
                "an evaluator needs test rows: give --train-rows (the rest "
                "is test) or --eval-data");
    }
    return status;
}
