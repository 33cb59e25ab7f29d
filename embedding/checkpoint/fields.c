/* SPDX-License-Identifier: Apache-2.0 */
#include "embedding/checkpoint/fields.h"

#include "base/json.h"
#include "base/spec.h"
#include "base/text.h"
#include "embedding/checkpoint/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

rps_status
rps_ckpt_bad_field(struct rps_error *error, const char *where,
        const char *field, const char *wanted)
{
    return rps_fail(
            error, RPS_E_CORRUPT, "%s: \"%s\" is not %s", where, field, wanted);
}

bool
rps_ckpt_get_u64(
        const json_t *object, const char *field, uint64_t max, uint64_t *out)
{
    return rps_json_count(json_object_get(object, field), out) && *out <= max;
}

bool
rps_ckpt_get_u64_text(const json_t *object, const char *field, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(object, field));

    return text != NULL && rps_parse_u64(text, out);
}

bool
rps_ckpt_get_digest(
        const json_t *object, const char *field, struct rps_digest *out)
{
    const char *text = json_string_value(json_object_get(object, field));

    return text != NULL && rps_digest_parse(text, out);
}

bool
rps_ckpt_listed_parse(const json_t *value, struct rps_ckpt_listed *listed)
{
    const char *hex = json_string_value(json_object_get(value, "xxh3"));

    return rps_ckpt_get_u64(value, "bytes", INT64_MAX, &listed->bytes) &&
           hex != NULL && strlen(hex) == 16 &&
           rps_parse_hex64(hex, &listed->sum);
}

rps_status
rps_ckpt_load_root(const char *text, size_t n, const char *where,
        json_t **root_out, struct rps_error *error)
{
    json_error_t at;
    uint64_t format;

    *root_out = json_loadb(text, n, JSON_REJECT_DUPLICATES, &at);
    if (*root_out == NULL) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: not JSON at line %d column %d: %s", where, at.line,
                at.column, at.text);
    }
    if (!rps_ckpt_get_u64(*root_out, "format", INT64_MAX, &format)) {
        return rps_ckpt_bad_field(error, where, "format", "a number");
    }
    if (format != RPS_CKPT_FORMAT) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "%s: format %" PRIu64 "; this version reads format %u", where,
                format, RPS_CKPT_FORMAT);
    }
    return RPS_OK;
}

/* Of a whole file: what this version does not know is a later version's. */
static rps_status
read_spec(const json_t *value, const char *name, struct rps_ckpt_table *table,
        struct rps_error *error)
{
    rps_status status = rps_spec_check_known(value, error);

    if (status == RPS_OK) {
        status = rps_spec_read(value, &table->written, error);
    }
    if (status == RPS_OK && strcmp(table->written.name, name) != 0) {
        status = rps_fail(error, RPS_E_CORRUPT, "its spec names \"%s\"",
                table->written.name);
    }
    if (status != RPS_OK) {
        return status;
    }
    table->spec = table->written;
    rps_spec_reset_idle(&table->spec);
    return rps_table_spec_check(&table->spec, error->text, sizeof(error->text));
}

/* One table's "spec", named as the object's key says. */
static rps_status
parse_spec(const json_t *value, const char *name, const char *where,
        struct rps_ckpt_table *table, struct rps_error *error)
{
    struct rps_error cause = {""};
    rps_status status;

    if (!json_is_object(value)) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: table \"%.130s\" has no "
                "\"spec\"",
                where, name);
    }
    status = read_spec(value, name, table, &cause);
    if (status == RPS_OK) {
        return RPS_OK;
    }
    /* what is legal but not built stays UNSUPPORTED: the file is whole */
    return rps_fail(error, status == RPS_E_INVAL ? RPS_E_CORRUPT : status,
            "%s: table \"%.130s\": %s", where, name, cause.text);
}

/* A count that is left out where it is 0. */
static bool
get_count(const json_t *value, const char *field, uint64_t *out)
{
    return json_object_get(value, field) == NULL ||
           rps_ckpt_get_u64(value, field, INT64_MAX, out);
}

/* What only a part says: pushes, admission, and whether it is whole, which
 * each part of a full checkpoint is. */
static bool
parse_part_fields(const json_t *value, const struct rps_ckpt_place *place,
        struct rps_ckpt_table *table)
{
    const json_t *whole = json_object_get(value, "whole");

    table->whole = !place->in_delta || json_is_true(whole);
    return rps_ckpt_get_u64_text(value, "pushes", &table->pushes) &&
           table->pushes <= INT64_MAX &&
           get_count(value, "admission", &table->admission) &&
           (whole == NULL || json_is_boolean(whole));
}

/* What only a delta has: a full one that erases would be read as one that
 * does not. */
static bool
parse_erased(const json_t *value, const struct rps_ckpt_place *place,
        struct rps_ckpt_table *table)
{
    return get_count(value, "erased", &table->erased) &&
           (place->in_delta || table->erased == 0);
}

static rps_status
parse_table(const char *name, const json_t *value,
        const struct rps_ckpt_place *place, struct rps_ckpt_table *table,
        struct rps_error *error)
{
    rps_status status = parse_spec(
            json_object_get(value, "spec"), name, place->where, table, error);

    if (status != RPS_OK) {
        return status;
    }
    if (!rps_ckpt_get_u64(value, "rows", INT64_MAX, &table->rows) ||
            !rps_ckpt_get_digest(value, "digest", &table->digest) ||
            !parse_erased(value, place, table) ||
            (place->in_part && !parse_part_fields(value, place, table))) {
        return rps_fail(error, RPS_E_CORRUPT,
                "%s: table %s: rows, digest, erased%s are missing or not such "
                "values",
                place->where, name,
                place->in_part ? ", pushes, admission or whole" : "");
    }
    return RPS_OK;
}

rps_status
rps_ckpt_parse_tables(const json_t *root, const struct rps_ckpt_place *place,
        struct rps_ckpt_table **tables_out, size_t *count_out,
        struct rps_error *error)
{
    json_t *object = json_object_get(root, "tables");
    struct rps_ckpt_table *tables;
    const char *name;
    json_t *value;

    *count_out = 0;
    *tables_out = NULL;
    if (!json_is_object(object)) {
        return rps_ckpt_bad_field(error, place->where, "tables", "an object");
    }
    tables = calloc(json_object_size(object) + 1, sizeof(*tables));
    if (tables == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "%s: no memory", place->where);
    }
    *tables_out = tables;
    json_object_foreach(object, name, value)
    {
        rps_status status =
                parse_table(name, value, place, &tables[*count_out], error);

        if (status != RPS_OK) {
            return status;
        }
        (*count_out)++;
    }
    return RPS_OK;
}
