/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the checks that every request with keys has in common. Leaves bounds
 * of arrays to proto/message and what is done with rows to the callers.
 */
#include "server/sections.h"

#include "base/hash.h"
#include "base/spec.h"
#include "proto/value.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *
kind_str(uint16_t kind)
{
    static const char *const names[] = {"?", "KEYS", "COUNTS", "OFFSETS",
            "ROWS", "VERSIONS", "SLOTS", "META", "DECISION", "TEXT", "AUTH",
            "INDEX"};

    return kind < sizeof(names) / sizeof(names[0]) ? names[kind] : "?";
}

static struct rps_table_part *
find_part(const struct rps_parts *parts, uint64_t table_id)
{
    for (size_t i = 0; i < parts->count; i++) {
        if (parts->items[i].table_id == table_id) {
            return &parts->items[i];
        }
    }
    return NULL;
}

static const struct rps_section **
place_of(struct rps_table_part *part, uint16_t kind)
{
    switch (kind) {
    case RPS_SECTION_KEYS:
        return &part->keys;
    case RPS_SECTION_COUNTS:
        return &part->counts;
    case RPS_SECTION_ROWS:
        return &part->rows;
    case RPS_SECTION_SLOTS:
        return &part->slots;
    case RPS_SECTION_META:
        return &part->meta;
    case RPS_SECTION_OFFSETS:
        return &part->offsets;
    case RPS_SECTION_INDEX:
        return &part->index;
    default:
        return NULL;
    }
}

static rps_status
add_keys(const struct rps_message *message, struct rps_parts *parts,
        struct rps_error *error)
{
    const char *name = rps_opcode_str(message->header.opcode);

    for (uint32_t i = 0; i < message->section_count; i++) {
        const struct rps_section *section = &message->sections[i];
        struct rps_table_part *part;

        if (section->kind != RPS_SECTION_KEYS) {
            continue;
        }
        if (find_part(parts, section->table_id) != NULL) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: section %" PRIu32 " is a second KEYS of table"
                    " %016" PRIx64,
                    name, i, section->table_id);
        }
        part = &parts->items[parts->count++];
        part->table_id = section->table_id;
        part->keys = section;
    }
    return RPS_OK;
}

static rps_status
add_others(const struct rps_message *message, uint32_t allowed,
        struct rps_parts *parts, struct rps_error *error)
{
    const char *name = rps_opcode_str(message->header.opcode);

    for (uint32_t i = 0; i < message->section_count; i++) {
        const struct rps_section *section = &message->sections[i];
        struct rps_table_part *part;
        const struct rps_section **place;

        if (section->kind == RPS_SECTION_KEYS ||
                section->kind == RPS_SECTION_DECISION ||
                section->kind == RPS_SECTION_TEXT) {
            continue;
        }
        if (section->kind >= 32 ||
                (allowed & RPS_KIND_BIT(section->kind)) == 0) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: section %" PRIu32 " (%s, kind %u) has no place in"
                    " this request",
                    name, i, kind_str(section->kind), section->kind);
        }
        part = find_part(parts, section->table_id);
        place = part != NULL ? place_of(part, section->kind) : NULL;
        if (place == NULL || *place != NULL) {
            return rps_fail(error, RPS_E_INVAL,
                    "%s: section %" PRIu32 " (%s of table %016" PRIx64 ") %s",
                    name, i, kind_str(section->kind), section->table_id,
                    place == NULL ? "has no KEYS section of its table"
                                  : "is there twice");
        }
        *place = section;
    }
    return RPS_OK;
}

static rps_status
check_required(const struct rps_message *message, uint32_t required,
        struct rps_parts *parts, struct rps_error *error)
{
    for (size_t i = 0; i < parts->count; i++) {
        for (uint16_t kind = 1; kind <= RPS_SECTION_TEXT; kind++) {
            if ((required & RPS_KIND_BIT(kind)) != 0 &&
                    *place_of(&parts->items[i], kind) == NULL) {
                return rps_fail(error, RPS_E_INVAL,
                        "%s: table %016" PRIx64 " has no %s section",
                        rps_opcode_str(message->header.opcode),
                        parts->items[i].table_id, kind_str(kind));
            }
        }
    }
    return RPS_OK;
}

uint64_t
rps_part_rows(const struct rps_table_part *part)
{
    return part->offsets != NULL ? part->bags.count : part->keys->count;
}

/* An array that goes with the keys or bags: as many elements, of the right
 * width. */
static rps_status
check_array(const struct rps_table_part *part,
        const struct rps_section *section, uint64_t count, uint32_t dim,
        struct rps_error *error)
{
    if (section == NULL) {
        return RPS_OK;
    }
    if (section->count != count) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: %s has count %" PRIu64 ", but there are %" PRIu64
                " %s",
                part->spec->name, kind_str(section->kind), section->count,
                count, count == part->keys->count ? "keys" : "bags");
    }
    if (dim != 0 && section->dim != dim) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: %s has dim %" PRIu32 ", but the table's is"
                " %" PRIu32,
                part->spec->name, kind_str(section->kind), section->dim, dim);
    }
    return RPS_OK;
}

/* Gradients may have any type; rows and slots are written as they come. */
static rps_status
check_value(const struct rps_message *message,
        const struct rps_table_part *part, struct rps_error *error)
{
    const bool is_push = message->header.opcode == RPS_OP_PUSH_GRADIENTS;
    const struct rps_section *each[] = {part->rows, part->slots};

    for (size_t i = 0; i < 2; i++) {
        if (each[i] != NULL && each[i]->value != RPS_VALUE_F32 &&
                !(is_push && i == 0)) {
            return rps_fail(error, RPS_E_UNSUPPORTED,
                    "table %s: %s of %s has value type %u; f32 (0) is taken",
                    part->spec->name, kind_str(each[i]->kind),
                    rps_opcode_str(message->header.opcode), each[i]->value);
        }
    }
    if (message->header.opcode == RPS_OP_EMBEDDING_LOOKUP &&
            part->keys->value > RPS_VALUE_I8) {
        return rps_fail(error, RPS_E_UNSUPPORTED,
                "table %s: rows of value type %u are asked for; this version "
                "sends f32 (0), f16 (1), bf16 (2) and i8 (3)",
                part->spec->name, part->keys->value);
    }
    return part->rows != NULL && is_push
                   ? rps_value_check(part->rows->value, part->rows->dim,
                             part->rows->count,
                             rps_message_array(message, part->rows), error)
                   : RPS_OK;
}

static rps_status
check_arrays(const struct rps_message *message,
        const struct rps_table_part *part, struct rps_error *error)
{
    uint32_t slot_floats = rps_spec_slot_floats(part->spec);
    uint64_t keys = part->keys->count;
    rps_status status = check_array(part, part->counts, keys, 0, error);

    if (status == RPS_OK) {
        status = check_array(
                part, part->rows, rps_part_rows(part), part->spec->dim, error);
    }
    if (status == RPS_OK) {
        status = check_value(message, part, error);
    }
    if (status == RPS_OK && part->slots != NULL && slot_floats == 0) {
        return rps_fail(error, RPS_E_INVAL,
                "table %s: its optimizer (%s) has no slots, but SLOTS is"
                " there",
                part->spec->name, rps_optimizer_str(part->spec->optimizer));
    }
    if (status == RPS_OK) {
        status = check_array(part, part->slots, keys, slot_floats, error);
    }
    return status == RPS_OK ? check_array(part, part->meta, keys, 0, error)
                            : status;
}

static rps_status
check_owner(struct rps_service *service, const struct rps_table_part *part,
        const uint64_t *keys, struct rps_error *error)
{
    uint32_t own = service->options.ps_index;

    if (service->options.ps_count == 1) {
        return RPS_OK;
    }
    for (uint64_t i = 0; i < part->keys->count; i++) {
        uint32_t owner = rps_route_owner(&service->route,
                rps_key_hash(keys[i], service->options.job_seed));

        if (owner != own) {
            return rps_fail(error, RPS_E_WRONG_ROUTE,
                    "table %s: key %" PRIu64 " (position %" PRIu64
                    ") belongs to PS %" PRIu32 ", this is PS %" PRIu32
                    " (route version %" PRIu32 ")",
                    part->spec->name, keys[i], i, owner, own,
                    service->route.version);
        }
    }
    return RPS_OK;
}

static rps_status
check_part(struct rps_service *service, const struct rps_message *message,
        struct rps_table_part *part, struct rps_error *error)
{
    const uint64_t *keys = rps_message_array(message, part->keys);
    rps_status status;

    part->table = rps_store_find(service->store, part->table_id);
    if (part->table == NULL) {
        return rps_fail(error, RPS_E_NOT_FOUND,
                "table %016" PRIx64
                " is not open here: GET_EMBEDDING_TABLE comes first",
                part->table_id);
    }
    part->spec = rps_table_spec_of(part->table);
    status = rps_wire_bags_open(message, part, error);
    if (status == RPS_OK) {
        status = check_arrays(message, part, error);
    }
    if (status == RPS_OK) {
        status = check_owner(service, part, keys, error);
    }
    if (status == RPS_OK && part->keys->count > 0) {
        status = rps_table_check_keys(
                part->table, part->keys->count, keys, error);
    }
    return status;
}

rps_status
rps_parts_collect(struct rps_service *service,
        const struct rps_message *message, uint32_t required, uint32_t allowed,
        struct rps_parts *parts, struct rps_error *error)
{
    struct rps_error other;
    bool told = false;
    rps_status status;

    parts->count = 0;
    parts->items = calloc(message->section_count + 1, sizeof(*parts->items));
    if (parts->items == NULL) {
        return rps_fail(error, RPS_E_NOMEM, "no memory for sections");
    }
    status = add_keys(message, parts, error);
    if (status == RPS_OK) {
        status = add_others(message, required | allowed, parts, error);
    }
    if (status == RPS_OK) {
        status = check_required(message, required, parts, error);
    }
    for (size_t i = 0; status == RPS_OK && i < parts->count; i++) {
        struct rps_table_part *part = &parts->items[i];

        part->status =
                check_part(service, message, part, told ? &other : error);
        told = told || part->status != RPS_OK;
    }
    return status;
}

void
rps_parts_finish(struct rps_parts *parts)
{
    free(parts->items);
    parts->items = NULL;
    parts->count = 0;
}

rps_status
rps_parts_status(const struct rps_parts *parts)
{
    for (size_t i = 0; i < parts->count; i++) {
        if (parts->items[i].status != RPS_OK) {
            return parts->items[i].status;
        }
    }
    return RPS_OK;
}
