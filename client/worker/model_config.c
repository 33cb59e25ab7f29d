/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of --model-config as a whole. Its tables stand in
 * model_config_table.c, their fields in model_config_fields.c.
 */
#include "client/worker/model_config.h"

#include "base/file.h"
#include "base/text.h"
#include "client/worker/model_config_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The guide's 0.05 for the tables; the same for the layers makes every unit
 * of them die in a few steps, so that the loss stays at 2 ln 2. */
#define LITTLE_DEMO_SPARSE_RATE 0.05
#define LITTLE_DEMO_DENSE_RATE  0.001

rps_status
rps_config_check_names(const struct rps_config_place *place, json_t *object,
        const char *const *names, size_t count, struct rps_error *error)
{
    const char *name = NULL;
    json_t *value = NULL;

    json_object_foreach(object, name, value)
    {
        const char *near;
        bool known = false;

        for (size_t i = 0; i < count && !known; i++) {
            known = strcmp(name, names[i]) == 0;
        }
        if (known) {
            continue;
        }
        near = rps_nearest_name(name, names, count);
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: there is no field \"%.64s\"%s%s%s",
                place->config->file, place->where, name,
                near == NULL ? "; docs/TRAINING.md lists them"
                             : "; did you mean \"",
                near == NULL ? "" : near, near == NULL ? "" : "\"?");
    }
    return RPS_OK;
}

static rps_status
read_layers(const struct rps_model_config *config, json_t *root,
        const char *name, struct rps_model_layers *layers,
        struct rps_error *error)
{
    const json_t *list = json_object_get(root, name);
    const json_t *width;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0 ||
            json_array_size(list) > RPS_MODEL_LAYERS_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s must be a list of 1 to %u widths, such as [64, 16]",
                config->file, name, RPS_MODEL_LAYERS_MAX);
    }
    json_array_foreach(list, i, width)
    {
        if (!json_is_integer(width) || json_integer_value(width) < 1 ||
                json_integer_value(width) > RPS_MODEL_WIDTH_MAX) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: %s[%zu] must be a whole number from 1 to %u",
                    config->file, name, i, RPS_MODEL_WIDTH_MAX);
        }
        layers->widths[i] = (uint32_t)json_integer_value(width);
    }
    layers->count = (uint32_t)json_array_size(list);
    return RPS_OK;
}

static rps_status
read_dlrm(
        struct rps_model_config *config, json_t *root, struct rps_error *error)
{
    static const char *const names[] = {"model", "bottom_mlp", "top_mlp",
            "dense", "tables", "unused_fields"};
    const struct rps_config_place place = {config, "the model dlrm"};
    rps_status status = rps_config_check_names(
            &place, root, names, sizeof(names) / sizeof(names[0]), error);

    if (status == RPS_OK) {
        status =
                read_layers(config, root, "bottom_mlp", &config->bottom, error);
    }
    if (status == RPS_OK) {
        status = read_layers(config, root, "top_mlp", &config->top, error);
    }
    if (status == RPS_OK && config->top.widths[config->top.count - 1] != 1) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: top_mlp: its last width must be 1, the logit",
                config->file);
    }
    return status;
}

static rps_status
read_little_demo(
        struct rps_model_config *config, json_t *root, struct rps_error *error)
{
    static const char *const names[] = {
            "model", "mlp", "dense", "tables", "unused_fields"};
    const struct rps_config_place place = {config, "the model little_demo"};
    rps_status status = rps_config_check_names(
            &place, root, names, sizeof(names) / sizeof(names[0]), error);

    if (status == RPS_OK) {
        status = read_layers(config, root, "mlp", &config->trunk, error);
    }
    return status;
}

static rps_status
read_kind(
        struct rps_model_config *config, json_t *root, struct rps_error *error)
{
    const char *kind = json_string_value(json_object_get(root, "model"));

    if (kind != NULL && strcmp(kind, "dlrm") == 0) {
        config->kind = RPS_MODEL_DLRM;
        return read_dlrm(config, root, error);
    }
    if (kind != NULL && strcmp(kind, "little_demo") == 0) {
        config->kind = RPS_MODEL_LITTLE_DEMO;
        return read_little_demo(config, root, error);
    }
    return rps_fail(error, RPS_E_INVAL,
            "%s: model must be \"dlrm\" or \"little_demo\"", config->file);
}

static rps_status
read_tables(
        struct rps_model_config *config, json_t *root, struct rps_error *error)
{
    const json_t *list = json_object_get(root, "tables");
    rps_status status = RPS_OK;
    const json_t *table;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0 ||
            json_array_size(list) > RPS_MODEL_TABLES_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: tables must be a list of 1 to %u objects", config->file,
                RPS_MODEL_TABLES_MAX);
    }
    json_array_foreach(list, i, table)
    {
        status = rps_config_read_table(config, i, table, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

static rps_status
read_unused(
        struct rps_model_config *config, json_t *root, struct rps_error *error)
{
    const struct rps_config_place place = {config, "unused_fields"};
    const json_t *value = json_object_get(root, "unused_fields");
    struct rps_config_list list = {0};
    rps_status status;

    if (value == NULL) {
        return RPS_OK;
    }
    status = rps_config_read_fields(&place, value, &list, error);
    config->unused = list.items;
    config->unused_count = list.count;
    return status;
}

static rps_status
read_root(
        struct rps_model_config *config, json_t *root, struct rps_error *error)
{
    rps_status status;

    if (!json_is_object(root)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: must be a JSON object with \"model\" and \"tables\"",
                config->file);
    }
    status = read_kind(config, root, error);
    if (status == RPS_OK) {
        status = rps_config_read_dense(
                config, json_object_get(root, "dense"), error);
    }
    if (status == RPS_OK) {
        status = read_tables(config, root, error);
    }
    if (status == RPS_OK) {
        status = read_unused(config, root, error);
    }
    return status;
}

rps_status
rps_model_config_read(struct rps_model_config *config, const char *path,
        struct rps_error *error)
{
    json_error_t where;
    size_t length = 0;
    char *text = NULL;
    json_t *root;
    rps_status status;

    memset(config, 0, sizeof(*config));
    config->file = path;
    config->is_file = true;
    status = rps_pipe_read(
            path, RPS_MODEL_CONFIG_BYTES_MAX, &text, &length, error);
    if (status != RPS_OK) {
        return status;
    }
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    free(text);
    if (root == NULL) {
        return rps_fail(error, RPS_E_INVAL, "%s:%d:%d: not JSON: %s", path,
                where.line, where.column, where.text);
    }
    status = read_root(config, root, error);
    json_decref(root);
    if (status != RPS_OK) {
        rps_model_config_finish(config);
    }
    return status;
}

/* Lazy Adam, and the sum of `fields` fields from `first` on: one bag. */
static rps_status
demo_table(struct rps_model_config *config, const char *name, uint32_t dim,
        uint32_t first, uint32_t fields, struct rps_error *error)
{
    struct rps_table_config *table = &config->tables[config->table_count++];

    rps_table_spec_init(&table->spec, name, dim, RPS_OPTIMIZER_ADAM);
    table->learning_rate = LITTLE_DEMO_SPARSE_RATE;
    table->spec.learning_rate = (float)table->learning_rate;
    table->pooling = RPS_POOLING_SUM;
    table->bag_count = 1;
    table->bag_ends = calloc(1, sizeof(*table->bag_ends));
    table->fields = calloc(fields, sizeof(*table->fields));
    if (table->bag_ends == NULL || table->fields == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    table->bag_ends[0] = fields;
    for (uint32_t i = 0; i < fields; i++) {
        table->fields[i] = first + i;
    }
    return RPS_OK;
}

rps_status
rps_model_config_little_demo(
        struct rps_model_config *config, struct rps_error *error)
{
    rps_status status;

    memset(config, 0, sizeof(*config));
    config->file = "--model little_demo";
    config->kind = RPS_MODEL_LITTLE_DEMO;
    config->trunk = (struct rps_model_layers){
            .count = 4, .widths = {1024, 512, 256, 128}};
    rps_table_spec_init(
            &config->dense, "", RPS_DENSE_ROW_FLOATS, RPS_OPTIMIZER_ADAM);
    config->dense_learning_rate = LITTLE_DEMO_DENSE_RATE;
    status = demo_table(config, "user_table", 32, 0, 8, error);
    if (status == RPS_OK) {
        status = demo_table(config, "item_table", 8, 8, 16, error);
    }
    if (status != RPS_OK) {
        rps_model_config_finish(config);
    }
    return status;
}

void
rps_model_config_finish(struct rps_model_config *config)
{
    for (uint32_t t = 0; t < config->table_count; t++) {
        free(config->tables[t].bag_ends);
        free(config->tables[t].fields);
    }
    free(config->unused);
    memset(config, 0, sizeof(*config));
}
