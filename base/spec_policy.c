/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of the policy fields: who gets a row, and when a row has to go. */
#include "base/spec.h"
#include "base/spec_fields.h"

#include <inttypes.h>

#define SECS_MAX  UINT32_MAX /* 136 years */
#define COUNT_MAX INT64_MAX  /* what JSON's integers hold */

struct rule {
    const char *field;
    uint64_t value;
    uint64_t high;
    const char *when; /* what the bound depends on, or "" */
};

static rps_status
check_bounds(const rps_table_spec *spec, struct rps_error *error)
{
    const bool sketch = spec->admission == RPS_ADMISSION_SKETCH;
    const struct rule rules[] = {
            {"min_used_times", spec->min_used_times,
                    sketch ? RPS_SKETCH_TIMES_MAX : RPS_USED_TIMES_MAX,
                    sketch ? " with admission sketch" : ""},
            {"max_cold_secs", spec->max_cold_secs, SECS_MAX, ""},
            {"max_cold_steps", spec->max_cold_steps, RPS_COLD_STEPS_MAX, ""},
            {"keep_min_rows", spec->keep_min_rows, COUNT_MAX, ""},
            {"memory_limit", spec->memory_limit, COUNT_MAX, ""},
    };

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (rules[i].value > rules[i].high) {
            return rps_fail(error, RPS_E_INVAL,
                    "table %s: %s is %" PRIu64 ", must be in [0, %" PRIu64
                    "]%s",
                    spec->name, rules[i].field, rules[i].value, rules[i].high,
                    rules[i].when);
        }
    }
    if (spec->memory_limit != 0 && spec->memory_limit < RPS_MEMORY_LIMIT_MIN) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: memory_limit is %" PRIu64
                " bytes: any table needs %" PRIu64 " at least (0: no limit)",
                spec->name, spec->memory_limit, RPS_MEMORY_LIMIT_MIN);
    }
    return RPS_OK;
}

/* A dense variable has all its rows, always. */
static rps_status
check_dense(const rps_table_spec *spec, struct rps_error *error)
{
    const char *field = spec->min_used_times > 1    ? "min_used_times"
                        : spec->max_cold_secs != 0  ? "max_cold_secs"
                        : spec->max_cold_steps != 0 ? "max_cold_steps"
                        : spec->on_full != RPS_ON_FULL_REFUSE
                                ? "on_full other than refuse"
                                : NULL;

    if (spec->dense_elements == 0 || field == NULL) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: %s: a dense table (dense_elements is %" PRIu64
            ") keeps all its rows; leave the field at its default",
            spec->name, field, spec->dense_elements);
}

/* What a row missed is counted in steps, from its last push. */
static rps_status
check_catchup(const rps_table_spec *spec, struct rps_error *error)
{
    if (spec->max_cold_secs == 0 ||
            (spec->optimizer != RPS_OPTIMIZER_ADAM_CATCHUP &&
                    spec->optimizer != RPS_OPTIMIZER_ADAMW_CATCHUP)) {
        return RPS_OK;
    }
    return rps_fail(error, RPS_E_INVAL,
            "table %s: max_cold_secs is %" PRIu64
            ", but optimizer %s counts the steps since a row's last push: use "
            "max_cold_steps",
            spec->name, spec->max_cold_secs,
            rps_optimizer_str(spec->optimizer));
}

rps_status
rps_spec_check_policy(const rps_table_spec *spec, struct rps_error *error)
{
    rps_status status = check_bounds(spec, error);

    if (status == RPS_OK && spec->max_cold_secs != 0 &&
            spec->max_cold_steps != 0) {
        status = rps_fail(error, RPS_E_INVAL,
                "table %s: max_cold_secs is %" PRIu64
                " and max_cold_steps is %" PRIu64
                ": only one of them can be set",
                spec->name, spec->max_cold_secs, spec->max_cold_steps);
    }
    if (status == RPS_OK) {
        status = check_catchup(spec, error);
    }
    return status == RPS_OK ? check_dense(spec, error) : status;
}
