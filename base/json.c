/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/text.h"

char *
rps_json_text(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_COMPACT) : NULL;

    json_decref(value);
    return text;
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
