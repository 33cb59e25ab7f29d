/* SPDX-License-Identifier: Apache-2.0 */
/* One table of a model's description, and what all dense variables share. */
#include "base/spec.h"
#include "client/worker/model_config_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OPTIMIZER_FIELDS                                                    \
    "optimizer", "learning_rate", "initial_accumulator", "beta1", "beta2",  \
            "epsilon", "weight_decay", "momentum", "nesterov", "rho", "l1", \
            "l2", "l2_shrinkage", "learning_rate_power", "clip_value",      \
            "clip_norm"

/* Of a spec (base/spec.h), but for the seed, which is --seed, the width of
 * the keys and what makes a table dense; and two of the model. */
static const char *const table_names[] = {OPTIMIZER_FIELDS, "name", "dimension",
        "fields", "pooling", "value_dtype", "stochastic_rounding",
        "initializer", "initializer_low", "initializer_high",
        "initializer_scale", "initializer_mode", "initializer_distribution",
        "default_value", "device_vocabulary_size", "admission",
        "min_used_times", "max_cold_secs", "max_cold_steps", "keep_min_rows",
        "memory_limit", "on_full"};
static const char *const dense_names[] = {OPTIMIZER_FIELDS};

/* A failure of base/spec.h, with the place in the file before it. */
static rps_status
refused(const struct rps_config_place *place, rps_status status,
        struct rps_error *error)
{
    struct rps_error cause;

    if (error == NULL) {
        return status;
    }
    cause = *error;
    return rps_fail(error, status, "%s: %s: %s", place->config->file,
            place->where, cause.text);
}

static rps_status
need_optimizer(const struct rps_config_place *place, const json_t *value,
        struct rps_error *error)
{
    if (json_object_get(value, "optimizer") == NULL) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: \"optimizer\" is missing: name one, such as "
                "\"adagrad\"",
                place->config->file, place->where);
    }
    return RPS_OK;
}

/* As it is written, or the optimizer's default. */
static double
rate_of(const json_t *value, const rps_table_spec *spec)
{
    const json_t *rate = json_object_get(value, "learning_rate");

    return json_is_number(rate) ? json_number_value(rate)
                                : (double)spec->learning_rate;
}

static json_t *
writable(const json_t *value)
{
    /* jansson's iteration takes no const; nothing is changed */
    return (json_t *)(uintptr_t)value;
}

rps_status
rps_config_read_dense(struct rps_model_config *config, const json_t *value,
        struct rps_error *error)
{
    const struct rps_config_place place = {config, "dense"};
    rps_table_spec *spec = &config->dense;
    rps_table_spec whole;
    json_t *own = NULL;
    rps_status status;

    if (!json_is_object(value)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: dense must be an object with the optimizer of the "
                "layers, such as {\"optimizer\": \"adam\"}",
                config->file);
    }
    status = rps_config_check_names(&place, writable(value), dense_names,
            sizeof(dense_names) / sizeof(dense_names[0]), error);
    if (status == RPS_OK) {
        status = need_optimizer(&place, value, error);
    }
    if (status != RPS_OK) {
        return status;
    }
    own = json_copy(writable(value));
    if (own == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    rps_config_plain_switches(own);
    status = rps_spec_read(own, spec, error);
    json_decref(own);
    if (status == RPS_OK) {
        /* what each variable's own makes of it (dense.c) */
        whole = *spec;
        snprintf(whole.name, sizeof(whole.name), "dense");
        whole.dim = RPS_DENSE_ROW_FLOATS;
        whole.dense_elements = 1;
        whole.initializer = RPS_INITIALIZER_ZEROS;
        whole.initializer_low = whole.initializer_high = 0.0f;
        status =
                rps_table_spec_check(&whole, error == NULL ? NULL : error->text,
                        error == NULL ? 0 : sizeof(error->text));
    }
    config->dense_learning_rate = rate_of(value, spec);
    return status == RPS_OK ? RPS_OK : refused(&place, status, error);
}

static rps_status
read_pooling(const struct rps_config_place *place, const json_t *value,
        struct rps_table_config *table, struct rps_error *error)
{
    static const struct {
        const char *name;
        enum rps_pooling kind;
    } kinds[] = {
            {"sum", RPS_POOLING_SUM},
            {"mean", RPS_POOLING_MEAN},
            {"sqrtn", RPS_POOLING_SQRTN},
    };
    const json_t *pooling = json_object_get(value, "pooling");
    const char *name = json_string_value(pooling);

    table->pooling = RPS_POOLING_SUM;
    if (pooling == NULL) {
        return RPS_OK;
    }
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (name != NULL && strcmp(name, kinds[i].name) == 0) {
            table->pooling = kinds[i].kind;
            return RPS_OK;
        }
    }
    return rps_fail(error, RPS_E_INVAL,
            "%s: %s: pooling must be \"sum\", \"mean\" or \"sqrtn\"",
            place->config->file, place->where);
}

/* Close the bags of the fields that were added from `from` on. */
static rps_status
add_ends(struct rps_config_list *ends, const struct rps_config_list *fields,
        uint32_t from, bool one_bag, struct rps_error *error)
{
    const uint32_t count = one_bag ? 1 : fields->count - from;

    if (ends->count + count > ends->capacity) {
        const uint32_t capacity = 2 * (ends->count + count);
        uint32_t *grown = realloc(ends->items, capacity * sizeof(*ends->items));

        if (grown == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
        }
        ends->items = grown;
        ends->capacity = capacity;
    }
    for (uint32_t i = 1; i <= count; i++) {
        ends->items[ends->count++] = one_bag ? fields->count : from + i;
    }
    return RPS_OK;
}

/* "fields": a number or a range has a bag a field, a list is one bag. */
static rps_status
read_bags(const struct rps_config_place *place, const json_t *list,
        struct rps_config_list *fields, struct rps_config_list *ends,
        struct rps_error *error)
{
    struct rps_config_place inner = {place->config, ""};
    rps_status status = RPS_OK;
    const json_t *item;
    size_t i;

    if (!json_is_array(list) || json_array_size(list) == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: fields must be a list: a number or a range such as "
                "\"4-25\" makes a bag a field, a list of them one bag; without "
                "\"fields\" a table has all that no other names",
                place->config->file, place->where);
    }
    json_array_foreach(list, i, item)
    {
        const bool one_bag = json_is_array(item);
        const uint32_t from = fields->count;
        json_t *alone = one_bag ? NULL : json_pack("[O]", writable(item));

        (void)snprintf(inner.where, sizeof(inner.where), "%.*s: fields[%zu]",
                (int)RPS_NAME_BYTES_MAX, place->where, i);
        status = rps_config_read_fields(
                &inner, one_bag ? item : alone, fields, error);
        json_decref(alone);
        if (status == RPS_OK) {
            status = add_ends(ends, fields, from, one_bag, error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

static rps_status
read_fields(const struct rps_config_place *place, const json_t *value,
        struct rps_table_config *table, struct rps_error *error)
{
    const json_t *list = json_object_get(value, "fields");
    struct rps_config_list fields = {0}, ends = {0};
    rps_status status;

    if (list == NULL) {
        return RPS_OK;
    }
    status = read_bags(place, list, &fields, &ends, error);
    table->fields = fields.items;
    table->bag_ends = ends.items;
    table->bag_count = ends.count;
    return status;
}

/* The fields of a spec alone, read and checked. */
static rps_status
read_spec(const struct rps_config_place *place, const json_t *value,
        struct rps_table_config *table, struct rps_error *error)
{
    json_t *own = json_copy(writable(value));
    rps_status status;

    if (own == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
    }
    (void)json_object_del(own, "fields");
    (void)json_object_del(own, "pooling");
    rps_config_plain_switches(own);
    rps_config_drop_scaling(own);
    status = rps_spec_from_value(own, &table->spec, error);
    status = status == RPS_OK ? RPS_OK : refused(place, status, error);
    json_decref(own);
    table->learning_rate = rate_of(value, &table->spec);
    return status == RPS_OK
                   ? rps_config_read_scaling(place, value, &table->spec, error)
                   : status;
}

/* Two tables may not be one, and one alone takes what is left. */
static rps_status
check_others(const struct rps_config_place *place,
        const struct rps_table_config *table, struct rps_error *error)
{
    const struct rps_model_config *config = place->config;

    for (uint32_t t = 0; t + 1 < config->table_count; t++) {
        const struct rps_table_config *other = &config->tables[t];

        if (strcmp(other->spec.name, table->spec.name) == 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: %s: tables[%u] has the same name: give it another",
                    config->file, place->where, t);
        }
        if (other->bag_count == 0 && table->bag_count == 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: %s: tables[%u] has no \"fields\" either: only one "
                    "table takes the fields that no other names",
                    config->file, place->where, t);
        }
    }
    return RPS_OK;
}

static void
name_place(struct rps_config_place *place, size_t index, const json_t *value)
{
    const char *name = json_string_value(json_object_get(value, "name"));

    (void)snprintf(place->where, sizeof(place->where), "tables[%zu]%s%.*s%s",
            index, name != NULL ? " (" : "", (int)RPS_NAME_BYTES_MAX,
            name != NULL ? name : "", name != NULL ? ")" : "");
}

rps_status
rps_config_read_table(struct rps_model_config *config, size_t index,
        const json_t *value, struct rps_error *error)
{
    struct rps_table_config *table = &config->tables[config->table_count];
    struct rps_config_place place = {config, ""};
    rps_status status;

    name_place(&place, index, value);
    if (!json_is_object(value)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s must be an object with \"name\", \"dimension\" and "
                "\"optimizer\"",
                config->file, place.where);
    }
    config->table_count++;
    status = rps_config_check_names(&place, writable(value), table_names,
            sizeof(table_names) / sizeof(table_names[0]), error);
    if (status == RPS_OK) {
        status = need_optimizer(&place, value, error);
    }
    if (status == RPS_OK) {
        status = read_spec(&place, value, table, error);
    }
    if (status == RPS_OK) {
        status = read_pooling(&place, value, table, error);
    }
    if (status == RPS_OK) {
        status = read_fields(&place, value, table, error);
    }
    return status == RPS_OK ? check_others(&place, table, error) : status;
}
