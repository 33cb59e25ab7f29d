/* SPDX-License-Identifier: Apache-2.0 */
#include "client/warm.h"

#include "base/spec.h"
#include "client/call.h"

/* What the servers could not tell from a request without it. */
rps_status
rps_warm_check(uint64_t step, const rps_warm_start *warm)
{
    const bool something =
            warm != NULL && (warm->dir != NULL || warm->tables != NULL ||
                                    warm->weights_only != 0);

    if (!something || (warm->tables != NULL && warm->table_count == 0)) {
        return rps_client_fail(RPS_E_INVAL,
                "rps_job_begin_from: *warm names no folder and no table");
    }
    if ((warm->dir == NULL) == (step == 0)) {
        return rps_client_fail(RPS_E_INVAL,
                "rps_job_begin_from: give a step from 1 on, or a folder");
    }
    for (size_t i = 0; warm->tables != NULL && i < warm->table_count; i++) {
        if (warm->tables[i].spec == NULL && warm->tables[i].name == NULL) {
            return rps_client_fail(RPS_E_INVAL,
                    "rps_job_begin_from: table %zu has no name and no spec", i);
        }
    }
    return RPS_OK;
}

static json_t *
warm_table(const rps_warm_table *table)
{
    json_t *object = json_object();
    int bad = 0;

    if (table->spec != NULL) {
        bad = json_object_set_new(
                object, "spec", rps_spec_to_canonical(table->spec));
    } else {
        bad = json_object_set_new(object, "name", json_string(table->name));
    }
    if (table->from != NULL) {
        bad |= json_object_set_new(object, "from", json_string(table->from));
    }
    bad |= json_object_set_new(
            object, "optional", json_boolean(table->optional != 0));
    if (bad != 0) {
        json_decref(object);
        return NULL;
    }
    return object;
}

/* What server/warm.h reads. */
bool
rps_warm_add(json_t *object, const rps_warm_start *warm)
{
    json_t *tables = warm->tables != NULL ? json_array() : NULL;
    bool good = json_object_set_new(object, "weights_only",
                        json_boolean(warm->weights_only != 0)) == 0;

    for (size_t i = 0; tables != NULL && i < warm->table_count; i++) {
        good = json_array_append_new(tables, warm_table(&warm->tables[i])) ==
                       0 &&
               good;
    }
    if (tables != NULL) {
        good = json_object_set_new(object, "tables", tables) == 0 && good;
    }
    if (warm->dir != NULL) {
        good = json_object_set_new(object, "from",
                       json_pack("{s:s, s:I}", "dir", warm->dir, "step",
                               (json_int_t)warm->dir_step)) == 0 &&
               good;
    }
    return good;
}
