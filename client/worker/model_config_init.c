/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of a table in a model's description that its spec has otherwise:
 * switches as true and false, and variance scaling, which a spec has as the
 * numbers that it comes to.
 */
#include "client/worker/model_config_impl.h"

#include <string.h>

#define SCALE_MAX 1e30

static const char *const scaling_names[] = {
        "initializer_scale", "initializer_mode", "initializer_distribution"};

void
rps_config_plain_switches(json_t *object)
{
    static const char *const names[] = {"nesterov", "stochastic_rounding"};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *value = json_object_get(object, names[i]);

        if (json_is_boolean(value)) {
            (void)json_object_set_new(
                    object, names[i], json_integer(json_is_true(value)));
        }
    }
}

/* One of some words, or the first where the field is not given. */
static rps_status
read_word(const struct rps_config_place *place, const json_t *value,
        const char *field, const char *const words[3], uint32_t *out,
        struct rps_error *error)
{
    const json_t *given = json_object_get(value, field);
    const char *word = json_string_value(given);

    *out = 0;
    for (uint32_t i = 0; word != NULL && i < 3; i++) {
        if (strcmp(word, words[i]) == 0) {
            *out = i;
            return RPS_OK;
        }
    }
    return given == NULL ? RPS_OK
                         : rps_fail(error, RPS_E_INVAL,
                                   "%s: %s: %s must be one of %s, %s, %s",
                                   place->config->file, place->where, field,
                                   words[0], words[1], words[2]);
}

static rps_status
read_scale(const struct rps_config_place *place, const json_t *value,
        double *out, struct rps_error *error)
{
    const json_t *given = json_object_get(value, "initializer_scale");

    *out = json_is_number(given) ? json_number_value(given) : 1.0;
    if ((given != NULL && !json_is_number(given)) || !(*out >= 1e-30) ||
            *out > SCALE_MAX) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: initializer_scale must be a number from 1e-30 to 1e30",
                place->config->file, place->where);
    }
    return RPS_OK;
}

/* Its own fields and no others'. */
static rps_status
check_fields(const struct rps_config_place *place, const json_t *value,
        bool scales, struct rps_error *error)
{
    static const char *const others[] = {"initializer_low", "initializer_high"};
    const char *const *names = scales ? others : scaling_names;
    const size_t count = scales ? 2 : 3;

    for (size_t i = 0; i < count; i++) {
        if (json_object_get(value, names[i]) != NULL) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: %s: %s %s \"initializer\": \"variance_scaling\"",
                    place->config->file, place->where, names[i],
                    scales ? "does not go with" : "goes with");
        }
    }
    return RPS_OK;
}

static bool
scales_variance(const json_t *value)
{
    const char *name = json_string_value(json_object_get(value, "initializer"));

    return name != NULL && strcmp(name, "variance_scaling") == 0;
}

void
rps_config_drop_scaling(json_t *object)
{
    if (scales_variance(object)) {
        (void)json_object_del(object, "initializer");
    }
    for (size_t i = 0; i < sizeof(scaling_names) / sizeof(scaling_names[0]);
            i++) {
        (void)json_object_del(object, scaling_names[i]);
    }
}

rps_status
rps_config_read_scaling(const struct rps_config_place *place,
        const json_t *value, rps_table_spec *spec, struct rps_error *error)
{
    static const char *const modes[] = {"fan_in", "fan_out", "fan_avg"};
    static const char *const shapes[] = {
            "truncated_normal", "normal", "uniform"};
    const bool scales = scales_variance(value);
    uint32_t mode = 0, shape = 0;
    double scale = 1.0;
    rps_status status = check_fields(place, value, scales, error);

    if (status != RPS_OK || !scales) {
        return status;
    }
    status = read_scale(place, value, &scale, error);
    if (status == RPS_OK) {
        status = read_word(place, value, scaling_names[1], modes, &mode, error);
    }
    if (status == RPS_OK) {
        status = read_word(
                place, value, scaling_names[2], shapes, &shape, error);
    }
    if (status == RPS_OK &&
            (rps_table_spec_variance_scaling(spec, (float)scale,
                     (enum rps_fan)mode,
                     (enum rps_distribution)shape) != RPS_OK ||
                    rps_table_spec_check(spec, NULL, 0) != RPS_OK)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s: variance_scaling: rows of this value_dtype do not "
                "hold what initializer_scale %.9g comes to",
                place->config->file, place->where, scale);
    }
    return status;
}
