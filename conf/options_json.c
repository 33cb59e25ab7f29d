/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The options of a program as JSON: value and origin of each, for those who
 * ask a running server how it was configured.
 */
#include "conf/options_table.h"

#include <stdlib.h>
#include <string.h>

/* A file of a secret may be named, a secret may not. */
static bool
is_secret(const char *name)
{
    static const char *const ends[] = {"token", "password", "secret"};
    const size_t length = strlen(name);

    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        const size_t n = strlen(ends[i]);

        if (length >= n && strcmp(name + length - n, ends[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* JSON is UTF-8; a path need not be. */
static json_t *
text_value(const char *text)
{
    json_t *value = text == NULL ? json_null() : json_string(text);

    return value != NULL ? value : json_string("(not UTF-8)");
}

static json_t *
value_of(const struct rps_options *options, const struct rps_option_def *def)
{
    const char *field = (const char *)options + def->offset;
    const char *text;
    uint64_t whole;
    double real;

    switch (def->type) {
    case RPS_OPTION_U64:
    case RPS_OPTION_BYTES:
        memcpy(&whole, field, sizeof(whole));
        return json_integer((json_int_t)whole);
    case RPS_OPTION_F64:
    case RPS_OPTION_SECONDS:
        memcpy(&real, field, sizeof(real));
        return json_real(real);
    case RPS_OPTION_BOOL:
        return json_boolean(*(const bool *)field);
    case RPS_OPTION_STRING:
    case RPS_OPTION_CHOICE:
    case RPS_OPTION_OPTIONAL:
        break;
    }
    memcpy(&text, field, sizeof(text));
    return is_secret(def->name) && text != NULL && text[0] != '\0'
                   ? json_string("(not shown)")
                   : text_value(text);
}

json_t *
rps_options_json(const struct rps_options *options, uint32_t scope)
{
    static const char *const origins[] = {[RPS_ORIGIN_DEFAULT] = "default",
            [RPS_ORIGIN_JSON] = "recps",
            [RPS_ORIGIN_ENV] = "variable",
            [RPS_ORIGIN_FLAG] = "flag"};
    json_t *object = json_object();

    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];

        if ((def->scope & scope) != 0) {
            json_object_set_new(object, def->name,
                    json_pack("{s:o, s:s}", "value", value_of(options, def),
                            "from", origins[options->origins[i]]));
        }
    }
    return object;
}

/* What lets a member into a job is nobody else's. */
static bool
is_private(const char *name)
{
    return is_secret(name) || strcmp(name, "token_file") == 0 ||
           strncmp(name, "tls_", 4) == 0;
}

json_t *
rps_options_changed_json(const struct rps_options *options, uint32_t scope)
{
    struct rps_options plain;
    json_t *object = rps_options_default(&plain) ? json_object() : NULL;

    for (size_t i = 0; object != NULL && i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        json_t *is = value_of(options, def), *was = value_of(&plain, def);

        if ((def->scope & scope) != 0 && !is_private(def->name) &&
                !json_equal(is, was)) {
            json_object_set(object, def->name, is);
        }
        json_decref(is);
        json_decref(was);
    }
    rps_options_finish(&plain);
    return object;
}

json_t *
rps_options_variables_json(const struct rps_options *options, uint32_t scope)
{
    json_t *object = rps_options_changed_json(options, scope);
    json_t *variables = object != NULL ? json_object() : NULL;

    for (size_t i = 0; variables != NULL && i < rps_option_count; i++) {
        const char *name = rps_option_table[i].name;
        char variable[RPS_OPTION_NAME_MAX];

        if (options->origins[i] == RPS_ORIGIN_ENV &&
                json_object_get(object, name) != NULL) {
            const char *text = getenv(rps_option_variable(name, variable));

            json_object_set_new(variables, variable, text_value(text));
        }
    }
    json_decref(object);
    return variables;
}
