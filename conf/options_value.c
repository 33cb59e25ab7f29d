/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One value: text or JSON in, a field out, or words that say what is wrong.
 */
#include "base/text.h"
#include "conf/cluster_internal.h"
#include "conf/options_table.h"

#include <stdlib.h>
#include <string.h>

/* struct rps_options is written by offset; the type says what is there. */
static void *
field_of(struct rps_options *options, const struct rps_option_def *def)
{
    return (char *)options + def->offset;
}

char *
rps_option_allowed(
        const struct rps_option_def *def, char out[RPS_OPTION_WHY_MAX])
{
    const char *space = def->unit[0] == '\0' ? "" : " ";

    switch (def->type) {
    case RPS_OPTION_STRING:
        (void)snprintf(out, RPS_OPTION_WHY_MAX, "%s%s", def->allowed,
                def->allowed[0] == '\0' ? "any text" : " bytes of text");
        break;
    case RPS_OPTION_BOOL:
        (void)snprintf(out, RPS_OPTION_WHY_MAX, "true or false");
        break;
    case RPS_OPTION_CHOICE:
        (void)snprintf(out, RPS_OPTION_WHY_MAX, "%s%s",
                def->allowed[0] == '|' ? "empty" : "", def->allowed);
        break;
    case RPS_OPTION_OPTIONAL:
        (void)snprintf(out, RPS_OPTION_WHY_MAX, "nothing, or a %s%s%s",
                def->unit, def->allowed[0] != '\0' ? ", or " : "",
                def->allowed);
        break;
    case RPS_OPTION_BYTES:
        (void)snprintf(out, RPS_OPTION_WHY_MAX,
                "%s, a number of bytes with k, MiB, g, ...", def->allowed);
        break;
    case RPS_OPTION_U64:
        (void)snprintf(out, RPS_OPTION_WHY_MAX, "%s%s%s",
                def->allowed[0] == '\0' ? "a whole number, 0 or more"
                                        : def->allowed,
                space, def->unit);
        break;
    case RPS_OPTION_F64:
    case RPS_OPTION_SECONDS:
        (void)snprintf(out, RPS_OPTION_WHY_MAX, "%s%s%s",
                def->allowed[0] == '\0' ? "a number" : def->allowed, space,
                def->unit);
        break;
    }
    return out;
}

static bool
say_why(const struct rps_option_def *def, const char *text, const char *what,
        char why[RPS_OPTION_WHY_MAX])
{
    char allowed[RPS_OPTION_WHY_MAX];
    struct rps_quoted quoted;

    (void)snprintf(why, RPS_OPTION_WHY_MAX, "%s %s (allowed: %.160s)",
            rps_quote(&quoted, text), what, rps_option_allowed(def, allowed));
    return false;
}

/* Is one of "a|b|c"; "" is one where the list begins with '|'. */
static bool
is_choice(const char *allowed, const char *text)
{
    const size_t length = strlen(text);

    for (const char *at = allowed;; at++) {
        const size_t n = strcspn(at, "|");
        if (n == length && strncmp(at, text, n) == 0) {
            return true;
        }
        at += n;
        if (*at == '\0') {
            return false;
        }
    }
}

/* Bounds of "LOW..HIGH"; false where everything is allowed. */
static bool
split_bounds(const char *allowed, char low[32], char high[32])
{
    const char *dots = strstr(allowed, "..");

    if (dots == NULL || (size_t)(dots - allowed) >= 32) {
        return false;
    }
    memcpy(low, allowed, (size_t)(dots - allowed));
    low[dots - allowed] = '\0';
    (void)snprintf(high, 32, "%s", dots + 2);
    return true;
}

static bool
is_within_u64(const struct rps_option_def *def, uint64_t value)
{
    bool (*parse)(const char *, uint64_t *) =
            def->type == RPS_OPTION_BYTES ? rps_parse_bytes : rps_parse_u64;
    char low_text[32];
    char high_text[32];
    uint64_t low = 0;
    uint64_t high = UINT64_MAX;

    return !split_bounds(def->allowed, low_text, high_text) ||
           (parse(low_text, &low) && parse(high_text, &high) && value >= low &&
                   value <= high);
}

static bool
is_within_double(const struct rps_option_def *def, double value)
{
    char low_text[32];
    char high_text[32];
    double low = 0;
    double high = 0;

    return !split_bounds(def->allowed, low_text, high_text) ||
           (rps_parse_double(low_text, &low) &&
                   rps_parse_double(high_text, &high) && value >= low &&
                   value <= high);
}

static bool
set_u64(uint64_t *field, const struct rps_option_def *def, const char *text,
        char why[RPS_OPTION_WHY_MAX])
{
    const bool bytes = def->type == RPS_OPTION_BYTES;
    uint64_t value = 0;

    if (bytes ? !rps_parse_bytes(text, &value) : !rps_parse_u64(text, &value)) {
        return say_why(
                def, text, bytes ? "is no size" : "is no whole number", why);
    }
    if (!is_within_u64(def, value)) {
        return say_why(def, text, "is out of range", why);
    }
    *field = value;
    return true;
}

static bool
set_double(double *field, const struct rps_option_def *def, const char *text,
        char why[RPS_OPTION_WHY_MAX])
{
    double value = 0;

    if (!rps_parse_double(text, &value)) {
        return say_why(def, text, "is no number", why);
    }
    if (!is_within_double(def, value)) {
        return say_why(def, text, "is out of range", why);
    }
    *field = value;
    return true;
}

static bool
set_bool(bool *field, const struct rps_option_def *def, const char *text,
        char why[RPS_OPTION_WHY_MAX])
{
    if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0) {
        *field = true;
    } else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0) {
        *field = false;
    } else {
        return say_why(def, text, "is neither true nor false", why);
    }
    return true;
}

/* NULL for `text` clears the field. */
static bool
set_copy(char **field, const char *text, char why[RPS_OPTION_WHY_MAX])
{
    char *copy = text == NULL ? NULL : strdup(text);

    if (text != NULL && copy == NULL) {
        (void)snprintf(why, RPS_OPTION_WHY_MAX, "out of memory");
        return false;
    }
    free(*field);
    *field = copy;
    return true;
}

static bool
set_optional(char **field, const struct rps_option_def *def, const char *text,
        char why[RPS_OPTION_WHY_MAX])
{
    uint64_t step = 0;

    if (strcmp(text, "false") == 0) {
        return set_copy(field, NULL, why);
    }
    if (text[0] == '\0' || strcmp(text, "true") == 0) {
        return set_copy(field, "", why);
    }
    if (strcmp(text, def->allowed) != 0 && !rps_parse_u64(text, &step)) {
        return say_why(def, text, "is no whole number", why);
    }
    return set_copy(field, text, why);
}

static bool
set_field(struct rps_options *options, const struct rps_option_def *def,
        const char *text, char why[RPS_OPTION_WHY_MAX])
{
    void *field = field_of(options, def);

    switch (def->type) {
    case RPS_OPTION_U64:
    case RPS_OPTION_BYTES:
        return set_u64(field, def, text, why);
    case RPS_OPTION_F64:
    case RPS_OPTION_SECONDS:
        return set_double(field, def, text, why);
    case RPS_OPTION_BOOL:
        return set_bool(field, def, text, why);
    case RPS_OPTION_OPTIONAL:
        return set_optional(field, def, text, why);
    case RPS_OPTION_CHOICE:
        return is_choice(def->allowed, text)
                       ? set_copy(field, text, why)
                       : say_why(def, text, "is no choice", why);
    case RPS_OPTION_STRING:
        break;
    }
    if (def->allowed[0] != '\0' && !is_within_u64(def, strlen(text))) {
        return say_why(def, text, "is too short or too long", why);
    }
    return set_copy(field, text, why);
}

bool
rps_option_set(struct rps_options *options, const struct rps_option_def *def,
        const char *text, enum rps_origin origin, char why[RPS_OPTION_WHY_MAX])
{
    uint8_t *origins = options->owned;
    const size_t index = (size_t)(def - rps_option_table);

    if (origins[index] > origin) {
        return true;
    }
    if (!set_field(options, def, text, why)) {
        return false;
    }
    origins[index] = (uint8_t)origin;
    return true;
}

static bool
say_type(const struct rps_option_def *def, char why[RPS_OPTION_WHY_MAX])
{
    char allowed[RPS_OPTION_WHY_MAX];

    (void)snprintf(why, RPS_OPTION_WHY_MAX,
            "the value has the wrong type (allowed: %.160s)",
            rps_option_allowed(def, allowed));
    return false;
}

static bool
is_whole(const struct rps_option_def *def)
{
    return def->type == RPS_OPTION_U64 || def->type == RPS_OPTION_BYTES ||
           def->type == RPS_OPTION_OPTIONAL;
}

static bool
is_real(const struct rps_option_def *def)
{
    return def->type == RPS_OPTION_F64 || def->type == RPS_OPTION_SECONDS;
}

bool
rps_option_set_json(struct rps_options *options,
        const struct rps_option_def *def, const json_t *value,
        char why[RPS_OPTION_WHY_MAX])
{
    char text[64];

    if (json_is_string(value)) {
        return rps_option_set(
                options, def, json_string_value(value), RPS_ORIGIN_JSON, why);
    }
    if (json_is_integer(value) && (is_whole(def) || is_real(def))) {
        (void)snprintf(text, sizeof(text), "%lld",
                (long long)json_integer_value(value));
    } else if (json_is_real(value) && is_real(def)) {
        (void)snprintf(text, sizeof(text), "%.17g", json_real_value(value));
    } else if (json_is_boolean(value) &&
               (def->type == RPS_OPTION_BOOL ||
                       def->type == RPS_OPTION_OPTIONAL)) {
        (void)snprintf(text, sizeof(text), "%s",
                json_is_true(value) ? "true" : "false");
    } else {
        return say_type(def, why);
    }
    return rps_option_set(options, def, text, RPS_ORIGIN_JSON, why);
}

bool
rps_options_default(struct rps_options *options)
{
    char why[RPS_OPTION_WHY_MAX];

    memset(options, 0, sizeof(*options));
    options->owned = calloc(rps_option_count, 1);
    options->origins = options->owned;
    for (size_t i = 0; options->owned != NULL && i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        if (def->type != RPS_OPTION_OPTIONAL &&
                !set_field(options, def, def->value, why)) {
            return false;
        }
    }
    return options->owned != NULL;
}

void
rps_options_finish(struct rps_options *options)
{
    for (size_t i = 0; i < rps_option_count; i++) {
        const struct rps_option_def *def = &rps_option_table[i];
        char **field = field_of(options, def);
        if (def->type == RPS_OPTION_STRING || def->type == RPS_OPTION_CHOICE ||
                def->type == RPS_OPTION_OPTIONAL) {
            free(*field);
        }
    }
    free(options->refusal);
    free(options->owned);
    rps_cluster_finish(&options->cluster);
    memset(options, 0, sizeof(*options));
}
