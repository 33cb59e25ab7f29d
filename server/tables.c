/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the requests that open, read and write rows as they are:
 * GET_EMBEDDING_TABLE, EMBEDDING_LOOKUP, REFRESH, ASSIGN.
 */
#include "base/spec.h"
#include "server/sections.h"
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
    rps_status status = rps_request_json(request, &object);

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

/* Sections of an answer: those of the tables, and words. */
static size_t
answer_sections(const struct rps_parts *parts, bool with_positions)
{
    return (with_positions ? 2 : 1) * parts->count + 1;
}

/* Rows, with what else travels a key, must fit one frame. */
static rps_status
check_answer_size(const struct rps_parts *parts, bool with_positions,
        struct rps_error *error)
{
    size_t sections = answer_sections(parts, with_positions);
    size_t bytes = 8 + RPS_MESSAGE_ALIGN + sizeof(*error) +
                   sections * (RPS_SECTION_BYTES + RPS_MESSAGE_ALIGN);

    if (sections > RPS_SECTIONS_MAX) {
        return rps_fail(error, RPS_E_LIMIT,
                "the answer would have %zu sections, at most %u fit a frame:"
                " ask for fewer tables at once",
                sections, RPS_SECTIONS_MAX);
    }
    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];

        if (part->status != RPS_OK) {
            continue;
        }
        bytes += part->keys->count * part->spec->dim * sizeof(float);
        bytes += with_positions ? part->keys->count * sizeof(uint32_t) : 0;
        if (bytes > RPS_BODY_BYTES_MAX) {
            return rps_fail(error, RPS_E_LIMIT,
                    "the answer would exceed a frame of %u bytes at table"
                    " %s: ask for fewer than %" PRIu64 " keys at once",
                    RPS_BODY_BYTES_MAX, part->spec->name, part->keys->count);
        }
    }
    return RPS_OK;
}

static void
begin_answer(struct rps_request *request, struct rps_builder *builder,
        const struct rps_parts *parts, bool with_positions)
{
    struct rps_header header =
            rps_reply_header(request->service, request->session,
                    &request->message->header, rps_parts_status(parts));

    /* c is read before the rows: in async they may be newer, never older */
    rps_builder_begin(
            builder, &header, (uint32_t)answer_sections(parts, with_positions));
}

static rps_status
end_answer(struct rps_request *request, struct rps_builder *builder,
        const struct rps_parts *parts)
{
    rps_status status = rps_parts_status(parts);
    rps_status ended;

    if (status != RPS_OK) {
        rps_builder_add_text(
                builder, request->error.text, strlen(request->error.text));
    }
    ended = rps_builder_end(builder, &request->frame, &request->frame_bytes);
    if (ended != RPS_OK) {
        rps_builder_finish(builder);
        request->frame = NULL;
        return rps_fail(
                &request->error, ended, "the answer could not be built");
    }
    return status;
}

static struct rps_section
answer_section(const struct rps_table_part *part, uint16_t kind)
{
    struct rps_section section = {0};

    section.table_id = part->table_id;
    section.kind = kind;
    section.dim = kind == RPS_SECTION_ROWS && part->spec != NULL
                          ? part->spec->dim
                          : 0;
    section.status = (int32_t)part->status;
    section.learning_rate = NAN;
    return section;
}

/* Reserve every array first: the frame moves until the last one. */
static rps_status
reserve_rows(struct rps_builder *builder, const struct rps_parts *parts,
        size_t *offsets)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];
        struct rps_section section = answer_section(part, RPS_SECTION_ROWS);

        section.count = part->status == RPS_OK ? part->keys->count : 0;
        offsets[i] = rps_builder_reserve(builder, &section);
        if (section.count > 0 && offsets[i] == 0) {
            return RPS_E_NOMEM;
        }
    }
    return RPS_OK;
}

static rps_status
answer_lookup(struct rps_request *request, const struct rps_parts *parts)
{
    const struct rps_message *message = request->message;
    bool read_only = (message->header.flags & RPS_FLAG_READ_ONLY) != 0;
    size_t *offsets = calloc(parts->count + 1, sizeof(*offsets));
    struct rps_builder builder;

    if (offsets == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory for rows");
    }
    begin_answer(request, &builder, parts, false);
    if (reserve_rows(&builder, parts, offsets) != RPS_OK) {
        rps_builder_finish(&builder);
        free(offsets);
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory for rows");
    }
    if (rps_parts_status(parts) != RPS_OK) {
        rps_builder_add_text(
                &builder, request->error.text, strlen(request->error.text));
    }
    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];

        if (offsets[i] != 0) {
            const struct rps_read read = {.count = part->keys->count,
                    .keys = rps_message_array(message, part->keys),
                    .counts = part->counts != NULL
                                      ? rps_message_array(message, part->counts)
                                      : NULL,
                    .read_only = read_only};
            rps_table_lookup(part->table, &read,
                    (float *)(void *)(builder.frame + offsets[i]),
                    part->spec->dim * sizeof(float));
        }
    }
    free(offsets);
    if (rps_builder_end(&builder, &request->frame, &request->frame_bytes) !=
            RPS_OK) {
        rps_builder_finish(&builder);
        request->frame = NULL;
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory for rows");
    }
    return rps_parts_status(parts);
}

rps_status
rps_serve_lookup(struct rps_request *request)
{
    struct rps_parts parts;
    rps_status status = rps_parts_collect(request->service, request->message,
            RPS_KIND_BIT(RPS_SECTION_KEYS), RPS_KIND_BIT(RPS_SECTION_COUNTS),
            &parts, &request->error);

    if (status == RPS_OK) {
        struct rps_error size_error;

        status = check_answer_size(&parts, false, &size_error);
        if (status != RPS_OK) {
            request->error = size_error;
        }
    }
    if (status == RPS_OK) {
        status = answer_lookup(request, &parts);
    }
    rps_parts_finish(&parts);
    return status;
}

/* A step of sync is whole when it is told; in async its pushes, and late
 * ones, which are stamped with it, may still come. */
static size_t
changed_of(struct rps_request *request, const struct rps_table_part *part,
        uint32_t *positions, float *rows)
{
    const uint64_t *keys = rps_message_array(request->message, part->keys);
    const uint64_t step = request->message->header.step;
    const size_t n = part->keys->count;

    return request->service->terms.mode == RPS_MODE_SYNC
                   ? rps_table_changed(
                             part->table, n, keys, step, positions, rows)
                   : rps_table_changed_from(
                             part->table, n, keys, step, positions, rows);
}

static rps_status
add_changed(struct rps_request *request, struct rps_builder *builder,
        const struct rps_table_part *part)
{
    struct rps_section positions_of = answer_section(part, RPS_SECTION_OFFSETS);
    struct rps_section rows_of = answer_section(part, RPS_SECTION_ROWS);
    size_t n = part->status == RPS_OK ? part->keys->count : 0;
    size_t dim = part->spec != NULL ? part->spec->dim : 1;
    uint32_t *positions = malloc((n + 1) * sizeof(*positions));
    float *rows = malloc((n * dim + 1) * sizeof(*rows));
    rps_status status = RPS_E_NOMEM;

    if (positions != NULL && rows != NULL) {
        size_t changed = 0;

        if (n > 0) {
            changed = changed_of(request, part, positions, rows);
        }
        positions_of.count = changed;
        rows_of.count = changed;
        rps_builder_add(builder, &positions_of, positions);
        rps_builder_add(builder, &rows_of, rows);
        status = RPS_OK;
    }
    free(positions);
    free(rows);
    return status;
}

static rps_status
answer_refresh(struct rps_request *request, const struct rps_parts *parts)
{
    struct rps_builder builder;

    begin_answer(request, &builder, parts, true);
    for (size_t i = 0; i < parts->count; i++) {
        if (add_changed(request, &builder, &parts->items[i]) != RPS_OK) {
            rps_builder_finish(&builder);
            return rps_fail(&request->error, RPS_E_NOMEM, "no memory for rows");
        }
    }
    return end_answer(request, &builder, parts);
}

rps_status
rps_serve_refresh(struct rps_request *request)
{
    struct rps_parts parts;
    rps_status status = rps_parts_collect(request->service, request->message,
            RPS_KIND_BIT(RPS_SECTION_KEYS), 0, &parts, &request->error);

    if (status == RPS_OK) {
        struct rps_error size_error;

        status = check_answer_size(&parts, true, &size_error);
        if (status != RPS_OK) {
            request->error = size_error;
        }
    }
    if (status == RPS_OK) {
        status = answer_refresh(request, &parts);
    }
    rps_parts_finish(&parts);
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
