/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what is trained: layers, optimizers, start values. */
#include "base/spec.h"
#include "base/text.h"
#include "client/worker/settings.h"

#include <float.h>
#include <string.h>

/* The guide's 0.05 for the tables; the same for the layers makes every unit
 * of them die in a few steps, so that the loss stays at 2 ln 2. */
#define LITTLE_DEMO_SPARSE_RATE 0.05
#define LITTLE_DEMO_DENSE_RATE  0.001

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
    if (!rps_optimizer_parse(name, &rule->optimizer)) {
        return rps_fail(error, RPS_E_INVAL, "--%s-optimizer=%s: no optimizer",
                which, name);
    }
    /* learning_rate and accumulator: in the ranges of conf/options.h */
    rule->learning_rate = learning_rate;
    rule->accumulator = (float)accumulator;
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
read_pair(struct rps_settings *settings, const char *pair)
{
    const char *comma = strchr(pair, ',');
    char low[64];

    if (comma == NULL || (size_t)(comma - pair) >= sizeof(low)) {
        return false;
    }
    memcpy(low, pair, (size_t)(comma - pair));
    low[comma - pair] = '\0';
    return finite_float(low, &settings->initializer_low) &&
           finite_float(comma + 1, &settings->initializer_high);
}

static bool
pair_is_legal(const struct rps_settings *settings)
{
    if (settings->initializer == RPS_INITIALIZER_UNIFORM) {
        return settings->initializer_low < settings->initializer_high;
    }
    return settings->initializer_high >= 0.0f;
}

static rps_status
read_initializer(struct rps_settings *settings, struct rps_error *error)
{
    static const struct {
        const char *name;
        enum rps_initializer kind;
    } pairs[] = {
            {"uniform:", RPS_INITIALIZER_UNIFORM},
            {"normal:", RPS_INITIALIZER_NORMAL},
            {"truncated_normal:", RPS_INITIALIZER_TRUNCATED_NORMAL},
    };
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
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        const size_t length = strlen(pairs[i].name);
        if (strncmp(text, pairs[i].name, length) == 0) {
            settings->initializer = pairs[i].kind;
            return read_pair(settings, text + length) && pair_is_legal(settings)
                           ? RPS_OK
                           : init_refused(text, error);
        }
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

rps_status
rps_settings_read_model(struct rps_settings *settings, struct rps_error *error)
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
    if (status == RPS_OK && !rps_rule_accumulates(&settings->sparse) &&
            rps_option_given(options, "sparse_accumulator")) {
        status = rps_fail(error, RPS_E_INVAL,
                "--sparse-accumulator does not go with --sparse-optimizer=%s; "
                "it is for adagrad, rowwise_adagrad and ftrl",
                options->sparse_optimizer);
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
