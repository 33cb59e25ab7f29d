/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of fields in a model's description: 3, "4-25". */
#include "base/text.h"
#include "client/worker/model_config_impl.h"

#include <stdlib.h>
#include <string.h>

static rps_status
append(const struct rps_config_place *place, struct rps_config_list *list,
        uint32_t first, uint32_t last, struct rps_error *error)
{
    const uint64_t need = (uint64_t)list->count + last - first + 1;

    if (need > RPS_MODEL_CONFIG_FIELDS_MAX) {
        return rps_fail(error, RPS_E_INVAL, "%s: %s: more than %u fields",
                place->config->file, place->where, RPS_MODEL_CONFIG_FIELDS_MAX);
    }
    if (need > list->capacity) {
        const uint32_t capacity = (uint32_t)(need + need / 2);
        uint32_t *grown = realloc(list->items, capacity * sizeof(*list->items));

        if (grown == NULL) {
            return rps_fail(error, RPS_E_NOMEM, "no memory for the model");
        }
        list->items = grown;
        list->capacity = capacity;
    }
    for (uint32_t field = first; field <= last; field++) {
        list->items[list->count++] = field;
    }
    return RPS_OK;
}

/* "4-25" */
static bool
read_range(const char *text, uint32_t *first_out, uint32_t *last_out)
{
    const char *dash = strchr(text, '-');
    uint64_t first, last;
    char digits[16];

    if (dash == NULL || (size_t)(dash - text) >= sizeof(digits)) {
        return false;
    }
    memcpy(digits, text, (size_t)(dash - text));
    digits[dash - text] = '\0';
    if (!rps_parse_u64(digits, &first) || !rps_parse_u64(dash + 1, &last) ||
            first > last || last >= UINT32_MAX) {
        return false;
    }
    *first_out = (uint32_t)first;
    *last_out = (uint32_t)last;
    return true;
}

static rps_status
read_field(const struct rps_config_place *place, size_t index,
        const json_t *value, struct rps_config_list *list,
        struct rps_error *error)
{
    const json_int_t number = json_integer_value(value);
    uint32_t first, last;

    if (json_is_integer(value) && number >= 0 && number < UINT32_MAX) {
        return append(place, list, (uint32_t)number, (uint32_t)number, error);
    }
    if (json_is_string(value) &&
            read_range(json_string_value(value), &first, &last)) {
        return append(place, list, first, last, error);
    }
    return rps_fail(error, RPS_E_INVAL,
            "%s: %s[%zu] must be a field's number, from 0 on, or a range of "
            "them as text, such as \"4-25\"",
            place->config->file, place->where, index);
}

rps_status
rps_config_read_fields(const struct rps_config_place *place,
        const json_t *value, struct rps_config_list *list,
        struct rps_error *error)
{
    rps_status status = RPS_OK;
    const json_t *item;
    size_t i;

    if (!json_is_array(value) || json_array_size(value) == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "%s: %s must be a list of fields, such as [0, 1, \"4-25\"]",
                place->config->file, place->where);
    }
    json_array_foreach(value, i, item)
    {
        status = read_field(place, i, item, list, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    return RPS_OK;
}
