/* SPDX-License-Identifier: Apache-2.0 */
/* A spec as canonical JSON: the wire and the manifest. */
#include "base/spec.h"
#include "base/spec_fields.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const value_names[] = {
        "float32", "float16", "bfloat16", "int8", NULL};
static const char *const key_names[] = {"int64", "int32", NULL};
static const char *const admission_names[] = {"exact", "sketch", NULL};
static const char *const on_full_names[] = {
        "refuse", "evict-lru", "evict-lfu", NULL};
static const char *const optimizer_names[] = {"sgd", "momentum", "adagrad",
        "rowwise_adagrad", "adam", "adamw", "adam_catchup", "adamw_catchup",
        "ftrl", "rmsprop", NULL};
static const char *const initializer_names[] = {"zeros", "constant", "uniform",
        "normal", "truncated_normal", "variance_scaling", NULL};

const char *
rps_optimizer_str(enum rps_optimizer optimizer)
{
    return (unsigned)optimizer < RPS_OPTIMIZER_COUNT
                   ? optimizer_names[optimizer]
                   : "unknown";
}

const char *
rps_initializer_str(enum rps_initializer initializer)
{
    return (unsigned)initializer < RPS_INITIALIZER_COUNT
                   ? initializer_names[initializer]
                   : "unknown";
}

bool
rps_optimizer_parse(const char *name, enum rps_optimizer *out)
{
    for (unsigned i = 0; i < RPS_OPTIMIZER_COUNT; i++) {
        if (strcmp(name, optimizer_names[i]) == 0) {
            *out = (enum rps_optimizer)i;
            return true;
        }
    }
    return false;
}

/* clang-format off */
#define FIELD(member, kind, same) \
    {#member, RPS_FIELD_##kind, offsetof(rps_table_spec, member), same, NULL}
#define CHOICE(member, same, list) \
    {#member, RPS_FIELD_ENUM, offsetof(rps_table_spec, member), same, list}

static const struct rps_spec_field fields_all[] = {
    /* identity */
    FIELD(name, NAME, true),
    {"dimension", RPS_FIELD_U32, offsetof(rps_table_spec, dim), true, NULL},
    CHOICE(value_dtype, true, value_names),
    CHOICE(optimizer, true, optimizer_names),
    CHOICE(initializer, true, initializer_names),
    FIELD(initializer_low, F32, true),
    FIELD(initializer_high, F32, true),
    FIELD(seed, SEED, true),
    FIELD(dense_elements, U64, true),
    /* policy */
    CHOICE(key_dtype, false, key_names),
    FIELD(device_vocabulary_size, U64, false),
    FIELD(learning_rate, F32, false),
    FIELD(initial_accumulator, F32, false),
    FIELD(beta1, F32, false),
    FIELD(beta2, F32, false),
    FIELD(epsilon, F32, false),
    FIELD(weight_decay, F32, false),
    FIELD(momentum, F32, false),
    FIELD(nesterov, U32, false),
    FIELD(rho, F32, false),
    FIELD(l1, F32, false),
    FIELD(l2, F32, false),
    FIELD(l2_shrinkage, F32, false),
    FIELD(learning_rate_power, F32, false),
    FIELD(clip_value, F32, false),
    FIELD(clip_norm, F32, false),
    FIELD(default_value, F32, false),
    FIELD(stochastic_rounding, U32, false),
    CHOICE(admission, false, admission_names),
    FIELD(min_used_times, U64, false),
    FIELD(max_cold_secs, U64, false),
    FIELD(max_cold_steps, U64, false),
    FIELD(keep_min_rows, U64, false),
    FIELD(memory_limit, U64, false),
    CHOICE(on_full, false, on_full_names),
};
/* clang-format on */

const struct rps_spec_field *
rps_spec_fields(size_t *count_out)
{
    *count_out = sizeof(fields_all) / sizeof(fields_all[0]);
    return fields_all;
}

size_t
rps_spec_field_bytes(const struct rps_spec_field *field)
{
    switch (field->type) {
    case RPS_FIELD_NAME:
        return RPS_NAME_BYTES_MAX + 1;
    case RPS_FIELD_U64:
    case RPS_FIELD_SEED:
        return sizeof(uint64_t);
    case RPS_FIELD_U32:
    case RPS_FIELD_F32:
    case RPS_FIELD_ENUM:
        break;
    }
    return sizeof(uint32_t);
}

_Static_assert(sizeof(enum rps_optimizer) == sizeof(uint32_t),
        "enum fields are read as u32");

static uint64_t
get_number(const struct rps_spec_field *field, const rps_table_spec *spec)
{
    uint64_t value = 0;

    memcpy(&value, (const char *)spec + field->offset,
            rps_spec_field_bytes(field));
    return value;
}

static void
set_number(const struct rps_spec_field *field, rps_table_spec *spec,
        uint64_t value)
{
    memcpy((char *)spec + field->offset, &value, rps_spec_field_bytes(field));
}

static float
get_float(const struct rps_spec_field *field, const rps_table_spec *spec)
{
    float value = 0;

    memcpy(&value, (const char *)spec + field->offset, sizeof(value));
    return value;
}

/* A float as the double nearest to its %.9g text, so that the canonical text
 * and the value read back agree. */
static json_t *
float_value(float value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.9g", (double)value);
    return json_real(strtod(text, NULL));
}

static json_t *
field_value(const struct rps_spec_field *field, const rps_table_spec *spec)
{
    char seed[24];

    switch (field->type) {
    case RPS_FIELD_NAME:
        return json_string(spec->name);
    case RPS_FIELD_SEED:
        snprintf(seed, sizeof(seed), "%" PRIu64, get_number(field, spec));
        return json_string(seed);
    case RPS_FIELD_F32:
        return float_value(get_float(field, spec));
    case RPS_FIELD_ENUM:
        return json_string(field->names[get_number(field, spec)]);
    case RPS_FIELD_U32:
    case RPS_FIELD_U64:
        break;
    }
    return json_integer((json_int_t)get_number(field, spec));
}

/*
 * Fields that specs written by the first release do not have. At their
 * default, which is 0 and stays it, canonical JSON leaves them out: so an old
 * spec and the same spec read and written again are one text, and have one
 * digest. Only ever add to the list.
 */
static const char *const later_fields[] = {"stochastic_rounding", "admission"};

static bool
is_later(const struct rps_spec_field *field)
{
    for (size_t i = 0; i < sizeof(later_fields) / sizeof(later_fields[0]);
            i++) {
        if (strcmp(field->name, later_fields[i]) == 0) {
            return true;
        }
    }
    return false;
}

static json_t *
spec_value(const rps_table_spec *spec, bool canonical)
{
    json_t *object = json_object();

    for (size_t i = 0; i < sizeof(fields_all) / sizeof(fields_all[0]); i++) {
        const struct rps_spec_field *field = &fields_all[i];
        if (canonical && is_later(field) && get_number(field, spec) == 0) {
            continue;
        }
        if (json_object_set_new(
                    object, field->name, field_value(field, spec)) != 0) {
            json_decref(object);
            return NULL;
        }
    }
    return object;
}

json_t *
rps_spec_to_value(const rps_table_spec *spec)
{
    return spec_value(spec, false);
}

json_t *
rps_spec_to_canonical(const rps_table_spec *spec)
{
    return spec_value(spec, true);
}

char *
rps_spec_to_json(const rps_table_spec *spec)
{
    json_t *object = rps_spec_to_canonical(spec);
    char *text = object == NULL
                         ? NULL
                         : json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS |
                                                      JSON_REAL_PRECISION(9));

    json_decref(object);
    return text;
}

static rps_status
wrong_type(const struct rps_spec_field *field, const char *wanted,
        struct rps_error *error)
{
    return rps_fail(error, RPS_E_INVAL, "table spec: %s must be %s",
            field->name, wanted);
}

static rps_status
read_enum(const struct rps_spec_field *field, const json_t *value,
        rps_table_spec *spec, struct rps_error *error)
{
    struct rps_text known = {0};
    const char *name = json_string_value(value);
    rps_status status = RPS_OK;

    for (uint32_t i = 0; name != NULL && field->names[i] != NULL; i++) {
        if (strcmp(name, field->names[i]) == 0) {
            set_number(field, spec, i);
            return RPS_OK;
        }
    }
    for (uint32_t i = 0; field->names[i] != NULL; i++) {
        if (field->names == value_names && i == RPS_VALUE_I8) {
            continue; /* no table has it */
        }
        rps_text_add(&known, i == 0 ? "one of %s" : ", %s", field->names[i]);
    }
    status = wrong_type(
            field, known.bytes == NULL ? "a name" : known.bytes, error);
    rps_text_finish(&known);
    return status;
}

static rps_status
read_name(const struct rps_spec_field *field, const json_t *value,
        rps_table_spec *spec, struct rps_error *error)
{
    const size_t length = json_string_length(value);

    /* jansson refuses an escaped NUL unless asked: length is strlen */
    if (!json_is_string(value) || length > RPS_NAME_BYTES_MAX) {
        return wrong_type(field, "a text of 1..128 characters", error);
    }
    memset(spec->name, 0, sizeof(spec->name));
    memcpy(spec->name, json_string_value(value), length);
    return RPS_OK;
}

static rps_status
read_float(const struct rps_spec_field *field, const json_t *value,
        rps_table_spec *spec, struct rps_error *error)
{
    const double number = json_number_value(value);
    float narrow = 0;

    if (!json_is_number(value) || fabs(number) > 3.4028234663852886e38) {
        return wrong_type(field, "a number", error);
    }
    narrow = (float)number;
    memcpy((char *)spec + field->offset, &narrow, sizeof(narrow));
    return RPS_OK;
}

static rps_status
read_integer(const struct rps_spec_field *field, const json_t *value,
        rps_table_spec *spec, struct rps_error *error)
{
    const json_int_t number = json_integer_value(value);
    const json_int_t most =
            field->type == RPS_FIELD_U32 ? UINT32_MAX : INT64_MAX;

    if (!json_is_integer(value) || number < 0 || number > most) {
        return wrong_type(field, "a whole number >= 0", error);
    }
    set_number(field, spec, (uint64_t)number);
    return RPS_OK;
}

static rps_status
read_field(const struct rps_spec_field *field, const json_t *value,
        rps_table_spec *spec, struct rps_error *error)
{
    uint64_t seed = 0;

    switch (field->type) {
    case RPS_FIELD_NAME:
        return read_name(field, value, spec, error);
    case RPS_FIELD_ENUM:
        return read_enum(field, value, spec, error);
    case RPS_FIELD_F32:
        return read_float(field, value, spec, error);
    case RPS_FIELD_SEED:
        if (!json_is_string(value) ||
                !rps_parse_u64(json_string_value(value), &seed)) {
            return wrong_type(field, "a decimal number as text", error);
        }
        set_number(field, spec, seed);
        return RPS_OK;
    case RPS_FIELD_U32:
    case RPS_FIELD_U64:
        break;
    }
    return read_integer(field, value, spec, error);
}

static const struct rps_spec_field *
field_named(const char *name)
{
    for (size_t i = 0; i < sizeof(fields_all) / sizeof(fields_all[0]); i++) {
        if (strcmp(fields_all[i].name, name) == 0) {
            return &fields_all[i];
        }
    }
    return NULL;
}

static bool
knows_name(const struct rps_spec_field *field, const char *name)
{
    for (uint32_t i = 0; field->names[i] != NULL; i++) {
        if (strcmp(name, field->names[i]) == 0) {
            return true;
        }
    }
    return false;
}

rps_status
rps_spec_check_known(const json_t *value, struct rps_error *error)
{
    /* jansson's iteration takes no const; nothing is changed */
    json_t *object = (json_t *)(uintptr_t)value;
    const char *name = NULL;
    json_t *field_json = NULL;

    json_object_foreach(object, name, field_json)
    {
        const struct rps_spec_field *field = field_named(name);
        const char *text = json_string_value(field_json);

        if (field == NULL) {
            return rps_fail(error, RPS_E_UNSUPPORTED,
                    "table spec: field \"%.64s\" is not known to this version",
                    name);
        }
        if (field->type == RPS_FIELD_ENUM && text != NULL &&
                !knows_name(field, text)) {
            return rps_fail(error, RPS_E_UNSUPPORTED,
                    "table spec: %s \"%.64s\" is not known to this version",
                    name, text);
        }
    }
    return RPS_OK;
}

rps_status
rps_spec_read(
        const json_t *value, rps_table_spec *spec, struct rps_error *error)
{
    /* jansson's iteration takes no const; nothing is changed */
    json_t *object = (json_t *)(uintptr_t)value;
    const char *optimizer =
            json_string_value(json_object_get(object, "optimizer"));
    enum rps_optimizer kind = RPS_OPTIMIZER_SGD;
    const char *name = NULL;
    json_t *field_json = NULL;

    if (!json_is_object(value)) {
        return rps_fail(error, RPS_E_INVAL, "table spec: not a JSON object");
    }
    if (optimizer != NULL) {
        (void)rps_optimizer_parse(optimizer, &kind);
    }
    rps_table_spec_init(spec, "", 0, kind);
    json_object_foreach(object, name, field_json)
    {
        const struct rps_spec_field *field = field_named(name);
        rps_status status =
                field == NULL ? rps_fail(error, RPS_E_INVAL,
                                        "table spec: unknown field "
                                        "\"%.64s\"",
                                        name)
                              : read_field(field, field_json, spec, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

rps_status
rps_spec_from_value(
        const json_t *value, rps_table_spec *spec, struct rps_error *error)
{
    const rps_status status = rps_spec_read(value, spec, error);

    if (status != RPS_OK) {
        return status;
    }
    return rps_table_spec_check(spec, error == NULL ? NULL : error->text,
            error == NULL ? 0 : sizeof(error->text));
}
