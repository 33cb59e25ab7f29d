/* SPDX-License-Identifier: Apache-2.0 */
/* Defaults and rules of a table's spec. Its JSON form: spec_json.c. */
#include "base/spec.h"

#include "base/spec_fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void
rps_table_spec_init(rps_table_spec *spec, const char *name, uint32_t dim,
        enum rps_optimizer optimizer)
{
    *spec = (rps_table_spec){
            .struct_bytes = sizeof(*spec),
            .dim = dim,
            .device_vocabulary_size = 1,
            .initializer = RPS_INITIALIZER_UNIFORM,
            .initializer_low = -0.05f,
            .initializer_high = 0.05f,
            .optimizer = optimizer,
            .learning_rate = optimizer == RPS_OPTIMIZER_SGD ? 0.01f : 0.001f,
            .initial_accumulator = 0.1f,
            .beta1 = 0.9f,
            .beta2 = 0.999f,
            .epsilon = 1e-8f,
            .weight_decay =
                    optimizer == RPS_OPTIMIZER_ADAMW ||
                                    optimizer == RPS_OPTIMIZER_ADAMW_CATCHUP
                            ? 0.004f
                            : 0.0f,
            .momentum = optimizer == RPS_OPTIMIZER_MOMENTUM ? 0.9f : 0.0f,
            .rho = 0.9f,
            .learning_rate_power = -0.5f,
    };
    /* what is cut ends in a character that the check refuses */
    if (strlen(name) > RPS_NAME_BYTES_MAX) {
        memcpy(spec->name, name, RPS_NAME_BYTES_MAX - 1);
        spec->name[RPS_NAME_BYTES_MAX - 1] = '~';
    } else {
        memcpy(spec->name, name, strlen(name));
    }
}

static rps_status
check_name(const rps_table_spec *spec, struct rps_error *error)
{
    static const char allowed[] = "0123456789_."
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz";
    const size_t length = strnlen(spec->name, sizeof(spec->name));

    if (length == 0 || length > RPS_NAME_BYTES_MAX || spec->name[0] == '.' ||
            strspn(spec->name, allowed) != length) {
        return rps_fail(error, RPS_E_INVAL,
                "table name \"%.32s%s\": must be 1..%u characters of "
                "[0-9A-Za-z_.], not starting with a dot",
                spec->name, length > 32 ? "..." : "", RPS_NAME_BYTES_MAX);
    }
    return RPS_OK;
}

static rps_status
check_range(const rps_table_spec *spec, const char *field, double value,
        double low, double high, struct rps_error *error)
{
    if (value >= low && value <= high) { /* false for NaN */
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: %s is %.9g, must be in [%.9g, %.9g]", spec->name, field,
            value, low, high);
}

static rps_status
check_shape(const rps_table_spec *spec, struct rps_error *error)
{
    rps_status status =
            check_range(spec, "dimension", spec->dim, 1, RPS_DIM_MAX, error);

    if (status == RPS_OK) {
        status = check_range(spec, "device_vocabulary_size",
                (double)spec->device_vocabulary_size, 1, RPS_VOCABULARY_MAX,
                error);
    }
    if (status == RPS_OK) {
        status = check_range(spec, "dense_elements",
                (double)spec->dense_elements, 0, 1e15, error);
    }
    if (status == RPS_OK && spec->dense_elements > 0 &&
            (spec->dim != RPS_DENSE_ROW_FLOATS ||
                    spec->initializer != RPS_INITIALIZER_ZEROS)) {
        status = rps_fail(error, RPS_E_INVAL,
                "table %s: a dense table has dimension %u and initializer "
                "zeros, not %u and %s",
                spec->name, RPS_DENSE_ROW_FLOATS, spec->dim,
                rps_initializer_str(spec->initializer));
    }
    return status;
}

/* Ranges of the hyper-parameters: Rec SDK's, half-open ends closed where a
 * float cannot tell them apart. */
static rps_status
check_numbers(const rps_table_spec *spec, struct rps_error *error)
{
    const double huge = 3.4e38;
    const double tiny = 1e-45; /* above 0: the least float */
    const double below_one = 0.99999994;
    const struct {
        const char *field;
        double value;
        double low;
        double high;
    } rules[] = {
            {"initializer_low", (double)spec->initializer_low, -huge, huge},
            {"initializer_high", (double)spec->initializer_high, -huge, huge},
            {"learning_rate", (double)spec->learning_rate, 0, huge},
            {"initial_accumulator", (double)spec->initial_accumulator, 0, huge},
            {"beta1", (double)spec->beta1, 0, below_one},
            {"beta2", (double)spec->beta2, 0, below_one},
            {"epsilon", (double)spec->epsilon,
                    spec->optimizer == RPS_OPTIMIZER_ADAM ? tiny : 0, 1},
            {"clip_value", (double)spec->clip_value, 0, huge},
            {"clip_norm", (double)spec->clip_norm, 0, huge},
            {"default_value", (double)spec->default_value, -huge, huge},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const rps_status status = check_range(spec, rules[i].field,
                rules[i].value, rules[i].low, rules[i].high, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    if (spec->initializer == RPS_INITIALIZER_UNIFORM &&
            spec->initializer_low > spec->initializer_high) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: initializer uniform from %.9g to %.9g: the first "
                "must not exceed the second",
                spec->name, (double)spec->initializer_low,
                (double)spec->initializer_high);
    }
    return RPS_OK;
}

static bool
optimizer_is_built(enum rps_optimizer optimizer)
{
    return optimizer == RPS_OPTIMIZER_SGD ||
           optimizer == RPS_OPTIMIZER_ADAGRAD ||
           optimizer == RPS_OPTIMIZER_ADAM;
}

/* Legal values that this build does not do are refused, not ignored. */
static rps_status
check_built(const rps_table_spec *spec, struct rps_error *error)
{
    const struct {
        const char *field;
        bool wanted;
    } absent[] = {
            {"value_dtype", spec->value_dtype != RPS_VALUE_F32},
            {"optimizer", !optimizer_is_built(spec->optimizer)},
            {"initializer", spec->initializer > RPS_INITIALIZER_UNIFORM},
            {"weight_decay", spec->weight_decay != 0.0f},
            {"momentum", spec->momentum != 0.0f},
            {"nesterov", spec->nesterov != 0},
            {"l1", spec->l1 != 0.0f},
            {"l2", spec->l2 != 0.0f},
            {"l2_shrinkage", spec->l2_shrinkage != 0.0f},
            {"stochastic_rounding", spec->stochastic_rounding != 0},
            {"admission", spec->admission != RPS_ADMISSION_EXACT},
            {"min_used_times", spec->min_used_times != 0},
            {"max_cold_secs", spec->max_cold_secs != 0},
            {"max_cold_steps", spec->max_cold_steps != 0},
            {"keep_min_rows", spec->keep_min_rows != 0},
            {"memory_limit", spec->memory_limit != 0},
            {"on_full", spec->on_full != RPS_ON_FULL_REFUSE},
    };

    for (size_t i = 0; i < sizeof(absent) / sizeof(absent[0]); i++) {
        if (absent[i].wanted) {
            return rps_fail(error, RPS_E_UNSUPPORTED,
                    "table %s: %s other than its default is not built in "
                    "this version (optimizers: sgd, adagrad, adam; "
                    "initializers: zeros, constant, uniform)",
                    spec->name, absent[i].field);
        }
    }
    return RPS_OK;
}

static rps_status
check_enums(const rps_table_spec *spec, struct rps_error *error)
{
    if ((unsigned)spec->optimizer >= RPS_OPTIMIZER_COUNT ||
            (unsigned)spec->initializer >= RPS_INITIALIZER_COUNT ||
            (unsigned)spec->value_dtype > RPS_VALUE_I8 ||
            (unsigned)spec->key_dtype > RPS_KEY_INT32 ||
            (unsigned)spec->admission > RPS_ADMISSION_SKETCH ||
            (unsigned)spec->on_full > RPS_ON_FULL_EVICT_LFU) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: a kind (optimizer, initializer, value_dtype, "
                "key_dtype, admission or on_full) has no such number",
                spec->name);
    }
    return RPS_OK;
}

rps_status
rps_table_spec_check(const rps_table_spec *spec, char *why, size_t why_bytes)
{
    struct rps_error error = {.text = ""};
    rps_status (*const rules[])(const rps_table_spec *, struct rps_error *) = {
            check_name, check_enums, check_shape, check_numbers, check_built};
    rps_status status = RPS_OK;

    if (spec->struct_bytes != sizeof(*spec)) {
        status = rps_fail(&error, RPS_E_INVAL,
                "table spec: struct_bytes is %u, not %zu: start from "
                "rps_table_spec_init()",
                spec->struct_bytes, sizeof(*spec));
    }
    for (size_t i = 0; status == RPS_OK && i < 5; i++) {
        status = rules[i](spec, &error);
    }
    if (status != RPS_OK && why != NULL && why_bytes > 0) {
        snprintf(why, why_bytes, "%s", error.text);
    }
    return status;
}

uint32_t
rps_spec_slot_count(const rps_table_spec *spec)
{
    switch (spec->optimizer) {
    case RPS_OPTIMIZER_ADAGRAD:
        return 1;
    case RPS_OPTIMIZER_ADAM:
        return 2;
    default:
        return 0;
    }
}

uint32_t
rps_spec_slot_width(const rps_table_spec *spec, uint32_t slot)
{
    (void)slot;
    return spec->dim;
}

uint32_t
rps_spec_slot_floats(const rps_table_spec *spec)
{
    return rps_spec_slot_count(spec) * spec->dim;
}

const char *
rps_spec_slot_name(const rps_table_spec *spec, uint32_t slot)
{
    if (spec->optimizer == RPS_OPTIMIZER_ADAM) {
        return slot == 0 ? "m" : "v";
    }
    return "accumulator";
}

static bool
field_differs(const struct rps_spec_field *field, const rps_table_spec *a,
        const rps_table_spec *b)
{
    const char *left = (const char *)a + field->offset;
    const char *right = (const char *)b + field->offset;

    if (field->type == RPS_FIELD_NAME) {
        return strcmp(left, right) != 0;
    }
    return memcmp(left, right, rps_spec_field_bytes(field)) != 0;
}

static const char *
first_difference(
        const rps_table_spec *a, const rps_table_spec *b, bool identity)
{
    size_t count = 0;
    const struct rps_spec_field *fields = rps_spec_fields(&count);

    for (size_t i = 0; i < count; i++) {
        if (fields[i].identity == identity && field_differs(&fields[i], a, b)) {
            return fields[i].name;
        }
    }
    return NULL;
}

const char *
rps_spec_identity_differs(const rps_table_spec *a, const rps_table_spec *b)
{
    return first_difference(a, b, true);
}

const char *
rps_spec_policy_differs(const rps_table_spec *a, const rps_table_spec *b)
{
    return first_difference(a, b, false);
}
