/* SPDX-License-Identifier: Apache-2.0 */
#include "client/worker/tables.h"

#include "base/spec.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define ENTRIES_MAX (RPS_MODEL_VARIABLES_MAX + RPS_MODEL_TABLES_MAX)

rps_status
rps_tables_init(struct rps_tables *tables, rps_client *client,
        struct rps_model *model, const struct rps_settings *settings,
        struct rps_error *error)
{
    memset(tables, 0, sizeof(*tables));
    tables->client = client;
    tables->model = model;
    tables->settings = settings;
    for (uint32_t t = 0; t < model->table_count; t++) {
        rps_bags_init(&tables->bags[t], &model->tables[t], &tables->work[t]);
    }
    return rps_dense_init(&tables->dense, model, settings, error);
}

void
rps_tables_finish(struct rps_tables *tables)
{
    for (uint32_t t = 0; t < RPS_MODEL_TABLES_MAX; t++) {
        rps_bags_finish(&tables->bags[t]);
        rps_bags_work_finish(&tables->work[t]);
    }
    rps_dense_finish(&tables->dense);
}

static rps_status
open_table(struct rps_tables *tables, const rps_table_spec *spec,
        rps_embedding_table **table_out, struct rps_error *error)
{
    rps_status status =
            rps_get_embedding_table(tables->client, spec, table_out);

    if (status != RPS_OK) {
        return rps_fail(error, status, "table %s: %s", spec->name,
                rps_client_error(tables->client));
    }
    return RPS_OK;
}

void
rps_tables_spec(
        const struct rps_tables *tables, uint32_t t, rps_table_spec *spec)
{
    *spec = tables->settings->model.tables[t].spec;
    spec->seed = tables->settings->options->seed;
}

rps_status
rps_tables_open(struct rps_tables *tables, struct rps_error *error)
{
    const struct rps_model *model = tables->model;
    rps_status status = RPS_OK;
    rps_table_spec spec;

    for (uint32_t t = 0; t < model->table_count && status == RPS_OK; t++) {
        rps_tables_spec(tables, t, &spec);
        status = open_table(tables, &spec, &tables->sparse[t], error);
    }
    for (uint32_t v = 0; v < model->variable_count && status == RPS_OK; v++) {
        rps_dense_spec(&spec, &model->variables[v], tables->settings);
        status = open_table(tables, &spec, &tables->dense.tables[v], error);
    }
    return status;
}

/* A table's entry in a STAT's list. */
static rps_status
find_restored(const json_t *list, const char *name, const json_t **entry_out,
        struct rps_error *error)
{
    const json_t *entry;
    size_t i;

    json_array_foreach(list, i, entry)
    {
        const char *found = json_string_value(json_object_get(entry, "name"));

        if (found != NULL && strcmp(found, name) == 0) {
            *entry_out = entry;
            return RPS_OK;
        }
    }
    return rps_fail(error, RPS_E_MISMATCH,
            "the checkpoint has no table %s: it was trained with another "
            "--model, --model-config, --bottom-mlp, --top-mlp or other --data",
            name);
}

/* The spec of a restored table, checked against the model's shape. */
static rps_status
restored_spec(const json_t *list, const char *name, uint32_t dim,
        uint64_t elements, rps_table_spec *spec, struct rps_error *error)
{
    const json_t *entry = NULL;
    rps_status status = find_restored(list, name, &entry, error);

    if (status == RPS_OK) {
        status = rps_spec_from_value(
                json_object_get(entry, "spec"), spec, error);
    }
    if (status == RPS_OK &&
            (spec->dim != dim || spec->dense_elements != elements)) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s of the checkpoint has dim %u and %llu dense "
                "elements; this model has %u and %llu: give the "
                "--model, --model-config, --emb-dim, --bottom-mlp and "
                "--top-mlp that it was trained with",
                name, spec->dim, (unsigned long long)spec->dense_elements, dim,
                (unsigned long long)elements);
    }
    return status;
}

static rps_status
open_restored(
        struct rps_tables *tables, const json_t *list, struct rps_error *error)
{
    const struct rps_model *model = tables->model;
    rps_status status = RPS_OK;
    rps_table_spec spec;

    for (uint32_t t = 0; t < model->table_count && status == RPS_OK; t++) {
        status = restored_spec(list, model->tables[t].name,
                model->tables[t].dim, 0, &spec, error);
        if (status == RPS_OK) {
            status = open_table(tables, &spec, &tables->sparse[t], error);
        }
    }
    for (uint32_t v = 0; v < model->variable_count && status == RPS_OK; v++) {
        status = restored_spec(list, model->variables[v].name,
                RPS_DENSE_ROW_FLOATS, model->variables[v].elements, &spec,
                error);
        if (status == RPS_OK) {
            status = open_table(tables, &spec, &tables->dense.tables[v], error);
        }
    }
    return status;
}

static bool
model_has(const struct rps_model *model, const char *name)
{
    for (uint32_t t = 0; t < model->table_count; t++) {
        if (strcmp(model->tables[t].name, name) == 0) {
            return true;
        }
    }
    for (uint32_t v = 0; v < model->variable_count; v++) {
        if (strcmp(model->variables[v].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static rps_status
check_names(
        struct rps_tables *tables, const json_t *list, struct rps_error *error)
{
    const struct rps_model *model = tables->model;
    const json_t *entry;
    rps_status status = RPS_OK;
    size_t i;

    for (uint32_t t = 0; t < model->table_count && status == RPS_OK; t++) {
        status = find_restored(list, model->tables[t].name, &entry, error);
    }
    for (uint32_t v = 0; v < model->variable_count && status == RPS_OK; v++) {
        status = find_restored(list, model->variables[v].name, &entry, error);
    }
    json_array_foreach(list, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));

        if (status == RPS_OK && (name == NULL || !model_has(model, name))) {
            return rps_fail(error, RPS_E_MISMATCH,
                    "the checkpoint has a table %s that this model has not: "
                    "it was trained with another --model, --model-config, "
                    "--bottom-mlp, --top-mlp or other --data",
                    name != NULL ? name : "without a name");
        }
    }
    return status;
}

static rps_status
check_restored(
        struct rps_tables *tables, const json_t *list, struct rps_error *error)
{
    const struct rps_model *model = tables->model;
    rps_status status = check_names(tables, list, error);
    rps_table_spec spec;

    for (uint32_t t = 0; t < model->table_count && status == RPS_OK; t++) {
        status = restored_spec(list, model->tables[t].name,
                model->tables[t].dim, 0, &spec, error);
    }
    for (uint32_t v = 0; v < model->variable_count && status == RPS_OK; v++) {
        status = restored_spec(list, model->variables[v].name,
                RPS_DENSE_ROW_FLOATS, model->variables[v].elements, &spec,
                error);
    }
    return status;
}

/* PS 0's STAT has every table; what is done with their list. */
static rps_status
with_tables(struct rps_tables *tables,
        rps_status (*use)(struct rps_tables *tables, const json_t *list,
                struct rps_error *error),
        struct rps_error *error)
{
    char *text = NULL;
    json_t *stat;
    rps_status status = rps_stat(tables->client, 0, &text);

    if (status != RPS_OK) {
        return rps_fail(error, status, "%s", rps_client_error(tables->client));
    }
    stat = json_loads(text, 0, NULL);
    free(text);
    status = stat == NULL
                     ? rps_fail(error, RPS_E_CORRUPT, "PS 0's STAT is no JSON")
                     : use(tables, json_object_get(stat, "tables"), error);
    json_decref(stat);
    return status;
}

rps_status
rps_tables_check_restored(struct rps_tables *tables, struct rps_error *error)
{
    return with_tables(tables, check_restored, error);
}

rps_status
rps_tables_open_restored(struct rps_tables *tables, struct rps_error *error)
{
    rps_status status = rps_tables_check_restored(tables, error);

    return status == RPS_OK ? with_tables(tables, open_restored, error)
                            : status;
}

static rps_status
lookup(struct rps_tables *tables, const rps_lookup *lookups, size_t count,
        struct rps_error *error)
{
    rps_call call = {0};
    rps_ticket ticket;
    rps_status status =
            rps_lookup_start(tables->client, &call, lookups, count, &ticket);

    if (status == RPS_OK) {
        status = rps_wait(tables->client, ticket, 0);
    }
    if (status != RPS_OK) {
        return rps_fail(
                error, status, "lookup: %s", rps_client_error(tables->client));
    }
    return RPS_OK;
}

rps_status
rps_tables_fetch_dense(struct rps_tables *tables, struct rps_error *error)
{
    rps_lookup lookups[ENTRIES_MAX];

    rps_dense_lookups(&tables->dense, lookups, RPS_READ_ONLY);
    return lookup(tables, lookups, tables->model->variable_count, error);
}

rps_status
rps_tables_fetch(struct rps_tables *tables, const struct rps_batch *batch,
        struct rps_model_input *input, struct rps_error *error)
{
    const struct rps_model *model = tables->model;
    rps_lookup lookups[RPS_MODEL_TABLES_MAX];
    rps_status status = RPS_OK;

    for (uint32_t t = 0; t < model->table_count && status == RPS_OK; t++) {
        struct rps_bags *bags = &tables->bags[t];

        status = rps_bags_take(bags, batch, error);
        lookups[t] = (rps_lookup){
                .table = tables->sparse[t],
                .keys = bags->keys,
                .key_count = bags->key_count,
                .flags = RPS_READ_ONLY,
                .rows = bags->rows,
        };
    }
    if (status == RPS_OK) {
        status = lookup(tables, lookups, model->table_count, error);
    }
    if (status == RPS_OK) {
        status = rps_tables_input(
                tables, batch, tables->bags, false, input, error);
    }
    return status;
}

rps_status
rps_tables_input(const struct rps_tables *tables, const struct rps_batch *batch,
        struct rps_bags *bags, bool training, struct rps_model_input *input,
        struct rps_error *error)
{
    rps_status status = RPS_OK;

    memset(input, 0, sizeof(*input));
    input->rows = batch->rows;
    input->dense = batch->dense;
    input->labels = batch->labels;
    for (uint32_t t = 0; status == RPS_OK && t < tables->model->table_count;
            t++) {
        status = rps_bags_prepare(&bags[t], true, error);
        if (status == RPS_OK) {
            input->pooled[t] = rps_bags_pool(&bags[t]);
            input->pooled_gradients[t] =
                    training ? rps_bags_gradient(&bags[t]) : NULL;
        }
    }
    return status;
}

/* A table's gradients, a row a key. */
static const float *
spread(const struct rps_tables *tables, const struct rps_tables_push *push,
        uint32_t t)
{
    const struct rps_tables_watcher *watcher = &tables->watcher;
    struct rps_bags *bags = &push->bags[t];
    float *pooled_gradients = push->pooled_gradients[t];
    const float *gradients;

    if (watcher->before != NULL) {
        watcher->before(watcher->context, t, bags, pooled_gradients);
    }
    gradients = rps_bags_spread(bags, pooled_gradients);
    if (watcher->after != NULL) {
        watcher->after(watcher->context, t, bags, pooled_gradients, gradients);
    }
    return gradients;
}

/* Fill one entry a table and a variable. Returns how many. */
static size_t
fill_pushes(struct rps_tables *tables, const struct rps_tables_push *push,
        rps_push *pushes)
{
    const struct rps_model *model = tables->model;

    for (uint32_t t = 0; t < model->table_count; t++) {
        struct rps_bags *bags = &push->bags[t];

        pushes[t] = (rps_push){
                .table = tables->sparse[t],
                .keys = bags->keys,
                .key_count = bags->key_count,
                .gradients = spread(tables, push, t),
                .learning_rate = (float)push->rates->sparse[t],
        };
    }
    if (tables->settings->in_group) {
        return model->table_count;
    }
    rps_dense_pushes(&tables->dense, pushes + model->table_count,
            (float)push->rates->dense);
    return model->table_count + model->variable_count;
}

static rps_status
push_failed(struct rps_tables *tables, rps_status status, uint64_t step,
        struct rps_error *error)
{
    return rps_fail(error, status, "push of step %llu: %s",
            (unsigned long long)step, rps_client_error(tables->client));
}

rps_status
rps_tables_push(struct rps_tables *tables, const struct rps_tables_push *push,
        rps_ticket *ticket_out, struct rps_error *error)
{
    rps_push pushes[ENTRIES_MAX];
    rps_call call = {.step = push->step};
    size_t count = push->rates != NULL ? fill_pushes(tables, push, pushes) : 0;
    rps_status status =
            rps_push_start(tables->client, &call, pushes, count, ticket_out);

    return status == RPS_OK ? RPS_OK
                            : push_failed(tables, status, push->step, error);
}

rps_status
rps_tables_push_wait(struct rps_tables *tables, uint64_t step,
        rps_ticket ticket, struct rps_error *error)
{
    rps_status status = rps_wait(tables->client, ticket, 0);

    return status == RPS_OK ? RPS_OK : push_failed(tables, status, step, error);
}
