/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/settings.h"

#include "base/text.h"

#include <assert.h>
#include <float.h>
#include <stdlib.h>
#include <string.h>

/* The guide's 0.05 for the tables; the same for the layers makes every unit
 * of them die in a few steps, so that the loss stays at 2 ln 2. */
#define LITTLE_DEMO_SPARSE_RATE 0.05
#define LITTLE_DEMO_DENSE_RATE  0.001

const char *
rps_text_or_null(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : NULL;
}

/* "64,16" */
static rps_status
read_layers(const char *name, const char *text,
        uint32_t widths[RPS_MODEL_LAYERS_MAX], uint32_t *count_out,
        struct rps_error *error)
{
    const char *at = text;

    *count_out = 0;
    for (;;) {
        size_t length = strcspn(at, ",");
        char digits[16] = "";
        uint64_t width = 0;

        if (*count_out == RPS_MODEL_LAYERS_MAX) {
            return rps_fail(error, RPS_E_INVAL, "--%s=%s: at most %u layers",
                    name, text, RPS_MODEL_LAYERS_MAX);
        }
        if (length < sizeof(digits)) {
            memcpy(digits, at, length);
        }
        if (!rps_parse_u64(digits, &width) || width == 0 ||
                width > RPS_MODEL_WIDTH_MAX) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s=%s: layer %u is not a number from 1 to %u; write "
                    "widths with commas between, such as 64,16",
                    name, text, *count_out + 1, RPS_MODEL_WIDTH_MAX);
        }
        widths[(*count_out)++] = (uint32_t)width;
        if (at[length] == '\0') {
            return RPS_OK;
        }
        at += length + 1;
    }
}

static rps_status
read_shape(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    struct rps_model_shape *shape = &settings->shape;
    rps_status status;

    if (options->emb_dim == 0 || options->emb_dim > RPS_DIM_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "--emb-dim=%llu: must be from 1 to %u",
                (unsigned long long)options->emb_dim, RPS_DIM_MAX);
    }
    shape->emb_dim = (uint32_t)options->emb_dim;
    status = read_layers("bottom-mlp", options->bottom_mlp, shape->bottom,
            &shape->bottom_count, error);
    if (status != RPS_OK) {
        return status;
    }
    status = read_layers(
            "top-mlp", options->top_mlp, shape->top, &shape->top_count, error);
    if (status != RPS_OK) {
        return status;
    }
    if (shape->bottom[shape->bottom_count - 1] != shape->emb_dim) {
        return rps_fail(error, RPS_E_INVAL,
                "--bottom-mlp=%s: its last layer must equal --emb-dim, which "
                "is %u",
                options->bottom_mlp, shape->emb_dim);
    }
    if (shape->top[shape->top_count - 1] != 1) {
        return rps_fail(error, RPS_E_INVAL,
                "--top-mlp=%s: its last layer must be 1, the logit",
                options->top_mlp);
    }
    return RPS_OK;
}

static rps_status
read_rule(struct rps_update_rule *rule, const char *which, const char *name,
        double learning_rate, double accumulator, struct rps_error *error)
{
    if (strcmp(name, "sgd") == 0) {
        rule->optimizer = RPS_OPTIMIZER_SGD;
    } else if (strcmp(name, "adagrad") == 0) {
        rule->optimizer = RPS_OPTIMIZER_ADAGRAD;
    } else if (strcmp(name, "adam") == 0) {
        rule->optimizer = RPS_OPTIMIZER_ADAM;
    } else {
        return rps_fail(error, RPS_E_INVAL,
                "--%s-optimizer=%s: must be sgd, adagrad or adam", which, name);
    }
    if (!(learning_rate > 0.0 && learning_rate <= 1e6)) {
        return rps_fail(error, RPS_E_INVAL,
                "--%s-lr=%g: must be above 0 and at most 1e6", which,
                learning_rate);
    }
    if (!(accumulator >= 0.0 && accumulator <= 1e6)) {
        return rps_fail(error, RPS_E_INVAL,
                "--%s-accumulator=%g: must be from 0 to 1e6", which,
                accumulator);
    }
    rule->learning_rate = learning_rate;
    rule->accumulator = (float)accumulator;
    return RPS_OK;
}

static rps_status
init_refused(const char *text, struct rps_error *error)
{
    return rps_fail(error, RPS_E_INVAL,
            "--sparse-init=%s: must be zeros, constant:V or "
            "uniform:LOW,HIGH with LOW < HIGH",
            text);
}

static bool
finite_float(const char *text, float *out)
{
    double value;

    if (!rps_parse_double(text, &value) || value > (double)FLT_MAX ||
            value < -(double)FLT_MAX) {
        return false;
    }
    *out = (float)value;
    return true;
}

static rps_status
read_uniform(struct rps_settings *settings, const char *text,
        const char *bounds, struct rps_error *error)
{
    const char *comma = strchr(bounds, ',');
    char low[64];

    if (comma == NULL || (size_t)(comma - bounds) >= sizeof(low)) {
        return init_refused(text, error);
    }
    memcpy(low, bounds, (size_t)(comma - bounds));
    low[comma - bounds] = '\0';
    if (!finite_float(low, &settings->initializer_low) ||
            !finite_float(comma + 1, &settings->initializer_high) ||
            !(settings->initializer_low < settings->initializer_high)) {
        return init_refused(text, error);
    }
    settings->initializer = RPS_INITIALIZER_UNIFORM;
    return RPS_OK;
}

static rps_status
read_initializer(struct rps_settings *settings, struct rps_error *error)
{
    const char *text = settings->options->sparse_init;

    if (strcmp(text, "zeros") == 0) {
        settings->initializer = RPS_INITIALIZER_ZEROS;
        return RPS_OK;
    }
    if (strncmp(text, "constant:", 9) == 0) {
        settings->initializer = RPS_INITIALIZER_CONSTANT;
        return finite_float(text + 9, &settings->initializer_low)
                       ? RPS_OK
                       : init_refused(text, error);
    }
    if (strncmp(text, "uniform:", 8) == 0) {
        return read_uniform(settings, text, text + 8, error);
    }
    return init_refused(text, error);
}

/* Options that define DLRM, or another optimizer than the example's. */
static rps_status
little_demo_refuse(const struct rps_options *options, struct rps_error *error)
{
    static const struct {
        const char *name, *flag;
    } refused[] = {
            {"emb_dim", "emb-dim"},
            {"bottom_mlp", "bottom-mlp"},
            {"top_mlp", "top-mlp"},
            {"sparse_optimizer", "sparse-optimizer"},
            {"sparse_lr", "sparse-lr"},
            {"sparse_accumulator", "sparse-accumulator"},
            {"sparse_init", "sparse-init"},
            {"dense_optimizer", "dense-optimizer"},
            {"dense_lr", "dense-lr"},
            {"init_from", "init-from"},
    };

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (rps_option_given(options, refused[i].name)) {
            return rps_fail(error, RPS_E_INVAL,
                    "--%s does not go with --model little_demo, whose "
                    "tables, layers and optimizers are fixed",
                    refused[i].flag);
        }
    }
    return RPS_OK;
}

static rps_status
little_demo_data(const char *flag, const char *spec, struct rps_error *error)
{
    if (spec[0] != '\0' && strncmp(spec, "synthetic:", 10) != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--%s=%s: --model little_demo has its own planted data; use "
                "synthetic:rows=N,keys=N,seed=N",
                flag, spec);
    }
    return RPS_OK;
}

static rps_status
read_little_demo(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    rps_status status = little_demo_refuse(options, error);

    if (status == RPS_OK) {
        status = little_demo_data("data", options->data, error);
    }
    if (status == RPS_OK) {
        status = little_demo_data("eval-data", options->eval_data, error);
    }
    settings->sparse = (struct rps_update_rule){
            .optimizer = RPS_OPTIMIZER_ADAM,
            .learning_rate = LITTLE_DEMO_SPARSE_RATE,
    };
    settings->dense = settings->sparse;
    settings->dense.learning_rate = LITTLE_DEMO_DENSE_RATE;
    settings->initializer = RPS_INITIALIZER_UNIFORM;
    settings->initializer_low = -0.05f;
    settings->initializer_high = 0.05f;
    return status;
}

static rps_status
read_model(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    rps_status status;

    if (strcmp(options->model, "little_demo") == 0) {
        settings->model = RPS_MODEL_LITTLE_DEMO;
        return read_little_demo(settings, error);
    }
    settings->model = RPS_MODEL_DLRM;
    status = read_shape(settings, error);
    if (status == RPS_OK) {
        status = read_rule(&settings->sparse, "sparse",
                options->sparse_optimizer, options->sparse_lr,
                options->sparse_accumulator, error);
    }
    if (status == RPS_OK) {
        status = read_rule(&settings->dense, "dense", options->dense_optimizer,
                options->dense_lr, 0.1, error);
    }
    if (status == RPS_OK) {
        status = read_initializer(settings, error);
    }
    return status;
}

static bool
data_kind_known(const char *spec)
{
    static const char *const kinds[] = {
            "criteo:", "ml-100k:", "libfm:", "feasign:", "synthetic:"};

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strncmp(spec, kinds[i], strlen(kinds[i])) == 0) {
            return true;
        }
    }
    return false;
}

static rps_status
check_data(const struct rps_options *options, struct rps_error *error)
{
    static const char forms[] = "criteo:PATH, ml-100k:DIR, libfm:PATH, "
                                "feasign:PATH or synthetic:rows=N,...";

    if (options->data[0] == '\0') {
        return rps_fail(
                error, RPS_E_INVAL, "--data is missing: give %s", forms);
    }
    if (!data_kind_known(options->data)) {
        return rps_fail(error, RPS_E_INVAL, "--data=%s: must be %s",
                options->data, forms);
    }
    if (options->eval_data[0] != '\0' && !data_kind_known(options->eval_data)) {
        return rps_fail(error, RPS_E_INVAL, "--eval-data=%s: must be %s",
                options->eval_data, forms);
    }
    if (options->eval_data[0] != '\0' && options->train_rows > 0) {
        return rps_fail(error, RPS_E_INVAL,
                "--train-rows and --eval-data both say what the test rows "
                "are: give one of them");
    }
    return RPS_OK;
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

static rps_status
read_start(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    const char *step = options->restore;

    settings->evaluate = options->evaluate;
    settings->restore =
            step != NULL || options->evaluate || options->predict[0] != '\0';
    if (step != NULL && step[0] != '\0' &&
            (!rps_parse_u64(step, &settings->restore_step) ||
                    settings->restore_step == 0)) {
        return rps_fail(error, RPS_E_INVAL,
                "--restore=%s: must be a step from 1 on; --restore alone "
                "takes the newest checkpoint",
                step);
    }
    if (step != NULL && options->init_from[0] != '\0') {
        return rps_fail(error, RPS_E_INVAL,
                "--restore and --init-from both give the start values: give "
                "one of them");
    }
    if (options->evaluate || options->predict[0] != '\0') {
        return check_inference(options, error);
    }
    return RPS_OK;
}

static rps_status
read_terms(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;

    settings->mode = strcmp(options->mode, "async") == 0 ? RPS_MODE_ASYNC
                                                         : RPS_MODE_SYNC;
    settings->combine = strcmp(options->combine, "mean") == 0 ? RPS_COMBINE_MEAN
                                                              : RPS_COMBINE_SUM;
    if (settings->mode == RPS_MODE_ASYNC &&
            settings->combine == RPS_COMBINE_MEAN) {
        return rps_fail(error, RPS_E_INVAL,
                "--combine=mean does not go with --mode=async, which "
                "combines nothing: each push is a step of its own");
    }
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
    status = check_data(options, error);
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
        status = read_model(settings, error);
    }
    if (status == RPS_OK) {
        status = read_task(settings, error);
    }
    if (status == RPS_OK && settings->task == RPS_TASK_EVALUATOR &&
            !settings->has_test) {
        return rps_fail(error, RPS_E_INVAL,
                "an evaluator needs test rows: give --train-rows (the rest "
                "is test) or --eval-data");
    }
    return status;
}
