/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Defaults of a table's spec, what follows from it, what differs between two.
 * Its rules: spec_check.c; its JSON form: spec_json.c.
 */
#include "base/spec.h"

#include "base/spec_fields.h"

#include <math.h>
#include <string.h>

static bool
decays_by_default(enum rps_optimizer optimizer)
{
    return optimizer == RPS_OPTIMIZER_ADAMW ||
           optimizer == RPS_OPTIMIZER_ADAMW_CATCHUP;
}

void
rps_table_spec_init(rps_table_spec *spec, const char *name, uint32_t dim,
        enum rps_optimizer optimizer)
{
    const bool rmsprop = optimizer == RPS_OPTIMIZER_RMSPROP;

    if (spec == NULL) {
        return;
    }
    *spec = (rps_table_spec){
            .struct_bytes = sizeof(*spec),
            .dim = dim,
            .device_vocabulary_size = 1,
            .initializer = RPS_INITIALIZER_UNIFORM,
            .initializer_low = -0.05f,
            .initializer_high = 0.05f,
            .optimizer = optimizer,
            .learning_rate = optimizer == RPS_OPTIMIZER_SGD ? 0.01f : 0.001f,
            .initial_accumulator = rmsprop ? 0.0f : 0.1f,
            .beta1 = 0.9f,
            .beta2 = 0.999f,
            .epsilon = rmsprop ? 1e-10f : 1e-8f,
            .weight_decay = decays_by_default(optimizer) ? 0.004f : 0.0f,
            .momentum = optimizer == RPS_OPTIMIZER_MOMENTUM ? 0.9f : 0.0f,
            .rho = 0.9f,
            .learning_rate_power = -0.5f,
    };
    if (name == NULL) {
        return; /* an empty name, which the check refuses */
    }
    /* what is cut ends in a character that the check refuses */
    if (strlen(name) > RPS_NAME_BYTES_MAX) {
        memcpy(spec->name, name, RPS_NAME_BYTES_MAX - 1);
        spec->name[RPS_NAME_BYTES_MAX - 1] = '~';
    } else {
        memcpy(spec->name, name, strlen(name));
    }
}

struct slots {
    uint32_t count;
    const char *names[2];
};

/* By enum rps_optimizer; the names are those of the files' columns. */
static const struct slots slots_of[RPS_OPTIMIZER_COUNT] = {
        [RPS_OPTIMIZER_SGD] = {0, {NULL}},
        [RPS_OPTIMIZER_MOMENTUM] = {1, {"momentum"}},
        [RPS_OPTIMIZER_ADAGRAD] = {1, {"accumulator"}},
        [RPS_OPTIMIZER_ROWWISE_ADAGRAD] = {1, {"accumulator"}},
        [RPS_OPTIMIZER_ADAM] = {2, {"m", "v"}},
        [RPS_OPTIMIZER_ADAMW] = {2, {"m", "v"}},
        [RPS_OPTIMIZER_ADAM_CATCHUP] = {2, {"m", "v"}},
        [RPS_OPTIMIZER_ADAMW_CATCHUP] = {2, {"m", "v"}},
        [RPS_OPTIMIZER_FTRL] = {2, {"accum", "linear"}},
        [RPS_OPTIMIZER_RMSPROP] = {2, {"ms", "mom"}},
};

uint32_t
rps_spec_slot_count(const rps_table_spec *spec)
{
    return slots_of[spec->optimizer].count;
}

uint32_t
rps_spec_slot_width(const rps_table_spec *spec, uint32_t slot)
{
    return spec->optimizer == RPS_OPTIMIZER_ROWWISE_ADAGRAD ? 1 : spec->dim;
}

uint32_t
rps_spec_slot_floats(const rps_table_spec *spec)
{
    return rps_spec_slot_count(spec) * rps_spec_slot_width(spec, 0);
}

const char *
rps_spec_slot_name(const rps_table_spec *spec, uint32_t slot)
{
    return slots_of[spec->optimizer].names[slot];
}

size_t
rps_spec_value_bytes(const rps_table_spec *spec)
{
    const size_t element = spec->value_dtype == RPS_VALUE_F32 ? 4 : 2;

    return (spec->dim * element + 3) / 4 * 4;
}

size_t
rps_spec_row_bytes(const rps_table_spec *spec)
{
    return rps_spec_value_bytes(spec) +
           rps_spec_slot_floats(spec) * sizeof(float);
}

/*
 * TensorFlow's rule: a table is a weight of shape [vocabulary, dim], so that
 * fan_in is its vocabulary, fan_out its dim.
 */
rps_status
rps_table_spec_variance_scaling(rps_table_spec *spec, float scale,
        enum rps_fan fan, enum rps_distribution distribution)
{
    const double in = spec != NULL ? (double)spec->device_vocabulary_size : 0;
    const double out = spec != NULL ? (double)spec->dim : 0;
    const double fans[] = {in, out, (in + out) / 2.0};
    /* the deviation of a standard normal cut off at 2 */
    const double cut_deviation = 0.87962566103423978;
    double deviation = 0.0;

    if (spec == NULL || !(scale > 0.0f && scale <= 1e30f) ||
            (unsigned)fan > RPS_FAN_AVG ||
            (unsigned)distribution > RPS_DISTRIBUTION_UNIFORM ||
            spec->dim == 0) {
        return RPS_E_INVAL;
    }
    deviation = sqrt((double)scale / (fans[fan] > 1.0 ? fans[fan] : 1.0));
    spec->initializer = RPS_INITIALIZER_NORMAL;
    spec->initializer_low = 0.0f;
    spec->initializer_high = (float)deviation;
    if (distribution == RPS_DISTRIBUTION_TRUNCATED_NORMAL) {
        spec->initializer = RPS_INITIALIZER_TRUNCATED_NORMAL;
        spec->initializer_high = (float)(deviation / cut_deviation);
    } else if (distribution == RPS_DISTRIBUTION_UNIFORM) {
        spec->initializer = RPS_INITIALIZER_UNIFORM;
        spec->initializer_high = (float)(sqrt(3.0) * deviation);
        spec->initializer_low = -spec->initializer_high;
    }
    return RPS_OK;
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
