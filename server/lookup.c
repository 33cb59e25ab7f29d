/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the requests that read rows: EMBEDDING_LOOKUP, as rows or as sums of
 * bags, of any value type, and REFRESH. A large lookup goes in slices: its
 * deadline is looked at between them, and what is narrowed stays in cache.
 * Where its answer can be sent while it is made, lookup_stream.c makes it.
 */
#include "server/lookup.h"

#include "proto/value.h"
#include "server/sections.h"
#include "server/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLICE_KEYS  4096u      /* a block of rps_table_lookup() */
#define SLICE_BYTES (1u << 20) /* of rows before they are narrowed */
#define SLICE_BAGS  1024u

/* Sections of an answer: those of the tables, and words. */
static size_t
answer_sections(const struct rps_parts *parts, bool with_positions)
{
    return (with_positions ? 2 : 1) * parts->count + 1;
}

/* Rows, with what else travels a key. No overflow: at most 2^22 of at most
 * 2^15 bytes. */
static size_t
answer_bytes(const struct rps_table_part *part, bool with_positions)
{
    const uint32_t dim = part->spec->dim;

    if (with_positions) {
        return part->keys->count * (dim * sizeof(float) + sizeof(uint32_t));
    }
    return rps_part_rows(part) * rps_value_row_bytes(part->keys->value, dim);
}

/* All of it must fit one frame. */
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
        bytes += answer_bytes(part, with_positions);
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
    rps_builder_begin_in(builder, &header,
            (uint32_t)answer_sections(parts, with_positions),
            request->session->memory);
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

/* --- EMBEDDING_LOOKUP ---------------------------------------------------- */

/** The arrays of an answer are written in this order: the frame moves until
 * the last is reserved. */
struct answer {
    struct rps_request *request;
    struct rps_builder builder;
    size_t *offsets; /* of each part's rows in the frame; 0: none */
};

static rps_status
reserve_rows(struct answer *answer, const struct rps_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        const struct rps_table_part *part = &parts->items[i];
        struct rps_section section = answer_section(part, RPS_SECTION_ROWS);

        if (part->status == RPS_OK) {
            section.value = part->keys->value;
            section.count = rps_part_rows(part);
        }
        answer->offsets[i] = rps_builder_reserve(&answer->builder, &section);
        if (section.count * section.dim > 0 && answer->offsets[i] == 0) {
            return RPS_E_NOMEM;
        }
    }
    return RPS_OK;
}

void
rps_lookup_read(const struct rps_request *request,
        const struct rps_table_part *part, uint64_t first, uint64_t n,
        float *rows)
{
    const struct rps_message *message = request->message;
    const uint64_t *keys = rps_message_array(message, part->keys);
    const uint32_t *counts = part->counts != NULL
                                     ? rps_message_array(message, part->counts)
                                     : NULL;
    const struct rps_read read = {.count = n,
            .keys = keys + first,
            .counts = counts != NULL ? counts + first : NULL,
            .read_only = request->service->serving != NULL ||
                         (message->header.flags & RPS_FLAG_READ_ONLY) != 0};

    rps_table_lookup(part->table, &read, rows, part->spec->dim * sizeof(float));
}

/* All keys of a part to rows[keys][dim]. */
static rps_status
read_all(struct rps_request *request, const struct rps_table_part *part,
        float *rows)
{
    const uint64_t count = part->keys->count;

    for (uint64_t at = 0; at < count; at += SLICE_KEYS) {
        const uint64_t n = count - at < SLICE_KEYS ? count - at : SLICE_KEYS;

        if (rps_request_is_late(request)) {
            return RPS_E_DEADLINE;
        }
        rps_lookup_read(request, part, at, n, rows + at * part->spec->dim);
    }
    return RPS_OK;
}

/* The same as narrower values, slice by slice. */
static rps_status
read_narrow(struct rps_request *request, const struct rps_table_part *part,
        uint8_t *to)
{
    const uint32_t dim = part->spec->dim;
    const uint16_t value = part->keys->value;
    const uint64_t count = part->keys->count;
    const uint64_t fits = SLICE_BYTES / (dim * sizeof(float));
    const uint64_t slice = fits < SLICE_KEYS ? fits : SLICE_KEYS;
    float *rows = malloc((count < slice ? count : slice) * dim * sizeof(*rows));

    if (rows == NULL) {
        return RPS_E_NOMEM;
    }
    for (uint64_t at = 0; at < count; at += slice) {
        const uint64_t n = count - at < slice ? count - at : slice;

        if (rps_request_is_late(request)) {
            free(rows);
            return RPS_E_DEADLINE;
        }
        rps_lookup_read(request, part, at, n, rows);
        rps_value_encode(
                value, dim, n, rows, to + at * rps_value_row_bytes(value, dim));
    }
    free(rows);
    return RPS_OK;
}

/* The bags' sums. Each distinct key is looked up once. */
static rps_status
read_bags(struct rps_request *request, const struct rps_table_part *part,
        uint8_t *to)
{
    const uint32_t dim = part->spec->dim;
    const uint64_t bags = part->bags.count;
    const uint16_t value = part->keys->value;
    float *rows = malloc((part->keys->count * dim + 1) * sizeof(*rows));
    rps_status status =
            rows != NULL ? read_all(request, part, rows) : RPS_E_NOMEM;

    for (uint64_t at = 0; status == RPS_OK && at < bags; at += SLICE_BAGS) {
        const uint64_t n = bags - at < SLICE_BAGS ? bags - at : SLICE_BAGS;

        rps_wire_bags_pool(&part->bags, at, n, dim, rows, value,
                to + at * rps_value_row_bytes(value, dim));
        if (rps_request_is_late(request)) {
            status = RPS_E_DEADLINE;
        }
    }
    free(rows);
    return status;
}

static rps_status
read_part(struct rps_request *request, const struct rps_table_part *part,
        uint8_t *to)
{
    if (part->offsets != NULL) {
        return read_bags(request, part, to);
    }
    return part->keys->value != RPS_VALUE_F32
                   ? read_narrow(request, part, to)
                   : read_all(request, part, (float *)(void *)to);
}

static rps_status
fill_rows(struct answer *answer, const struct rps_parts *parts)
{
    struct rps_request *request = answer->request;
    rps_status status = reserve_rows(answer, parts);

    if (status == RPS_OK && rps_parts_status(parts) != RPS_OK) {
        rps_builder_add_text(&answer->builder, request->error.text,
                strlen(request->error.text));
    }
    for (size_t i = 0; status == RPS_OK && i < parts->count; i++) {
        if (answer->offsets[i] != 0) {
            status = read_part(request, &parts->items[i],
                    answer->builder.frame + answer->offsets[i]);
        }
    }
    return status;
}

static rps_status
answer_whole(struct rps_request *request, const struct rps_parts *parts)
{
    struct answer answer = {.request = request,
            .offsets = calloc(parts->count + 1, sizeof(size_t))};
    rps_status status = RPS_E_NOMEM;

    if (answer.offsets == NULL) {
        return rps_fail(&request->error, RPS_E_NOMEM, "no memory for rows");
    }
    begin_answer(request, &answer.builder, parts, false);
    status = fill_rows(&answer, parts);
    free(answer.offsets);
    if (status == RPS_OK) {
        status = rps_builder_end(
                &answer.builder, &request->frame, &request->frame_bytes);
    }
    if (status != RPS_OK) {
        rps_builder_finish(&answer.builder);
        request->frame = NULL;
        return status == RPS_E_DEADLINE ? rps_request_fail_late(request)
                                        : rps_fail(&request->error, RPS_E_NOMEM,
                                                  "no memory for rows");
    }
    return rps_parts_status(parts);
}

static rps_status
answer_lookup(struct rps_request *request, const struct rps_parts *parts)
{
    if (rps_request_is_late(request)) {
        return rps_request_fail_late(request);
    }
    return rps_lookup_stream(request, parts) ? RPS_OK
                                             : answer_whole(request, parts);
}

rps_status
rps_serve_lookup(struct rps_request *request)
{
    struct rps_parts parts;
    rps_status status = rps_parts_collect(request->service, request->message,
            RPS_KIND_BIT(RPS_SECTION_KEYS),
            RPS_KIND_BIT(RPS_SECTION_COUNTS) |
                    RPS_KIND_BIT(RPS_SECTION_OFFSETS) |
                    RPS_KIND_BIT(RPS_SECTION_INDEX),
            &parts, &request->error);

    if (status == RPS_OK) {
        struct rps_error size_error;

        status = check_answer_size(&parts, false, &size_error);
        if (status == RPS_OK) {
            status = rps_wire_bags_check_size(&parts, &size_error);
        }
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

/* --- REFRESH ------------------------------------------------------------- */

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
