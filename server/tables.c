/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the requests that open tables and write rows as they are:
 * GET_EMBEDDING_TABLE, ASSIGN.
 */
#include "base/spec.h"
#include "server/sections.h"
#include "server/serving.h"
#include "server/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *
table_answer(struct rps_table *table)
{
    struct rps_table_stats stats;
    char id[24];

    rps_table_stats_of(table, &stats);
    snprintf(id, sizeof(id), "%016" PRIx64, rps_table_id_of(table));
    return rps_json_text(json_pack(
            "{s:s, s:I}", "table_id", id, "rows", (json_int_t)stats.rows));
}

rps_status
rps_serve_get_table(struct rps_request *request)
{
    struct rps_store *store = request->service->store;
    struct rps_table *table = NULL;
    rps_table_spec spec;
    json_t *object;
    rps_status status = RPS_OK;

    if (request->service->serving != NULL) {
        return rps_serving_open_table(request);
    }
    status = rps_request_json(request, &object);
    if (status != RPS_OK) {
        return status;
    }
    status = rps_spec_from_value(object, &spec, &request->error);
    json_decref(object);
    if (status == RPS_OK && rps_store_count(store) >= RPS_TABLES_MAX &&
            rps_store_find(store, rps_table_id(spec.name)) == NULL) {
        return rps_fail(&request->error, RPS_E_LIMIT,
                "table %s: %u tables are open here, which is the limit",
                spec.name, RPS_TABLES_MAX);
    }
    if (status == RPS_OK) {
        status = rps_store_open_table(store, &spec, &table, &request->error);
    }
    if (status == RPS_OK) {
        rps_table_set_now(table, rps_service_now(request->service));
        request->text = table_answer(table);
        status = request->text != NULL ? RPS_OK : RPS_E_NOMEM;
    }
    return status;
}

static rps_status
check_finite(const struct rps_message *message,
        const struct rps_table_part *part, const struct rps_section *section,
        const char *what, struct rps_error *error)
{
    const float *values;
    size_t n;

    if (section == NULL || section->count == 0) {
        return RPS_OK;
    }
    values = rps_message_array(message, section);
    n = section->count * section->dim;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(values[i])) {
            const uint64_t *keys = rps_message_array(message, part->keys);

            return rps_fail(error, RPS_E_NONFINITE,
                    "table %s: %s of key %" PRIu64
                    " has an element that is not finite; nothing was"
                    " assigned",
                    part->spec->name, what, keys[i / section->dim]);
        }
    }
    return RPS_OK;
}

static rps_status
assign_part(struct rps_request *request, const struct rps_table_part *part)
{
    const struct rps_message *message = request->message;
    size_t n = part->keys->count;
    rps_status status;

    if (n == 0) {
        return RPS_OK;
    }
    rps_table_set_now(part->table, rps_service_now(request->service));
    status = rps_table_assign(part->table, n,
            rps_message_array(message, part->keys),
            rps_message_array(message, part->rows),
            part->slots != NULL ? rps_message_array(message, part->slots)
                                : NULL,
            part->meta != NULL ? rps_message_array(message, part->meta) : NULL,
            &request->error);
    if (status == RPS_OK) {
        rps_changes_add(request->service, part->table_id, n);
    }
    return status;
}

rps_status
rps_serve_assign(struct rps_request *request)
{
    struct rps_parts parts;
    rps_status status = rps_parts_collect(request->service, request->message,
            RPS_KIND_BIT(RPS_SECTION_KEYS) | RPS_KIND_BIT(RPS_SECTION_ROWS),
            RPS_KIND_BIT(RPS_SECTION_SLOTS) | RPS_KIND_BIT(RPS_SECTION_META),
            &parts, &request->error);

    if (status == RPS_OK) {
        status = rps_parts_status(&parts);
    }
    for (size_t i = 0; status == RPS_OK && i < parts.count; i++) {
        const struct rps_table_part *part = &parts.items[i];

        status = check_finite(
                request->message, part, part->rows, "the row", &request->error);
        if (status == RPS_OK) {
            status = check_finite(request->message, part, part->slots, "a slot",
                    &request->error);
        }
    }
    for (size_t i = 0; status == RPS_OK && i < parts.count; i++) {
        status = assign_part(request, &parts.items[i]);
    }
    rps_parts_finish(&parts);
    return status;
}
