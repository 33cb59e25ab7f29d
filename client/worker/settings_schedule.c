/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say how learning rates and loss scale change. */
#include "base/text.h"
#include "client/worker/settings.h"

#include <stdlib.h>
#include <string.h>

static const char flag[] = "sparse-schedule";

/* "emb=constant:warmup=10": bytes of the name, 0: none. A kind ends with the
 * text or a colon; no '=' comes before. */
static size_t
name_length(const char *part)
{
    const size_t length = strcspn(part, "=:");

    return part[length] == '=' ? length : 0;
}

static rps_status
no_table(const struct rps_settings *settings, const char *name, size_t length,
        struct rps_error *error)
{
    const struct rps_model_config *model = &settings->model;
    struct rps_text names = {0};
    rps_status status;

    for (uint32_t t = 0; t < model->table_count; t++) {
        const bool last = t + 1 == model->table_count;

        rps_text_add(&names, "%s%s",
                t == 0 ? ""
                : last ? " and "
                       : ", ",
                model->tables[t].spec.name);
    }
    status = rps_fail(error, RPS_E_INVAL,
            "--%s: the model has no table \"%.*s\"; it has %s", flag,
            (int)length, name, names.bytes != NULL ? names.bytes : "others");
    rps_text_finish(&names);
    return status;
}

static rps_status
find_table(const struct rps_settings *settings, const char *name, size_t length,
        uint32_t *table_out, struct rps_error *error)
{
    const struct rps_model_config *model = &settings->model;

    for (uint32_t t = 0; t < model->table_count; t++) {
        if (strlen(model->tables[t].spec.name) == length &&
                strncmp(model->tables[t].spec.name, name, length) == 0) {
            *table_out = t;
            return RPS_OK;
        }
    }
    return no_table(settings, name, length, error);
}

/* A table's schedule, or that of all tables without one of their own. */
static rps_status
read_part(struct rps_settings *settings, const char *part, bool *given,
        struct rps_error *error)
{
    const size_t length = name_length(part);
    struct rps_schedule schedule;
    uint32_t table = 0;
    rps_status status = rps_schedule_parse(
            &schedule, flag, part + length + (length > 0), error);

    if (status != RPS_OK) {
        return status;
    }
    if (length == 0) {
        for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
            if (!given[t]) {
                settings->sparse_schedules[t] = schedule;
            }
        }
        return RPS_OK;
    }
    status = find_table(settings, part, length, &table, error);
    if (status == RPS_OK && given[table]) {
        return rps_fail(error, RPS_E_INVAL,
                "--%s: table %.*s has two schedules: give one", flag,
                (int)length, part);
    }
    if (status == RPS_OK) {
        given[table] = true;
        settings->sparse_schedules[table] = schedule;
    }
    return status;
}

static rps_status
read_sparse(struct rps_settings *settings, struct rps_error *error)
{
    char *text = strdup(settings->options->sparse_schedule);
    bool given[RPS_MODEL_TABLES_MAX] = {false};
    rps_status status = RPS_OK;
    bool for_all = false;
    char *part = text;

    if (text == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the options");
    }
    while (status == RPS_OK && part != NULL) {
        char *end = strchr(part, ';');

        if (end != NULL) {
            *end = '\0';
        }
        if (name_length(part) == 0 && for_all) {
            status = rps_fail(error, RPS_E_INVAL,
                    "--%s: \"%s\" is the second schedule without a table: "
                    "write TABLE=SCHEDULE",
                    flag, part);
        } else {
            for_all = for_all || name_length(part) == 0;
            status = read_part(settings, part, given, error);
        }
        part = end != NULL ? end + 1 : NULL;
    }
    free(text);
    return status;
}

rps_status
rps_settings_read_schedules(
        struct rps_settings *settings, struct rps_error *error)
{
    const struct rps_options *options = settings->options;
    rps_status status = read_sparse(settings, error);

    if (status == RPS_OK) {
        status = rps_schedule_parse(&settings->dense_schedule, "dense-schedule",
                options->dense_schedule, error);
    }
    if (status == RPS_OK) {
        status = rps_loss_scale_parse(&settings->loss_scale,
                options->loss_scale, options->loss_scale_growth, error);
    }
    if (status == RPS_OK && !settings->loss_scale.dynamic &&
            rps_option_given(options, "loss_scale_growth")) {
        status = rps_fail(error, RPS_E_INVAL,
                "--loss-scale-growth goes with --loss-scale=dynamic alone");
    }
    return status;
}

struct rps_rates
rps_settings_rates(const struct rps_settings *settings, uint64_t done)
{
    struct rps_rates rates;

    for (uint32_t t = 0; t < settings->model.table_count; t++) {
        rates.sparse[t] = rps_schedule_rate(&settings->sparse_schedules[t],
                settings->model.tables[t].learning_rate, done);
    }
    rates.dense = rps_schedule_rate(&settings->dense_schedule,
            settings->model.dense_learning_rate, done);
    return rates;
}
