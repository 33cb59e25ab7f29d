/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>

char *
rps_json_text(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;

    json_decref(value);
    return text;
}

json_t *
rps_json_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

bool
rps_json_count(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

bool
rps_json_whole(const json_t *value, uint64_t *out)
{
    return json_is_string(value) ? rps_parse_u64(json_string_value(value), out)
                                 : rps_json_count(value, out);
}

rps_status
rps_json_u64(const json_t *object, const char *key, uint64_t max,
        uint64_t *value, struct rps_error *error)
{
    const json_t *field = json_object_get(object, key);
    uint64_t number = 0;

    if (field == NULL || json_is_null(field)) {
        return RPS_OK;
    }
    if (!rps_json_whole(field, &number)) {
        return rps_fail(error, RPS_E_INVAL,
                "%s must be an unsigned integer or its decimal string", key);
    }
    if (number > max) {
        return rps_fail(error, RPS_E_INVAL,
                "%s is %" PRIu64 "; at most %" PRIu64 " is allowed", key,
                number, max);
    }
    *value = number;
    return RPS_OK;
}
