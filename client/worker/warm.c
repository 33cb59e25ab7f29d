/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/warm.h"

#include "base/text.h"

#include <recps/warm.h>

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX (RPS_MODEL_VARIABLES_MAX + RPS_MODEL_TABLES_MAX)

struct warm {
    rps_warm_table tables[ENTRIES_MAX];
    rps_table_spec specs[ENTRIES_MAX];
    char *froms[ENTRIES_MAX]; /* owned */
    size_t count;
};

bool
rps_warm_applies(const struct rps_run *run, uint64_t step)
{
    const struct rps_warm_settings *warm = &run->settings->warm;

    if (warm->dir != NULL) {
        return step == 0;
    }
    return (warm->tables != NULL || warm->weights_only) && step > 0 &&
           (run->warm_step == 0 || run->warm_step == step);
}

/* Is it asked for? *from: its name there, or NULL: the same. */
static bool
is_asked(const char *list, const char *name, char **from, bool *no_memory)
{
    const char *at = list;

    while (*at != '\0') {
        const size_t n = strcspn(at, ",");
        const char *equals = memchr(at, '=', n);
        const size_t length = equals == NULL ? n : (size_t)(equals - at);

        if (strlen(name) == length && strncmp(at, name, length) == 0) {
            if (equals != NULL) {
                *from = strndup(equals + 1, n - length - 1);
                *no_memory = *from == NULL;
            }
            return true;
        }
        at += n + (at[n] == ',' ? 1 : 0);
    }
    return false;
}

static size_t
names_in(const char *list)
{
    size_t count = 1;

    for (const char *at = list; *at != '\0'; at++) {
        count += *at == ',' ? 1 : 0;
    }
    return count;
}

static rps_status
add_table(struct warm *warm, const struct rps_run *run,
        const rps_table_spec *spec)
{
    const char *list = run->settings->warm.tables;
    bool no_memory = false;
    char *from = NULL;

    if (list != NULL && !is_asked(list, spec->name, &from, &no_memory)) {
        return RPS_OK;
    }
    if (no_memory) {
        return RPS_E_NOMEM;
    }
    warm->specs[warm->count] = *spec;
    warm->froms[warm->count] = from;
    warm->tables[warm->count] = (rps_warm_table){.from = from,
            .spec = &warm->specs[warm->count],
            .optional = list == NULL};
    warm->count++;
    return RPS_OK;
}

/* Those of the model's tables that are asked for, with this model's specs. */
static rps_status
list_tables(struct warm *warm, struct rps_run *run)
{
    const struct rps_settings *settings = run->settings;
    const char *list = settings->warm.tables;
    rps_table_spec spec;
    rps_status status = RPS_OK;

    for (uint32_t t = 0; t < run->model->table_count && status == RPS_OK; t++) {
        rps_tables_spec(&run->tables, t, &spec);
        status = add_table(warm, run, &spec);
    }
    for (uint32_t v = 0; v < run->model->variable_count && status == RPS_OK;
            v++) {
        rps_dense_spec(&spec, &run->model->variables[v], settings);
        status = add_table(warm, run, &spec);
    }
    if (status != RPS_OK) {
        return rps_fail(&run->error, status, "no memory for --restore-tables");
    }
    return list == NULL || warm->count == names_in(list)
                   ? RPS_OK
                   : rps_fail(&run->error, RPS_E_INVAL,
                             "--restore-tables=%s: of these %zu names %zu are "
                             "tables of this model (recps-train --json-log "
                             "and recps tables show them)",
                             list, names_in(list), warm->count);
}

static bool
has_name(const json_t *list, const char *name)
{
    const json_t *value;
    size_t i;

    json_array_foreach(list, i, value)
    {
        if (json_is_string(value) &&
                strcmp(json_string_value(value), name) == 0) {
            return true;
        }
    }
    return false;
}

static void
say_names(struct rps_run *run, const char *words, const json_t *list)
{
    const json_t *value;
    size_t i;

    json_array_foreach(list, i, value)
    {
        rps_run_say(run, "warm start: table %s %s", json_string_value(value),
                words);
    }
}

/* Which variables have their values, and what is said of the rest. */
static rps_status
take_outcome(struct rps_run *run, const struct warm *warm, const char *text)
{
    json_t *outcome = json_loads(text, 0, NULL);
    const json_t *absent = json_object_get(outcome, "absent");
    struct rps_dense *dense = &run->tables.dense;
    size_t taken = warm->count - json_array_size(absent);

    rps_run_say(run, "warm start: step %lld of %s, %zu tables",
            (long long)json_integer_value(json_object_get(outcome, "step")),
            run->settings->warm.dir != NULL ? run->settings->warm.dir
                                            : "checkpoint_dir",
            taken);
    say_names(run, "has fresh optimizer slots",
            json_object_get(outcome, "fresh_slots"));
    say_names(run, "is not in the checkpoint: it begins fresh", absent);
    for (uint32_t v = 0; v < run->model->variable_count; v++) {
        const char *name = run->model->variables[v].name;

        for (size_t i = 0; i < warm->count; i++) {
            dense->has_values[v] = dense->has_values[v] ||
                                   (strcmp(warm->specs[i].name, name) == 0 &&
                                           !has_name(absent, name));
        }
    }
    json_decref(outcome);
    return taken > 0
                   ? RPS_OK
                   : rps_fail(&run->error, RPS_E_NOT_FOUND,
                             "warm start: the checkpoint has no table of this "
                             "model");
}

rps_status
rps_warm_begin(struct rps_run *run, uint64_t step, rps_start *start)
{
    const struct rps_settings *settings = run->settings;
    struct warm *warm = calloc(1, sizeof(*warm));
    char *outcome = NULL;
    rps_status status;

    if (warm == NULL) {
        return rps_fail(&run->error, RPS_E_NOMEM, "no memory to begin");
    }
    run->warm_step = step;
    memset(run->tables.dense.has_values, 0,
            sizeof(run->tables.dense.has_values));
    status = list_tables(warm, run);
    if (status == RPS_OK) {
        const rps_warm_start how = {.dir = settings->warm.dir,
                .dir_step = settings->warm.step,
                .tables = warm->tables,
                .table_count = warm->count,
                .weights_only = settings->warm.weights_only ? 1 : 0};

        status = rps_job_begin_from(
                run->client, step, &how, &settings->terms, start, &outcome);
        if (status != RPS_OK) {
            status = rps_run_client_failed(run, status, "beginning the job");
        }
    }
    if (status == RPS_OK) {
        status = take_outcome(run, warm, outcome);
    }
    free(outcome);
    for (size_t i = 0; i < warm->count; i++) {
        free(warm->froms[i]);
    }
    free(warm);
    return status;
}
