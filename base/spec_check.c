/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a table's spec: what is out of range is named with its value
 * and what is allowed. */
#include "base/spec.h"
#include "base/spec_fields.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define DENSE_ELEMENTS_MAX UINT64_C(1000000000000000)

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
check_count(const rps_table_spec *spec, const char *field, uint64_t value,
        uint64_t low, uint64_t high, struct rps_error *error)
{
    if (value >= low && value <= high) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: %s is %" PRIu64 ", must be in [%" PRIu64 ", %" PRIu64
            "]",
            spec->name, field, value, low, high);
}

static rps_status
check_shape(const rps_table_spec *spec, struct rps_error *error)
{
    rps_status status =
            check_count(spec, "dimension", spec->dim, 1, RPS_DIM_MAX, error);

    if (status == RPS_OK) {
        status = check_count(spec, "device_vocabulary_size",
                spec->device_vocabulary_size, 1, RPS_VOCABULARY_MAX, error);
    }
    if (status == RPS_OK) {
        status = check_count(spec, "dense_elements", spec->dense_elements, 0,
                DENSE_ELEMENTS_MAX, error);
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

/* A number that has a range, and the optimizers that it has a part in. */
struct rule {
    const char *field;
    size_t offset;
    double low;
    double high;
    uint32_t optimizers;
};

#define OF(optimizer) (1u << RPS_OPTIMIZER_##optimizer)
#define EVERY         UINT32_MAX
#define CATCHUPS      (OF(ADAM_CATCHUP) | OF(ADAMW_CATCHUP))
#define ADAMS         (OF(ADAM) | OF(ADAMW) | CATCHUPS)
#define ADAGRADS      (OF(ADAGRAD) | OF(ROWWISE_ADAGRAD))
#define ACCUMULATES   (ADAGRADS | OF(FTRL) | OF(RMSPROP))

#define HUGE_VALUE 3.4e38     /* what float32 holds, about */
#define TINY_VALUE 1e-45      /* above 0: the least float */
#define BELOW_ONE  0.99999994 /* a decay of 1 would never forget */
#define LEAST      0.0

/* clang-format off */
#define RULE(field, low, high, optimizers) \
    {#field, offsetof(rps_table_spec, field), low, high, optimizers}

/*
 * Ranges are Rec SDK's where it has one, half-open ends closed at the nearest
 * float. Wider are: the learning rate (losses are scaled by thousands; the
 * rule of finite results stops what overflows) and the accumulator.
 */
static const struct rule rules[] = {
    RULE(initializer_low, -HUGE_VALUE, HUGE_VALUE, EVERY),
    RULE(initializer_high, -HUGE_VALUE, HUGE_VALUE, EVERY),
    RULE(learning_rate, LEAST, HUGE_VALUE, EVERY),
    RULE(initial_accumulator, LEAST, HUGE_VALUE, ACCUMULATES),
    RULE(beta1, LEAST, BELOW_ONE, ADAMS),
    RULE(beta2, LEAST, BELOW_ONE, ADAMS),
    RULE(epsilon, LEAST, 1, ADAMS | OF(ROWWISE_ADAGRAD) | OF(RMSPROP)),
    RULE(weight_decay, LEAST, 10, ~(OF(FTRL) | OF(ADAM_CATCHUP))),
    RULE(momentum, LEAST, BELOW_ONE, OF(MOMENTUM) | OF(RMSPROP)),
    RULE(rho, LEAST, BELOW_ONE, OF(RMSPROP)),
    RULE(l1, LEAST, 1e4, OF(FTRL)),
    RULE(l2, LEAST, 1e4, OF(FTRL)),
    RULE(l2_shrinkage, LEAST, 1e4, OF(FTRL)),
    /* n^1 at most: the accumulator itself */
    RULE(learning_rate_power, -1, 0, OF(FTRL)),
    RULE(clip_value, LEAST, HUGE_VALUE, EVERY),
    RULE(clip_norm, LEAST, HUGE_VALUE, EVERY),
    RULE(default_value, -HUGE_VALUE, HUGE_VALUE, EVERY),
};
/* clang-format on */

static float
number_at(const rps_table_spec *spec, size_t offset)
{
    float value = 0.0f;

    memcpy(&value, (const char *)spec + offset, sizeof(value));
    return value;
}

/* A number without a part in this optimizer must be left at its default:
 * who sets it means another optimizer. */
static rps_status
no_part(const rps_table_spec *spec, const char *field, double value,
        double initial, struct rps_error *error)
{
    const char *instead = "";

    if (strcmp(field, "weight_decay") == 0) {
        instead = spec->optimizer == RPS_OPTIMIZER_FTRL
                          ? "; use l2 or l2_shrinkage"
                          : "; use adamw_catchup";
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: %s is %.9g, must be %.9g: it has no part in optimizer "
            "%s%s",
            spec->name, field, value, initial,
            rps_optimizer_str(spec->optimizer), instead);
}

void
rps_spec_reset_idle(rps_table_spec *spec)
{
    rps_table_spec initial;

    if ((unsigned)spec->optimizer >= RPS_OPTIMIZER_COUNT) {
        return; /* the check's to refuse */
    }
    rps_table_spec_init(&initial, "", 1, spec->optimizer);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if ((rules[i].optimizers >> spec->optimizer & 1u) == 0) {
            memcpy((char *)spec + rules[i].offset,
                    (const char *)&initial + rules[i].offset, sizeof(float));
        }
    }
}

static rps_status
check_numbers(const rps_table_spec *spec, struct rps_error *error)
{
    rps_table_spec initial;
    rps_status status = RPS_OK;

    rps_table_spec_init(&initial, "", 1, spec->optimizer);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        const double value = (double)number_at(spec, rules[i].offset);
        const double usual = (double)number_at(&initial, rules[i].offset);
        const bool has_part =
                (rules[i].optimizers >> spec->optimizer & 1u) != 0;
        status = check_range(spec, rules[i].field, value, rules[i].low,
                rules[i].high, error);
        if (status == RPS_OK && !has_part && value != usual) {
            status = no_part(spec, rules[i].field, value, usual, error);
        }
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}

/* What an optimizer asks of its numbers beyond their ranges. */
static rps_status
check_optimizer(const rps_table_spec *spec, struct rps_error *error)
{
    const uint32_t self = 1u << spec->optimizer;
    rps_status status = RPS_OK;

    if ((self & (ADAMS | OF(RMSPROP))) != 0) {
        /* a row without any gradient must not be 0 / 0 */
        status = check_range(
                spec, "epsilon", (double)spec->epsilon, TINY_VALUE, 1, error);
    }
    if (status == RPS_OK) {
        status = check_range(spec, "nesterov", spec->nesterov, 0,
                spec->optimizer == RPS_OPTIMIZER_MOMENTUM, error);
    }
    if (status != RPS_OK || (self & CATCHUPS) == 0) {
        return status;
    }
    if ((double)spec->beta1 * (double)spec->beta1 >= (double)spec->beta2) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: beta1 is %.9g, its square must be below beta2, "
                "%.9g, for %s: the skipped steps would have no finite sum",
                spec->name, (double)spec->beta1, (double)spec->beta2,
                rps_optimizer_str(spec->optimizer));
    }
    if (spec->max_cold_secs != 0) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: max_cold_secs is %" PRIu64 ", must be 0 with %s, "
                "which counts a row's ticks in steps; use max_cold_steps",
                spec->name, spec->max_cold_secs,
                rps_optimizer_str(spec->optimizer));
    }
    return RPS_OK;
}

static rps_status
check_initializer(const rps_table_spec *spec, struct rps_error *error)
{
    const double most = 1e30; /* eight deviations from the mean stay finite */
    rps_status status = RPS_OK;

    switch (spec->initializer) {
    case RPS_INITIALIZER_UNIFORM:
        if (spec->initializer_low > spec->initializer_high) {
            status = rps_fail(error, RPS_E_INVAL,
                    "table %s: initializer uniform from %.9g to %.9g: the "
                    "first must not exceed the second",
                    spec->name, (double)spec->initializer_low,
                    (double)spec->initializer_high);
        }
        break;
    case RPS_INITIALIZER_NORMAL:
    case RPS_INITIALIZER_TRUNCATED_NORMAL:
        status = check_range(spec, "initializer_low (the mean)",
                (double)spec->initializer_low, -most, most, error);
        if (status == RPS_OK) {
            status = check_range(spec, "initializer_high (the deviation)",
                    (double)spec->initializer_high, 0, most, error);
        }
        break;
    case RPS_INITIALIZER_VARIANCE_SCALING:
        status = rps_fail(error, RPS_E_INVAL,
                "table %s: initializer is variance_scaling, must be what "
                "rps_table_spec_variance_scaling() makes of it: normal, "
                "truncated_normal or uniform with numbers",
                spec->name);
        break;
    default:
        break;
    }
    return status;
}

/* What first values are drawn from must fit the rows: a first value that is
 * infinite could not be saved. */
static rps_status
check_first_values(const rps_table_spec *spec, struct rps_error *error)
{
    const double low = (double)spec->initializer_low;
    const double high = (double)spec->initializer_high;
    const bool normal = spec->initializer == RPS_INITIALIZER_NORMAL ||
                        spec->initializer == RPS_INITIALIZER_TRUNCATED_NORMAL;
    const double most = spec->value_dtype == RPS_VALUE_F16 ? 65504 : 3.38e38;
    const double reach = normal ? fabs(low) + 8 * high : fabs(high);

    if (spec->value_dtype == RPS_VALUE_F32 ||
            spec->initializer == RPS_INITIALIZER_ZEROS) {
        return RPS_OK;
    }
    if (fabs(low) <= most &&
            (spec->initializer == RPS_INITIALIZER_CONSTANT || reach <= most)) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: initializer %s with initializer_low %.9g and "
            "initializer_high %.9g gives values beyond %.9g, the most that "
            "its value_dtype holds",
            spec->name, rps_initializer_str(spec->initializer), low, high,
            most);
}

/* Rows are floats of three widths; int8 is for the wire. */
static rps_status
check_value(const rps_table_spec *spec, struct rps_error *error)
{
    if (spec->value_dtype == RPS_VALUE_I8) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "table %s: value_dtype is int8, must be float32, float16 or "
                "bfloat16 in memory",
                spec->name);
    }
    return check_range(spec, "stochastic_rounding", spec->stochastic_rounding,
            0, spec->value_dtype != RPS_VALUE_F32, error);
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
    rps_status (*const all[])(const rps_table_spec *, struct rps_error *) = {
            check_name, check_enums, check_shape, check_numbers,
            check_optimizer, check_initializer, check_value, check_first_values,
            rps_spec_check_policy};
    rps_status status = RPS_OK;

    if (spec == NULL) {
        status = rps_fail(&error, RPS_E_INVAL, "spec is NULL");
    } else if (spec->struct_bytes != sizeof(*spec)) {
        status = rps_fail(&error, RPS_E_INVAL,
                "table spec: struct_bytes is %u, not %zu: start from "
                "rps_table_spec_init()",
                spec->struct_bytes, sizeof(*spec));
    }
    for (size_t i = 0; status == RPS_OK && i < sizeof(all) / sizeof(all[0]);
            i++) {
        status = all[i](spec, &error);
    }
    if (status != RPS_OK && why != NULL && why_bytes > 0) {
        snprintf(why, why_bytes, "%s", error.text);
    }
    return status;
}
