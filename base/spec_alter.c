/* SPDX-License-Identifier: Apache-2.0 */
/* Some fields of a spec, changed by name: what ALTER_TABLE asks. */
#include "base/spec.h"
#include "base/spec_fields.h"
#include "base/text.h"

#include <string.h>

#define FIELDS_MAX 64u

/* In C it is `dim`: who means that is told the same. */
static const struct rps_spec_field *
find_field(const char *name)
{
    size_t count = 0;
    const struct rps_spec_field *fields = rps_spec_fields(&count);

    name = strcmp(name, "dim") == 0 ? "dimension" : name;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(fields[i].name, name) == 0) {
            return &fields[i];
        }
    }
    return NULL;
}

static rps_status
fail_unknown(const char *table, const char *name, struct rps_error *error)
{
    const char *names[FIELDS_MAX];
    size_t count = 0;
    const struct rps_spec_field *fields = rps_spec_fields(&count);
    const char *near = NULL;

    count = count < FIELDS_MAX ? count : FIELDS_MAX;
    for (size_t i = 0; i < count; i++) {
        names[i] = fields[i].name;
    }
    near = rps_nearest_name(name, names, count);
    return rps_fail(error, RPS_E_INVAL,
            "table %s: a spec has no field \"%.64s\"%s%s%s", table, name,
            near == NULL ? "" : "; did you mean \"", near == NULL ? "" : near,
            near == NULL ? "" : "\"?");
}

static rps_status
check_name(const char *table, const char *name, struct rps_error *error)
{
    const struct rps_spec_field *field = find_field(name);

    if (field == NULL) {
        return fail_unknown(table, name, error);
    }
    if (field->identity) {
        return rps_fail(error, RPS_E_MISMATCH,
                "table %s: %s is part of what the table is and cannot be "
                "altered: drop the table, or make one of another name",
                table, name);
    }
    return RPS_OK;
}

rps_status
rps_spec_alter(const rps_table_spec *from, const json_t *fields,
        rps_table_spec *to, struct rps_error *error)
{
    /* jansson's iteration takes no const; nothing is changed */
    json_t *object = (json_t *)(uintptr_t)fields;
    json_t *whole = NULL;
    json_t *value = NULL;
    const char *name = NULL;
    rps_status status = RPS_OK;

    if (!json_is_object(fields) || json_object_size(fields) == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: nothing to change: name at least one policy field "
                "and its new value",
                from->name);
    }
    json_object_foreach(object, name, value)
    {
        status = check_name(from->name, name, error);
        if (status != RPS_OK) {
            return status;
        }
    }
    whole = rps_spec_to_value(from);
    if (whole == NULL || json_object_update(whole, object) != 0) {
        json_decref(whole);
        return rps_fail(error, RPS_E_NOMEM, "table %s: no memory", from->name);
    }
    status = rps_spec_from_value(whole, to, error);
    json_decref(whole);
    return status;
}
