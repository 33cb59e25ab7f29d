/* SPDX-License-Identifier: Apache-2.0 */
#include "client/cli/fields.h"

#include "base/text.h"

#include <string.h>

/* A number where it is one, else text: the server knows the field's type. */
static json_t *
value_of(const char *field, const char *text)
{
    uint64_t whole = 0;
    double real = 0;

    if ((rps_parse_u64(text, &whole) ||
                (strcmp(field, "memory_limit") == 0 &&
                        rps_parse_bytes(text, &whole))) &&
            whole <= INT64_MAX) {
        return json_integer((json_int_t)whole);
    }
    if (rps_parse_double(text, &real)) {
        return json_real(real);
    }
    return json_string(text);
}

int
rps_fields_add(const char *tool, json_t *fields, const char *word)
{
    const char *equals = strchr(word, '=');
    char name[64];

    if (equals == NULL || equals == word ||
            (size_t)(equals - word) >= sizeof(name)) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool,
                "\"%s\" is not FIELD=VALUE, such as learning_rate=0.01", word);
    }
    memcpy(name, word, (size_t)(equals - word));
    name[equals - word] = '\0';
    if (json_object_get(fields, name) != NULL) {
        return rps_tool_fail(RPS_TOOL_USAGE, tool, "%s is given twice", name);
    }
    if (json_object_set_new(fields, name, value_of(name, equals + 1)) != 0) {
        return rps_tool_fail(
                RPS_TOOL_USAGE, tool, "\"%s\" is not UTF-8 text", word);
    }
    return RPS_TOOL_OK;
}
