/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what is trained: layers, optimizers, start values. */
#include "base/spec.h"
#include "base/text.h"
#include "client/worker/settings.h"

#include <float.h>
#include <string.h>

/* "64,16" */
static rps_status
read_layers(const char *name, const char *text, struct rps_model_layers *layers,
        struct rps_error *error)
{
    const char *at = text;

    layers->count = 0;
    for (;;) {
        size_t length = strcspn(at, ",");
        char digits[16] = "";
        uint64_t width = 0;

        if (layers->count == RPS_MODEL_LAYERS_MAX) {
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
                    name, text, layers->count + 1, RPS_MODEL_WIDTH_MAX);
        }
        layers->widths[layers->count++] = (uint32_t)width;
        if (at[length] == '\0') {
            return RPS_OK;
        }
        at += length + 1;
    }
}

static rps_status
read_shape(struct rps_model_config *config, const struct rps_options *options,
        struct rps_error *error)
{
    struct rps_model_layers *bottom = &config->bottom, *top = &config->top;
    rps_status status;

    if (options->emb_dim == 0 || options->emb_dim > RPS_DIM_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "--emb-dim=%llu: must be from 1 to %u",
                (unsigned long long)options->emb_dim, RPS_DIM_MAX);
    }
    status = read_layers("bottom-mlp", options->bottom_mlp, bottom, error);
    if (status == RPS_OK) {
        status = read_layers("top-mlp", options->top_mlp, top, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    if (bottom->widths[bottom->count - 1] != options->emb_dim) {
        return rps_fail(error, RPS_E_INVAL,
                "--bottom-mlp=%s: its last layer must equal --emb-dim, which "
                "is %u",
                options->bottom_mlp, (unsigned)options->emb_dim);
    }
    if (top->widths[top->count - 1] != 1) {
        return rps_fail(error, RPS_E_INVAL,
                "--top-mlp=%s: its last layer must be 1, the logit",
                options->top_mlp);
    }
    return RPS_OK;
}

/* Whether --sparse-accumulator is this optimizer's; rmsprop begins with its
 * own default. */
static bool
accumulates(enum rps_optimizer optimizer)
{
    return optimizer == RPS_OPTIMIZER_ADAGRAD ||
           optimizer == RPS_OPTIMIZER_ROWWISE_ADAGRAD ||
           optimizer == RPS_OPTIMIZER_FTRL;
}

/* A spec with this optimizer. learning_rate and accumulator: in the ranges
 * of conf/options.h. */
static rps_status
read_rule(rps_table_spec *spec, const char *table, uint32_t dim,
        const char *which, const char *name, double learning_rate,
        double accumulator, struct rps_error *error)
{
    enum rps_optimizer optimizer;

    if (!rps_optimizer_parse(name, &optimizer)) {
        return rps_fail(error, RPS_E_INVAL, "--%s-optimizer=%s: no optimizer",
                which, name);
    }
    rps_table_spec_init(spec, table, dim, optimizer);
    spec->learning_rate = (float)learning_rate;
    if (accumulates(optimizer)) {
        spec->initial_accumulator = (float)accumulator;
    }
    return RPS_OK;
}

static rps_status
init_refused(const char *text, struct rps_error *error)
{
    return rps_fail(error, RPS_E_INVAL,
            "--sparse-init=%s: must be zeros, constant:V, uniform:LOW,HIGH "
            "with LOW < HIGH, normal:MEAN,DEVIATION or "
            "truncated_normal:MEAN,DEVIATION with DEVIATION >= 0",
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

/* "A,B" into initializer_low and _high. */
static bool
read_pair(rps_table_spec *spec, const char *pair)
{
    const char *comma = strchr(pair, ',');
    char low[64];

    if (comma == NULL || (size_t)(comma - pair) >= sizeof(low)) {
        return false;
    }
    memcpy(low, pair, (size_t)(comma - pair));
    low[comma - pair] = '\0';
    return finite_float(low, &spec->initializer_low) &&
           finite_float(comma + 1, &spec->initializer_high);
}

static bool
pair_is_legal(const rps_table_spec *spec)
{
    if (spec->initializer == RPS_INITIALIZER_UNIFORM) {
        return spec->initializer_low < spec->initializer_high;
    }
    return spec->initializer_high >= 0.0f;
}

static rps_status
read_initializer(
        rps_table_spec *spec, const char *text, struct rps_error *error)
{
    static const struct {
        const char *name;
        enum rps_initializer kind;
    } pairs[] = {
            {"uniform:", RPS_INITIALIZER_UNIFORM},
            {"normal:", RPS_INITIALIZER_NORMAL},
            {"truncated_normal:", RPS_INITIALIZER_TRUNCATED_NORMAL},
    };

    if (strcmp(text, "zeros") == 0) {
        spec->initializer = RPS_INITIALIZER_ZEROS;
        spec->initializer_low = spec->initializer_high = 0.0f;
        return RPS_OK;
    }
    if (strncmp(text, "constant:", 9) == 0) {
        spec->initializer = RPS_INITIALIZER_CONSTANT;
        spec->initializer_high = 0.0f;
        return finite_float(text + 9, &spec->initializer_low)
                       ? RPS_OK
                       : init_refused(text, error);
    }
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const size_t length = strlen(pairs[i].name);
        if (strncmp(text, pairs[i].name, length) == 0) {
            spec->initializer = pairs[i].kind;
            return read_pair(spec, text + length) && pair_is_legal(spec)
                           ? RPS_OK
                           : init_refused(text, error);
        }
    }
    return init_refused(text, error);
}

/* Options that a file, or the example, says itself. */
static rps_status
refuse_model_options(const struct rps_options *options, const char *whose,
        struct rps_error *error)
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
    };

    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (rps_option_given(options, refused[i].name)) {
            return rps_fail(error, RPS_E_INVAL, "--%s does not go with %s",
                    refused[i].flag, whose);
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

/* What goes with little_demo, whoever described it. */
static rps_status
check_little_demo(const struct rps_options *options, struct rps_error *error)
{
    rps_status status = little_demo_data("data", options->data, error);

    if (status == RPS_OK) {
        status = little_demo_data("eval-data", options->eval_data, error);
    }
    if (status == RPS_OK && rps_option_given(options, "init_from")) {
        return rps_fail(error, RPS_E_INVAL,
                "--init-from does not go with --model little_demo");
    }
    return status;
}

static rps_status
read_little_demo(struct rps_model_config *config,
        const struct rps_options *options, struct rps_error *error)
{
    rps_status status = refuse_model_options(options,
            "--model little_demo, whose tables, layers and optimizers are "
            "fixed: change them in a file (--model-config)",
            error);

    return status == RPS_OK ? rps_model_config_little_demo(config, error)
                            : status;
}

/* One table for all fields, as the options have it. */
static rps_status
read_dlrm(struct rps_model_config *config, const struct rps_options *options,
        struct rps_error *error)
{
    struct rps_table_config *emb = &config->tables[0];
    rps_status status = read_shape(config, options, error);

    config->file = "--model dlrm";
    config->kind = RPS_MODEL_DLRM;
    config->table_count = 1;
    emb->pooling = RPS_POOLING_SUM;
    emb->learning_rate = options->sparse_lr;
    config->dense_learning_rate = options->dense_lr;
    if (status == RPS_OK) {
        status = read_rule(&emb->spec, "emb", (uint32_t)options->emb_dim,
                "sparse", options->sparse_optimizer, options->sparse_lr,
                options->sparse_accumulator, error);
    }
    if (status == RPS_OK && !accumulates(emb->spec.optimizer) &&
            rps_option_given(options, "sparse_accumulator")) {
        status = rps_fail(error, RPS_E_INVAL,
                "--sparse-accumulator does not go with --sparse-optimizer=%s; "
                "it is for adagrad, rowwise_adagrad and ftrl",
                options->sparse_optimizer);
    }
    if (status == RPS_OK) {
        status = read_rule(&config->dense, "", RPS_DENSE_ROW_FLOATS, "dense",
                options->dense_optimizer, options->dense_lr, 0.1, error);
    }
    if (status == RPS_OK) {
        status = read_initializer(&emb->spec, options->sparse_init, error);
    }
    return status;
}

static rps_status
read_file(struct rps_model_config *config, const struct rps_options *options,
        struct rps_error *error)
{
    rps_status status = refuse_model_options(
            options, "--model-config, whose file says it", error);

    if (status == RPS_OK) {
        status = rps_model_config_read(config, options->model_config, error);
    }
    if (status == RPS_OK && rps_option_given(options, "model") &&
            (strcmp(options->model, "dlrm") == 0) !=
                    (config->kind == RPS_MODEL_DLRM)) {
        return rps_fail(error, RPS_E_INVAL,
                "--model=%s: the file of --model-config, %s, describes "
                "another: leave --model out",
                options->model, options->model_config);
    }
    return status;
}

rps_status
rps_settings_read_model(struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    struct rps_model_config *config = &settings->model;
    rps_status status;

    if (options->model_config[0] != '\0') {
        status = read_file(config, options, error);
    } else if (strcmp(options->model, "little_demo") == 0) {
        status = read_little_demo(config, options, error);
    } else {
        status = read_dlrm(config, options, error);
    }
    if (status == RPS_OK && config->kind == RPS_MODEL_LITTLE_DEMO) {
        status = check_little_demo(options, error);
    }
    return status;
}
